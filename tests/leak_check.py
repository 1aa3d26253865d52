"""Find what a test leaks: threads, descriptors, processes, and objects that were not closed."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sansmcp import Server
from sansmcp.server.exchange import ServerExchange

_DESCRIPTORS = Path("/proc/self/fd")

_PATIENCE = 20.0
"""Seconds for the last steps of a thread, on a busy machine."""


@contextmanager
def no_leaks() -> Generator[None, None, None]:
    """Raise AssertionError for what a block has opened or started, and not closed or ended.

    Errors that Python only reports count, too, such as the warning for a socket that is still open.
    """
    threads, descriptors, children = set(threading.enumerate()), _descriptors(), _children()
    unseen: list[str] = []

    def keep(unraisable: Any) -> None:
        unseen.append(repr(unraisable.exc_value))

    hook, sys.unraisablehook = sys.unraisablehook, keep
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook = hook
    for thread in set(threading.enumerate()) - threads:
        if not _is_idle(thread):
            thread.join(_PATIENCE)  # it may have just waited for a process
    assert not unseen, unseen
    assert {thread for thread in threading.enumerate() if not _is_idle(thread)} <= threads
    assert _descriptors() <= descriptors
    assert _children() <= children


def unfinished() -> list[object]:
    """Return the servers with running calls, and the exchanges that have not ended."""
    objects = gc.get_objects()
    exchanges = [each for each in objects if isinstance(each, ServerExchange)]
    servers = [each for each in objects if isinstance(each, Server)]
    return [
        *(each for each in exchanges if not each.is_done),
        *(each for each in servers if each.is_busy),
    ]


def freeze_what_is_there() -> None:
    """Make looking for what a test has left behind quick: all before it is none of its business."""
    gc.collect()
    gc.freeze()


def _is_idle(thread: threading.Thread) -> bool:
    """Return True for an idle thread of trio's thread cache."""
    return thread.name.startswith("Trio thread ")


def _descriptors() -> set[str]:
    if not _DESCRIPTORS.exists():
        return set()
    found: set[str] = set()
    for name in os.listdir(_DESCRIPTORS):
        try:
            found.add(f"{name}: {os.readlink(_DESCRIPTORS / name)}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


def _children() -> set[int]:
    """Return the processes that this one has started and not waited for."""
    found: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text(encoding="latin-1").rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(parent) == os.getpid():
            found.add(int(status.parent.name))
    return found
