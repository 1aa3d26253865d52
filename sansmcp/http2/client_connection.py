"""The client's end of an HTTP/2 connection."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

import attrs
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import NoAvailableStreamIDError, ProtocolError

from ..effects import OpenExchange
from ..errors import RemoteProtocolError
from ..http import BodyData, BodyEnd, ConnectionLost, ResponseHead, ResponsePart, Unsent, Url
from ..limits import Limits
from .frames import Expected, FrameReader, FrameType, malformed
from .h2_connection import code_name, decode_goaway, encode_goaway, new_connection

_STREAMS_BEFORE_SETTINGS = 100
"""Streams to open before the server has said how many it takes. Source: RFC 9113 section 6.5.2."""

_STATUS = re.compile(rb"[2-5][0-9][0-9]")

_OF_CONNECTIONS = frozenset(
    (
        b"connection",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Headers that HTTP/2 does not have. Source: RFC 9113 section 8.2.2."""


@attrs.define(eq=False, repr=False)
class _Stream:
    """A stream: one exchange of the client."""

    id: int
    exchange: int
    body: memoryview
    """The rest of the request, for which there was no room in the window."""


class ClientConnection:
    """The client's end of an HTTP/2 connection, which carries many exchanges at a time.

    Call ``begin()`` and ``abort()`` at the effects of a client, and feed what arrives. After each
    call send what ``data_to_send()`` returns, and pull ``next_part()`` until None. When ``failure``
    is set, the connection is over and no part reports the exchanges that have not ended.

    Not thread-safe.

    Attributes:
        failure: why the connection has ended; None while it has not.
    """

    def __init__(self, limits: Limits) -> None:
        """Begin a connection, whose preface waits in ``data_to_send()``."""
        self.failure: RemoteProtocolError | None = None
        self._frames = FrameReader(limits, Expected.SETTINGS)
        self._h2 = new_connection(limits, is_client=True)
        self._streams: dict[int, _Stream] = {}
        self._numbers: dict[int, int] = {}
        """The number of the stream of each exchange."""
        self._waiting: dict[int, OpenExchange] = {}
        """Exchanges for which the server has no streams yet, in order."""
        self._blocked: dict[_Stream, None] = {}
        """The streams that wait for room in a window."""
        self._parts: deque[tuple[int, ResponsePart]] = deque()
        self._max_streams = _STREAMS_BEFORE_SETTINGS
        self._refusal = ""
        """Why no stream can be opened any more; empty if one can."""
        self._last_words = b""

    def begin(self, effect: OpenExchange) -> None:
        """Begin an exchange, or let it wait until the server takes another one.

        If the server is going away, the exchange is lost at once.
        """
        if self._refusal:
            self._lose(effect.exchange, self._refusal, Unsent.PERMANENT)
        else:
            self._waiting[effect.exchange] = effect
            self._open_streams()

    def abort(self, exchange: int) -> None:
        """Abort an exchange: reset its stream. Without effect if it has ended."""
        self._waiting.pop(exchange, None)
        number = self._numbers.get(exchange)
        if number is not None:
            self._forget(self._streams[number])
            if self.failure is None:
                self._h2.reset_stream(number, ErrorCodes.CANCEL)
                self._open_streams()

    def close(self) -> None:
        """Tell the server that no exchange follows."""
        self._refusal = "the client was closed"
        self._last_words = encode_goaway(0)

    def data_to_send(self) -> bytes:
        """Return the bytes to send, and forget them."""
        last_words, self._last_words = self._last_words, b""
        return self._h2.data_to_send() + last_words

    def next_part(self) -> tuple[int, ResponsePart] | None:
        """Return the next part of a response with the number of its exchange, or None."""
        return self._parts.popleft() if self._parts else None

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed bytes from the server.

        Args:
            data: the bytes.
            now: the current time in seconds, on the machine's clock.
        """
        if self.failure is not None:
            return
        self._frames.receive(data)
        try:
            while (frame := self._frames.next_frame(now)) is not None:
                if frame.type == FrameType.GOAWAY:
                    self._on_goaway(frame.payload)
                else:
                    self._on_events(self._h2.receive_data(frame.data), now)
        except ProtocolError as error:  # h2 has queued a GOAWAY frame with its code
            self._fail(malformed(error))
        except RemoteProtocolError as error:
            is_flood = error.reason == "http2_flood"
            self._h2.close_connection(
                ErrorCodes.ENHANCE_YOUR_CALM if is_flood else ErrorCodes.PROTOCOL_ERROR
            )
            self._fail(error)

    # Reading

    def _on_events(self, events: Iterable[Event], now: float) -> None:
        """Act on the events of one frame."""
        for event in events:
            match event:
                case ResponseReceived(stream_id=number) if number in self._streams:
                    self._on_response(self._streams[number], event)
                case InformationalResponseReceived():
                    self._frames.spend(now)
                case DataReceived(stream_id=number) if number in self._streams:
                    self._on_data(self._streams[number], event)
                case StreamEnded(stream_id=number) if number in self._streams:
                    self._on_end(self._streams[number])
                case StreamReset(stream_id=number) if number in self._streams:
                    self._on_reset(self._streams[number], int(event.error_code or 0))
                case WindowUpdated(stream_id=number) if number in self._streams:
                    self._send(self._streams[number])
                case RemoteSettingsChanged():
                    self._max_streams = self._h2.remote_settings.max_concurrent_streams
                    self._send_blocked()
                    self._open_streams()
                case WindowUpdated(stream_id=0):
                    self._send_blocked()
                case _:
                    pass

    def _on_response(self, stream: _Stream, event: ResponseReceived) -> None:
        given = [(bytes(name), bytes(value)) for name, value in event.headers or ()]
        status = dict(given)[b":status"]
        if _STATUS.fullmatch(status) is None:
            raise malformed(f"a response with the status {status[:20]!r}")
        headers = tuple(pair for pair in given if not pair[0].startswith(b":"))
        self._parts.append((stream.exchange, ResponseHead(status=int(status), headers=headers)))

    def _on_data(self, stream: _Stream, event: DataReceived) -> None:
        assert event.flow_controlled_length is not None
        self._h2.acknowledge_received_data(event.flow_controlled_length, stream.id)
        if event.data:
            self._parts.append((stream.exchange, BodyData(event.data)))

    def _on_end(self, stream: _Stream) -> None:
        self._forget(stream)
        if stream.body:  # the server needs no more of the request to refuse it
            self._h2.reset_stream(stream.id, ErrorCodes.NO_ERROR)
        self._parts.append((stream.exchange, BodyEnd()))
        self._open_streams()

    def _on_reset(self, stream: _Stream, code: int) -> None:
        self._forget(stream)
        is_refused = code == ErrorCodes.REFUSED_STREAM
        reason = f"the server has reset the stream ({code_name(code)})"
        self._lose(stream.exchange, reason, Unsent.REFUSED if is_refused else None)
        self._open_streams()

    def _on_goaway(self, payload: bytes) -> None:
        """End the exchanges that the server will not handle, and open no other.

        Source: RFC 9113 section 6.8.
        """
        last, code = decode_goaway(payload)
        reason = f"the server is going away ({code_name(code)})"
        for stream in tuple(self._streams.values()):
            if stream.id > last:
                self._forget(stream)
                self._lose(stream.exchange, reason, Unsent.PERMANENT)
        self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        """Open no streams any more, and lose the exchanges that wait for one."""
        self._refusal = reason
        for exchange in self._waiting:
            self._lose(exchange, reason, Unsent.PERMANENT)
        self._waiting.clear()

    def _fail(self, error: RemoteProtocolError) -> None:
        self.failure = error
        self._refuse(error.message)

    def _lose(self, exchange: int, reason: str, unsent: Unsent | None) -> None:
        self._parts.append((exchange, ConnectionLost(reason, unsent)))

    def _forget(self, stream: _Stream) -> None:
        del self._streams[stream.id], self._numbers[stream.exchange]
        self._blocked.pop(stream, None)

    # Writing

    def _open_streams(self) -> None:
        """Open streams for the exchanges that wait, as many as the server takes."""
        while self._waiting and len(self._streams) < self._max_streams:
            effect = self._waiting.pop(next(iter(self._waiting)))
            try:
                number = self._h2.get_next_available_stream_id()
            except NoAvailableStreamIDError:  # after a thousand million exchanges
                self._waiting[effect.exchange] = effect
                self._refuse("the connection has no streams left")
                return
            stream = _Stream(number, effect.exchange, memoryview(effect.body))
            self._streams[number] = stream
            self._numbers[effect.exchange] = number
            self._h2.send_headers(number, _headers_of(effect), end_stream=not effect.body)
            self._send(stream)

    def _send(self, stream: _Stream) -> None:
        """Send what there is room for of a request."""
        while stream.body:
            room = self._h2.local_flow_control_window(stream.id)
            if room <= 0:
                self._blocked[stream] = None
                return
            most = min(room, self._h2.max_outbound_frame_size)
            piece, stream.body = stream.body[:most], stream.body[most:]
            self._h2.send_data(stream.id, bytes(piece), end_stream=not stream.body)
            self._frames.earn(len(piece))
        self._blocked.pop(stream, None)

    def _send_blocked(self) -> None:
        for stream in tuple(self._blocked):
            self._send(stream)


def _headers_of(effect: OpenExchange) -> list[tuple[bytes, bytes]]:
    head, url = effect.head, Url.parse(effect.url)
    headers = [
        (b":method", head.method),
        (b":scheme", url.scheme.encode()),
        (b":authority", url.authority.encode()),
        (b":path", head.target),
        *(pair for pair in head.headers if pair[0] not in _OF_CONNECTIONS),
    ]
    if effect.body or head.method == b"POST":
        headers.append((b"content-length", b"%d" % len(effect.body)))
    return headers
