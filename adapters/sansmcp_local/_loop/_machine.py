"""Pending results, and the timer of a machine, in any event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sansmcp

from ._loops import Event, Loop


class PendingResult(sansmcp.PendingResult):
    """A result that one task waits for."""

    def __init__(self, delivered: Event) -> None:
        super().__init__()
        self._delivered = delivered

    def _complete(self, value: Any, error: Exception | None) -> None:
        super()._complete(value, error)
        self._delivered.set()

    async def wait(self) -> Any:
        """Wait for the result, and return its value or raise its exception."""
        await self._delivered.wait()
        return self.result()


class TimeoutScheduler:
    """Call ``handle_timeout`` when the machine's next deadline has come.

    It also wakes the tasks that wait for the state of the machine to change.
    """

    def __init__(
        self, loop: Loop, next_deadline: Callable[[], float], handle_timeout: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._next_deadline = next_deadline
        self._timer = loop.timer(handle_timeout)
        self._is_stopped = False
        self._state_changed: Event | None = None

    @property
    def state_changed(self) -> Event:
        """An event that the next :meth:`reschedule` sets. Get a new one for each wait."""
        if self._state_changed is None:
            self._state_changed = self._loop.event()
        return self._state_changed

    def reschedule(self) -> None:
        """Set the timer to the machine's next deadline, and wake the waiting tasks.

        Call this whenever the machine has been driven until it is idle.
        """
        if self._state_changed is not None:
            self._state_changed.set()
            self._state_changed = None
        if not self._is_stopped:
            self._timer.set(self._next_deadline())

    def stop(self) -> None:
        """Never call ``handle_timeout`` again; wake the waiting tasks once more."""
        self._is_stopped = True
        self._timer.stop()
        self.reschedule()
