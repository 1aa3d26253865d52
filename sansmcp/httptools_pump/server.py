"""A server's end of a connection, by httptools."""

from __future__ import annotations

import httptools

from ..codecs.headers import get, get_all
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..types import never
from ..wire import malformed
from . import writer
from .reader import Reader, framing


class ServerWire(Reader[RequestHead, httptools.HttpRequestParser]):
    """Implements :class:`sansmcp.wire.ServerWire`."""

    _in_chunks: bool
    _target: bytes

    @property
    def waits_for_continue(self) -> bool:
        """Whether the client waits for leave to send its body."""
        return self._waits

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow."""
        return self._is_complete and self._is_answered and self._keeps_alive

    def next_part(self) -> RequestHead | BodyData | BodyEnd | None:
        """The next part of the request."""
        part = super().next_part()
        if isinstance(part, BodyData | BodyEnd):
            self._waits = False
        return part

    def continue_(self) -> bytes:
        """Give leave to send the body."""
        self._waits = False
        return writer.head(b"HTTP/1.1 100 Continue", ())

    def send(self, part: ResponseHead | BodyData | BodyEnd) -> bytes:
        """A part of the response."""
        match part:
            case ResponseHead():
                return self._response(part)
            case BodyData(data):
                return writer.chunk(data) if self._in_chunks else data
            case BodyEnd():
                self._is_answered = True
                return writer.LAST_CHUNK if self._in_chunks else b""
            case _ as impossible:
                never(impossible)

    def next_request(self) -> bytes:
        """Begin the next request."""
        self._begin()
        return bytes(self._buffer)

    def on_url(self, url: bytes) -> None:
        """The target of the request."""
        self._target = url

    def _begin(self) -> None:
        super()._begin()
        self._waits = False
        self._is_answered = False
        self._keeps_alive = False
        self._in_chunks = False
        self._is_head = False
        self._is_http_1_1 = True  # until it is known

    def _new_parser(self) -> httptools.HttpRequestParser:
        return httptools.HttpRequestParser(self)

    def _head(self, parser: httptools.HttpRequestParser) -> RequestHead:
        headers, version = tuple(self._headers), parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise malformed(f"version {version}", 505)
        hosts = get_all(headers, b"host")
        self._is_http_1_1 = version == "1.1"
        if len(hosts) > 1 or (self._is_http_1_1 and not hosts):
            raise malformed("there must be one header Host")
        if parser.should_upgrade() and get(headers, b"transfer-encoding") is not None:
            raise malformed("an upgrade with a body in chunks")  # which httptools would not read
        self._keeps_alive = self._is_http_1_1 and parser.should_keep_alive()
        expect = get(headers, b"expect") or b""
        self._waits = self._is_http_1_1 and expect.lower() == b"100-continue"
        method = parser.get_method()
        self._is_head = method == b"HEAD"
        return RequestHead(method=method, target=self._target, headers=headers)

    def _length(self, head: RequestHead) -> float | None:
        return framing(head.headers, 0)

    def _response(self, head: ResponseHead) -> bytes:
        self._waits = False
        headers = head.headers
        has_body = not (self._is_head or head.status in (204, 304))
        if has_body and get(headers, b"content-length") is None:
            self._in_chunks = self._is_http_1_1
            self._keeps_alive &= self._is_http_1_1  # else the connection is the end of the body
            if self._in_chunks:
                headers = (*headers, (b"transfer-encoding", b"chunked"))
        if (get(headers, b"connection") or b"").lower() == b"close":
            self._keeps_alive = False
        elif not self._keeps_alive:
            headers = (*headers, (b"connection", b"close"))
        return writer.head(b"HTTP/1.1 %d " % head.status, headers)
