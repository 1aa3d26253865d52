"""Runs tests on an event loop, and looks at what they leave behind."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import uvloop

from ..leak_check import no_leaks

_Result = TypeVar("_Result")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

PATIENCE = 30.0
"""Seconds for what takes a moment, on a machine that has much else to do."""


def run(
    work: Coroutine[Any, Any, _Result], kind: str = "asyncio", patience: float = PATIENCE
) -> _Result:
    """Run to the end, as ``asyncio.run`` does, in at most ``patience`` seconds.

    Raises AssertionError for what was left when the work had ended: tasks, threads, descriptors, or
    complaints of the loop. Raises TimeoutError, and nothing else, if it had not ended: what is
    there then is the work itself, and what its end by force leaves is no fault of it.
    """
    complaints: list[dict[str, Any]] = []
    with no_leaks():
        loop = LOOPS[kind]()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        main = loop.create_task(work)
        loop.run_until_complete(asyncio.wait([main], timeout=patience))
        left = asyncio.all_tasks(loop)
        _end(loop)
        if main in left:
            raise TimeoutError(f"the work had not ended after {patience:g} s")
        assert not left, left
    assert not complaints, complaints
    return main.result()


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """What ``asyncio.run`` does in the end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def on_a_loop(
    test: Callable[..., Coroutine[Any, Any, None]], fixtures: Mapping[str, Any]
) -> Callable[..., None]:
    """A test that does what an async one does, on the kind of loop that the fixtures tell."""

    @functools.wraps(test)
    def run_test(**arguments: Any) -> None:
        run(test(**arguments), fixtures["loop"])

    return run_test
