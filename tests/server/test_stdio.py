"""Conversations on stdio: what the client says in lines, and what the server answers in lines."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import REVISIONS, Limits, LocalProtocolError, Request, Response, ServerPipe
from sansmcp.events import (
    CallCancelled,
    CallReceived,
    ClientNotified,
    ClientResponseReceived,
    RefusalSent,
    SessionClosed,
    SessionOpened,
)
from sansmcp.server.calls import CallOwner
from sansmcp.states import SessionState

from .harness import LATEST, ServerHarness, initialize, notification, request
from .pipe_harness import Pipe, reason, result

requirement = pytest.mark.requirement
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]
VERSIONS = [*OLDER, LATEST]
PING = request(7, "ping")


# The handshake


@requirement("LIFECYCLE-S-001", "LIFECYCLE-S-003", "STDIO-B-001")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_handshake(version: str) -> None:
    pipe = Pipe().say(initialize(version, {"roots": {}}))
    assert pipe.said == [
        result(
            0,
            {
                "protocolVersion": version,
                "capabilities": {"tools": {}, "resources": {"subscribe": True}},
                "serverInfo": {"name": "bench", "version": "1"},
            },
        )
    ]
    session = pipe.session
    assert pipe.harness.events == [SessionOpened(session)]
    assert session.id is None
    assert session.revision.name == version
    assert session.client_info == {"name": "bench", "version": "1"}
    assert session.client_capabilities == {"roots": {}}
    states = [session.state]
    for _ in range(2):
        pipe.say(notification("notifications/initialized"))
        states.append(session.state)
    assert states == [SessionState.OPENING, SessionState.READY, SessionState.READY]
    assert pipe.said == []


@requirement("LIFECYCLE-S-004", "LIFECYCLE-S-005")
@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", "", "latest"])
def test_an_unknown_version_is_answered_with_the_newest(version: str) -> None:
    (answer,) = Pipe().say(initialize(version)).said
    assert answer["result"]["protocolVersion"] == LATEST


def test_initialize_without_a_version_can_be_mended() -> None:
    pipe = Pipe().say(request(0, "initialize"))
    assert reason(pipe.said[0]) == (-32602, "invalid_params")
    assert pipe.harness.server.sessions == ()
    pipe.open()


def test_a_second_initialize_is_refused_and_changes_nothing() -> None:
    pipe = Pipe().open("2025-06-18")
    (answer,) = pipe.say(initialize(LATEST)).said
    assert (answer["id"], reason(answer)) == (0, (-32600, "initialized_already"))
    assert pipe.events == [RefusalSent]
    assert pipe.session.revision.name == "2025-06-18"


def test_sessions_are_bounded_over_all_pipes() -> None:
    pipe = Pipe(limits=Limits(max_sessions=1))
    pipe.harness.post(PING, pipe.harness.open_session())
    (answer,) = pipe.say(initialize()).said
    assert reason(answer) == (-32600, "too_many_sessions")
    assert len(pipe.harness.server.sessions) == 1


# Before the handshake


@pytest.mark.parametrize("id", [1, "a"])
def test_requests_before_initialize_are_told_the_versions(id: int | str) -> None:
    pipe = Pipe().say(request(id))
    (answer,) = pipe.said
    assert (answer["id"], reason(answer)) == (id, (-32600, "not_initialized"))
    assert answer["error"]["data"]["supported"] == list(REVISIONS)
    assert all(version in answer["error"]["message"] for version in REVISIONS)
    assert pipe.events == [RefusalSent]
    assert pipe.open().call().is_running


@requirement("LIFECYCLE-B-011")
def test_pings_are_answered_at_any_time() -> None:
    pipe = Pipe().say(PING)
    assert pipe.said == [result(7)]
    assert pipe.events == []
    pipe.open().call()
    assert pipe.say(PING).said == [result(7)]


@requirement("JSONRPC-B-018")
def test_notifications_and_answers_before_initialize_are_ignored() -> None:
    pipe = Pipe().say(
        notification("notifications/initialized"),
        notification("notifications/cancelled", requestId=1),
        notification("notifications/x"),
        result(1),
    )
    assert (pipe.said, pipe.events) == ([], [])


# Calls


@requirement("JSONRPC-B-003", "JSONRPC-B-007")
@pytest.mark.parametrize("id", [7, "7", -1, 0, "", "ä", 2**70])
def test_a_call_is_answered_with_its_own_id(id: int | str) -> None:
    pipe = Pipe().open()
    call = pipe.call(id, name="echo")
    assert call.request == Request(id, "tools/call", {"name": "echo"})
    assert pipe.harness.run_action(call.respond, {"text": "ü"})
    (answer,) = pipe.said
    assert answer == result(id, {"text": "ü"})
    assert type(answer["id"]) is type(id)
    assert isinstance(pipe.session, CallOwner)
    assert not pipe.session.calls


def test_answers_are_sent_when_they_are_there() -> None:
    pipe = Pipe().open()
    first, second = pipe.call(1), pipe.call(2)
    pipe.harness.run_action(second.respond, {})
    assert pipe.said == [result(2)]
    pipe.harness.run_action(first.respond_error, -32002, "no such thing", {"uri": "x"})
    (answer,) = pipe.said
    assert answer["error"] == {"code": -32002, "message": "no such thing", "data": {"uri": "x"}}


@requirement("JSONRPC-B-025")
def test_an_unknown_method() -> None:
    pipe = Pipe().open()
    (answer,) = pipe.say(request(5, "prompts/get")).said
    assert (answer["id"], reason(answer)) == (5, (-32601, "method_not_found"))
    assert pipe.events == [RefusalSent]


def test_the_id_of_a_running_call_is_refused_and_free_again_after_it() -> None:
    pipe = Pipe().open()
    call = pipe.call(1)
    (answer,) = pipe.say(request(1)).said
    assert reason(answer) == (-32600, "duplicate_request_id")
    pipe.harness.run_action(call.respond, {})
    assert pipe.said == [result(1)]
    assert pipe.call(1).is_running


def test_calls_are_bounded() -> None:
    pipe = Pipe(limits=Limits(max_calls_per_session=2)).open()
    pipe.say(request(1), request(2), request(3))
    (answer,) = pipe.said
    assert (answer["id"], reason(answer)) == (3, (-32600, "too_many_requests"))
    assert pipe.events == [CallReceived, CallReceived, RefusalSent]


@requirement("STDIO-B-002", "JSONRPC-B-002")
def test_line_ends_within_strings_do_not_end_lines() -> None:
    pipe = Pipe().open()
    text = "a\nb\rc\r\nd\u2028\u2029\x85\0e"
    call = pipe.call(1, text=text)
    assert call.request.params == {"text": text}
    pipe.harness.run_action(call.respond, {"text": text})
    assert pipe.said == [result(1, {"text": text})]


# Everything else that is said


def test_notifications_go_both_ways() -> None:
    pipe = Pipe().open()
    pipe.say(notification("notifications/roots/list_changed"))
    (event,) = pipe.harness.events
    assert isinstance(event, ClientNotified)
    assert event.peer is pipe.session
    assert event.notification.method == "notifications/roots/list_changed"
    call = pipe.call()
    assert pipe.harness.run_action(call.notify, "notifications/message", {"data": "x"})
    assert pipe.harness.run_action(pipe.session.notify, "notifications/tools/list_changed")
    assert pipe.said == [
        notification("notifications/message", data="x"),
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
    ]


@requirement("PROGRESS-B-001", "PROGRESS-B-004", "PROGRESS-B-006", "PROGRESS-B-012")
def test_progress() -> None:
    pipe = Pipe().open()
    call = pipe.call(1, _meta={"progressToken": "t"})
    assert pipe.harness.run_action(call.progress, 0.25, 1.5, "nearly")
    assert pipe.said == [
        notification(
            "notifications/progress", progressToken="t", progress=0.25, total=1.5, message="nearly"
        )
    ]
    pipe.harness.run_action(call.respond, {})
    assert pipe.harness.run_action(call.progress, 1) is False
    assert pipe.said == [result(1)]


def test_the_client_answers_the_servers_questions() -> None:
    pipe = Pipe().open(capabilities={"elicitation": {}})
    call = pipe.call(1)
    with pytest.raises(LocalProtocolError, match="sampling"):
        call.ask("sampling/createMessage", timeout=1, now=0)
    id = pipe.harness.run_action(call.ask, "elicitation/create", {"message": "?"}, timeout=30)
    assert pipe.said == [request(id, "elicitation/create", message="?")]
    pipe.say(result("1"), result(99), result(id, {"action": "decline"}), result(id))
    assert pipe.harness.events == [
        ClientResponseReceived(call, id, Response(id, {"action": "decline"}))
    ]
    pipe.harness.run_action(call.respond, {})
    assert pipe.said == [result(1)]


def test_a_question_that_is_not_answered_in_time_is_withdrawn() -> None:
    pipe = Pipe().open()
    id = pipe.harness.run_action(pipe.call().ask, "ping", timeout=30)
    pipe.wait(30)
    assert pipe.events == [ClientResponseReceived]
    _, withdrawal = pipe.said
    assert withdrawal["params"] == {"requestId": id, "reason": "timed out"}


@requirement("CANCEL-B-003", "CANCEL-B-006", "CANCEL-B-008")
def test_a_cancelled_call_is_not_answered() -> None:
    pipe = Pipe().open()
    call = pipe.call(1)
    cancel = "notifications/cancelled"
    pipe.say(
        notification(cancel, requestId="1"),
        notification(cancel, requestId=[]),
        {"jsonrpc": "2.0", "method": cancel},
    )
    assert call.is_running
    pipe.say(notification(cancel, requestId=1, reason="bored"))
    assert pipe.harness.events == [CallCancelled(call, "bored")]
    assert pipe.harness.run_action(call.respond, {}) is False
    pipe.say(notification(cancel, requestId=1))
    assert pipe.said == []
    assert pipe.events == [CallCancelled]


@requirement("POLL-S-004")
def test_a_client_on_stdio_cannot_be_sent_away() -> None:
    pipe = Pipe().open()
    call = pipe.call(1)
    assert pipe.harness.run_action(call.disconnect) is False
    assert pipe.harness.run_action(call.respond, {})
    assert pipe.said == [result(1)]


# Batches


@requirement("STDIO-B-003", "JSONRPC-B-030", "JSONRPC-B-032", "JSONRPC-B-033")
def test_a_batch_is_answered_by_one_array() -> None:
    pipe = Pipe().open("2025-03-26")
    pipe.say([request(1), notification("notifications/x"), request("b", "ping"), request(3)])
    assert isinstance(pipe.harness.events.pop(), ClientNotified)
    third, first = pipe.harness.last_call(), pipe.harness.last_call()
    assert pipe.harness.run_action(third.respond, {})
    assert pipe.harness.run_action(first.notify, "notifications/message")
    assert pipe.said == [{"jsonrpc": "2.0", "method": "notifications/message"}]
    pipe.harness.run_action(first.respond, {})
    assert pipe.said == [[result("b"), result(3), result(1)]]


def test_a_batch_in_which_all_calls_are_cancelled_is_not_answered() -> None:
    pipe = Pipe().open("2025-03-26")
    cancelled = [notification("notifications/cancelled", requestId=id) for id in (1, 2)]
    pipe.say([request(1), request(2)], cancelled)
    assert pipe.said == []
    pipe.say([request(1), request(2)])
    pipe.harness.run_action(pipe.harness.last_call().respond, {})
    pipe.say(cancelled[0])
    assert pipe.said == [[result(2)]]


@requirement("JSONRPC-B-034")
def test_a_batch_that_wants_no_answer_gets_none() -> None:
    pipe = Pipe().open("2025-03-26")
    pipe.say([notification("notifications/x")], [result(1), result(2)])
    assert pipe.said == []
    assert pipe.events == [ClientNotified]


@requirement("JSONRPC-B-028", "JSONRPC-B-036")
def test_bad_elements_of_a_batch_are_answered_within_it() -> None:
    pipe = Pipe().open("2025-03-26")
    pipe.say([1, request(1, "ping"), request(2, "nope"), {"id": 3}])
    (answers,) = pipe.said
    assert [answer["id"] for answer in answers] == [None, 1, 2, 3]
    assert [answer.get("error", {}).get("code") for answer in answers] == [
        -32600,
        None,
        -32601,
        -32600,
    ]


@requirement("JSONRPC-B-031", "JSONRPC-B-035")
@pytest.mark.parametrize("batch", [[], [PING, result(1)], [initialize()]])
def test_batches_that_are_never_right(batch: list[Any]) -> None:
    pipe = Pipe().open("2025-03-26")
    (answer,) = pipe.say(batch).said
    assert (answer["id"], reason(answer)) == (None, (-32600, "bad_batch"))


@requirement("STDIO-B-004", "JSONRPC-B-039")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LATEST])
def test_other_revisions_have_no_batches(version: str) -> None:
    pipe = Pipe().open(version)
    (answer,) = pipe.say([PING]).said
    assert reason(answer) == (-32600, "batch_not_allowed")
    assert pipe.say(PING).said == [result(7)]


def test_there_are_no_batches_before_initialize() -> None:
    assert reason(Pipe().say([PING]).said[0]) == (-32600, "batch_not_allowed")
    (answer,) = Pipe(versions=("2025-03-26",)).say([PING]).said
    assert reason(answer) == (-32600, "not_initialized")


# Beside each other


@requirement("STDIO-B-005")
def test_pipes_and_http_share_a_server_and_do_not_mix() -> None:
    pipe = Pipe()
    other = Pipe()
    other.harness = pipe.harness
    other.pipe = ServerPipe(pipe.harness.server, driver=other, now=0.0)
    pipe.open()
    other.open("2025-06-18")
    session = pipe.harness.open_session()
    calls = pipe.call(1), other.call(1)
    talk, third = pipe.harness.call(session, 1)
    for number, call in enumerate((*calls, third)):
        pipe.harness.run_action(call.respond, {"n": number})
    assert pipe.said == [result(1, {"n": 0})]
    assert other.said == [result(1, {"n": 1})]
    assert talk.json == result(1, {"n": 2})
    pipe.lose()
    assert pipe.events == [SessionClosed]
    assert len(pipe.harness.server.sessions) == 2
    assert other.say(PING).said == [result(7)]


def test_the_clock_of_the_server_never_goes_back() -> None:
    pipe = Pipe(limits=Limits(max_queued_events=1))
    harness: ServerHarness = pipe.harness
    harness.takes_events = False
    pipe.say(initialize(), PING)
    harness.now = 50.0
    harness.server.handle_timeout(now=50.0)
    harness.takes_events = True
    pipe.run_pending()
    assert [answer["id"] for answer in pipe.said] == [0, 7]
    assert harness.server.now == 50.0
