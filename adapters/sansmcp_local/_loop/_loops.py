"""The operations that asyncio and trio both offer, and the choice of the running loop."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ._asyncio import AsyncioLoop
    from ._trio import TrioLoop


class Event(Protocol):
    """A flag that is set once, and that tasks can wait for."""

    def is_set(self) -> bool:
        """Return True if the flag is set."""
        ...

    def set(self) -> None:
        """Set the flag, and wake the waiting tasks."""

    def wait(self) -> Coroutine[Any, Any, Any]:
        """Wait until the flag is set."""
        ...


class Task(Protocol):
    """A task of the event loop."""

    def cancel(self) -> Any:
        """Cancel the task; without effect if it has ended."""


class DeadlineTimer(Protocol):
    """Calls a function at a deadline, which may be moved often: mostly to a later time."""

    def set(self, deadline: float) -> None:
        """Call the function once at ``deadline``, instead of the one set before.

        Args:
            deadline: seconds on the loop's clock; ``math.inf`` for never.
        """

    def stop(self) -> None:
        """Never call the function again, and leave nothing in the loop. Do not set it again."""


class Loop(Protocol):
    """The running event loop."""

    @property
    def key(self) -> Hashable:
        """A key that is different for every loop."""
        ...

    def is_here(self) -> bool:
        """Return True if the caller runs in this loop."""
        ...

    def now(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        ...

    def event(self) -> Event:
        """Make an event."""
        ...

    def timer(self, callback: Callable[[], object]) -> DeadlineTimer:
        """Make a timer that calls a function in the loop. An exception that it raises is logged."""
        ...

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> Task:
        """Run an async function in a task of the loop itself.

        The task gets the caller's context variables, and is cancelled when the loop ends. An
        exception is logged.
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
        """Await an async function, and cancel it after ``seconds``, which may be ``math.inf``.

        Returns:
            False if it was cancelled, True if it came to its end.
        """
        ...

    async def run_shielded(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Await an async function to its end, even if cancelled; then raise that cancellation.

        Use this only for what ends soon.
        """

    def checkpoint(self) -> Awaitable[None]:
        """Let other tasks run."""
        ...


def current_loop() -> Loop:
    """Return the running event loop. Raises RuntimeError if none is running."""
    # A program that has not imported trio runs no trio task, and need not import it here.
    if "trio" in sys.modules:
        trio_loop = _trio_loop()
        if trio_loop.is_running():
            return trio_loop()
    try:
        return _asyncio_loop()()
    except RuntimeError:
        raise RuntimeError(
            "No event loop is running here. Call this in an async function, such as the one that "
            "asyncio.run() or trio.run() runs"
        ) from None


# An import statement takes 10,000 instructions also if the module is there, and each operation of a
# store asks for the loop.


@cache
def _trio_loop() -> type[TrioLoop]:
    from ._trio import TrioLoop

    return TrioLoop


@cache
def _asyncio_loop() -> type[AsyncioLoop]:
    from ._asyncio import AsyncioLoop

    return AsyncioLoop
