"""Tasks that their owner ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sansmcp_loop import AsyncioTask


class Tasks:
    """The tasks of somebody who ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> AsyncioTask:
        """Begin one."""
        started = AsyncioTask(asyncio.get_running_loop().create_task(work))
        self._tasks.add(started.task)
        started.task.add_done_callback(self._tasks.discard)
        return started

    def cancel(self) -> set[asyncio.Task[None]]:
        """Cancel all but the one that asks for it; returns those that are to be waited for."""
        current = asyncio.current_task()
        ending = {task for task in self._tasks if task is not current}
        for task in ending:
            task.get_loop().call_soon(task.cancel)
        # Two of them that ask for it must not wait for each other.
        return set() if current in self._tasks else ending
