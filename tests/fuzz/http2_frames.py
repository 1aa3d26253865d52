"""HTTP/2 as the parts of an input: what each part is as bytes, and what the machines send.

A part is one frame: a byte each for its type, flags and stream, then the payload. Its length is
that of the payload, and a payload of headers that begins with a name is text, a line for each
header. Thus most mutations reach what is behind the framing. What begins with ``RAW`` is sent as it
is, and what begins with ``MANY`` is sent 500 times, each on the next stream but for those of the
connection.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import attrs
from hpack import Decoder, Encoder

from sansmcp.http2.frames import MAX_FRAME_BYTES, PREFACE, FrameType

END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
RST_STREAM = 0x3
REPEATED = 500

_HEAD_BYTES = 9
_TEXT = re.compile(rb":?[a-z-]+: ")
_OF_HEADERS = (FrameType.HEADERS, FrameType.PUSH_PROMISE, FrameType.CONTINUATION)


def part(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return the part of an input that stands for a frame."""
    return bytes((kind, flags, stream)) + payload


def header_lines(headers: dict[str, str]) -> bytes:
    """Return the text of headers in a part."""
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """Return the bytes of a frame."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


@attrs.define
class FrameWriter:
    """Writes the frames of one end of a connection."""

    encoder: Encoder = attrs.field(factory=Encoder)

    def headers(self, lines: bytes) -> bytes:
        """Return a header block."""
        found = (line.partition(b": ") for line in lines.split(b"\r\n") if line)
        return bytes(self.encoder.encode([(name, value) for name, _, value in found]))

    def written(self, part: bytes) -> bytes:
        """Return the bytes of a part."""
        if part.startswith(b"RAW"):
            return part[3:]
        if part.startswith(b"MANY"):
            return b"".join(self._frame(part[4:], 2 * each) for each in range(REPEATED))
        return self._frame(part)

    def _frame(self, part: bytes, further: int = 0) -> bytes:
        kind, flags, stream = part[:3].ljust(3, b"\0")
        payload = part[3:]
        if kind in _OF_HEADERS and _TEXT.match(payload):
            payload = self.headers(payload)
        return frame(kind, payload, flags=flags, stream=stream + further * (stream > 0))


@attrs.define
class SentFrames:
    """Reads what a machine sends, and asserts what holds for it whatever its peer has sent."""

    has_preface: bool
    decoder: Decoder = attrs.field(factory=Decoder)
    heads: dict[int, dict[bytes, bytes]] = attrs.field(factory=dict[int, dict[bytes, bytes]])
    bodies: dict[int, bytes] = attrs.field(factory=lambda: defaultdict[int, bytes](bytes))
    """What was sent on each stream."""
    ended: set[int] = attrs.field(factory=set[int])
    """Streams that were ended or reset."""
    reset: set[int] = attrs.field(factory=set[int])
    _unread: bytes = b""

    def receive(self, data: bytes) -> list[int]:
        """Read bytes, and return the streams that are complete since then."""
        self._unread += data
        if self.has_preface:
            assert self._unread.startswith(PREFACE)
            self._unread, self.has_preface = self._unread[len(PREFACE) :], False
        return [stream for kind, stream in self._frames() if kind != RST_STREAM]

    def _frames(self) -> Iterator[tuple[int, int]]:
        """Yield the type and the stream of each frame that ends a stream."""
        while self._unread:
            length = int.from_bytes(self._unread[:3], "big")
            assert length <= MAX_FRAME_BYTES, "a frame that is too long"
            assert len(self._unread) >= _HEAD_BYTES + length, "a frame that is not complete"
            kind, flags = self._unread[3:5]
            stream = int.from_bytes(self._unread[5:_HEAD_BYTES], "big")
            payload = self._unread[_HEAD_BYTES : _HEAD_BYTES + length]
            self._unread = self._unread[_HEAD_BYTES + length :]
            if kind == RST_STREAM:
                self.reset.add(stream)  # several times if the peer goes on
                yield kind, stream
            if kind not in (FrameType.HEADERS, FrameType.DATA):
                continue
            assert stream not in self.ended | self.reset, "a stream goes on after its end"
            if kind == FrameType.HEADERS:
                assert flags & END_HEADERS, "a header block in several frames"
                self.heads[stream] = dict(self.decoder.decode(payload, raw=True))
            else:
                self.bodies[stream] += payload
            if flags & END_STREAM:
                self.ended.add(stream)
                yield kind, stream
