"""The server machine: HTTP message parts in, effects and events out.

Two kinds of driver feed the machine. A driver of HTTP opens an exchange for each HTTP request,
feeds it the parts that arrive, and sends what ``Server.next_effect_of()`` returns; many exchanges
run at the same time, each with a driver of its own. One driver of the whole server pulls
``Server.next_effect()``, which names exchanges to wake and store operations to perform, and calls
``Server.handle_timeout()`` at each deadline. The application takes events and responds to
``CallReceived``.

    exchange = server.open_exchange()
    server.receive_part(exchange, RequestHead(...), now=t)
    server.receive_part(exchange, BodyData(...), now=t)
    server.receive_part(exchange, BodyEnd(), now=t)  ->  CallReceived(call)
    call.respond({...}, now=t)                       ->  SendHead, SendBody, SendEnd of the exchange

After everything that changes the machine (``receive_part``, the methods of a call,
``handle_timeout``, completions) pull the effects until ``Idle``. No input of a peer makes the
machine raise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..app import App
from ..authentication import Access, Refusal
from ..codecs import headers, json, jsonrpc
from ..codecs.jsonrpc import Batch
from ..codecs.sse import KEEP_ALIVE
from ..codecs.tolerant import mend_from_client
from ..effects import (
    Abort,
    Authenticate,
    ExchangeEffect,
    SendBody,
    SendEnd,
    SendHead,
    ServerEffect,
    StoreAppend,
    StoreDrop,
    StoreEffect,
    StoreRead,
    StoreTake,
    StoreWatch,
)
from ..errors import LocalProtocolError, RemoteProtocolError, check_settings
from ..events import ServerEvent, StoreFailed
from ..http import BodyData, BodyEnd, ConnectionLost, RequestHead, RequestPart, ResponseHead
from ..limits import Limits
from ..messages import Message, Params
from ..meta_keys import PROTOCOL_VERSION
from ..server_call import Session
from ..states import ExchangeState, ServerState, StopEvent
from ..store import AppendResult, AsyncStore, Page, Store, StreamKey
from ..timers import Timer
from ..types import HTTP_SSE, STDIO, STREAMABLE_HTTP, Idle, Unpack, assert_never, elide
from . import refusals
from .admission import Admission
from .calls import RunningCall
from .challenges import (
    check_credentials,
    not_authenticated,
)
from .channel import Channel
from .core import ServerCore, Sink
from .cors import ANY_PAGE, is_preflight, preflight_headers, response_headers
from .era_choice import is_http_sse, is_modern, names_session_early
from .exchange import ServerExchange
from .health import check_health_request, is_health_request, send_health
from .keyed_calls import KeyedCall, KeyedCalls, Share
from .leases import Lease, Peers
from .logs import LogReader, Logs, StoreOperation
from .modern.era import ModernServer
from .modern.running_task import RunningTask
from .modern.stateless import ModernChannelHandler, ModernHttp
from .modern.subscriptions import Subscriptions, is_known
from .modern.task_table import TaskTable
from .options import ServerOptions, ServerSettings, milliseconds_of
from .procedures import Procedure
from .resource_metadata import check_metadata_request, is_metadata_request, send_metadata
from .responder import HttpResponder
from .scope_checks import check_scopes, with_access
from .store_calls import call_store, unusable
from .validation import (
    Endpoint,
    RequestContext,
    check_common,
    check_content_length,
    check_mcp_path,
    marks_of_post,
)

if TYPE_CHECKING:
    from .dpop_checks import DpopChecks
    from .legacy.era import LegacyServer

_DONE: Final = ExchangeState.DONE
_STREAMING: Final = ExchangeState.STREAMING
_KEEP_ALIVE: Final = Timer.KEEP_ALIVE
_SERVING: Final = ServerState.SERVING
_RECEIVING: Final = (ExchangeState.HEAD, ExchangeState.BODY)
_NEED_DATA: Final = Idle.NEED_DATA

_ENDS = (SendEnd, Abort)
"""The effects that end a response; to build this union for each effect would take longer."""


_BEHIND = (
    "the store has lost entries that it had acknowledged; the stream goes on, and clients cannot "
    "resume it"
)


class Server:
    """An MCP server without I/O, clock or randomness.

    Pull ``next_effect()`` and ``next_event()`` until both return ``Idle`` after every call that
    changes the server; ``drive()`` does this. All times are seconds on one monotonic clock.

    Not thread-safe.
    """

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
            app: the application whose handlers are called.
            new_token: a function that returns a new unguessable string of 16 to 128 letters,
                digits, "-" and "_", such as ``secrets.token_urlsafe``. Session ids and event ids
                are made of it.
            authentication: True asks the driver for the principal of each HTTP request with the
                effect Authenticate; the request waits for ``authenticated()``. False takes the
                principal that the driver put into the RequestHead.
            settings: see ``ServerOptions``.

        Raises:
            LocalProtocolError: a setting is not valid, alone or with others; ``app`` is not an
                App, or declares an extension whose name has no prefix.
            TypeError: a setting is unknown.
        """
        check_settings(settings, "Server", ServerSettings.__optional_keys__, "a server")
        options = ServerOptions(**settings)
        if options.protected_resource is not None and not authentication:
            raise LocalProtocolError(
                "protected_resource needs authenticate, a function that verifies the access tokens"
            )
        self._core = ServerCore(app, options, new_token)
        sse_path, health_path = options.http_sse, options.health_path
        endpoint = Endpoint(
            options,
            path=options.path.encode(),
            sse_path=None if sse_path is None else sse_path.encode().rstrip(b"/"),
            health_path=None if health_path is None else health_path.encode().rstrip(b"/"),
        )
        self._endpoint = endpoint
        self.authentication = authentication
        """True if an Authenticate effect asks for the principal of each HTTP request."""
        rate = options.rate_limit
        self._admission = None if rate is None else Admission(self._core, rate)
        self._logs = Logs(self._core)
        self._dpop = self._dpop_part(options)
        self._lease = Lease(self._core, self._logs) if options.shared_store else None
        self._peers = Peers(self._core, self._logs, self._lease)
        self._tasks = TaskTable(self._core, self._logs, self._lease, self._peers)
        self._keyed_calls = self._keyed_part(options)
        self._modern = ModernServer(
            self._core, Subscriptions(self._core), self._tasks, self._keyed_calls
        )
        self._modern_http = ModernHttp(self._core, self._modern, self._keyed_calls)
        self._legacy = self._legacy_part(endpoint)
        self._publications = (
            self._legacy.publications if options.shared_store and self._legacy is not None else None
        )
        """What other instances publish, which is followed from the first request on."""
        self._authenticating: dict[ServerExchange, bytes | None] = {}
        """The requests that wait for ``authenticated()``, with the bodies that are complete."""
        self._checked_marks: tuple[object, ...] | None = None
        """The marks of the last POST to the MCP path that has passed the checks of heads."""
        self._exchange_ids: Iterator[int] = itertools.count(1)
        self.observer = self._core.observer
        """What watches this server, from its settings ``trace`` and ``observer``; None: nothing."""
        self.http11 = options.http11
        """The setting of that name, for connections of this server."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {elide(self.app.name, 40)}>"

    def _dpop_part(self, options: ServerOptions) -> DpopChecks | None:
        """Return the part that checks DPoP proofs; import it only if tokens may be bound."""
        resource = options.protected_resource
        if resource is None or resource.dpop is None:
            return None
        from .dpop_checks import DpopChecks

        return DpopChecks(self._core, self._logs, resource)

    def _keyed_part(self, options: ServerOptions) -> KeyedCalls | None:
        """Return the part for calls with keys; import what shares them only if they are shared."""
        if not options.reclaim:
            return None
        if options.reclaim is True:
            return KeyedCalls(self._core, None)
        from .shared_keys import StoredKeys

        assert self._lease is not None, "the options demand a shared store"
        shared = StoredKeys(self._core, self._logs, self._lease, self._peers)
        return KeyedCalls(self._core, shared)

    def _legacy_part(self, endpoint: Endpoint) -> LegacyServer | None:
        """Return the part for the handshake revisions; import it only if one of them is served."""
        if not self._core.handshake_versions:
            return None
        from .legacy.era import LegacyServer

        publish, admission = self._modern.subscriptions.publish, self._admission
        core, logs, lease, peers = self._core, self._logs, self._lease, self._peers
        keyed_calls = self._keyed_calls
        return LegacyServer(core, endpoint, admission, publish, logs, lease, peers, keyed_calls)

    @property
    def path(self) -> str:
        """The path of the MCP endpoint."""
        return self._endpoint.path.decode()

    def transports(self, *, http: bool, stdio: bool) -> tuple[str, ...]:
        """Return the names of the transports that this server serves.

        Args:
            http: True if a driver serves HTTP.
            stdio: True if a driver serves stdio.

        Returns:
            ``"streamable-http"``, ``"http+sse"``, ``"stdio"``, or those of them that apply.
        """
        names = [STREAMABLE_HTTP] if http else []
        if http and self._endpoint.sse_path is not None:
            names.append(HTTP_SSE)
        return (*names, STDIO) if stdio else tuple(names)

    @property
    def now(self) -> float:
        """The latest time that was passed in, in seconds.

        The connections of a server share its clock, and set this whenever they are fed.
        """
        return self._core.now

    @now.setter
    def now(self, now: float) -> None:
        self._core.now = now

    @property
    def limits(self) -> Limits:
        """The bounds of bytes, seconds and counts."""
        return self._core.limits

    @property
    def shared_store(self) -> bool:
        """True if other instances may use the same store."""
        return self._core.options.shared_store

    @property
    def app(self) -> App:
        """The application whose handlers are called."""
        return self._core.app

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The open sessions of this instance."""
        return () if self._legacy is None else tuple(self._legacy.sessions)

    @property
    def has_listeners(self) -> bool:
        """True if clients of 2026-07-28 listen for changes, at this instance."""
        return self._modern.subscriptions.has_any

    @property
    def listened_resources(self) -> frozenset[str]:
        """The URIs of resources for which clients of 2026-07-28 listen, at this instance.

        The event ListenersChanged reports each change. The ``subscriptions`` of each session are
        the resources of older clients.
        """
        return self._modern.subscriptions.resources

    def new_token(self) -> str:
        """Return a new unguessable string, of the source that the server was given.

        Raises:
            LocalProtocolError: the source returns other strings than are allowed.
        """
        return self._core.token()

    @property
    def is_busy(self) -> bool:
        """True if any call is running."""
        if self._core.stateless or self._tasks.are_ending:
            return True
        return self._legacy is not None and self._legacy.is_busy

    # Parts in

    def open_exchange(self, driver: Any = None) -> ServerExchange:
        """Return a new exchange for one HTTP request.

        Feed it with ``receive_part()``, beginning with a RequestHead.

        Args:
            driver: any object of the driver; kept as ``exchange.driver``. With the setting
                ``rate_limit`` its attribute ``connection``, a ``ConnectionInfo``, gives the address
                of a client without a principal; such clients count as one if there is none.
        """
        return ServerExchange(next(self._exchange_ids), self._core, driver)

    def open_channel(self, sink: Sink) -> Channel:
        """Return a new channel for a transport other than HTTP. ``ServerPipe`` uses it for stdio.

        Args:
            sink: the object that takes the messages to the client.
        """
        modern = ModernChannelHandler(self._core, self._modern, sink)
        legacy = None if self._legacy is None else self._legacy.channel_handler(sink)
        if self._publications is not None:
            self._publications.follow()
        return Channel(self._core, sink, modern, legacy)

    def receive_part(self, exchange: ServerExchange, part: RequestPart, *, now: float) -> None:
        """Feed a part of an HTTP request.

        A faulty request gets a refusal as its response. Parts of an exchange that is done are
        ignored.

        Args:
            exchange: the exchange, from ``open_exchange()``.
            part: a RequestHead, then any number of BodyData, then BodyEnd; or ConnectionLost at any
                time.
            now: the current time in seconds.

        Pull ``next_effect_of(exchange)`` and the server's effects afterwards.
        """
        self._core.now = now
        if exchange.state is _DONE:
            if isinstance(part, ConnectionLost):
                exchange.discard()
                self._release_exchange(exchange)
            return
        if self.observer is not None and (exchange.head or isinstance(part, RequestHead)):
            self.observer.part_received(exchange.id, part)
        try:
            match part:
                case RequestHead():
                    self._receive_head(exchange, part)
                case BodyData() | BodyEnd():
                    body = exchange.receive_body(part)
                    if body is not None:
                        self._take_body(exchange, body)
                case ConnectionLost():
                    self._lose_connection(exchange)
                case _ as impossible:
                    assert_never(impossible)
        except RemoteProtocolError as error:
            exchange.refuse(error)

    def receive_body(self, exchange: ServerExchange, body: bytes, *, now: float) -> None:
        """Feed the whole body of a request, instead of its pieces and their end.

        Args:
            exchange: the exchange, whose RequestHead was fed.
            body: the whole body; empty if there is none.
            now: the current time in seconds.

        Pull the effects afterwards, as after ``receive_part()``.
        """
        self._core.now = now
        if exchange.state is _DONE:
            return
        if self.observer is not None:
            if body:
                self.observer.part_received(exchange.id, BodyData(body))
            self.observer.part_received(exchange.id, BodyEnd())
        try:
            self._take_body(exchange, exchange.receive_whole_body(body))
        except RemoteProtocolError as error:
            exchange.refuse(error)

    def _take_body(self, exchange: ServerExchange, body: bytes) -> None:
        if exchange in self._authenticating:
            self._authenticating[exchange] = body
        else:
            self._dispatch_request(exchange, body)

    def refuse(
        self,
        exchange: ServerExchange,
        error: RemoteProtocolError,
        *,
        head: RequestHead | None = None,
        now: float,
    ) -> None:
        """Refuse a request that the HTTP parser below found faulty.

        Args:
            exchange: the exchange of the request; its head may be missing.
            error: gives the status, the headers and the JSON-RPC error of the response.
            head: if the head was not fed, what could be read of it. A browser shows a page the
                refusal only if that names the origin of the page.
            now: the current time in seconds.

        Pull ``next_effect_of(exchange)`` afterwards: the refusal is sent like any HTTP response.
        """
        self._core.now = now
        if exchange.state is ExchangeState.HEAD:
            head = head or RequestHead(method=b"", target=b"", headers=())
            self._begin(exchange, head)
            if is_metadata_request(self._core.options.protected_resource, head):
                exchange.common_headers = ANY_PAGE
        exchange.refuse(error)

    # Authentication

    def authenticated(
        self, effect: Authenticate, outcome: str | Access | Refusal, *, now: float
    ) -> None:
        """Report the access that a request has, or that the request is refused.

        This has no effect if the request has ended.

        Args:
            effect: the Authenticate effect.
            outcome: the Access, or the principal alone, a string that is not empty; or a Refusal.
            now: the current time in seconds.

        Raises:
            LocalProtocolError: ``outcome`` is something else, or has a DPoP proof that this server
                cannot check. Nothing has changed.
        """
        found = _outcome_of_authenticate(outcome)
        if self._dpop is None and isinstance(found, Access) and found.proof is not None:
            raise LocalProtocolError(
                "authenticate returned a DPoP proof, which only a server checks that has "
                'protected_resource=ProtectedResource(..., dpop="accepted") or "required"'
            )
        if isinstance(found, Refusal):
            resource = self._core.options.protected_resource
            self._authenticated(effect, not_authenticated(resource, effect.head, found), now)
        else:
            self._authenticated(effect, found, now)

    def authentication_failed(self, effect: Authenticate, *, now: float) -> None:
        """Report that authentication itself failed; the request gets status 500.

        This has no effect if the request has ended.

        Args:
            effect: the Authenticate effect.
            now: the current time in seconds.
        """
        self._authenticated(effect, refusals.AUTHENTICATION_FAILED(), now)

    def _authenticated(
        self,
        effect: Authenticate,
        outcome: Access | RemoteProtocolError,
        now: float,
        *,
        is_checked: bool = False,
    ) -> None:
        """Go on with a request. ``is_checked``: its DPoP proof is valid."""
        self._core.now = now
        exchange = effect.exchange
        assert isinstance(exchange, ServerExchange), "servers emit no other exchanges"
        if exchange not in self._authenticating or exchange.is_done:
            return
        dpop = self._dpop
        if dpop is not None and exchange in dpop.waiting:
            return
        try:
            if isinstance(outcome, RemoteProtocolError):
                raise outcome
            if dpop is not None and not is_checked and dpop.concerns(effect.head, outcome):
                go_on = partial(self._authenticated, effect, is_checked=True)
                if not dpop.check(exchange, effect.head, outcome, go_on):
                    return
            body = self._authenticating.pop(exchange)
            exchange.wake()  # it may have been paused in the middle of its body
            exchange.head = with_access(self._core, effect.head, outcome)
            if outcome.expires_in is not None:
                exchange.expires_at = now + outcome.expires_in
            self._check_head(exchange, exchange.head)
            if body is not None:
                self._dispatch_request(exchange, body)
        except RemoteProtocolError as error:
            self._authenticating.pop(exchange, None)
            exchange.refuse(error)

    # Effects and events out

    def next_effect_of(self, exchange: ServerExchange) -> ExchangeEffect | Idle:
        """Return the next effect of an exchange.

        Perform each effect before you pull the next one: what waits in the machine counts as
        unsent.

        Args:
            exchange: the exchange, from ``open_exchange()``.

        Returns:
            The effect. ``Idle.NEED_DATA``: feed what arrives, or wait for a Wake effect.
            ``Idle.PAUSED``: do not read more of the request until a Wake effect names the exchange.
        """
        effect = exchange.next_effect()
        if effect is None:
            return self._nothing_to_send(exchange)
        if self.observer is not None:
            self.observer.part_sent(exchange.id, effect)
        if exchange.is_given_up and not exchange.is_done:
            self._lose_connection(exchange)
        elif isinstance(effect, _ENDS):
            self._release_exchange(exchange)
        elif exchange.state is _STREAMING:
            deadline = self._core.now + self._core.limits.stream_comment_interval
            self._core.timers.set(_KEEP_ALIVE, exchange, deadline)
        return effect

    def next_response_of(self, exchange: ServerExchange) -> tuple[ResponseHead, bytes] | None:
        """Return a complete response in one piece, instead of its SendHead, SendBody and SendEnd.

        A driver may ask for it whenever ``exchange.is_done``, before ``next_effect_of()``.

        Args:
            exchange: the exchange, from ``open_exchange()``.

        Returns:
            The head and the whole body. None if the response is not complete, or a part of it was
            pulled: then pull ``next_effect_of()``.
        """
        response = exchange.take_response()
        if response is None:
            return None
        if self.observer is not None:
            head, body = response
            self.observer.part_sent(exchange.id, SendHead(head))
            if body:
                self.observer.part_sent(exchange.id, SendBody(body))
            self.observer.part_sent(exchange.id, SendEnd())
        self._release_exchange(exchange)
        return response

    def next_effect(self) -> ServerEffect | Idle:
        """Return the next effect of the server as a whole, or ``Idle.NEED_DATA`` if there is none.

        These are Wake, Authenticate and the store effects.
        """
        return self._core.effects.popleft() if self._core.effects else _NEED_DATA

    def next_event(self) -> ServerEvent | Idle:
        """Return the next event for the application, or ``Idle.NEED_DATA`` if there is none.

        When ``Limits.max_queued_events`` events wait, exchanges stop reading requests until half of
        the events are taken.
        """
        if not self._core.events:
            return _NEED_DATA
        event = self._core.events.popleft()
        if self.observer is not None:
            self.observer.event_pulled(event)
        if self._core.paused and not self._core.is_full:
            for paused in self._core.paused:
                paused.wake()
            self._core.paused.clear()
        return event

    def drive(
        self, perform: Callable[[ServerEffect], None], on_event: Callable[[ServerEvent], None]
    ) -> None:
        """Pull effects and events until there are none.

        Call this after everything that changes the server. The effects of exchanges and
        connections are not included; their drivers pull them.

        Args:
            perform: called with each effect, in order.
            on_event: called with each event, in order.
        """
        effects, events = self._core.effects, self._core.events
        while effects or events:
            while effects and not isinstance(effect := self.next_effect(), Idle):
                perform(effect)
            if events and not isinstance(event := self.next_event(), Idle):
                on_event(event)

    @property
    def has_pending(self) -> bool:
        """True if an effect or event of the server can be pulled: :meth:`drive` is due."""
        return bool(self._core.effects or self._core.events)

    # Outcomes of store effects. Report each once, in any order; a second report has no effect.

    def append_completed(self, effect: StoreAppend, result: AppendResult, *, now: float) -> None:
        """Report what the store did with a StoreAppend.

        Args:
            effect: the effect that was performed.
            result: ``STORED`` promises that every later reader finds the entries, in any process
                that shares the store.
            now: the current time in seconds.

        Pull the server's effects afterwards, as after every report.
        """
        user = self._completed(effect, now)
        if user is None:
            return
        match result:
            case AppendResult.STORED:
                user.on_append_done()
            case AppendResult.CONFLICT:
                user.on_append_conflict()
            case AppendResult.BEHIND:
                self._core.events.append(StoreFailed(_BEHIND, lost=False))
                user.on_append_behind()
            case _ as impossible:
                assert_never(impossible)
        user.on_settled()

    def read_completed(self, effect: StoreRead, page: Page | None, *, now: float) -> None:
        """Report the page that a StoreRead got.

        Args:
            effect: the effect that was performed.
            page: the page; None if the log does not exist.
            now: the current time in seconds.
        """
        user = self._completed(effect, now)
        if user is not None:
            user.on_read_done(effect, page)
            user.on_settled()

    def drop_completed(self, effect: StoreDrop, *, now: float) -> None:
        """Report that the logs of a StoreDrop are deleted.

        Args:
            effect: the effect that was performed.
            now: the current time in seconds.
        """
        self._completed(effect, now)

    def take_completed(self, effect: StoreTake, wait: float, *, now: float) -> None:
        """Report what the store said to a StoreTake: the requests are served, or refused.

        Args:
            effect: the effect that was performed.
            wait: 0.0 if the tokens were taken, else the seconds until there are enough.
            now: the current time in seconds.
        """
        self._completed(effect, now)
        assert self._admission is not None, "only a rate limit takes tokens"
        self._admission.on_taken(effect, wait)

    def store_failed(self, effect: StoreEffect, reason: str, *, now: float) -> None:
        """Report that a store effect failed.

        Report this also if the outcome of an append is unknown, because the reply of the store was
        lost. Do not repeat the effect; the server asks for it again if it is worth it.

        Args:
            effect: the effect that failed.
            reason: text for logs; the event StoreFailed has it.
            now: the current time in seconds.
        """
        self._core.now = now
        self._core.store_health.failed(now)
        if isinstance(effect, StoreTake):
            assert self._admission is not None, "only a rate limit takes tokens"
            is_lost = False
            # The bucket of this instance has let the requests pass.
            self._admission.on_taken(effect, 0.0)
        else:
            is_lost = not self._logs.on_failed(effect)
        is_repeated = self._core.store_health.is_repeated(type(effect), is_lost=is_lost)
        self._core.events.append(StoreFailed(reason, is_lost, is_repeated))

    def store_watched(self, effect: StoreWatch, *, now: float) -> None:
        """Report that ``store_changed()`` will be called for changes of the log of a StoreWatch.

        The server then reads that log rarely of its own accord.

        Args:
            effect: the effect that was performed.
            now: the current time in seconds.
        """
        self._core.now = now
        self._logs.on_watched(effect.stream)

    def store_changed(self, stream: StreamKey, *, now: float) -> None:
        """Report that a log may have changed. Calls for a log without a watch do nothing.

        Args:
            stream: the log.
            now: the current time in seconds.
        """
        self._core.now = now
        self._logs.on_changed(stream)

    def _completed(self, effect: StoreEffect, now: float) -> StoreOperation | None:
        """Record that the store works. Returns the part that gets the outcome, if there is one."""
        self._core.now = now
        self._core.store_health.succeeded(type(effect))
        return self._logs.pop_user(effect)

    def perform_store_effect(self, effect: StoreEffect, store: Store, *, now: float) -> None:
        """Perform a store effect on a synchronous store and report the outcome.

        An exception of the store, or a result of another type than ``sansmcp.Store`` defines, is
        reported as a failure.

        Args:
            effect: the effect to perform.
            store: the store to use.
            now: the current time in seconds.
        """
        try:
            result = call_store(effect, store, now=now)
        except Exception as error:
            self.store_failed(effect, f"{type(error).__name__}: {error}", now=now)
        else:
            self.report_store_result(effect, store, result, now=now)

    def report_store_result(
        self, effect: StoreEffect, store: Store | AsyncStore, result: object, *, now: float
    ) -> None:
        """Report what a store has returned for an effect.

        A result of another type than ``sansmcp.Store`` defines is reported as a failure.

        Args:
            effect: the effect that was performed.
            store: the store that performed it; an error names its type.
            result: what its method returned; if that is a coroutine, what the coroutine returned.
            now: the current time in seconds.
        """
        if isinstance(effect, StoreAppend) and isinstance(result, AppendResult):
            self.append_completed(effect, result, now=now)
        elif isinstance(effect, StoreRead) and (result is None or isinstance(result, Page)):
            self.read_completed(effect, result, now=now)
        elif isinstance(effect, StoreDrop) and not hasattr(result, "__await__"):
            self.drop_completed(effect, now=now)
        elif (
            isinstance(effect, StoreTake)
            and isinstance(result, int | float)
            and 0 <= result < math.inf
        ):
            self.take_completed(effect, result, now=now)
        else:
            self.store_failed(effect, unusable(effect, store, result), now=now)

    # Time

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout()``, on the clock of ``now``; None for never.

        While effects wait to be pulled, this is the present time.
        """
        return self._core.now if self._core.effects else self._core.timers.next_deadline()

    def handle_timeout(self, *, now: float) -> None:
        """Handle the deadlines that have passed. Early, late and repeated calls are safe."""
        self._core.now = now
        for timer, owner in self._core.timers.due(now):
            match timer, owner:
                case Timer.STREAM_OPEN, HttpResponder():
                    owner.open()
                case Timer.TASK, RunningCall():
                    owner.become_task(now=now)
                case Timer.STORED, RunningTask() | KeyedCall():
                    owner.on_due()
                case Timer.RECLAIM, KeyedCall() as call:
                    assert self._keyed_calls is not None, "else no call has a key"
                    self._keyed_calls.on_due(call)
                case Timer.KEPT, Share() as share:
                    assert self._keyed_calls is not None, "else no response is kept"
                    self._keyed_calls.expire(share)
                case Timer.GATHERED, ServerExchange():
                    owner.send_gathered()
                case Timer.KEEP_ALIVE, ServerExchange():
                    owner.send(KEEP_ALIVE)
                case Timer.ACCESS, ServerExchange():
                    owner.end_expired()
                case Timer.STORE_TAKE, StoreTake() as take:
                    assert self._admission is not None, "else nothing is taken"
                    self._admission.on_overdue(take)
                case Timer.STORE_REPEAT, (StoreAppend() | StoreRead() | StoreDrop() as effect):
                    self._logs.repeat(effect)
                case Timer.STORE_POLL, (StreamKey() as key, LogReader() as reader):
                    self._logs.poll(key, reader)
                case Timer.LEASE, Lease() as lease:
                    lease.renew()
                case Timer.LEASE, Procedure() as procedure:
                    procedure.poll_store()
                case _:
                    assert self._legacy is not None, "other timers are set by sessions alone"
                    self._legacy.timed_out(timer, owner)

    # Notifications

    def publish(self, method: str, params: Params | None = None, *, now: float) -> None:
        """Notify all clients of a changed list, or the subscribed ones of a changed resource.

        Clients of 2026-07-28 get what they asked for with ``subscriptions/listen``. Clients of the
        handshake revisions get every ``list_changed``, and the updates of resources that they
        subscribed to. A subscription to a folder, with or without the slash at the end of its URI,
        includes the resources below it.

        If instances share a store, this reaches the clients of all of them: call it at one. At each
        instance, the clients get publications in the same order. Without ``shared_store``, or if
        only 2026-07-28 is served, it reaches the clients of this instance.

        Args:
            method: ``notifications/tools/list_changed``, the same of ``prompts`` or ``resources``,
                or ``notifications/resources/updated``.
            params: the parameters; ``{"uri": ...}`` for an updated resource.
            now: the current time in seconds.

        Raises:
            LocalProtocolError: ``method`` is another notification, or the parameters are not JSON.
        """
        if not is_known(method):
            raise LocalProtocolError(
                "publish() takes list_changed notifications and notifications/resources/updated, "
                f"got {method!r}; to reach one client use call.peer.notify()"
            )
        jsonrpc.check_call(method, params)
        json.encode(params)
        self._core.now = now
        if self._legacy is not None:
            self._legacy.publications.publish(method, params or {})
        else:
            self._modern.subscriptions.publish(method, params or {})

    def disconnect_streams(self, *, retry: float | None = None, now: float) -> int:
        """Close the standalone streams of all clients that can resume them.

        What is published meanwhile is stored, and replayed when the clients reconnect. So the
        server holds no connection for clients that only listen. Streams of calls stay open; their
        handlers close them with ``ServerCall.disconnect()``.

        Args:
            retry: seconds the clients should wait before they reconnect; None takes the server's
                setting of that name.
            now: the current time in seconds.

        Returns:
            The number of streams closed. Streams of revisions other than 2025-11-25 stay open, and
            so do all streams if there is no store.

        Raises:
            LocalProtocolError: ``retry`` is negative, infinite or NaN. Nothing has changed.

        Source: SEP-1699.
        """
        milliseconds = milliseconds_of(self._core.options.retry if retry is None else retry)
        self._core.now = now
        if self._legacy is None:
            return 0
        return sum(session.disconnect(milliseconds) for session in self._legacy.sessions)

    # Ending

    def end_session(self, session: Session, reason: str, *, now: float) -> None:
        """End a session. Its calls are cancelled, and requests that name it get status 404.

        This has no effect if the session has ended.

        Args:
            session: the session, from ``sessions`` or an event.
            reason: text for logs; also the reason of its calls' cancellation.
            now: the current time in seconds.
        """
        self._core.now = now
        if self._legacy is not None and session in self._legacy.sessions:
            self._legacy.end_session(session, reason)

    @property
    def is_leaving(self) -> bool:
        """True after ``enter_lame_duck()`` or ``drain()``: clients are to go elsewhere."""
        return self._core.state is not _SERVING

    def enter_lame_duck(self, *, now: float) -> None:
        """Make clients go elsewhere, while everything is still served.

        The health answer has status 503 from now on, and over HTTP/1.1 each response closes its
        connection. Call ``drain()`` when load balancers had the time to notice.

        Args:
            now: the current time in seconds.
        """
        self._core.now = now
        self._core.advance(StopEvent.LEAVE)

    def drain(self, *, now: float) -> None:
        """Refuse new calls, sessions, subscriptions and standalone streams with status 503.

        Running calls go on. Responses to server requests, cancellations and resumptions are still
        accepted.

        Args:
            now: the current time in seconds.
        """
        self._core.now = now
        self._core.advance(StopEvent.DRAIN)
        if self._keyed_calls is not None:
            self._keyed_calls.drain()

    def shut_down(self, *, now: float) -> None:
        """End all calls, sessions and streams.

        Each running call gets an error as its response, and CallCancelled tells its handler to
        stop. Streams end with a complete HTTP response. If other instances share the store, the
        sessions stay there, and clients of 2025-11-25 get the ``retry`` setting so that they
        reconnect.

        Args:
            now: the current time in seconds.

        Pull the effects of the server and of its exchanges afterwards.
        """
        self.drain(now=now)
        self._core.advance(StopEvent.STOP)
        self._modern.subscriptions.end_all()
        for call in tuple(self._core.stateless):
            call.shut_down()
        if self._legacy is not None:
            self._legacy.shut_down()
        self._peers.leave_all()
        self._logs.give_up_failed()
        if self._lease is not None:
            self._lease.end()
        for exchange in tuple(self._authenticating):
            del self._authenticating[exchange]
            if not exchange.is_done:  # its client may have been too slow
                exchange.refuse(refusals.SHUTTING_DOWN())
        if self._admission is not None:
            self._admission.shut_down()
        for sink in self._core.sinks:
            sink.close()

    # The stages of a request

    def _begin(self, exchange: ServerExchange, head: RequestHead) -> None:
        exchange.begin(head)
        policy = self._endpoint.options.policy
        if policy.cors:
            exchange.common_headers = response_headers(policy, head)

    def _receive_head(self, exchange: ServerExchange, head: RequestHead) -> None:
        self._begin(exchange, head)
        if not exchange.has_checked_head and head.method == b"POST":
            # But for its length, it is checked as the last one was.
            exchange.has_checked_head = marks_of_post(head) == self._checked_marks
        if not exchange.has_checked_head and self._is_for_all(exchange, head):
            return
        if self._publications is not None:
            self._publications.follow()
        if not self.authentication:
            self._check_head(exchange, head)
            return
        # First of all, so that a page of another site cannot find out if credentials are valid.
        if exchange.has_checked_head:
            check_content_length(head, self._core.max_request_bytes)
        else:
            check_common(RequestContext(self._endpoint, head))
        check_credentials(self._core.options.protected_resource, head)
        self._authenticating[exchange] = None
        self._core.effects.append(Authenticate(exchange, head))

    def _is_for_all(self, exchange: ServerExchange, head: RequestHead) -> bool:
        """Return True for a request that needs no credentials, after the checks of its own."""
        policy = self._endpoint.options.policy
        if is_health_request(self._endpoint, head):
            check_health_request(head)
            return True
        if is_metadata_request(self._core.options.protected_resource, head):
            exchange.common_headers = ANY_PAGE
            check_metadata_request(head)
            return True
        if policy.cors and is_preflight(self._endpoint, head):
            check_common(RequestContext(self._endpoint, head))
            exchange.send_response(200, extra=preflight_headers(head))
            return True
        return False

    def _check_head(self, exchange: ServerExchange, head: RequestHead) -> None:
        if not exchange.has_checked_head and is_http_sse(self._endpoint, head):
            check_common(RequestContext(self._endpoint, head))
            assert self._legacy is not None, "HTTP+SSE is served with handshake revisions only"
            self._legacy.http_sse.check_head(head)
            return
        if not exchange.has_checked_head:
            check_mcp_path(RequestContext(self._endpoint, head))
            exchange.has_checked_head = True
            if head.method == b"POST":
                self._checked_marks = marks_of_post(head)
        length = check_content_length(head, self._core.max_request_bytes)
        if self._legacy is not None and names_session_early(head, length):
            self._legacy.streamable_http.check_head(exchange, head)

    def _dispatch_request(self, exchange: ServerExchange, body: bytes) -> None:
        """Pass a complete request to its era. Raises RemoteProtocolError for a refusal."""
        head, legacy = exchange.head, self._legacy
        assert head is not None
        if not exchange.has_checked_head:
            self._dispatch_other(exchange, head, body)
            return
        if legacy is not None and head.method != b"POST":
            legacy.streamable_http.complete(exchange)
            return
        message = jsonrpc.decode(body, self._core.limits, mend_from_client)
        if self._admission is None:
            self._dispatch_message(exchange, message)
        else:
            handle = partial(self._dispatch_message, exchange, message)
            self._admission.admit(exchange, message, handle)

    def _dispatch_other(self, exchange: ServerExchange, head: RequestHead, body: bytes) -> None:
        """Answer a complete request to another path than that of MCP, or of HTTP+SSE on it."""
        resource = self._core.options.protected_resource
        if is_health_request(self._endpoint, head):
            send_health(self._core, exchange)
        elif resource is not None and is_metadata_request(resource, head):
            send_metadata(resource, exchange)
        else:
            assert self._legacy is not None, "HTTP+SSE is served with handshake revisions only"
            self._legacy.http_sse.complete(exchange, body)

    def _dispatch_message(self, exchange: ServerExchange, message: Message | Batch) -> None:
        """Pass the content of a POST to its era. Raises RemoteProtocolError for a refusal."""
        head, legacy = exchange.head, self._legacy
        assert head is not None
        check_scopes(self._core, head, message)
        if is_modern(message, self._core, headers.single(head.values(PROTOCOL_VERSION))):
            self._modern_http.receive(exchange, head, message)
        else:
            assert legacy is not None, (
                "is_modern() refuses messages of revisions that are not served"
            )
            legacy.streamable_http.post(exchange, message)

    def _lose_connection(self, exchange: ServerExchange) -> None:
        exchange.peer_gone()
        if exchange.responder is not None:
            exchange.responder.peer_gone()
        self._release_exchange(exchange)

    def _release_exchange(self, exchange: ServerExchange) -> None:
        """Forget an exchange that has ended, and detach the stream it read."""
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
        is_receiving = exchange.state in _RECEIVING
        if is_receiving and exchange in self._authenticating:
            return Idle.PAUSED
        if is_receiving and self._core.is_full:
            self._core.paused[exchange] = None
            return Idle.PAUSED
        return _NEED_DATA


def _outcome_of_authenticate(outcome: object) -> Access | Refusal:
    """Check the value that the application's function returned."""
    if isinstance(outcome, Access | Refusal):
        return outcome
    if isinstance(outcome, str) and outcome:
        return Access(outcome)
    raise LocalProtocolError(
        "authenticate must return a principal (a string that is not empty), an Access, or a "
        f"Refusal, got {type(outcome).__name__}"
    )
