"""The base class of client drivers: delivers results to callers, and responses to the server."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ..auth.options import Login
from ..base_client import (
    CallSettings,
    OriginatingCall,
    PendingResult,
    ServerRequest,
)
from ..client.client import Client
from ..client.task import TASK_METHOD
from ..effects import (
    AbortExchange,
    AuthEffect,
    ClientEffect,
    OpenExchange,
    TransportEffect,
    UnlockCredentials,
)
from ..errors import (
    Disconnected,
    JsonRpcError,
    LocalProtocolError,
    check_parameters,
    check_settings,
)
from ..events import (
    AuthorizationNeeded,
    CallCompleted,
    CallFailed,
    ClientEvent,
    Closed,
    Connected,
    ProgressReceived,
    Reconnecting,
    ServerRequestCancelled,
    ServerRequestReceived,
)
from ..http import ConnectionLost
from ..messages import Params, RequestId
from ..process import ProcessPart
from ..states import ClientState
from ..types import elide
from . import auth_effects
from .machine import MachineDriver
from .server_requests import OpenRequests, handler_failed

RequestHandler: TypeAlias = Callable[[ServerRequest], Mapping[str, Any]]
"""Returns the result of a server request, or raises JsonRpcError."""


@attrs.define(eq=False)
class _PendingCall:
    """A call in flight, and what its caller gets from it."""

    pending: PendingResult
    on_progress: Callable[[ProgressReceived], Any] | None
    method: str
    params: Params


class ClientDriver(MachineDriver[Client]):
    """Drives a client machine; a subclass performs its exchanges and its process.

    A client is two objects: the driver, and one with the methods of the application, which waits
    for the :class:`~sansmcp.PendingResult` that it gave to :meth:`begin_call`. A subclass of this
    implements :meth:`perform_effect` and :meth:`now`. A driver that runs request handlers in tasks
    or threads overrides :meth:`run_request_handler` or :meth:`respond_result`. One whose
    ``on_progress`` may be async overrides :meth:`on_progress_returned`.

    An exception that a bug raises ends the exchange to which it belongs, and its call
    (:meth:`exchange_failed`). If the exchange is not known, it ends the client. Callers get a
    Disconnected that names it, and :meth:`unexpected` logs it.

    Attributes:
        core: the machine.
        connected: the negotiated version, and the server's info, capabilities and instructions;
            missing before the session is open.
        keeps_events: True if the application takes events; by default they are discarded.
    """

    connected: Connected

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
                for none. The client declares the capabilities for them.
            opening: is set when the opening has ended, with an exception if it failed.
            closing: is set when the client is closed.

        Raises:
            LocalProtocolError: a request handler is not a function, or servers send no request of
                its method.
        """
        super().__init__(core)
        self._request_handlers = request_handlers or {}
        if self._request_handlers:
            core.handle_requests(self._request_handlers)
            _check_functions(self._request_handlers)
        self._opening = opening
        self._closing = closing
        self._pending_calls: dict[int, _PendingCall] = {}
        """The calls in flight, by handle."""
        self._server_requests = OpenRequests(core)
        self._events: deque[ClientEvent] = deque()
        """The events that belong to no call, until the application takes them."""
        self.keeps_events = False
        """True if the application takes events; else they are discarded."""
        self._login_url: str | None = None
        """Where a person must log in; None if the login function was called."""
        self._latest_login = ""
        """The URL of the login that began last: a late result of another one is ignored."""
        self._failure: Disconnected | None = None
        """The error that a bug ended the client with; None before."""

    @property
    def shown(self) -> str:
        """The state of the client, and the name of the server, for a repr()."""
        name = ""
        if self.core.state is ClientState.READY:
            name = f" {elide(self.connected.server_info.get('name'), 40)}"
        return f"{self.core.shown}{name}"

    @property
    def is_closed(self) -> bool:
        """True after the end of the session, however it ended."""
        return self._closing.is_done

    @property
    def is_paused(self) -> bool:
        """True if the application must take events before the driver reads on from the server."""
        return len(self._events) >= self.core.limits.max_queued_events

    def pump(self) -> None:
        """Perform the machine's effects, handle its events, and respond to server requests.

        Call this after everything that changes the machine.
        """
        # Deliver results even if the application does not take its events. Only reading from the
        # server is paused.
        self._drive(self._perform, self._handle)
        while self._server_requests.unhandled or self._login_url is not None:
            if self._login_url is not None:
                url, self._login_url = self._login_url, None
                self._start_login(url)
            else:
                try:
                    self.run_request_handler(self._server_requests.next_unhandled())
                except Exception as error:
                    self._break_off(error)
            self._drive(self._perform, self._handle)
        self.on_idle()

    def handle_timeout(self) -> None:
        """Make the machine do what is due. Call this at :meth:`next_deadline`, or at any time."""
        self._use_machine(
            lambda: self.core.handle_timeout(now=self.now(), is_reading=not self.is_paused)
        )
        self.pump()

    def exchange_failed(self, exchange: int, error: Exception) -> None:
        """End an exchange in which a bug raised ``error``. Call :meth:`pump` afterwards."""
        self.unexpected(error)
        try:
            self.core.receive_part(
                exchange, ConnectionLost(f"internal error: {error!r}"), now=self.now()
            )
        except Exception as again:
            self._break_off(again)

    def receive_process_part(self, part: ProcessPart) -> None:
        """Feed a part of the server process. Call :meth:`pump` afterwards."""
        try:
            self.core.receive_process_part(part, now=self.now())
        except Exception as error:
            self._break_off(error)

    def begin_session(self) -> None:
        """Start the opening; ``opening`` is set when it ends."""
        self.core.start(now=self.now())
        self.pump()

    def begin_log_out(self) -> None:
        """Revoke and delete the stored tokens, instead of a session; ``opening`` is set after it.

        Its exception is AuthorizationFailed if they could not be revoked or deleted.
        """
        self.core.log_out(now=self.now())
        self.pump()

    def begin_close(self) -> None:
        """End the session; running calls fail with RequestCancelled. Can be called twice."""
        self.core.close(now=self.now())
        self.pump()

    def next_unclaimed_event(self) -> ClientEvent | None:
        """Remove and return the oldest event that belongs to no call; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        self.pump()  # there is room for another
        return event

    def begin_call(
        self,
        pending: PendingResult,
        method: str,
        params: Params | None,
        on_progress: Callable[[ProgressReceived], Any] | None,
        settings: CallSettings,
        *,
        detach: bool = False,
    ) -> int:
        """Send a request.

        Args:
            pending: is set when the call ends, or when ``on_progress`` raises.
            method, params: the JSON-RPC request.
            on_progress: is called with each progress report; None to ask for none.
            settings: see :class:`~sansmcp.CallSettings`.
            detach: end the call as soon as the server has made a task of it; then
                :func:`~sansmcp.base_client.task_id_of` has its id.

        Returns:
            The handle of the call, for :meth:`abandon_call`.

        Raises:
            LocalProtocolError: the request cannot be sent; see :meth:`sansmcp.Client.call`.
            Disconnected: a bug has ended the client.
        """
        if self._failure is not None:
            raise self._failure
        try:
            handle = self.core.call(
                method,
                params,
                detach=detach,
                wants_progress=on_progress is not None,
                now=self.now(),
                **settings,
            )
        except TypeError:
            _check_call_settings(method, settings)
            raise
        return self._begun(handle, _PendingCall(pending, on_progress, method, params or {}))

    def begin_attach(
        self,
        pending: PendingResult,
        task_id: str,
        on_progress: Callable[[ProgressReceived], Any] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> int:
        """Wait for a task.

        Args:
            pending: is set when the task ends, or when ``on_progress`` raises.
            task_id: the id of the task.
            on_progress: as in :meth:`begin_call`.
            timeout, total_timeout: seconds without a report, and in all; None for the default.

        Returns:
            A handle for :meth:`abandon_call`.

        Raises:
            LocalProtocolError: the client cannot attach; see :meth:`sansmcp.Client.attach`.
            Disconnected: a bug has ended the client.
        """
        if self._failure is not None:
            raise self._failure
        handle = self.core.attach(
            task_id, timeout=timeout, total_timeout=total_timeout, now=self.now()
        )
        return self._begun(handle, _PendingCall(pending, on_progress, TASK_METHOD, {}))

    def _begun(self, handle: int, call: _PendingCall) -> int:
        """Add a call that the machine has begun, and run the machine."""
        self._pending_calls[handle] = call
        try:
            self.pump()
        except BaseException:  # such as a KeyboardInterrupt in a request handler
            self.abandon_call(handle)
            raise
        return handle

    def abandon_call(self, handle: int) -> None:
        """Stop waiting for a call, and cancel it if it has not ended. Call this once per call."""
        if self._pending_calls.pop(handle, None) and self.core.cancel(handle, now=self.now()):
            self.pump()

    @abstractmethod
    def perform_effect(self, effect: TransportEffect) -> None:
        """Perform an effect of the machine, without waiting."""

    @abstractmethod
    def on_handler_error(self, request: ServerRequest, error: Exception) -> None:
        """Log that a request handler raised; the server gets only "Internal error"."""

    def _perform(self, effect: ClientEffect) -> None:
        if isinstance(effect, AuthEffect):
            self.perform_auth(effect)
            return
        try:
            self.perform_effect(effect)
        except Exception as error:
            match effect:
                case OpenExchange(exchange=exchange) | AbortExchange(exchange=exchange):
                    self.exchange_failed(exchange, error)
                case _:
                    self._break_off(error)

    def perform_auth(self, effect: AuthEffect) -> None:
        """Perform an effect of the authorization, and pass its result to :meth:`auth_ended`.

        A driver of an event loop overrides this, for storages that may block.
        """
        self.auth_ended(effect, self.auth_result(effect))

    def auth_ended(self, effect: AuthEffect, result: Any) -> None:
        """Continue after an effect of the authorization.

        Call :meth:`pump` afterwards.

        Args:
            effect: the effect.
            result: what :meth:`auth_result` returned for it.
        """
        if isinstance(result, Exception):
            reason = str(result) or type(result).__name__
            self.core.auth_failed(effect, reason, now=self.now())
        elif not isinstance(effect, UnlockCredentials):
            self.core.auth_completed(effect, result, now=self.now())

    def auth_result(self, effect: AuthEffect) -> Any:
        """Perform an effect of the authorization, in any thread.

        Returns:
            The result, or the exception that a storage or signer of the application raised.
        """
        authorization = self.core.authorization
        assert authorization is not None
        try:
            return auth_effects.perform(authorization, effect)
        except Exception as error:
            return error

    def _start_login(self, url: str) -> None:
        authorization = self.core.authorization
        assert authorization is not None
        assert authorization.login is not None
        self._latest_login = url
        try:
            self.run_login(authorization.login, url)
        except Exception as error:
            self.login_ended(url, error)
        except BaseException:  # such as a KeyboardInterrupt
            self.core.login_failed("the login was interrupted", now=self.now())
            raise

    def run_login(self, login: Login, url: str) -> None:
        """Have a person log in, and pass the result to :meth:`login_ended`.

        A driver of an event loop overrides this, to await the function or call it in a thread.

        Args:
            login: the function of the application.
            url: what to open in a browser.
        """
        self.login_ended(url, login(url))

    def login_ended(self, url: str, result: Any) -> None:
        """Continue after a login, unless another one has begun.

        Call :meth:`pump` afterwards.

        Args:
            url: what was to be opened.
            result: what the function returned, or the exception that it raised.
        """
        if url != self._latest_login:
            return
        if isinstance(result, Exception):
            self.core.login_failed(str(result) or type(result).__name__, now=self.now())
        elif not isinstance(result, str):
            kind = type(result).__name__
            self.core.login_failed(f"login must return the URL, got {kind}", now=self.now())
        elif not self.core.redirected(result, now=self.now()):
            reason = "the URL that login returned does not belong to this login"
            self.core.login_failed(reason, now=self.now())

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
            case CallCompleted(handle, result):
                if handle in self._pending_calls:
                    self._pending_calls.pop(handle).pending.set_result(result)
            case CallFailed(handle, error):
                if handle in self._pending_calls:
                    self._pending_calls.pop(handle).pending.set_exception(error)
            case ProgressReceived(call=handle):
                if handle in self._pending_calls:
                    self._report_progress(event, self._pending_calls[handle])
            case ServerRequestReceived(handle, request):
                params = request.params or {}
                origin = None
                if handle is not None and handle in self._pending_calls:
                    call = self._pending_calls[handle]
                    origin = OriginatingCall(handle, call.method, call.params)
                received = ServerRequest(request.id, request.method, params, origin)
                self._server_requests.add(received)
            case ServerRequestCancelled(request_id):
                self._server_requests.cancelled(request_id)
                self.cancel_request_handler(request_id)
            case AuthorizationNeeded():
                self._ask_for_login(event)
            case Connected() if not hasattr(self, "connected"):
                self.connected = event
                self._opening.set_result()
            case Closed(error):
                if error is None:
                    self._opening.set_result()
                else:
                    self._opening.set_exception(error)
                self._closing.set_result()
                self.on_other_event(event)
            case Reconnecting(call=None, attempt=1) if not hasattr(self, "connected"):
                self.on_first_failure(event)
                self.on_other_event(event)
            case _:
                self.on_other_event(event)

    def _ask_for_login(self, event: AuthorizationNeeded) -> None:
        authorization = self.core.authorization
        if authorization is not None and authorization.login is not None:
            self._login_url = event.url
        elif self.keeps_events:
            self.on_other_event(event)
        else:
            reason = "the client has no login function; set login, or take the client's events"
            self.core.login_failed(reason, now=self.now())

    def on_first_failure(self, event: Reconnecting) -> None:
        """Log that the server cannot be reached, and that the opening is repeated."""

    def on_other_event(self, event: ClientEvent) -> None:
        """Keep an event that belongs to no call, if the application takes events."""
        if self.keeps_events:
            self._events.append(event)

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
            self._server_requests.refuse_unsupported(request, self.now())
            return
        try:
            self.respond_result(request, self._request_handlers[request.method](request))
        except Exception as error:
            self.respond_exception(request, error)

    def cancel_request_handler(self, id: RequestId) -> None:
        """Stop the handler of a server request that the server has cancelled, if it still runs.

        A driver that runs request handlers in tasks overrides this.
        """

    def respond_result(self, request: ServerRequest, result: Any) -> None:
        """Respond to a server request with what its handler returned.

        Sends nothing if the server has cancelled the request. A driver of an event loop overrides
        this to await an awaitable. Call :meth:`pump` afterwards.

        Raises:
            LocalProtocolError: ``result`` is not a JSON object.
        """
        self._server_requests.respond(request, result, self.now())

    def respond_exception(self, request: ServerRequest, error: Exception) -> None:
        """Respond to a server request with the error for what its handler raised.

        Logs the exception unless it is a JsonRpcError, and sends nothing if the server has
        cancelled the request. Call :meth:`pump` afterwards.
        """
        if not isinstance(error, JsonRpcError):
            self.on_handler_error(request, error)
            error = handler_failed(request)
        # The data of a JsonRpcError may not be JSON: then the server gets "Internal error".
        self._server_requests.respond_first_error(
            request, (error, handler_failed(request)), self.on_handler_error, self.now()
        )

    def respond_internal_error(self, request: ServerRequest) -> None:
        """Respond "Internal error" to a server request whose handler was stopped.

        Sends nothing if the server has cancelled the request. Call :meth:`pump` afterwards.
        """
        self._server_requests.respond_first_error(
            request, (handler_failed(request),), self.on_handler_error, self.now()
        )


def _check_functions(request_handlers: Mapping[str, object]) -> None:
    for method, function in request_handlers.items():
        if not callable(function):
            raise LocalProtocolError(
                f"request_handlers[{method!r}] must be a function, got {elide(function)}"
            )
        check_parameters(repr(method), function, "request")


def _check_call_settings(method: str, settings: CallSettings) -> None:
    """Raise TypeError for an argument of a call that is none, and say what is meant instead."""
    known = CallSettings.__optional_keys__
    name = "call_tool" if method == TASK_METHOD else "call"
    try:
        check_settings(settings, name, known, "a call")
    except TypeError as error:
        if method != TASK_METHOD:
            raise
        given = {key: value for key, value in settings.items() if key not in known}
        text = f"{error}. Arguments of the tool are one dict: call_tool(name, {elide(given)})"
        raise TypeError(text) from None
