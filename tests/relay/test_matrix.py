"""Every revision and transport in front of every other: what a client sees through a relay."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InputRequest, InputRequired
from sansmcp.events import (
    CallCancelled,
    CallCompleted,
    CallFailed,
    CallReceived,
    ProgressReceived,
    ServerNotified,
    ServerRequestReceived,
)
from sansmcp.meta_keys import LOG_LEVEL, SERVER_INFO, UPDATED

from .bench import ENDS, HTTP, STDIO, Bench


def label(end: tuple[str, str]) -> str:
    return "-".join(end)


every_pair = pytest.mark.parametrize(
    ("down", "up"),
    [pytest.param(down, up, id=f"{label(down)}:{label(up)}") for down in ENDS for up in ENDS],
)
End = tuple[str, str]


def plain(result: Any) -> Any:
    """Return a result without what a revision adds to it."""
    return {k: v for k, v in result.items() if k not in ("resultType", "_meta", "ttlMs", "scope")}


@every_pair
def test_a_call_and_its_large_result(down: End, up: End) -> None:
    bench = Bench(down, up)
    handle = bench.call(meta={"traceparent": "00-1-2-03"})
    call = bench.arrived()
    assert call.request.method == "tools/call"
    assert call.request.params is not None
    assert call.request.params["name"] == "x"
    assert call.request.params["_meta"]["traceparent"] == "00-1-2-03"
    content = [{"type": "text", "text": "\N{SNOWMAN}" * 60_000}]
    bench.respond(call, {"content": content, "com.example/more": 1})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert end.call == handle
    assert plain(end.result) == {"content": content, "com.example/more": 1}
    assert not bench.lost


UI: dict[str, Any] = {
    "ui": {"resourceUri": "ui://a/b", "csp": {"connectDomains": []}},
    "com.example/a": [None],
}


UNKNOWN: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {"tools": [{"name": "x", "inputSchema": {"type": "object"}, "_meta": UI}]}),
    ("resources/list", {"resources": [{"uri": "ui://a/b", "name": "b", "_meta": UI, "x": 1}]}),
    ("resources/read", {"contents": [{"uri": "ui://a/b", "text": "", "_meta": UI, "x": [{}]}]}),
    ("prompts/list", {"prompts": [{"name": "x", "_meta": UI, "more": {"x": None}}]}),
    ("tools/call", {"content": [{"type": "new", "x": 1, "_meta": UI}], "more": {"x": [1]}}),
]


@pytest.mark.parametrize(("method", "result"), UNKNOWN)
@every_pair
def test_members_that_nobody_knows_pass(
    down: End, up: End, method: str, result: dict[str, Any]
) -> None:
    bench = Bench(down, up)
    bench.call(method, {"name": "x", "uri": "ui://a/b"})
    bench.respond(bench.arrived(), {**result, "_meta": UI})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    kept = {name: value for name, value in end.result.items() if name != "cacheScope"}
    assert plain(kept) == result
    meta = {name: end.result["_meta"][name] for name in UI}
    assert meta == UI
    assert end.result["_meta"].keys() <= {*UI, SERVER_INFO}


@every_pair
def test_an_error_and_an_unknown_method(down: End, up: End) -> None:
    bench = Bench(down, up)
    bench.call("com.example/odd", {"a": [1, None]})
    call = bench.arrived()
    assert call.request.params is not None
    assert call.request.params["a"] == [1, None]
    call.respond_error(-31999, "no", {"why": 1}, now=bench.now)
    bench.run()
    end = bench.outcome()
    assert isinstance(end, CallFailed)
    assert (end.error.code, end.error.data) == (-31999, {"why": 1})  # type: ignore[attr-defined]


@every_pair
def test_progress_and_a_cancellation(down: End, up: End) -> None:
    bench = Bench(down, up)
    handle = bench.call()
    call = bench.arrived()
    for progress in (1, 2.5):
        call.progress(progress, 3, "going", now=bench.now)
        bench.run()
    reports = [event for event in bench.down.events if isinstance(event, ProgressReceived)]
    assert [(r.call, r.progress, r.total, r.message) for r in reports] == [
        (handle, 1, 3, "going"),
        (handle, 2.5, 3, "going"),
    ]
    bench.client.cancel(handle, "enough", now=bench.now)
    bench.run()
    assert bench.take(bench.up.server_events, CallCancelled).call is call
    assert not call.is_running


ANSWERS: dict[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "4"}},
    "roots/list": {"roots": [{"uri": "file:///a"}]},
}
ASKED: dict[str, dict[str, Any]] = {
    "elicitation/create": {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
    "sampling/createMessage": {"messages": [], "maxTokens": 9},
    "roots/list": {},
}


@every_pair
def test_an_elicitation_a_sampling_and_the_roots(down: End, up: End) -> None:
    bench = Bench(down, up)
    bench.call()
    call = bench.arrived()
    requests = {method: InputRequest(method, asked) for method, asked in ASKED.items()}
    bench.respond(call, InputRequired(requests, "s"))
    open_methods = set(ASKED)
    while questions := bench.take_all(bench.down.events, ServerRequestReceived):
        for question in (event.request for event in questions):
            open_methods.remove(question.method)
            assert (question.params or {}) == ASKED[question.method]
            assert bench.client.respond(question.id, ANSWERS[question.method], now=bench.now)
        bench.run()
    assert not open_methods
    again = bench.arrived()
    assert again.handler_input.state == "s"
    assert dict(again.handler_input.input_responses) == ANSWERS
    bench.respond(again, {"content": []})
    end = bench.outcome()
    assert isinstance(end, CallCompleted)
    assert not bench.lost


@every_pair
def test_a_changed_list(down: End, up: End) -> None:
    bench = Bench(down, up)
    if down[0] == "2026-07-28":
        wanted = {"notifications": {"toolsListChanged": True}}
        bench.call("subscriptions/listen", wanted)
    bench.down.events.clear()
    bench.up.server.publish("notifications/tools/list_changed", now=bench.now)
    bench.run()
    last = bench.take(bench.down.events, ServerNotified).notification
    assert last.method == "notifications/tools/list_changed"
    assert not bench.lost


@every_pair
def test_a_subscription_to_a_resource(down: End, up: End) -> None:
    bench = Bench(down, up)
    if down[0] == "2026-07-28":
        bench.call("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a:b"]}})
    else:
        bench.call("resources/subscribe", {"uri": "a:b"})
    for each in bench.take_all(bench.up.server_events, CallReceived):
        bench.respond(each.call, {})
    bench.down.events.clear()
    for uri in ("a:b", "a:other"):
        bench.up.server.publish(UPDATED, {"uri": uri}, now=bench.now)
        bench.run()
    told = bench.take(bench.down.events, ServerNotified).notification
    assert (told.params or {})["uri"] == "a:b"
    assert not bench.lost


@every_pair
def test_a_level_of_log_messages(down: End, up: End) -> None:
    """Clients of 2026-07-28 ask with each call, the others once; and so do servers expect it."""
    bench = Bench(down, up)
    if down[0] == "2026-07-28":
        bench.call(meta={LOG_LEVEL: "warning"})
    else:
        bench.call("logging/setLevel", {"level": "warning"})
        for each in bench.take_all(bench.up.server_events, CallReceived):
            bench.respond(each.call, {})
        bench.outcome()
        bench.call()
    received = [each.call for each in bench.take_all(bench.up.server_events, CallReceived)]
    params = received[-1].request.params or {}
    if up[0] == "2026-07-28":
        assert params["_meta"][LOG_LEVEL] == "warning"
    for level in ("debug", "error"):
        logged = {"level": level, "data": level}
        received[-1].notify("notifications/message", logged, now=bench.now)
        bench.run()
    told = bench.take_all(bench.down.events, ServerNotified)
    assert "error" in [(each.notification.params or {})["level"] for each in told]
    assert not bench.lost


GOES_ON = {
    (version, HTTP): True for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
}
"""The ends whose calls survive a broken connection; the others fail, and are told so."""


def assert_told_of_lost_calls(bench: Bench) -> None:
    """What the log has is of calls whose response is lost, and of nothing else."""
    assert all(lost.startswith("'tools/call' got no result: ") for lost in bench.lost)


@every_pair
@pytest.mark.parametrize("leg", ["down", "up"])
def test_a_connection_that_breaks(down: End, up: End, leg: str) -> None:
    """The outcome depends on the leg that breaks, and not on what the other one could do."""
    end = down if leg == "down" else up
    if end[1] == STDIO:
        return
    bench = Bench(down, up)
    handle = bench.call()
    call = bench.arrived()
    call.progress(1, now=bench.now)
    bench.run()
    (bench.down if leg == "down" else bench.up).cut()
    bench.wait(5)
    assert call.is_running == (end in GOES_ON)
    if call.is_running:
        bench.respond(call, {"content": []})
        bench.wait(5)
    outcome = bench.outcome()
    assert outcome.call == handle
    if end in GOES_ON:
        assert isinstance(outcome, CallCompleted)
    else:
        assert isinstance(outcome, CallFailed)
        assert "its response is lost and the outcome is unknown" in str(outcome.error)
    answered(bench)
    assert_told_of_lost_calls(bench)


@every_pair
def test_an_upstream_server_that_is_killed_and_started_again(down: End, up: End) -> None:
    """Its call fails; the client hears that lists may have changed, and of later changes."""
    bench = Bench(down, up)
    if down[0] == "2026-07-28":
        wanted = {"notifications": {"toolsListChanged": True}}
        bench.call("subscriptions/listen", wanted)
    bench.call()
    bench.arrived()
    bench.down.events.clear()
    bench.restart_upstream()
    bench.wait(5)
    assert isinstance(bench.outcome(), CallFailed)
    answered(bench)
    bench.wait(1)
    told = [
        event.notification.method for event in bench.take_all(bench.down.events, ServerNotified)
    ]
    assert told.count("notifications/tools/list_changed") == 1
    assert not bench.down.events
    bench.up.server.publish("notifications/tools/list_changed", now=bench.now)
    bench.run()
    last = bench.take(bench.down.events, ServerNotified).notification
    assert last.method == "notifications/tools/list_changed"
    assert_told_of_lost_calls(bench)


def answered(bench: Bench) -> None:
    """The next call gets its result."""
    bench.call()
    bench.respond(bench.arrived(), {"content": []})
    assert isinstance(bench.outcome(), CallCompleted)
