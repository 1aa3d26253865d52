"""Calls: answered once, in JSON or as a stream, whatever crosses on the way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import (
    Call,
    ErrorResponse,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    RequestCancelled,
    RequestTimeout,
    Response,
)
from sansmcp.events import CallCancelled, CallReceived, ClientAnswered, ClientNotified, MessageLost
from sansmcp.messages import Notification
from sansmcp.states import CallState

from .bench import LATEST, Bench, Talk, notification, request

requirement = pytest.mark.requirement
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@requirement("SHTTP-S-005", "JSONRPC-B-007", "JSONRPC-B-010")
@pytest.mark.parametrize("id", [1, "1", "", 2**70])
def test_a_quick_answer_is_plain_json(bench: Bench, id: int | str) -> None:
    talk, call = bench.call(bench.open_session(), id)
    assert call.request.id == id
    assert bench.do(call.respond, {"a": 1}) is True
    assert talk.status == 200
    assert talk.json == {"jsonrpc": "2.0", "id": id, "result": {"a": 1}}
    assert talk.ended
    assert bench.store.count == 0
    assert call.state is CallState.ANSWERED


@requirement("SHTTP-S-005", "SHTTP-S-007", "SHTTP-S-015", "POLL-S-001", "POLL-S-002", "SSE-S-002")
def test_a_slow_answer_is_a_stream(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    bench.wait(0.04)
    assert talk.head is None
    bench.wait(0.02)
    assert talk.status == 200
    assert talk.header("cache-control") == "no-cache, no-transform"
    assert talk.header("x-accel-buffering") == "no"
    (primer,) = talk.events
    assert (primer.data, bool(primer.id)) == ("", True)
    bench.do(call.respond, {})
    assert talk.messages == [{"jsonrpc": "2.0", "id": call.request.id, "result": {}}]
    assert talk.ended


@requirement("POLL-S-008")
@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_older_clients_get_ids_but_no_primer(version: str) -> None:
    bench = Bench(stream_after=0)
    talk, call = bench.call(bench.open_session(version), version=None)
    assert talk.status == 200
    assert talk.events == []
    bench.do(call.respond, {})
    (event,) = talk.events
    assert event.id


def test_without_a_store_there_are_no_ids() -> None:
    bench = Bench(resumable=False, stream_after=0)
    talk, call = bench.call(bench.open_session())
    bench.do(call.notify, "notifications/x")
    bench.do(call.respond, {})
    assert [event.id for event in talk.events] == [None, None]
    assert bench.do(call.disconnect) is False


@requirement("SHTTP-S-009", "SHTTP-S-010", "SHTTP-S-011")
def test_what_is_said_before_makes_it_a_stream(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    assert bench.do(call.notify, "notifications/message", {"level": "info"}) is True
    bench.do(call.respond, {})
    assert [message.get("method") for message in talk.messages] == ["notifications/message", None]
    assert [event.event for event in talk.events] == ["message"] * 3
    bench.wait(100)
    assert talk.ended


def test_a_large_answer_is_a_stream_that_can_be_resumed(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    bench.do(call.respond, {"text": "x" * 20_000})
    assert [len(message["result"]["text"]) for message in talk.messages] == [20_000]
    plain = Bench(resumable=False)
    talk, call = plain.call(plain.open_session())
    plain.do(call.respond, {"text": "x" * 20_000})
    assert len(talk.json["result"]["text"]) == 20_000


@requirement("JSONRPC-B-026", "JSONRPC-B-027")
def test_errors_are_answers(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    bench.do(call.fail, -32602, "bad", {"x": 1})
    assert (talk.status, talk.error) == (200, {"code": -32602, "message": "bad", "data": {"x": 1}})
    talk, call = bench.call(session)
    bench.do(call.fail_with, JsonRpcError(5, "own"))
    assert talk.error == {"code": 5, "message": "own"}
    talk, call = bench.call(session)
    bench.do(call.fail_with, RuntimeError("secret"))
    assert talk.error == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize("result", [math.nan, object(), "\ud800"])
def test_a_result_that_is_no_json_changes_nothing(bench: Bench, result: Any) -> None:
    talk, call = bench.call(bench.open_session())
    with pytest.raises(LocalProtocolError):
        call.respond(result, now=0)
    with pytest.raises(LocalProtocolError):
        call.notify("x", {"a": result}, now=0)
    assert call.is_running
    bench.do(call.respond, {})
    assert talk.json["result"] == {}


@requirement("LIFECYCLE-B-011")
def test_ping_needs_no_application(bench: Bench) -> None:
    talk = bench.post(request("p", "ping"), bench.open_session())
    assert talk.json == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert bench.events == []


def test_notifications_reach_the_application(bench: Bench) -> None:
    session = bench.open_session()
    bench.post(notification("notifications/roots/list_changed", a=1), session)
    (event,) = bench.events
    assert isinstance(event, ClientNotified)
    assert event.notification == Notification("notifications/roots/list_changed", {"a": 1})
    assert event.session is bench.server.sessions[0]


# Ending once


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
    assert bench.events == [MessageLost(call, "the client left before it could be answered")]
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
    assert isinstance(bench.events[-1], MessageLost)


def test_a_client_that_leaves_before_its_large_answer(bench: Bench) -> None:
    talk, call = bench.call(bench.open_session())
    talk.gone()
    assert bench.do(call.respond, {"text": "x" * 20_000}) is False


@requirement("JSONRPC-B-005")
def test_an_id_that_is_running_is_refused_and_the_first_is_unharmed(bench: Bench) -> None:
    session = bench.open_session()
    first, call = bench.call(session, 5)
    second = bench.post(request(5), session)
    assert (second.status, second.error["data"]["reason"]) == (400, "duplicate_request_id")
    assert second.json["id"] == 5
    assert bench.post(request("5"), session).head is None  # another id
    bench.do(call.respond, {})
    assert first.json["result"] == {}


def test_equal_ids_of_two_sessions_are_different_calls(bench: Bench) -> None:
    talks = [bench.call(bench.open_session(), 1) for _ in range(5)]
    for number, (_, call) in enumerate(talks):
        bench.do(call.respond, {"number": number})
    assert [talk.json["result"]["number"] for talk, _ in talks] == [0, 1, 2, 3, 4]


def test_calls_of_a_session_are_bounded() -> None:
    bench = Bench(limits=Limits(max_calls_per_session=2))
    session = bench.open_session()
    (_, first), _ = bench.call(session, 1), bench.call(session, 2)
    third = bench.post(request(3), session)
    assert (third.status, third.error["data"]) == (429, {"reason": "too_many_requests", "limit": 2})
    bench.do(first.respond, {})
    assert bench.post(request(3), session).head is None
    assert bench.post(request(1), bench.open_session()).head is None  # another session


# Progress


@requirement("PROGRESS-B-001", "PROGRESS-B-004", "PROGRESS-B-006", "PROGRESS-B-008")
@pytest.mark.parametrize("token", [0, 7, "t", ""])
def test_progress_has_the_token_of_the_request(bench: Bench, token: int | str) -> None:
    talk, call = bench.call(bench.open_session(), token=token)
    assert bench.do(call.progress, 0.5)
    assert bench.do(call.progress, 1, 2.5, "half")
    bench.do(call.respond, {})
    assert [message.get("params") for message in talk.messages[:-1]] == [
        {"progressToken": token, "progress": 0.5},
        {"progressToken": token, "progress": 1, "total": 2.5, "message": "half"},
    ]


@requirement("PROGRESS-B-005")
@pytest.mark.parametrize("next_progress", [2, 1.5, -1])
def test_progress_grows(bench: Bench, next_progress: float) -> None:
    talk, call = bench.call(bench.open_session(), token=1)
    bench.do(call.progress, 2)
    with pytest.raises(LocalProtocolError):
        call.progress(next_progress, now=0)
    assert len(talk.messages) == 1


@requirement("PROGRESS-B-009", "PROGRESS-B-012")
@pytest.mark.parametrize("token", [None, True, 1.5, [1]])
def test_no_progress_without_a_token_or_after_the_end(bench: Bench, token: Any) -> None:
    talk, call = bench.call(bench.open_session(), token=token)
    assert bench.do(call.progress, 1) is False
    bench.do(call.respond, {})
    assert talk.json["result"] == {}
    _, call = bench.call(bench.open_session(), token=1)
    bench.do(call.respond, {})
    assert bench.do(call.progress, 1) is False


# Asking the client


def ask(bench: Bench, method: str = "elicitation/create") -> tuple[str, Talk, Call, int]:
    session = bench.open_session(capabilities={"elicitation": {}})
    talk, call = bench.call(session)
    return session, talk, call, bench.do(call.ask, method, {"message": "?"}, timeout=30)


@requirement("SHTTP-S-012", "SHTTP-S-009")
def test_a_question_goes_out_on_the_stream_of_its_call(bench: Bench) -> None:
    session, talk, call, id = ask(bench)
    assert talk.messages == [
        {"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {"message": "?"}}
    ]
    answer = {"jsonrpc": "2.0", "id": id, "result": {"action": "decline"}}
    assert bench.post(answer, session).status == 202
    (event,) = bench.events
    assert event == ClientAnswered(call, id, Response(id, {"action": "decline"}))
    assert isinstance(event, ClientAnswered)
    assert event.result() == {"action": "decline"}
    assert bench.post(answer, session).status == 202  # twice
    assert len(bench.events) == 1
    bench.do(call.respond, {})
    assert len(talk.messages) == 2


def test_an_error_of_the_client_is_an_answer(bench: Bench) -> None:
    session, _, call, id = ask(bench, "ping")
    bench.post({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}, session)
    (event,) = bench.events
    assert event == ClientAnswered(call, id, ErrorResponse(id, -1, "no"))
    assert isinstance(event, ClientAnswered)
    with pytest.raises(JsonRpcError, match="no"):
        event.result()


def test_a_foreign_answer_does_not_count(bench: Bench) -> None:
    _, _, _, id = ask(bench)
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "result": {}}
    assert bench.post(answer, bench.open_session()).status == 202
    assert bench.post({**answer, "id": str(id)}, bench.open_session()).status == 202
    assert bench.events == []


def test_a_question_times_out(bench: Bench) -> None:
    session, talk, call, id = ask(bench)
    bench.wait(30)
    (event,) = bench.events
    assert isinstance(event, ClientAnswered)
    assert isinstance(event.answer, RequestTimeout)
    with pytest.raises(RequestTimeout):
        event.result()
    assert talk.messages[-1]["method"] == "notifications/cancelled"
    assert talk.messages[-1]["params"] == {"requestId": id, "reason": "timed out"}
    assert bench.post({"jsonrpc": "2.0", "id": id, "result": {}}, session).status == 202
    assert len(bench.events) == 1
    assert call.is_running


@requirement("CANCEL-B-001", "CANCEL-B-002")
def test_an_answered_call_withdraws_its_questions(bench: Bench) -> None:
    _, talk, call, id = ask(bench)
    bench.do(call.respond, {})
    assert [message.get("method") for message in talk.messages] == [
        "elicitation/create",
        "notifications/cancelled",
        None,
    ]
    assert talk.messages[1]["params"]["requestId"] == id
    (event,) = bench.events
    assert isinstance(event, ClientAnswered)
    assert isinstance(event.answer, RequestCancelled)
    bench.wait(100)
    assert len(bench.events) == 1


def test_a_cancelled_call_ends_its_questions(bench: Bench) -> None:
    session, _, call, _ = ask(bench)
    bench.post(notification("notifications/cancelled", requestId=call.request.id), session)
    assert [type(event) for event in bench.events] == [ClientAnswered, CallCancelled]


@requirement("LIFECYCLE-S-006")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_a_client_is_asked_only_what_it_declared(bench: Bench, method: str) -> None:
    session = bench.open_session(capabilities={"other": {}})
    talk, call = bench.call(session)
    with pytest.raises(LocalProtocolError, match="capability"):
        call.ask(method, timeout=1, now=0)
    assert talk.head is None
    assert call.is_running


@requirement("LIFECYCLE-B-015")
def test_pings_need_no_capability(bench: Bench) -> None:
    _, call = bench.call(bench.open_session())
    assert bench.do(call.ask, "ping", timeout=1) == 1
    assert bench.do(call.ask, "ping", timeout=1) == 2


# Without sessions


def test_without_sessions_every_request_stands_alone() -> None:
    bench = Bench(sessions=False)
    talk = bench.post(request(0, "initialize", protocolVersion="2025-06-18"))
    assert talk.header("mcp-session-id") is None
    assert talk.json["result"]["protocolVersion"] == "2025-06-18"
    assert bench.post(notification("notifications/initialized")).status == 202
    first, call = bench.call(None, 1)
    second, other = bench.call(None, 1)
    with pytest.raises(LocalProtocolError, match="session"):
        call.ask("ping", timeout=1, now=0)
    assert call.session.notify("x", now=0) is False
    bench.do(call.respond, {"first": True})
    bench.do(other.respond, {"first": False})
    assert (first.json["result"]["first"], second.json["result"]["first"]) == (True, False)


def test_without_sessions_streams_can_be_resumed() -> None:
    bench = Bench(sessions=False)
    talk, call = bench.call(None, headers={"mcp-protocol-version": LATEST})
    bench.do(call.notify, "x")
    talk.gone()
    bench.do(call.respond, {})
    resumed = bench.get(None, talk.events[0].id, {"mcp-protocol-version": LATEST})
    assert [message.get("method") for message in resumed.messages] == ["x", None]
    assert resumed.ended


def test_calls_show_what_they_are(bench: Bench) -> None:
    session = bench.open_session()
    _, call = bench.call(session, 9)
    assert repr(call) == "<call 9 tools/call: running>"
    assert session not in repr(call.session)
    assert LATEST in repr(call.session)
    assert "exchange" in repr(bench.server.open_exchange())


def test_the_application_may_be_slow(bench: Bench) -> None:
    """When events pile up, no further request is read until some are taken."""
    bench = Bench(limits=Limits(max_queued_events=2))
    session = bench.open_session()
    bench.takes_events = False
    first, second = bench.post(request(1), session), bench.post(request(2), session)
    assert (first.paused, second.paused) == (False, False)
    waiting = Talk(bench)
    waiting.pull()
    assert waiting.paused
    bench.takes_events = True
    bench.settle()
    assert not waiting.paused
    assert [type(event) for event in bench.events] == [CallReceived, CallReceived]
    waiting.gone()
