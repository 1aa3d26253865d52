"""Arguments as language models send them: numbers, lists and objects as texts of JSON, 5.0 for 5.

Arguments are held to their types first. Only if they do not fit is the schema searched for places
where another reading is meant: a text where the schema allows none is read as JSON, by the strict
decoder; and a whole float is an integer, as in JSON Schema. What is changed in this way is held to
the types again.

All that is done for one call is bounded, because clients can send large arguments that do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from sansmcp import Limits, RemoteProtocolError
from sansmcp.codecs import json

from ._schemas import JsonSchema, from_json, resolved

_MOST_PARTS = 10_000
"""Parts of the arguments of one call that are compared with the schema; others are left alone."""

_DEEPEST = 64
"""Levels of arrays and objects, those within texts included."""

_KINDS: Mapping[type[Any], str] = MappingProxyType(
    {
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
        type(None): "null",
    }
)

_ANYTHING = frozenset(_KINDS.values())
_NUMBERS = ("integer", "number")
_READ = (str, float, list, dict)
"""The types of values that can be read in another way, or have such parts."""


def arguments_from(
    given: Any, type: Any, schema: JsonSchema, *, json_texts: bool, strict: bool = True
) -> Any:
    """Return arguments as a value of a type.

    Args:
        given: the arguments, a JSON object.
        type: the type, as :func:`from_json` takes it.
        schema: its schema.
        json_texts: True to read texts as JSON where the schema allows no text.
        strict: as for :func:`from_json`.

    Raises:
        ValueError: they do not fit; the text names the field.
    """
    try:
        return from_json(given, type, strict=strict)
    except ValueError:
        reader = _Reader(schema, json_texts=json_texts)
        read = reader.read(given, schema)
        if not reader.has_changed:
            raise
    return from_json(read, type, strict=strict)


class _Reader:
    """Reads the arguments of one call in another way.

    Args:
        schema: the schema of the arguments.
        json_texts: True to read texts as JSON where the schema allows no text.

    Attributes:
        has_changed: True if a part was read in another way.
    """

    def __init__(self, schema: JsonSchema, *, json_texts: bool) -> None:
        self.has_changed = False
        self._root = schema
        self._json_texts = json_texts
        self._parts = _MOST_PARTS
        self._values = Limits().max_values

    def read(self, value: Any, schema: JsonSchema, depth: int = 0) -> Any:
        """Return a part of the arguments, read as its schema wants it."""
        self._parts -= 1
        if self._parts < 0 or depth > _DEEPEST:
            return value
        kinds = self._kinds_of(schema)
        if isinstance(value, str):
            value = self._value_of(value, kinds)
        if isinstance(value, float):
            if value.is_integer() and "integer" in kinds and "number" not in kinds:
                self.has_changed = True
                return int(value)
        elif json.is_array(value):
            return self._items(value, schema, depth)
        elif json.is_object(value):
            return self._members(value, schema, depth)
        return value

    def _value_of(self, text: str, kinds: frozenset[str]) -> Any:
        """Return the value of a text of JSON; the text itself where the schema allows texts."""
        if not self._json_texts or "string" in kinds:
            return text
        limits = Limits()
        try:
            data = text.encode()
            value = json.decode(data, limits.max_json_depth, self._values)
        except (RemoteProtocolError, UnicodeEncodeError):
            return text
        kind = _kind_of(value)
        if kind not in kinds and (kind not in _NUMBERS or kinds.isdisjoint(_NUMBERS)):
            return text
        self.has_changed = True
        self._values = max(0, self._values - sum(map(data.count, (b",", b"[", b"{"))))
        return value

    def _items(self, items: list[Any], schema: JsonSchema, depth: int) -> list[Any]:
        schema = self._part_for("array", schema)
        first: list[JsonSchema] = schema.get("prefixItems", [])
        following = json.as_object(schema.get("items")) or {}
        return [
            self.read(item, first[index] if index < len(first) else following, depth + 1)
            if type(item) in _READ
            else item
            for index, item in enumerate(items)
        ]

    def _members(self, members: dict[str, Any], schema: JsonSchema, depth: int) -> dict[str, Any]:
        schema = self._part_for("object", schema)
        known: dict[str, JsonSchema] = schema.get("properties", {})
        others = json.as_object(schema.get("additionalProperties")) or {}
        return {
            name: self.read(member, known.get(name, others), depth + 1)
            if type(member) in _READ
            else member
            for name, member in members.items()
        }

    def _kinds_of(self, schema: JsonSchema) -> frozenset[str]:
        """Return the types of JSON that a schema allows; all of them if it does not say."""
        schema = resolved(schema, self._root)
        choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if choices is not None:
            return frozenset(map(_kind_of, choices))
        if (options := _options_of(schema)) is not None:
            return frozenset[str]().union(*map(self._kinds_of, options))
        kinds = schema.get("type", _ANYTHING)
        return frozenset((kinds,) if isinstance(kinds, str) else cast("list[str]", kinds))

    def _part_for(self, kind: str, schema: JsonSchema) -> JsonSchema:
        """Return the part of a schema that is for a type; an empty one if there are several."""
        schema = resolved(schema, self._root)
        options = _options_of(schema)
        if options is None:
            return schema
        fitting = [each for each in options if kind in self._kinds_of(each)]
        return self._part_for(kind, fitting[0]) if len(fitting) == 1 else {}


def _options_of(schema: JsonSchema) -> list[JsonSchema] | None:
    return next((schema[each] for each in ("anyOf", "oneOf", "allOf") if each in schema), None)


def _kind_of(value: object) -> str:
    """Return the type that JSON Schema has for a value."""
    return _KINDS.get(type(value), "string")
