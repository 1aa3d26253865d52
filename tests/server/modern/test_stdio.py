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

from ..harness import LATEST, notification
from ..pipe_harness import Pipe
from .harness import (
    CAPABILITIES,
    MODERN,
    VERSION,
    meta,
    modern,
    modern_app,
    notification_from,
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
    ).harness.last_call()
    assert call.peer.client_capabilities == {"roots": {}}
    assert call.peer.client_info == {"name": "c"}
    assert call.peer.revision.name == MODERN
    assert not isinstance(call.peer, Session)
    assert pipe.harness.server.is_busy
    assert not call.is_above_high_water
    assert pipe.harness.run_action(call.disconnect) is False
    assert pipe.harness.run_action(call.respond, {"content": []}) is True
    assert pipe.run_pending().said == [complete(id, content=[])]
    assert not pipe.harness.server.is_busy


def test_an_error_is_an_answer() -> None:
    pipe = Pipe().say(modern(1))
    pipe.harness.run_action(pipe.harness.last_call().respond_error, 7, "no")
    assert pipe.run_pending().said == [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "no"}}
    ]


@requirement("MODERN-S-006", "MODERN-S-027", "MODERN-S-028", "MODERN-S-024")
def test_what_is_said_before_the_answer() -> None:
    pipe = Pipe()
    about = {**meta(logLevel="error"), "progressToken": "t"}
    call = pipe.say(modern(1, about=about)).harness.last_call()
    other = pipe.say(modern(2)).harness.last_call()
    do = pipe.harness.run_action
    assert do(call.notify, "notifications/message", {"level": "info"}) is False
    assert do(call.notify, "notifications/message", {"level": "error"}) is True
    assert do(other.notify, "notifications/message", {"level": "error"}) is False
    do(call.progress, 1)
    do(other.respond, {})
    do(call.respond, {})
    assert pipe.run_pending().said == [
        notification("notifications/message", level="error"),
        notification("notifications/progress", progressToken="t", progress=1),
        complete(2),
        complete(1),
    ]
    assert do(call.notify, "notifications/x") is False
    assert pipe.run_pending().said == []


@requirement("STDIO-S-005")
def test_a_server_asks_nothing() -> None:
    pipe = Pipe()
    everything: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
    call = pipe.say(modern(1, about=meta(everything))).harness.last_call()
    for method in ("sampling/createMessage", "elicitation/create", "roots/list", "ping"):
        with pytest.raises(LocalProtocolError, match="InputRequired"):
            call.ask(method, timeout=1, now=0)
    assert pipe.run_pending().said == []


def test_the_rows_of_the_ladder_without_headers() -> None:
    pipe = Pipe()
    about: dict[str, Any] = {VERSION: "2030-01-01"}
    assert refusal(pipe, modern(1, "x", about)) == (1, -32602, "meta_required")
    about[CAPABILITIES] = {}
    assert refusal(pipe, modern("a", "x", about)) == ("a", -32022, "unsupported_version")
    for method in ("x", "initialize", "ping", "logging/setLevel", "resources/subscribe"):
        assert refusal(pipe, modern(1, method)) == (1, -32601, "method_not_found")
    assert refusal(pipe, modern(1, about=meta(logLevel="x"))) == (1, -32602, "unknown_log_level")
    pipe.harness.server.drain(now=0)
    assert refusal(pipe, modern(1)) == (1, -32600, "shutting_down")


def test_ids_do_not_repeat_while_they_are_in_use() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).harness.last_call()
    pipe.say(listening("l", toolsListChanged=True)).output = b""
    for id in (1, "l"):
        for message in (modern(id), listening(id, toolsListChanged=True)):
            assert refusal(pipe, message) == (id, -32600, "duplicate_request_id")
    pipe.harness.run_action(call.respond, {})
    pipe.say(cancelled("l"))
    pipe.run_pending().output = b""
    pipe.say(modern(1), modern("l"))
    assert [type(event) for event in pipe.harness.events] == [CallReceived, CallReceived]


def test_only_so_many_run_at_once() -> None:
    pipe = Pipe(modern_app(), limits=Limits(max_calls_per_session=2))
    pipe.say(modern(1), listening(2, toolsListChanged=True)).output = b""
    pipe.harness.events.clear()
    assert refusal(pipe, modern(3)) == (3, -32600, "too_many_requests")
    assert refusal(pipe, listening(3, toolsListChanged=True)) == (3, -32600, "too_many_requests")
    pipe.say(cancelled(2), modern(3))
    assert pipe.harness.last_call().request.id == 3


def test_a_client_that_does_not_read_makes_handlers_wait() -> None:
    pipe = Pipe(limits=Limits(max_unsent_bytes=100))
    call = pipe.say(modern(1)).harness.last_call()
    pipe.reads = False
    pipe.harness.run_action(call.notify, "notifications/x", {"a": "x" * 100})
    assert call.is_above_high_water


