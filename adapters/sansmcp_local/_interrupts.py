"""Locks for blocking adapters that delay KeyboardInterrupt to where a thread waits.

An interrupt in the middle of a step would leave the machine in an inconsistent state. So Ctrl-C is
delayed in the main thread, unless the program has a SIGINT handler of its own.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import TypeVar

import sansmcp

_T = TypeVar("_T")

_SIGNALS_NOTICED_WITHIN = 0.2
"""Seconds after which a main thread that waits runs handlers of signals."""

_is_allowed = True
_has_come = False


@contextlib.contextmanager
def ki_protected(lock: threading.RLock) -> Generator[None]:
    """Hold ``lock``, and delay KeyboardInterrupt as :func:`interrupts_kept` does.

    Raises:
        LocalProtocolError: another thread holds the lock.
    """
    with interrupts_kept():
        if not lock.acquire(blocking=False):
            raise sansmcp.LocalProtocolError(
                "Another thread is using this client. A blocking client serves one thread at a "
                "time; open one in each thread"
            )
        try:
            yield
        finally:
            lock.release()


@contextlib.contextmanager
def interrupts_kept() -> Generator[None]:
    """Delay KeyboardInterrupt to the end of the block, or to a :func:`ki_unprotected` in it."""
    is_ours = _is_main() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        with _allowing(wanted=False):
            yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _raise_if_come()


@contextlib.contextmanager
def ki_unprotected() -> Generator[None]:
    """Allow KeyboardInterrupt in this block. Raise a delayed one at once."""
    with _allowing(wanted=True):
        if _is_main():
            _raise_if_come()
        yield


def wait_in_parts(wait: Callable[[float | None], _T], until: float) -> _T:
    """Wait, and in the main thread no longer than the handlers of signals may be late.

    Only the main thread runs them, and a signal does not end each of its waits: on Windows Ctrl-C
    ends neither ``select()`` nor a wait for a lock, and elsewhere a signal that has interrupted
    another thread ends none.

    Args:
        wait: waits for some seconds, or without a limit if it is called with None; what it returns
            is true if what it waits for has happened.
        until: the time on ``time.monotonic()`` at which to stop waiting; ``math.inf`` for never.

    Returns:
        What ``wait`` has returned last.
    """
    while True:
        left = max(0.0, until - time.monotonic())
        if not _is_main():
            return wait(None if left == math.inf else left)
        result = wait(min(left, _SIGNALS_NOTICED_WITHIN))
        if result or left <= _SIGNALS_NOTICED_WITHIN:
            return result


@contextlib.contextmanager
def _allowing(*, wanted: bool) -> Generator[None]:
    global _is_allowed
    before = _is_allowed
    if _is_main():
        _is_allowed = wanted
    try:
        yield
    finally:
        if _is_main():
            _is_allowed = before


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _has_come
    _has_come = True
    if _is_allowed:
        _raise_if_come()


def _raise_if_come() -> None:
    global _has_come
    if _has_come:
        _has_come = False
        raise KeyboardInterrupt


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
