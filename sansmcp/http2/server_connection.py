"""The server's end of an HTTP/2 connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError

from ..codecs import jsonrpc
from ..codecs.ndjson import encode_line
from ..effects import (
    Abort,
    CloseConnection,
    ConnectionEffect,
    SendBody,
    SendBytes,
    SendEnd,
    SendHead,
)
from ..errors import RemoteProtocolError
from ..http import BodyData, BodyEnd, ConnectionLost, RequestHead, ResponseHead
from ..server.exchange import ServerExchange
from ..server.server import Server
from ..types import Idle, assert_never
from .frames import Expected, FrameReader, FrameType, malformed
from .h2_connection import encode_goaway, new_connection

_BYTES_IN_A_TURN = 256 * 1024
"""Bytes of bodies that are sent before other connections have their turn, and before this one reads
again. Windows of the peer can allow any number.
"""


@attrs.define(eq=False, repr=False)
class _Stream:
    """A stream: one exchange of the server. It is the ``driver`` of its exchange.

    It has no attribute ``connection``: no address is known of the peer.
    """

    owner: ServerConnection
    exchange: ServerExchange = attrs.field(init=False)
    id: int = attrs.field(default=0, init=False)
    """The number of the stream; 0 before its request."""
    is_received: bool = attrs.field(default=False, init=False)
    """True if the request is complete."""
    body: memoryview = attrs.field(default=memoryview(b""), init=False)
    """The rest of a piece of the response, for which there is no room in the window."""
    kept_back: int = attrs.field(default=0, init=False)
    """Received bytes for which the peer may not send others, while the exchange is paused."""
    is_paused: bool = attrs.field(default=False, init=False)

    def wake(self) -> None:
        """Pull the effects of the exchange. Drivers call this at a Wake effect."""
        self.owner.wake_stream(self)


class ServerConnection:
    """The server's end of an HTTP/2 connection: bytes in, bytes out.

    Drive it like a :class:`sansmcp.ServerConnection`: feed ``receive_data``, ``receive_eof`` and
    ``connection_lost``, then pull ``next_effect`` until ``Idle`` and perform each effect before the
    next. On ``Idle.NEED_DATA`` read. On ``Idle.PAUSED`` do not read until the driver is woken, or
    ``next_deadline()`` has come, which can be the present: let other connections have their turn,
    then call ``handle_timeout()``. A Wake effect of the server leads to ``driver.wake()``.

    A stream carries one exchange. A stream that is reset, by either side, ends its exchange and no
    other. What ends the connection (its loss, a frame that breaks HTTP/2, a flood) ends them all.

    Not thread-safe.
    """

    def __init__(
        self, server: Server, *, driver: Any = None, graceful_timeout: float = 5.0, now: float
    ) -> None:
        """Begin to serve a connection.

        Args:
            server: the machine that handles the requests.
            driver: an object with a method ``wake()``, which pulls the effects of this connection.
            graceful_timeout: seconds that running calls get to finish when the input has ended.
            now: the current time in seconds, on the machine's clock.
        """
        server.now = now
        self._server = server
        self._driver = driver
        self._grace = graceful_timeout
        self._frames = FrameReader(server.limits, Expected.PREFACE)
        self._h2 = new_connection(server.limits, is_client=False)
        self._last_words = b""
        """What is sent instead of HTTP/2 to a client that does not speak it."""
        self._streams: dict[int, _Stream] = {}
        self._ready: dict[_Stream, None] = {}
        """The streams whose exchanges may have effects to pull."""
        self._blocked: dict[_Stream, None] = {}
        """The streams that wait for room in a window."""
        self._left_in_turn = _BYTES_IN_A_TURN
        self._deadline: float | None = None
        """When the connection is closed after the end of the input; None before that end."""
        self._is_leaving = False
        self._is_over = False
        self._is_closed = False
        self._next = self._new_stream()
        """The stream of the next request: it tells if the server can take another one."""

    # Bytes in

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed bytes from the peer. Pull ``next_effect()`` afterwards."""
        self._server.now = now
        self._left_in_turn = _BYTES_IN_A_TURN
        if self._is_over or self._deadline is not None:
            return
        self._frames.receive(data)
        try:
            while (frame := self._frames.next_frame(now)) is not None:
                if frame.type != FrameType.GOAWAY:  # after which a client opens no stream
                    self._on_events(self._h2.receive_data(frame.data))
        except ProtocolError as error:  # h2 has queued a GOAWAY frame with its code
            self._fail(malformed(error))
        except RemoteProtocolError as error:
            if error.reason == "not_http2":
                self._last_words = encode_line(jsonrpc.encode(error.reply))
            else:
                is_flood = error.reason == "http2_flood"
                code = ErrorCodes.ENHANCE_YOUR_CALM if is_flood else ErrorCodes.FRAME_SIZE_ERROR
                self._h2.close_connection(code)
            self._fail(error)

    def receive_eof(self, *, now: float) -> None:
        """Report the end of the input.

        Running calls get ``graceful_timeout`` seconds to finish, but a response for which the peer
        has left no room is lost. Then the connection is closed. Pull ``next_effect()`` afterwards.
        """
        self._server.now = now
        if self._deadline is None:
            self._deadline = now + self._grace

    def connection_lost(self, *, now: float) -> None:
        """Report that the connection is lost. Running calls are cancelled.

        Repeated calls are safe. Pull ``next_effect()`` afterwards.
        """
        self._server.now = now
        self._h2.clear_outbound_data_buffer()
        self._end()

    # Bytes out

    def next_effect(self) -> ConnectionEffect | Idle:
        """Return the next effect: SendBytes, CloseConnection, or ``Idle`` if there is none.

        ``Idle.PAUSED``: do not read from the peer until the driver is woken.
        """
        if self._deadline is not None:  # calls may have ended whose Wake effects were not performed
            self._ready.update(dict.fromkeys(self._streams.values()))
        self._pull_streams()
        is_open = self._frames.expects is Expected.FRAMES and not self._is_over
        if self._server.is_leaving and is_open and not self._is_leaving:
            self._is_leaving = True
            return SendBytes(self._h2.data_to_send() + encode_goaway())
        if data := self._take_bytes():
            return SendBytes(data)
        if self._deadline is not None and not (self._streams and self._server.is_busy):
            self._end()
        if self._is_closed:
            return Idle.NEED_DATA
        if self._is_over:
            self._is_closed = True
            return CloseConnection()
        if self._is_resting:
            return Idle.PAUSED
        idle = self._server.next_effect_of(self._next.exchange)
        assert isinstance(idle, Idle), "there is no request to respond to"
        return idle

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout()``, or None for never."""
        if self._is_over:
            return None
        return self._server.now if self._is_resting else self._deadline

    def handle_timeout(self, *, now: float) -> None:
        """Send on after a turn, or close the connection if the calls took too long to finish.

        Early, late and repeated calls are safe. Pull ``next_effect()`` afterwards.
        """
        self._server.now = now
        self._left_in_turn = _BYTES_IN_A_TURN
        if self._deadline is not None and now >= self._deadline:
            self._end()

    def wake_stream(self, stream: _Stream) -> None:
        """Pull the effects of a stream, whose exchange has some. Streams call this."""
        if self._streams.get(stream.id) is stream:
            self._ready[stream] = None
        self._driver.wake()

    # Reading

    def _on_events(self, events: Iterable[Event]) -> None:
        """Act on the events of one frame."""
        for event in events:
            match event:
                case RequestReceived():
                    self._on_request(event)
                case DataReceived(stream_id=number) if number in self._streams:
                    self._on_data(self._streams[number], event)
                case StreamEnded(stream_id=number) if number in self._streams:
                    stream = self._streams[number]
                    stream.is_received = True
                    self._feed(stream, BodyEnd())
                case StreamReset(stream_id=number) if number in self._streams:
                    self._drop(self._streams[number])
                case WindowUpdated(stream_id=number) if number in self._streams:
                    self._unblock((self._streams[number],))
                case WindowUpdated(stream_id=0) | RemoteSettingsChanged():
                    self._unblock(tuple(self._blocked))
                case _:
                    pass

    def _on_request(self, event: RequestReceived) -> None:
        stream, self._next = self._next, self._new_stream()
        assert event.stream_id is not None
        stream.id = event.stream_id
        self._streams[stream.id] = stream
        head = _request_head(event)
        if len(head.headers) > self._server.limits.max_headers:
            message = "The request has too many headers"
            error = RemoteProtocolError(message, reason="head_too_large", http_status=431)
            self._server.refuse(stream.exchange, error, now=self._server.now)
            self._ready[stream] = None
        else:
            self._feed(stream, head)

    def _on_data(self, stream: _Stream, event: DataReceived) -> None:
        assert event.flow_controlled_length is not None
        stream.kept_back += event.flow_controlled_length
        self._feed(stream, BodyData(event.data or b""))
        self._let_send(stream)

    def _feed(self, stream: _Stream, part: RequestHead | BodyData | BodyEnd) -> None:
        stream.exchange.expect_pull()
        self._ready[stream] = None
        self._server.receive_part(stream.exchange, part, now=self._server.now)

    def _let_send(self, stream: _Stream) -> None:
        """Let the peer send as many bytes again, unless the exchange is paused."""
        if stream.kept_back and not stream.is_paused:
            self._h2.acknowledge_received_data(stream.kept_back, stream.id)
            stream.kept_back = 0

    # Writing

    @property
    def _is_resting(self) -> bool:
        """True if streams that have more to send wait for the next turn."""
        return bool(self._ready) and not self._is_over

    def _pull_streams(self) -> None:
        """Send what the exchanges have to send, as far as there is room and this turn goes."""
        while self._ready and self._left_in_turn > 0:
            stream = next(iter(self._ready))
            del self._ready[stream]
            if not self._send(stream):
                self._ready[stream] = None

    def _send(self, stream: _Stream) -> bool:
        """Send one piece of a stream, or all that has no body. Return False if there may be more.

        So the streams that have much to send take turns, too.
        """
        exchange = stream.exchange
        while True:
            if (stream.body or exchange.unsent) and not exchange.is_given_up:
                # What is not pulled counts as unsent: a slow reader delays its own handler.
                room = self._h2.local_flow_control_window(stream.id)
                if room <= 0:
                    self._blocked[stream] = None
                    exchange.mark_idle()  # it can be given up meanwhile
                    return True
                if stream.body:
                    self._send_piece(stream, room)
                    return False
            effect = self._server.next_effect_of(exchange)
            match effect:
                case SendHead(head):
                    self._h2.send_headers(stream.id, _response_headers(head))
                case SendBody(data):
                    stream.body = memoryview(data)
                case SendEnd():
                    self._h2.end_stream(stream.id)
                    self._leave(stream, ErrorCodes.NO_ERROR)
                    return True
                case Abort():
                    stream.body, stream.is_received = memoryview(b""), False
                    self._leave(stream, ErrorCodes.INTERNAL_ERROR)
                    return True
                case Idle():
                    stream.is_paused = effect is Idle.PAUSED
                    self._let_send(stream)
                    return True
                case _ as impossible:
                    assert_never(impossible)

    def _send_piece(self, stream: _Stream, room: int) -> None:
        most = min(room, self._h2.max_outbound_frame_size, self._left_in_turn)
        piece, stream.body = stream.body[:most], stream.body[most:]
        self._h2.send_data(stream.id, bytes(piece))
        self._frames.earn(len(piece))
        self._left_in_turn -= len(piece)

    def _unblock(self, streams: Iterable[_Stream]) -> None:
        for stream in streams:
            if stream in self._blocked:
                del self._blocked[stream]
                self._ready[stream] = None

    def _take_bytes(self) -> bytes:
        """Return the bytes that wait to be sent; none before the peer has proven to speak HTTP/2.

        So a client that speaks something else gets an error that it can read.
        """
        if self._frames.expects is Expected.FRAMES:
            return self._h2.data_to_send()
        last_words, self._last_words = self._last_words, b""
        return last_words

    # Ending

    def _leave(self, stream: _Stream, code: ErrorCodes) -> None:
        """Forget a stream whose response has ended; reset it if its request has not.

        Source: RFC 9113 section 8.1.
        """
        del self._streams[stream.id]
        if not stream.is_received:
            self._h2.reset_stream(stream.id, code)
        stream.is_paused = False
        self._let_send(stream)

    def _drop(self, stream: _Stream) -> None:
        """End the exchange of a stream that is gone."""
        del self._streams[stream.id]
        self._ready.pop(stream, None)
        self._blocked.pop(stream, None)
        stream.body, stream.is_paused = memoryview(b""), False
        self._let_send(stream)
        self._server.receive_part(stream.exchange, ConnectionLost(), now=self._server.now)

    def _fail(self, error: RemoteProtocolError) -> None:
        """End the connection because of what the peer has sent, and report it."""
        self._server.refuse(self._next.exchange, error, now=self._server.now)
        self._end()

    def _end(self) -> None:
        """End all exchanges; what waits to be sent is still sent."""
        if not self._is_over:
            self._is_over = True
            for stream in (*self._streams.values(), self._next):
                self._server.receive_part(stream.exchange, ConnectionLost(), now=self._server.now)
            self._streams.clear()
            self._ready.clear()
            self._blocked.clear()

    def _new_stream(self) -> _Stream:
        stream = _Stream(self)
        stream.exchange = self._server.open_exchange(stream)
        return stream


def _request_head(event: RequestReceived) -> RequestHead:
    """Return the head of a request. ``h2`` has checked which of the pseudo-headers there are."""
    given = [(bytes(name), bytes(value)) for name, value in event.headers or ()]
    pseudo = {name: value for name, value in given if name.startswith(b":")}
    headers = [pair for pair in given if not pair[0].startswith(b":")]
    if b":authority" in pseudo:
        headers = [pair for pair in headers if pair[0] != b"host"]
        headers.insert(0, (b"host", pseudo[b":authority"]))
    return RequestHead(
        method=pseudo[b":method"], target=pseudo.get(b":path", b""), headers=tuple(headers)
    )


def _response_headers(head: ResponseHead) -> list[tuple[bytes, bytes]]:
    return [(b":status", b"%d" % head.status), *head.headers]