# Notifications


@requirement("JSONRPC-B-018")
def test_notifications_are_told() -> None:
    pipe = Pipe().say(notification_from("notifications/x"))
    assert pipe.said == []
    (event,) = pipe.harness.events
    assert isinstance(event, ClientNotified)
    assert event.peer.revision.name == MODERN


@requirement("JSONRPC-B-018")
@pytest.mark.parametrize("version", ["2030-01-01", LATEST, None, 5, []])
def test_notifications_of_another_version_are_dropped(version: Any) -> None:
    message = notification_from("notifications/x")
    message["params"]["_meta"][VERSION] = version
    pipe = Pipe().say(message)
    assert (pipe.said, pipe.events) == ([], [])


# Cancellation


@requirement("CANCEL-S-004", "CANCEL-S-005", "CANCEL-B-007", "CANCEL-S-002")
def test_a_notification_cancels() -> None:
    pipe = Pipe()
    call = pipe.say(modern(1, about={**meta(), "progressToken": 1})).harness.last_call()
    other = pipe.say(modern("1")).harness.last_call()
    pipe.say(cancelled(1, reason="changed my mind"))
    assert pipe.harness.events == [CallCancelled(call, "changed my mind")]
    assert pipe.harness.run_action(call.progress, 1) is False
    assert pipe.harness.run_action(call.respond, {}) is False
    assert pipe.run_pending().said == []
    assert other.is_running
    pipe.say(cancelled("1", reason=5))
    assert pipe.harness.events[1:] == [CallCancelled(other, "cancelled by the client")]
    assert pipe.said == []
    assert not pipe.harness.server.is_busy


@requirement("CANCEL-B-006", "CANCEL-B-008", "CANCEL-S-006")
@pytest.mark.parametrize(
    "params", [{}, {"requestId": 9}, {"requestId": None}, {"requestId": [1]}, {"requestId": True}]
)
def test_cancellations_of_nothing_are_ignored(params: dict[str, Any]) -> None:
    pipe = Pipe()
    call = pipe.say(modern(1)).harness.last_call()
    pipe.say(notification("notifications/cancelled", **params))
    pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    pipe.say(notification_from("notifications/cancelled", **params))
    assert call.is_running
    pipe.harness.run_action(call.respond, {})
    pipe.say(cancelled(1))
    assert pipe.said == [complete(1)]
    assert pipe.events == []


# Subscriptions


@requirement("SUBS-S-003", "SUBS-S-005", "SUBS-S-007", "SUBS-S-014")
def test_subscriptions_among_everything_else() -> None:
    pipe = Pipe(modern_app())
    call = pipe.say(modern(1)).harness.last_call()
    pipe.say(listening(2, toolsListChanged=True))
    pipe.harness.run_action(call.notify, "notifications/x")
    pipe.say(listening("2", toolsListChanged=True, promptsListChanged=True))
    pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    pipe.harness.run_action(pipe.harness.server.publish, "notifications/prompts/list_changed")
    pipe.harness.run_action(call.respond, {})
    assert pipe.run_pending().said == [
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
    pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    assert pipe.run_pending().said == []
    pipe.say(listening(1, toolsListChanged=True))
    pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    assert pipe.run_pending().said == [acknowledged(1, toolsListChanged=True), told(1)]
    assert pipe.events == []


@requirement("SUBS-S-010", "SUBS-S-011", "SUBS-S-012", "CANCEL-S-003")
@pytest.mark.parametrize("id", [1, "1"])
def test_a_server_ends_all_subscriptions(id: Any) -> None:
    pipe = Pipe(modern_app()).say(listening(id, toolsListChanged=True))
    pipe.output = b""
    pipe.harness.run_action(pipe.harness.server.shut_down)
    assert pipe.run_pending().said == ended(id)
    assert pipe.closed


def test_a_filter_that_is_none() -> None:
    pipe = Pipe(modern_app())
    assert refusal(pipe, modern(1, LISTEN)) == (1, -32602, "invalid_params")
    assert pipe.say(listening(1)).said == [acknowledged(1), *ended(1)]


def test_a_subscriber_that_does_not_read_is_told_that_it_is_none_any_more() -> None:
    """It will look for itself what has changed; a change that is missed is missed for ever."""
    pipe = Pipe(modern_app(), limits=Limits(max_unsent_bytes=300))
    pipe.say(listening(1, toolsListChanged=True)).output = b""
    pipe.reads = False
    for _ in range(10):
        pipe.harness.run_action(pipe.harness.server.publish, TOOLS)
    pipe.reads = True
    said = pipe.run_pending().said
    count = said.index(ended(1)[0])
    assert 0 < count < 10
    assert said == [told(1)] * count + ended(1)
    again = pipe.say(listening(1, toolsListChanged=True))
    assert again.said == [acknowledged(1, toolsListChanged=True)]
