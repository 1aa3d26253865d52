"""URI templates of upstream servers: which URIs they match."""

from __future__ import annotations

import re
from itertools import zip_longest

_EXPRESSIONS = re.compile(r"((?:\{[^{}]*\})+)")
_DELIMITERS = "/?#"


def literal_length(template: str, uri: str) -> int | None:
    """Return how many characters of a URI are not in variables of a template.

    A variable ends where the text after it first appears, so that this takes linear time. One
    without an operator of RFC 6570, such as ``{name}``, has no slash in it.

    Returns:
        None if the template does not match the whole URI.
    """
    first, *rest = _EXPRESSIONS.split(template)
    if not rest:
        return len(uri) if uri == template else None
    *between, last = rest[1::2]
    end = len(uri) - len(last)
    if end < len(first) or not uri.startswith(first) or not uri.endswith(last):
        return None
    start = len(first)
    for expressions, literal in zip_longest(rest[::2], between):
        stop = end if literal is None else uri.find(literal, start, end)
        if stop < 0 or (_is_plain(expressions) and _has_delimiter(uri, start, stop)):
            return None
        start = stop + len(literal or "")
    return sum(map(len, (first, *rest[1::2])))


def _has_delimiter(uri: str, start: int, stop: int) -> bool:
    return any(uri.find(each, start, stop) >= 0 for each in _DELIMITERS)


def _is_plain(expressions: str) -> bool:
    """Return True if no expression has an operator."""
    return all(each[:1].isalnum() or each[:1] == "_" for each in expressions[1:-1].split("}{"))
