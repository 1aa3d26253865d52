"""Arguments of tools that headers repeat, as the server's list of tools says."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from sansmcp import JsonRpcError, KnownServers, LocalProtocolError, RequestTimeout
from sansmcp.events import CallCompleted, ProtocolViolation, ToolRejected
from sansmcp.http import ConnectionLost, Unsent

from ..harness import POLICY, URL, Asked, error, notification, only_failure, response
from .harness import (
    MODERN,
    ModernClientHarness,
    ModernProcess,
    discovered,
    ends,
    failed,
    mirrored,
    tool,
)

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness().connect()


def call(harness: ModernClientHarness, arguments: Any, name: str = "query") -> tuple[int, Asked]:
    return harness.call(params={"name": name, "arguments": arguments})


def parameters(asked: Asked) -> dict[str, str]:
    """The headers that repeat arguments."""
    return {
        name.decode().removeprefix("mcp-param-"): value.decode()
        for name, value in asked.effect.head.headers
        if name.startswith(b"mcp-param-")
    }


def mismatch(asked: Asked) -> None:
    asked.answer(failed(asked.id, -32020, "headers differ"), 400)


# What is sent


@requirement(
    "HEADERS-C-007",
    "HEADERS-C-008",
    "HEADERS-C-013",
    "HEADERS-C-014",
    "HEADERS-C-015",
    "HEADERS-C-016",
    "HEADERS-C-017",
)
@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", "eu-west", "eu-west"),
        ("string", "two words", "two words"),
        ("string", "Zürich", None),
        ("string", " x", None),
        ("string", "x\n", None),
        ("string", "=?base64?eA==?=", None),
        ("string", "=?BASE64?eA==?=", "=?BASE64?eA==?="),
        ("integer", 42, "42"),
        ("integer", -1, "-1"),
        ("integer", 2**53 - 1, "9007199254740991"),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
    ],
)
def test_how_values_are_written(
    harness: ModernClientHarness, kind: str, value: Any, text: str | None
) -> None:
    harness.learn(tool("query", region=mirrored("Region", kind)))
    _, asked = call(harness, {"region": value, "other": 1})
    if text is None:
        text = f"=?base64?{base64.b64encode(value.encode()).decode()}?="
    assert parameters(asked) == {"region": text}
    assert asked.header("mcp-name") == "query"
    assert asked.json["params"]["arguments"] == {"region": value, "other": 1}


@requirement("HEADERS-C-022", "HEADERS-C-008")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"region": None},
        None,
        "text",
        {"Region": "x"},
        {"region": ["x"]},
        {"region": {"region": "x"}},
        {"region": 1.5},
    ],
)
def test_what_is_not_there_has_no_header(harness: ModernClientHarness, arguments: Any) -> None:
    harness.learn(tool("query", region=mirrored("Region")))
    assert parameters(call(harness, arguments)[1]) == {}


@requirement("HEADERS-B-006")
@pytest.mark.parametrize("number", [2**53, -(2**53), 10**400, 1e300])
def test_an_integer_that_is_too_large_is_refused_here(
    harness: ModernClientHarness, number: float
) -> None:
    harness.learn(tool("query", n=mirrored("Number", "integer")))
    before = harness.client.next_deadline()
    with pytest.raises(LocalProtocolError, match="too large for the header Mcp-Param-Number"):
        call(harness, {"n": number})
    assert (harness.client.next_deadline(), harness.requests) == (before, [])
    assert parameters(call(harness, {"m": number})[1]) == {}


@requirement("HEADERS-C-008", "HEADERS-B-007")
def test_arguments_in_arguments(harness: ModernClientHarness) -> None:
    place = {"type": "object", "properties": {"city": mirrored("City")}}
    harness.learn(tool("query", place=place, n=mirrored("Number", "integer")))
    _, asked = call(harness, {"place": {"city": "Ulm"}, "city": "no", "n": 5})
    assert parameters(asked) == {"city": "Ulm", "number": "5"}
    assert parameters(call(harness, {"place": "Ulm"})[1]) == {}


@requirement("HEADERS-C-018", "HEADERS-C-019", "HEADERS-C-020")
def test_the_latest_list_counts(harness: ModernClientHarness) -> None:
    arguments = {"a": "x", "b": "y"}
    assert parameters(call(harness, arguments)[1]) == {}  # nothing is known yet
    harness.learn(tool("query", a=mirrored("First")), tool("other", a=mirrored("Other")))
    assert parameters(call(harness, arguments)[1]) == {"first": "x"}
    assert parameters(call(harness, arguments, "other")[1]) == {"other": "x"}
    assert parameters(call(harness, arguments, "unknown")[1]) == {}
    harness.learn(tool("query", b=mirrored("Second")))
    assert parameters(call(harness, arguments)[1]) == {"second": "y"}
    assert parameters(call(harness, arguments, "other")[1]) == {"other": "x"}  # from another page
    harness.learn(tool("query"))
    assert parameters(call(harness, arguments)[1]) == {}


def test_only_calls_of_tools_have_them(harness: ModernClientHarness) -> None:
    harness.learn(tool("query", a=mirrored("First")))
    _, asked = harness.call("prompts/get", params={"name": "query", "arguments": {"a": "x"}})
    assert parameters(asked) == {}


def test_how_many_tools_are_remembered_is_bounded(harness: ModernClientHarness) -> None:
    harness.learn(*(tool(f"t{n}", a=mirrored("A")) for n in range(1001)))
    assert parameters(call(harness, {"a": "x"}, "t0")[1]) == {}
    assert parameters(call(harness, {"a": "x"}, "t1")[1]) == {"a": "x"}


# Definitions that break the rules


@requirement(
    "HEADERS-B-001",
    "HEADERS-B-002",
    "HEADERS-B-003",
    "HEADERS-B-004",
    "HEADERS-B-005",
    "HEADERS-B-007",
    "HEADERS-C-009",
    "HEADERS-C-010",
    "HEADERS-C-011",
)
@pytest.mark.parametrize(
    "properties",
    [
        {"a": mirrored("")},
        {"a": mirrored("with space")},
        {"a": mirrored("Ü")},
        {"a": mirrored("x\r\ny")},
        {"a": {"type": "string", "x-mcp-header": 5}},
        {"a": mirrored("X"), "b": mirrored("x")},
        {"a": mirrored("X", "number")},
        {"a": mirrored("X", "array")},
        {"a": mirrored("X", "object")},
        {"a": mirrored("X", "null")},
        {"a": {"x-mcp-header": "X"}},
        {"a": {"type": ["string", "null"], "x-mcp-header": "X"}},
        {"a": {"type": "array", "items": mirrored("X")}},
        {"a": {"anyOf": [mirrored("X")]}},
    ],
)
def test_a_tool_that_cannot_be_called_is_left_out(
    harness: ModernClientHarness, properties: Any
) -> None:
    harness.learn(tool("bad", a=mirrored("Before")))
    harness.take_events()
    good = tool("good", a=mirrored("A"))
    handle, asked = harness.call("tools/list")
    asked.result({"tools": [tool("bad", **properties), good], "ttlMs": 5, "nextCursor": "c"})
    rejected, completed = harness.events
    assert isinstance(rejected, ToolRejected)
    assert rejected.name == "bad"
    assert "x-mcp-header" in rejected.reason
    assert completed == CallCompleted(handle, {"tools": [good], "ttlMs": 5, "nextCursor": "c"})
    assert parameters(call(harness, {"a": "x"}, "bad")[1]) == {}


@requirement("HEADERS-B-014", "HEADERS-B-015")
def test_schemas_are_looked_through_and_never_fetched(harness: ModernClientHarness) -> None:
    far = tool("far", a={"$ref": "http://example.com/schema"})
    large = tool("large", **{f"p{n}": {"type": "string"} for n in range(20_000)})
    deep: dict[str, Any] = mirrored("Deep")
    for _ in range(20):
        deep = {"type": "object", "properties": {"p": deep}}
    harness.learn(far, large, {"name": "deep", "inputSchema": deep})
    assert [e.name for e in harness.events if isinstance(e, ToolRejected)] == ["large"]
    assert harness.requests == []


@pytest.mark.parametrize(
    "result",
    [
        {"tools": "x"},
        {},
        [],
        {"tools": [5, None, {}, {"name": 5}, {"name": "x", "inputSchema": 5}]},
    ],
)
def test_odd_lists_are_passed_on(harness: ModernClientHarness, result: Any) -> None:
    handle, asked = harness.call("tools/list")
    asked.result(result)
    assert harness.events == [CallCompleted(handle, result)]


@requirement("HEADERS-C-012")
def test_on_stdio_there_are_no_headers() -> None:
    harness = ModernProcess().connect()
    handle, id = harness.make("tools/list")
    harness.say(response(id, {"tools": [tool("query", a=mirrored(""))]}))
    assert harness.events == [CallCompleted(handle, {"tools": [tool("query", a=mirrored(""))]})]


@pytest.mark.both_eras
def test_at_older_revisions_there_are_none() -> None:
    known_servers = KnownServers()
    harness = ModernClientHarness(known_servers=known_servers, standalone_stream=False)
    harness.start().refuse(400)
    harness.initialize()
    bad = {"tools": [tool("query", a=mirrored("X", "number"))]}
    handle, asked = harness.call("tools/list")
    asked.result(bad)
    assert harness.events == [CallCompleted(handle, bad)]
    handle, asked = call(harness, {"a": "x"})
    mismatch(asked)
    assert isinstance(only_failure(harness, handle), JsonRpcError)


# Refused because of the headers


def refresh(harness: ModernClientHarness, *pages: Sequence[Any]) -> None:
    """Answer the question for the list of tools, page by page."""
    cursor = None
    for number, page in enumerate(pages, 1):
        asked = harness.take()
        assert asked.json["method"] == asked.header("mcp-method") == "tools/list"
        assert asked.header("mcp-protocol-version") == MODERN
        assert asked.json["params"].get("cursor") == cursor
        cursor = "" if number < len(pages) else None
        more = {} if cursor is None else {"nextCursor": cursor}
        asked.result({"tools": list(page), **more})


@requirement("HEADERS-C-021", "CACHE-C-017", "CACHE-C-018", "CACHE-C-020", "CACHE-C-021")
@pytest.mark.parametrize("first_page", [[tool("other")], []])
def test_the_list_is_fetched_again_and_the_call_made_once_more(
    harness: ModernClientHarness, first_page: list[Any]
) -> None:
    handle, asked = call(harness, {"a": "x"})
    first = asked.id
    mismatch(asked)
    refresh(harness, first_page, [tool("query", a=mirrored("A")), tool("bad", a=mirrored(""))])
    again = harness.take()
    assert again.id not in (first, first + 1, first + 2)
    assert parameters(again) == {"a": "x"}
    assert again.json["params"]["arguments"] == {"a": "x"}
    again.result({"x": 1})
    rejected, completed = harness.events
    assert isinstance(rejected, ToolRejected)
    assert completed == CallCompleted(handle, {"x": 1})


def test_a_list_that_a_busy_server_refuses_is_asked_for_again(
    harness: ModernClientHarness,
) -> None:
    """The application sees nothing of it: it has not made this request."""
    handle, asked = call(harness, {"a": "x"})
    mismatch(asked)
    harness.take().refuse(429, b"")
    assert harness.requests == []
    harness.wait(1.0)
    refresh(harness, [tool("query", a=mirrored("A"))])
    again = harness.take()
    assert parameters(again) == {"a": "x"}
    again.result({"x": 1})
    assert harness.events == [CallCompleted(handle, {"x": 1})]


@pytest.mark.parametrize("how", ["busy", "bad gateway", "unsent"])
def test_a_list_that_cannot_be_had_is_asked_for_a_few_times(
    harness: ModernClientHarness, how: str
) -> None:
    params = {"name": "query", "arguments": {"a": "x"}}
    handle, asked = harness.call(params=params, timeout=1000)
    mismatch(asked)
    for _ in range(POLICY.max_attempts + 1):
        listing = harness.take()
        assert listing.json["method"] == "tools/list"
        match how:
            case "busy":
                listing.refuse(429)
            case "bad gateway":
                listing.refuse(502)
            case _:
                listing.feed(ConnectionLost("no route to host", Unsent.UNREACHABLE))
        harness.wait(60)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    again.result()
    assert harness.events == [CallCompleted(handle, {})]


def test_it_is_done_once(harness: ModernClientHarness) -> None:
    handle, asked = call(harness, {"a": "x"})
    mismatch(asked)
    refresh(harness, [tool("query", a=mirrored("A"))])
    mismatch(harness.take())
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert failure.code == -32020
    assert harness.requests == []


def test_other_calls_are_not_made_again(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("prompts/get", params={"name": "x"})
    mismatch(asked)
    assert isinstance(only_failure(harness, handle), JsonRpcError)


def test_nor_are_calls_on_stdio() -> None:
    harness = ModernProcess().connect()
    handle, id = harness.make()
    harness.say(failed(id, -32020))
    assert isinstance(only_failure(harness, handle), JsonRpcError)
    assert harness.written == []


@pytest.mark.parametrize(
    "how", ["error", "error without id", "refused", "cut", "garbled", "nothing", "other", "odd"]
)
def test_without_a_list_the_call_is_made_again_all_the_same(
    harness: ModernClientHarness, how: str
) -> None:
    handle, asked = call(harness, {"a": "x"})
    mismatch(asked)
    listing = harness.take()
    match how:
        case "error":
            listing.answer(error(listing.id))
        case "error without id":
            listing.answer(error(None))
        case "refused":
            listing.refuse(500)
        case "cut":
            listing.cut()
        case "garbled":
            listing.answer(b"{")
        case "other":
            listing.answer(response(0))
        case "odd":
            listing.result({"nextCursor": 5})
        case _:
            listing.open_stream()
            listing.event(b"{")
            listing.event(notification("x"))
            listing.end()
    again = harness.take()
    assert again.json["method"] == "tools/call"
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]
    assert not any(isinstance(event, ProtocolViolation) for event in harness.events)


def test_a_list_without_end(harness: ModernClientHarness) -> None:
    _, asked = call(harness, {"a": "x"})
    mismatch(asked)
    for number in range(100):
        harness.take().result({"tools": [], "nextCursor": f"more {number}"})
    assert harness.take().json["method"] == "tools/call"


def test_a_list_whose_cursor_does_not_advance(harness: ModernClientHarness) -> None:
    _, asked = call(harness, {"a": "x"})
    mismatch(asked)
    for _ in range(2):
        harness.take().result({"tools": [], "nextCursor": "more"})
    assert harness.take().json["method"] == "tools/call"


@pytest.mark.parametrize("how", ["cancel", "timeout", "close"])
def test_a_call_that_ends_meanwhile(harness: ModernClientHarness, how: str) -> None:
    handle, asked = harness.call(params={"name": "query"}, timeout=5)
    mismatch(asked)
    listing = harness.take()
    listing.open_stream()
    if how == "timeout":
        harness.wait(5)
        assert isinstance(only_failure(harness, handle), RequestTimeout)
    elif how == "cancel":
        harness.run_command(harness.client.cancel, handle)
    else:
        harness.run_command(harness.client.close)
    assert listing.aborted
    listing.result({"tools": []})
    assert harness.requests == []
    assert harness.client.next_deadline() is None


def test_the_tools_of_another_client_are_not_known() -> None:
    known_servers = KnownServers()
    ModernClientHarness(known_servers=known_servers).connect().learn(tool("query", a=mirrored("A")))
    other = ModernClientHarness(known_servers=known_servers, url=URL)
    asked = other.start()
    asked.answer(discovered(asked.id))
    assert parameters(call(other, {"a": "x"})[1]) == {}


def test_a_list_that_comes_too_early_for_the_server_is_fetched_later(
    harness: ModernClientHarness,
) -> None:
    handle, asked = call(harness, {"a": "x"})
    mismatch(asked)
    harness.take().refuse(429)
    harness.wait(1)
    listing = harness.take()
    assert listing.json["method"] == "tools/list"
    listing.result({"tools": []})
    harness.take().result()
    assert ends(harness) == [CallCompleted(handle, {})]
    assert harness.events == ends(harness)
