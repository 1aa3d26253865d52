"""The server's end of an HTTP/1.1 connection."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import attrs

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
from ..h11_parser import HTTP11
from ..http import BodyEnd, ConnectionLost, RequestHead, ResponseHead
from ..http11_parser import malformed
from ..server.server import Server
from ..states import CONNECTION, ConnectionEvent, ConnectionState, ExchangeState, advance
from ..types import Idle, assert_never
from .message_parser import RequestParser, head_too_large
from .response_writer import ResponseWriter

_NEED_DATA: Final = Idle.NEED_DATA
_DONE: Final = ExchangeState.DONE
_CLOSED: Final = ConnectionState.CLOSED
_ANSWERING: Final = ConnectionState.ANSWERING
_IDLE: Final = ConnectionState.IDLE
_BYTES: Final = ConnectionEvent.BYTES
_HEAD: Final = ConnectionEvent.HEAD
_BODY: Final = ConnectionEvent.BODY
_ANSWERED: Final = ConnectionEvent.ANSWERED

_LINGER = 2.0
"""Seconds for a refused peer to stop sending and read its response. nginx: 5."""

_PIPELINED_BYTES = 64 * 1024
"""Bytes of the next requests that may wait, before reading pauses, while one is handled."""

_RESPONSES_IN_A_TURN = 16
"""Pipelined requests that are handled one after the other before other connections have their turn.
A single read can bring ten thousand requests, which would hold up an event loop for seconds.
"""

_REFUSALS_IN_A_ROW = 100
"""Responses with an error status, one after the other, after which the connection is closed. A
client that has reasons for them opens another one, and a flood of requests ends here.
"""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_READING = (ConnectionState.HEAD, ConnectionState.BODY)
_OVER = (ConnectionState.LINGERING, ConnectionState.CLOSED)


class ServerConnection:
    """The server's end of an HTTP/1.1 connection: bytes in, bytes out.

    Feed ``receive_data``, ``receive_eof`` and ``connection_lost``, then pull ``next_effect`` until
    ``Idle`` and perform each effect before the next. On ``Idle.NEED_DATA`` read. On ``Idle.PAUSED``
    do not read until the server names ``exchange`` in a Wake effect, or ``next_deadline()`` has
    come; ``exchange.driver`` is the ``driver`` given here. That deadline can be the present: let
    other connections have their turn, then call ``handle_timeout()``. Always pull after you feed:
    there is no Wake effect for that.

    Not thread-safe.

    Attributes:
        exchange: the exchange of the present request, or of the next one.
        principal: the user of all requests, set by the driver before the first byte; empty if it
            does not know one. With ``authentication`` the result of that replaces it.
    """

    def __init__(self, server: Server, *, driver: Any = None, now: float) -> None:
        """Begin to serve an accepted connection.

        Args:
            server: the machine that handles the requests.
            driver: any object of the driver; it is the ``driver`` of every exchange of this
                connection, so that a Wake effect leads to it.
            now: the current time in seconds, on the machine's clock.
        """
        self._server = server
        self._driver = driver
        self._limits = server.limits
        self._timeouts = {
            ConnectionState.IDLE: self._limits.keep_alive_timeout,
            ConnectionState.HEAD: self._limits.head_timeout,
            ConnectionState.BODY: self._limits.body_timeout,
            ConnectionState.LINGERING: _LINGER,
        }
        """Seconds that the connection may stay in a state; others have no timeout."""
        http11 = server.http11 or HTTP11
        self._reader = RequestParser(http11.read_request_head, self._limits.max_head_bytes)
        self._writer = ResponseWriter()
        self._state = _IDLE
        server.now = now
        self._since: float | None = now
        """When the present state began; None once its timeout was handled."""
        self._closing = False
        self._is_refused = False
        self._expects_continue = False
        """True if the head of the last request asks for an interim response."""
        self._must_send_continue = False
        self._responses = 0
        """Responses since the driver last fed the machine."""
        self._is_resting = False
        """True while a request that has arrived waits for the next turn."""
        self._refusals = 0
        """Error responses since the last other one."""
        self._is_checked = False
        """True if the head of the last request has passed the checks of heads."""
        self.principal = ""
        self.exchange = server.open_exchange(driver)

    # Bytes in

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed bytes from the peer. Pull ``next_effect()`` afterwards.

        After a refusal and while lingering, bytes are discarded.
        """
        self._server.now = now
        self.exchange.expect_pull()
        if self._is_refused or self._state in _OVER:
            return
        self._reader.receive(data)
        self._begin_turn()

    def receive_eof(self, *, now: float) -> None:
        """Report that the peer closed its side, which ends the connection.

        Half-closed connections are not supported.
        """
        self.connection_lost(now=now)

    def connection_lost(self, *, now: float) -> None:
        """Report that the connection is lost, or is to be closed. Repeated calls are safe.

        Pull ``next_effect()`` afterwards: the next effect is CloseConnection.
        """
        self._server.now = now
        self._is_resting = False
        if self._state is not _CLOSED:
            self._server.receive_part(self.exchange, ConnectionLost(), now=now)
            self._advance(ConnectionEvent.CLOSE)

    # Bytes out

    def next_effect(self) -> ConnectionEffect | Idle:
        """Return the next effect: SendBytes, CloseConnection, or ``Idle`` if there is none.

        ``Idle.PAUSED``: do not read from the peer until a Wake effect names ``exchange``.
        """
        exchange, idle = self.exchange, _NEED_DATA
        if exchange.state is _DONE and self._state is not _CLOSED:
            response = self._server.next_response_of(exchange)
            if response is not None:
                return SendBytes(self._encode_response(*response))
        pieces: list[bytes] = []
        while self._state is not _CLOSED and exchange is self.exchange:
            effect = self._server.next_effect_of(exchange)
            if isinstance(effect, Idle):
                idle = effect
                break
            pieces.append(self._encode(effect))
        if data := b"".join(pieces):
            return SendBytes(data)
        if self._state is _CLOSED:
            if self._closing:
                return _NEED_DATA
            self._closing = True
            return CloseConnection()
        if self._must_send_continue and not exchange.is_done:
            self._must_send_continue = False
            return SendBytes(_CONTINUE)
        if self._is_resting:
            return Idle.PAUSED
        # A peer may send its next requests before the response (pipelining): bound what waits.
        is_ahead = self._state not in _READING and self._reader.waiting > _PIPELINED_BYTES
        return Idle.PAUSED if is_ahead else idle

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout()``, or None for never."""
        if self._is_resting:
            return self._since
        timeout = self._timeouts.get(self._state)
        return None if timeout is None or self._since is None else self._since + timeout

    def handle_timeout(self, *, now: float) -> None:
        """Refuse the request, or close the connection, if its deadline has passed.

        Early, late and repeated calls are safe. Pull ``next_effect()`` afterwards.
        """
        self._server.now = now
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        if self._is_resting:
            self._begin_turn()
            return
        self._since = None
        if self._state in _READING and not self.exchange.is_done:
            message = "The request did not arrive in time"
            error = RemoteProtocolError(message, reason="request_timeout", http_status=408)
            self._refuse(error)
        else:
            self.connection_lost(now=now)

    # Reading

    def _begin_turn(self) -> None:
        """Read on: the driver has fed the machine, or other connections have had their turn."""
        self._responses, self._is_resting = 0, False
        if self._state is _IDLE and self._reader.has_request():
            self._advance(_BYTES)
        self._read()

    def _read(self) -> None:
        """Pass the parts that have arrived of the present request to the server."""
        now = self._server.now
        try:
            while self._state in _READING and not self._is_refused:
                part = self._reader.next_part()
                if part is None:
                    return
                if isinstance(part, RequestHead):
                    self._head(part, now)
                    body = None if self._is_refused else self._reader.take_body()
                    if body is not None:
                        self._must_send_continue = False
                        self._advance(_BODY, now)
                        self._server.receive_body(self.exchange, body, now=now)
                    continue
                self._must_send_continue = False
                if isinstance(part, BodyEnd):
                    self._advance(_BODY, now)
                self._server.receive_part(self.exchange, part, now=now)
        except RemoteProtocolError as error:
            self._refuse(error)

    def _head(self, head: RequestHead, now: float) -> None:
        self._advance(_HEAD, now)
        if not self._reader.is_repeated:  # else the writer and the other things are as they were
            self._writer = ResponseWriter.for_request(head, is_http_1_1=self._reader.is_http_1_1)
            if len(head.headers) > self._limits.max_headers:
                self._refuse(head_too_large("The request has too many header lines"), head)
                return
            is_expected = b"100-continue" in map(bytes.lower, head.values(b"expect"))
            self._expects_continue = is_expected and self._reader.is_http_1_1
        self._must_send_continue = self._expects_continue
        if not head.target.startswith(b"/"):
            try:
                head = _origin_form(head)
            except RemoteProtocolError as error:
                self._refuse(error, head)
                return
        self.exchange.has_checked_head = self._is_checked and self._reader.is_repeated
        if self.principal:
            head = attrs.evolve(head, principal=self.principal)
        self._server.receive_part(self.exchange, head, now=now)

    def _refuse(self, error: RemoteProtocolError, head: RequestHead | None = None) -> None:
        """Refuse a request that the server has not seen in full, and read no more.

        ``head``: the head of the request, if the server has not seen it either. Otherwise what can
        be read of it is used. Then the response cannot be written as one to the request before,
        which may have been HEAD.
        """
        self._is_refused = True
        if self.exchange.state is ExchangeState.HEAD:
            head = head or self._reader.readable_head()
            self._writer = ResponseWriter.for_request(head, is_http_1_1=True)
            self._server.refuse(self.exchange, error, head=head, now=self._server.now)
        elif not self.exchange.is_done:
            self._server.refuse(self.exchange, error, now=self._server.now)

    # Writing

    def _encode(self, effect: ExchangeEffect) -> bytes:
        match effect:  # patterns that bind names would take twice as long
            case SendHead():
                self._count_refusals(effect.head.status)
                is_last = self._is_last() or self._server.is_leaving
                return self._writer.head(effect.head, is_last=is_last)
            case SendBody():
                return self._writer.body(effect.data)
            case SendEnd():
                data = self._writer.end()
                self._answered()
                return data
            case Abort():
                self._advance(ConnectionEvent.CLOSE)
                return b""
            case _ as impossible:
                assert_never(impossible)

    def _encode_response(self, head: ResponseHead, body: bytes) -> bytes:
        """Return the bytes of a complete response."""
        self._count_refusals(head.status)
        data = self._writer.response(head, body, is_last=self._is_last() or self._server.is_leaving)
        self._answered()
        return data

    def _count_refusals(self, status: int) -> None:
        """Make this response the last one if too many refusals precede it."""
        self._refusals = self._refusals + 1 if status >= 400 else 0
        if self._refusals >= _REFUSALS_IN_A_ROW:
            self._is_refused = True

    def _answered(self) -> None:
        """Handle the end of a response."""
        if self._is_last():
            self._advance(ConnectionEvent.REFUSED)
        elif self._writer.keeps_alive:
            self._next_request()
        else:
            self._advance(ConnectionEvent.CLOSE)

    def _is_last(self) -> bool:
        """True if no other request can follow, because this one was refused or not read in full."""
        return self._is_refused or self._state is not _ANSWERING

    def _next_request(self) -> None:
        self._advance(_ANSWERED)
        self._is_checked = self.exchange.has_checked_head
        self.exchange = self._server.open_exchange(self._driver)
        self._responses += 1
        if not self._reader.has_request():
            return
        if self._responses >= _RESPONSES_IN_A_TURN:
            self._is_resting = True
        else:
            self._advance(_BYTES)
            self._read()

    def _advance(self, event: ConnectionEvent, now: float | None = None) -> None:
        self._state = advance(CONNECTION, self._state, event)
        self._since = self._server.now if now is None else now


def _origin_form(head: RequestHead) -> RequestHead:
    """Return a head whose absolute target is split into the origin form and ``Host``.

    Servers must accept the absolute form, and its host replaces the header.

    Raises RemoteProtocolError (``malformed_http``) if the target has no host, or one that is not
    valid (RFC 9110 section 4.2.1).

    Source: RFC 9112 section 3.2.2.
    """
    try:
        parts = urlsplit(head.target)
    except ValueError as error:  # an unmatched bracket, or bytes that are not ASCII
        raise malformed(f"the target {head.target[:50]!r}: {error}") from None
    if parts.scheme not in (b"http", b"https"):
        return head
    if not parts.netloc:
        raise malformed(f"the target {head.target[:50]!r} has no host")
    path = (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
    others = tuple(pair for pair in head.headers if pair[0] != b"host")
    return attrs.evolve(head, target=path, headers=((b"host", parts.netloc), *others))
