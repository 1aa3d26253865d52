"""A server's end of a connection, by httptools."""

from __future__ import annotations

import httptools

from ..http import RequestHead
from ..wire import malformed
from .reader import Reader, framing


class ServerWire(Reader[RequestHead, httptools.HttpRequestParser]):
    """Implements :class:`sansmcp.wire.ServerWire`."""

    is_http_1_1: bool
    """Whether the request says so; until it has come, too."""
    _target: bytes

    def next_request(self) -> bytes:
        """Begin the next request."""
        self._begin()
        return bytes(self._buffer)

    def on_url(self, url: bytes) -> None:
        """The target of the request."""
        self._target = url

    def _begin(self) -> None:
        super()._begin()
        self.is_http_1_1 = True

    def _new_parser(self) -> httptools.HttpRequestParser:
        return httptools.HttpRequestParser(self)

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

    def _length(self, head: RequestHead) -> float | None:
        return framing(head.headers, 0)
