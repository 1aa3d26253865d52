"""Requests that stand alone, as lines: the same ladder without headers, beside the older era."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Limits, LocalProtocolError, Session
from sansmcp.events import (
    CallCancelled,
    CallReceived,
    ClientNotified,
)
from sansmcp.meta_keys import LISTEN

from ..bench import LATEST, notification
from ..pipe_bench import Pipe
from .bench import (
    CAPABILITIES,
    MODERN,
    VERSION,
    heard,
    meta,
    modern,
    modern_app,
)
from .lines import TOOLS, acknowledged, cancelled, complete, ended, listening, refusal, told

requirement = pytest.mark.requirement

# Requests


@requirement("MODERN-B-003", "MODERN-S-022", "JSONRPC-B-007")
@pytest.mark.parametrize("id", [1, "1"])
def test_a_request_is_answered(id: Any) -> None:
    pipe = Pipe()
    call = pipe.say(
        modern(id, about=meta({"roots": {}}, clientInfo={"name": "c"}))
    ).bench.last_call()
    assert call.peer.client_capabilities == {"roots": {}}
    assert call.peer.client_info == {"name": "c"}
    assert call.peer.revision.name == MODERN
    assert not isinstance(call.peer, Session)
    assert pipe.bench.server.is_busy
    assert not call.is_above_high_water
    assert pipe.bench.do(call.disconnect) is False
    assert pipe.bench.do(call.respond, {"content": []}) is True
    assert pipe.settle().said == [complete(id, content=[])]
    assert not pipe.bench.server.is_busy


def test_an_error_is_an_answer() -> None:
    pipe = Pipe().say(modern(1))
    pipe.bench.do(pipe.bench.last_call().respond_error, 7, "no")
    assert pipe.settle().said == [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "no"}}
    ]


@requirement("MODERN-S-006", "MODERN-S-027", "MODERN-S-028", "MODERN-S-024")
def test_what_is_said_before_the_answer() -> None:
    pipe = Pipe()
    about = {**meta(logLevel="error"), "progressToken": "t"}
    call = pipe.say(modern(1, about=about)).bench.last_call()
    other = pipe.say(modern(2)).bench.last_call()
    do = pipe.bench.do
    assert do(call.notify, "notifications/message", {"level": "info"}) is False
    assert do(call.notify, "notifications/message", {"level": "error"}) is True
    assert do(other.notify, "notifications/message", {"level": "error"}) is False
    do(call.progress, 1)
    do(other.respond, {})
    do(call.respond, {})
    assert pipe.settle().said == [
        notification("notifications/message", level="error"),
        notification("notifications/progress", progressToken="t", progress=1),
        complete(2),
        complete(1),
    ]
    assert do(call.notify, "notifications/x") is False
    assert pipe.settle().said == []


@requirement("STDIO-S-005")
def test_a_server_asks_nothing() -> None:
    pipe = Pipe()
    everything: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
    call = pipe.say(modern(1, about=meta(everything))).bench.last_call()
    for method in ("sampling/createMessage", "elicitation/create", "roots/list", "ping"):
        with pytest.raises(LocalProtocolError, match="InputRequired"):
            call.ask(method, timeout=1, now=0)
    assert pipe.settle().said == []


def test_the_rows_of_the_ladder_without_headers() -> None:
    pipe = Pipe()
    about: dict[str, Any] = {VERSION: "2030-01-01"}
    assert refusal(pipe, modern(1, "x", about)) == (1, -32602, "meta_required")
    about[CAPABILITIES] = {}
    assert refusal(pipe, modern("a", "x", about)) == ("a", -32022, "unsupported_version")
    for method in ("x", "initialize", "ping", "logging/setLevel", "resources/subscribe"):
        assert refusal(pipe, modern(1, method)) == (1, -32601, "method_not_found")
    assert refusal(pipe, modern(1, about=meta(logLevel="x"))) == (1, -32602, "unknown_log_level")
    pipe.bench.server.drain(now=0)
    assert refusal(pipe, modern(1)) == (1, -32600, "shutting_down")


def test_ids_do_not_repeat_while_they_are_in_use() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).bench.last_call()
    pipe.say(listening("l")).output = b""
    for id in (1, "l"):
        for message in (modern(id), listening(id)):
            assert refusal(pipe, message) == (id, -32600, "duplicate_request_id")
    pipe.bench.do(call.respond, {})
    pipe.say(cancelled("l"))
    pipe.settle().output = b""
    pipe.say(modern(1), modern("l"))
    assert [type(event) for event in pipe.bench.events] == [CallReceived, CallReceived]


def test_only_so_many_run_at_once() -> None:
    pipe = Pipe(modern_app(), limits=Limits(max_calls_per_session=2))
    pipe.say(modern(1), listening(2)).output = b""
    pipe.bench.events.clear()
    assert refusal(pipe, modern(3)) == (3, -32600, "too_many_requests")
    assert refusal(pipe, listening(3)) == (3, -32600, "too_many_requests")
    pipe.say(cancelled(2), modern(3))
    assert pipe.bench.last_call().request.id == 3


def test_a_client_that_does_not_read_makes_handlers_wait() -> None:
    pipe = Pipe(limits=Limits(max_unsent_bytes=100))
    call = pipe.say(modern(1)).bench.last_call()
    pipe.reads = False
    pipe.bench.do(call.notify, "notifications/x", {"a": "x" * 100})
    assert call.is_above_high_water


# Notifications


@requirement("JSONRPC-B-018")
def test_notifications_are_told() -> None:
    pipe = Pipe().say(heard("notifications/x"))
    assert pipe.said == []
    (event,) = pipe.bench.events
    assert isinstance(event, ClientNotified)
    assert event.peer.revision.name == MODERN


@requirement("JSONRPC-B-018")
@pytest.mark.parametrize("version", ["2030-01-01", LATEST, None, 5, []])
def test_notifications_of_another_version_are_dropped(version: Any) -> None:
    message = heard("notifications/x")
    message["params"]["_meta"][VERSION] = version
    pipe = Pipe().say(message)
    assert (pipe.said, pipe.events) == ([], [])


# Cancellation


@requirement("CANCEL-S-004", "CANCEL-S-005", "CANCEL-B-007", "CANCEL-S-002")
def test_a_notification_cancels() -> None:
    pipe = Pipe()
    call = pipe.say(modern(1, about={**meta(), "progressToken": 1})).bench.last_call()
    other = pipe.say(modern("1")).bench.last_call()
    pipe.say(cancelled(1, reason="changed my mind"))
    assert pipe.bench.events == [CallCancelled(call, "changed my mind")]
    assert pipe.bench.do(call.progress, 1) is False
    assert pipe.bench.do(call.respond, {}) is False
    assert pipe.settle().said == []
    assert other.is_running
    pipe.say(cancelled("1", reason=5))
    assert pipe.bench.events[1:] == [CallCancelled(other, "cancelled by the client")]
    assert pipe.said == []
    assert not pipe.bench.server.is_busy


@requirement("CANCEL-B-006", "CANCEL-B-008", "CANCEL-S-006")
@pytest.mark.parametrize(
    "params", [{}, {"requestId": 9}, {"requestId": None}, {"requestId": [1]}, {"requestId": True}]
)
def test_cancellations_of_nothing_are_ignored(params: dict[str, Any]) -> None:
    pipe = Pipe()
    call = pipe.say(modern(1)).bench.last_call()
    pipe.say(notification("notifications/cancelled", **params))
    pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    pipe.say(heard("notifications/cancelled", **params))
    assert call.is_running
    pipe.bench.do(call.respond, {})
    pipe.say(cancelled(1))
    assert pipe.said == [complete(1)]
    assert pipe.events == []


# Subscriptions


@requirement("SUBS-S-003", "SUBS-S-005", "SUBS-S-007", "SUBS-S-014")
def test_subscriptions_among_everything_else() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).bench.last_call()
    pipe.say(listening(2, toolsListChanged=True))
    pipe.bench.do(call.notify, "notifications/x")
    pipe.say(listening("2", toolsListChanged=True, promptsListChanged=True))
    pipe.bench.do(pipe.bench.server.publish, TOOLS)
    pipe.bench.do(pipe.bench.server.publish, "notifications/prompts/list_changed")
    pipe.bench.do(call.respond, {})
    assert pipe.settle().said == [
        acknowledged(2, toolsListChanged=True),
        {"jsonrpc": "2.0", "method": "notifications/x"},
        acknowledged("2", toolsListChanged=True, promptsListChanged=True),
        told(2),
        told("2"),
        told("2", "notifications/prompts/list_changed"),
        complete(1),
    ]


@requirement("SUBS-S-009")
def test_a_client_ends_a_subscription() -> None:
    pipe = Pipe(modern_app()).say(listening(1, toolsListChanged=True), listening(2))
    pipe.output = b""
    pipe.say(cancelled(1))
    pipe.bench.do(pipe.bench.server.publish, TOOLS)
    assert pipe.settle().said == []
    pipe.say(listening(1, toolsListChanged=True))
    pipe.bench.do(pipe.bench.server.publish, TOOLS)
    assert pipe.settle().said == [acknowledged(1, toolsListChanged=True), told(1)]
    assert pipe.events == []


@requirement("SUBS-S-010", "SUBS-S-011", "SUBS-S-012", "CANCEL-S-003")
@pytest.mark.parametrize("id", [1, "1"])
def test_a_server_ends_all_subscriptions(id: Any) -> None:
    pipe = Pipe(modern_app()).say(listening(id))
    pipe.output = b""
    pipe.bench.do(pipe.bench.server.shut_down)
    assert pipe.settle().said == ended(id)
    assert pipe.closed


def test_a_filter_that_is_none() -> None:
    pipe = Pipe(modern_app())
    assert refusal(pipe, modern(1, LISTEN)) == (1, -32602, "invalid_params")
    assert pipe.say(listening(1)).said == [acknowledged(1)]


def test_a_subscriber_that_does_not_read_is_told_that_it_is_none_any_more() -> None:
    """It will look for itself what has changed; a change that is missed is missed for ever."""
    pipe = Pipe(modern_app(), limits=Limits(max_unsent_bytes=300))
    pipe.say(listening(1, toolsListChanged=True)).output = b""
    pipe.reads = False
    for _ in range(10):
        pipe.bench.do(pipe.bench.server.publish, TOOLS)
    pipe.reads = True
    said = pipe.settle().said
    count = said.index(ended(1)[0])
    assert 0 < count < 10
    assert said == [told(1)] * count + ended(1)
    assert pipe.say(listening(1)).said == [acknowledged(1)]
