"""Headers that repeat a body: every text can be said, and schemas name them by strict rules."""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sansmcp.codecs import mirrored

requirement = pytest.mark.requirement

LEGAL = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
LARGEST = 2**53 - 1
TEXTS = st.text() | st.text("=?base64QUI \t") | st.from_regex(r"=\?base64\?.*\?=", fullmatch=True)


# Values


@requirement("HEADERS-B-008", "HEADERS-C-006", "HEADERS-C-015", "HEADERS-C-016", "HEADERS-S-003")
@given(text=TEXTS)
def test_every_text_can_be_said(text: str) -> None:
    header = mirrored.encode_header_value(text)
    assert LEGAL.fullmatch(header)
    assert mirrored.decode_header_value(header) == text
    assert mirrored.header_matches(header, text)


CLASSES = sorted({unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)} - {"Cs"})
"""Of all characters there are, but for halves of some, which no text has alone."""


@requirement("HEADERS-C-006", "HEADERS-C-015", "HEADERS-S-003")
@pytest.mark.parametrize("category", CLASSES)
@settings(max_examples=10)
@given(data=st.data())
def test_characters_of_every_class_can_be_said(category: Any, data: st.DataObject) -> None:
    text = data.draw(st.text(st.characters(categories=[category]), min_size=1))
    assert mirrored.header_matches(mirrored.encode_header_value(text), text)
    assert mirrored.header_matches(mirrored.encode_header_value(f"a{text}b"), f"a{text}b")


@given(text=TEXTS, other=TEXTS)
def test_a_header_says_one_text(text: str, other: str) -> None:
    assert mirrored.header_matches(mirrored.encode_header_value(text), other) is (text == other)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("eu", b"eu"),
        ("a b", b"a b"),
        ("~!", b"~!"),
        ("", b"=?base64??="),
        (" a", b"=?base64?IGE=?="),
        ("a ", b"=?base64?YSA=?="),
        ("a\tb", b"=?base64?YQli?="),
        ("Zürich", b"=?base64?WsO8cmljaA==?="),
        ("=?base64?eA==?=", b"=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ("=?BASE64?eA==?=", b"=?BASE64?eA==?="),
        ("=?base64?=", b"=?base64?="),
        ("=?base64?eA==", b"=?base64?eA=="),
    ],
)
def test_only_what_has_to_be_is_encoded(text: str, header: bytes) -> None:
    assert mirrored.encode_header_value(text) == header
    assert mirrored.decode_header_value(header) == text


def test_half_of_a_character_is_replaced() -> None:
    """The body cannot say it either."""
    assert mirrored.encode_header_value("\ud800") == b"?"


@given(header=st.binary() | st.binary().map(lambda raw: b"=?base64?" + raw + b"?="))
def test_any_bytes_can_be_read(header: bytes) -> None:
    text = mirrored.decode_header_value(header)
    assert text is None or mirrored.decode_header_value(mirrored.encode_header_value(text)) == text


@requirement("HEADERS-S-013", "HEADERS-S-004")
@pytest.mark.parametrize(
    "header",
    [
        b"=?base64?x?=",
        b"=?base64?eA=?=",
        b"=?base64?e\nA==?=",
        b"=?base64?/w==?=",
        b"=?base64?_w==?=",
        b"\xc3\xbc",
        b"\xfc",
        b"a\x00",
        b"a\nb",
        b"\x7f",
    ],
)
def test_what_cannot_be_read(header: bytes) -> None:
    assert mirrored.decode_header_value(header) is None
    assert not mirrored.header_matches(header, header.decode("latin-1"))


@requirement("HEADERS-B-006")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        ("", ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (42.0, "42"),
        (LARGEST, str(LARGEST)),
        (-LARGEST, str(-LARGEST)),
        (LARGEST + 1, None),
        (-LARGEST - 1, None),
        (1e300, None),
        (1.5, None),
        (float("inf"), None),
        (None, None),
        ([], None),
        ({}, None),
    ],
)
def test_what_a_header_says_of_a_value(value: Any, text: str | None) -> None:
    assert mirrored.header_text(value) == text
    assert mirrored.header_matches((text or "x").encode(), value) is (bool(text))


@requirement("HEADERS-S-015")
@given(number=st.integers(-LARGEST, LARGEST), other=st.integers(-LARGEST, LARGEST))
def test_integers_are_compared_as_numbers(number: int, other: int) -> None:
    assert mirrored.header_matches(b"%d" % number, number)
    assert mirrored.header_matches(b"%d.00" % number, number)
    assert mirrored.header_matches(b"%d" % number, float(number))
    assert mirrored.header_matches(b"%d" % number, other) is (number == other)
    assert not mirrored.header_matches(b"%d.5" % number, number)
    assert not mirrored.header_matches(b"%d.0" % number, str(number))


# Schemas


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def named(name: Any, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


@requirement("HEADERS-B-002", "HEADERS-B-005", "HEADERS-B-007")
def test_a_schema_names_headers() -> None:
    deep = of(inner=of(zone=named("Zone", "boolean")), plain={"type": "string"})
    schema = of(region=named("Region"), size=named("X-Size_1", "integer"), deep=deep)
    assert mirrored.parameters(schema) == {
        "Region": ("region",),
        "X-Size_1": ("size",),
        "Zone": ("deep", "inner", "zone"),
    }
    assert mirrored.parameters(of(odd=named("!#$%&'*+.^_`|~-0"))) == {"!#$%&'*+.^_`|~-0": ("odd",)}


def test_a_schema_without_headers() -> None:
    schemas: list[dict[str, Any]] = [{}, of(), of(a={}, b=True, c=None, d=[]), {"properties": []}]
    for schema in schemas:
        assert mirrored.parameters(schema) == {}


@requirement("HEADERS-B-001", "HEADERS-B-002", "HEADERS-B-003")
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a:b",
        "a\tb",
        "a\r\nb",
        "a\n",
        "\x00",
        "ü",
        "a/b",
        "(a)",
        '"a"',
        "a,b",
        None,
        5,
        {},
    ],
)
def test_names_that_are_no_header(name: Any) -> None:
    with pytest.raises(ValueError, match="not a header name"):
        mirrored.parameters(of(a=named(name)))


