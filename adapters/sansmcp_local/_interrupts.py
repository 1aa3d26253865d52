"""For who blocks: one thread works with a machine at a time, and Ctrl-C interrupts its waits only.

A machine with half a step done is of no use. Interrupts are held back in the main thread, as long
as nobody else has a handler for SIGINT.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

import sansmcp

_is_allowed = True
_has_come = False


@contextlib.contextmanager
def ki_protected(lock: threading.RLock) -> Generator[None]:
    """Hold the lock, and keep KeyboardInterrupt for the end or for :func:`ki_unprotected`.

    Raises LocalProtocolError if another thread holds the lock.
    """
    with interrupts_kept():
        if not lock.acquire(blocking=False):
            raise sansmcp.LocalProtocolError("Another thread is using this")
        try:
            yield
        finally:
            lock.release()


@contextlib.contextmanager
def interrupts_kept() -> Generator[None]:
    """Keep KeyboardInterrupt for the end of this block, or for :func:`ki_unprotected`."""
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
    """Let KeyboardInterrupt come in this block, one that was kept at once."""
    with _allowing(wanted=True):
        if _is_main():
            _raise_if_come()
        yield


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
