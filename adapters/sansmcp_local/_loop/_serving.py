"""The common parts of servers in event loops: the call object of async handlers, and the stop."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import sansmcp
from sansmcp.app import Handler
from sansmcp.events import ClientResponseReceived, ServerEvent
from sansmcp.types import escape_controls

from .._log import log_event, log_unexpected
from .._machine import DriverOptions
from ._loops import Loop
from ._machine import PendingResult, TimeoutScheduler
from ._threads import HandlerThreads

_logger = logging.getLogger("sansmcp")

_FLUSH = 1.0
"""Seconds for the last bytes of all streams, and for cancelled handlers, when the server stops."""

_ACCEPTED = 0.1
"""Seconds in which a connection that the loop has accepted reaches the server."""

THREADS = DriverOptions().threads
"""Default number of plain handlers that run at a time."""


class Call(sansmcp.BaseCall[Awaitable[Any], Awaitable[None]]):
    """A call for an async handler. Await each of its methods.

    When the client cancels the call, or the server stops, the handler's task is cancelled.
    """

    def __init__(self, call: sansmcp.ServerCall, serving: RunningServer) -> None:
        super().__init__(call)
        self._serving = serving

    def wait_for_answer(self, id: int) -> Awaitable[Any]:
        return self._serving.wait_for_response(self._call, id)

    def now(self) -> float:
        return self._serving.loop.now()

    async def run_pending(self) -> None:
        self._serving.pump()
        await self._serving.loop.checkpoint()
        if self._call.is_above_high_water:
            await self._serving.wait_until(lambda: not self._call.is_above_high_water)


class RunningServer(sansmcp.ServerDriver):
    """A server in an event loop."""

    def __init__(
        self,
        core: sansmcp.Server,
        store: sansmcp.Store | sansmcp.AsyncStore,
        loop: Loop,
        *,
        threads: int = THREADS,
        authenticate: sansmcp.Authenticator | None = None,
    ) -> None:
        """Set up the server in the event loop ``loop``.

        Args:
            core: the machine.
            store: the store for the machine's store effects.
            loop: the running event loop.
            threads: how many plain handlers run at a time, each in a thread.
            authenticate: returns the principal of each HTTP request.

        Raises:
            LocalProtocolError: ``threads`` is below 1.
        """
        super().__init__(core, store, authenticate)
        self.loop = loop
        self.scheduler = TimeoutScheduler(loop, self.next_deadline, self.handle_timeout)
        """The timer of the machine. Stop it when the server has ended."""
        self._threads = HandlerThreads(self, threads)
        # Not the threads of the handlers: all of these may wait for client responses, which come in
        # HTTP requests that must be authenticated.
        self._authenticating = HandlerThreads(self, threads)

    def on_idle(self) -> None:
        self.scheduler.reschedule()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` is true. It is checked after each :meth:`pump`."""
        while not condition():
            await self.scheduler.state_changed.wait()

    async def wait_for_response(self, call: sansmcp.ServerCall, id: int) -> Any:
        """Wait for the client's response, and return its result or raise its error."""
        pending = self.pending_requests[call, id] = PendingResult(self.loop.event())
        self.pump()
        try:
            answered: ClientResponseReceived = await pending.wait()
        finally:
            del self.pending_requests[call, id]
        return answered.result()

    async def be_lame_duck(self, seconds: float, has_left: Callable[[], bool]) -> None:
        """Make clients go elsewhere for some seconds, or until ``has_left()``.

        If this is cancelled, the server shuts down.
        """
        self.safely(lambda: self.core.enter_lame_duck(now=self.now()))
        try:
            await self.loop.within(seconds, self._wait_until_left, has_left)
        except BaseException:
            self.safely(lambda: self.core.shut_down(now=self.now()))
            self.pump()
            raise

    async def _wait_until_left(self, has_left: Callable[[], bool]) -> None:
        # Loops accept a connection some turns before its protocol, or task, exists. To leave in
        # that time would reset it, and a proxy would respond with status 502.
        await self.loop.within(_ACCEPTED, self.loop.event().wait)
        await self.wait_until(has_left)

    async def shut_down(self, graceful_timeout: float) -> None:
        """Accept nothing new, give running calls ``graceful_timeout`` seconds, end all streams."""
        self.safely(lambda: self.core.drain(now=self.now()))
        try:
            await self.loop.within(graceful_timeout, self.wait_until, lambda: not self._is_busy())
        finally:
            self.safely(lambda: self.core.shut_down(now=self.now()))
            self.pump()

    async def flush(self, is_done: Callable[[], bool]) -> None:
        """Wait a moment for ``is_done()``, the handlers in threads, and an asynchronous store."""
        try:
            await self.loop.within(
                _FLUSH,
                self.wait_until,
                lambda: is_done() and self._threads.is_idle and not self.is_storing,
            )
        finally:
            self.leave_threads()

    def leave_threads(self) -> None:
        """Cancel the handlers that still run in threads, without waiting for them."""
        self.end_watches()
        self._authenticating.join_all()
        if not self._threads.join_all():
            _logger.warning("a handler still runs in its thread, though it was cancelled")

    def _is_busy(self) -> bool:
        return bool(self.safely(lambda: self.core.is_busy))

    def now(self) -> float:
        return self.loop.now()

    def handle_for(self, call: sansmcp.ServerCall) -> Call:
        return Call(call, self)

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        call.driver = self.loop.spawn(self.finish, call, result)

    def start_plain(self, call: sansmcp.ServerCall, handler: Handler) -> None:
        self._threads.start(call, handler)

    def run_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        self._authenticating.submit(work, done)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        self.loop.spawn(work, *arguments)

    def run_soon(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self.loop.run_soon(self._run_now, work)

    def _run_now(self, work: Callable[[], None]) -> None:
        self.safely(work)
        self.pump()

    def authentication_failed(self, error: Exception) -> None:
        _logger.error("authenticate failed", exc_info=error)

    def on_handler_error(self, call: sansmcp.ServerCall, error: Exception) -> None:
        if not isinstance(error, sansmcp.RequestCancelled):
            _logger.error("%s failed", escape_controls(call.request.method), exc_info=error)

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_other_event(self, event: ServerEvent) -> None:
        log_event(event, shared_store=self.core.shared_store)
