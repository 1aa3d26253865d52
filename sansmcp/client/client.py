"""The client machine: commands in, effects and events out.

The application calls commands (``call``, ``notify``, ``respond``, ``cancel``, ``close``). The
machine returns effects: the HTTP requests to make (``OpenExchange``, ``AbortExchange``), or what to
do with the server process. The driver performs them, and feeds the parts of each response with the
number of its exchange, or the parts of the process. Events report the outcomes to the application.

    client.start(now=t)                                  ->  OpenExchange(1, POST initialize)
    client.receive_part(1, ResponseHead(...), now=t) ... ->  Connected
    handle = client.call("tools/call", {}, now=t)        ->  OpenExchange(2, POST tools/call)
    client.receive_part(2, ResponseHead(...), now=t) ... ->  CallCompleted(handle, result)

After every method that changes the machine, pull effects until ``Idle``. After ``Idle.PAUSED`` read
nothing from the server until the application has taken events. Every call ends with exactly one
CallCompleted or CallFailed, whatever the server and the network do. Input from a server never makes
the machine raise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from ..auth.options import Authorization
from ..codecs import json, jsonrpc
from ..codecs.headers import Headers
from ..codecs.jsonrpc import METHOD_NOT_FOUND
from ..effects import (
    AuthEffect,
    ClientEffect,
)
from ..errors import (
    AuthorizationFailed,
    CallError,
    JsonRpcError,
    LocalProtocolError,
    RemoteProtocolError,
    check_positive_seconds,
    check_settings,
    check_type,
    describe_unread,
    error_response,
)
from ..events import (
    ClientEvent,
    Closed,
    InvalidLine,
    MessageUndelivered,
    ProtocolViolation,
    ServerNotified,
    SessionExpired,
)
from ..http import ResponsePart, Url
from ..messages import (
    ErrorResponse,
    Notification,
    Params,
    Request,
    RequestId,
    Response,
)
from ..meta_keys import (
    ACKNOWLEDGED,
    LISTEN,
    OWN_META,
)
from ..observer import both
from ..process import ProcessPart
from ..revisions import REVISIONS
from ..states import AuthorizationState, ClientState, OpeningState
from ..timers import Timer, TimerTable
from ..types import STDIO, Idle, Unpack, assert_never
from .cache import Cache
from .call_keys import (
    CallKeys,
    Cut,
)
from .calls import Calls, SessionStep
from .child_process import ChildProcess
from .event_queue import EventQueue
from .http_heads import Refusal
from .input import ServerRequests
from .message_decoder import MessageDecoder
from .message_encoder import MessageEncoder
from .opening import DISCOVER, INITIALIZE, Opening
from .options import (
    SAFE_METHODS,
    ClientOptions,
    ClientSettings,
    command_of,
)
from .outcomes import (
    Agreed,
    Confirm,
    Delivered,
    Ended,
    EndpointFound,
    EndpointOnPost,
    EventStreamLost,
    Failed,
    Initialize,
    Invalid,
    Kind,
    Lost,
    NeedsVersion,
    NoEndpoint,
    OpenEventStream,
    OpeningOutcome,
    OwnAnswer,
    PostDelayed,
    PostOutcome,
    Probe,
    ProcessClosed,
    ProcessFinished,
    ProcessLogged,
    ProcessUseless,
    Ready,
    Redirected,
    Refused,
    Restart,
    Retry,
    SessionEnded,
    SessionOver,
    Undelivered,
)
from .post import INITIALIZED
from .procedures import Procedures
from .request import CallOptions, CallTimeouts, PendingRequest, encode_without_meta
from .request_table import RequestTable
from .task import TASK_METHOD
from .tool_headers import ToolHeaders
from .transports.http import (
    FlowEnded,
    Held,
    HttpExchanges,
    Released,
    authorizing_for,
)
from .transports.http_link import http_link
from .transports.link import (
    Deliveries,
    DeliveryOutcome,
    Link,
    SessionOutcome,
)
from .transports.stdio import Stdio, StdioOutcome
from .unread import Unread

_NEED_DATA: Final = Idle.NEED_DATA
_CALL: Final = Kind.CALL
_NEW: Final = OpeningState.NEW

_MESSAGES = (Request, Notification, Response, ErrorResponse, Invalid)
"""What comes as a message, right or wrong."""

_ONLY = 0
"""The number of a timer that exists only once."""


class Client:
    """An MCP client without I/O, clock or randomness.

    Attributes:
        http11: the setting of that name, for connections of this client.
        limits: the bounds of this client.
    """

    # CPython 3.11 looks attributes up quickly in slots, and in instances with at most 30 of them.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_calls",
        "_effects",
        "_encoder",
        "_error",
        "_events",
        "_http",
        "_link",
        "_now",
        "_observer",
        "_opening",
        "_opening_request",
        "_options",
        "_pipes",
        "_requests",
        "_timers",
        "_unread",
        "http11",
        "limits",
    )

    _url_on_pipes: ClassVar[Url | None] = None
    """The endpoint of a server process, for a subclass that speaks HTTP on its pipes."""
    _transport_on_pipes = STDIO
    """The name of the transport of a server process."""

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        jitter: Callable[[], float],
        random_bytes: Callable[[int], bytes] | None = None,
        wall_clock: Callable[[], float] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Create a client; :meth:`start` opens the session.

        Args:
            target: the URL of an MCP endpoint, http or https; or that of a Unix socket, e.g.
                ``"http+unix://%2Frun%2Fmcp.sock/mcp"``; or the command that starts a server on
                stdio, e.g. ``["python", "server.py"]``.
            jitter: returns a random number from 0 (inclusive) to 1 at each call, e.g.
                ``random.random``.
            random_bytes: returns that many random bytes, e.g. ``secrets.token_bytes``; needed for
                ``authorization``, and for ``reclaim``, which is off without it.
            wall_clock: returns the seconds since 1970, e.g. ``time.time``; needed for
                ``authorization``.
            settings: see :class:`ClientOptions`.

        Raises:
            LocalProtocolError: a setting is invalid, or ``target`` is neither a URL nor a command.
            TypeError: a setting is unknown.
        """
        check_settings(settings, "Client", ClientSettings.__optional_keys__, "a client")
        options = self._options = ClientOptions(**settings)
        url = _url_of(target) if isinstance(target, str) else self._url_on_pipes
        command = () if isinstance(target, str) else command_of(target)
        self._observer, self.http11 = both(options.trace, options.observer), options.http11
        self.limits = options.limits
        self._now = 0.0
        self._effects: deque[ClientEffect] = deque()
        self._events = EventQueue(options.limits.max_queued_events)
        self._timers = TimerTable()
        self._error: CallError | None = None
        self._opening = Opening(
            options,
            jitter,
            target if isinstance(target, str) else " ".join(command),
            url.shown if url is not None and isinstance(target, str) else "the server process",
            url is not None and url.is_local,
        )
        self._requests = RequestTable()
        self._opening_request: PendingRequest | None = None
        self._unread = Unread()
        self._encoder = MessageEncoder(options, None if url is None else ToolHeaders())
        messages = MessageDecoder(options.limits, options.strict)
        authorizing = authorizing_for(
            options, url if isinstance(target, str) else None, random_bytes, wall_clock
        )
        exchanges = HttpExchanges(
            url, messages, self._encoder, self._effects, self._timers, authorizing
        )
        self._http = http_link(
            exchanges,
            self._requests,
            self._encoder,
            jitter,
            self._timers,
            self._events,
            self._unread,
        )
        self._link: Link = self._http
        self._pipes: Stdio | None = None
        """The server process; None if the server is at a URL."""
        if not isinstance(target, str):
            process = ChildProcess(command, options.close_timeout)
            self._pipes = Stdio(
                process, messages, self._effects, self._timers, self._encoder, self._events
            )
            if url is None:
                self._link = self._pipes
        has_keys = options.reclaim and url is not None
        keys = CallKeys(random_bytes if has_keys else None, options.reconnect, jitter)
        responded = self._opening.reset_session_losses
        self._calls = Calls(
            self._requests,
            self._encoder,
            keys,
            Cache(options.limits),
            Procedures(options, jitter, self._encoder, keys, responded),
            ServerRequests(options.limits, options.capabilities),
            self._timers,
            self._events,
            self._unread,
            self._link,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shown}>"

    @property
    def target(self) -> str:
        """The URL or the command, without what may be secret."""
        if self._pipes is not None:
            return self._pipes.shown
        return "" if self._http.exchanges.url is None else self._http.exchanges.url.shown

    @property
    def shown(self) -> str:
        """The target, and the revision or the state, for a ``repr``."""
        is_ready = self.state is ClientState.READY
        what = self._encoder.agreed.revision.name if is_ready else self.state.name.lower()
        return f"{self.target} {what}"

    @property
    def authorization(self) -> Authorization | None:
        """The setting of that name, for the driver."""
        return self._options.authorization

    @property
    def state(self) -> ClientState:
        """The state of the session."""
        return self._opening.client_state

    # Commands

    def handle_requests(self, methods: Iterable[str]) -> None:
        """Declare the capabilities for server requests that the application handles.

        Call this before :meth:`start`. What the setting ``capabilities`` declares itself is kept.

        Args:
            methods: the methods of server requests, such as ``"roots/list"``; those of extensions
                only if ``capabilities`` declares ``extensions`` or ``experimental``.

        Raises:
            LocalProtocolError: a server sends no request of that method.
        """
        options = self._options = self._options.handling(methods)
        self._encoder.options = options
        self._calls.declare(options.capabilities)

    def start(self, *, now: float) -> None:
        """Open the session. The event ``Connected`` or ``Closed`` reports the outcome.

        Raises:
            LocalProtocolError: the client was started or closed before.
        """
        self._check_new()
        self._now = now
        transports: tuple[str, ...] = (self._transport_on_pipes,)
        if self._pipes is None:
            transports = self._options.known_servers.plan(
                str(self._http.exchanges.url), self._options.usable_transports
            )
        else:
            self._pipes.start()
        if self._http.exchanges.authorizing is not None:
            self._http.exchanges.authorizing.flow.start(now)
            self._receive(self._http.run_flow(now))
        self._on_opening(self._opening.start(transports, now))

    def log_out(self, *, now: float) -> None:
        """Revoke the stored tokens at their issuer, and delete them; call it instead of ``start``.

        The event ``Closed`` reports the outcome. Its error is None if nothing is stored any more
        and the tokens were revoked, or there were none. Nothing is sent to the MCP server.

        Raises:
            LocalProtocolError: the client has no ``authorization``, or was started or closed.

        Source: RFC 7009.
        """
        self._check_new()
        authorizing = self._http.exchanges.authorizing
        if authorizing is None:
            raise LocalProtocolError(
                "log_out() needs the setting authorization, and a server at an http or https URL"
            )
        self._now = now
        authorizing.flow.log_out(now)
        self._receive(self._http.run_flow(now))

    def _check_new(self) -> None:
        state, authorizing = self._opening.state, self._http.exchanges.authorizing
        if state is not _NEW:
            raise LocalProtocolError(
                f"start() was called before: the client is {state.name.lower()}"
            )
        if authorizing is not None and authorizing.flow.state is not AuthorizationState.NEW:
            raise LocalProtocolError("log_out() was called before: the client cannot be started")

    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        reset_on_progress: bool = True,
        idempotent: bool | None = None,
        meta: Mapping[str, Any] | None = None,
        detach: bool = False,
        any_result: bool = False,
        wants_progress: bool = True,
        capabilities: Mapping[str, Any] | None = None,
        now: float,
    ) -> int:
        """Make a call: send a request, and report its one outcome as an event.

        A call made before the opening has ended waits for it.

        At 2026-07-28 a server may answer ``tools/call`` by the handle of a task. The client then
        asks for the state of the task until it has ended, at the interval that the server wants,
        and the call ends with the result of the task. From the handle on, a lost connection does
        not end the call. The event ``TaskUpdated`` reports the task. If the call is cancelled,
        times out or ends with the client, the client sends ``tasks/cancel``.

        Args:
            method, params: the request. ``params`` can have ``_meta``; a progress token is added.
            timeout: seconds without a response and, if ``reset_on_progress``, without progress.
                Each response about the task of the call starts it again. None is the client's
                setting; for ``subscriptions/listen``, no limit.
            total_timeout: seconds without a response, whatever progress there is. None is the
                client's setting; for ``subscriptions/listen``, no limit. Both times stop while a
                server request is open that ``capabilities`` declares, for the first
                ``limits.max_server_requests_per_call`` of them.
            reset_on_progress: True if a progress report starts ``timeout`` again.
            idempotent: True if the client may repeat the request when its outcome is unknown: the
                connection was lost, and nothing can be resumed. None allows it for methods that
                only read.
            meta: further members of ``_meta``, e.g. ``{"traceparent": "00-..."}``; they replace
                those of the same name in ``params``. ``traceparent`` and ``tracestate`` are
                repeated in the HTTP headers of these names, unless the client has ``traceparent``
                among its ``headers``.
            detach: True to get the handle of a task as the result, a JSON object with ``taskId``,
                and to leave the task to :meth:`attach`, of any client.
            any_result: True to get a result of any ``resultType`` as it is, for a gateway that
                hands it on: one that asks for input (``input_required``, which the client else
                reports as server requests), and those that the client does not know and else
                refuses. Repeat the request with ``inputResponses`` and ``requestState`` in
                ``params`` to go on. Tasks are followed unless ``detach`` is set.
            wants_progress: False if progress reports only start ``timeout`` again, and the
                application does not use them. Servers of this library then make a task of a call
                that takes long; else the call stays on its stream, on which the reports arrive.
            capabilities: at 2026-07-28, what this request declares instead of the capabilities of
                the client, for a gateway whose own clients differ. Tasks are declared as always,
                since the client itself follows them.

        Returns:
            The handle of the call. CallCompleted or CallFailed with this handle ends it.

        Raises:
            LocalProtocolError: the client was not started or is closed, ``method`` is
                ``initialize``, ``params`` are not a JSON object (or have a number too large for
                the header that must repeat it), ``meta`` has a member that the client sets itself
                (such as ``progressToken``), a timeout is not above zero, or
                ``limits.max_pending_calls`` calls are running. Nothing has changed.
        """
        lasts = method == LISTEN
        if timeout is None:
            timeout = math.inf if lasts else self._options.timeout
        if total_timeout is None:
            total_timeout = math.inf if lasts else self._options.total_timeout
        check_positive_seconds(timeout, total_timeout)
        if method == INITIALIZE:
            raise LocalProtocolError("Cannot call 'initialize': start() sends it")
        params, encoded = _checked_params(method, params, meta)
        if capabilities is not None:
            capabilities = self._options.with_tasks(capabilities)
            json.encode(capabilities)
        self._encoder.check_params(method, params)
        self._check_can_call()
        self._now = now
        handle = next(self._requests.handles)
        if self._observer is not None:
            further = self._observer.call_started(handle, method, params)
            params = _with_further_meta(params, further)
        request = PendingRequest(
            handle,
            _CALL,
            method,
            params,
            CallOptions(
                idempotent=method in SAFE_METHODS if idempotent is None else idempotent,
                is_detached=detach,
                takes_any_result=any_result,
                wants_progress=wants_progress or method != TASK_METHOD or not self._options.tasks,
                capabilities=capabilities,
            ),
            CallTimeouts(timeout, total_timeout, reset_on_progress, now),
            encoded,
        )
        self._calls.begin(request, now, is_ready=self._opening.is_ready)
        return request.number

    def attach(
        self,
        task_id: str,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        now: float,
    ) -> int:
        """Wait for a task that another call has started, of this client or another one.

        The outcome is that of the call: its result, or the error that ended it. The task goes on if
        the wait is cancelled, times out or ends with the client; call ``tasks/cancel`` to end it.

        Args:
            task_id: the id of the task, from its handle or from the event ``TaskUpdated``. It is
                valid at the server that made it, for the user that made the call.
            timeout, total_timeout: as in :meth:`call`.
            now: the current time in seconds, on the machine's clock.

        Returns:
            A handle, as :meth:`call` returns it.

        Raises:
            LocalProtocolError: the client was not started or is closed, was created with
                ``tasks=False``, ``task_id`` is not a string, a timeout is not above zero, or
                ``limits.max_pending_calls`` calls are running. Nothing has changed.
        """
        timeout = self._options.timeout if timeout is None else timeout
        total_timeout = self._options.total_timeout if total_timeout is None else total_timeout
        check_positive_seconds(timeout, total_timeout)
        check_type(str, task_id=task_id)
        if not self._options.tasks:
            raise LocalProtocolError("This client does not follow tasks; pass tasks=True to it")
        self._check_can_call()
        self._now = now
        timeouts = CallTimeouts(timeout, total_timeout, resets=True, started=now)
        request = PendingRequest(
            next(self._requests.handles), _CALL, TASK_METHOD, None, timeouts=timeouts
        )
        request.task = self._calls.new_task(task_id)
        self._calls.begin(request, now, is_ready=self._opening.is_ready)
        return request.number

    def cancel(
        self, handle: int, reason: str = "cancelled by the application", *, now: float
    ) -> bool:
        """Cancel a call: end it with RequestCancelled, and send the server the cancellation.

        This also cancels the task of the call, unless the client has attached to it.

        Args:
            handle: what :meth:`call` returned.
            reason: a text for the server's log.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False, with nothing changed, if the call has ended before.
        """
        self._now = now
        request = self._requests.calls.get(handle)
        if request is None:
            return False
        self._calls.cancel(request, reason, now)
        return True

    def notify(
        self,
        method: str,
        params: Params | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        now: float,
    ) -> None:
        """Send a notification.

        The event ``MessageUndelivered`` reports that the server refused it, or did not accept it
        within ``limits.post_timeout`` seconds.

        Args:
            method, params, meta: as in :meth:`call`.
            now: the current time in seconds, on the machine's clock.

        Raises:
            LocalProtocolError: the opening has not ended, the client is closed, the parameters are
                not JSON, or ``limits.max_pending_calls`` messages wait to be accepted by the
                server. Nothing has changed.
        """
        self._check_open()
        if not self._opening.is_ready:
            raise LocalProtocolError(
                "Cannot send a notification before the session is open; wait for Connected"
            )
        params, _ = _checked_params(method, params, meta)
        if self._http.posts.is_full:
            raise LocalProtocolError(self._http.posts.why_full)
        self._now = now
        self._calls.post(Notification(method, params), now)

    def respond(self, request_id: RequestId, result: Any, *, now: float) -> bool:
        """Respond to a server request (ServerRequestReceived) with a result.

        Returns:
            False, with nothing sent, if the request is not open: it was cancelled, its call or
            session has ended, or it has a response.

        Raises:
            LocalProtocolError: ``result`` is not a JSON object. Nothing has changed.
        """
        check_type(Mapping, result=result)
        json.encode(result)
        self._now = now
        return self._calls.respond(Response(request_id, result), now)

    def respond_exception(self, request_id: RequestId, error: Exception, *, now: float) -> bool:
        """Respond to a server request with an error for the exception that its handler raised.

        A JsonRpcError is sent as it is; any other exception becomes "Internal error". Returns and
        raises as :meth:`respond` does.
        """
        message = error_response(request_id, error)
        json.encode(message.data)
        self._now = now
        return self._calls.respond(message, now)

    def refuse_unsupported(self, request_id: RequestId, *, now: float) -> bool:
        """Respond to a server request that its method is not supported (code -32601).

        The timeouts of the call run on as if the request had not been made. Returns as
        :meth:`respond` does.
        """
        error = JsonRpcError(METHOD_NOT_FOUND, "This client does not support that method")
        self._now = now
        return self._calls.respond(error_response(request_id, error), now, declined=True)

    def redirected(self, redirect: str, *, now: float) -> bool:
        """Continue a login (AuthorizationNeeded) with the URL to which the browser was sent.

        Args:
            redirect: the URL, or its query.
            now: the current time in seconds, on the machine's clock.

        Returns:
            False, with nothing changed, if the URL does not belong to this login, or no login is
            pending. An attacker may have made it; wait for another.
        """
        self._now = now
        if self._http.exchanges.authorizing is None:
            return False
        is_ours = self._http.exchanges.authorizing.flow.redirected(redirect, now)
        self._receive(self._http.run_flow(now))
        return is_ours

    def login_failed(self, reason: str, *, now: float) -> None:
        """End a login (AuthorizationNeeded): the person does not log in.

        The requests that wait fail with AuthorizationFailed. Without a login nothing changes.
        """
        self._now = now
        if self._http.exchanges.authorizing is not None:
            self._http.exchanges.authorizing.flow.login_failed(reason, now)
            self._receive(self._http.run_flow(now))

    def auth_completed(self, effect: AuthEffect, result: Any, *, now: float) -> None:
        """Report the result of an effect of the authorization. Pull effects afterwards."""
        self._now = now
        self._receive(self._http.auth_completed(effect, result, now))

    def auth_failed(self, effect: AuthEffect, reason: str, *, now: float) -> None:
        """Report that an effect of the authorization cannot be performed, and why."""
        self._now = now
        self._receive(self._http.auth_failed(effect, reason, now))

    def close(self, reason: str = "the client was closed", *, now: float) -> None:
        """End the session. Running calls fail with RequestCancelled, and their tasks are cancelled.

        ``Closed`` is the last event. A second call has no effect.

        Args:
            reason: a text for the errors of the running calls.
            now: the current time in seconds, on the machine's clock.
        """
        self._now = now
        if not self._opening.is_closed:
            self._end(None, self._calls.cancel_all(reason, now))

    # Parts in, effects and events out

    def receive_part(self, exchange: int, part: ResponsePart, *, now: float) -> None:
        """Feed a part of the response of an exchange. Pull effects and events afterwards.

        A part of an exchange that has ended or was aborted is ignored.
        """
        self._now = now
        if self._observer is not None and exchange in self._http.exchanges.open_exchanges:
            self._observer.part_received(exchange, part)
        for owner, outcome in self._http.receive(exchange, part, now):
            self._on_delivery(owner, outcome)

    def receive_process_part(self, part: ProcessPart, *, now: float) -> None:
        """Feed a part of the server process (StartProcess). Pull effects and events afterwards.

        Raises:
            LocalProtocolError: the server is at a URL.
        """
        stdio = self._pipes
        if stdio is None:
            raise LocalProtocolError(
                "The server is at a URL and has no process; feed responses to receive_part()"
            )
        self._now = now
        if self._observer is not None:
            self._observer.process_part_received(part)
        if stdio.has_ended:
            return  # from a child of the process, which still has its pipes open
        outcome = stdio.receive(part, now, is_closing=self._opening.is_closed)
        if outcome is None:
            self._process_lines(stdio)
        else:
            self._on_process(stdio, outcome)

    def next_effect(self) -> ClientEffect | Idle:
        """Remove and return the next effect to perform.

        Returns:
            The effect. If there is none, ``Idle.NEED_DATA``, or ``Idle.PAUSED`` if no response, and
            no output of the process, must be read until the application has taken events.
        """
        if self._http.exchanges.authorizing is not None:
            self._receive(self._http.admit(self._now))
        if self._effects:
            effect = self._effects.popleft()
            if self._observer is not None:
                self._observer.effect_pulled(effect)
            return effect
        return Idle.PAUSED if self._events.is_full() else _NEED_DATA

    def next_event(self) -> ClientEvent | Idle:
        """Remove and return the next event, or ``Idle.NEED_DATA`` if there is none."""
        if not self._events:
            return _NEED_DATA
        was_full = self._events.is_full()
        event = self._events.popleft()
        if self._observer is not None:
            self._observer.event_pulled(event)
        if was_full and not self._events.is_full():
            for number in tuple(self._http.exchanges.open_exchanges):
                self._receive(self._http.read(number, self._now))
            if isinstance(self._link, Stdio):
                self._process_lines(self._link)
        return event

    def drive(
        self, perform: Callable[[ClientEffect], None], on_event: Callable[[ClientEvent], None]
    ) -> None:
        """Pull all effects and events. Drivers call this after everything that changes the machine.

        A driver that queues events for its application must pause reading responses while that
        queue is full: this method leaves no event in the machine, which therefore never pauses.

        Args:
            perform: is called with each effect, in order; it must not wait.
            on_event: is called with each event, in order; it must not wait.
        """
        while True:
            while not isinstance(effect := self.next_effect(), Idle):
                perform(effect)
            if isinstance(event := self.next_event(), Idle):
                return
            on_event(event)

    # Time

    def next_deadline(self) -> float | None:
        """Return when to call :meth:`handle_timeout`, on the clock of ``now``; None for never."""
        authorizing = self._http.exchanges.authorizing
        has_effects = self._effects or (authorizing is not None and authorizing.arrived)
        return self._now if has_effects else self._timers.next_deadline()

    def handle_timeout(self, *, now: float, is_reading: bool = True) -> None:
        """Handle the timers that are due. This can be called early, late, or twice.

        Args:
            now: the current time in seconds, on the machine's clock.
            is_reading: False while the driver reads no responses, because its application must take
                events first. A silent stream is then not taken for a dead connection.
        """
        self._now = now
        for timer, key in self._timers.due(now):
            assert isinstance(key, int)
            match timer:
                case Timer.REQUEST:
                    self._calls.timed_out(self._requests.calls[key], now)
                case Timer.REPEAT:
                    self._calls.go_on(self._requests.calls[key], now)
                case Timer.OPENING:
                    self._on_opening(self._opening.due(now, self._printed()))
                case Timer.TASK_POLL:
                    self._calls.task_due(self._requests.calls[key], now)
                case Timer.CLOSE:
                    self._closed()
                case Timer.PROCESS:
                    assert self._pipes is not None
                    is_held = self._events.is_full()
                    is_closing = self._opening.is_closed
                    outcome = self._pipes.due(now, is_closing=is_closing, is_held=is_held)
                    self._on_process(self._pipes, outcome)
                case _:
                    can_tell = is_reading and not self._events.is_full()
                    is_ready = self._opening.is_ready
                    self._receive(
                        self._http.due(timer, key, now, can_tell=can_tell, is_ready=is_ready)
                    )

    # The opening

    def _on_opening(self, outcome: OpeningOutcome) -> None:
        """Act on an outcome of the opening."""
        match outcome:
            case Failed(error):
                self._fail(error)
            case Confirm(agreed):
                self._encoder.agree(agreed)
                self._end_opening_request(complete=True)
                self._arm_opening()
                delivery = self._link.post(INITIALIZED, self._now)
                if delivery is not None:
                    self._on_delivery(*delivery)
            case Ready(agreed, event):
                self._encoder.agree(agreed)
                self._end_opening_request(complete=True)
                self._arm_opening()
                if self._pipes is not None:
                    self._pipes.process.has_served = True
                self._events.append(event)
                self._calls.keys.opened(event.capabilities)
                for call in tuple(self._requests.calls.values()):
                    self._calls.go_on(call, self._now)
                has_one = agreed.revision.standalone_stream and not self._link.is_shared
                if has_one and self._options.standalone_stream and self._opening.is_ready:
                    self._http.open_standalone_stream(self._now)
            case _:
                self._discard_session()
                self._start_opening_step(outcome)

    def _start_opening_step(self, outcome: OpenEventStream | Probe | Initialize | Retry) -> None:
        """Start a step of the opening. The session before must have been discarded."""
        self._arm_opening()
        match outcome:
            case Probe(version):
                self._encoder.agree(Agreed(REVISIONS[version]))
                self._send_own(Kind.DISCOVER, DISCOVER, None)
            case Initialize(version):
                from .legacy.handshake import initialize_params

                self._encoder.agree(Agreed())
                params = initialize_params(self._options, version, self._opening.transport)
                self._send_own(Kind.INITIALIZE, INITIALIZE, params)
            case OpenEventStream():
                self._encoder.agree(Agreed())
                self._http.open_event_stream(self.limits, self._now)
            case Retry():
                self._encoder.agree(Agreed())
                self._events.append(outcome.as_event(None))
            case _ as impossible:
                assert_never(impossible)

    def _send_own(self, kind: Kind, method: str, params: Params | None) -> None:
        request = self._opening_request = self._requests.add_own(kind, method, params)
        self._requests.renew_id(request)
        assert request.id is not None
        self._opening.sent(request.id)
        self._link.send(request, self._now)

    def _printed(self) -> tuple[str, ...]:
        """Return what the server has sent in this opening that is no message."""
        if self._pipes is not None:
            return self._pipes.process.printed
        request = self._opening_request
        quotes = () if request is None else self._unread.quotes(request.number, -math.inf)
        return describe_unread(quotes)

    def _end_opening_request(self, *, complete: bool) -> None:
        request, self._opening_request = self._opening_request, None
        if request is not None:
            self._calls.end_own(request, self._now, complete=complete)

    def _arm_opening(self) -> None:
        self._timers.set(Timer.OPENING, _ONLY, self._opening.deadline)

    # The end of a session, and of the client

    def _reopen_session(
        self, outcome: OpeningOutcome, error_of: Callable[[PendingRequest], CallError]
    ) -> None:
        """Open a new session. Calls that were sent in the old one and cannot be repeated fail."""
        if isinstance(outcome, Failed):
            self._fail(outcome.error)
            return
        assert not isinstance(outcome, Confirm | Ready)
        keeps_keys = self._calls.keeps_keys
        self._not_cancelled(self._discard_session(), "the session has ended")
        failed = self._calls.requeue(error_of, self._now, keeps_keys=keeps_keys)
        self._events.append(SessionExpired(failed))
        self._start_opening_step(outcome)

    def _session_lost(self, refusal: Refusal, not_run: int | None = None) -> None:
        """Open a new session: the server has discarded the current one.

        ``not_run``: the call that it has refused, and run nothing of.
        """

        def error_of(call: PendingRequest) -> CallError:
            return call.session_lost(refusal.status, was_not_run=call.number == not_run)

        self._reopen_session(self._opening.session_lost(refusal, self._now), error_of)

    def _discard_session(self) -> list[Request]:
        """Discard everything of the session except the calls.

        Returns each ``tasks/cancel`` that the server has not confirmed.
        """
        self._end_opening_request(complete=False)
        self._timers.stop(Timer.OPENING, _ONLY)
        self._calls.discard_server_requests()
        self._timers.stop(Timer.CLOSE, _ONLY)
        self._opening.forget_pause()
        return self._http.clear(self._now)

    def _not_cancelled(self, cancellations: Sequence[Request], reason: str) -> None:
        """Report each ``tasks/cancel`` that the server has not confirmed."""
        for cancellation in cancellations:
            self._events.append(MessageUndelivered(cancellation, reason))

    def _fail(self, error: CallError) -> None:
        """Close the client because of an error."""
        self._calls.fail_all(error, self._now)
        self._end(error)

    def _end(self, error: CallError | None, last: Sequence[Request | Notification] = ()) -> None:
        """End the session, and send the ``last`` messages to the server."""
        self._error = error
        is_new = self._opening.state is _NEW
        message_url = self._http.exchanges.message_url
        cancellations = [] if is_new else self._discard_session()
        self._http.exchanges.message_url = message_url  # for the last messages
        self._opening.close()
        if self._http.exchanges.authorizing is not None:
            self._http.exchanges.authorizing.flow.close()
            self._receive(self._http.run_flow(self._now))
        if is_new:
            self._events.append(Closed(error))
            return
        if error is not None:
            self._not_cancelled(cancellations, str(error))
            cancellations = []
        for message in (*cancellations, *last):
            self._calls.post(message, self._now)
        if isinstance(self._link, Stdio) and self._link.close(self._now):
            return
        if error is None and self._encoder.agreed.session_id is not None:
            self._http.delete_session(self._now)
        elif self._http.posts.is_empty:
            self._closed()
            return
        self._timers.set(Timer.CLOSE, _ONLY, self._now + self._options.close_timeout)

    def _closed(self) -> None:
        """Report that the client is closed: the session has ended, or there was none."""
        self._not_cancelled(self._discard_session(), "the client was closed")
        self._opening.closed()
        self._events.append(Closed(self._error))

    def _on_answer(self, request: PendingRequest, answer: OwnAnswer) -> None:
        """Act on what has come for a request, its response or another end."""
        match request.kind:
            case Kind.DISCOVER:
                self._on_opening(self._opening.discovery_answered(answer, self._now))
            case Kind.INITIALIZE:
                headers = self._response_headers(request, answer)
                self._on_opening(self._opening.initialize_answered(answer, headers, self._now))
            case Kind.PING:
                self._receive(self._http.ping_ended(answer, self._now))
            case Kind.RENEWAL if isinstance(answer, Response):
                # The server has nothing to tell any more.
                call = self._requests.parent_of(request)
                self._calls.finish(call, answer.result, self._now)
            case Kind.RENEWAL:
                self._http.renewal_failed(request, answer, self._now)
            case _:
                self._on_session_step(self._calls.answered(request, answer, self._now))

    def _on_session_step(self, step: SessionStep | None) -> None:
        """Act on what a call needs of the session; None for nothing."""
        match step:
            case NeedsVersion():
                why = "the server no longer supports the protocol version"
                outcome = self._opening.version_refused(self._now)
                self._reopen_session(outcome, lambda call: call.lost(why))
            case SessionOver(refusal, not_run):
                self._session_lost(refusal, not_run)
            case None:
                pass
            case _ as impossible:
                assert_never(impossible)

    def _response_headers(self, request: PendingRequest, answer: OwnAnswer) -> Headers:
        """Return the headers of the HTTP response with the result; empty if there is none."""
        is_result = isinstance(answer, Response)
        if not is_result or request.exchange is None or self._link.is_shared:
            return ()
        head = self._http.exchanges.open_exchanges[request.exchange].reader.head
        assert head is not None
        return head.headers

    # Notifications and responses

    def _on_post(self, outcome: PostOutcome) -> None:
        is_confirmation = (
            outcome.message is INITIALIZED and self._opening.state is OpeningState.CONFIRMING
        )
        match outcome:
            case Delivered():
                if is_confirmation:
                    self._on_opening(self._opening.confirmed())
                else:
                    self._opening.reset_session_losses()
            case Undelivered(message, reason):
                self._events.append(MessageUndelivered(message, reason))
                if is_confirmation:
                    self._on_opening(self._opening.unconfirmed(reason, self._now))
            case PostDelayed(_, _, reason):
                if is_confirmation:
                    self._opening.confirm_delayed(reason)
            case _ as impossible:
                assert_never(impossible)

    # What the link delivers

    def _receive(self, deliveries: Deliveries) -> None:
        """Act on deliveries, one after the other."""
        for owner, outcome in deliveries:
            self._on_delivery(owner, outcome)

    def _on_delivery(self, owner: PendingRequest | None, outcome: DeliveryOutcome) -> None:
        """Act on what has come. ``owner``: the request for which it has, or on whose stream."""
        # CPython 3.11 makes a string for each positional pattern that it tries, and keeps many of
        # them; patterns by keyword cost nothing of that.
        if owner is None and isinstance(outcome, _MESSAGES):
            self._opening.stream_message_received()
        match outcome:
            case Response() | ErrorResponse():
                self._on_server_response(outcome, owner)
            case Request():
                self._calls.on_server_request(outcome, owner, self._now)
            case Notification():
                self._on_notification(outcome, owner)
            case Invalid(error=error, line=text):
                self._on_invalid(error, text, None if owner is None else owner.number)
            case Delivered() | Undelivered() | PostDelayed():
                self._on_post(outcome)
                if self._opening.state is OpeningState.CLOSING and self._http.posts.is_empty:
                    self._closed()
            case Held():
                if self._opening.pause(self._now):
                    self._timers.stop(Timer.OPENING, _ONLY)
                if owner is not None:
                    self._calls.pause(owner, self._now)
            case Released():
                if owner is not None:
                    self._calls.resume(owner, self._now)
            case Lost() | Refusal() | RemoteProtocolError() | AuthorizationFailed():
                assert owner is not None
                self._on_answer(owner, outcome)
            case Cut() | Restart():
                assert owner is not None
                self._calls.interrupted(owner, outcome, self._now)
            case _:
                self._on_session_delivery(outcome)

    def _on_session_delivery(self, outcome: SessionOutcome) -> None:
        """Act on what has come for the session or its opening."""
        match outcome:
            case SessionOver() if self._opening.is_closed:  # the server does not know it any more
                self._closed()
            case SessionOver(refusal, not_run):
                self._session_lost(refusal, not_run)
            case EventStreamLost(reason):  # it cannot be resumed, and is the session
                step = self._opening.stream_lost(reason, self._now)
                self._reopen_session(step, lambda call: call.lost(reason))
            case EndpointFound():
                step = self._opening.endpoint_received(self._now)
                assert isinstance(step, Initialize)
                self._start_opening_step(step)
            case EndpointOnPost():
                self._on_opening(self._opening.endpoint_on_post(self._now))
            case NoEndpoint() | Ended() | Refused():
                self._on_opening(self._opening.stream_not_opened(outcome, self._now))
            case Failed():
                self._on_opening(outcome)
            case Redirected(server):
                self._opening.server = server
            case FlowEnded(error):
                if self._opening.state is _NEW:  # log_out() was called
                    self._end(error)
                elif self._opening.resume(self._now):
                    self._arm_opening()
            case SessionEnded():
                self._closed()
            case _ as impossible:
                assert_never(impossible)

    # Messages of the server

    def _on_notification(self, message: Notification, owner: PendingRequest | None) -> None:
        """Handle a notification. ``owner``: the request on whose stream it arrived."""
        match message:
            case Notification(method="notifications/progress", params=params):
                self._calls.on_progress(params or {}, self._now)
            case Notification(method="notifications/cancelled", params=params):
                self._calls.on_cancelled(params or {}, self._now)
            case _:
                self._calls.cache.invalidate(message)
                self._on_news(message, owner)

    def _on_news(self, message: Notification, owner: PendingRequest | None) -> None:
        """Handle a notification that is for the application, or of a subscription to a task."""
        is_from_own = owner is None or owner.kind not in (_CALL, Kind.LISTENER, Kind.RENEWAL)
        about = self._requests.subscription_of(message) if is_from_own else owner
        if about is not None and about.kind is Kind.LISTENER:
            self._calls.on_task_changed(about, message, self._now)
            return
        if about is not None and message.method == ACKNOWLEDGED:
            self._calls.cache.clear()  # notifications may have been lost before
        if about is not None and about.kind is Kind.RENEWAL:
            self._http.renewed(about)
        else:
            self._events.append(ServerNotified(None if about is None else about.number, message))

    def _on_server_response(
        self, message: Response | ErrorResponse, owner: PendingRequest | None
    ) -> None:
        request = self._requests.by_id.get(message.id)
        if request is None and isinstance(message, ErrorResponse):
            request = self._request_for_error(message, owner)
        if request is not None and request.kind is _CALL:  # nearly always
            step = self._calls.go_on(request, self._now, message)
            if step is not None:
                self._on_session_step(step)
        elif request is not None:
            self._on_answer(request, message)
        elif self._requests.was_given_up(message.id):
            self._calls.cancel_late_task(message, self._now)
        elif not self._requests.had_id(message.id):
            what = f"a response to {message.id!r}, which is no request of this client"
            self._events.report_violation(what, "unknown_id")
            if isinstance(message, ErrorResponse):
                what = f"{message.message} (code {message.code})"
            self._unread.add(what, None if owner is None else owner.number, self._now)

    def _request_for_error(
        self, error: ErrorResponse, owner: PendingRequest | None
    ) -> PendingRequest | None:
        """Return the request to which an error response without a known id belongs, or None.

        Servers that do not know ``server/discover`` respond to it with ids of their own.
        """
        opening = self._opening_request
        is_discovery = opening is not None and opening.kind is Kind.DISCOVER
        if error.id is None:
            return owner or opening
        return opening if is_discovery and not isinstance(error.id, int) else None

    def _on_invalid(
        self, error: RemoteProtocolError, text: bytes = b"", owner: int | None = None
    ) -> None:
        """Report an invalid message, or end the request whose id it has as an invalid response.

        Args:
            error: what is wrong with it.
            text: its beginning.
            owner: the number of the request on whose stream it came; None for a shared stream.
        """
        is_answer = error.request_id is not None and not error.is_request
        request = self._requests.by_id.get(error.request_id) if is_answer else None
        if request is not None:
            if request.kind is _CALL:
                self._link.break_off(request)
            self._on_answer(request, error)
        else:
            self._unread.add(text, owner, self._now)
            self._events.append(ProtocolViolation(error))

    # The server process

    def _process_lines(self, stdio: Stdio) -> None:
        """Handle the lines that have arrived, until the event queue is full."""
        while not self._opening.is_closed:
            if self._events.is_full():
                return
            outcome = stdio.next_outcome()
            if outcome is None:
                break
            if isinstance(outcome, Invalid):
                self._on_invalid_line(stdio.process, outcome)
            else:
                self._on_delivery(None, outcome)
        if stdio.process.output_ended:
            is_closing = self._opening.is_closed
            self._on_process(stdio, stdio.output_read(self._now, is_closing=is_closing))

    def _on_invalid_line(self, process: ChildProcess, invalid: Invalid) -> None:
        is_answer = invalid.error.request_id is not None and not invalid.error.is_request
        if not invalid.is_fatal or (is_answer and invalid.error.request_id in self._requests.by_id):
            self._on_invalid(invalid.error)
            return
        noise = InvalidLine(invalid.line, invalid.error)
        process.noise(noise.line)
        self._unread.add(noise.line, None, self._now)
        self._events.append(noise)

    def _on_process(self, stdio: Stdio, outcome: StdioOutcome | None) -> None:
        """Act on an outcome of the server process."""
        match outcome:
            case ProcessLogged(log):
                self._events.report_log(log)
            case ProcessUseless(error):
                self._fail(error)
            case ProcessFinished(log):
                self._events.report_log(log)
                if self._opening.restarts_process():
                    self._discard_session()
                    stdio.start()
                    self._on_opening(self._opening.process_restarted(self._now))
                else:
                    self._on_process(stdio, stdio.closed(self._now))
            case ProcessClosed(error):
                if self._opening.is_closed:
                    self._closed()
                else:
                    self._fail(error)
            case None:
                pass
            case _ as impossible:
                assert_never(impossible)

    # The queue of events

    def _check_open(self) -> None:
        if self._opening.is_closed:
            why = "" if self._error is None else f": {self._error}"
            raise LocalProtocolError(f"The client is closed; create a new one{why}")

    def _check_can_call(self) -> None:
        if self._opening.is_closed:
            self._check_open()
        if self._opening.state is _NEW:
            raise LocalProtocolError(
                "The client is not connected. Write await connect(...) or async with connect(...); "
                "only a client without a driver is opened by start()"
            )
        if len(self._requests.calls) >= self.limits.max_pending_calls:
            raise LocalProtocolError(
                f"{self.limits.max_pending_calls} calls are running already (max_pending_calls); "
                "wait until one has ended"
            )