@requirement("HEADERS-B-004")
def test_names_are_unique_without_regard_to_case() -> None:
    for first, second in (("A", "A"), ("Region", "REGION")):
        with pytest.raises(ValueError, match="twice"):
            mirrored.parameters(of(a=named(first), b=of(c=named(second))))


@requirement("HEADERS-B-005")
@pytest.mark.parametrize(
    "kind",
    ["number", "array", "object", "null", None, "String", ["string"], ["string", "null"], {}],
)
def test_types_that_cannot_be_repeated(kind: Any) -> None:
    with pytest.raises(ValueError, match="only"):
        mirrored.parameters(of(a=named("A", kind)))
    with pytest.raises(ValueError, match="only"):
        mirrored.parameters(of(a={"x-mcp-header": "A"}))


@requirement("HEADERS-B-007", "HEADERS-B-014")
@pytest.mark.parametrize(
    "schema",
    [
        named("A"),
        {"items": named("A")},
        of(a={"type": "array", "items": named("A")}),
        of(a={"type": "array", "items": of(b=named("A"))}),
        of(a={"prefixItems": [named("A")]}),
        {"oneOf": [of(a=named("A"))]},
        {"anyOf": [of(a=named("A"))]},
        {"allOf": [{}, of(a=named("A"))]},
        {"not": of(a=named("A"))},
        {"if": of(a=named("A"))},
        {"then": of(a=named("A")), "else": {}},
        {"additionalProperties": named("A")},
        {"patternProperties": {"^a": named("A")}},
        {"dependentSchemas": {"a": of(b=named("A"))}},
        {"$ref": "#/$defs/a", "$defs": {"a": of(a=named("A"))}},
        {"definitions": {"a": named("A")}},
        of(a={"$defs": {"b": named("A")}}),
        {"properties": [named("A")]},
    ],
)
def test_places_that_name_no_argument(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not on one particular argument"):
        mirrored.parameters(schema)


def test_what_looks_like_a_header_and_is_none() -> None:
    """Arguments, and values, may have that name."""
    argument = {"x-mcp-header": {"type": "string"}}
    data = {"x-mcp-header": 5}
    for schema in (
        of(**argument),
        {"items": {"properties": argument}},
        {"$defs": argument},
        {"const": data},
        of(a={"default": data, "enum": [data], "examples": [data]}),
    ):
        assert mirrored.parameters(schema) == {}
    assert mirrored.parameters(of(properties=of(properties=named("A")))) == {
        "A": ("properties", "properties")
    }


@requirement("HEADERS-B-014")
@pytest.mark.parametrize("target", ["https://evil.example/schema", "#/$defs/a", "#"])
def test_references_are_never_followed(target: str) -> None:
    schema = {**of(a={"$ref": target}, b=named("B")), "$defs": {"a": {"$ref": target}}}
    assert mirrored.parameters(schema) == {"B": ("b",)}


@requirement("HEADERS-B-015")
@pytest.mark.parametrize("keyword", ["items", "properties", "allOf"])
def test_a_schema_that_is_too_deep(keyword: str) -> None:
    schema: Any = {}
    for _ in range(20_000):
        schema = {
            keyword: {"items": schema, "properties": {"a": schema}, "allOf": [schema]}[keyword]
        }
    with pytest.raises(ValueError, match="too large"):
        mirrored.parameters(schema)
    while schema:  # for the interpreter would take it apart by recursion
        inner = schema.pop(keyword)
        schema = inner[0] if keyword == "allOf" else inner.get("a", inner)


@requirement("HEADERS-B-015")
def test_a_schema_that_is_too_broad() -> None:
    with pytest.raises(ValueError, match="too large"):
        mirrored.parameters(of(**{str(number): {} for number in range(20_000)}))
    with pytest.raises(ValueError, match="too large"):
        mirrored.parameters({"anyOf": [{}] * 20_000})


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number"])},
        optional={"x-mcp-header": st.sampled_from(["A", "b", "C", "c", ""])},
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("xyz"), inner),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
        },
    ),
    max_leaves=8,
)


@given(schema=SCHEMAS)
def test_what_is_named_is_found_again(schema: dict[str, Any]) -> None:
    try:
        found = mirrored.parameters(schema)
    except ValueError:
        return
    for name, path in found.items():
        node = schema
        for step in path:
            node = node["properties"][step]
        assert node["x-mcp-header"] == name


# Arguments


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"a": {"b": 1}}, 1),
        ({"a": {"b": None}}, None),
        ({"a": {}}, None),
        ({"a": []}, None),
        ({"a": "b"}, None),
        ({"a": None}, None),
        ({}, None),
    ],
)
def test_the_argument_at_a_path(arguments: dict[str, Any], value: Any) -> None:
    assert mirrored.argument_at(arguments, ("a", "b")) == value
