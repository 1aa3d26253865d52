"""A set of tasks that are cancelled together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from sansmcp_loop import AsyncioTask


class Tasks:
    """The tasks of a client or server, which cancels them at its end."""

    def __init__(self) -> None:
        self._tasks: dict[Coroutine[Any, Any, None], asyncio.Task[None]] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Run a coroutine in a new task."""
        return self._keep(work, asyncio.get_running_loop().create_task(self._run(work)))

    def start_now(self, work: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Run a coroutine in a new task, and its first step at once.

        If the coroutine ends in that step, the event loop has nothing to do for it. Before Python
        3.12 this is the same as :meth:`start`.
        """
        if sys.version_info < (3, 12):
            return self.start(work)
        loop = asyncio.get_running_loop()
        return self._keep(work, asyncio.Task(self._run(work), loop=loop, eager_start=True))

    def _keep(self, work: Coroutine[Any, Any, None], task: asyncio.Task[None]) -> AsyncioTask:
        if not task.done():
            self._tasks[work] = task
        return AsyncioTask(task)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        # A callback of the task would take another step of the loop.
        try:
            await work
        finally:
            self._tasks.pop(work, None)

    def cancel(self) -> set[asyncio.Task[None]]:
        """Cancel all tasks but the current one. Return those that the caller has to wait for."""
        current = asyncio.current_task()
        tasks = self._tasks.values()
        ending = {task for task in tasks if task is not current}
        for task in ending:
            task.get_loop().call_soon(task.cancel)
        # Two of these tasks that call this must not wait for each other.
        return set() if current in tasks else ending
