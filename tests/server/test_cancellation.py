"""Calls that are cancelled or whose client leaves: each ends once, whatever crosses on the way."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import LocalProtocolError
from sansmcp.events import CallCancelled, ResponseUndelivered
from sansmcp.states import CallState

from .bench import Bench, notification

requirement = pytest.mark.requirement


# Cancelled


@requirement("CANCEL-B-003", "CANCEL-B-006", "CANCEL-B-007")
def test_a_cancelled_call_gets_no_answer_but_its_request_ends(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session, 5)
    cancel = bench.post(
        notification("notifications/cancelled", requestId=5, reason="bored"), session
    )
    assert cancel.status == 202
    assert bench.events == [CallCancelled(call, "bored")]
    assert (talk.status, talk.messages, talk.ended) == (200, [], True)
    assert call.state is CallState.CANCELLED
    for say in (call.respond, call.notify):
        assert bench.do(say, "x") is False
    assert bench.do(call.progress, 1) is False
    assert bench.do(call.disconnect) is False
    assert talk.messages == []
    with pytest.raises(LocalProtocolError):
        call.ask("ping", timeout=1, now=0)


@requirement("CANCEL-B-004", "CANCEL-B-006", "CANCEL-B-008")
def test_cancelling_what_has_ended_changes_nothing(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session, 5)
    bench.do(call.respond, {})
    assert bench.post(notification("notifications/cancelled", requestId=5), session).status == 202
    assert bench.events == []
    assert bench.do(call.respond, {"second": True}) is False
    assert talk.json["result"] == {}


def test_a_cancelled_stream_ends(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session, "a")
    bench.do(call.notify, "x")
    bench.post(notification("notifications/cancelled", requestId="a"), session)
    assert [message["method"] for message in talk.messages] == ["x"]
    assert talk.ended
    assert call.state is CallState.CANCELLED


@pytest.mark.parametrize("id", [1.0, True, "5", None, {}])
def test_a_cancellation_has_to_name_the_id_exactly(bench: Bench, id: Any) -> None:
    session = bench.open_session()
    _, call = bench.call(session, 1)
    _, other = bench.call(session, 5)
    bench.post(notification("notifications/cancelled", requestId=id), session)
    assert call.is_running
    assert other.is_running


# Clients that leave


@requirement("SHTTP-S-017")
def test_a_broken_connection_is_no_cancellation(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    bench.do(call.notify, "x")
    talk.gone()
    assert call.is_running
    assert bench.do(call.notify, "y") is True
    assert bench.do(call.respond, {}) is True


def test_an_answer_that_nobody_can_get_is_reported(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    talk.gone()
    assert call.is_running
    bench.wait(1)
    assert bench.do(call.notify, "x") is False
    assert bench.do(call.disconnect) is False
    with pytest.raises(LocalProtocolError):
        call.ask("ping", timeout=1, now=bench.now)
    assert bench.do(call.respond, {}) is False
    assert bench.events == [
        ResponseUndelivered(call, "the client left before it could be answered")
    ]
    assert bench.store.count == 0


def test_a_call_whose_client_has_left_can_be_cancelled(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session, 5)
    talk.gone()
    bench.post(notification("notifications/cancelled", requestId=5), session)
    assert bench.events == [CallCancelled(call, "cancelled by the client")]
    assert talk.head is None


def test_without_a_store_a_lost_reader_loses_the_answer() -> None:
    bench = Bench(resumable=False)
    talk, call = bench.call(bench.open_session())
    bench.do(call.notify, "x")
    talk.gone()
    assert bench.do(call.notify, "y") is False
    assert bench.do(call.respond, {}) is False
    assert isinstance(bench.events[-1], ResponseUndelivered)


def test_a_client_that_leaves_before_its_large_answer(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    talk.gone()
    assert bench.do(call.respond, {"text": "x" * 20_000}) is False
