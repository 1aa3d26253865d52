"""Splitting the bytes of an HTTP/2 connection into frames, with bounds on what frames may cost.

``h2`` reports nothing of a piece of input in which a frame is faulty, and stores a frame of any
announced length until it is complete. So it gets one complete frame at a time, after the checks
that a frame's first nine bytes allow.

Source: RFC 9113 sections 3.4, 4.1, 4.3 and 6; section 10.5.
"""

from __future__ import annotations

import enum
import math

import attrs

from ..codecs.tolerant import glimpse
from ..errors import RemoteProtocolError
from ..limits import Limits
from ..types import FastEnum, elide

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""

MAX_FRAME_BYTES = 16_384
"""The largest payload of a frame that either end accepts: the smallest maximum that there may be.
"""

_HEAD_BYTES = 9

_USELESS_PER_SECOND = 200
_USELESS_AT_ONCE = 2000
"""Frames that carry nothing, before the connection ends. A client that cancels all of its calls at
once sends a thousand. nghttp2: 1,000 resets at once, and 33 a second.
"""

_BYTES_FOR_ONE = 1024
"""Sent bytes for which the peer may send one more such frame: it opens windows as it reads."""

_END_HEADERS = 0x4
_END_STREAM = 0x1


class FrameType(enum.IntEnum):
    """The types of frames that are handled here."""

    DATA = 0x0
    HEADERS = 0x1
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    GOAWAY = 0x7
    CONTINUATION = 0x9


_HEADER_BLOCKS = (FrameType.HEADERS, FrameType.PUSH_PROMISE, FrameType.CONTINUATION)


@attrs.frozen
class Frame:
    """A complete frame.

    Attributes:
        type: its type; one of ``FrameType``, or another number.
        data: all of its bytes, the nine before the payload included.
    """

    type: int
    data: bytes

    @property
    def payload(self) -> bytes:
        """The bytes after the first nine."""
        return self.data[_HEAD_BYTES:]


class Expected(FastEnum):
    """What a peer is to send next."""

    PREFACE = enum.auto()
    """The preface of a client, before its first frame."""
    SETTINGS = enum.auto()
    """The first frame of a server."""
    FRAMES = enum.auto()


@attrs.define(eq=False, repr=False)
class FrameReader:
    """Splits what a peer sends into frames.

    Attributes:
        expects: what comes next. FRAMES once the peer has proven that it speaks HTTP/2.
    """

    _limits: Limits
    expects: Expected
    _buffer: bytearray = attrs.field(factory=bytearray, init=False)
    _header_bytes: int = attrs.field(default=0, init=False)
    """Bytes of the header block that is not complete."""
    _full_at: float = attrs.field(default=-math.inf, init=False)
    """When the peer may send ``_USELESS_AT_ONCE`` frames again that carry nothing."""

    def receive(self, data: bytes) -> None:
        """Add bytes of the peer."""
        self._buffer += data

    def next_frame(self, now: float) -> Frame | None:
        """Return the next frame; None if it is not complete.

        Raises:
            RemoteProtocolError: ``not_http2`` if the peer speaks something else; ``http2_flood`` or
                ``malformed_http2`` for a frame that is not accepted. Do not call this again.
        """
        if self.expects is not Expected.FRAMES and not self._open():
            return None
        if len(self._buffer) < _HEAD_BYTES:
            return None
        length = int.from_bytes(self._buffer[:3], "big")
        if length > MAX_FRAME_BYTES:
            raise malformed(f"a frame of {length} bytes{self._if_text()}")
        kind, flags = self._buffer[3], self._buffer[4]
        if kind in _HEADER_BLOCKS and self._header_bytes + length > self._limits.max_head_bytes:
            raise flood(f"a header block of more than {self._limits.max_head_bytes} bytes")
        if len(self._buffer) < _HEAD_BYTES + length:
            return None
        data = bytes(self._buffer[: _HEAD_BYTES + length])
        del self._buffer[: _HEAD_BYTES + length]
        if kind in _HEADER_BLOCKS:
            self._header_bytes = 0 if flags & _END_HEADERS else self._header_bytes + length
        elif kind != FrameType.DATA or not (length or flags & _END_STREAM):
            self.spend(now)
        return Frame(kind, data)

    def spend(self, now: float) -> None:
        """Count a frame that carries nothing. Raises RemoteProtocolError if there are too many."""
        self._full_at = max(self._full_at, now) + 1 / _USELESS_PER_SECOND
        if self._full_at - now > _USELESS_AT_ONCE / _USELESS_PER_SECOND:
            raise flood("too many frames that carry nothing, such as resets, pings and settings")

    def earn(self, sent: int) -> None:
        """Let the peer send more frames that carry nothing, for ``sent`` bytes that it was sent."""
        self._full_at -= sent / _BYTES_FOR_ONE / _USELESS_PER_SECOND

    def _open(self) -> bool:
        """Return True if the connection has begun as HTTP/2. Raises RemoteProtocolError."""
        begun = self._buffer[: len(PREFACE)]
        if self.expects is Expected.PREFACE:
            if not PREFACE.startswith(begun):
                return self._refuse()
            if len(begun) < len(PREFACE):
                return False
            del self._buffer[: len(PREFACE)]
        else:
            # The first frame is SETTINGS, of stream 0, and shorter than 64 KiB.
            if not b"\0".startswith(begun[:1]):
                return self._refuse()
            if len(begun) < _HEAD_BYTES:
                return False
            if begun[3] != FrameType.SETTINGS or any(begun[5:_HEAD_BYTES]):
                return self._refuse()
        self.expects = Expected.FRAMES
        return True

    def _refuse(self) -> bool:
        """Raise RemoteProtocolError, which quotes the first line, when that has arrived."""
        line, end, _ = self._buffer.partition(b"\n")
        if not end and len(line) < self._limits.max_head_bytes:
            return False
        of_client = self.expects is Expected.PREFACE
        raise not_http2(bytes(line[: self._limits.max_head_bytes]), of_client=of_client)

    def _if_text(self) -> str:
        """Return what to add to the text of an error if the next bytes are no frame, but text."""
        text = self._buffer[:_HEAD_BYTES].decode("latin-1")
        if not all(each.isascii() and (each.isprintable() or each in "\t\r\n") for each in text):
            return ""
        return f", which begin with the text {text!r}: does it print to standard output?"


def malformed(what: object) -> RemoteProtocolError:
    """Return the error for bytes that are not HTTP/2."""
    return RemoteProtocolError(f"Not HTTP/2: {what}", reason="malformed_http2")


def flood(what: str) -> RemoteProtocolError:
    """Return the error for a peer that sends more than is accepted."""
    return RemoteProtocolError(f"The peer has sent {what}", reason="http2_flood")


def not_http2(line: bytes, *, of_client: bool) -> RemoteProtocolError:
    """Return the error for a peer that begins with a line of text.

    Args:
        line: the line. If it is a request, the error responds to it.
        of_client: True if the peer is a client.
    """
    peer, other = ("client", "server") if of_client else ("server", "client")
    if line.lstrip()[:1] in (b"{", b"["):
        what = f"The {peer} speaks stdio (lines of JSON), and this {other} stdio-v2 (HTTP/2)"
        advice = "set the same transport for both"
    else:
        what = f"The {peer} has sent {elide(line, 200)} instead of HTTP/2 (stdio-v2)"
        advice = "nothing else may write to these pipes"
    asked = glimpse(line).asked
    is_request = asked is not None
    return RemoteProtocolError(
        f"{what}; {advice}", reason="not_http2", request_id=asked, is_request=is_request
    )
