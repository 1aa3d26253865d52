"""What machines need in every event loop: results that come later, and the time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import sansmcp

from ._loops import Event, Loop


class Promise(sansmcp.Promise):
    """A result that one task waits for."""

    def __init__(self, delivered: Event) -> None:
        super().__init__()
        self._delivered = delivered

    def deliver(self, value: Any = None, error: Exception | None = None) -> None:
        """Give the value, or an exception instead."""
        super().deliver(value, error)
        self._delivered.set()

    async def wait(self) -> Any:
        """Wait for the delivery; returns the value or raises the exception."""
        await self._delivered.wait()
        return self.get()


class Timekeeper(Protocol):
    """Keeps the time of a machine."""

    @property
    def moved(self) -> Event:
        """Wakes those who wait for it at the next :meth:`tick`."""
        ...

    def tick(self) -> None:
        """The machine has been driven until it was idle."""


class Clock:
    """Tells a machine the time when it is due, and everybody else that something has moved.

    :meth:`run` has to run in a task of its own.
    """

    def __init__(
        self, loop: Loop, next_deadline: Callable[[], float], handle_timeout: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._next_deadline = next_deadline
        self._handle_timeout = handle_timeout
        self._due = math.inf
        self._sooner = loop.event()
        self.moved = loop.event()
        """Is set, and replaced, at every :meth:`tick`: for those who wait for a change."""

    def tick(self) -> None:
        """The machine has been driven until it was idle."""
        self.moved.set()
        self.moved = self._loop.event()
        if self._next_deadline() < self._due:
            self._sooner.set()

    async def run(self) -> None:
        """Let the machine do what is due, for ever."""
        while True:
            self._sooner = self._loop.event()
            self._due = self._next_deadline()
            is_sooner = await self._loop.within(self._due - self._loop.now(), self._sooner.wait)
            if not is_sooner:
                self._handle_timeout()
