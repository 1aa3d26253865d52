"""The event loop of asyncio."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any

_logger = logging.getLogger("sansmcp")


class AsyncioTask:
    """See :class:`~sansmcp_loop.Task`."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def cancel(self) -> None:
        # Not before its first step: it would never take it, and coroutines that it was given to
        # await would be lost.
        self._task.get_loop().call_soon(self._task.cancel)


class AsyncioLoop:
    """See :class:`~sansmcp_loop.Loop`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        """The loop itself keeps no task alive."""

    @property
    def key(self) -> Hashable:
        return self._loop

    def is_here(self) -> bool:
        """Whether who asks runs in this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # in none
            return False

    def now(self) -> float:
        return self._loop.time()

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> AsyncioTask:
        """Run an async function in a task of its own."""
        task = self._loop.create_task(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return AsyncioTask(task)

    def run_soon(self, work: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, from any thread."""
        self._loop.call_soon_threadsafe(work, *arguments)

    async def within(
        self, seconds: float, work: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> bool:
        """Await an async function, but not for longer than that."""
        limit = None if seconds == float("inf") else max(0.0, seconds)
        if sys.version_info < (3, 11):
            return await _within(limit, asyncio.ensure_future(work(*arguments)))
        try:
            async with asyncio.timeout(limit):
                await work(*arguments)
        except TimeoutError:
            return False
        return True

    async def surely(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Await an async function to its end, even when cancelled."""
        task = self._loop.create_task(work())
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        task.result()

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _logger.error("a task has failed", exc_info=task.exception())


async def _within(seconds: float | None, work: asyncio.Future[Any]) -> bool:
    """Do it before Python 3.11; ``wait_for`` loses a cancellation that comes as the work ends."""
    try:
        await asyncio.wait([work], timeout=seconds)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    if not work.cancelled():
        work.result()
    return not work.cancelled()
