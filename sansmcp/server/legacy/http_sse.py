"""HTTP+SSE, the transport of 2024-11-05, for old clients.

A client opens one event stream with GET. Its first event, ``endpoint``, names the URI to which the
client POSTs its messages. All messages of the server come on the stream. The URI contains an
unguessable token, and only the token ties a POST to its stream. The session ends with the stream.

The response to a call with a key comes as that to its POST. So the call survives the loss of its
session: the client asks for the rest with the key in its next session, to which the call then
belongs.

The transport is served on two paths of its own, ``.../sse`` for the stream and ``.../messages``
beside it, or on the MCP path together with Streamable HTTP. There, a GET that names no session, no
version and no event is from a client of this transport.

Source: 2024-11-05 basic/transports: HTTP with SSE; 2025-03-26 basic/transports: Backwards
Compatibility.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import attrs

from ...codecs import headers, jsonrpc
from ...codecs.jsonrpc import Batch
from ...codecs.sse import encode_event
from ...errors import RemoteProtocolError
from ...http import RequestHead
from ...messages import Message, Notification, Request
from ...meta_keys import meta_of
from ...reclaim import CANCEL, EXTENSION
from ...shares import Shares
from ...states import REFUSING, ExchangeState, SessionState
from ...types import Secret
from .. import refusals
from ..admission import Admission, known_client_of
from ..calls import RunningCall
from ..channel import Channel
from ..core import ServerCore
from ..era_choice import TOKEN, message_token, names_session_early
from ..exchange import ServerExchange
from ..keyed_calls import KeyedCalls
from ..scope_checks import check_scopes
from ..unstored_responder import KeyedResponder
from ..validation import Endpoint, check_content_length
from .dispatcher import Dispatcher
from .results import LegacyResults
from .session_channel import SessionChannelHandler
from .sessions import LegacySession, SessionTable

_CALL_INTERVAL = 1.0
"""Seconds after which a stream whose token has expired looks again if calls still run."""


@attrs.define(eq=False, repr=False)
class _Stream:
    """The one event stream of a client, as the sink of its channel."""

    _core: ServerCore
    exchange: ServerExchange
    _end_channel: Callable[[], None]
    _has_calls: Callable[[], bool]
    """Returns True if calls of the client run."""

    @property
    def head(self) -> RequestHead | None:
        return self.exchange.head

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client."""
        return self.exchange.is_slow

    def send(self, message: bytes) -> bool:
        """Send a message as an event. Returns False if the stream has ended."""
        if self.exchange.state is not ExchangeState.STREAMING:
            return False
        self.exchange.send(encode_event(message, event="message"))
        return True

    def close(self) -> None:
        self.exchange.stop()

    def catch_up(self) -> None:
        """Do nothing: there is no store behind the stream."""

    def on_closed(self) -> None:
        self._end_channel()

    def end_expired(self) -> bool:
        """End the stream, and the session with it. The client has sent no newer credentials.

        Calls that run go on until their end, as responses to calls do in other transports. The
        stream is all that the client has to hear of them.
        """
        if self._has_calls():
            self.exchange.extend_access(self._core.now + _CALL_INTERVAL)
            return False
        self.close()
        return True


