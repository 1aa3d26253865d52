"""What servers in event loops have in common: awaiting what handlers say, ask and end with."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import sansmcp
from sansmcp.app import Handler
from sansmcp.events import ClientResponseReceived, ServerEvent
from sansmcp.types import escape_controls
from sansmcp_local import DriverOptions, log_event, log_unexpected

from ._loops import Loop
from ._machine import PendingResult, TimeoutScheduler
from ._threads import HandlerThreads

_logger = logging.getLogger("sansmcp")

_FLUSH = 1.0
"""Seconds for the last bytes of all streams, and for cancelled handlers, when the server stops."""

THREADS = DriverOptions().threads
"""How many plain handlers run at a time if nothing else is said."""


class Call(sansmcp.BaseCall[Awaitable[Any], Awaitable[None]]):
    """What an async handler gets. All methods are to be awaited."""

    def __init__(self, call: sansmcp.ServerCall, serving: RunningServer) -> None:
        super().__init__(call)
        self._serving = serving

    def wait_for_answer(self, id: int) -> Awaitable[Any]:
        return self._serving.answer_to(self._call, id)

    def now(self) -> float:
        return self._serving.loop.now()

    async def run_pending(self) -> None:
        self._serving.run_pending()
        await self._serving.loop.checkpoint()
        await self._serving.wait_until(lambda: not self._call.is_above_high_water)


class RunningServer(sansmcp.ServerDriver):
    """A server in an event loop."""

    def __init__(
        self,
        core: sansmcp.Server,
        store: sansmcp.Store,
        loop: Loop,
        *,
        threads: int = THREADS,
        authenticate: sansmcp.Authenticator | None = None,
    ) -> None:
        """Set up a server; at most so many plain handlers run at a time, each in a thread.

        Raises LocalProtocolError if there are none.
        """
        super().__init__(core, store, authenticate)
        self.loop = loop
        self.scheduler = TimeoutScheduler(loop, self.next_deadline, self.handle_timeout)
        """Stop it when the server has ended."""
        self._threads = HandlerThreads(self, threads)
        # Of its own: handlers in all threads may wait for answers that come in requests.
        self._authenticating = HandlerThreads(self, threads)

    def run_pending(self) -> None:
        """Drive the machine, and tell everybody that it was."""
        self.drive()
        self.scheduler.reschedule()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that can change only when the machine is driven."""
        while not condition():
            await self.scheduler.state_changed.wait()

    async def answer_to(self, call: sansmcp.ServerCall, id: int) -> Any:
        """Wait for the client's answer to a question, and return or raise what it brings."""
        promise = self.questions[call, id] = PendingResult(self.loop.event())
        self.run_pending()
        try:
            answered: ClientResponseReceived = await promise.wait()
        finally:
            del self.questions[call, id]
        return answered.result()

    async def shut_down(self, graceful_timeout: float) -> None:
        """Take nothing new, give running calls some seconds, and end all streams properly."""
        self.safely(lambda: self.core.drain(now=self.now()))
        try:
            await self.loop.within(graceful_timeout, self.wait_until, lambda: not self._is_busy())
        finally:
            self.safely(lambda: self.core.shut_down(now=self.now()))
            self.run_pending()

    async def flush(self, is_done: Callable[[], bool]) -> None:
        """Let the last bytes of all streams go out, and handlers in threads end, for a moment."""
        try:
            await self.loop.within(
                _FLUSH, self.wait_until, lambda: is_done() and self._threads.is_idle
            )
        finally:
            self.leave_threads()

    def leave_threads(self) -> None:
        """Cancel the handlers that still run in threads; they are not waited for."""
        self._authenticating.join_all()
        if not self._threads.join_all():
            _logger.warning("a handler goes on in its thread, though it was cancelled")

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

    def authentication_failed(self, error: Exception) -> None:
        _logger.error("authenticate failed", exc_info=error)

    def on_handler_error(self, call: sansmcp.ServerCall, error: Exception) -> None:
        if not isinstance(error, sansmcp.RequestCancelled):
            _logger.error("%s failed", escape_controls(call.request.method), exc_info=error)

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_other_event(self, event: ServerEvent) -> None:
        log_event(event, shared_store=self.core.shared_store)
