"""What the client and the server have in common: deadlines, and tasks that they end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine
from typing import Any


class Alarm:
    """Calls a function at a deadline that moves often, and mostly away.

    A timer that has become too early is not replaced: when it goes off, it is set again.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._deadline = math.inf
        self._timer: asyncio.Handle | None = None
        self._timer_deadline = math.inf

    def set(self, deadline: float | None) -> None:
        """Ring at this time of the loop's clock, instead of what was set before; None: never."""
        self._deadline = math.inf if deadline is None else deadline
        if self._deadline < self._timer_deadline:
            self._cancel()
            self._timer = self._loop.call_at(self._deadline, self._look)
            self._timer_deadline = self._deadline

    def stop(self) -> None:
        """Never ring, and leave nothing in the loop."""
        self._deadline = math.inf
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_deadline = None, math.inf

    def _look(self) -> None:
        self._cancel()
        if self._loop.time() >= self._deadline:
            self._ring()
        else:
            self.set(self._deadline)


class Clock:
    """Tells a machine the time when it is due, and everybody else that something has moved."""

    def __init__(
        self, next_deadline: Callable[[], float], handle_timeout: Callable[[], None]
    ) -> None:
        self._next_deadline = next_deadline
        self._alarm = Alarm(handle_timeout)
        self.moved = asyncio.Event()
        """Wakes those who wait for a change; it is never set for longer."""

    def tick(self) -> None:
        """The machine has been driven until it was idle."""
        self._alarm.set(self._next_deadline())
        self.moved.set()
        self.moved.clear()

    def stop(self) -> None:
        """The machine is of no interest any more."""
        self.tick()
        self._alarm.stop()


class Task:
    """A task of somebody who ends it."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.get_running_loop().create_task(work)

    def cancel(self) -> None:
        # Not before its first step, for coroutines that it has to await would be lost.
        self.task.get_loop().call_soon(self.task.cancel)


class Tasks:
    """The tasks of somebody who ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        started = Task(work)
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


async def surely(futures: Collection[asyncio.Future[Any]]) -> None:
    """Wait until all are done, whatever happens: they end soon, and must not be left behind.

    A cancellation that comes meanwhile is raised when they are done.
    """
    cancelled: asyncio.CancelledError | None = None
    while waiting := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
