"""What the client and the server have in common: results that come later, and the time."""

from __future__ import annotations

import math
from typing import Any

import trio

import sansmcp


class Promise:
    """A result that one task waits for. Delivered once; later deliveries change nothing."""

    def __init__(self) -> None:
        self._delivered = trio.Event()
        self._value: Any = None
        self._error: Exception | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._delivered.is_set()

    def deliver(self, value: Any = None, error: Exception | None = None) -> None:
        """Give the value, or an exception instead."""
        if not self._delivered.is_set():
            self._value, self._error = value, error
            self._delivered.set()

    async def wait(self) -> Any:
        """Wait for the delivery; returns the value or raises the exception."""
        await self._delivered.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Clock:
    """Tells a machine the time when it is due, and everybody else that something has moved."""

    def __init__(self, core: sansmcp.Client | sansmcp.Server) -> None:
        self._core = core
        self._sleep = trio.CancelScope()
        self.moved = trio.Event()
        """Is set, and replaced, at every :meth:`tick`: for those who wait for a change."""

    def tick(self) -> None:
        """The machine has been driven until it was idle."""
        self.moved.set()
        self.moved = trio.Event()
        deadline = self._core.next_deadline()
        self._sleep.deadline = math.inf if deadline is None else deadline

    async def wait(self) -> None:
        """Wait for the machine's next deadline, however often that changes, and handle it."""
        with trio.CancelScope(deadline=self._sleep.deadline) as self._sleep:
            await trio.sleep_forever()
        self._core.handle_timeout(now=trio.current_time())
