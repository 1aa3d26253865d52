"""What the client and the server have in common: results, nurseries, and the time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import trio

import sansmcp_loop


class Promise(sansmcp_loop.Promise):
    """A result that one task waits for."""

    def __init__(self) -> None:
        super().__init__(trio.Event())


@asynccontextmanager
async def plain_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """A nursery out of which one error comes as it is, and an interrupt, too: not in a group."""
    alone: BaseException | None = None
    try:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            yield nursery
    except BaseException as error:
        errors: list[BaseException] = list(getattr(error, "exceptions", ()))
        interrupts = [each for each in errors if isinstance(each, KeyboardInterrupt)]
        if len(errors) != 1 and not interrupts:
            raise
        alone = (interrupts or errors)[-1]
    if alone is not None:
        raise alone


class Clock:
    """Tells a machine the time when it is due, and everybody else that something has moved."""

    def __init__(
        self, next_deadline: Callable[[], float], handle_timeout: Callable[[], None]
    ) -> None:
        self._next_deadline = next_deadline
        self._handle_timeout = handle_timeout
        self._sleep = trio.CancelScope()
        self._moved: trio.Event | None = None

    @property
    def moved(self) -> trio.Event:
        """Is set, and replaced, at every :meth:`tick`: for those who wait for a change."""
        if self._moved is None:
            self._moved = trio.Event()
        return self._moved

    def tick(self) -> None:
        """The machine has been driven until it was idle."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None
        deadline = self._next_deadline()
        if deadline < self._sleep.deadline:
            self._sleep.deadline = deadline

    async def run(self) -> None:
        """Let the machine do what is due, for ever.

        A deadline that has moved away, as most do, is not worth setting the timer again.
        """
        while True:
            with trio.CancelScope(deadline=self._next_deadline()) as self._sleep:
                await trio.sleep_forever()
            # trio wakes what has become due together with tasks that were just started, in any
            # order. A handler that answers in its first step is to be in time for JSON.
            await trio.lowlevel.checkpoint()
            self._handle_timeout()
