"""Asking the client: each question ends once, by its answer, a timeout, or the end of its call."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    ErrorResponse,
    JsonRpcError,
    LocalProtocolError,
    RequestCancelled,
    RequestTimeout,
    Response,
    ServerCall,
)
from sansmcp.events import CallCancelled, ClientResponseReceived

from .harness import RawExchange, ServerHarness, methods, notification

requirement = pytest.mark.requirement


def ask(
    harness: ServerHarness, method: str = "elicitation/create"
) -> tuple[str, RawExchange, ServerCall, int]:
    session = harness.open_session(capabilities={"elicitation": {}})
    talk, call = harness.call(session)
    return session, talk, call, harness.run_action(call.ask, method, {"message": "?"}, timeout=30)


@requirement("SHTTP-S-012", "SHTTP-S-009")
def test_a_question_goes_out_on_the_stream_of_its_call(harness: ServerHarness) -> None:
    session, talk, call, id = ask(harness)
    assert talk.messages == [
        {"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {"message": "?"}}
    ]
    answer = {"jsonrpc": "2.0", "id": id, "result": {"action": "decline"}}
    assert harness.post(answer, session).status == 202
    (event,) = harness.events
    assert event == ClientResponseReceived(call, id, Response(id, {"action": "decline"}))
    assert isinstance(event, ClientResponseReceived)
    assert event.result() == {"action": "decline"}
    assert harness.post(answer, session).status == 202  # twice
    assert len(harness.events) == 1
    harness.run_action(call.respond, {})
    assert len(talk.messages) == 2


@requirement("SHTTP-S-013", "SHTTP-S-021")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_a_question_never_goes_out_on_the_standalone_stream(
    harness: ServerHarness, method: str
) -> None:
    everything: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
    session = harness.open_session(capabilities=everything)
    listener = harness.get(session)
    talk, call = harness.call(session)
    harness.run_action(call.ask, method, timeout=30)
    assert methods(talk) == [method]
    assert methods(listener) == []
    talk.lose_connection()  # it waits for the client to come back to its own stream
    harness.run_action(call.ask, method, timeout=30)
    assert methods(listener) == []


def test_an_error_of_the_client_is_an_answer(harness: ServerHarness) -> None:
    session, _, call, id = ask(harness, "ping")
    harness.post({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}, session)
    (event,) = harness.events
    assert event == ClientResponseReceived(call, id, ErrorResponse(id, -1, "no"))
    assert isinstance(event, ClientResponseReceived)
    with pytest.raises(JsonRpcError, match="no"):
        event.result()


def test_a_foreign_answer_does_not_count(harness: ServerHarness) -> None:
    _, _, _, id = ask(harness)
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "result": {}}
    assert harness.post(answer, harness.open_session()).status == 202
    assert harness.post({**answer, "id": str(id)}, harness.open_session()).status == 202
    assert harness.events == []


def test_a_question_times_out(harness: ServerHarness) -> None:
    session, talk, call, id = ask(harness)
    harness.wait(30)
    (event,) = harness.events
    assert isinstance(event, ClientResponseReceived)
    assert isinstance(event.answer, RequestTimeout)
    assert event.answer.seconds == 30
    with pytest.raises(RequestTimeout):
        event.result()
    assert talk.messages[-1]["method"] == "notifications/cancelled"
    assert talk.messages[-1]["params"] == {"requestId": id, "reason": "timed out"}
    assert harness.post({"jsonrpc": "2.0", "id": id, "result": {}}, session).status == 202
    assert len(harness.events) == 1
    assert call.is_running


@requirement("CANCEL-B-001", "CANCEL-B-002")
def test_an_answered_call_withdraws_its_questions(harness: ServerHarness) -> None:
    _, talk, call, id = ask(harness)
    harness.run_action(call.respond, {})
    assert [message.get("method") for message in talk.messages] == [
        "elicitation/create",
        "notifications/cancelled",
        None,
    ]
    assert talk.messages[1]["params"]["requestId"] == id
    (event,) = harness.events
    assert isinstance(event, ClientResponseReceived)
    assert isinstance(event.answer, RequestCancelled)
    harness.wait(100)
    assert len(harness.events) == 1


def test_a_cancelled_call_ends_its_questions(harness: ServerHarness) -> None:
    session, _, call, _ = ask(harness)
    harness.post(notification("notifications/cancelled", requestId=call.request.id), session)
    assert [type(event) for event in harness.events] == [CallCancelled, ClientResponseReceived]


# What may be asked


@requirement("LIFECYCLE-S-006")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_a_client_is_asked_only_what_it_declared(harness: ServerHarness, method: str) -> None:
    session = harness.open_session(capabilities={"other": {}})
    talk, call = harness.call(session)
    with pytest.raises(LocalProtocolError, match="capability"):
        call.ask(method, timeout=1, now=0)
    assert talk.head is None
    assert call.is_running


@requirement("LIFECYCLE-B-015")
def test_pings_need_no_capability(harness: ServerHarness) -> None:
    _, call = harness.call(harness.open_session())
    assert harness.run_action(call.ask, "ping", timeout=1) == 1
    assert harness.run_action(call.ask, "ping", timeout=1) == 2


@pytest.mark.parametrize(
    "mistake",
    [
        {"method": 1},
        {"params": [1]},
        {"params": {"message": float("nan")}},
        {"timeout": None},
        {"timeout": 0},
    ],
    ids=str,
)
def test_what_cannot_be_asked_leaves_no_question(
    harness: ServerHarness, mistake: dict[str, Any]
) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    with pytest.raises(LocalProtocolError):
        harness.run_action(call.ask, **{"method": "ping", "timeout": 1} | mistake)
    assert talk.head is None
    assert harness.post({"jsonrpc": "2.0", "id": 1, "result": {}}, session).status == 202
    assert harness.events == []
    assert harness.run_action(call.ask, "ping", timeout=1) == 1


def test_a_withdrawn_question_is_cancelled_and_its_answer_ignored(harness: ServerHarness) -> None:
    session, talk, call, id = ask(harness)
    assert harness.run_action(call.withdraw, id, "not needed") is True
    assert methods(talk) == ["elicitation/create", "notifications/cancelled"]
    assert talk.messages[1]["params"] == {"requestId": id, "reason": "not needed"}
    assert harness.run_action(call.withdraw, id, "again") is False
    harness.post({"jsonrpc": "2.0", "id": id, "result": {}}, session)
    harness.wait(60)  # its timeout is gone, too
    assert not harness.events
    harness.run_action(call.respond, {})
    assert len(talk.messages) == 3
