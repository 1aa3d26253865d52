"""HTTP/1.1 on a byte stream: bytes to message parts and back, for raw sockets.

The one place that knows ``h11``. A :class:`ServerConnection` is what a server does with an accepted
connection, request after request; a :class:`ClientConnection` carries a client's exchanges, one at
a time. Both turn bytes into the parts that the machines understand, so a host that brings its own
HTTP library does without this module.

Slow and hostile peers are dealt with here, since only here are there bytes: a request head has to
be complete within a total time, not per read; so has a body; head sizes are counted in the bytes
that were sent, whatever pieces they came in; one request waits while another is answered, and no
more is read then. A request that is refused before it was read to its end gets its answer, and then
a moment in which what it still sends is thrown away: closing at once would destroy the answer.

Source: RFC 9112; CVE-2007-6750, CVE-2025-43859 (h11 0.16 or newer is required).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs
import h11

from .client.client import Client
from .codecs.headers import Headers
from .effects import (
    Abort,
    CloseConnection,
    ConnectionEffect,
    ExchangeEffect,
    OpenExchange,
    SendBody,
    SendBytes,
    SendEnd,
    SendHead,
)
from .errors import LocalProtocolError, RemoteProtocolError
from .http import BodyData, BodyEnd, PeerGone, RequestHead, ResponseHead, Url
from .server.server import Server
from .states import CONNECTION, ConnectionEvent, ConnectionState, advance
from .types import Idle, never

_LINGER = 2.0
"""Seconds for a refused peer to stop sending and read its answer. nginx: 5."""

_PIPELINED_BYTES = 64 * 1024
"""How much of the next requests is read while one is answered."""
_CONTINUE = h11.InformationalResponse(status_code=100, headers=[])


@attrs.define(eq=False)
class _HeadMeter:
    """Counts the bytes of a message head, up to its blank line, in whatever pieces they come."""

    _limit: int
    _count: int = 0
    _tail: bytes = b""
    _complete: bool = False

    def feed(self, data: bytes) -> bool:
        """Count a piece; False once the head is known to be larger than the limit."""
        if not self._complete:
            window = self._tail + data
            ends = [
                end + len(mark) for mark in (b"\n\n", b"\n\r\n") if (end := window.find(mark)) >= 0
            ]
            length = min(ends) if ends else len(window)
            self._count += length - len(self._tail)
            self._complete = bool(ends)
            self._tail = window[-2:]
        return self._count <= self._limit


class ServerConnection:
    """An accepted connection of a server: bytes in, bytes out.

    Feed ``receive_data``, ``receive_eof`` and ``connection_lost``; pull ``next_effect`` until
    ``Idle`` and perform each effect before the next. ``Idle.NEED_DATA`` means read; ``Idle.PAUSED``
    means do not, until woken: the server names :attr:`exchange` in a ``Wake`` effect, and its
    ``host`` attribute is the ``host`` given here.
    """

    def __init__(
        self, server: Server, *, host: Any = None, principal: str = "", now: float
    ) -> None:
        """Take over a connection.

        Args:
            server: the machine that answers.
            host: is found as ``host`` of :attr:`exchange` when that is to be woken.
            principal: who is at the other end, where that is known (by a client certificate, say).
            now: the time.
        """
        self._server = server
        self._host = host
        self._principal = principal
        self._limits = server.limits
        # Our own meter refuses heads that are too large; h11's limit only has to be out of its way.
        self._h11 = h11.Connection(h11.SERVER, 2 * self._limits.max_head_bytes + _PIPELINED_BYTES)
        self._state = ConnectionState.IDLE
        self._meter = _HeadMeter(self._limits.max_head_bytes)
        self._deadline: float | None = now + self._limits.keep_alive_timeout
        self._now = now
        self._closing = False
        self._hides_body = False
        self._is_refused = False
        self.exchange = server.open_exchange(host)

    # Bytes in

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Bytes have come from the peer."""
        self._now = now
        if self._state is ConnectionState.IDLE:
            self._begin_head()
        if self._is_refused or self._state is ConnectionState.CLOSED:
            return
        if self._state is ConnectionState.HEAD and not self._meter.feed(data):
            self._refuse("The request head is too large", "head_too_large", 431)
        elif self._state is not ConnectionState.LINGERING:
            self._h11.receive_data(data)
            self._read()

    def receive_eof(self, *, now: float) -> None:
        """The peer has closed its side; half-closed connections are not served."""
        self.connection_lost(now=now)

    def connection_lost(self, *, now: float) -> None:
        """The connection is broken or was given up. May be called any number of times."""
        self._now = now
        if self._state is not ConnectionState.CLOSED:
            self._server.receive(self.exchange, PeerGone(), now=now)
            self._close()

    # Bytes out

    def next_effect(self) -> ConnectionEffect | Idle:
        """What to do next with the connection."""
        while True:
            if self._state is ConnectionState.CLOSED:
                if self._closing:
                    return Idle.NEED_DATA
                self._closing = True
                return CloseConnection()
            effect = self._server.next_effect_of(self.exchange)
            if isinstance(effect, Idle):
                if self._h11.they_are_waiting_for_100_continue and not self.exchange.is_done:
                    return SendBytes(self._send(_CONTINUE))
                return self._idle(effect)
            data = self._encode(effect)
            if data:
                return SendBytes(data)

    def next_deadline(self) -> float | None:
        """When to call :meth:`handle_timeout`; None: no need."""
        return self._deadline

    def handle_timeout(self, *, now: float) -> None:
        """Do what is due: give up a peer that is too slow. May be called early, late, or twice."""
        self._now = now
        if self._deadline is None or now < self._deadline:
            return
        self._deadline = None
        if (
            self._state in (ConnectionState.HEAD, ConnectionState.BODY)
            and not self.exchange.is_done
        ):
            self._refuse("The request did not arrive in time", "request_timeout", 408)
        else:
            self.connection_lost(now=now)

    # Reading

    def _begin_head(self) -> None:
        self._advance(ConnectionEvent.BYTES)
        self._deadline = self._after(self._limits.head_timeout)

    def _read(self) -> None:
        """Pass on what h11 can make of the bytes so far."""
        try:
            while True:
                event = self._h11.next_event()
                match event:
                    case h11.Request():
                        self._head(event)
                    case h11.Data(data=data):
                        self._server.receive(self.exchange, BodyData(bytes(data)), now=self._now)
                    case h11.EndOfMessage():
                        self._advance(ConnectionEvent.BODY)
                        self._deadline = None
                        self._server.receive(self.exchange, BodyEnd(), now=self._now)
                    case _:
                        return
        except h11.RemoteProtocolError as error:
            self._refuse(f"Not HTTP/1.1: {error}", "malformed_http", error.error_status_hint)

    def _head(self, request: h11.Request) -> None:
        self._advance(ConnectionEvent.HEAD)
        self._deadline = self._after(self._limits.body_timeout)
        self._hides_body = request.method == b"HEAD"
        headers = tuple(request.headers)
        if request.http_version not in (b"1.0", b"1.1"):
            self._refuse("Only HTTP/1.1 is spoken here", "malformed_http", 505)
            return
        if len(headers) > self._limits.max_headers:
            self._refuse("The request has too many header lines", "head_too_large", 431)
            return
        target, headers = _origin_form(request.target, headers)
        head = RequestHead(
            method=request.method, target=target, headers=headers, principal=self._principal
        )
        self._server.receive(self.exchange, head, now=self._now)

    def _refuse(self, message: str, reason: str, status: int) -> None:
        """Say no to what the machine has not seen, or not in full, and read no more."""
        self._is_refused = True
        if not self.exchange.is_done:
            error = RemoteProtocolError(message, reason=reason, http_status=status)
            self._server.refuse(self.exchange, error, now=self._now)

    # Writing

    def _encode(self, effect: ExchangeEffect) -> bytes:
        match effect:
            case SendHead(head):
                return self._send(self._response(head))
            case SendBody(data):
                return b"" if self._hides_body else self._send(h11.Data(data=data))
            case SendEnd():
                data = self._send(h11.EndOfMessage())
                self._answered()
                return data
            case Abort():
                self._close()
                return b""
            case _ as impossible:
                never(impossible)

    def _send(
        self, event: h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage
    ) -> bytes:
        return self._h11.send(event) or b""

    def _response(self, head: ResponseHead) -> h11.Response:
        headers = list(head.headers)
        if self._is_last():
            headers.append((b"connection", b"close"))
        return h11.Response(status_code=head.status, headers=headers)

    def _answered(self) -> None:
        """The response is complete."""
        if self._is_last():
            self._advance(ConnectionEvent.REFUSED)
            self._deadline = self._after(_LINGER)
        elif self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._next_request()
        else:
            self._close()

    def _is_last(self) -> bool:
        """Whether the request that is being answered is unread, or unreadable: none can follow."""
        return self._is_refused or self._state is not ConnectionState.ANSWERING

    def _next_request(self) -> None:
        self._h11.start_next_cycle()
        self._advance(ConnectionEvent.ANSWERED)
        self._deadline = self._after(self._limits.keep_alive_timeout)
        self.exchange = self._server.open_exchange(self._host)
        self._meter = _HeadMeter(self._limits.max_head_bytes)
        pipelined = self._h11.trailing_data[0]
        if pipelined:
            self._begin_head()
            if self._meter.feed(pipelined):
                self._read()
            else:
                self._refuse("The request head is too large", "head_too_large", 431)

    def _idle(self, idle: Idle) -> Idle:
        """Nothing to send. A peer that sends its next requests ahead is read only so far."""
        is_ahead = self._state is ConnectionState.ANSWERING
        if is_ahead and len(self._h11.trailing_data[0]) > _PIPELINED_BYTES:
            return Idle.PAUSED
        return idle

    def _after(self, seconds: float) -> float:
        """A deadline from now on: time goes on for the server, too, while this peer is silent."""
        return max(self._now, self._server.now) + seconds

    def _close(self) -> None:
        self._deadline = None
        self._advance(ConnectionEvent.CLOSE)

    def _advance(self, event: ConnectionEvent) -> None:
        self._state = advance(CONNECTION, self._state, event)


