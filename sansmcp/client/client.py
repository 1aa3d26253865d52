"""The client machine: commands in, effects and events out.

The application says what it wants (``call``, ``notify``, ``respond``, ``cancel``, ``close``); the
machine says which HTTP requests to make (``OpenExchange``, ``AbortExchange``); whoever makes them
feeds the parts of the responses back under the number of the exchange; events tell the application
what came of it all.

    client.start(now=t)                             ->  OpenExchange(1, POST initialize)
    client.receive(1, ResponseHead(...), now=t) ... ->  Connected
    handle = client.call("tools/call", {}, now=t)   ->  OpenExchange(2, POST tools/call)
    client.receive(2, ResponseHead(...), now=t) ... ->  CallCompleted(handle, result)

After everything that changes the machine pull effects until ``Idle``; ``Idle.PAUSED`` says that
nothing is to be read from the server until the application has taken events. Every call ends with
exactly one CallCompleted or CallFailed, whatever the server and the network do. Nothing a server
sends makes the machine raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..codecs import json
from ..codecs.headers import HeaderTypes
from ..codecs.jsonrpc import METHOD_NOT_FOUND
from ..effects import ClientEffect
from ..errors import JsonRpcError, LocalProtocolError, check_seconds, error_response
from ..events import ClientEvent
from ..http import ResponsePart, Url
from ..limits import Limits
from ..messages import ErrorResponse, Notification, Params, RequestId, Response
from ..meta import LISTEN
from ..process import ProcessPart
from ..revisions import REVISIONS, checked_versions
from ..states import ClientState
from ..timers import Timer
from ..trace import Tracer
from ..types import HTTP_SSE, STREAMABLE_HTTP, Idle
from ..wire import Http11
from .calls import ClientCall
from .conversation import Conversation
from .core import ClientCore, ReconnectPolicy, checked_params
from .detection import URL_TRANSPORTS, Verdicts, usable_transports
from .exchange import ClientExchange
from .modern.discovery import Discovery
from .modern.requests import StatelessCarrier, check_repeated
from .posts import Post
from .settings import SAFE_METHODS
from .stdio import Stdio, command_of
from .streamable_http import StreamableHttp
from .transport import Transport


class Client:
    """An MCP client without I/O, clock or randomness."""

    http11: Http11 | None
    """What reads heads of HTTP/1.1 for connections of this client; h11 if None."""

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        jitter: Callable[[], float],
        name: str = "sansmcp",
        version: str = "0",
        anonymous: bool = False,
        capabilities: Mapping[str, Any] | None = None,
        versions: tuple[str, ...] = tuple(REVISIONS),
        headers: HeaderTypes = (),
        transports: tuple[str, ...] = URL_TRANSPORTS,
        listen: bool = True,
        multi_turn: bool = False,
        assume_multi_turn: bool = False,
        timeout: float = 60.0,
        total_timeout: float = 3600.0,
        connect_timeout: float = 30.0,
        probe_timeout: float = 5.0,
        close_timeout: float = 5.0,
        reconnect: ReconnectPolicy | None = None,
        verdicts: Verdicts | None = None,
        limits: Limits | None = None,
        http11: Http11 | None = None,
        cache: bool = False,
        trace: Tracer | None = None,
    ) -> None:
        """Set up a client; :meth:`start` opens the conversation.

        Args:
            target: the URL of an MCP endpoint, http or https; or the command that starts a server
                on stdio, e.g. ``["python", "server.py"]``.
            jitter: gives a random number from 0 (inclusive) to 1 at each call, e.g.
                ``random.random``.
            name, version: what the server is told about us (``clientInfo``).
            anonymous: tell that only where the protocol requires it (``initialize``).
            capabilities: what the server may ask of us, e.g. ``{"elicitation": {}}``.
            versions: the protocol versions we speak, oldest first; the newest one that the server
                speaks, too, is used.
            headers: further headers of every HTTP request, as a mapping or pairs of str or bytes,
                e.g. ``{"Authorization": "Bearer x"}``.
            transports: how to talk to a URL; what comes first is tried first.
            listen: open the standalone stream.
            multi_turn: offer SEP-1858, an experiment, to servers of 2025-11-25: one that names the
                experimental capability ``sansmcp/multi-turn-sse``, too, may have all answers to its
                questions at once.
            assume_multi_turn: the same with every server of 2025-11-25, whether or not it names the
                capability, as the proposal itself has it.
            timeout, total_timeout: defaults of :meth:`call`, in seconds.
            connect_timeout: seconds for the handshake. While the server cannot be reached, breaks
                off its answer, or refuses with 502, 503 or 504, the opening is tried again within
                that time, as ``reconnect`` says.
            probe_timeout: seconds in which a server must say whether it needs one; not more than
                ``connect_timeout``, and added to that if the server does not answer.
            close_timeout: seconds that the server gets to end the session when we close; a process
                gets them for each step of its end.
            reconnect: how broken streams are resumed; see ReconnectPolicy.
            verdicts: remembers which servers speak which transport; shared by several clients.
            limits: bounds; see Limits.
            http11: what reads heads of HTTP/1.1 on raw sockets, e.g.
                ``sansmcp.httptools_pump.HTTP11``; h11 if None.
            cache: keep lists and resources for as long as the server says that they hold, and
                answer from there (2026-07-28). That a server tells of changes takes a call of
                ``subscriptions/listen``.
            trace: is told everything that is sent and received.

        Raises LocalProtocolError for arguments of another kind, for a URL or command that is none,
        for a version this library does not know, for headers that cannot be sent or are the
        client's own, for an extension whose name has no prefix, and for times not above zero.
        """
        check_seconds(timeout, total_timeout, connect_timeout, probe_timeout, close_timeout)
        core = self._core = ClientCore(
            target=target if isinstance(target, str) else " ".join(command_of(target)),
            url=_url_of(target) if isinstance(target, str) else None,
            info={"name": name, "version": version},
            anonymous=anonymous,
            capabilities=capabilities or {},
            versions=checked_versions(versions),
            headers=headers,
            transports=usable_transports(transports, tuple(versions)),
            verdicts=Verdicts() if verdicts is None else verdicts,
            listens=listen,
            multi_turn=multi_turn or assume_multi_turn,
            assume_multi_turn=assume_multi_turn,
            connect_timeout=connect_timeout,
            probe_timeout=min(probe_timeout, connect_timeout),
            close_timeout=close_timeout,
            reconnect=reconnect or ReconnectPolicy(),
            limits=limits or Limits(),
            caches=cache,
            jitter=jitter,
        )
        self._timeouts, self._trace, self.http11 = (timeout, total_timeout), trace, http11
        self._conversation = Conversation(core)
        self._stdio = None if core.url else Stdio(core, self._conversation, command_of(target))

    @property
    def limits(self) -> Limits:
        """The bounds that were set."""
        return self._core.limits

    @property
    def state(self) -> ClientState:
        """Where the conversation stands."""
        return self._conversation.state

    # Commands

    def start(self, *, now: float) -> None:
        """Open the conversation. ``Connected`` or ``Closed`` tells how it went.

        Raises LocalProtocolError the second time, and after closing.
        """
        self._core.now = now
        self._conversation.start(self._transports())

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
        now: float,
    ) -> int:
        """Make a request. Returns its handle; CallCompleted or CallFailed with that handle ends it.

        Args:
            method, params: the request. ``params`` may have ``_meta``; a progress token is added.
            timeout: seconds without an answer and, if ``reset_on_progress``, without progress.
            total_timeout: seconds without an answer, whatever progress there is. The defaults of
                both do not hold for ``subscriptions/listen``: it lasts as long as the server likes.
                Both clocks stand still while a server request is open that ``capabilities``
                declares (``limits.max_questions_per_call`` of them); nothing else stops the total.
            idempotent: the request may be made again when its outcome is unknown (no answer,
                nothing to resume). By default only methods that merely read are.
            meta: further members of ``_meta``, e.g. ``{"traceparent": "00-..."}``; they replace
                those of the same name in ``params``.

        Before the handshake is done calls wait for it. Raises LocalProtocolError, and changes
        nothing, if the client was not started or is closed, ``initialize`` is asked for, the
        parameters are no JSON object (or have a number too large for the header that must repeat
        it), ``meta`` has a member that the client sets itself (such as ``progressToken``), a time
        is not above zero, or too many calls are under way.
        """
        self._check_open()
        lasts = method == LISTEN
        if timeout is None:
            timeout = math.inf if lasts else self._timeouts[0]
        if total_timeout is None:
            total_timeout = math.inf if lasts else self._timeouts[1]
        check_seconds(timeout, total_timeout)
        if method == "initialize":
            raise LocalProtocolError("initialize is sent by start(), not by call()")
        if len(self._conversation.calls) >= self._core.limits.max_pending_calls:
            raise LocalProtocolError(
                f"{self._core.limits.max_pending_calls} calls are under way already"
            )
        params = checked_params(method, params, meta)
        check_repeated(self._core, method, params)
        if self.state is ClientState.NEW:
            raise LocalProtocolError("The client is not open yet: await it, or start() a machine")
        self._core.now = now
        call = ClientCall(
            self._core,
            self._conversation,
            next(self._conversation.handles),
            method,
            params,
            timeout,
            total_timeout,
            method in SAFE_METHODS if idempotent is None else idempotent,
            reset_on_progress,
            now,
        )
        self._conversation.call(call)
        return call.handle

    def cancel(
        self, handle: int, reason: str = "cancelled by the application", *, now: float
    ) -> bool:
        """End a call: it fails with RequestCancelled, and the server is told.

        False if it has ended already.
        """
        self._core.now = now
        call = self._conversation.calls.get(handle)
        if call is None:
            return False
        self._conversation.cancel_request(call, reason)
        call.cancel(reason)
        return True

    def notify(
        self,
        method: str,
        params: Params | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        now: float,
    ) -> None:
        """Send a notification; ``meta`` is as in :meth:`call`.

        ``NotDelivered`` reports that the server refused it, or took it not within
        ``limits.post_timeout`` seconds.

        Raises LocalProtocolError, and changes nothing, before the handshake is done, after closing,
        if the parameters are not JSON, and while ``limits.max_pending_calls`` messages wait for the
        server to take them.
        """
        self._check_open()
        if self.state is not ClientState.READY:
            raise LocalProtocolError("The handshake is not done: wait for Connected")
        params = checked_params(method, params, meta)
        if self._core.posts.is_full:
            raise LocalProtocolError(self._core.posts.why_full)
        self._core.now = now
        self._conversation.post(Notification(method, params))

    def respond(self, request_id: RequestId, result: Any, *, now: float) -> bool:
        """Answer a request of the server (ServerAsked) with a result.

        Returns False if the server wants no answer any more. Raises LocalProtocolError, and changes
        nothing, if the result is not JSON.
        """
        return self._answer(Response(request_id, result), now)

    def fail_with(self, request_id: RequestId, error: Exception, *, now: float) -> bool:
        """Answer a request of the server with what the application's function raised.

        Returns and raises as :meth:`respond` does; see :func:`~sansmcp.errors.error_response`.
        """
        return self._answer(error_response(request_id, error), now)

    def decline(self, request_id: RequestId, *, now: float) -> bool:
        """Answer a request of the server: this client cannot do that.

        The timeout of the call goes on as if it had not been asked. Returns as :meth:`respond`
        does.
        """
        error = JsonRpcError(METHOD_NOT_FOUND, "This client has no answer to that method")
        self._core.now = now
        return self._conversation.questions.answer(error_response(request_id, error), declined=True)

    def close(self, *, now: float) -> None:
        """End the session. Calls under way fail with RequestCancelled.

        ``Closed`` is the last event. May be called twice.
        """
        self._core.now = now
        self._conversation.close()

    # Parts in, effects and events out

    def receive(self, exchange: int, part: ResponsePart, *, now: float) -> None:
        """Feed a part of the response of an exchange.

        Exchanges that are not under way are ignored.
        """
        self._core.now = now
        found = self._core.exchanges.get(exchange)
        if found is not None:
            if self._trace is not None:
                self._trace.part(exchange, part)
            found.receive(part)

    def receive_from_process(self, part: ProcessPart, *, now: float) -> None:
        """Feed what comes of the server process (StartProcess); LocalProtocolError without one."""
        if self._stdio is None:
            raise LocalProtocolError("The server is at a URL, and is no process of ours")
        self._core.now = now
        if self._trace is not None:
            self._trace.process(part)
        self._stdio.receive(part)

    def next_effect(self) -> ClientEffect | Idle:
        """What to do next.

        ``Idle.PAUSED``: do not read any response until the application has taken events.
        """
        if self._core.effects:
            effect = self._core.effects.popleft()
            if self._trace is not None:
                self._trace.client_effect(effect)
            return effect
        return Idle.PAUSED if self._core.is_full else Idle.NEED_DATA

    def next_event(self) -> ClientEvent | Idle:
        """What happened next, for the application."""
        if not self._core.events:
            return Idle.NEED_DATA
        was_full = self._core.is_full
        event = self._core.events.popleft()
        if was_full and not self._core.is_full:
            for exchange in tuple(self._core.exchanges.values()):
                exchange.go_on()
            if self._stdio is not None:
                self._stdio.go_on()
        return event

    def drive(
        self, perform: Callable[[ClientEffect], None], happened: Callable[[ClientEvent], None]
    ) -> None:
        """Pull until there is nothing: what every host does after everything that it tells us.

        ``perform`` is given each effect and ``happened`` each event, in order; neither may wait. A
        host that keeps events for its application, and has as many as it wants, reads no response
        until some are taken.
        """
        while True:
            while not isinstance(effect := self.next_effect(), Idle):
                perform(effect)
            if isinstance(event := self.next_event(), Idle):
                return
            happened(event)

    # Time

    def next_deadline(self) -> float | None:
        """When to call :meth:`handle_timeout`, on the clock of ``now``; None: no need."""
        return self._core.now if self._core.effects else self._core.timers.next_deadline()

    def handle_timeout(self, *, now: float, is_reading: bool = True) -> None:
        """Do what is due. May be called early, late, or twice.

        ``is_reading``: False while the driver reads no responses, because its application must take
        events first. Then the silence of a server says nothing.
        """
        self._core.now, self._core.is_reading = now, is_reading
        for timer, owner in self._core.timers.due(now):
            match timer, owner:
                case Timer.REQUEST, ClientCall() | Discovery():
                    owner.time_out()
                case Timer.RECONNECT, StatelessCarrier():
                    owner.retry_due()
                case Timer.RECONNECT, Conversation():
                    owner.retry_due()
                case Timer.RECONNECT, Post():
                    owner.retry()
                case Timer.POST, Post():
                    owner.time_out()
                case Timer.DRAIN, ClientExchange():
                    self._core.abort(owner)
                case Timer.PROCESS, Stdio():
                    owner.time_out()
                case _:
                    assert self._conversation.legacy is not None
                    self._conversation.legacy.timed_out(timer, owner)

    def _transports(self) -> list[Transport]:
        core, conversation = self._core, self._conversation
        if self._stdio is not None:
            return [self._stdio]
        legacy = conversation.legacy
        streams = None if legacy is None else legacy.streams()
        known: dict[str, Transport] = {STREAMABLE_HTTP: StreamableHttp(core, conversation, streams)}
        if legacy is not None:
            known[HTTP_SSE] = legacy.http_sse()
        return [known[name] for name in core.verdicts.plan(core.target, core.transports)]

    def _answer(self, message: Response | ErrorResponse, now: float) -> bool:
        json.encode(message.result if isinstance(message, Response) else message.data)
        self._core.now = now
        return self._conversation.questions.answer(message)

    def _check_open(self) -> None:
        if self._conversation.is_closed:
            raise LocalProtocolError("The client is closed")


def _url_of(target: str) -> Url:
    """Parse the URL of a server. Raises LocalProtocolError for what is none, such as a command."""
    if "://" not in target:
        raise LocalProtocolError(
            "target must be a URL (str) or a command (sequence of str), "
            f"got {target!r}; write {'http://' + target!r} or {target.split()!r}"
        )
    return Url.parse(target)
