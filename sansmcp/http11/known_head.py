"""The last head of a connection, by which one that says the same is read without a parser.

Clients repeat a head with every request of a connection, but for the length of the body and the
name of what is called; servers with every response, but for the length. A head is known if it has
the same bytes outside these two values, and values of a form that every parser takes alike. So
whatever could be read in two ways, such as a second ``Content-Length``, a folded line, or one byte
more or less, is parsed.

Source: RFC 9112 sections 5 and 6.3; 2026-07-28 basic/transports: Request Headers.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar, cast

import attrs

from ..http import RequestHead, ResponseHead
from ..types import Value

Head = TypeVar("Head", bound=RequestHead | ResponseHead)

_MOST_BYTES = 1024
"""Larger heads are not kept: so much, and few objects, is what an idle connection costs more."""

_PATTERNS = {
    b"content-length": re.compile(rb"[0-9]{1,18}"),
    b"mcp-name": re.compile(rb"[!-~]+(?: [!-~]+)*"),
}
"""The values that may differ, by the names of their headers."""
_LINE = re.compile(
    rb"\r\n(content-length|mcp-name):[ \t]*([!-~]+(?: [!-~]+)*)[ \t]*(?=\r\n(?![ \t]))",
    re.IGNORECASE,
)
"""A line with such a value, which the next line does not continue."""


@attrs.frozen(eq=False, repr=False)
class _Field(Value):
    """A value that may differ."""

    name: bytes
    value: bytes
    pattern: re.Pattern[bytes]
    rest: bytes
    """The bytes from its end to the next such value, or to the end of the head."""


@attrs.frozen(eq=False, repr=False)
class KnownHead(Value, Generic[Head]):
    """A head that was parsed, and the bytes by which another one is known to say the same."""

    _head: Head
    _start: bytes
    """The bytes before the first value that may differ."""
    _fields: tuple[_Field, ...]

    def read(self, data: bytes) -> Head | None:
        """Return what a head says if it is this one with other values, otherwise None.

        ``data``: its bytes, with the blank line that ends it.
        """
        if not data.startswith(self._start):
            return None
        place = len(self._start)
        changed: dict[bytes, bytes] = {}
        for field in self._fields:
            found = field.pattern.match(data, place)
            if found is None or not data.startswith(field.rest, found.end()):
                return None
            place = found.end() + len(field.rest)
            if found[0] != field.value:
                changed[field.name] = found[0]
        if place != len(data):
            return None
        return self._head if not changed else self._with(changed)

    def _with(self, changed: dict[bytes, bytes]) -> Head:
        head = self._head
        headers = tuple([(name, changed.get(name, value)) for name, value in head.headers])
        other: RequestHead | ResponseHead
        if isinstance(head, RequestHead):
            other = RequestHead(method=head.method, target=head.target, headers=headers)
        else:
            other = ResponseHead(status=head.status, headers=headers)
        return cast("Head", other)


def remember(data: bytes, head: Head) -> KnownHead[Head] | None:
    """Remember a head.

    Args:
        data: its bytes, with the blank line that ends it.
        head: what the parser has made of them.

    Returns:
        None if it is too large, or has a length or name twice or in an unusual form.
    """
    if len(data) > _MOST_BYTES:
        return None
    folded = data.lower()
    counts = [folded.count(b"content-length"), folded.count(b"mcp-name")]
    lines = list(_LINE.finditer(data))
    if max(counts) > 1 or sum(counts) != len(lines):
        return None
    ends = [*[line.start(2) for line in lines], len(data)]
    fields: list[_Field] = []
    for line, end in zip(lines, ends[1:], strict=True):
        name, value = line[1].lower(), line[2]
        if _PATTERNS[name].fullmatch(value) is None:
            return None
        fields.append(_Field(name, value, _PATTERNS[name], data[line.end(2) : end]))
    return KnownHead(head, data[: ends[0]], tuple(fields))
