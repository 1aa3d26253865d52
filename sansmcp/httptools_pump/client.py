"""A client's end of a connection, by httptools."""

from __future__ import annotations

import math

import httptools

from ..codecs.framing import encode_head
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from .reader import Reader, framing


class ClientWire(Reader[ResponseHead, httptools.HttpResponseParser]):
    """Implements :class:`sansmcp.wire.ClientWire`."""

    is_ready = True
    """Whether a request may be sent."""

    def send(self, head: RequestHead, body: bytes) -> bytes:
        """A request."""
        self.is_ready = False
        return encode_head(b"%b %b HTTP/1.1" % (head.method, head.target), head.headers) + body

    def receive(self, data: bytes) -> None:
        """Bytes have come, or will come no more."""
        super().receive(data)
        if not data:
            self._keeps_alive = False
            if self._in_body and self._left == math.inf:
                self._end()

    def next_part(self) -> ResponseHead | BodyData | BodyEnd | None:
        """The next part of the response."""
        while isinstance(part := super().next_part(), ResponseHead) and part.status < 200:
            super().next_part()  # its end
            self._begin()
        if isinstance(part, BodyEnd) and self._keeps_alive and not self._buffer:
            self._begin()
            self.is_ready = True
        return part

    def _new_parser(self) -> httptools.HttpResponseParser:
        return httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        """The head is complete. Only now does the parser know whether the connection stays open."""
        super().on_headers_complete()
        self._keeps_alive = self._parser.should_keep_alive()

    def _head(self, parser: httptools.HttpResponseParser) -> ResponseHead:
        return ResponseHead(status=parser.get_status_code(), headers=tuple(self._headers))

    def _length(self, head: ResponseHead) -> float | None:
        if head.status < 200 or head.status in (204, 304):
            return 0
        length = framing(head.headers, math.inf)
        self._keeps_alive &= length != math.inf
        return length
