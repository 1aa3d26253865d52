"""HTTP header lists: lookup, ``Accept``, media types, and the headers that applications add.

A header list is a tuple of (name, value) pairs of bytes with lower-case names, as in h11, h2 and
ASGI.

Source: RFC 9110 sections 5 and 12.5.1; MCP basic/transports, every revision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from ..errors import LocalProtocolError

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

HeaderTypes: TypeAlias = (
    Mapping[str, str | bytes]
    | Mapping[bytes, str | bytes]
    | Iterable[tuple[str | bytes, str | bytes]]
)
"""The types in which an application can pass headers to a client; names in any case."""

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
HTML = b"text/html"


def get(headers: Headers, name: bytes) -> bytes | None:
    """Return the value of the first header of a (lower-case) name; None if there is none."""
    for key, value in headers:
        if key == name:
            return value
    return None


def get_all(headers: Headers, name: bytes) -> list[bytes]:
    """Return the values of all headers of a (lower-case) name, in their order."""
    return [value for key, value in headers if key == name]


def by_name(headers: Headers) -> Mapping[bytes, Sequence[bytes]]:
    """Return the values of all headers by name, for more than one lookup."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in found:
            found[name].append(value)
        else:
            found[name] = [value]
    return found


def single(values: Sequence[bytes]) -> str | None:
    """Return the value of a header that must have a single one; None if it is missing.

    If the header is repeated with equal values, it counts once. Different values are joined, as RFC
    9110 section 5.3 allows; a joined session id or version matches no known one and is refused.
    """
    if len(values) > 1:
        values = [b", ".join(dict.fromkeys(values))]
    return values[0].decode("latin-1") if values else None


def options(values: Sequence[bytes]) -> list[bytes]:
    """Return the options of ``Connection`` in lower case, such as ``close``."""
    return [option.strip() for option in b",".join(values).lower().split(b",")]


def media_type(values: Sequence[bytes]) -> bytes | None:
    """Return ``Content-Type`` in lower case, without parameters; None if missing or repeated."""
    return values[0].partition(b";")[0].strip().lower() if len(values) == 1 else None


def response_media_type(headers: Headers) -> bytes | None:
    """Return the media type of a response. Equal headers count once: some servers send two."""
    return media_type(list(dict.fromkeys(get_all(headers, b"content-type"))))


def accepts(values: Sequence[bytes], wanted: bytes) -> bool:
    """Return True if ``Accept`` covers a media type.

    The most specific range that matches decides. Without the header every media type is accepted.
    """
    return not values or _covers(b",".join(values), wanted)


@lru_cache(maxsize=16)  # clients send the same value with every request
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


def further_headers(given: HeaderTypes) -> Headers:
    """Return the headers that an application adds to a client's requests, as they are sent.

    Names become lower case, and spaces around values are removed. Line breaks in a value are
    refused, because they can split one HTTP message into two (CVE-2020-7695).

    Raises:
        LocalProtocolError: an item is not a header, or the client or the HTTP layer below sets this
            header itself. Of two values a server could use either. The error names the header but
            does not show its value, which may be a secret.
    """
    return tuple(_further_header(item) for item in _items(given))


def _items(given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | bytes):
        raise _no_headers()
    try:
        return tuple(given.items() if hasattr(given, "items") else given)
    except TypeError:  # not iterable
        raise _no_headers() from None


def _further_header(item: Any) -> tuple[bytes, bytes]:
    match item:
        case (str() | bytes() as given_name, given_value):
            pass
        case _:
            raise _no_headers()
    name = _as_bytes(given_name).lower()
    shown = name.decode("latin-1")
    if not _NAME.fullmatch(name):
        raise LocalProtocolError(
            f"A header name must be letters, digits and some of !#$%&'*+-.^_`|~, got {shown[:50]!r}"
        )
    if name in _OWN_NAMES:
        raise LocalProtocolError(f"The header {shown!r} is set by the client itself; leave it out")
    if not isinstance(given_value, str | bytes):
        kind = type(given_value).__name__
        raise LocalProtocolError(
            f"The value of the header {shown!r} must be str or bytes, got {kind}"
        )
    value = _as_bytes(given_value).strip(b" \t")
    if not _VALUE.fullmatch(value) or (isinstance(given_value, str) and not given_value.isascii()):
        raise LocalProtocolError(
            f"The value of the header {shown!r} has characters that cannot be sent: line breaks, "
            "other control characters, or in a str characters that are not ASCII"
        )
    return name, value


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "replace") if isinstance(text, str) else text


def _no_headers() -> LocalProtocolError:
    return LocalProtocolError(
        "headers must be a mapping or pairs of str or bytes, such as {'Authorization': 'Bearer x'}"
    )


def is_session_id(text: str) -> bool:
    """Return True if a string can be a session id: visible ASCII, 0x21 to 0x7E, 1,024 at most.

    Source: 2025-03-26 basic/transports.
    """
    return 0 < len(text) <= 1024 and text.isascii() and text.isprintable() and " " not in text
