"""A server's end of a connection."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs

from ..codecs.headers import Headers
from ..effects import (
    Abort,
    CloseConnection,
    ConnectionEffect,
    ExchangeEffect,
    SendBody,
    SendBytes,
    SendEnd,
    SendHead,
)
from ..errors import RemoteProtocolError
from ..h11_pump import HTTP11
from ..http import BodyData, BodyEnd, PeerGone, RequestHead, ResponseHead
from ..server.server import Server
from ..states import CONNECTION, ConnectionEvent, ConnectionState, advance
from ..types import Idle, never
from .meter import HeadMeter

_LINGER = 2.0
"""Seconds for a refused peer to stop sending and read its answer. nginx: 5."""

_PIPELINED_BYTES = 64 * 1024
"""How much of the next requests is read while one is answered."""

_PIECE = 16 * 1024
"""How much the wire is given at once: it may copy what it cannot use yet."""

_READING = (ConnectionState.HEAD, ConnectionState.BODY)
_OVER = (ConnectionState.LINGERING, ConnectionState.CLOSED)


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
        self._wire = (server.http11 or HTTP11).server(self._limits)
        self._state = ConnectionState.IDLE
        self._ahead = bytearray()
        self._meter = HeadMeter(self._limits.max_head_bytes)
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
        if not self._is_refused and self._state not in _OVER:
            self._ahead += data
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
                if self._wire.waits_for_continue and not self.exchange.is_done:
                    return SendBytes(self._wire.continue_())
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
        if self._state in _READING and not self.exchange.is_done:
            message = "The request did not arrive in time"
            error = RemoteProtocolError(message, reason="request_timeout", http_status=408)
            self._refuse(error)
        else:
            self.connection_lost(now=now)

    # Reading

    def _begin_head(self) -> None:
        self._advance(ConnectionEvent.BYTES)
        self._deadline = self._after(self._limits.head_timeout)

    def _read(self) -> None:
        """Pass on what the wire can make of the bytes so far."""
        try:
            while True:
                part = self._wire.next_part()
                if part is None:
                    if not self._ahead or self._state not in _READING or not self._feed():
                        return
                    continue
                if isinstance(part, RequestHead):
                    self._head(part)
                else:
                    if isinstance(part, BodyEnd):
                        self._advance(ConnectionEvent.BODY)
                        self._deadline = None
                    self._server.receive(self.exchange, part, now=self._now)
        except RemoteProtocolError as error:
            self._refuse(error)

    def _feed(self) -> bool:
        """Give the wire a little more; False if it is too much."""
        piece = bytes(self._ahead[:_PIECE])
        del self._ahead[:_PIECE]
        if self._measure(piece):
            self._wire.receive(piece)
        return not self._is_refused

    def _measure(self, piece: bytes) -> bool:
        is_fine = self._state is not ConnectionState.HEAD or self._meter.feed(piece)
        if not is_fine:
            self._refuse(_too_large("The request head is too large"))
        return is_fine

    def _head(self, head: RequestHead) -> None:
        self._advance(ConnectionEvent.HEAD)
        self._deadline = self._after(self._limits.body_timeout)
        self._hides_body = head.method == b"HEAD"
        if len(head.headers) > self._limits.max_headers:
            self._refuse(_too_large("The request has too many header lines"))
            return
        target, headers = _origin_form(head.target, head.headers)
        head = attrs.evolve(head, target=target, headers=headers, principal=self._principal)
        self._server.receive(self.exchange, head, now=self._now)

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Say no to what the machine has not seen, or not in full, and read no more."""
        self._is_refused = True
        if not self.exchange.is_done:
            self._server.refuse(self.exchange, error, now=self._now)

    # Writing

    def _encode(self, effect: ExchangeEffect) -> bytes:
        match effect:
            case SendHead(head):
                return self._wire.send(self._response(head))
            case SendBody(data):
                return b"" if self._hides_body else self._wire.send(BodyData(data))
            case SendEnd():
                data = self._wire.send(BodyEnd())
                self._answered()
                return data
            case Abort():
                self._close()
                return b""
            case _ as impossible:
                never(impossible)

    def _response(self, head: ResponseHead) -> ResponseHead:
        if self._is_last():
            head = attrs.evolve(head, headers=(*head.headers, (b"connection", b"close")))
        return head

    def _answered(self) -> None:
        """The response is complete."""
        if self._is_last():
            self._advance(ConnectionEvent.REFUSED)
            self._deadline = self._after(_LINGER)
        elif self._wire.is_reusable:
            self._next_request()
        else:
            self._close()

    def _is_last(self) -> bool:
        """Whether the request that is being answered is unread, or unreadable: none can follow."""
        return self._is_refused or self._state is not ConnectionState.ANSWERING

    def _next_request(self) -> None:
        self._advance(ConnectionEvent.ANSWERED)
        self._deadline = self._after(self._limits.keep_alive_timeout)
        self.exchange = self._server.open_exchange(self._host)
        self._meter = HeadMeter(self._limits.max_head_bytes)
        pipelined = self._wire.next_request()
        if pipelined or self._ahead:
            self._begin_head()
            if self._measure(pipelined):
                self._read()

    def _idle(self, idle: Idle) -> Idle:
        """Nothing to send. A peer that sends its next requests ahead is read only so far."""
        return Idle.PAUSED if len(self._ahead) > _PIPELINED_BYTES else idle

    def _after(self, seconds: float) -> float:
        """A deadline from now on: time goes on for the server, too, while this peer is silent."""
        return max(self._now, self._server.now) + seconds

    def _close(self) -> None:
        self._deadline = None
        self._advance(ConnectionEvent.CLOSE)

    def _advance(self, event: ConnectionEvent) -> None:
        self._state = advance(CONNECTION, self._state, event)


def _too_large(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, reason="head_too_large", http_status=431)


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
