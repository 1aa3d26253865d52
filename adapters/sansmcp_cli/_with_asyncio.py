"""The commands on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sansmcp
import sansmcp_asyncio
from sansmcp.events import ClientEvent

from . import example
from ._adapters import Answers, Script
from ._with_loop import answers_of, make_calls, show_events

EXAMPLE = example.app


def converse(
    target: str | Sequence[str],
    script: Script,
    show: Callable[[ClientEvent], None],
    settings: sansmcp.ClientSettings,
    answers: Answers | None = None,
) -> None:
    """Make the calls of a script."""

    async def main() -> None:
        connecting = sansmcp_asyncio.connect(target, answers=answers_of(answers), **settings)
        async with connecting as client:
            showing = asyncio.create_task(show_events(client, show))
            await make_calls(client, script)
            showing.cancel()
            await asyncio.wait([showing])

    asyncio.run(main())


def serve(
    app: sansmcp.App,
    started: Callable[[str, Callable[[], object]], None],
    settings: dict[str, Any],
) -> None:
    """Serve an application."""

    async def main() -> None:
        async with sansmcp_asyncio.serve(app, **settings) as serving:
            loop = asyncio.get_running_loop()
            started(serving.url, partial(loop.call_soon_threadsafe, serving.stop))
            await serving.stopped.wait()

    asyncio.run(main())
