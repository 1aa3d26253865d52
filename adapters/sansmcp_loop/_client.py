"""What clients in event loops have in common: awaiting results and events, and answering."""

from __future__ import annotations

import abc
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Protocol, TypeAlias

import sansmcp
from sansmcp.base_client import OnProgress
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange, ProcessEffect
from sansmcp.events import ClientEvent, ServerRequestCancelled
from sansmcp.messages import Params, RequestId
from sansmcp.types import Self, Unpack, escape_controls
from sansmcp_local import log_unexpected

from ._loops import Loop, Task
from ._machine import PendingResult, TimeoutScheduler

_logger = logging.getLogger("sansmcp")

RequestHandler: TypeAlias = Callable[
    [sansmcp.ServerRequest], Awaitable[Mapping[str, Any]] | Mapping[str, Any]
]
"""Returns the result of a request of the server, or raises JsonRpcError.

It may be an async function. A plain one runs in the event loop and must not block.
"""


class Pool(Protocol):
    """What carries exchanges."""

    def send_request(self, effect: OpenExchange) -> None:
        """Carry an exchange, from its request to the end of its response."""

    def abort(self, exchange: int) -> None:
        """Break an exchange off."""


class Process(Protocol):
    """A server that is a process."""

    def perform(self, effect: ProcessEffect) -> None:
        """Do what the machine wants with it."""


def perform(effect: ClientEffect, pool: Pool, process: Process) -> None:
    """Let those do what the machine wants who can."""
    match effect:
        case OpenExchange():
            pool.send_request(effect)
        case AbortExchange(exchange=exchange):
            pool.abort(exchange)
        case _:
            process.perform(effect)


