"""The base class of client drivers: delivers results to callers, and responses to the server."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ..base_client import (
    BaseClient,
    CallSettings,
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
"""Returns the result of a server request, or raises JsonRpcError."""


@attrs.define(eq=False)
class _PendingCall:
    """A call in flight, and what its caller gets from it."""

    pending: PendingResult
    on_progress: Callable[[ProgressReceived], Any] | None
    method: str
    params: Params


class ClientDriver(BaseClient[Result, Done], MachineDriver):
    """Drives a client machine; a subclass performs its exchanges and its process.

    A subclass implements :meth:`perform_effect` and :meth:`now`, and the methods of
    :class:`~sansmcp.BaseClient`, in which it waits for the :class:`~sansmcp.PendingResult` that it
    gave to :meth:`begin_call`. A driver that runs request handlers in tasks or threads overrides
    :meth:`run_request_handler` or :meth:`respond_result`. One whose ``on_progress`` may be async
    overrides :meth:`on_progress_returned`.

    An exception that a bug raises ends the exchange to which it belongs, and its call
    (:meth:`exchange_failed`). If the exchange is not known, it ends the client. Callers get a
    Disconnected that names it, and :meth:`unexpected` logs it.

    Attributes:
        core: the machine.
        keeps_events: True if the application takes events; by default they are discarded.
    """

    def __init__(
        self,
        core: Client,
        request_handlers: Mapping[str, Callable[[ServerRequest], Any]] | None,
        opening: PendingResult,
        closing: PendingResult,
    ) -> None:
        """Create the driver; :meth:`begin_session` opens the session.

        Args:
            core: the machine.
            request_handlers: by method, functions that return the result of a server request; None
                for none.
            opening: is set when the opening has ended, with an exception if it failed.
            closing: is set when the client is closed.
        """
        MachineDriver.__init__(self, core)
        self.core = core
        self._request_handlers = request_handlers or {}
        self._opening = opening
        self._closing = closing
        self._pending_calls: dict[int, _PendingCall] = {}
        """The calls in flight, by handle."""
        self._unhandled_requests: dict[RequestId, ServerRequest] = {}
        """The server requests whose handler has not been called, in order of arrival."""
        self._open_requests: dict[RequestId, ServerRequest] = {}
        """The server requests that have no response. A restarted server uses its ids again."""
        self._events: deque[ClientEvent] = deque()
        """The events that belong to no call, until the application takes them."""
        self.keeps_events = False
        """True if the application takes events; else they are discarded."""
        self._failure: Disconnected | None = None
        """The error that a bug ended the client with; None before."""

    @property
    def is_paused(self) -> bool:
        """True if the application must take events before the driver reads on from the server."""
        return len(self._events) >= self.core.limits.max_queued_events

    def run_pending(self) -> None:
        """Perform the machine's effects, handle its events, and respond to server requests.

        Call this after everything that changes the machine.
        """
        # Deliver results even if the application does not take its events. Only reading from the
        # server is paused.
        self._drive_machine(self._perform, self._handle)
        while self._unhandled_requests:
            request = self._unhandled_requests.pop(next(iter(self._unhandled_requests)))
            try:
                self.run_request_handler(request)
            except Exception as error:
                self._break_off(error)
            self._drive_machine(self._perform, self._handle)

    def handle_timeout(self) -> None:
        """Make the machine do what is due. Call this at :meth:`next_deadline`, or at any time."""
        self._use_machine(
            lambda: self.core.handle_timeout(now=self.now(), is_reading=not self.is_paused)
        )
        self.run_pending()

    def exchange_failed(self, exchange: int, error: Exception) -> None:
        """End an exchange in which a bug raised ``error``. Call :meth:`run_pending` afterwards."""
        self.unexpected(error)
        try:
            self.core.receive_part(
                exchange, ConnectionLost(f"internal error: {error!r}"), now=self.now()
            )
        except Exception as again:
            self._break_off(again)

    def receive_process_part(self, part: ProcessPart) -> None:
        """Feed a part of the server process. Call :meth:`run_pending` afterwards."""
        try:
            self.core.receive_process_part(part, now=self.now())
        except Exception as error:
            self._break_off(error)

    def begin_session(self) -> None:
        """Start the opening; ``opening`` is set when it ends."""
        self.core.start(now=self.now())
        self.run_pending()

    def begin_close(self) -> None:
        """End the session; running calls fail with RequestCancelled. Can be called twice."""
        self.core.close(now=self.now())
        self.run_pending()

    def next_unclaimed_event(self) -> ClientEvent | None:
        """Remove and return the oldest event that belongs to no call; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        self.run_pending()  # there is room for another
        return event

    def begin_call(
        self,
        pending: PendingResult,
        method: str,
        params: Params | None,
        on_progress: OnProgress[Done] | None,
        settings: CallSettings,
    ) -> int:
        """Send a request.

        Args:
            pending: is set when the call ends, or when ``on_progress`` raises.
            method, params, on_progress, settings: as in :meth:`~sansmcp.BaseClient.call`.

        Returns:
            The handle of the call, for :meth:`abandon_call`.

        Raises:
            LocalProtocolError: the request cannot be sent; see :meth:`sansmcp.Client.call`.
            Disconnected: a bug has ended the client.
        """
        if self._failure is not None:
            raise self._failure
        handle = self.core.call(method, params, now=self.now(), **settings)
        self._pending_calls[handle] = _PendingCall(pending, on_progress, method, params or {})
        try:
            self.run_pending()
        except BaseException:  # such as a KeyboardInterrupt in a request handler
            self.abandon_call(handle)
            raise
        return handle

    def abandon_call(self, handle: int) -> None:
        """Stop waiting for a call, and cancel it if it has not ended. Call this once per call."""
        if self._pending_calls.pop(handle, None) and self.core.cancel(handle, now=self.now()):
            self.run_pending()

    @abstractmethod
    def perform_effect(self, effect: ClientEffect) -> None:
        """Perform an effect of the machine, without waiting."""

    @abstractmethod
    def on_handler_error(self, request: ServerRequest, error: Exception) -> None:
        """Log that a request handler raised; the server gets only "Internal error"."""

    def _perform(self, effect: ClientEffect) -> None:
        try:
            self.perform_effect(effect)
        except Exception as error:
            match effect:
                case OpenExchange(exchange=exchange) | AbortExchange(exchange=exchange):
                    self.exchange_failed(exchange, error)
                case _:
                    self._break_off(error)

    def _handle(self, event: ClientEvent) -> None:
        try:
            self.handle_event(event)
        except Exception as error:
            self._break_off(error)

    def _machine_raised(self, error: Exception) -> None:
        super()._machine_raised(error)
        self._give_up(error)

    def _break_off(self, error: Exception) -> None:
        """End the client after a bug that belongs to no known exchange."""
        self.unexpected(error)
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = Disconnected(f"The client is closed after an internal error: {error!r}")
        self._failure.__cause__ = error
        for waiting in self._pending_calls.values():
            waiting.pending.set_exception(self._failure)
        self._opening.set_exception(self._failure)
        self.safely(lambda: self.core.close(now=self.now()))
        self._closing.set_result()

    def handle_event(self, event: ClientEvent) -> None:
        """Dispatch an event of the machine to the caller or request handler that it concerns."""
        match event:
            case ServerRequestReceived(handle, request):
                params = request.params or {}
                call = self._originating_call(handle)
                received = ServerRequest(request.id, request.method, params, call)
                self._unhandled_requests[request.id] = received
                self._open_requests[request.id] = received
            case ServerRequestCancelled(request_id):
                self._unhandled_requests.pop(request_id, None)
                self._open_requests.pop(request_id, None)
            case _:
                if not self._deliver_to_call(event):
                    self.on_other_event(event)

    def on_other_event(self, event: ClientEvent) -> None:
        """Keep an event that belongs to no call, if the application takes events."""
        if self.keeps_events:
            self._events.append(event)

    def _deliver_to_call(self, event: ClientEvent) -> bool:
        """Deliver an event to the caller that waits for it. Return False if it concerns no call."""
        match event:
            case CallCompleted(handle, result):
                if handle in self._pending_calls:
                    self._pending_calls.pop(handle).pending.set_result(result)
            case CallFailed(handle, error):
                if handle in self._pending_calls:
                    self._pending_calls.pop(handle).pending.set_exception(error)
            case ProgressReceived(call=handle):
                if handle in self._pending_calls:
                    self._report_progress(event, self._pending_calls[handle])
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

    def _originating_call(self, handle: int | None) -> OriginatingCall | None:
        waiting = self._pending_calls.get(handle) if handle is not None else None
        if handle is None or waiting is None:
            return None
        return OriginatingCall(handle, waiting.method, waiting.params)

    def _report_progress(self, progress: ProgressReceived, waiting: _PendingCall) -> None:
        if waiting.on_progress is not None:
            try:
                reported = waiting.on_progress(progress)
            except Exception as error:  # belongs to the caller, which passed the function
                waiting.pending.set_exception(error)
            else:
                self.on_progress_returned(waiting.pending, reported)

    def on_progress_returned(self, pending: PendingResult, result: Any) -> None:
        """Handle what ``on_progress`` returned; this discards it.

        A driver of an event loop overrides this to await an awaitable.

        Args:
            pending: as given to :meth:`begin_call`.
            result: what ``on_progress`` returned.
        """

    def run_request_handler(self, request: ServerRequest) -> None:
        """Call the handler of a server request, and respond with its result or exception.

        A driver overrides this to call handlers in threads.
        """
        if request.method not in self._request_handlers:
            del self._open_requests[request.id]
            self.core.refuse_unsupported(request.id, now=self.now())
            return
        try:
            self.respond_result(request, self._request_handlers[request.method](request))
        except Exception as error:
            self.respond_exception(request, error)

    def respond_result(self, request: ServerRequest, result: Any) -> None:
        """Respond to a server request with what its handler returned.

        Sends nothing if the server has cancelled the request. A driver of an event loop overrides
        this to await an awaitable. Call :meth:`run_pending` afterwards.

        Raises:
            LocalProtocolError: ``result`` is not JSON.
        """
        if self._awaits_response(request):
            self.core.respond(request.id, result, now=self.now())
            del self._open_requests[request.id]

    def _awaits_response(self, request: ServerRequest) -> bool:
        """True if the server waits for this request's response; a later one may have its id."""
        return self._open_requests.get(request.id) is request

    def respond_exception(self, request: ServerRequest, error: Exception) -> None:
        """Respond to a server request with the error for what its handler raised.

        Logs the exception unless it is a JsonRpcError, and sends nothing if the server has
        cancelled the request. Call :meth:`run_pending` afterwards.
        """
        if not isinstance(error, JsonRpcError):
            self.on_handler_error(request, error)
        # The data of a JsonRpcError may not be JSON: then the server gets "Internal error".
        self._respond_first_error(request, error, RuntimeError())

    def respond_internal_error(self, request: ServerRequest) -> None:
        """Respond "Internal error" to a server request whose handler was stopped.

        Sends nothing if the server has cancelled the request. Call :meth:`run_pending` afterwards.
        """
        self._respond_first_error(request, RuntimeError())

    def _respond_first_error(self, request: ServerRequest, *errors: Exception) -> None:
        """Respond with the first of these errors that can be sent."""
        for error in errors if self._awaits_response(request) else ():
            try:
                self.core.respond_exception(request.id, error, now=self.now())
            except Exception as failure:
                self.on_handler_error(request, failure)
            else:
                del self._open_requests[request.id]
                return