class ClientConnection:
    """A connection of a client: carries its exchanges, one after the other.

    :meth:`begin` with an OpenExchange effect gives the bytes to send; then feed what comes until
    :attr:`is_done`. The parts go to the client by themselves. If :attr:`is_reusable` then, another
    exchange of the same origin may begin.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._limits = client.limits
        self._h11 = h11.Connection(h11.CLIENT, 2 * self._limits.max_head_bytes + _PIPELINED_BYTES)
        self._meter = _HeadMeter(self._limits.max_head_bytes)
        self._exchange: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether no exchange is under way."""
        return self._exchange is None

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange may begin on this connection."""
        return self.is_done and self._h11.our_state is h11.IDLE

    def begin(self, effect: OpenExchange) -> bytes:
        """Begin an exchange; returns what to send.

        Raises LocalProtocolError if one is under way already.
        """
        if not self.is_reusable:
            raise LocalProtocolError("The connection is busy or used up")
        self._exchange = effect.exchange
        self._meter = _HeadMeter(self._limits.max_head_bytes)
        head = effect.head
        headers = [(b"host", Url.parse(effect.url).authority.encode()), *head.headers]
        if effect.body or head.method == b"POST":
            headers.append((b"content-length", b"%d" % len(effect.body)))
        request = h11.Request(method=head.method, target=head.target, headers=headers)
        parts = (request, h11.Data(data=effect.body), h11.EndOfMessage())
        return b"".join(self._h11.send(part) or b"" for part in parts)

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Bytes have come from the server."""
        if self._exchange is not None:
            if not self._meter.feed(data):
                self.connection_lost("the response head is too large", now=now)
            else:
                self._h11.receive_data(data)
                self._read(now)

    def receive_eof(self, *, now: float) -> None:
        """The server has closed its side: the end of the response, or the middle of it."""
        if self._exchange is not None:
            self._h11.receive_data(b"")
            self._read(now)
            self.connection_lost("closed before the response was complete", now=now)

    def connection_lost(self, reason: str, *, now: float) -> None:
        """The connection broke or could not be made. May be called any number of times."""
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._client.receive(exchange, PeerGone(reason), now=now)

    def _read(self, now: float) -> None:
        try:
            while self._exchange is not None:
                match self._h11.next_event():
                    case h11.Response(status_code=status, headers=headers):
                        head = ResponseHead(status=status, headers=tuple(headers))
                        self._client.receive(self._exchange, head, now=now)
                    case h11.Data(data=data):
                        self._client.receive(self._exchange, BodyData(bytes(data)), now=now)
                    case h11.EndOfMessage():
                        self._end(self._exchange, now)
                    case h11.InformationalResponse():
                        pass
                    case _:
                        return
        except h11.RemoteProtocolError as error:
            is_closed = self._h11.trailing_data[1]
            if not is_closed:
                self.connection_lost(f"the response is not HTTP/1.1: {error}", now=now)

    def _end(self, exchange: int, now: float) -> None:
        self._exchange = None
        both_done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if both_done and self._h11.trailing_data == (b"", False):
            self._h11.start_next_cycle()
        self._client.receive(exchange, BodyEnd(), now=now)


def _origin_form(target: bytes, headers: Headers) -> tuple[bytes, Headers]:
    """RFC 9112 section 3.2.2: servers take an absolute target, too; it replaces ``Host``."""
    if target.startswith(b"/"):
        return target, headers
    parts = urlsplit(target)
    if parts.scheme not in (b"http", b"https") or not parts.netloc:
        return target, headers
    path = (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
    others = tuple(pair for pair in headers if pair[0] != b"host")
    return path, ((b"host", parts.netloc), *others)