@attrs.define(eq=False, repr=False)
class _KeyedResponder(LegacyResults, KeyedResponder):
    """Sends the response to the POST of a call that has a key."""

    running: RunningCall | None = attrs.field(default=None, init=False)
    """The call; None before its handler starts."""
    _has_moved: bool = attrs.field(default=False, init=False)
    """True if the client has opened a new session since its last request for the call."""

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response, and keep it for the next connection."""
        # The other statuses are those of 2026-07-28; here 404 would end the session.
        return super().respond(data, 503 if http_status == 503 else 200)

    def cancel_calls(self, reason: str) -> None:
        """Cancel the call, if it runs."""
        if self.running is not None and self.running.is_running:
            self.running.cancel(reason)

    def move(self, session: LegacySession) -> None:
        """Belong to another session of the client."""
        self.session, self._has_moved = session, True
        if self.running is not None:
            session.adopt(self.running)

    def reconnect(self, exchange: ServerExchange, received: int) -> None:
        """Go on with another connection, and send first what was missed.

        In a new session the client gets the open server requests again: those that it has received
        have ended with the old one.
        """
        assert self.call is not None
        has_moved, self._has_moved = self._has_moved, False
        reports = self.call.reports if has_moved else None
        old = () if reports is None else reports.split(received)[0]
        super().reconnect(exchange, received)
        open_requests = () if self.running is None else self.running.open_requests
        for data in old:
            message = jsonrpc.decode(data, self._core.limits)
            if isinstance(message, Request) and message.id in open_requests:
                self.message(data)


@attrs.frozen
class _Client:
    """A client with an open stream."""

    stream: _Stream
    channel: Channel
    handler: SessionChannelHandler
    owner: str
    """The principal or address that opened the stream; empty if neither is known."""


@attrs.define(eq=False, repr=False)
class HttpSse:
    """Handles the HTTP requests of this transport."""

    _core: ServerCore
    _endpoint: Endpoint
    _admission: Admission | None
    _table: SessionTable
    _dispatcher: Dispatcher
    _keyed_calls: KeyedCalls | None
    _clients: dict[tuple[str, Secret], _Client] = attrs.field(
        factory=dict[tuple[str, Secret], _Client], init=False
    )
    """The clients by principal and token."""
    _held: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of open streams by principal or address."""

    def check_head(self, head: RequestHead) -> None:
        """Run the validators that need no body. Raises RemoteProtocolError for a refusal."""
        path = head.path.rstrip(b"/")
        if head.method == b"GET" and path == self._endpoint.sse_path:
            if not headers.accepts(head.values(b"accept"), headers.EVENT_STREAM):
                raise refusals.stream_not_acceptable()
            self._check_room(head.principal)
        elif path != self._endpoint.messages_path.rstrip(b"/"):
            raise refusals.http_sse_stream_url(head.address_of(self._endpoint.path))
        elif head.method != b"POST":
            raise refusals.method_not_allowed(b"POST", "Messages are POSTed to this URL")
        elif self._find(head) is None:
            length = check_content_length(head, self._core.max_request_bytes)
            # A short body may cancel a call that has outlived its session.
            if self._keyed_calls is None or names_session_early(head, length):
                self._client(head)

    def complete(self, exchange: ServerExchange, body: bytes) -> None:
        """Handle a complete request. Raises RemoteProtocolError for a refusal."""
        assert exchange.head is not None
        if exchange.head.method == b"GET":
            self._open(exchange)
            return
        client = self._find(exchange.head)
        if client is None:
            self._cancel_outside(exchange, exchange.head, body)
            return
        client.stream.exchange.extend_access(exchange.expires_at)
        message = client.channel.decode(body)
        if self._admission is None:
            self._receive(exchange, exchange.head, message)
        else:
            handle = partial(self._receive, exchange, exchange.head, message)
            self._admission.admit(exchange, message, handle)

    def _receive(
        self, exchange: ServerExchange, head: RequestHead, message: Message | Batch
    ) -> None:
        client = self._client(head)  # it may have ended since the message was decoded
        check_scopes(self._core, head, message)
        calls = self._keyed_calls
        if calls is not None and isinstance(message, Request) and EXTENSION in meta_of(message):
            self._keyed_request(calls, exchange, client.handler, message)
        elif calls is not None and isinstance(message, Notification) and message.method == CANCEL:
            self._cancel(calls, exchange, head, message)
        else:
            client.channel.receive_message(message)
            exchange.send_response(202)

    def _cancel(
        self, calls: KeyedCalls, exchange: ServerExchange, head: RequestHead, message: Notification
    ) -> None:
        """Cancel a call by its key. Raises RemoteProtocolError if another process may have it."""
        calls.cancel(meta_of(message).get(EXTENSION), head.principal)
        exchange.send_response(202)

    def _cancel_outside(self, exchange: ServerExchange, head: RequestHead, body: bytes) -> None:
        """Cancel a call that has outlived its session.

        Raises RemoteProtocolError for any other message: its session is unknown.
        """
        calls, message = self._keyed_calls, None
        with suppress(RemoteProtocolError):
            message = jsonrpc.decode(body, self._core.limits)
        if calls is None or not isinstance(message, Notification) or message.method != CANCEL:
            raise refusals.MESSAGE_TOKEN_UNKNOWN()
        self._cancel(calls, exchange, head, message)

    def _keyed_request(
        self,
        calls: KeyedCalls,
        exchange: ServerExchange,
        handler: SessionChannelHandler,
        request: Request,
    ) -> None:
        """Start a call with a key, or send the rest of one that has been started."""
        handler.check_open(request)
        session, text = handler.session, meta_of(request).pop(EXTENSION)
        key, found = calls.read(text, session.principal, request)
        if found is not None:
            before = found.responder
            if isinstance(before, _KeyedResponder) and before.session is not session:
                self._dispatcher.check_room(session, request)
                before.move(session)
            calls.reclaim(found, key, request, exchange)
            return
        if request.method != "tools/call":
            calls.look(key, session.principal, request, exchange)
            return
        self._dispatcher.check_call(session, request)
        stream_after = self._core.stream_after_of(request.method)
        responder = _KeyedResponder(self._core, session, exchange, stream_after, calls)

        def start() -> None:
            if calls.are_shared:  # time has passed, and another session may have the call
                assert responder.exchange.head is not None
                client = self._client(responder.exchange.head)
                self._dispatcher.check_call(client.handler.session, request)
            self._dispatcher.start((request,), responder)
            responder.running = responder.session.calls[request.id]

        calls.start(key, session.principal, request, responder, start)

    def _check_room(self, principal: str) -> None:
        """Raise RemoteProtocolError if there is no room for a stream: each may become a session."""
        if self._core.state in REFUSING:
            raise refusals.SHUTTING_DOWN()
        self._table.check_room(principal)
        limit = self._core.limits.max_sessions
        if len(self._clients) >= limit:
            raise refusals.TOO_MANY_SESSIONS(limit=limit)

    def _open(self, exchange: ServerExchange) -> None:
        assert exchange.head is not None
        owner = known_client_of(self._core, exchange)
        limit = self._core.limits.max_sessions_per_principal
        if owner and self._held.of(owner) >= limit:
            raise refusals.TOO_MANY_SESSIONS(limit=limit)
        self._check_room(exchange.head.principal)
        token = self._core.token()
        key = principal, _ = exchange.head.principal, Secret(token)
        stream = _Stream(
            self._core, exchange, partial(self._end_channel, key), partial(self._has_calls, key)
        )
        handler = SessionChannelHandler(
            self._core, self._table, self._dispatcher, stream, principal, self._keyed_calls
        )
        channel = Channel(self._core, stream, None, handler)
        self._clients[key] = _Client(stream, channel, handler, owner)
        self._held.change(owner, 1)
        exchange.source = stream
        exchange.open_stream()
        uri = f"{exchange.head.address_of(self._endpoint.messages_path)}?{TOKEN}={token}"
        exchange.send(encode_event(uri.encode(), event="endpoint"))

    def _find(self, head: RequestHead) -> _Client | None:
        """Return the client of a request; None if its stream has ended, or is unknown."""
        client = self._clients.get((head.principal, Secret(message_token(head) or "")))
        if client is None or client.handler.session.state is SessionState.ENDED:
            return None
        return client

    def _client(self, head: RequestHead) -> _Client:
        """Return the client of a request. Raises RemoteProtocolError if there is none."""
        client = self._find(head)
        if client is not None:
            return client
        if message_token(head) is None:
            raise refusals.MESSAGE_TOKEN_REQUIRED()
        raise refusals.MESSAGE_TOKEN_UNKNOWN()

    def _has_calls(self, key: tuple[str, Secret]) -> bool:
        return bool(self._clients[key].handler.session.calls)

    def _end_channel(self, key: tuple[str, Secret]) -> None:
        client = self._clients.pop(key)
        self._held.change(client.owner, -1)
        for call in tuple(client.handler.session.calls.values()):
            if isinstance(call.responder, _KeyedResponder) and call.responder.call is not None:
                call.leave_session()
        client.channel.end("the client has closed its stream", now=self._core.now)
