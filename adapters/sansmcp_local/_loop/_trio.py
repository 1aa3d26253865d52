"""The event loop of trio. Tasks run in its system nursery."""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any

import trio

_logger = logging.getLogger("sansmcp")


class TrioTimer:
    """See :class:`~sansmcp_local.DeadlineTimer`.

    A system task, started by the first :meth:`set`, sleeps until the deadline. If the deadline has
    become later meanwhile, it sleeps again.
    """

    def __init__(self, loop: TrioLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._deadline = math.inf
        self._sleep = trio.CancelScope()
        self._task: trio.CancelScope | None = None

    def set(self, deadline: float) -> None:
        """Call the function at ``deadline``, instead of the one set before."""
        self._deadline = deadline
        if deadline < self._sleep.deadline:
            self._sleep.deadline = deadline
            if self._task is None:
                self._task = self._loop.spawn(self._run)

    def stop(self) -> None:
        """Never call the function again."""
        self._deadline = math.inf
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._deadline) as self._sleep:
                await trio.sleep_forever()
            # trio runs tasks whose deadline has passed and tasks that were just started in random
            # order. Let the others run first: a handler that responds in its first step must not
            # find that the deadline has turned its response into an event stream.
            await trio.lowlevel.checkpoint()
            if trio.current_time() >= self._deadline:
                self._deadline = math.inf
                _call(self._callback, ())


class TrioLoop:
    """See :class:`~sansmcp_local.Loop`."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()

    @staticmethod
    def is_running() -> bool:
        """Return True if the caller is a trio task."""
        return trio.lowlevel.in_trio_task()

    @property
    def key(self) -> Hashable:
        """The token of this run of trio."""
        return self._token

    def is_here(self) -> bool:
        """True if the caller runs in this loop."""
        return trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token

    def now(self) -> float:
        return trio.current_time()

    def event(self) -> trio.Event:
        return trio.Event()

    def timer(self, callback: Callable[[], object]) -> TrioTimer:
        """Make a timer that calls a function in the loop."""
        return TrioTimer(self, callback)

    def spawn(
        self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> trio.CancelScope:
        """Run an async function in a task of its own."""
        scope = trio.CancelScope()
        context = contextvars.copy_context()
        trio.lowlevel.spawn_system_task(_run, scope, work, arguments, context=context)
        return scope

    def run_soon(self, work: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, from any thread."""
        self._token.run_sync_soon(_call, work, arguments)

    async def within(
        self, seconds: float, work: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> bool:
        """Await an async function, for ``seconds`` at most."""
        with trio.move_on_after(max(0.0, seconds)) as scope:
            await work(*arguments)
        return not scope.cancelled_caught

    async def run_shielded(self, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Await an async function to its end, even when cancelled."""
        with trio.CancelScope(shield=True):
            await work()

    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()


def _call(work: Callable[..., object], arguments: Any) -> None:
    try:
        work(*arguments)
    except Exception as error:  # it would crash trio
        _logger.error("a callback has failed", exc_info=error)


async def _run(
    scope: trio.CancelScope, work: Callable[..., Coroutine[Any, Any, None]], arguments: Any
) -> None:
    with scope:
        try:
            await work(*arguments)
        except Exception as error:  # an exception of a system task would crash trio
            _logger.error("a task has failed", exc_info=error)
