"""The commands on trio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

import sansmcp
import sansmcp_trio
from sansmcp.events import ClientEvent, Connected
from sansmcp_local import ConnectSettings, ServeSettings

from . import example
from ._adapters import RequestHandlers, Script
from ._with_loop import run_calls_with

EXAMPLE = example.app


def run_calls(
    target: str | Sequence[str],
    script: Callable[[Connected], Script],
    show: Callable[[ClientEvent], None],
    settings: ConnectSettings,
    request_handlers: RequestHandlers | None = None,
) -> None:
    """Make the calls of a script."""

    async def main() -> None:
        connecting = sansmcp_trio.connect(target, request_handlers=request_handlers, **settings)
        await run_calls_with(connecting, script, show)

    trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)


def serve(
    app: sansmcp.App,
    started: Callable[[str, Callable[[], object]], None],
    settings: ServeSettings,
) -> None:
    """Serve an application."""

    class Started(trio.TaskStatus[sansmcp_trio.RunningServer]):
        def started(self, value: sansmcp_trio.RunningServer | None = None) -> None:
            assert value is not None
            stop = partial(trio.lowlevel.current_trio_token().run_sync_soon, value.stop)
            started(value.url, stop)

    trio.run(partial(sansmcp_trio.serve, app, task_status=Started(), **settings))
