"""Calls and their answers: each answer finds its call by id, in whatever form it comes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import BodyData, InvalidResponse, JsonRpcError, Limits, LocalProtocolError
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    MessageUndelivered,
    ProtocolViolation,
    Reconnecting,
    ServerNotified,
)
from sansmcp.messages import Notification

from .harness import ClientHarness, error, notification, only_failure, response

requirement = pytest.mark.requirement


# Answers


@requirement("SHTTP-C-006", "JSONRPC-B-011", "JSONRPC-B-055")
def test_a_json_answer(harness: ClientHarness) -> None:
    handle, asked = harness.call(params={"name": "x"})
    assert asked.json["params"] == {"name": "x", "_meta": {"progressToken": asked.id}}
    asked.result({"content": [], "unknown": {"a": None}})
    assert harness.events == [CallCompleted(handle, {"content": [], "unknown": {"a": None}})]
    assert harness.client.next_deadline() is None


@requirement("SHTTP-C-006", "POLL-C-001")
def test_a_stream_answer(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(id="1")
    asked.event(b": x")
    asked.event(notification("notifications/message", level="info"))
    asked.event(response(asked.id, {"a": 1}))
    assert harness.events == [
        ProtocolViolation(harness.events[0].error)
        if isinstance(harness.events[0], ProtocolViolation)
        else None,
        ServerNotified(handle, Notification("notifications/message", {"level": "info"})),
        CallCompleted(handle, {"a": 1}),
    ]
    assert not asked.aborted
    asked.end()
    assert harness.client.next_deadline() is None


@requirement("JSONRPC-B-005", "JSONRPC-B-006", "PROGRESS-B-002", "PROGRESS-B-003")
def test_ids_and_tokens_never_repeat(harness: ClientHarness) -> None:
    ids: list[tuple[Any, Any]] = []
    for _ in range(20):
        _, asked = harness.call()
        ids.append((asked.id, asked.json["params"]["_meta"]["progressToken"]))
        asked.result()
    assert len(set(ids)) == 20
    assert all(id == token for id, token in ids)


@requirement("JSONRPC-B-007")
def test_answers_are_matched_by_id_in_any_order(harness: ClientHarness) -> None:
    first, asked1 = harness.call()
    second, asked2 = harness.call()
    asked1.open_stream()
    asked2.open_stream()
    asked1.event(response(asked2.id, {"for": 2}))  # on the wrong stream: still an answer
    asked1.event(response(asked1.id, {"for": 1}))
    assert harness.events == [CallCompleted(second, {"for": 2}), CallCompleted(first, {"for": 1})]


@pytest.mark.parametrize("id", ["1", 99, "server-error"])
def test_an_answer_to_nobody_is_reported(harness: ClientHarness, id: Any) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(response(id))
    (event,) = harness.take_events()
    assert isinstance(event, ProtocolViolation)
    asked.event(response(asked.id))
    assert harness.events == [CallCompleted(handle, {})]


@requirement("JSONRPC-B-014", "JSONRPC-B-028", "JSONRPC-C-001")
@pytest.mark.parametrize("id", ["own", None])
@pytest.mark.parametrize("code", [-32001, -32002])
def test_errors_of_the_server(harness: ClientHarness, id: Any, code: int) -> None:
    handle, asked = harness.call()
    message = error(asked.id if id == "own" else None, code, "nope")
    message["error"]["data"] = {"x": [1]}
    asked.answer(message)
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.message, failure.data) == (code, "nope", {"x": [1]})
    assert (failure.method, failure.request_id, failure.http_status) == (
        "tools/call",
        asked.id,
        None,
    )


def test_an_error_with_our_id_counts_at_any_status(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.answer(error(asked.id, -32602, "bad arguments"), 400)
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert failure.http_status == 400


def test_two_errors_without_an_id_end_a_call_once(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.answer([error(None), error(None, -2)])
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert failure.code == -1
    assert harness.events == []


@requirement("JSONRPC-B-038")
def test_a_batch_of_messages_in_one_event(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event([notification("a"), {"bad": 1}, response(asked.id)])
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerNotified, ProtocolViolation, CallCompleted]
    assert harness.events[-1] == CallCompleted(handle, {})


# Notifications


@requirement("SHTTP-C-001", "JSONRPC-B-017")
def test_notifications_are_sent_once(harness: ClientHarness) -> None:
    harness.run_command(harness.client.notify, "notifications/roots/list_changed", {"a": 1})
    post = harness.take()
    assert post.json == notification("notifications/roots/list_changed", a=1)
    post.cut("gone")
    (event,) = harness.events
    assert event == MessageUndelivered(
        Notification("notifications/roots/list_changed", {"a": 1}), "gone"
    )
    harness.wait(100)
    assert harness.requests == []


# Holding it wrong


@pytest.mark.parametrize(
    "params", [{"a": math.nan}, {"a": object()}, {"_meta": 1}, {"_meta": None}]
)
def test_bad_parameters_change_nothing(harness: ClientHarness, params: Any) -> None:
    with pytest.raises(LocalProtocolError):
        harness.client.call("x", params, now=0)
    assert harness.client.next_deadline() is None
    assert harness.requests == []


def test_initialize_is_no_call(harness: ClientHarness) -> None:
    with pytest.raises(LocalProtocolError, match="start"):
        harness.client.call("initialize", now=0)


def test_calls_are_bounded() -> None:
    harness = ClientHarness(limits=Limits(max_pending_calls=2)).connect()
    harness.call()
    harness.call()
    with pytest.raises(LocalProtocolError, match="2 calls"):
        harness.client.call("x", now=0)


# An application that is slow


def test_an_application_that_takes_no_events_stops_the_reading() -> None:
    harness = ClientHarness(limits=Limits(max_queued_events=3)).connect()
    harness.takes_events = False
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(id="1")
    for number in range(10):
        asked.event(notification(f"n{number}"))
    asked.event(response(asked.id))
    asked.end()
    assert harness.is_paused
    harness.takes_events = True
    harness.run_pending()
    assert not harness.is_paused
    names = [e.notification.method for e in harness.events if isinstance(e, ServerNotified)]
    assert names == [f"n{number}" for number in range(10)]
    assert harness.events[-1] == CallCompleted(handle, {})
    assert not any(isinstance(event, Reconnecting) for event in harness.events)


def test_a_garbled_stream_is_told_in_its_turn() -> None:
    harness = ClientHarness(limits=Limits(max_queued_events=1, max_message_bytes=200)).connect()
    harness.takes_events = False
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(notification("a"))
    asked.event(notification("b"))
    asked.feed(BodyData(b"data: " + b"x" * 300))
    assert harness.is_paused
    harness.takes_events = True
    harness.run_pending()
    assert [type(event) for event in harness.events] == [ServerNotified, ServerNotified, CallFailed]
    assert isinstance(only_failure(harness, handle), InvalidResponse)
