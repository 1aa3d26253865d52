"""Headers that repeat a name or an argument: what they must say, and in which spelling."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sansmcp import App

from ...handlers import nothing
from ..harness import expect
from ..pipe_harness import Pipe
from .harness import ModernServerHarness, modern, modern_app

requirement = pytest.mark.requirement

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "size": {"type": "integer", "x-mcp-header": "Size"},
        "fast": {"type": "boolean", "x-mcp-header": "Fast"},
        "where": {
            "type": "object",
            "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}},
        },
        "free": {"type": "string"},
    },
}


def b64(raw: str | bytes) -> str:
    data = raw.encode() if isinstance(raw, str) else raw
    return f"=?base64?{base64.b64encode(data).decode()}?="


@pytest.fixture
def harness() -> ModernServerHarness:
    app = modern_app()
    app.input_schema = {"query": SCHEMA}.get
    return ModernServerHarness(app)


def took(harness: ModernServerHarness, arguments: Any, *headers: tuple[str, str | bytes]) -> bool:
    """Whether a call with these arguments and headers is taken; if not, it has to be refused."""
    message = modern(1, name="query", arguments=arguments)
    lines = [
        (f"mcp-param-{name}".lower().encode(), v.encode() if isinstance(v, str) else v)
        for name, v in headers
    ]
    talk = harness.ask_with(message, *lines)
    if talk.head is None:
        assert harness.last_call().request.params == message["params"]
        return True
    expect(talk, 400, "header_mismatch", -32020, id=1)
    assert talk.error["data"]["header"].startswith("mcp-param-")
    return False


# Mcp-Name


@requirement("HEADERS-S-003", "HEADERS-S-010", "HEADERS-B-009")
@pytest.mark.parametrize(
    ("method", "parameter"),
    [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")],
)
@pytest.mark.parametrize("name", ["a", "Zürich", " a ", "", "=?base64?YQ==?=", "a\nb", "日本"])
def test_the_name_is_repeated(
    harness: ModernServerHarness, method: str, parameter: str, name: str
) -> None:
    message = modern(1, method, **{parameter: name})
    assert harness.ask(message, {"mcp-name": b64(name)}).head is None
    harness.last_call()
    for wrong in (None, b64(name + "x"), b64(name)[:-1], "other"):
        expect(harness.ask(message, {"mcp-name": wrong}), 400, "header_mismatch", -32020, id=1)


def test_other_methods_have_no_name(harness: ModernServerHarness) -> None:
    assert harness.ask(modern(1, "tools/list", name="x")).head is None
    assert harness.ask(modern(2, "tools/list"), {"mcp-name": "anything"}).head is None


def test_a_name_that_is_missing_from_the_body(harness: ModernServerHarness) -> None:
    message = modern(1, "resources/read")
    assert harness.ask(message, {"mcp-name": None}).head is None
    assert harness.last_call().request.method == "resources/read"
    expect(harness.ask(message, {"mcp-name": "x"}), 400, "header_mismatch", -32020, id=1)
    message = modern(1, "resources/read", uri=["x"])
    expect(harness.ask(message, {"mcp-name": None}), 400, "header_mismatch", -32020, id=1)


# Mcp-Param


@requirement("HEADERS-S-005", "HEADERS-S-003", "HEADERS-B-013")
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, [("Region", "eu")]),
        ({"region": "eu"}, [("REGION", "eu")]),
        ({"region": "eu"}, [("Region", b64("eu"))]),
        ({"region": "Zürich"}, [("Region", b64("Zürich"))]),
        ({"region": "a\tb"}, [("Region", "a\tb")]),
        ({"region": "a\tb"}, [("Region", b64("a\tb"))]),
        ({"region": ""}, [("Region", "")]),
        ({"region": ""}, [("Region", b64(""))]),
        ({"region": "a b"}, [("Region", " a b ")]),
        ({"region": "=?base64?eA==?="}, [("Region", b64("=?base64?eA==?="))]),
        ({"fast": True}, [("Fast", "true")]),
        ({"fast": False}, [("Fast", "false")]),
        ({"where": {"zone": "a"}}, [("Zone", "a")]),
        ({"region": "eu", "size": 1}, [("Size", "1"), ("Region", "eu")]),
    ],
)
def test_an_argument_is_repeated(
    harness: ModernServerHarness, arguments: Any, headers: list[tuple[str, str]]
) -> None:
    assert took(harness, arguments, *headers)
    for index in range(len(headers)):
        assert not took(harness, arguments, *headers[:index], *headers[index + 1 :])
    assert not took(harness, arguments, *headers, headers[0])  # doubled


@requirement("HEADERS-S-005", "HEADERS-S-006", "HEADERS-S-013", "HEADERS-S-004", "HEADERS-B-008")
@pytest.mark.parametrize(
    ("arguments", "header", "value"),
    [
        ({"region": "eu"}, "Region", "us"),
        ({"region": "eu"}, "Region", "EU"),
        ({"region": "eu"}, "Region", b64("us")),
        ({"region": "eu"}, "Region", ""),
        ({"region": "x"}, "Region", "=?base64?x?="),
        ({"region": "x"}, "Region", "=?base64?eA=?="),
        ({"region": "x"}, "Region", "=?base64?e A==?="),
        ({"region": "x"}, "Region", "=?BASE64?eA==?="),
        ({"region": "x"}, "Region", "=?base64?eA=="),
        ({"region": "x"}, "Region", "base64?eA==?="),
        ({"region": ""}, "Region", "=?base64?="),
        ({"region": "\ufffd"}, "Region", b64(b"\xff")),
        ({"region": "ü"}, "Region", "ü"),
        ({"region": "ü"}, "Region", b"\xfc"),
        ({"region": "a\x00"}, "Region", "a\x00"),
        ({"region": "a\x7f"}, "Region", "a\x7f"),
        ({"region": "a\r\nb"}, "Region", b"a\r\nb"),
        ({"fast": True}, "Fast", "True"),
        ({"fast": True}, "Fast", "1"),
        ({"fast": True}, "Fast", "1.0"),
        ({"fast": False}, "Fast", "0"),
        ({"size": 1}, "Size", "true"),
        ({"where": {"zone": "a"}}, "Zone", "b"),
    ],
)
def test_a_header_that_says_something_else(
    harness: ModernServerHarness, arguments: Any, header: str, value: str
) -> None:
    assert not took(harness, arguments, (header, value))


@requirement("HEADERS-S-015")
@pytest.mark.parametrize("argument", [42, 42.0])
@pytest.mark.parametrize("header", ["42", "42.0", "42.000", "042", b64("42"), b64("42.0")])
def test_integers_are_compared_as_numbers(
    harness: ModernServerHarness, argument: float, header: str
) -> None:
    assert took(harness, {"size": argument}, ("Size", header))


@requirement("HEADERS-S-015")
@pytest.mark.parametrize(
    "header",
    ["42.5", "43", "-42", "42.", "4 2", "0x2a", "4.2e1", "+42", b64("٤٢"), "", "forty-two"],
)
def test_integers_that_differ(harness: ModernServerHarness, header: str) -> None:
    assert not took(harness, {"size": 42}, ("Size", header))


@requirement("HEADERS-B-006")
def test_integers_are_those_that_every_peer_can_hold(harness: ModernServerHarness) -> None:
    for size in (2**53 - 1, 1 - 2**53, 0, -1):
        assert took(harness, {"size": size}, ("Size", str(size)))
    for large in (2**53, -(2**53), 10**30, 1e300):
        assert not took(harness, {"size": large}, ("Size", f"{large:.0f}"))
        assert not took(harness, {"size": large})


@requirement("HEADERS-S-007")
@pytest.mark.parametrize("value", ["eu", "", 7, 1.5, True, [], {}])
def test_whatever_stands_in_the_body_needs_its_header(
    harness: ModernServerHarness, value: Any
) -> None:
    assert not took(harness, {"region": value})


@requirement("HEADERS-S-008")
@pytest.mark.parametrize(
    "arguments",
    [{}, {"region": None}, {"where": None}, {"where": {}}, {"where": []}, {"free": "x"}],
)
def test_what_is_not_there_has_no_header(harness: ModernServerHarness, arguments: Any) -> None:
    assert took(harness, arguments)
    assert not took(harness, arguments, ("Region", "eu"))
    assert not took(harness, arguments, ("Zone", ""))


def test_arguments_that_are_missing_altogether(harness: ModernServerHarness) -> None:
    for arguments in (None, 5, "x"):
        assert took(harness, arguments)
        assert not took(harness, arguments, ("Region", "eu"))


@requirement("HEADERS-S-018", "HEADERS-B-013")
def test_headers_that_nobody_knows_are_of_no_interest(harness: ModernServerHarness) -> None:
    """What the application gets is the body."""
    assert took(harness, {}, ("Other", "x"), ("Other", "y"), ("", "\xff"))
    message = modern(1, name="unknown", arguments={"region": "eu"})
    assert harness.ask(message, {"mcp-param-region": "us"}).head is None
    assert (harness.last_call().request.params or {})["arguments"] == {"region": "eu"}


def test_without_schemas_there_is_nothing_to_compare() -> None:
    harness = ModernServerHarness()
    message = modern(1, name="query", arguments={"region": "eu"})
    assert harness.ask(message, {"mcp-param-region": "us"}).head is None


def test_other_methods_have_no_arguments(harness: ModernServerHarness) -> None:
    message = modern(1, "prompts/get", name="query", arguments={"region": "eu"})
    assert harness.ask(message).head is None


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A B"}}},
        {"items": {"type": "string", "x-mcp-header": "A"}},
    ],
)
def test_a_tool_whose_definition_is_wrong_cannot_be_called(schema: dict[str, Any]) -> None:
    """Headers that cannot be checked are not to be trusted by anybody on the way."""
    app = App("bench", input_schema=lambda _: schema)
    app.handler("tools/call")(nothing)
    harness = ModernServerHarness(app)
    expect(harness.ask(modern(1)), 500, "bad_tool", -32603, id=1)


@requirement("HEADERS-S-002")
def test_on_stdio_there_are_no_headers() -> None:
    app = modern_app()
    app.input_schema = {"query": SCHEMA}.get
    pipe = Pipe(app).say(modern(1, name="query", arguments={"region": "eu"}))
    assert pipe.harness.last_call().is_running
