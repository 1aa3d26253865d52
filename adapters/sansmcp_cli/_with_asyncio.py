"""The commands on asyncio."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import sansmcp
import sansmcp_asyncio
from sansmcp.events import ClientEvent, Connected
from sansmcp_local import ConnectSettings, ServeSettings

from . import example
from ._adapters import RequestHandlers, Script
from ._with_loop import run_calls_with

EXAMPLE = example.app

T = TypeVar("T")


def run_calls(
    target: str | Sequence[str],
    script: Callable[[Connected], Script],
    show: Callable[[ClientEvent], None],
    settings: ConnectSettings,
    request_handlers: RequestHandlers | None = None,
) -> None:
    """Make the calls of a script."""

    async def main() -> None:
        connecting = sansmcp_asyncio.connect(target, request_handlers=request_handlers, **settings)
        await run_calls_with(connecting, script, show)

    run(main())


def serve(
    app: sansmcp.App,
    started: Callable[[str, Callable[[], object]], None],
    settings: ServeSettings,
) -> None:
    """Serve an application."""

    async def main() -> None:
        async with sansmcp_asyncio.serve(app, **settings) as serving:
            loop = asyncio.get_running_loop()
            started(serving.url, partial(loop.call_soon_threadsafe, serving.stop))
            await serving.stopped.wait()

    run(main())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. Ctrl-C cancels it, then raises KeyboardInterrupt."""
    with closing(work):  # a Ctrl-C may arrive before it has begun
        if sys.version_info >= (3, 11):
            return asyncio.run(work)
        return _run(work)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine before Python 3.11, where Ctrl-C interrupts the loop itself at any point."""
    is_interrupted = False

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def interrupt(number: int, frame: object) -> None:
            nonlocal is_interrupted
            is_interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
            loop.call_soon_threadsafe(task.cancel)

        if not _may_be_interrupted():
            return await work
        signal.signal(signal.SIGINT, interrupt)
        try:
            return await work
        finally:
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if is_interrupted:
            raise KeyboardInterrupt from None
        raise


def _may_be_interrupted() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
