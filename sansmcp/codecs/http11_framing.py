"""HTTP/1.1 as bytes, on the way out: heads, and pieces of bodies whose length is not told.

Source: RFC 9112 sections 2 to 7.
"""

from __future__ import annotations

from ..errors import LocalProtocolError
from .headers import Headers

LAST_CHUNK = b"0\r\n\r\n"


def encode_head(start: bytes, headers: Headers) -> bytes:
    """A head with this first line.

    Raises LocalProtocolError for line breaks in it: nothing a caller passes can forge a header.
    """
    lines = [start, *[b"%b: %b" % pair for pair in headers]]
    data = b"\r\n".join(lines)
    if data.count(b"\n") != len(headers) or data.count(b"\r") != len(headers) or b"\0" in data:
        raise LocalProtocolError(f"Not usable in a head: {start!r}, {headers!r}")
    return data + b"\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    """A piece of a body whose length is not told beforehand. An empty one would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
