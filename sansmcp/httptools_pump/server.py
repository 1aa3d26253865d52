"""A server's end of a connection, by httptools: one request at a time.

The parser reads on as long as there are bytes. So it gets a head as a whole, and nothing of what
comes after it; a body of known length needs no parser; one in chunks is fed line by line, for it
ends with a line. What follows a request is still in the buffer then.
"""

from __future__ import annotations

import re
from collections import deque

import httptools

from ..http import BodyData, BodyEnd, RequestHead
from ..limits import Limits
from ..wire import malformed

_END_OF_HEAD = re.compile(rb"\n\r?\n")


class ServerWire:
    """Implements :class:`sansmcp.wire.ServerWire`. The methods with ``on_`` are for the parser."""

    is_http_1_1: bool
    """Whether the request says so; until it has come, too."""
    _parser: httptools.HttpRequestParser
    _target: bytes

    def __init__(self, limits: Limits) -> None:
        self._most_between = limits.max_head_bytes
        self._buffer = bytearray()
        self._parts: deque[RequestHead | BodyData | BodyEnd] = deque()
        self._begin()

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        self._buffer += data

    def next_part(self) -> RequestHead | BodyData | BodyEnd | None:
        """The next part of the request."""
        while not self._parts:
            if self._is_complete or not self._buffer or not self._read():
                return None
        return self._parts.popleft()

    def next_request(self) -> bytes:
        """Begin the next request."""
        self._begin()
        return bytes(self._buffer)

    def on_url(self, url: bytes) -> None:
        """The target of the request."""
        self._target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or a trailer, which means nothing here."""
        if not self._in_body:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._in_body = True

    def on_body(self, data: bytes) -> None:
        """A piece of a body in chunks."""
        self._between = 0
        self._parts.append(BodyData(data))

    def on_message_complete(self) -> None:
        """The request is complete: a body in chunks, or anything else that the parser may think."""
        if self._is_chunked:
            self._end()

    def _begin(self) -> None:
        """The next request begins."""
        self.is_http_1_1 = True
        self._searched = 0  # no head ends before this
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_body = False
        self._is_chunked = False
        self._is_complete = False
        self._left = 0  # of a body that does not come in chunks
        self._between = 0  # bytes since the last piece of a body in chunks

    def _end(self) -> None:
        self._is_complete = True
        self._parts.append(BodyEnd())

    def _read(self) -> bool:
        """Read what belongs together for sure; False if that has not come."""
        if not self._in_body:
            end = _END_OF_HEAD.search(self._buffer, self._searched)
            if end is None:
                self._searched = max(len(self._buffer) - 2, 0)
                return False
            self._read_head(self._take(end.end()))
        elif self._is_chunked:
            self._read_chunks(self._take(self._buffer.find(b"\n") + 1 or len(self._buffer)))
        else:
            data = self._take(min(self._left, len(self._buffer)))
            self._left -= len(data)
            self._parts.append(BodyData(data))
            if not self._left:
                self._end()
        return True

    def _read_head(self, data: bytes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._feed(data)
        if not self._in_body:
            raise malformed("no request")
        head = self._head(self._parser)
        self._parts.append(head)
        codings, lengths = head.values(b"transfer-encoding"), head.values(b"content-length")
        self._is_chunked = bool(codings) and codings[0].lower().endswith(b"chunked")
        if not self._is_chunked:
            self._left = int(lengths[0]) if lengths else 0  # the parser has checked it
            if not self._left:
                self._end()

    def _head(self, parser: httptools.HttpRequestParser) -> RequestHead:
        method, version = parser.get_method(), parser.get_http_version()
        head = RequestHead(method=method, target=self._target, headers=tuple(self._headers))
        if version not in ("1.0", "1.1"):
            raise malformed(f"version {version}", 505)
        hosts = head.values(b"host")
        self.is_http_1_1 = version == "1.1"
        if len(hosts) > 1 or (self.is_http_1_1 and not hosts):
            raise malformed("there must be one header Host")
        if parser.should_upgrade() and head.values(b"transfer-encoding"):
            raise malformed("an upgrade with a body in chunks")  # which httptools would not read
        return head

    def _read_chunks(self, data: bytes) -> None:
        self._between += len(data)
        self._feed(data)
        if self._between > self._most_between:
            raise malformed("chunks that carry nothing")

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nobody takes it up
        except httptools.HttpParserError as error:
            raise malformed(error) from None

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
