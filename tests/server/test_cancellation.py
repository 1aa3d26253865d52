"""Calls that are cancelled or whose client leaves: each ends once, whatever crosses on the way."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import LocalProtocolError, RequestCancelled
from sansmcp.events import CallCancelled, ResponseUndelivered
from sansmcp.states import CallState

from .harness import ServerHarness, notification

requirement = pytest.mark.requirement


# Cancelled


@requirement("CANCEL-B-003", "CANCEL-B-006", "CANCEL-B-007")
def test_a_cancelled_call_gets_no_answer_but_its_request_ends(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session, 5)
    cancel = harness.post(
        notification("notifications/cancelled", requestId=5, reason="bored"), session
    )
    assert cancel.status == 202
    assert harness.events == [CallCancelled(call, "bored")]
    assert (talk.status, talk.messages, talk.ended) == (200, [], True)
    assert call.state is CallState.CANCELLED
    assert harness.run_action(call.respond, {}) is False
    assert harness.run_action(call.notify, "x") is False
    assert harness.run_action(call.progress, 1) is False
    assert harness.run_action(call.disconnect) is False
    assert talk.messages == []
    with pytest.raises(RequestCancelled, match="stop working on it"):
        call.ask("ping", timeout=1, now=0)


@requirement("CANCEL-B-004", "CANCEL-B-006", "CANCEL-B-008")
def test_cancelling_what_has_ended_changes_nothing(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session, 5)
    harness.run_action(call.respond, {})
    assert harness.post(notification("notifications/cancelled", requestId=5), session).status == 202
    assert harness.events == []
    assert harness.run_action(call.respond, {"second": True}) is False
    assert talk.json["result"] == {}


def test_a_cancelled_stream_ends(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session, "a")
    harness.run_action(call.notify, "x")
    harness.post(notification("notifications/cancelled", requestId="a"), session)
    assert [message["method"] for message in talk.messages] == ["x"]
    assert talk.ended
    assert call.state is CallState.CANCELLED


@pytest.mark.parametrize("id", [1.0, True, "5", None, {}])
def test_a_cancellation_has_to_name_the_id_exactly(harness: ServerHarness, id: Any) -> None:
    session = harness.open_session()
    _, call = harness.call(session, 1)
    _, other = harness.call(session, 5)
    harness.post(notification("notifications/cancelled", requestId=id), session)
    assert call.is_running
    assert other.is_running


# Clients that leave


@requirement("SHTTP-S-017")
def test_a_broken_connection_is_no_cancellation(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    harness.run_action(call.notify, "x")
    talk.lose_connection()
    assert call.is_running
    assert harness.run_action(call.notify, "y") is True
    assert harness.run_action(call.respond, {}) is True


def test_an_answer_that_nobody_can_get_is_reported(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    talk.lose_connection()
    assert call.is_running
    harness.wait(1)
    assert harness.run_action(call.notify, "x") is False
    assert harness.run_action(call.disconnect) is False
    with pytest.raises(LocalProtocolError):
        call.ask("ping", timeout=1, now=harness.now)
    assert harness.run_action(call.respond, {}) is False
    assert harness.events == [
        ResponseUndelivered(call, "the client disconnected before the response")
    ]
    assert harness.store.count == 0


def test_a_call_whose_client_has_left_can_be_cancelled(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session, 5)
    talk.lose_connection()
    harness.post(notification("notifications/cancelled", requestId=5), session)
    assert harness.events == [CallCancelled(call, "cancelled by the client")]
    assert talk.head is None


def test_without_a_store_a_lost_reader_loses_the_answer() -> None:
    harness = ServerHarness(resumable=False)
    talk, call = harness.call(harness.open_session())
    harness.run_action(call.notify, "x")
    talk.lose_connection()
    assert harness.run_action(call.notify, "y") is False
    assert harness.run_action(call.respond, {}) is False
    assert isinstance(harness.events[-1], ResponseUndelivered)


def test_a_client_that_leaves_before_its_large_answer(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    talk.lose_connection()
    assert harness.run_action(call.respond, {"text": "x" * 20_000}) is False
