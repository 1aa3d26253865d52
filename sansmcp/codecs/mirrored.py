"""Headers that repeat parts of a body, for those on the way who do not read bodies.

A value that could not stand in a header as it is travels as ``=?base64?...?=``, and so does one
that looks like that already. Which parameters of a tool are repeated is said by ``x-mcp-header`` in
its input schema.

Source: 2026-07-28 basic/transports: Request Headers, Custom Headers; SEP-2243.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import json

_PREFIX, _SUFFIX = b"=?base64?", b"?="
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LARGEST = 2**53 - 1
_ANNOTATION = "x-mcp-header"
_TYPES = ("integer", "string", "boolean")
_MOST_NODES = 10_000
"""Parts of a schema that are looked at; a larger one is refused."""


def text_of(value: Any) -> str | None:
    """What a header says of a value; None where there is none, or it is of no type for headers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -_LARGEST <= value <= _LARGEST else None
    return value if isinstance(value, str) else None


def encode(text: str) -> bytes:
    """A text as the value of a header."""
    raw = text.encode("utf-8", "replace")
    looks_encoded = raw.startswith(_PREFIX) and raw.endswith(_SUFFIX)
    if _PLAIN.fullmatch(text) and not looks_encoded:
        return raw
    return _PREFIX + base64.b64encode(raw) + _SUFFIX


def decode(value: bytes) -> str | None:
    """The text that a header says; None if it cannot be read."""
    if value.startswith(_PREFIX) and value.endswith(_SUFFIX):
        try:
            raw = base64.b64decode(value[len(_PREFIX) : -len(_SUFFIX)], validate=True)
        except (binascii.Error, ValueError):
            return None
    else:
        raw = value
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def says(header: bytes, value: Any) -> bool:
    """Whether a header repeats a value of the body. Numbers are compared as numbers."""
    text, said = text_of(value), decode(header)
    if text is None or said is None:
        return False
    if type(value) is int and re.fullmatch(r"-?\d{1,16}(\.0*)?", said):
        return int(said.partition(".")[0]) == value
    return said == text


def parameters(schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The headers that an input schema names, and the path of the argument that each repeats.

    Raises ValueError, with the reason, for a definition that breaks the rules.
    """
    found: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    for path, node in _nodes(schema):
        if _ANNOTATION not in node:
            continue
        name = node[_ANNOTATION]
        if path is None:
            raise ValueError(f"{_ANNOTATION} where no argument can be named: {name!r}")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"{_ANNOTATION} is no header name: {name!r}")
        if name.lower() in names:
            raise ValueError(f"{_ANNOTATION} names {name!r} twice")
        if node.get("type") not in _TYPES:
            raise ValueError(f"{_ANNOTATION} {name!r} is for {', '.join(_TYPES)} only")
        names.add(name.lower())
        found[name] = path
    return found


def argument_at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The argument at a path; None where there is nothing."""
    value: Any = arguments
    for name in path:
        members = json.as_object(value)
        if members is None or name not in members:
            return None
        value = members[name]
    return value


def _nodes(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """All objects of a schema, and their paths; None where not all steps are ``properties``."""
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), dict(schema))]
    for count, (path, value) in enumerate(waiting):  # grows while it is walked
        if count > _MOST_NODES:
            raise ValueError("the schema is too large to be looked through")
        if json.is_array(value):
            waiting += [(None, item) for item in value]
        node = json.as_object(value)
        if node is None:
            continue
        yield (path or None), node
        properties = json.as_object(node.get("properties"))
        if path is not None and properties is not None:
            waiting += [((*path, name), child) for name, child in properties.items()]
            waiting += [(None, child) for key, child in node.items() if key != "properties"]
        else:
            waiting += [(None, child) for child in node.values()]
