"""Follow the references of a JSON schema: ``$ref``, ``allOf``, anchors.

A server may send any schema, so the work is bounded: beyond a number of parts, and in a circle, a
part allows every value. The server validates everything anyway.

Source: JSON Schema 2020-12, 8.2; RFC 6901.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import unquote

import attrs

from sansmcp.codecs.json import as_object, is_array

Schema: TypeAlias = Mapping[str, Any]

_MOST_PARTS = 200
"""Parts of one schema that are looked at."""
_MOST_SEARCHED = 10_000
"""Parts of a document in which an anchor is looked for."""
_MOST_WORK = 100_000
"""Members that are copied or looked at, for all fields of a document together."""


def resolved(schema: Any, root: Schema) -> Schema:
    """Return a schema of which no part refers to another one; empty if it is none.

    References are followed at its top, in ``anyOf``, ``oneOf``, ``items`` and ``prefixItems``;
    what they lead to is merged with what stands beside them, and so is ``allOf``.

    Args:
        schema: the schema.
        root: the document that it is in.
    """
    return _Resolving(root).schema(schema, ())


def fields_of(schema: Any) -> tuple[dict[str, Schema], Schema]:
    """Return the fields of an object by their names, and the schema of the object itself.

    Args:
        schema: that of the arguments of a tool, which is a document of its own.
    """
    root = as_object(schema) or {}
    resolving = _Resolving(root)
    top = resolving.schema(root, ())
    properties = as_object(top.get("properties")) or {}
    return {name: resolving.begin().schema(each, ()) for name, each in properties.items()}, top


@attrs.define
class _Resolving:
    _root: Schema
    _left: int = attrs.field(default=_MOST_PARTS, init=False)
    _work: int = attrs.field(default=_MOST_WORK, init=False)

    def begin(self) -> _Resolving:
        """Begin with another schema of the document."""
        self._left = _MOST_PARTS
        return self

    def schema(self, schema: Any, active: tuple[str, ...]) -> dict[str, Any]:
        """Return a schema without references. ``active``: those that have led to it."""
        given = as_object(schema) or {}
        self._left -= 1
        if self._left < 0 or self._work < 0:
            return {}
        found: dict[str, Any] = {}
        reference = given.get("$ref")
        if isinstance(reference, str) and reference not in active:
            target = self._target(reference)
            self._merge(found, self.schema(target, (*active, reference)))
        parts: Any = given.get("allOf")
        for part in parts if is_array(parts) else ():
            self._merge(found, self.schema(part, active))
        self._merge(found, {name: given[name] for name in given if name not in ("$ref", "allOf")})
        for name in ("anyOf", "oneOf", "prefixItems"):
            if is_array(given.get(name)):
                found[name] = [self.schema(each, active) for each in given[name]]
        if as_object(given.get("items")) is not None:
            found["items"] = self.schema(given["items"], active)
        return found

    def _merge(self, into: dict[str, Any], other: Schema) -> None:
        for each in (into, other):
            self._work -= sum(map(len, (each, *filter(_has_length, each.values()))))
        if self._work >= 0:
            _merge(into, other)

    def _target(self, reference: str) -> Any:
        """Return what a reference within the document leads to; None if there is nothing."""
        base, _, fragment = reference.partition("#")
        if base not in ("", self._root.get("$id")):
            return None
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchored(fragment)
        place: Any = self._root
        for part in fragment.split("/")[1:]:
            if is_array(place):
                place = place[int(part)] if part.isdecimal() and int(part) < len(place) else None
            else:
                place = (as_object(place) or {}).get(part.replace("~1", "/").replace("~0", "~"))
        return place

    def _anchored(self, name: str) -> Any:
        """Return the first schema of the document with this anchor."""
        waiting: list[Any] = [self._root]
        for _ in range(min(_MOST_SEARCHED, self._work)):
            if not waiting:
                break
            self._work -= 1
            place = waiting.pop()
            members = as_object(place)
            if members is not None and name in (members.get("$anchor"), members.get("id")):
                return members
            waiting += islice(_parts_of(place), _MOST_SEARCHED)
        return None


def _has_length(value: Any) -> bool:
    return as_object(value) is not None or is_array(value)


def required_in(schema: Schema) -> dict[str, None]:
    """Return the names of the fields that are required, in their order, for looking them up."""
    names = schema.get("required")
    strings = (name for name in names if isinstance(name, str)) if is_array(names) else ()
    return dict.fromkeys(strings)


def _parts_of(value: Any) -> Iterator[Any]:
    members = as_object(value)
    if members is not None:
        yield from members.values()
    elif is_array(value):
        yield from value


def _merge(into: dict[str, Any], other: Schema) -> None:
    """Add the keywords of another schema that holds as well; its own win, fields are joined."""
    fields = {**(as_object(into.get("properties")) or {})}
    fields.update(as_object(other.get("properties")) or {})
    required = {**required_in(into), **required_in(other)}
    into.update(other)
    if fields:
        into["properties"] = fields
    if required:
        into["required"] = list(required)
