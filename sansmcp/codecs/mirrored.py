"""Headers that repeat parts of a body, for intermediaries that do not read bodies.

A value that a header cannot contain is sent as ``=?base64?...?=``, and so is a value that looks
like this already. ``x-mcp-header`` in the input schema of a tool marks the arguments to repeat.

Source: 2026-07-28 basic/transports: Request Headers, Custom Headers; SEP-2243.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from . import json

_ENCODED = re.compile(rb"=\?base64\?(.*)\?=", re.DOTALL)
_PLAIN = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_LEGAL = re.compile(rb"[\t\x20-\x7e]*")
_NUMBER = re.compile(r"(-?[0-9]{1,16})(?:\.0+)?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LARGEST = 2**53 - 1
_ANNOTATION = "x-mcp-header"
_TYPES = ("integer", "string", "boolean")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords of a schema whose values are objects of schemas; their names are not keywords."""
_DATA = ("const", "default", "enum", "examples")
"""Keywords whose values are not schemas."""
_Path: TypeAlias = tuple[str, ...] | None
"""The path of an argument; None for a schema that does not describe one particular argument."""
_MOST_NODES = 10_000
"""The most parts of a schema that are searched; a larger schema is refused."""
_DEEPEST = 100
"""The most objects around an argument."""


def header_text(value: Any) -> str | None:
    """Return the text of a value for a header; None if a header cannot repeat the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if _is_integer(value):
        return None if is_too_large(value) else str(int(value))
    return value if isinstance(value, str) else None


def is_too_large(value: Any) -> bool:
    """Return True if a value is an integer that not every JSON parser reads exactly."""
    return _is_integer(value) and not -_LARGEST <= value <= _LARGEST


def _is_integer(value: Any) -> bool:
    """Return True if a value is an integer as JSON Schema defines it: 1.0 is one."""
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def encode_header_value(text: str) -> bytes:
    """Return a text as the value of a header."""
    raw = text.encode("utf-8", "replace")
    if _PLAIN.fullmatch(raw) and not _ENCODED.fullmatch(raw):
        return raw
    return b"=?base64?" + base64.b64encode(raw) + b"?="


def decode_header_value(value: bytes) -> str | None:
    """Return the text of a header value; None if it is not valid."""
    encoded = _ENCODED.fullmatch(value) if value.startswith(b"=?") else None
    if encoded is None:
        return value.decode() if _LEGAL.fullmatch(value) else None
    try:
        return base64.b64decode(encoded[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def header_matches(header: bytes, value: Any) -> bool:
    """Return True if a header repeats a value of the body. Numbers are compared as numbers."""
    text, decoded = header_text(value), decode_header_value(header)
    if text is None or decoded is None:
        return False
    number = _NUMBER.fullmatch(decoded) if type(value) in (int, float) else None
    return decoded == text if number is None else int(number[1]) == value


def parameters(schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the headers that an input schema defines, each with the path of its argument.

    Raises ValueError, with the reason, if a definition breaks the rules.
    """
    found: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    for path, node in _nodes(schema):
        if _ANNOTATION not in node:
            continue
        name = node[_ANNOTATION]
        if path is None:
            raise ValueError(f"{_ANNOTATION} {name!r} is not on one particular argument")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"{_ANNOTATION} is not a header name: {name!r}")
        if name.lower() in names:
            raise ValueError(f"{_ANNOTATION} names {name!r} twice")
        if node.get("type") not in _TYPES:
            raise ValueError(f"{_ANNOTATION} {name!r} is for {', '.join(_TYPES)} only")
        names.add(name.lower())
        found[name] = path
    return found


def argument_at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the argument at a path; None if there is none."""
    value: Any = arguments
    for name in path:
        members = json.as_object(value)
        if members is None or name not in members:
            return None
        value = members[name]
    return value


def _nodes(schema: Mapping[str, Any]) -> Iterator[tuple[_Path, dict[str, Any]]]:
    """Yield a schema and all schemas in it, each with the path of its argument, or None."""
    waiting: list[tuple[_Path, Any]] = [((), dict(schema))]
    for count, (path, value) in enumerate(waiting):  # the loop appends to it
        if count > _MOST_NODES or len(path or ()) > _DEEPEST:
            raise ValueError("the schema is too large to be searched")
        if json.is_array(value):
            waiting += [(None, item) for item in value]
        node = json.as_object(value)
        if node is not None:
            yield (path or None), node
            waiting += _children(path, node)


def _children(path: _Path, node: dict[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for keyword, value in node.items():
        by_name = json.as_object(value) if keyword in _NAMED else None
        if by_name is None:
            if keyword not in _DATA:
                yield None, value
            continue
        around = path if keyword == "properties" else None
        for name, child in by_name.items():
            yield (None if around is None else (*around, name)), child
