"""A set of tasks that are cancelled together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sansmcp_local import AsyncioTask


class Tasks:
    """The tasks of a client or server, which cancels them at its end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Run a coroutine in a new task."""
        started = AsyncioTask(asyncio.get_running_loop().create_task(self._run(work)))
        self._tasks.add(started.task)
        return started

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        # A callback of the task would take another step of the loop.
        try:
            await work
        finally:
            current: Any = asyncio.current_task()
            self._tasks.discard(current)

    def cancel(self) -> set[asyncio.Task[None]]:
        """Cancel all tasks but the current one. Return those that the caller has to wait for."""
        current = asyncio.current_task()
        ending = {task for task in self._tasks if task is not current}
        for task in ending:
            task.get_loop().call_soon(task.cancel)
        # Two of these tasks that call this must not wait for each other.
        return set() if current in self._tasks else ending
