"""Writing the response to a request, which is the same whoever has read the request.

Source: RFC 9112 sections 6, 7.1 and 9.6.
"""

from __future__ import annotations

import attrs

from ..codecs.headers import get, options
from ..codecs.http11_framing import LAST_CHUNK, encode_chunk, encode_head
from ..http import RequestHead, ResponseHead


@attrs.define(eq=False, repr=False)
class ResponseWriter:
    """Writes the response to one request.

    Without a request that could be read, as to one of HTTP/1.1.
    """

    _is_http_1_1: bool = True
    _hides_body: bool = False
    keeps_alive: bool = True
    """Whether another request may follow."""
    _in_chunks: bool = attrs.field(default=False, init=False)

    @classmethod
    def answering(cls, head: RequestHead, *, is_http_1_1: bool) -> ResponseWriter:
        """What writes the response to this request."""
        is_last = b"close" in options(head.values(b"connection"))
        return cls(is_http_1_1, head.method == b"HEAD", is_http_1_1 and not is_last)

    def head(self, head: ResponseHead, *, is_last: bool) -> bytes:
        """The head; ``is_last`` tells the peer that no other request is taken."""
        headers = head.headers
        if get(headers, b"content-length") is None and self._is_http_1_1:
            self._in_chunks = True
            headers = (*headers, (b"transfer-encoding", b"chunked"))
        if is_last or not self.keeps_alive:
            self.keeps_alive = False
            headers = (*headers, (b"connection", b"close"))
        return encode_head(b"HTTP/1.1 %d " % head.status, headers)

    def body(self, data: bytes) -> bytes:
        """A piece of the body."""
        if self._hides_body:
            return b""
        return encode_chunk(data) if self._in_chunks else data

    def end(self) -> bytes:
        """The end of the body."""
        return LAST_CHUNK if self._in_chunks else b""