def _checked_params(
    method: str, params: Params | None, meta: Mapping[str, Any] | None
) -> tuple[Params | None, bytes]:
    """Return the parameters with ``meta`` merged into their ``_meta``, and as JSON without it.

    Raises LocalProtocolError for a method or parameters that cannot be sent, and for a member of
    ``meta`` that the client sets itself.
    """
    jsonrpc.check_call(method, params)
    if params is not None and json.as_object(params.get("_meta", {})) is None:
        raise LocalProtocolError("_meta of params must be a JSON object (a dict)")
    if meta is not None:
        check_type(Mapping, meta=meta)
        for name in OWN_META.intersection(meta):
            raise LocalProtocolError(f"meta must not have {name!r}: the client sets it itself")
        given = params or {}
        params = {**given, "_meta": {**given.get("_meta", {}), **meta}}
    if params is None:
        return None, b"{}"
    if "_meta" in params:
        json.encode(params["_meta"])
    return params, encode_without_meta(params)


def _with_further_meta(params: Params | None, further: Mapping[str, Any] | None) -> Params | None:
    """Return parameters with further members of ``_meta``; those that are there stay."""
    if not further:
        return params
    given = params or {}
    return {**given, "_meta": {**further, **given.get("_meta", {})}}


def _url_of(target: str) -> Url:
    """Parse the URL of a server. Raises LocalProtocolError if it is not one, but a command."""
    if "://" not in target:
        words = target.split()
        if words and words[0].endswith(".py"):
            words.insert(0, "python")
        is_program = len(words) > 1
        advice = f"{words!r}" if is_program else f"{'http://' + target!r} or {words!r}"
        raise LocalProtocolError(
            "target must be a URL (str) or a command (sequence of str), "
            f"got {target!r}; write {advice}"
        )
    return Url.parse(target)
