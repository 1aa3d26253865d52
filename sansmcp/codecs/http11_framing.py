"""Encode HTTP/1.1: heads, and the chunks of bodies whose length is not known in advance.

Source: RFC 9112 sections 2 to 7.
"""

from __future__ import annotations

from ..errors import LocalProtocolError
from .headers import Headers

LAST_CHUNK = b"0\r\n\r\n"


def encode_head(start: bytes, headers: Headers) -> bytes:
    """Return the bytes of a head: the start line ``start``, and the headers.

    Raises LocalProtocolError if one of them contains CR, LF or NUL, so that no value can forge a
    header.
    """
    lines = [start, *[b"%b: %b" % pair for pair in headers]]
    data = b"\r\n".join(lines)
    if data.count(b"\n") != len(headers) or data.count(b"\r") != len(headers) or b"\0" in data:
        raise LocalProtocolError(f"{start!r} or one of its headers contains CR, LF or NUL")
    return data + b"\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    """Return the bytes of a chunk; none for empty ``data``, since that chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
