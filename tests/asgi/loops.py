"""The event loops, for tests that run in each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import trio

from sansmcp_local import current_loop

PATIENCE = 30.0
"""Seconds for what takes a moment, on a machine that has much else to do."""

Main: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]


def run_asyncio(main: Main) -> None:
    """Run an async function on asyncio."""
    asyncio.run(asyncio.wait_for(main(), PATIENCE), debug=True)


def run_trio(main: Main) -> None:
    """Run an async function on trio."""

    async def limited() -> None:
        with trio.fail_after(PATIENCE):
            await main()

    trio.run(limited)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread, or another task, does."""
    while not condition():
        await current_loop().checkpoint()


def tasks() -> int:
    """How many there are on the loop."""
    if not trio.lowlevel.in_trio_task():
        return len(asyncio.all_tasks())
    root = trio.lowlevel.current_root_task()
    return 0 if root is None else _tasks_under(root)


def _tasks_under(task: trio.lowlevel.Task) -> int:
    nurseries = task.child_nurseries
    return 1 + sum(_tasks_under(child) for nursery in nurseries for child in nursery.child_tasks)


RUNS: tuple[Run, ...] = (run_asyncio, run_trio)