class _CallResult(PendingResult):
    """The result of a call, which comes after all that ``on_progress`` has to await."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop.event())
        self._loop = loop
        self.reports: deque[Awaitable[None]] = deque()
        """What is to be awaited for reports that have come, in order."""

    def add(self, report: Awaitable[None]) -> None:
        """Let the task that waits await something for a report."""
        self.reports.append(report)
        self._delivered.set()

    async def next_report(self) -> Awaitable[None] | None:
        """Wait for the next report; None if the result is there and no report is left."""
        while True:
            await self._delivered.wait()
            if self.reports or self.is_done:
                return self.reports.popleft() if self.reports else None
            self._delivered = self._loop.event()

    def drop(self) -> int:
        """Await no more reports; returns how many are left."""
        for report in self.reports:
            if isinstance(report, Coroutine):
                report.close()
        return len(self.reports)


class Client(sansmcp.ClientDriver[Awaitable[Any], Awaitable[None]]):
    """A client in an event loop; made by ``connect``. All methods may be called from any task."""

    def __init__(
        self,
        core: sansmcp.Client,
        loop: Loop,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        self._is_open, self._is_closed = PendingResult(loop.event()), PendingResult(loop.event())
        super().__init__(core, request_handlers, self._is_open, self._is_closed)
        self._loop = loop
        self._scheduler = TimeoutScheduler(loop, self.next_deadline, self.handle_timeout)
        self._answering: dict[RequestId, tuple[sansmcp.ServerRequest, Task]] = {}
        self._reports = 0
        """Progress reports that async functions of the application have still to deal with."""
        self._is_over = False

    # For applications

    async def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        **options: Unpack[sansmcp.CallOptions],
    ) -> Any:
        """Make any request. Cancelling the caller cancels the request.

        If ``on_progress`` is an async function, this method awaits it for each report in turn, and
        returns after the last one.
        """
        self._check_loop()
        promise = _CallResult(self._loop)
        handle = self.begin_call(promise, method, params, on_progress, options)
        try:
            while (report := await promise.next_report()) is not None:
                try:
                    await report
                finally:
                    self._reports_done(1)
            return promise.result()
        finally:
            self._reports_done(promise.drop())
            self.abandon_call(handle)

    async def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification."""
        self._check_loop()
        self.core.notify(method, params, meta=meta, now=self._loop.now())
        self.run_pending()
        await self._loop.checkpoint()

    def events(self) -> AsyncGenerator[ClientEvent, None]:
        """What happens and belongs to no call: notifications, reconnections, a lost session.

        Events are kept from the moment this is called, a limited number; when nobody takes them,
        nothing more is read from the server. So take them, until the client is closed and they end,
        or close the generator.
        """
        self.keeps_events = True
        return self._next_events()

    async def _next_events(self) -> AsyncGenerator[ClientEvent, None]:
        try:
            while self._events or not self._is_closed.is_done:
                event = self.next_unclaimed_event()
                if event is not None:
                    yield event
                else:
                    await self._scheduler.state_changed.wait()
        finally:
            self.keeps_events = False
            self._events.clear()
            self.run_pending()

    async def aclose(self) -> None:
        """End the session. Calls under way fail with RequestCancelled. May be called twice."""
        self._check_loop()
        self.begin_close()
        await self._is_closed.wait()

    def _check_loop(self) -> None:
        if not self._loop.is_here():
            raise sansmcp.LocalProtocolError("The client belongs to another event loop, or thread")

    # For adapters

    @property
    def is_paused(self) -> bool:
        """Whether the application has to catch up before more is read from the server."""
        return super().is_paused or self._reports >= self.core.limits.max_queued_events

    def _reported(self, promise: sansmcp.PendingResult, result: Any) -> None:
        """Let the task that has made the call await what an async function has returned."""
        if inspect.isawaitable(result):
            assert isinstance(promise, _CallResult)
            self._reports += 1
            promise.add(result)

    def _reports_done(self, count: int) -> None:
        was_paused = self.is_paused
        self._reports -= count
        if was_paused and not self.is_paused:
            self.run_pending()  # more can be read

    async def _open(self) -> None:
        """Do the handshake. Raises CallError where it fails."""
        self.begin_session()
        await self._is_open.wait()

    def run_pending(self) -> None:
        if self._is_over:
            return
        super().run_pending()
        self._scheduler.reschedule()

    def _let_go(self) -> None:
        """Leave nobody who waits, and do nothing any more, however the client has ended."""
        self.begin_close()
        self._is_over = True
        self._is_closed.set_result()
        self._scheduler.stop()

    @abc.abstractmethod
    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        """Let something go on in a task, which ends with the client."""

    def now(self) -> float:
        return self._loop.now()

    def handle_event(self, event: ClientEvent) -> None:
        match event:
            case ServerRequestCancelled(request_id) if request_id in self._answering:
                super().handle_event(event)
                _, task = self._answering.pop(request_id)
                task.cancel()
            case _:
                super().handle_event(event)

    def _respond(self, request: sansmcp.ServerRequest, result: Any) -> None:
        """Answer at once, or in a task if the function of the application is async."""
        if inspect.isawaitable(result):
            task = self._run(self._respond_later(request, result))
            self._answering[request.id] = request, task
        else:
            super()._respond(request, result)

    async def _respond_later(self, request: sansmcp.ServerRequest, result: Awaitable[Any]) -> None:
        try:
            super()._respond(request, await result)
        except Exception as error:
            self._fail(request, error)
        except BaseException:
            # Cancelled: by the server, who wants no answer, or the function has cancelled itself.
            self._answer_with(request, RuntimeError())
            raise
        finally:
            answering, _ = self._answering.get(request.id, (None, None))
            if answering is request:
                del self._answering[request.id]
            self.run_pending()

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_handler_error(self, request: sansmcp.ServerRequest, error: Exception) -> None:
        _logger.error("answering %s failed", escape_controls(request.method), exc_info=error)


class AwaitableClient(Client):
    """A client that is nobody's block: it may be opened and closed in different tasks.

    Awaiting it, or entering its block, does the handshake and gives the client itself.
    """

    _has_begun = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if not self._has_begun:
            self._has_begun = True
            try:
                await self._open()
            except BaseException:
                await self._leave()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the session. Calls under way fail with RequestCancelled. May be called twice.

        The server gets ``close_timeout`` seconds to agree, unless this is cancelled.
        """
        self._check_loop()
        try:
            await super().aclose()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Leave nothing behind, and nobody who waits."""
        self._let_go()
        await self._end()

    @abc.abstractmethod
    async def _end(self) -> None:
        """End all tasks, even when cancelled, and free all that is held. May be called twice."""
