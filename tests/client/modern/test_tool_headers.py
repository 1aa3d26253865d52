"""Arguments of tools that headers repeat, as the server's list of tools says."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from sansmcp import JsonRpcError, KnownServers, LocalProtocolError, RequestTimeout
from sansmcp.events import CallCompleted, ProtocolViolation, ToolRejected

from ..bench import URL, Asked, error, notification, only_failure, response
from .bench import MODERN, ModernBench, ModernProcess, discovered, ends, failed, mirrored, tool

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> ModernBench:
    return ModernBench().connect()


def call(bench: ModernBench, arguments: Any, name: str = "query") -> tuple[int, Asked]:
    return bench.call(params={"name": name, "arguments": arguments})


def parameters(asked: Asked) -> dict[str, str]:
    """The headers that repeat arguments."""
    return {
        name.decode().removeprefix("mcp-param-"): value.decode()
        for name, value in asked.effect.head.headers
        if name.startswith(b"mcp-param-")
    }


def mismatch(asked: Asked, status: int = 400) -> None:
    asked.answer(failed(asked.id, -32020, "headers differ"), status)


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
    bench: ModernBench, kind: str, value: Any, text: str | None
) -> None:
    bench.learn(tool("query", region=mirrored("Region", kind)))
    _, asked = call(bench, {"region": value, "other": 1})
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
def test_what_is_not_there_has_no_header(bench: ModernBench, arguments: Any) -> None:
    bench.learn(tool("query", region=mirrored("Region")))
    assert parameters(call(bench, arguments)[1]) == {}


@requirement("HEADERS-B-006")
@pytest.mark.parametrize("number", [2**53, -(2**53), 10**400, 1e300])
def test_an_integer_that_is_too_large_is_refused_here(bench: ModernBench, number: float) -> None:
    bench.learn(tool("query", n=mirrored("Number", "integer")))
    before = bench.client.next_deadline()
    with pytest.raises(LocalProtocolError, match="too large for the header Mcp-Param-Number"):
        call(bench, {"n": number})
    assert (bench.client.next_deadline(), bench.requests) == (before, [])
    assert parameters(call(bench, {"m": number})[1]) == {}


@requirement("HEADERS-C-008", "HEADERS-B-007")
def test_arguments_in_arguments(bench: ModernBench) -> None:
    place = {"type": "object", "properties": {"city": mirrored("City")}}
    bench.learn(tool("query", place=place, n=mirrored("Number", "integer")))
    _, asked = call(bench, {"place": {"city": "Ulm"}, "city": "no", "n": 5})
    assert parameters(asked) == {"city": "Ulm", "number": "5"}
    assert parameters(call(bench, {"place": "Ulm"})[1]) == {}


@requirement("HEADERS-C-018", "HEADERS-C-019", "HEADERS-C-020")
def test_the_latest_list_counts(bench: ModernBench) -> None:
    arguments = {"a": "x", "b": "y"}
    assert parameters(call(bench, arguments)[1]) == {}  # nothing is known yet
    bench.learn(tool("query", a=mirrored("First")), tool("other", a=mirrored("Other")))
    assert parameters(call(bench, arguments)[1]) == {"first": "x"}
    assert parameters(call(bench, arguments, "other")[1]) == {"other": "x"}
    assert parameters(call(bench, arguments, "unknown")[1]) == {}
    bench.learn(tool("query", b=mirrored("Second")))
    assert parameters(call(bench, arguments)[1]) == {"second": "y"}
    assert parameters(call(bench, arguments, "other")[1]) == {"other": "x"}  # from another page
    bench.learn(tool("query"))
    assert parameters(call(bench, arguments)[1]) == {}


def test_only_calls_of_tools_have_them(bench: ModernBench) -> None:
    bench.learn(tool("query", a=mirrored("First")))
    _, asked = bench.call("prompts/get", params={"name": "query", "arguments": {"a": "x"}})
    assert parameters(asked) == {}


def test_how_many_tools_are_remembered_is_bounded(bench: ModernBench) -> None:
    bench.learn(*(tool(f"t{n}", a=mirrored("A")) for n in range(1001)))
    assert parameters(call(bench, {"a": "x"}, "t0")[1]) == {}
    assert parameters(call(bench, {"a": "x"}, "t1")[1]) == {"a": "x"}


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
def test_a_tool_that_cannot_be_called_is_left_out(bench: ModernBench, properties: Any) -> None:
    bench.learn(tool("bad", a=mirrored("Before")))
    bench.take_events()
    good = tool("good", a=mirrored("A"))
    handle, asked = bench.call("tools/list")
    asked.result({"tools": [tool("bad", **properties), good], "ttlMs": 5, "nextCursor": "c"})
    rejected, completed = bench.events
    assert isinstance(rejected, ToolRejected)
    assert rejected.name == "bad"
    assert "x-mcp-header" in rejected.reason
    assert completed == CallCompleted(handle, {"tools": [good], "ttlMs": 5, "nextCursor": "c"})
    assert parameters(call(bench, {"a": "x"}, "bad")[1]) == {}


@requirement("HEADERS-B-014", "HEADERS-B-015")
def test_schemas_are_looked_through_and_never_fetched(bench: ModernBench) -> None:
    far = tool("far", a={"$ref": "http://example.com/schema"})
    large = tool("large", **{f"p{n}": {"type": "string"} for n in range(20_000)})
    deep: dict[str, Any] = mirrored("Deep")
    for _ in range(20):
        deep = {"type": "object", "properties": {"p": deep}}
    bench.learn(far, large, {"name": "deep", "inputSchema": deep})
    assert [e.name for e in bench.events if isinstance(e, ToolRejected)] == ["large"]
    assert bench.requests == []


@pytest.mark.parametrize(
    "result",
    [
        {"tools": "x"},
        {},
        [],
        {"tools": [5, None, {}, {"name": 5}, {"name": "x", "inputSchema": 5}]},
    ],
)
def test_odd_lists_are_passed_on(bench: ModernBench, result: Any) -> None:
    handle, asked = bench.call("tools/list")
    asked.result(result)
    assert bench.events == [CallCompleted(handle, result)]


@requirement("HEADERS-C-012")
def test_on_stdio_there_are_no_headers() -> None:
    bench = ModernProcess().connect()
    handle, id = bench.make("tools/list")
    bench.say(response(id, {"tools": [tool("query", a=mirrored(""))]}))
    assert bench.events == [CallCompleted(handle, {"tools": [tool("query", a=mirrored(""))]})]


@pytest.mark.both_eras
def test_at_older_revisions_there_are_none() -> None:
    known_servers = KnownServers()
    bench = ModernBench(known_servers=known_servers, standalone_stream=False)
    bench.start().refuse(400)
    bench.shake_hands()
    bad = {"tools": [tool("query", a=mirrored("X", "number"))]}
    handle, asked = bench.call("tools/list")
    asked.result(bad)
    assert bench.events == [CallCompleted(handle, bad)]
    handle, asked = call(bench, {"a": "x"})
    mismatch(asked)
    assert isinstance(only_failure(bench, handle), JsonRpcError)


# Refused because of the headers


def refresh(bench: ModernBench, *pages: Sequence[Any]) -> None:
    """Answer the question for the list of tools, page by page."""
    cursor = None
    for number, page in enumerate(pages, 1):
        asked = bench.take()
        assert asked.json["method"] == asked.header("mcp-method") == "tools/list"
        assert asked.header("mcp-protocol-version") == MODERN
        assert asked.json["params"].get("cursor") == cursor
        cursor = "" if number < len(pages) else None
        more = {} if cursor is None else {"nextCursor": cursor}
        asked.result({"tools": list(page), **more})


@requirement("HEADERS-C-021", "CACHE-C-017", "CACHE-C-018", "CACHE-C-020", "CACHE-C-021")
@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize("first_page", [[tool("other")], []])
def test_the_list_is_fetched_again_and_the_call_made_once_more(
    bench: ModernBench, status: int, first_page: list[Any]
) -> None:
    handle, asked = call(bench, {"a": "x"})
    first = asked.id
    mismatch(asked, status)
    refresh(bench, first_page, [tool("query", a=mirrored("A")), tool("bad", a=mirrored(""))])
    again = bench.take()
    assert again.id not in (first, first + 1, first + 2)
    assert parameters(again) == {"a": "x"}
    assert again.json["params"]["arguments"] == {"a": "x"}
    again.result({"x": 1})
    rejected, completed = bench.events
    assert isinstance(rejected, ToolRejected)
    assert completed == CallCompleted(handle, {"x": 1})


def test_it_is_done_once(bench: ModernBench) -> None:
    handle, asked = call(bench, {"a": "x"})
    mismatch(asked)
    refresh(bench, [tool("query", a=mirrored("A"))])
    mismatch(bench.take())
    failure = only_failure(bench, handle)
    assert isinstance(failure, JsonRpcError)
    assert failure.code == -32020
    assert bench.requests == []


def test_other_calls_are_not_made_again(bench: ModernBench) -> None:
    handle, asked = bench.call("prompts/get", params={"name": "x"})
    mismatch(asked)
    assert isinstance(only_failure(bench, handle), JsonRpcError)


def test_nor_are_calls_on_stdio() -> None:
    bench = ModernProcess().connect()
    handle, id = bench.make()
    bench.say(failed(id, -32020))
    assert isinstance(only_failure(bench, handle), JsonRpcError)
    assert bench.written == []


@pytest.mark.parametrize(
    "how", ["error", "error without id", "refused", "cut", "garbled", "nothing", "other", "odd"]
)
def test_without_a_list_the_call_is_made_again_all_the_same(bench: ModernBench, how: str) -> None:
    handle, asked = call(bench, {"a": "x"})
    mismatch(asked)
    listing = bench.take()
    match how:
        case "error":
            listing.answer(error(listing.id))
        case "error without id":
            listing.answer(error(None))
        case "refused":
            listing.refuse(503)
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
    again = bench.take()
    assert again.json["method"] == "tools/call"
    again.result()
    assert ends(bench) == [CallCompleted(handle, {})]
    assert not any(isinstance(event, ProtocolViolation) for event in bench.events)


def test_a_list_without_end(bench: ModernBench) -> None:
    _, asked = call(bench, {"a": "x"})
    mismatch(asked)
    for _ in range(100):
        bench.take().result({"tools": [], "nextCursor": "more"})
    assert bench.take().json["method"] == "tools/call"


@pytest.mark.parametrize("how", ["cancel", "timeout", "close"])
def test_a_call_that_ends_meanwhile(bench: ModernBench, how: str) -> None:
    handle, asked = bench.call(params={"name": "query"}, timeout=5)
    mismatch(asked)
    listing = bench.take()
    listing.open_stream()
    if how == "timeout":
        bench.wait(5)
        assert isinstance(only_failure(bench, handle), RequestTimeout)
    elif how == "cancel":
        bench.do(bench.client.cancel, handle)
    else:
        bench.do(bench.client.close)
    assert listing.aborted
    listing.result({"tools": []})
    assert bench.requests == []
    assert bench.client.next_deadline() is None


def test_the_tools_of_another_client_are_not_known() -> None:
    known_servers = KnownServers()
    ModernBench(known_servers=known_servers).connect().learn(tool("query", a=mirrored("A")))
    other = ModernBench(known_servers=known_servers, url=URL)
    asked = other.start()
    asked.answer(discovered(asked.id))
    assert parameters(call(other, {"a": "x"})[1]) == {}
