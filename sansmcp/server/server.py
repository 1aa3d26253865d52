"""The server machine: HTTP message parts in, effects and events out.

The machine is driven from two sides. Whoever carries HTTP opens an exchange for each request, feeds
it the parts that arrive, and sends what :meth:`Server.next_effect_of` gives; many exchanges run at
the same time, each with a driver of its own. One driver pulls :meth:`Server.next_effect`, which
names exchanges to wake and asks for storage, and keeps the clock. The application takes events, of
which ``CallReceived`` is the one that wants an answer.

    exchange = server.open_exchange()
    server.receive(exchange, RequestHead(...), now=t)
    server.receive(exchange, BodyData(...), now=t)
    server.receive(exchange, BodyEnd(), now=t)      ->  CallReceived(call)
    call.respond({...}, now=t)                      ->  SendHead, SendBody, SendEnd of the exchange

After everything that changes the machine (``receive``, the methods of a call, ``handle_timeout``,
completions) pull the effects until ``Idle``. Nothing a peer sends makes the machine raise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from ..app import App
from ..authentication import Refusal
from ..codecs import headers, json, jsonrpc
from ..codecs.sse import KEEP_ALIVE
from ..effects import Abort, Authenticate, ExchangeEffect, SendEnd, ServerEffect
from ..errors import LocalProtocolError, RemoteProtocolError, check_settings
from ..events import ServerEvent
from ..http import BodyData, BodyEnd, ConnectionLost, RequestHead, RequestPart
from ..limits import Limits
from ..messages import Params
from ..meta_keys import PROTOCOL_VERSION
from ..server_call import Session
from ..states import ExchangeState
from ..timers import Timer
from ..types import HTTP_SSE, STDIO, STREAMABLE_HTTP, Idle, Unpack, assert_never
from . import refusals
from .channel import Channel
from .core import ServerCore, Sink
from .era_choice import is_http_sse, is_modern, names_session_early
from .exchange import ServerExchange
from .modern.era import ModernServer
from .modern.stateless import ModernChannelHandler, ModernHttp
from .modern.subscriptions import Subscriptions, is_known
from .options import ServerOptions, ServerSettings, milliseconds_of
from .responder import HttpResponder
from .store_completions import StoreCompletions
from .validation import Endpoint, RequestContext, check_common, check_mcp_path

if TYPE_CHECKING:
    from .legacy.era import LegacyServer


class Server(StoreCompletions):
    """An MCP server without I/O, clock or randomness."""

    def __init__(
        self,
        app: App,
        *,
        new_token: Callable[[], str],
        authentication: bool = False,
        **settings: Unpack[ServerSettings],
    ) -> None:
        """Set up a server.

        Args:
            app: whose methods are served.
            new_token: gives an unguessable string of 16 to 128 letters, digits, "-" and "_" at each
                call, e.g. ``secrets.token_urlsafe``. Session ids and event ids are made of it.
            authentication: ask for the principal of each HTTP request by the effect Authenticate,
                and do nothing with the request until it is told. Otherwise the principal is what
                the host has put into the request's head.
            settings: see :class:`ServerOptions`.

        Raises LocalProtocolError for settings that make no sense, for an ``app`` of another kind,
        and for one with an extension whose name has no prefix; TypeError for unknown settings.
        """
        check_settings(settings, "Server", ServerSettings.__optional_keys__, "a server")
        options = ServerOptions(**settings)
        self._core = ServerCore(app, options, new_token)
        sse_path = options.http_sse
        endpoint = Endpoint(
            path=options.path.encode(),
            versions=options.versions,
            sessions=options.sessions,
            standalone_streams=options.standalone_streams,
            policy=options.policy,
            limits=options.limits,
            sse_path=None if sse_path is None else sse_path.encode().rstrip(b"/"),
        )
        self._endpoint = endpoint
        self.authentication = authentication
        """Whether the principal of each HTTP request is asked for."""
        self._modern = ModernServer(self._core, Subscriptions(self._core))
        self._stateless = ModernHttp(self._core, self._modern)
        self._legacy = _legacy(self._core, endpoint)
        self._store_users = None if self._legacy is None else self._legacy.streams
        self._authenticating: dict[ServerExchange, bytes | None] = {}
        """The requests whose principal is not known, each with its body once that is complete."""
        self._exchange_ids: Iterator[int] = itertools.count(1)
        self.trace = options.trace
        """The setting of that name."""
        self.http11 = options.http11
        """The setting of that name, for connections of this server."""

    @property
    def path(self) -> str:
        """The path of the MCP endpoint."""
        return self._endpoint.path.decode()

    def transports(self, *, http: bool, stdio: bool) -> tuple[str, ...]:
        """What a server that is hosted so speaks, by the names that clients use."""
        names = [STREAMABLE_HTTP] if http else []
        if http and self._endpoint.sse_path is not None:
            names.append(HTTP_SSE)
        return (*names, STDIO) if stdio else tuple(names)

    @property
    def now(self) -> float:
        """The latest time that was passed in: the one clock of the server and its connections.

        Connections set it when they are fed.
        """
        return self._core.now

    @now.setter
    def now(self, now: float) -> None:
        self._core.now = now

    @property
    def limits(self) -> Limits:
        """The bounds that were set."""
        return self._core.limits

    @property
    def shared_store(self) -> bool:
        """True if other instances may use the same store."""
        return self._core.options.shared_store

    @property
    def app(self) -> App:
        """The application that is served."""
        return self._core.app

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions that are alive."""
        return () if self._legacy is None else tuple(self._legacy.sessions)

    @property
    def is_busy(self) -> bool:
        """Whether calls are running, in sessions or on their own."""
        return bool(self._core.stateless) or (self._legacy is not None and self._legacy.is_busy)

    # Parts in

    def open_exchange(self, driver: Any = None) -> ServerExchange:
        """A new exchange, for one request; ``host`` is kept as its attribute of that name."""
        return ServerExchange(next(self._exchange_ids), self._core, driver)

    def open_channel(self, sink: Sink) -> Channel:
        """A conversation on a transport that is no HTTP; :class:`~sansmcp.ServerPipe` opens one."""
        modern = ModernChannelHandler(self._core, self._modern, sink)
        legacy = None if self._legacy is None else self._legacy.lines(sink)
        return Channel(self._core, sink, modern, legacy)

    def receive_part(self, exchange: ServerExchange, part: RequestPart, *, now: float) -> None:
        """Feed a part of a request. Parts of an exchange that is done are ignored."""
        self._core.now = now
        if exchange.is_done:
            if isinstance(part, ConnectionLost):
                exchange.discard()
                self._over(exchange)
            return
        if self.trace is not None and (exchange.head or isinstance(part, RequestHead)):
            self.trace.part(exchange.id, part)
        try:
            match part:
                case RequestHead():
                    self._head(exchange, part)
                case BodyData() | BodyEnd():
                    body = exchange.receive_body(part)
                    if body is not None and exchange in self._authenticating:
                        self._authenticating[exchange] = body
                    elif body is not None:
                        self._complete(exchange, body)
                case ConnectionLost():
                    self._gone(exchange)
                case _ as impossible:
                    assert_never(impossible)
        except RemoteProtocolError as error:
            exchange.refuse(error)

    def refuse(self, exchange: ServerExchange, error: RemoteProtocolError, *, now: float) -> None:
        """Refuse a request that the HTTP layer below found faulty; sent like any answer."""
        self._core.now = now
        if exchange.state is ExchangeState.HEAD:
            exchange.begin(RequestHead(method=b"", target=b"", headers=()))
        exchange.refuse(error)

    # Authentication

    def authenticated(self, effect: Authenticate, outcome: str | Refusal, *, now: float) -> None:
        """Tell whom a request is from, or that it is refused.

        It makes no difference where the request is over by now. Raises LocalProtocolError, and
        changes nothing, for what is neither a principal, a string that is not empty, nor a Refusal.
        """
        found = _outcome_of_authenticate(outcome)
        if isinstance(found, Refusal):
            self._authenticated(effect, refusals.not_authenticated(found), now)
        else:
            self._authenticated(effect, found, now)

    def authentication_failed(self, effect: Authenticate, *, now: float) -> None:
        """Tell that it cannot be found out whom a request is from: it gets status 500."""
        self._authenticated(effect, refusals.AUTHENTICATION_FAILED(), now)

    def _authenticated(
        self, effect: Authenticate, outcome: str | RemoteProtocolError, now: float
    ) -> None:
        self._core.now = now
        exchange = effect.exchange
        assert isinstance(exchange, ServerExchange), "the effect is one of ours"
        if exchange not in self._authenticating or exchange.is_done:
            return
        body = self._authenticating.pop(exchange)
        exchange.wake()  # it may have been paused in the middle of its body
        try:
            if isinstance(outcome, RemoteProtocolError):
                raise outcome
            exchange.head = attrs.evolve(effect.head, principal=outcome)
            self._check_head(exchange, exchange.head)
            if body is not None:
                self._complete(exchange, body)
        except RemoteProtocolError as error:
            exchange.refuse(error)

    # Effects and events out

    def next_effect_of(self, exchange: ServerExchange) -> ExchangeEffect | Idle:
        """What to send on an exchange next.

        ``Idle.PAUSED``: do not read more of its request until woken.
        """
        effect = exchange.next_effect()
        if effect is None:
            return self._nothing_to_send(exchange)
        if self.trace is not None:
            self.trace.effect(exchange.id, effect)
        if exchange.is_given_up and not exchange.is_done:
            self._gone(exchange)
        elif isinstance(effect, SendEnd | Abort):
            self._over(exchange)
        elif exchange.state is ExchangeState.STREAMING:
            deadline = self._core.now + self._core.limits.stream_comment_interval
            self._core.timers.set(Timer.KEEP_ALIVE, exchange, deadline)
        return effect

    def next_effect(self) -> ServerEffect | Idle:
        """What to do for the server as a whole next: wake an exchange, or use the store."""
        return self._core.effects.popleft() if self._core.effects else Idle.NEED_DATA

    def next_event(self) -> ServerEvent | Idle:
        """What happened next, for the application."""
        if not self._core.events:
            return Idle.NEED_DATA
        event = self._core.events.popleft()
        if self._core.paused and not self._core.is_full:
            for paused in self._core.paused:
                paused.wake()
            self._core.paused.clear()
        return event

    def drive(
        self, perform: Callable[[ServerEffect], None], on_event: Callable[[ServerEvent], None]
    ) -> None:
        """Pull until there is nothing: what every host does after everything that it tells us.

        ``perform`` is given each effect and ``happened`` each event, in order. The effects of
        exchanges are pulled by those who drive them.
        """
        while True:
            while not isinstance(effect := self.next_effect(), Idle):
                perform(effect)
            if isinstance(event := self.next_event(), Idle):
                return
            on_event(event)

    # Time

    def next_deadline(self) -> float | None:
        """When to call :meth:`handle_timeout`, on the clock of ``now``; None: no need."""
        return self._core.now if self._core.effects else self._core.timers.next_deadline()

    def handle_timeout(self, *, now: float) -> None:
        """Do what is due. May be called early, late, or twice."""
        self._core.now = now
        for timer, owner in self._core.timers.due(now):
            match timer, owner:
                case Timer.STREAM_OPEN, HttpResponder():
                    owner.open()
                case Timer.KEEP_ALIVE, ServerExchange():
                    owner.send(KEEP_ALIVE)
                case _:
                    assert self._legacy is not None, "other timers are set by sessions alone"
                    self._legacy.timed_out(timer, owner)

    # Telling

    def publish(self, method: str, params: Params | None = None, *, now: float) -> None:
        """Tell the clients that something has changed.

        ``method`` is ``notifications/tools/list_changed`` or one of its like, or
        ``notifications/resources/updated`` with the ``uri`` of a resource. Clients of the stateless
        revisions are told if they listen for it. Those of the older ones are told of changed lists,
        and of resources to which they have subscribed, or to a folder above (a URI that ends before
        a slash). Where there are several instances, each tells those who listen, or have
        subscribed, at it: let all of them publish. Raises LocalProtocolError for other
        notifications, or if the parameters are not JSON.
        """
        if not is_known(method):
            raise LocalProtocolError(f"{method} is no notification that clients listen for")
        jsonrpc.check_call(method, params)
        json.encode(params)
        self._core.now = now
        self._modern.subscriptions.publish(method, params or {})
        if self._legacy is not None:
            self._legacy.publish(method, params or {})

    def disconnect_streams(self, *, retry: float | None = None, now: float) -> int:
        """Close the standalone streams of all clients that can come back to them (SEP-1699).

        What is published while they are away is stored, and replayed when they reconnect. So the
        server holds no connection for clients that merely listen. Streams of calls stay open: their
        handlers close them (:meth:`Call.disconnect`).

        Args:
            retry: seconds the clients should wait before they reconnect; None: the server's setting
                of that name.
            now: the current time in seconds, on the machine's clock.

        Returns the number of streams. Those of other revisions than 2025-11-25, and all where there
        is no store, stay open. Raises LocalProtocolError for a negative or infinite ``retry``.
        """
        milliseconds = milliseconds_of(self._core.options.retry if retry is None else retry)
        self._core.now = now
        if self._legacy is None:
            return 0
        return sum(session.disconnect(milliseconds) for session in self._legacy.sessions)

    # Ending

    def end_session(self, session: Session, reason: str, *, now: float) -> None:
        """End a session; its client gets 404 from now on."""
        self._core.now = now
        if self._legacy is not None and session in self._legacy.sessions:
            self._legacy.end_session(session, reason)

    def drain(self, *, now: float) -> None:
        """Take nothing new: further calls, sessions and listeners are refused with 503.

        What runs goes on: answers to questions, cancellations and resumptions still come through.
        """
        self._core.now = now
        self._core.draining = True

    def shut_down(self, *, now: float) -> None:
        """End all sessions, and all streams with a proper end of body.

        Where other instances share the store, the sessions live on there, and clients of 2025-11-25
        are told to come back (``retry``).

        Calls that still run are answered with an error, whatever their revision and transport;
        their handlers are cancelled (CallCancelled).
        """
        self.drain(now=now)
        self._core.has_stopped = True
        self._modern.subscriptions.end_all()
        for call in tuple(self._core.stateless):
            call.abandon(refusals.SHUTTING_DOWN(call.request.id))
        if self._legacy is not None:
            self._legacy.sessions.shut_down()
        for exchange in tuple(self._authenticating):
            del self._authenticating[exchange]
            if not exchange.is_done:  # it may have been too slow, say
                exchange.refuse(refusals.SHUTTING_DOWN())
        for sink in self._core.sinks:
            sink.close()

    # What a request is, and its end

    def _head(self, exchange: ServerExchange, head: RequestHead) -> None:
        exchange.begin(head)
        if not self.authentication:
            self._check_head(exchange, head)
            return
        check_common(
            RequestContext(self._endpoint, head)
        )  # a foreign page learns nothing of credentials
        self._authenticating[exchange] = None
        self._core.effects.append(Authenticate(exchange, head))

    def _check_head(self, exchange: ServerExchange, head: RequestHead) -> None:
        asked = RequestContext(self._endpoint, head)
        if is_http_sse(self._endpoint, head):
            check_common(asked)
            assert self._legacy is not None, "the endpoint has HTTP+SSE with these revisions only"
            self._legacy.http_sse.check_head(head)
            return
        check_mcp_path(asked)
        if self._legacy is not None and names_session_early(head):
            self._legacy.streamable_http.check_head(exchange, head)

    def _complete(self, exchange: ServerExchange, body: bytes) -> None:
        """A request is there: give it to its era. Raises RemoteProtocolError: the refusal."""
        head, legacy = exchange.head, self._legacy
        assert head is not None
        if legacy is not None and is_http_sse(self._endpoint, head):
            legacy.http_sse.complete(exchange, body)
            return
        if legacy is not None and head.method != b"POST":
            legacy.streamable_http.complete(exchange)
            return
        message = jsonrpc.decode(body, self._core.limits)
        if is_modern(message, self._core, headers.single(head.values(PROTOCOL_VERSION))):
            self._stateless.receive(exchange, head, message)
        else:
            assert legacy is not None, "is_modern refuses what no revision that is served has"
            legacy.streamable_http.post(exchange, message)

    def _gone(self, exchange: ServerExchange) -> None:
        exchange.peer_gone()
        if exchange.responder is not None:
            exchange.responder.peer_gone()
        self._over(exchange)

    def _over(self, exchange: ServerExchange) -> None:
        """Nothing more will happen on an exchange."""
        self._core.paused.pop(exchange, None)
        self._authenticating.pop(exchange, None)
        exchange.responder = None
        source, exchange.source = exchange.source, None
        if source is not None:
            source.on_closed()

    def _nothing_to_send(self, exchange: ServerExchange) -> Idle:
        if exchange.source is not None:
            exchange.source.catch_up()
        exchange.mark_idle()
        is_asking = exchange.state in (ExchangeState.HEAD, ExchangeState.BODY)
        if is_asking and exchange in self._authenticating:
            return Idle.PAUSED
        if is_asking and self._core.is_full:
            self._core.paused[exchange] = None
            return Idle.PAUSED
        return Idle.NEED_DATA


def _legacy(core: ServerCore, endpoint: Endpoint) -> LegacyServer | None:
    """What serves the handshake revisions; nothing of it is even imported where none is served."""
    if not core.handshake_versions:
        return None
    from .legacy.era import LegacyServer

    return LegacyServer(core, endpoint)


def _outcome_of_authenticate(outcome: object) -> str | Refusal:
    """Check what a function of the user has returned; its types may never have been checked."""
    if isinstance(outcome, Refusal) or (isinstance(outcome, str) and outcome):
        return outcome
    raise LocalProtocolError(
        "authenticate must return a principal (a string that is not empty) or a Refusal, "
        f"and has returned {type(outcome).__name__}"
    )
