"""Parsing HTTP/1.1 messages: the ends of heads, and bodies. Heads go to an ``Http11Parser``.

Source: RFC 9112 sections 2.2, 6, 7.1 and 9.3; RFC 9110 section 6.5.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Sequence
from typing import Generic

import attrs

from ..codecs.headers import get_all, options
from ..errors import RemoteProtocolError
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..http11_parser import HeadParser, Http11Parser, malformed
from .known_head import Head, KnownHead, remember

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_END_OF_LINE = re.compile(rb"\n")
"""Matches a line that ends in LF alone, too, so that it is refused at once."""
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
_INTERIM = re.compile(rb"HTTP/1\.1 1(?!01)[0-9][0-9][ \r\n]")
"""Any interim response but 101 (Switching Protocols), which we never request."""
_TLS_HANDSHAKE = 0x16
"""The first byte of a TLS connection. Source: RFC 8446, 5.1."""
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
"""At most 18 digits, which no real body exceeds; int() raises ValueError for thousands of them."""

_HEADS_TO_WAIT = 2
"""A head that is too large is refused when it is complete, or has so many times the limit."""

_MOST_MISSES = 8
"""After so many heads in a row that differ, e.g. by a trace, a connection keeps none any more."""


def parser_of(http11: Http11Parser | None) -> Http11Parser:
    """Return the parser of heads that a setting ``http11`` names; None for h11.

    A client with another parser, or on pipes, does without ``h11``, so it is imported here.
    """
    if http11 is not None:
        return http11
    from ..h11_parser import HTTP11

    return HTTP11


def head_too_large(what: str) -> RemoteProtocolError:
    """Return the refusal of a head that is too large."""
    return RemoteProtocolError(what, reason="head_too_large", http_status=431)


@attrs.define(eq=False, repr=False)
class _Buffer:
    """Bytes that have arrived and are not parsed yet."""

    limit: int
    """The most bytes of a head, or of a line between the chunks of a chunked body."""
    waiting: bytearray = attrs.field(factory=bytearray, init=False)
    is_closed: bool = attrs.field(default=False, init=False)
    """True if no more bytes will arrive."""
    _searched: int = attrs.field(default=0, init=False)
    """The offset before which no end mark begins."""

    def take(self, count: int) -> bytes:
        """Remove and return ``count`` bytes, or fewer if fewer have arrived."""
        taken = bytes(self.waiting[:count])
        del self.waiting[:count]
        self._searched = 0
        return taken

    def take_head(self, *, is_waited_for: bool = False) -> bytes:
        """Remove and return a head; b"" until it is complete.

        Raises RemoteProtocolError if it is larger than the limit; with ``is_waited_for`` when it is
        complete, or has twice that size.
        """
        end = self._end_of(_END_OF_HEAD)
        most = _HEADS_TO_WAIT * self.limit if is_waited_for and not end else self.limit
        if (end or len(self.waiting)) > most:
            raise head_too_large("The head is too large")
        return self.take(end) if end else b""

    def take_line(self) -> bytes:
        """Remove and return a line between the chunks of a body; b"" until it is complete."""
        end = self._end_of(_END_OF_LINE)
        if (end or len(self.waiting)) > self.limit:
            raise malformed("a line between chunks that is too long")
        return self.take(end) if end else b""

    def _end_of(self, mark: re.Pattern[bytes]) -> int:
        """Return where a mark ends, which has at most three bytes; 0 until it arrives."""
        found = mark.search(self.waiting, self._searched)
        if found is not None:
            return found.end()
        self._searched = max(len(self.waiting) - 2, 0)
        return 0


class _Parser(abc.ABC, Generic[Head]):
    """Parses the bytes of one connection into the parts of its messages."""

    is_http_1_1 = True
    """True if the last message was of HTTP/1.1, False for 1.0."""
    is_repeated = False
    """True if the last head was the one before with another length or name, or with the same."""
    _known: KnownHead[Head] | None = None
    """The last head that was parsed."""
    _misses = 0
    """Heads in a row that were not repeated."""

    def __init__(self, read_head: HeadParser[Head], limit: int) -> None:
        """``limit``: the most bytes of a head."""
        self._read_head = read_head
        self._buffer = _Buffer(limit)
        self._body: Iterator[bytes] | None = None

    def receive(self, data: bytes) -> None:
        """Add bytes that have arrived; b"" means that no more will arrive."""
        self._buffer.waiting += data
        self._buffer.is_closed = not data

    def next_part(self) -> Head | BodyData | BodyEnd | None:
        """Return the next part of a message; None if more bytes are needed.

        Raises RemoteProtocolError (``malformed_http``, ``head_too_large``) if the bytes are not
        HTTP/1.1.
        """
        if self._body is None:
            return self._next_head()
        data = next(self._body, None)
        if data is None:
            self._body = None
            return BodyEnd()
        return BodyData(data) if data else None

    @abc.abstractmethod
    def _next_head(self) -> Head | None:
        """Return the next head and prepare to parse its body; None if more bytes are needed."""

    def _head_of(self, data: bytes) -> Head:
        """Return what the bytes of a head say. They are parsed, unless the last one is repeated."""
        known = None if self._known is None else self._known.read(data)
        self.is_repeated = known is not None
        if known is not None:
            self._misses = 0
            return known
        self._misses += 1
        head, self.is_http_1_1 = self._read_head(data)
        self._known = remember(data, head) if self._misses < _MOST_MISSES else None
        return head


class RequestParser(_Parser[RequestHead]):
    """Parses the requests that a server reads."""

    _length: int | None = None
    """Bytes of the body of the last request; None if it comes in chunks."""
    _refused = b""
    """The bytes of a whole head that was refused."""

    @property
    def waiting(self) -> int:
        """The number of bytes that have arrived and are not parsed yet."""
        return len(self._buffer.waiting)

    def has_request(self) -> bool:
        """Return True if bytes of another request have arrived. Call it between two requests only.

        Empty lines before a request are dropped: some clients send one after a body (RFC 9112
        section 2.2).
        """
        waiting = self._buffer.waiting
        if waiting.startswith(b"\r") and (lines := _EMPTY_LINES.match(waiting)) is not None:
            self._buffer.take(lines.end())
        return len(waiting) > 1 or not b"\r".startswith(waiting)

    def _next_head(self) -> RequestHead | None:
        if not self.has_request():
            return None
        if self._buffer.waiting[0] == _TLS_HANDSHAKE:  # it may never bring the end of a head
            raise malformed("TLS, at a server without TLS; write http:// instead of https://")
        # Browsers send their own lines after those of the page, so ``Origin`` may come after the
        # limit, and without it the page cannot read why its request is refused.
        data = self._buffer.take_head(is_waited_for=True)
        if not data:
            return None
        try:
            head = self._head_of(data)
            lengths = head.values(b"content-length")
            if codings := head.values(b"transfer-encoding"):
                self._length = None
                self._body = _read_coded(self._buffer, codings, lengths)
            else:
                self._length = _length(lengths[0]) if lengths else 0
                self._body = _read_length(self._buffer, self._length)
        except RemoteProtocolError:
            self._refused = data
            raise
        return head

    def readable_head(self) -> RequestHead:
        """Return what can be read of a head that was refused, or that has not arrived in full.

        It has the header lines that are complete and well-formed, and is for the refusal alone: a
        request with such a head is not served.
        """
        arrived = self._refused or bytes(
            self._buffer.waiting[: _HEADS_TO_WAIT * self._buffer.limit]
        )
        end = _END_OF_HEAD.search(arrived)
        first, *lines = arrived[: end and end.end()].split(b"\n")[:-1] or [b""]
        words = first.rstrip(b"\r").split(b" ")
        method, target = words[:2] if len(words) == 3 else (b"", b"")
        fields = (_FIELD.fullmatch(line.removesuffix(b"\r")) for line in lines)
        headers = tuple((each[1].lower(), each[2].strip()) for each in fields if each is not None)
        return RequestHead(method=method, target=target, headers=headers)

    def take_body(self) -> bytes | None:
        """Return the whole body, if it has arrived and its length is known; else None.

        Call it right after the head, instead of :meth:`next_part`.
        """
        if self._length is None or self._length > len(self._buffer.waiting):
            return None
        self._body = None
        return self._buffer.take(self._length) if self._length else b""


class ResponseParser(_Parser[ResponseHead]):
    """Parses the responses that a client reads, and skips interim responses."""

    _keeps_alive = True

    @property
    def is_ready(self) -> bool:
        """True if another response may follow: the last one is complete, and no bytes are left."""
        return self._keeps_alive and self._body is None and not self._buffer.waiting

    def _next_head(self) -> ResponseHead | None:
        while data := self._buffer.take_head():
            if _INTERIM.match(data) is None:
                head = self._head_of(data)
                if not self.is_repeated:
                    is_last = b"close" in options(get_all(head.headers, b"connection"))
                    self._keeps_alive = self.is_http_1_1 and not is_last
                self._body = self._body_of(head)
                return head
        return None

    def _body_of(self, head: ResponseHead) -> Iterator[bytes]:
        if head.status < 200:
            raise malformed(f"a response with status {head.status}")
        if head.status in (204, 304):
            return iter(())
        lengths = get_all(head.headers, b"content-length")
        if codings := get_all(head.headers, b"transfer-encoding"):
            return _read_coded(self._buffer, codings, lengths)
        if lengths:
            return _read_length(self._buffer, _length(lengths[0]))
        self._keeps_alive = False
        return _read_until_close(self._buffer)


# The generators of a body yield its pieces, and b"" when more bytes are needed.


def _read_coded(
    buffer: _Buffer, codings: Sequence[bytes], lengths: Sequence[bytes]
) -> Iterator[bytes]:
    # Request smuggling: a proxy before us may have used the length (RFC 9112, section 6.3).
    if lengths:
        raise malformed("both content-length and transfer-encoding")
    if [coding.lower() for coding in codings] != [b"chunked"]:
        raise malformed(f"a transfer encoding other than chunked: {codings!r}", 501)
    return _read_chunked(buffer)


def _length(value: bytes) -> int:
    if _LENGTH.fullmatch(value) is None:
        raise malformed(f"a content-length of {value[:50]!r}")
    return int(value)


def _read_length(buffer: _Buffer, left: int) -> Iterator[bytes]:
    while left:
        data = buffer.take(left)
        left -= len(data)
        yield data


def _read_until_close(buffer: _Buffer) -> Iterator[bytes]:
    while buffer.waiting or not buffer.is_closed:
        yield buffer.take(len(buffer.waiting))


def _read_chunked(buffer: _Buffer) -> Iterator[bytes]:
    """Yield the data of chunks. Extensions and trailers are ignored, but must be well-formed."""
    while True:
        while not (line := buffer.take_line()):
            yield b""
        size = _SIZE.fullmatch(line)
        if size is None:
            raise malformed(f"not the size of a chunk: {line[:50]!r}")
        if not int(size[1], 16):
            break
        yield from _read_length(buffer, int(size[1], 16))
        while len(buffer.waiting) < 2 and b"\r\n".startswith(buffer.waiting):
            yield b""
        if buffer.take(2) != b"\r\n":
            raise malformed("a chunk that is longer than its size")
    trailers = 0
    while line != b"\r\n":
        while not (line := buffer.take_line()):
            yield b""
        if line != b"\r\n" and _TRAILER.fullmatch(line) is None:
            raise malformed(f"not a trailer: {line[:50]!r}")
        trailers += len(line)
        if trailers > buffer.limit:
            raise malformed("trailers that are too large")
