"""The commands on trio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio

import sansmcp
import sansmcp_trio
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
        async with (
            sansmcp_trio.connect(target, answers=answers_of(answers), **settings) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(show_events, client, show)
            await make_calls(client, script)
            nursery.cancel_scope.cancel()

    trio.run(main)


def serve(
    app: sansmcp.App,
    started: Callable[[str, Callable[[], object]], None],
    settings: dict[str, Any],
) -> None:
    """Serve an application."""

    async def main() -> None:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            # An exception must not go through the nursery: it would come out as a group.
            try:
                run = partial(sansmcp_trio.serve, app, **settings)
                serving: sansmcp_trio.Serving = await nursery.start(run)
            except (OSError, sansmcp.LocalProtocolError) as error:
                failure = error
            else:
                token = trio.lowlevel.current_trio_token()
                started(serving.url, partial(token.run_sync_soon, serving.stop))
        if failure is not None:
            raise failure

    trio.run(main)
