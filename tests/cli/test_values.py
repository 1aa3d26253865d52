"""Words that a person types become the values that a schema asks for."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp_cli._arguments import nearest
from sansmcp_cli._form import interview
from sansmcp_cli._references import fields_of, resolved
from sansmcp_cli._values import alternatives, convert, convert_list, describe, is_list, text_of

COLOURS = {"oneOf": [{"const": "r", "title": "Red"}, {"const": 7}]}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("1", {"type": "string"}, "1"),
        ("", {"type": "string"}, ""),
        ("-7", {"type": "integer"}, -7),
        ("7", {"type": "number"}, 7),
        ("7.5", {"type": "number"}, 7.5),
        ("1e3", {"type": "number"}, 1000.0),
        ("Yes", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("null", {"type": ["string", "null"]}, None),
        ("5", {"type": ["string", "integer"]}, 5),
        ("five", {"type": ["string", "integer"]}, "five"),
        ("5", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 5),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("[1, 2]", {"type": ["array", "null"]}, [1, 2]),
        ("7", COLOURS, 7),
        ("r", COLOURS, "r"),
        ("true", {"enum": [True, "x"]}, True),
        ("x", {"const": "x"}, "x"),
        ("[1]", {}, [1]),
        ("word", {}, "word"),
        ("2026-01-31", {"type": "string", "format": "date"}, "2026-01-31"),
        ("2026-01-31T10:00:00Z", {"type": "string", "format": "date-time"}, "2026-01-31T10:00:00Z"),
        ("x", {"type": "string", "format": "unknown"}, "x"),
        ("x", {"type": "strange"}, "x"),
        ("5", {"type": "integer", "minimum": "nonsense", "maximum": True}, 5),
    ],
)
def test_words_are_converted(text: str, schema: dict[str, Any], value: object) -> None:
    converted = convert(text, schema)
    assert (converted, type(converted)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "schema", "reason"),
    [
        ("x", {"type": "integer"}, "must be an integer, got 'x'"),
        ("1.5", {"type": "integer"}, "must be an integer, got '1.5'"),
        ("1_0", {"type": "integer"}, "must be an integer, got '1_0'"),
        ("nan", {"type": "number"}, "must be a number, got 'nan'"),
        ("9" * 5000, {"type": "integer"}, "must be an integer, got "),
        ("1e999", {"type": "number"}, "must be a number, got '1e999'"),
        ("perhaps", {"type": "boolean"}, "must be yes or no, got 'perhaps'"),
        ("[1]", {"type": "object"}, "must be an object, got '[1]'"),
        ("{", {"type": ["object", "null"]}, "must be an object or null, got '{'"),
        ("9", {"type": "integer", "maximum": 8}, "must be 8 or less, got 9"),
        ("0", {"type": "integer", "minimum": 1, "maximum": 8}, "must be from 1 to 8, got 0"),
        ("a", {"type": "string", "minLength": 2}, "must have 2 or more characters, got 1"),
        ("x", {"type": "string", "format": "email"}, "must be an email, got 'x'"),
        ("x", {"type": "string", "format": "uri"}, "must be a uri, got 'x'"),
        ("x", {"type": "string", "format": "date"}, "must be a date, got 'x'"),
        ("green", COLOURS, "must be one of r | 7, got 'green'"),
    ],
)
def test_what_is_wrong_is_named(text: str, schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        convert(text, schema)


@pytest.mark.parametrize(
    ("texts", "schema", "value"),
    [
        (["a", "b"], {"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        (["1"], {"type": "array", "items": {"type": "integer"}}, [1]),
        (["[1, 2]"], {"type": "array"}, [1, 2]),
        (["1", "b"], {"type": "array"}, [1, "b"]),
    ],
)
def test_lists(texts: list[str], schema: dict[str, Any], value: object) -> None:
    assert convert_list(texts, schema) == value


def test_a_list_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="must have 1 or less items, got 2"):
        convert_list(["a", "b"], {"type": "array", "maxItems": 1})


COLOUR = {"enum": ["red", "green"], "type": "string"}
ROOT: dict[str, Any] = {
    "$defs": {
        "Colour": COLOUR,
        "Level": {"enum": [1, 2], "type": "integer"},
        "Point": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "a/b%": {"type": "integer"},
        "named": {"$anchor": "name", "type": "boolean"},
        "loop": {"$ref": "#/$defs/loop"},
        "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
    "definitions": {"old": {"type": "number"}},
    "$id": "http://a.example/schema",
    "type": "object",
}


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    """As pydantic describes what may be None."""
    return {"anyOf": [schema, {"type": "null"}], "default": None}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
PLACES: dict[str, Any] = {"type": "array", "prefixItems": [{"type": "string"}, ref("a~1b%25")]}
AUTO: dict[str, Any] = {"anyOf": [{"const": "auto"}, {"type": "integer"}]}
EITHER: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array"}]}
REFERRING: list[tuple[list[str], dict[str, Any], Any, str | None]] = [
    (["red"], ref("Colour"), "red", "red | green"),
    (["red"], optional(ref("Colour")), "red", "red | green | null"),
    (["null"], optional(ref("Colour")), None, "red | green | null"),
    (["2"], optional(ref("Level")), 2, "1 | 2 | null"),
    (["red"], {"allOf": [ref("Colour")], "default": "red"}, "red", "red | green"),
    (["red"], {**ref("Colour"), "description": "which"}, "red", "red | green"),
    (["123"], optional({"type": "string"}), "123", "string or null"),
    (["null"], optional({"type": "integer"}), None, "integer or null"),
    (["5"], {"anyOf": [{"type": "string"}, {"type": "integer"}]}, 5, "string or integer"),
    (["true"], optional({"type": "boolean"}), True, "yes or no or null"),
    (["a"], optional(TEXTS), ["a"], "list of string or null"),
    (["1", "2"], optional(TEXTS), ["1", "2"], None),
    (['["1"]'], optional(TEXTS), ["1"], None),
    (["null"], optional({"type": "array"}), None, "list or null"),
    (["7"], TEXTS, ["7"], "list of string"),
    (
        ["red", "green"],
        optional({"type": "array", "items": ref("Colour")}),
        ["red", "green"],
        "list of red | green or null",
    ),
    (['{"x": 1}'], optional(ref("Point")), {"x": 1}, "object or null"),
    (['{"x": 1}'], {"type": "array", "items": ref("Point")}, [{"x": 1}], "list of object"),
    (["a", "1", "b"], PLACES, ["a", 1, "b"], None),
    (["auto"], AUTO, "auto", "auto or integer"),
    (["3"], AUTO, 3, "auto or integer"),
    (["a,b"], EITHER, "a,b", "string or list"),
    (["a", "b"], EITHER, ["a", "b"], None),
    (["5"], {"anyOf": [{"type": "integer", "maximum": 4}, {"type": "string"}]}, "5", None),
    (["yes"], {"$ref": "#name"}, True, "yes or no"),
    (["1.5"], {"$ref": "#/definitions/old"}, 1.5, "number"),
    (["1.5"], {"$ref": "http://a.example/schema#/definitions/old"}, 1.5, "number"),
    (["[[]]"], ref("tree"), [[]], "list"),
    (["x"], ref("loop"), "x", "any value"),
    (["x"], ref("nowhere"), "x", "any value"),
    (["x"], {"$ref": "http://other.example/#"}, "x", "any value"),
    (["{}"], {"$ref": "#"}, {}, "object"),
]


@pytest.mark.parametrize(("texts", "schema", "value", "words"), REFERRING)
def test_words_for_what_a_schema_refers_to(
    texts: list[str], schema: dict[str, Any], value: object, words: str | None
) -> None:
    field = resolved(schema, ROOT)
    if is_list(field, len(texts)):
        assert convert_list(texts, field) == value
    else:
        (text,) = texts
        assert convert(text, field) == value
    if words is not None:
        assert describe(field) == words


@pytest.mark.parametrize("schema", [optional(ref("Colour")), {"allOf": [ref("Colour")]}])
def test_what_is_not_among_the_choices_of_a_reference(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be one of red \| green"):
        convert("blue", resolved(schema, ROOT))
    with pytest.raises(ValueError, match=r"must be one of red \| green"):
        convert_list(["blue"], resolved(optional({"type": "array", "items": schema}), ROOT))


TOPS: list[dict[str, Any]] = [
    {"$ref": "#/$defs/args"},
    {"allOf": [{"properties": {"a": ref("Level")}}, {"$ref": "#/$defs/args"}]},
    {"properties": {"a": ref("Level")}, "required": ["a"], "allOf": [{"required": []}]},
]


@pytest.mark.parametrize("top", TOPS)
def test_fields_of_an_object_that_refers(top: dict[str, Any]) -> None:
    arguments = {"type": "object", "properties": {"a": ref("Level")}, "required": ["a"]}
    fields, schema = fields_of({**top, "$defs": {**ROOT["$defs"], "args": arguments}})
    assert describe(fields["a"]) == "1 | 2"
    assert schema["required"] == ["a"]
    assert fields_of(None) == ({}, {})


def test_a_schema_that_grows_is_cut() -> None:
    """Each part refers to the next one twice; the whole would have 2 ** 60 parts."""
    parts = {str(n): {"anyOf": [ref(str(n + 1)), ref(str(n + 1))]} for n in range(60)}
    assert describe(resolved(ref("0"), {"$defs": parts})) == "any value"
    nested: dict[str, Any] = {"type": "integer"}
    for _ in range(9):
        nested = {"anyOf": [{"type": "integer"}] * 18, "oneOf": [nested]}
    assert convert("5", resolved(nested, nested)) == 5


def test_references() -> None:
    root = {"$defs": {"a/b": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert resolved({"$ref": "#/$defs/a~1b"}, root) == {"type": "integer"}
    for nowhere in ("#/$defs/nosuch", "#/$defs/loop", "#/$defs/a~1b/type/x"):
        assert resolved({"$ref": nowhere}, root) == {}
    assert resolved(None, root) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
WORDS = (
    "type",
    "enum",
    "const",
    "oneOf",
    "anyOf",
    "items",
    "minimum",
    "maxLength",
    "format",
    "$ref",
)
SCHEMAS = st.dictionaries(
    st.sampled_from(WORDS), JSON | st.sampled_from(["array", "integer", "number", "string"])
)


@given(SCHEMAS, st.text())
def test_no_schema_of_a_server_breaks_it(schema: dict[str, Any], text: str) -> None:
    describe(resolved(schema, schema))
    with suppress(ValueError):
        convert(text, schema)
    with suppress(ValueError):
        convert_list([text], schema)


@given(st.dictionaries(st.text(), SCHEMAS | JSON), JSON, st.lists(st.text(), max_size=20))
def test_no_form_of_a_server_breaks_the_interview(
    fields: dict[str, Any], required: Any, lines: list[str]
) -> None:
    schema = {"properties": fields, "required": required}
    asking = interview({"message": 1, "requestedSchema": schema}, "server", print)
    shown = next(asking)
    for line in lines:
        assert not any(character in shown for character in "\x1b\x07\u202e")
        try:
            shown = asking.send(line)
        except StopIteration:
            break


@given(st.integers() | st.text() | st.booleans() | st.none())
def test_what_is_shown_can_be_typed(value: object) -> None:
    assert convert(text_of(value), {"enum": [value]}) == value


def test_the_work_for_a_document_is_bounded() -> None:
    """200 parts for each of its fields were minutes for a list of tools of a few MB."""
    searched = {"allOf": [{"$ref": "#nowhere"}] * 199}
    properties: dict[str, Any] = {f"p{each}": searched for each in range(99)}
    properties |= {"last": {"$ref": "#/properties/plain"}, "plain": {"type": "boolean"}}
    fields, _ = fields_of({"d": [[{}] * 9000], "properties": properties})
    assert fields["last"] == {}, "it takes any value"
    few = {name: properties[name] for name in ("p0", "last", "plain")}
    assert fields_of({"properties": few})[0]["last"] == {"type": "boolean"}

    large: dict[str, Any] = {
        "properties": {f"a{each}": {} for each in range(9000)},
        "required": ["a1"] * 9000,
    }
    merged: dict[str, Any] = {"allOf": [{"$ref": "#/d"}, {"type": "object"}]}
    document: dict[str, Any] = {
        "d": large,
        "properties": {f"p{each}": merged for each in range(99)},
    }
    fields, _ = fields_of(document)
    assert fields["p0"]["required"] == ["a1"]
    assert len(fields["p0"]["properties"]) == 9000
    assert sum(len(each.get("properties", ())) for each in fields.values()) <= 100_000


@pytest.mark.parametrize(
    "schema", [{"enum": ["x"] * 9000}, {f"m{each}": 1 for each in range(9000)}]
)
def test_alternatives_of_a_large_schema_are_few(schema: dict[str, Any]) -> None:
    found = alternatives({**schema, "anyOf": [{}] * 200})
    assert 1 <= len(found) <= 3
    assert len(alternatives({"anyOf": [{}] * 300})) == 200


def test_names_that_are_long_are_not_shown_in_full() -> None:
    assert len(nearest("name", ["x" * 100_000] * 30)) < 3000
