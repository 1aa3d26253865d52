"""The event loop of asyncio."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Hashable
from functools import partial
from types import coroutine
from typing import Any

_logger = logging.getLogger("sansmcp")

# asyncio reads into a new object of 256 KiB each time. For one of this size glibc maps and unmaps
# pages, which takes 15 µs, until a larger one has been freed once.
bytes(1 << 19)


class AsyncioTask:
    """See :class:`~sansmcp_local.Task`."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    def cancel(self) -> None:
        """Cancel the task; without effect if it has ended."""
        # asyncio never runs the body of a task that is cancelled before its first step: its finally
        # blocks would not run, and coroutines passed to it would never be awaited. So cancel one
        # iteration of the loop later.
        self.task.get_loop().call_soon(self.task.cancel)


class AsyncioTimer:
    """See :class:`~sansmcp_local.DeadlineTimer`.

    A deadline that becomes later keeps its asyncio timer, which is set again when it expires.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._deadline = math.inf
        self._timer: asyncio.Handle | None = None
        self._timer_deadline = math.inf

    def set(self, deadline: float) -> None:
        """Call the function at ``deadline``, instead of the one set before."""
        self._deadline = deadline
        if deadline < self._timer_deadline:
            self._cancel()
            self._timer = self._loop.call_at(deadline, self._expired)
            self._timer_deadline = deadline

    def stop(self) -> None:
        """Never call the function again."""
        self._deadline = math.inf
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_deadline = None, math.inf

    def _expired(self) -> None:
        self._cancel()
        if self._loop.time() >= self._deadline:
            self._callback()
        else:
            self.set(self._deadline)


class AsyncioLoop:
    """See :class:`~sansmcp_local.Loop`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        """See :meth:`~sansmcp_local.Loop.now`; the method of the loop itself."""
        self._tasks: dict[object, asyncio.Task[None]] = {}
        """References that keep tasks alive; asyncio itself has only weak ones."""

    @property
    def key(self) -> Hashable:
        return self._loop

    def is_here(self) -> bool:
        """True if the caller runs in this loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # no loop is running
            return False

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    def timer(self, callback: Callable[[], object]) -> AsyncioTimer:
        """Make a timer that calls a function in the loop."""
        return AsyncioTimer(self._loop, callback)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> AsyncioTask:
        """Run an async function in a task of its own."""
        key = object()
        task = self._tasks[key] = self._loop.create_task(self._run(key, work, arguments))
        return AsyncioTask(task)

    async def _run(
        self, key: object, work: Callable[..., Coroutine[Any, Any, None]], arguments: Any
    ) -> None:
        # A callback of the task would take another step of the loop.
        try:
            await work(*arguments)
        except Exception as error:
            _logger.error("a task has failed", exc_info=error)
        finally:
            del self._tasks[key]

    def run_soon(self, work: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, from any thread."""
        self._loop.call_soon_threadsafe(work, *arguments)

    async def within(
        self, seconds: float, work: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> bool:
        """Await an async function, for ``seconds`` at most."""
        limit = None if seconds == float("inf") else max(0.0, seconds)
        if sys.version_info < (3, 11):
            return await _within(limit, asyncio.ensure_future(work(*arguments)))
        # A timer costs more than most of these functions, which have nothing to wait for.
        steps = work(*arguments).__await__()
        try:
            waits_for = next(steps)
        except StopIteration:
            return True
        try:
            async with asyncio.timeout(limit):
                await _Rest(waits_for, steps)
        except TimeoutError:
            return False
        return True

    async def run_shielded(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Await an async function to its end, even when cancelled."""
        task = self._loop.create_task(work())
        await wait_all_shielded([task])
        task.result()

    @coroutine
    def checkpoint(self) -> Generator[None, None, None]:
        yield  # what asyncio.sleep(0) awaits, in one frame instead of three


class _Rest:
    """The rest of an awaitable after its first step, which waits for something."""

    def __init__(self, waits_for: Any, steps: Generator[Any, Any, Any]) -> None:
        self._waits_for = waits_for
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, None]:
        # What "yield from" does, but for the first step.
        waits_for = self._waits_for
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                self._steps.close()
                raise
            except BaseException as error:
                step = partial(self._steps.throw, error)
            else:
                step = partial(self._steps.send, value)
            try:
                waits_for = step()
            except StopIteration:
                return


async def wait_all_shielded(futures: Collection[asyncio.Future[Any]]) -> None:
    """Wait until all futures are done, even if cancelled; then raise that cancellation.

    Use this only for futures that are done soon.
    """
    cancelled: asyncio.CancelledError | None = None
    while waiting := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _within(seconds: float | None, work: asyncio.Future[Any]) -> bool:
    """Implement ``within()`` before Python 3.11.

    Not by ``wait_for()``: it loses a cancellation that comes as the work ends.
    """
    try:
        await asyncio.wait([work], timeout=seconds)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    if not work.cancelled():
        work.result()
    return not work.cancelled()
