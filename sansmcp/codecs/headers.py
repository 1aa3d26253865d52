"""HTTP header lists: lookup, ``Accept``, media types, and what may go into a header.

A header list is a tuple of (name, value) pairs of bytes with lower-case names, as in h11, h2 and
ASGI.

Source: RFC 9110 sections 5 and 12.5.1; MCP basic/transports, every revision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from ..errors import LocalProtocolError

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?")
_OWN_NAMES = frozenset(
    (
        b"accept",
        b"cache-control",
        b"connection",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"last-event-id",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"


def get(headers: Headers, name: bytes) -> bytes | None:
    """The value of the first header of that (lower-case) name."""
    for key, value in headers:
        if key == name:
            return value
    return None


def get_all(headers: Headers, name: bytes) -> list[bytes]:
    """The values of all headers of that (lower-case) name, in their order."""
    return [value for key, value in headers if key == name]


def by_name(headers: Headers) -> Mapping[bytes, Sequence[bytes]]:
    """The values of all headers by their names, for whoever asks for many."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in found:
            found[name].append(value)
        else:
            found[name] = [value]
    return found


def single(values: Sequence[bytes]) -> str | None:
    """The value of a header that must not say two things; None where it is missing.

    Repeated with equal values it counts once. Different values are joined, as RFC 9110 section 5.3
    has it, which for a session id or a version gives one that nobody knows.
    """
    if len(values) > 1:
        values = [b", ".join(dict.fromkeys(values))]
    return values[0].decode("latin-1") if values else None


def options(values: Sequence[bytes]) -> list[bytes]:
    """What ``Connection`` says, in lower case; ``close``, for example."""
    return [option.strip() for option in b",".join(values).lower().split(b",")]


def media_type(values: Sequence[bytes]) -> bytes | None:
    """``Content-Type`` in lower case, without parameters; None where it is missing or repeated."""
    return values[0].partition(b";")[0].strip().lower() if len(values) == 1 else None


def accepts(values: Sequence[bytes], wanted: bytes) -> bool:
    """Whether ``Accept`` covers a media type.

    The most specific range that matches decides, and no header accepts anything.
    """
    return not values or _covers(b",".join(values), wanted)


@lru_cache(maxsize=16)  # clients say the same with every request
def _covers(accept: bytes, wanted: bytes) -> bool:
    ranges = _ranges(accept)
    for candidate in (wanted, wanted.partition(b"/")[0] + b"/*", b"*/*"):
        if candidate in ranges:
            return ranges[candidate] > 0
    return False


def _ranges(accept: bytes) -> dict[bytes, float]:
    found: dict[bytes, float] = {}
    for item in accept.split(b","):
        essence, *parameters = (part.strip().lower() for part in item.split(b";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition(b"=")
            if name.strip() == b"q":
                quality = _quality(value.strip())
        found[essence] = quality
    return found


def _quality(value: bytes) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def header_value(text: str) -> bytes:
    """A string as a header value.

    Raises LocalProtocolError for anything but visible ASCII and inner spaces: CR, LF and NUL in a
    value are how one HTTP message is made into two (CVE-2020-7695).
    """
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise LocalProtocolError(f"Not usable as an HTTP header value: {text[:50]!r}")
    return text.encode()


def check_further_headers(headers: Headers) -> None:
    """Whether an application may add these headers to a client's requests.

    Raises LocalProtocolError for what is no header, or is one that the client or the HTTP layer
    below sets: twice said, a server may believe either.
    """
    for header in headers:
        match header:
            case (bytes(name), bytes(value)):
                pass
            case _:  # it is not shown, for it may be a secret
                raise LocalProtocolError(
                    "Headers are pairs of bytes, such as (b'authorization', b'Bearer abc')"
                )
        if not _NAME.fullmatch(name):
            raise LocalProtocolError(f"Not the name of a header in lower case: {name!r}")
        if name in _OWN_NAMES:
            raise LocalProtocolError(f"The header {name.decode()!r} is set by the client itself")
        if not _VALUE.fullmatch(value):
            raise LocalProtocolError(f"The value of {name.decode()!r} has illegal characters")


def is_session_id(text: str) -> bool:
    """Whether a string may be a session id: visible ASCII, 0x21 to 0x7E.

    Source: 2025-03-26 basic/transports.
    """
    return 0 < len(text) <= 1024 and text.isascii() and text.isprintable() and " " not in text
