"""What the client and the server have in common: results that come later, and the time."""

from __future__ import annotations

import math

import trio

import sansmcp
import sansmcp_loop


class Promise(sansmcp_loop.Promise):
    """A result that one task waits for."""

    def __init__(self) -> None:
        super().__init__(trio.Event())


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
