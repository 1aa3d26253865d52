"""What both event loops can do, and which of them is running."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Protocol


class Event(Protocol):
    """Something that happens once, and that tasks can wait for."""

    def is_set(self) -> bool:
        """Whether it has happened."""
        ...

    def set(self) -> None:
        """It has happened."""

    def wait(self) -> Coroutine[Any, Any, Any]:
        """Wait until it has happened."""
        ...


class Task(Protocol):
    """Something that runs beside everything else."""

    def cancel(self) -> Any:
        """Cancel what it waits for; without effect when it has ended."""


class DeadlineTimer(Protocol):
    """Calls a function at a deadline that moves often, and mostly to a later time."""

    def set(self, deadline: float) -> None:
        """Call the function once at this time of the loop's clock, instead of the one set before.

        ``math.inf``: never.
        """

    def stop(self) -> None:
        """Never call the function again, and leave nothing in the loop. Do not set it again."""


class Loop(Protocol):
    """The running event loop."""

    @property
    def key(self) -> Hashable:
        """What tells one loop apart from another."""
        ...

    def is_here(self) -> bool:
        """Whether who asks runs in this loop."""
        ...

    def now(self) -> float:
        """The time, in seconds, by the loop's own clock."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...

    def timer(self, callback: Callable[[], object]) -> DeadlineTimer:
        """Make a timer that calls a function in the loop. An exception that it raises is logged."""
        ...

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> Task:
        """Run an async function in a task that belongs to the loop itself.

        It has the context variables of its creator. When the loop ends, it is cancelled. What it
        raises is logged.
        """
        ...

    def run_soon(self, work: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop. May be called from any thread.

        Raises RuntimeError if the loop has ended.
        """
        ...

    async def within(
        self, seconds: float, work: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> bool:
        """Await an async function, and cancel it after so many seconds; whether it came to its end.

        The time may be infinite.
        """
        ...

    async def run_shielded(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Await an async function to its end, even when cancelled: a matter of moments.

        A cancellation that comes meanwhile is raised afterwards.
        """

    async def checkpoint(self) -> None:
        """Let others run."""


def current_loop() -> Loop:
    """The event loop of the task that asks. Raises RuntimeError if there is none."""
    # Nobody is in a task of trio who has not imported it.
    if "trio" in sys.modules:
        from ._trio import TrioLoop

        if TrioLoop.is_running():
            return TrioLoop()
    from ._asyncio import AsyncioLoop

    return AsyncioLoop()
