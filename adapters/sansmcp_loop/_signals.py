"""Signals in an event loop of asyncio, on each platform."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

STOPPING: Sequence[signal.Signals] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)
"""What ends a program: Ctrl-C, what a supervisor sends, and on Windows Ctrl-Break."""


@contextmanager
def called_at(
    numbers: Sequence[signal.Signals], function: Callable[[], object]
) -> Generator[None, None, None]:
    """Call ``function`` in the running loop at each of these signals, during the block.

    Call this in the main thread. The handlers that were set before are restored at the end.
    """
    loop, before = asyncio.get_running_loop(), {each: signal.getsignal(each) for each in numbers}

    def come(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(function)

    for number in numbers:
        try:
            loop.add_signal_handler(number, function)
        except NotImplementedError:  # no loop of Windows has it; each is woken by a signal
            signal.signal(number, come)
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
