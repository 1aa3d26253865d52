"""Runs tests on an event loop, and looks at what they leave behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import uvloop

_Result = TypeVar("_Result")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

PATIENCE = 30.0
"""Seconds for what takes a moment, on a machine that has much else to do."""

_DESCRIPTORS = Path("/proc/self/fd")


def run(work: Coroutine[Any, Any, _Result], kind: str = "asyncio") -> _Result:
    """Run to the end, as ``asyncio.run`` does.

    Raises AssertionError for what was left when the work had ended: tasks, threads, descriptors, or
    complaints of the loop.
    """
    threads, descriptors, children = set(threading.enumerate()), _descriptors(), _children()
    complaints: list[dict[str, Any]] = []
    loop = LOOPS[kind]()
    loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
    main = loop.create_task(work)
    loop.run_until_complete(asyncio.wait([main], timeout=PATIENCE))
    left = asyncio.all_tasks(loop)
    _end(loop)
    gc.collect()
    for thread in set(threading.enumerate()) - threads:
        thread.join(1.0)  # the last steps of one that waited for a process
    assert not left, left
    assert not complaints, complaints
    assert set(threading.enumerate()) <= threads
    assert _descriptors() == descriptors
    assert _children() == children
    return main.result()


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """What ``asyncio.run`` does in the end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


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


def on_a_loop(
    test: Callable[..., Coroutine[Any, Any, None]], fixtures: Mapping[str, Any]
) -> Callable[..., None]:
    """A test that does what an async one does, on the kind of loop that the fixtures tell."""

    @functools.wraps(test)
    def run_test(**arguments: Any) -> None:
        run(test(**arguments), fixtures["loop"])

    return run_test
