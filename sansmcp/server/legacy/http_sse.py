"""HTTP+SSE, the transport of 2024-11-05, for old clients.

A client opens one event stream with GET. Its first event, ``endpoint``, names the URI to which the
client POSTs its messages. All messages of the server come on the stream. The URI contains an
unguessable token, and only the token ties a POST to its stream. The session ends with the stream.

The transport is served on two paths of its own, ``.../sse`` for the stream and ``.../messages``
beside it, or on the MCP path together with Streamable HTTP. There, a GET that names no session, no
version and no event is from a client of this transport.

Source: 2024-11-05 basic/transports: HTTP with SSE; 2025-03-26 basic/transports: Backwards
Compatibility.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from ...codecs import headers
from ...codecs.jsonrpc import Batch
from ...codecs.sse import encode_event
from ...http import RequestHead
from ...messages import Message
from ...shares import Shares
from ...states import REFUSING, ExchangeState, SessionState
from ...types import Secret
from .. import refusals
from ..admission import Admission, known_client_of
from ..channel import Channel
from ..core import ServerCore
from ..era_choice import TOKEN, message_token
from ..exchange import ServerExchange
from ..scope_checks import check_scopes
from ..validation import Endpoint
from .dispatcher import Dispatcher
from .session_channel import SessionChannelHandler
from .sessions import SessionTable

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
        else:
            self._client(head)

    def complete(self, exchange: ServerExchange, body: bytes) -> None:
        """Handle a complete request. Raises RemoteProtocolError for a refusal."""
        assert exchange.head is not None
        if exchange.head.method == b"GET":
            self._open(exchange)
            return
        client = self._client(exchange.head)
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
        client.channel.receive_message(message)
        exchange.send_response(202)

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
            self._core, self._table, self._dispatcher, stream, principal
        )
        channel = Channel(self._core, stream, None, handler)
        self._clients[key] = _Client(stream, channel, handler, owner)
        self._held.change(owner, 1)
        exchange.source = stream
        exchange.open_stream()
        uri = f"{exchange.head.address_of(self._endpoint.messages_path)}?{TOKEN}={token}"
        exchange.send(encode_event(uri.encode(), event="endpoint"))

    def _client(self, head: RequestHead) -> _Client:
        token = message_token(head)
        if token is None:
            raise refusals.MESSAGE_TOKEN_REQUIRED()
        client = self._clients.get((head.principal, Secret(token)))
        if client is None or client.handler.session.state is SessionState.ENDED:
            raise refusals.MESSAGE_TOKEN_UNKNOWN()
        return client

    def _has_calls(self, key: tuple[str, Secret]) -> bool:
        return bool(self._clients[key].handler.session.calls)

    def _end_channel(self, key: tuple[str, Secret]) -> None:
        client = self._clients.pop(key)
        self._held.change(client.owner, -1)
        client.channel.end("the client has closed its stream", now=self._core.now)
