"""Signals in an event loop of asyncio, on each platform."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from .._signals import handlers_restored, on_signals


@contextmanager
def called_at(
    numbers: Sequence[signal.Signals], function: Callable[[], object]
) -> Generator[None, None, None]:
    """Call ``function`` in the running loop at each of these signals, during the block.

    Call this in the main thread. The handlers that were set before are restored at the end.
    """
    loop = asyncio.get_running_loop()
    with handlers_restored(numbers):
        for number in numbers:
            try:
                loop.add_signal_handler(number, function)
            except NotImplementedError:  # no loop of Windows has it; each is woken by a signal
                on_signals([number], partial(loop.call_soon_threadsafe, function))
        try:
            yield
        finally:
            for number in numbers:
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
