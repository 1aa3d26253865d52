"""An asyncio event loop with virtual time, which jumps to the next timer when the loop is idle.

Time does not pass while code runs. While a thread works, or a task waits for a real socket, time
passes as usual.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from sansmcp_local import current_loop

_Result = TypeVar("_Result")

_A_DAY = 86400.0

_TURN = 1e-9
"""Seconds that an iteration of the loop takes. asyncio runs timers up to a nanosecond early. A
timer that is set again because it ran too early would loop for ever if no time passed.
"""


class _Selector(selectors.DefaultSelector):
    """Advances the time instead of waiting, unless a thread or socket may end the wait."""

    def __init__(self, is_working: Callable[[], bool]) -> None:
        super().__init__()
        self.now = 0.0
        self._is_working = is_working

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += _TURN
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        # One file is the loop's own, with which threads wake it.
        if timeout is None or self._is_working() or len(self.get_map()) > 1:
            ready = super().select(timeout)
        if timeout is not None and not ready:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits for a timer."""

    def __init__(self) -> None:
        self._in_threads = 0
        self.workers: list[Callable[[], bool]] = []
        """Functions that return True if a thread works that the loop does not know of."""
        self._virtual = _Selector(self._is_working)
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the seconds that have passed since the loop was made."""
        return self._virtual.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Run a function in a thread; time passes as usual meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._returned)
        return future

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine to its end, and return its result.

        Raises:
            AssertionError: it has not ended after a day of virtual time, or this is called in a
                task of an event loop.
        """
        with suppress(RuntimeError):
            current_loop()
            work.close()
            raise AssertionError(
                "The fixtures of sansmcp wait for results themselves, in an event loop of their "
                "own; use them in a plain test function (def, not async def)"
            )
        task = self.create_task(work)
        timer = self.call_later(_A_DAY, task.cancel)
        try:
            return self.run_until_complete(task)
        except asyncio.CancelledError:
            raise AssertionError("Still waiting after a day of virtual time") from None
        finally:
            timer.cancel()

    def end(self) -> None:
        """Cancel all tasks, and close the loop."""
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def _returned(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    def _is_working(self) -> bool:
        return self._in_threads > 0 or any(is_working() for is_working in self.workers)
