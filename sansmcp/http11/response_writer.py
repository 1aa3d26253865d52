"""Writing HTTP/1.1 responses.

Source: RFC 9112 sections 6, 7.1 and 9.6.
"""

from __future__ import annotations

import enum

import attrs

from ..codecs.headers import get, options
from ..codecs.http11_framing import LAST_CHUNK, encode_chunk, encode_head
from ..http import RequestHead, ResponseHead
from ..types import FastEnum


class _Body(FastEnum):
    """How a response has its body."""

    PLAIN = enum.auto()
    """As it is. Its length is in the head, or it ends with the connection."""
    CHUNKED = enum.auto()
    NONE = enum.auto()
    """The response to HEAD has no body."""


_PLAIN, _CHUNKED, _NONE = _Body  # which are compared for each response


@attrs.define(eq=False, repr=False)
class ResponseWriter:
    """Writes the response to a request, and to further ones with the same head.

    The defaults serve a request that could not be parsed: its response is one of HTTP/1.1.
    """

    _is_http_1_1: bool = True
    _body: _Body = _PLAIN
    keeps_alive: bool = True
    """True if another request may follow on the connection."""

    @classmethod
    def for_request(cls, head: RequestHead, *, is_http_1_1: bool) -> ResponseWriter:
        """Return the writer of the response to a request."""
        connection = head.values(b"connection")
        is_last = bool(connection) and b"close" in options(connection)
        body = _NONE if head.method == b"HEAD" else _PLAIN
        return cls(is_http_1_1, body, is_http_1_1 and not is_last)

    def head(self, head: ResponseHead, *, is_last: bool) -> bytes:
        """Return the bytes of the head. ``is_last`` adds ``connection: close``."""
        headers = head.headers
        if get(headers, b"content-length") is None and self._is_http_1_1:
            if self._body is _PLAIN:
                self._body = _CHUNKED
            headers = (*headers, (b"transfer-encoding", b"chunked"))
        if is_last or not self.keeps_alive:
            self.keeps_alive = False
            headers = (*headers, (b"connection", b"close"))
        return encode_head(b"HTTP/1.1 %d " % head.status, headers)

    def body(self, data: bytes) -> bytes:
        """Return the bytes of a piece of the body; none in response to HEAD."""
        if self._body is _NONE:
            return b""
        return encode_chunk(data) if self._body is _CHUNKED else data

    def end(self) -> bytes:
        """Return the bytes that end the body."""
        if self._body is not _CHUNKED:
            return b""
        self._body = _PLAIN
        return LAST_CHUNK

    def response(self, head: ResponseHead, body: bytes, *, is_last: bool) -> bytes:
        """Return the bytes of a complete response."""
        data = self.head(head, is_last=is_last)
        if self._body is _CHUNKED:
            return data + self.body(body) + self.end()
        return data if self._body is _NONE else data + body
