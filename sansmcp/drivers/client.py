"""What clients have in common: results find those who wait for them, and the server its answers."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ..base_client import (
    BaseClient,
    CallOptions,
    Done,
    OnProgress,
    OriginatingCall,
    PendingResult,
    Result,
    ServerRequest,
)
from ..client.client import Client
from ..effects import AbortExchange, ClientEffect, OpenExchange
from ..errors import Disconnected, JsonRpcError
from ..events import (
    CallCompleted,
    CallFailed,
    ClientEvent,
    Closed,
    Connected,
    ProgressReceived,
    ServerRequestCancelled,
    ServerRequestReceived,
)
from ..http import ConnectionLost
from ..messages import Params, RequestId
from ..process import ProcessPart
from .machine import MachineDriver

RequestHandler: TypeAlias = Callable[[ServerRequest], Mapping[str, Any]]
"""Returns the result of a request of the server, or raises JsonRpcError."""


@attrs.define(eq=False)
class _Waiting:
    """Who waits for the end of a call."""

    promise: PendingResult
    on_progress: Callable[[ProgressReceived], Any] | None
    method: str
    params: Params


class ClientDriver(BaseClient[Result, Done], MachineDriver):
    """A client that drives its machine, except for its exchanges and its process.

    A subclass says how effects are performed and what time it is, and makes the methods for its
    applications of those below, waiting for promises in its own way.

    An exception that a bug raises ends the exchange it belongs to, and so its call
    (:meth:`exchange_failed`); where that is not known, it ends the client. Callers get a
    Disconnected that names it, and :meth:`unexpected` logs it.
    """

    def __init__(
        self,
        core: Client,
        request_handlers: Mapping[str, Callable[[ServerRequest], Any]] | None,
        opening: PendingResult,
        closing: PendingResult,
    ) -> None:
        """Set up the client; :meth:`begin` opens the conversation.

        Args:
            core: the machine.
            request_handlers: functions from a request of the server to its result, by method.
            opening: is delivered when the handshake is done, with an exception if it has failed.
            closing: is delivered when the client is closed.
        """
        MachineDriver.__init__(self, core)
        self.core = core
        self._answers = request_handlers or {}
        self._opening = opening
        self._closing = closing
        self._waiting: dict[int, _Waiting] = {}
        """Who waits for the end of which call."""
        self._asked: dict[RequestId, ServerRequest] = {}
        """What the server has asked, in order, until the application's function is called."""
        self._unanswered: dict[RequestId, ServerRequest] = {}
        """What the server waits for. A server that was started again uses its ids again."""
        self._events: deque[ClientEvent] = deque()
        """What belongs to no call, for the application to take."""
        self.keeps_events = False
        """Whether the application takes events at all."""
        self._failure: Disconnected | None = None
        """Why the client was ended by a bug."""

    @property
    def is_paused(self) -> bool:
        """Whether the application has to take events before more is read from the server."""
        return len(self._events) >= self.core.limits.max_queued_events

    def run_pending(self) -> None:
        """Perform what the machine wants, take what it tells, and answer what the server asks.

        To be called after everything that changes the machine.
        """
        # What ends a call must not wait behind events that nobody takes: only the reading does.
        self._drive_machine(self._perform, self._tell)
        while self._asked:
            request = self._asked.pop(next(iter(self._asked)))
            try:
                self._answer(request)
            except Exception as error:
                self._break_off(error)
            self._drive_machine(self._perform, self._tell)

    def handle_timeout(self) -> None:
        """The machine's next deadline may have come."""
        self._use_machine(
            lambda: self.core.handle_timeout(now=self.now(), is_reading=not self.is_paused)
        )
        self.run_pending()

    def exchange_failed(self, exchange: int, error: Exception) -> None:
        """End an exchange that a bug has broken; to be followed by :meth:`run_pending`."""
        self.unexpected(error)
        try:
            self.core.receive_part(
                exchange, ConnectionLost(f"internal error: {error!r}"), now=self.now()
            )
        except Exception as again:
            self._break_off(again)

    def process_said(self, part: ProcessPart) -> None:
        """Feed what comes of the server process; to be followed by :meth:`run_pending`."""
        try:
            self.core.receive_process_part(part, now=self.now())
        except Exception as error:
            self._break_off(error)

    def begin_session(self) -> None:
        """Open the conversation: do the handshake."""
        self.core.start(now=self.now())
        self.run_pending()

    def begin_close(self) -> None:
        """End the session; calls under way fail with RequestCancelled. May be called twice."""
        self.core.close(now=self.now())
        self.run_pending()

    def next_unclaimed_event(self) -> ClientEvent | None:
        """The first of the events that were kept; None if there are none."""
        if not self._events:
            return None
        event = self._events.popleft()
        self.run_pending()  # there is room for another
        return event

    def begin_call(
        self,
        promise: PendingResult,
        method: str,
        params: Params | None,
        on_progress: OnProgress[Done] | None,
        options: CallOptions,
    ) -> int:
        """Make a request; returns the handle of the call.

        The promise is delivered at the end of the call, or when ``on_progress`` has raised.
        """
        if self._failure is not None:
            raise self._failure
        handle = self.core.call(method, params, now=self.now(), **options)
        self._waiting[handle] = _Waiting(promise, on_progress, method, params or {})
        try:
            self.run_pending()
        except BaseException:  # an interrupt, say, of a function that answers the server
            self.abandon_call(handle)
            raise
        return handle

    def abandon_call(self, handle: int) -> None:
        """Nobody waits for a call any more: if it has not ended by itself, it is cancelled."""
        if self._waiting.pop(handle, None) and self.core.cancel(handle, now=self.now()):
            self.run_pending()

    @abstractmethod
    def perform_effect(self, effect: ClientEffect) -> None:
        """Do what the machine wants; it must not wait."""

    @abstractmethod
    def on_handler_error(self, request: ServerRequest, error: Exception) -> None:
        """An answer has raised what the server is not told: let somebody know."""

    def _perform(self, effect: ClientEffect) -> None:
        try:
            self.perform_effect(effect)
        except Exception as error:
            match effect:
                case OpenExchange(exchange=exchange) | AbortExchange(exchange=exchange):
                    self.exchange_failed(exchange, error)
                case _:
                    self._break_off(error)

    def _tell(self, event: ClientEvent) -> None:
        try:
            self.handle_event(event)
        except Exception as error:
            self._break_off(error)

    def _machine_raised(self, error: Exception) -> None:
        super()._machine_raised(error)
        self._give_up(error)

    def _break_off(self, error: Exception) -> None:
        """End the client: what has been lost, and who waits for it, is not known."""
        self.unexpected(error)
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = Disconnected(f"The client is closed after an internal error: {error!r}")
        self._failure.__cause__ = error
        for waiting in self._waiting.values():
            waiting.promise.set_exception(self._failure)
        self._opening.set_exception(self._failure)
        self.safely(lambda: self.core.close(now=self.now()))
        self._closing.set_result()

    def handle_event(self, event: ClientEvent) -> None:
        """Bring an event of the machine to the caller or the application's function it is for."""
        match event:
            case ServerRequestReceived(handle, request):
                params = request.params or {}
                call = self._originating(handle)
                asked = ServerRequest(request.id, request.method, params, call)
                self._asked[request.id] = self._unanswered[request.id] = asked
            case ServerRequestCancelled(request_id):
                self._asked.pop(request_id, None)
                self._unanswered.pop(request_id, None)
            case _:
                if not self._take(event):
                    self.on_other_event(event)

    def on_other_event(self, event: ClientEvent) -> None:
        """Something has happened that belongs to no call: keep it if the application wants it."""
        if self.keeps_events:
            self._events.append(event)

    def _take(self, event: ClientEvent) -> bool:
        """Bring an event to whom it concerns; False if it concerns no call."""
        match event:
            case CallCompleted(handle, result):
                if handle in self._waiting:
                    self._waiting.pop(handle).promise.set_result(result)
            case CallFailed(handle, error):
                if handle in self._waiting:
                    self._waiting.pop(handle).promise.set_exception(error)
            case ProgressReceived(call=handle):
                if handle in self._waiting:
                    self._report(event, self._waiting[handle])
            case Connected() if not hasattr(self, "connected"):
                self.connected = event
                self._opening.set_result()
            case Closed(error):
                if error is None:
                    self._opening.set_result()
                else:
                    self._opening.set_exception(error)
                self._closing.set_result()
                return False
            case _:
                return False
        return True

    def _originating(self, handle: int | None) -> OriginatingCall | None:
        waiting = self._waiting.get(handle) if handle is not None else None
        if handle is None or waiting is None:
            return None
        return OriginatingCall(handle, waiting.method, waiting.params)

    def _report(self, progress: ProgressReceived, waiting: _Waiting) -> None:
        if waiting.on_progress is not None:
            try:
                reported = waiting.on_progress(progress)
            except Exception as error:  # is for who has given us the function
                waiting.promise.set_exception(error)
            else:
                self._reported(waiting.promise, reported)

    def _reported(self, promise: PendingResult, result: Any) -> None:
        """Take what ``on_progress`` has returned: in an event loop it may be an awaitable."""

    def _answer(self, request: ServerRequest) -> None:
        """Answer a request of the server with what the application's function for it returns."""
        if request.method not in self._answers:
            del self._unanswered[request.id]
            self.core.refuse_unsupported(request.id, now=self.now())
            return
        try:
            self._respond(request, self._answers[request.method](request))
        except Exception as error:
            self._fail(request, error)

    def _respond(self, request: ServerRequest, result: Any) -> None:
        """Answer a request of the server with what the application's function has returned.

        Raises LocalProtocolError if that is not JSON. In an event loop it may be an awaitable.
        """
        if self._is_wanted(request):
            self.core.respond(request.id, result, now=self.now())
            del self._unanswered[request.id]

    def _is_wanted(self, request: ServerRequest) -> bool:
        """Whether the server waits for this answer, and not for one to a later request."""
        return self._unanswered.get(request.id) is request

    def _fail(self, request: ServerRequest, error: Exception) -> None:
        """Answer a request of the server with what the application's function has raised."""
        if not isinstance(error, JsonRpcError):
            self.on_handler_error(request, error)
        self._answer_with(request, error, RuntimeError())  # what the first carries may not be JSON

    def _answer_with(self, request: ServerRequest, *errors: Exception) -> None:
        """Answer with the first of these errors that can be sent."""
        for error in errors if self._is_wanted(request) else ():
            try:
                self.core.respond_exception(request.id, error, now=self.now())
            except Exception as failure:
                self.on_handler_error(request, failure)
            else:
                del self._unanswered[request.id]
                return
