"""Results that are kept for as long as the server says that they hold, where that is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import JsonRpcError, Limits
from sansmcp.events import CallCompleted, CallFailed

from ..harness import ClientHarness, error, notification, response
from .harness import (
    ModernClientHarness,
    ModernProcess,
    input_required,
    mirrored,
    question,
    tool,
)

requirement = pytest.mark.requirement
LIST = "tools/list"
READ = "resources/read"
CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(cache=True).connect()


def holding(seconds: float = 60, **members: Any) -> dict[str, Any]:
    """A result that holds for so long."""
    return {"resultType": "complete", "ttlMs": int(seconds * 1000), **members}


def fetch(
    harness: ModernClientHarness, method: str = LIST, result: Any = None, **params: Any
) -> None:
    """A call that is a request."""
    _, asked = harness.call(method, params=params)
    asked.result(holding() if result is None else result)
    harness.take_events()


def known(harness: ClientHarness, method: str = LIST, **params: Any) -> Any:
    """The result of a call that is no request; None for one that is."""
    handle = harness.run_command(harness.client.call, method, params)
    if harness.requests:
        harness.requests.clear()
        harness.run_command(harness.client.cancel, handle)
        harness.take_events()
        return None
    (event,) = harness.take_events()
    assert isinstance(event, CallCompleted)
    assert event.call == handle
    return event.result


def tell(harness: ModernClientHarness, method: str, **params: Any) -> None:
    """The server tells something, on the stream of some call."""
    _, asked = harness.call("tools/call", params={"name": "x"})
    asked.open_stream()
    asked.event(notification(method, **params))
    asked.event(response(asked.id))
    harness.take_events()


# How long


@requirement("CACHE-C-018")
def test_otherwise_every_call_is_a_request_and_hints_are_passed_on() -> None:
    harness = ModernClientHarness().connect()
    result: dict[str, Any] = {
        "resources": [],
        "ttlMs": 60000,
        "cacheScope": "public",
        "nextCursor": "",
    }
    for params in ({}, {}, {"cursor": ""}):
        handle, asked = harness.call("resources/list", params=params)
        assert asked.json["params"].get("cursor") == params.get("cursor")
        asked.result(result)
        assert harness.take_events() == [CallCompleted(handle, result)]
        assert harness.client.next_deadline() is None


@requirement("CACHE-C-002", "CACHE-C-005", "CACHE-C-006")
def test_a_result_holds_until_its_time_is_over(harness: ModernClientHarness) -> None:
    harness.wait(3)
    _, asked = harness.call(LIST)
    harness.wait(7)
    asked.result(holding(60, tools=[], more=[1]))  # it counts from here
    harness.take_events()
    harness.wait(59.999)
    assert known(harness) == holding(60, tools=[], more=[1])
    harness.wait(0.001)
    assert harness.requests == []  # nobody has asked
    assert known(harness) is None


@requirement("CACHE-C-001", "CACHE-C-003", "CACHE-C-004")
@pytest.mark.parametrize("ttl", [0, -1, None, 1.5, "60000", True, {}])
def test_a_result_that_holds_not_at_all(harness: ModernClientHarness, ttl: Any) -> None:
    fetch(harness, result={"resultType": "complete", "ttlMs": ttl})
    assert known(harness) is None
    fetch(harness, result={"resultType": "complete"})
    assert known(harness) is None


@pytest.mark.parametrize("result", [None, [], "x"])
def test_what_is_no_object_is_not_kept(harness: ModernClientHarness, result: Any) -> None:
    _, asked = harness.call(LIST)
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "result": result})
    harness.take_events()
    assert known(harness) is None


def test_for_ever_is_a_day(harness: ModernClientHarness) -> None:
    fetch(harness, result={"ttlMs": 10**400})
    harness.wait(86_399)
    assert known(harness) is not None
    harness.wait(1)
    assert known(harness) is None


def test_nobody_can_change_what_others_get(harness: ModernClientHarness) -> None:
    fetch(harness, result=holding(tools=[]))
    known(harness)["tools"].append("x")
    assert known(harness)["tools"] == []


# Of what


@requirement("CACHE-C-009")
@pytest.mark.parametrize(
    "method",
    [LIST, "prompts/list", "resources/list", "resources/templates/list", READ],
)
def test_every_request_has_a_result_of_its_own(harness: ModernClientHarness, method: str) -> None:
    fetch(harness, method, holding(n=1), uri="a", cursor="b")
    assert known(harness, method, uri="a") is None
    assert known(harness, method, uri="b", cursor="b") is None
    assert known(harness, method, uri="a", cursor="B") is None
    assert known(harness, "prompts/list" if method == LIST else LIST, uri="a", cursor="b") is None
    assert known(harness, method, cursor="b", uri="a", _meta={"x": 1}) == holding(n=1)


@pytest.mark.parametrize(
    "method", ["server/discover", "tools/call", "prompts/get", "completion/complete"]
)
def test_other_results_are_not_kept(harness: ModernClientHarness, method: str) -> None:
    fetch(harness, method)
    assert known(harness, method) is None


@requirement("CACHE-C-014", "CACHE-S-007")
def test_pages_have_times_of_their_own(harness: ModernClientHarness) -> None:
    fetch(harness, LIST, holding(60, nextCursor="2"))
    fetch(harness, LIST, holding(10), cursor="2")
    harness.wait(10)
    assert known(harness)["nextCursor"] == "2"
    _, asked = harness.call(LIST, params={"cursor": "2"})
    assert asked.json["params"]["cursor"] == "2"


@requirement("CACHE-C-016")
def test_pages_go_together_when_a_cursor_is_no_good(harness: ModernClientHarness) -> None:
    fetch(harness, LIST, holding(60, nextCursor="2"))
    fetch(harness, "prompts/list")
    _, asked = harness.call(LIST, params={"cursor": "2"})
    asked.answer(error(asked.id, -32602))
    (failed,) = harness.take_events()
    assert isinstance(failed, CallFailed)
    assert isinstance(failed.error, JsonRpcError)
    assert known(harness) is None
    assert known(harness, "prompts/list") is not None


def test_other_errors_change_nothing(harness: ModernClientHarness) -> None:
    fetch(harness)
    for params, code in (({"cursor": "2"}, -32603), ({"x": 1}, -32602)):
        _, asked = harness.call(LIST, params=params)
        asked.answer(error(asked.id, code))
    harness.take_events()
    assert known(harness) is not None


@requirement("CACHE-C-010")
def test_results_of_rounds_are_not_kept() -> None:
    harness = ModernClientHarness(cache=True, capabilities={"roots": {}}).connect()
    _, asked = harness.call(READ, params={"uri": "a"})
    asked.result(input_required({"r": question("roots/list")}, "state"))
    harness.run_command(harness.client.respond, f"{asked.id}/r", {"roots": []})
    harness.take().result(holding())
    harness.take_events()
    assert known(harness, READ, uri="a") is None
    fetch(harness, READ, None, uri="b", requestState="s")
    assert known(harness, READ, uri="b", requestState="s") is None


def test_what_is_rejected_of_a_list_is_not_in_what_is_kept(harness: ModernClientHarness) -> None:
    fetch(harness, LIST, holding(tools=[tool("good"), tool("bad", x=mirrored("not a name"))]))
    assert known(harness) == holding(tools=[tool("good")])


# Changes


@requirement("CACHE-C-013")
@pytest.mark.parametrize(
    ("what", "methods"),
    [
        ("tools", {LIST}),
        ("prompts", {"prompts/list"}),
        ("resources", {"resources/list", "resources/templates/list"}),
    ],
)
def test_a_list_that_has_changed_is_fetched_again(
    harness: ModernClientHarness, what: str, methods: set[str]
) -> None:
    lists = {LIST, "prompts/list", "resources/list", "resources/templates/list"}
    for method in (*lists, READ):
        fetch(harness, method)
    tell(harness, f"notifications/{what}/list_changed")
    assert {method for method in (*lists, READ) if known(harness, method) is None} == methods


@requirement("CACHE-C-013")
@pytest.mark.parametrize(
    ("updated", "changed"),
    [
        ("file:///a", ["file:///a"]),
        ("file:///a/b", ["file:///a", "file:///a/b", "file:///a/"]),
        ("file:///ab", ["file:///ab"]),
        ("file:///c", []),
        (None, []),
    ],
)
def test_a_resource_that_has_changed_is_read_again(
    harness: ModernClientHarness, updated: Any, changed: list[str]
) -> None:
    uris = ["file:///a", "file:///a/b", "file:///a/", "file:///ab"]
    for uri in uris:
        fetch(harness, READ, None, uri=uri)
    fetch(harness, READ)
    tell(harness, UPDATED, uri=updated)
    assert {uri for uri in uris if known(harness, READ, uri=uri) is None} == set(changed)
    assert known(harness, READ) is not None


@requirement("CACHE-C-013")
def test_what_was_asked_for_before_a_change_is_not_kept(harness: ModernClientHarness) -> None:
    _, asked = harness.call(LIST)
    tell(harness, CHANGED)
    asked.result(holding())
    harness.take_events()
    assert known(harness) is None


def test_a_list_that_headers_have_proven_wrong_is_fetched_again(
    harness: ModernClientHarness,
) -> None:
    fetch(harness, LIST, holding(tools=[]))
    _, asked = harness.call("tools/call", params={"name": "t"})
    asked.answer(error(asked.id, -32020), 400)
    harness.take().result(holding(tools=[]))
    harness.take().result()
    harness.take_events()
    assert known(harness) is None


# Bounds


def test_only_so_many_are_kept_and_those_that_are_used_longest() -> None:
    harness = ModernClientHarness(cache=True, limits=Limits(max_cached_results=2)).connect()
    for cursor in "12":
        fetch(harness, LIST, None, cursor=cursor)
    assert known(harness, cursor="1") is not None
    fetch(harness, LIST, None, cursor="3")
    assert [known(harness, cursor=cursor) is not None for cursor in "123"] == [True, False, True]


def test_only_so_many_bytes_are_kept() -> None:
    harness = ModernClientHarness(cache=True, limits=Limits(max_cached_bytes=1000)).connect()
    fetch(harness, LIST, holding(x="x" * 1000), cursor="0")
    both = [harness.call(LIST, params={"cursor": "1"})[1] for _ in range(2)]
    for asked in both:  # the second takes the place of the first
        asked.result(holding(x="x" * 600))
    harness.take_events()
    fetch(harness, LIST, holding(x="x" * 200), cursor="2")
    fetch(harness, LIST, holding(x="x" * 1000), cursor="3")
    assert [known(harness, cursor=each) is not None for each in "0123"] == [
        False,
        True,
        True,
        False,
    ]
    fetch(harness, LIST, holding(x="x" * 600), cursor="4")
    assert [known(harness, cursor=each) is not None for each in "1234"] == [
        False,
        True,
        False,
        True,
    ]


# Other clients, and other servers


@requirement("CACHE-C-011")
def test_a_cache_belongs_to_one_client(harness: ModernClientHarness) -> None:
    fetch(harness)
    other = ModernClientHarness(
        cache=True, headers=((b"authorization", b"Bearer other"),)
    ).connect()
    assert known(other) is None


def test_on_stdio() -> None:
    process = ModernProcess(cache=True).connect()
    _, id = process.make(LIST)
    process.say(response(id, holding()))
    process.take_events()
    handle = process.run_command(process.client.call, LIST)
    assert process.written == []
    (event,) = process.take_events()
    assert event == CallCompleted(handle, holding())
    process.say(notification(CHANGED))
    process.make(LIST)


@requirement("CACHE-C-003")
@pytest.mark.both_eras
def test_results_of_sessions_are_not_kept() -> None:
    harness = ClientHarness(cache=True).connect()
    _, asked = harness.call(LIST)
    asked.result(holding())
    harness.take_events()
    assert known(harness) is None
