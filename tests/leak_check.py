"""What a test has left behind: threads, descriptors, processes, and what nobody has closed."""

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
"""Seconds for last steps that take a moment, on a machine that has much else to do."""


@contextmanager
def no_leaks() -> Generator[None, None, None]:
    """Raises AssertionError for what a block has begun, opened or started, and not ended.

    So do errors that nobody saw, such as the warning of a socket that it was not closed.
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
            thread.join(_PATIENCE)  # the last steps of one that waited for a process
    assert not unseen, unseen
    assert {thread for thread in threading.enumerate() if not _is_idle(thread)} <= threads
    assert _descriptors() <= descriptors
    assert _children() <= children


def unfinished() -> list[object]:
    """Servers, of all there are, in which calls run, and exchanges that have not ended."""
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
    """Whether it is one that trio keeps for a while, and that has nothing to do."""
    return thread.name.startswith("Trio thread ")


def _descriptors() -> set[str]:
    if not _DESCRIPTORS.exists():
        return set()
    found: set[str] = set()
    for name in os.listdir(_DESCRIPTORS):
        try:
            found.add(f"{name}: {os.readlink(_DESCRIPTORS / name)}")
        except FileNotFoundError:  # that of the listing
            continue
    return found


def _children() -> set[int]:
    """The processes that this one has started and not buried."""
    found: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text(encoding="latin-1").rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(parent) == os.getpid():
            found.add(int(status.parent.name))
    return found
