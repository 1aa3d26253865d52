"""The signals that end a program, on each platform, and their handlers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

STOPPING: Sequence[signal.Signals] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)
"""What ends a program: Ctrl-C, what a supervisor sends, and on Windows Ctrl-Break."""


@contextmanager
def handlers_restored(numbers: Sequence[signal.Signals]) -> Generator[None, None, None]:
    """Restore the present handlers of these signals at the end of the block.

    Call this in the main thread.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def on_signals(numbers: Sequence[signal.Signals], function: Callable[[], object]) -> None:
    """Call ``function`` in the main thread at each of these signals."""
    for number in numbers:
        signal.signal(number, lambda number, frame: function())
