"""The commands on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import sansmcp
import sansmcp_asyncio
from sansmcp.events import ClientEvent

from . import example
from ._adapters import Answers, Script
from ._with_loop import answers_of, converse_with

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
        await converse_with(connecting, script, show)

    _run(main())


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

    _run(main())


def _run(work: Coroutine[Any, Any, None]) -> None:
    with closing(work):  # a Ctrl-C may come before it has begun
        asyncio.run(work)
