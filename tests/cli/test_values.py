"""Words that a person types become the values that a schema asks for."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp_cli._form import interview
from sansmcp_cli._values import convert, convert_list, describe, resolved, text_of

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
