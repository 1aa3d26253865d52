"""Batches, which only 2025-03-26 knows."""

from __future__ import annotations

import pytest

from sansmcp import Limits
from sansmcp.events import CallCancelled, CallReceived, ClientNotified, RefusalSent

from .harness import ServerHarness, notification, request

requirement = pytest.mark.requirement
VERSION = "2025-03-26"


def calls(harness: ServerHarness) -> list[CallReceived]:
    return [event for event in harness.events if isinstance(event, CallReceived)]


@requirement("JSONRPC-B-030", "JSONRPC-B-032", "JSONRPC-B-033", "SHTTP-S-006")
def test_each_request_gets_an_answer_in_one_array(harness: ServerHarness) -> None:
    session = harness.open_session(VERSION)
    batch = [request(1), notification("notifications/x"), request("b", "ping"), request(3)]
    talk = harness.post(batch, session, None)
    first, third = (event.call for event in calls(harness))
    harness.run_action(third.respond, {"n": 3})
    assert talk.head is None
    harness.run_action(first.respond, {"n": 1})
    assert talk.ended
    answers = {answer["id"]: answer["result"] for answer in talk.json}
    assert answers == {"b": {}, 3: {"n": 3}, 1: {"n": 1}}
    assert any(isinstance(event, ClientNotified) for event in harness.events)


@requirement("SHTTP-S-008", "JSONRPC-B-038")
def test_a_batch_can_be_answered_by_a_stream(harness: ServerHarness) -> None:
    session = harness.open_session(VERSION)
    talk = harness.post([request(1, "ping"), request(2), request(3)], session, None)
    second, third = (event.call for event in calls(harness))
    harness.run_action(second.notify, "notifications/x")
    harness.run_action(third.respond, {})
    assert not talk.ended
    harness.run_action(second.respond, {})
    assert talk.ended
    assert [message.get("id") for message in talk.messages] == [1, None, 3, 2]


def test_a_large_batch_answer_is_json(harness: ServerHarness) -> None:
    session = harness.open_session(VERSION)
    talk = harness.post([request(1), request(2)], session, None)
    first, second = (event.call for event in calls(harness))
    harness.run_action(first.respond, {"text": "x" * 20_000})
    harness.run_action(second.respond, {})
    assert [message["id"] for message in talk.json] == [1, 2]
    assert talk.ended


@requirement("JSONRPC-B-034", "SHTTP-S-002")
@pytest.mark.parametrize(
    "batch",
    [
        [notification("notifications/x"), notification("notifications/initialized")],
        [
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": ""}},
        ],
    ],
)
def test_a_batch_that_wants_no_answer_gets_none(
    harness: ServerHarness, batch: list[object]
) -> None:
    talk = harness.post(batch, harness.open_session(VERSION), None)
    assert (talk.status, talk.body) == (202, b"")


@requirement("JSONRPC-B-036")
def test_bad_elements_get_errors_and_the_others_work(harness: ServerHarness) -> None:
    session = harness.open_session(VERSION)
    batch = [1, request(1), {"jsonrpc": "2.0", "id": 2}, request(3, "nope"), request(1)]
    talk = harness.post(batch, session, None)
    (call,) = (event.call for event in calls(harness))
    harness.run_action(call.respond, {})
    answers = [(answer.get("id"), answer.get("error", {}).get("code")) for answer in talk.json]
    assert answers == [(None, -32600), (2, -32600), (3, -32601), (1, -32600), (1, None)]
    assert sum(isinstance(event, RefusalSent) for event in harness.events) == 4


def test_a_cancelled_element_gets_no_answer(harness: ServerHarness) -> None:
    session = harness.open_session(VERSION)
    talk = harness.post([request(1), request(2)], session, None)
    _, second = (event.call for event in calls(harness))
    harness.post(notification("notifications/cancelled", requestId=1), session, None)
    harness.run_action(second.respond, {})
    assert [answer["id"] for answer in talk.json] == [2]


@pytest.mark.parametrize("place", [1, 2])
def test_a_batch_that_cancels_its_own_call(harness: ServerHarness, place: int) -> None:
    session = harness.open_session(VERSION)
    batch = [request(1), request(2)]
    batch.insert(place, notification("notifications/cancelled", requestId=1))
    talk = harness.post(batch, session, None)
    (_, second), end = calls(harness), harness.events[-1]
    assert isinstance(end, CallCancelled)
    assert end.call.request.id == 1
    harness.run_action(second.call.respond, {})
    assert [answer["id"] for answer in talk.json] == [2]


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_batch_of_which_the_last_is_cancelled(harness: ServerHarness, seconds: float) -> None:
    session = harness.open_session(VERSION)
    talk = harness.post([request(1), request(2)], session, None)
    first, _ = (event.call for event in calls(harness))
    harness.wait(seconds)
    harness.run_action(first.respond, {})
    harness.post(notification("notifications/cancelled", requestId=2), session, None)
    assert [message["id"] for message in (talk.messages if seconds else talk.json)] == [1]
    assert talk.ended


def test_limits_hold_within_a_batch() -> None:
    harness = ServerHarness(limits=Limits(max_calls_per_session=1, max_batch_messages=3))
    session = harness.open_session(VERSION)
    talk = harness.post([request(1), request(2), request(3)], session, None)
    (call,) = (event.call for event in calls(harness))
    harness.run_action(call.respond, {})
    assert [answer.get("error", {}).get("data", {}).get("reason") for answer in talk.json] == [
        "too_many_requests",
        "too_many_requests",
        None,
    ]
    larger = harness.post([request(n) for n in range(4)], session, None)
    assert larger.error["data"]["reason"] == "batch_too_large"
