"""Calls: answered in JSON or as a stream, told apart by session and id, and bounded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import App, Idle, JsonRpcError, Limits, LocalProtocolError
from sansmcp.effects import SendBody, SendEnd, SendHead, Wake
from sansmcp.events import CallReceived, ClientNotified
from sansmcp.messages import Notification
from sansmcp.states import CallState

from ..handlers import nothing
from .harness import LATEST, STREAM, RawExchange, ServerHarness, notification, request

requirement = pytest.mark.requirement
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST]


# Answers


@requirement("SHTTP-S-005", "JSONRPC-B-007", "JSONRPC-B-010")
@pytest.mark.parametrize("id", [1, "1", "", 2**70])
def test_a_quick_answer_is_plain_json(harness: ServerHarness, id: int | str) -> None:
    talk, call = harness.call(harness.open_session(), id)
    assert call.request.id == id
    assert harness.run_action(call.respond, {"a": 1}) is True
    assert talk.status == 200
    assert talk.json == {"jsonrpc": "2.0", "id": id, "result": {"a": 1}}
    assert talk.ended
    assert harness.store.count == 0
    assert call.state is CallState.ANSWERED


def test_a_driver_sees_that_a_piece_is_the_last_one(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    talk.reads = False
    harness.run_action(call.respond, {"a": 1})
    seen: list[tuple[type[object], bool]] = []
    while not isinstance(effect := harness.server.next_effect_of(talk.exchange), Idle):
        seen.append((type(effect), talk.exchange.is_at_end))
    assert seen == [(SendHead, False), (SendBody, True), (SendEnd, False)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("result", [True, 5, [1], "x", None])
def test_a_result_that_is_no_object_is_not_sent(version: str, result: Any) -> None:
    """A handler that returns True has no other form of mistake at older revisions."""
    harness = ServerHarness()
    talk, call = harness.call(harness.open_session(version=version))
    with pytest.raises(LocalProtocolError, match=r"must be an object \(a dict\), got "):
        harness.run_action(call.respond, result)
    assert talk.messages == []
    assert harness.run_action(call.respond, {"a": 1}) is True


@requirement("SHTTP-S-005", "SHTTP-S-007", "SHTTP-S-015", "POLL-S-001", "POLL-S-002", "SSE-S-002")
def test_an_answer_that_takes_time_is_a_stream_at_once(harness: ServerHarness) -> None:
    """It was one after 50 ms, and could not be resumed before."""
    talk, call = harness.call(harness.open_session())
    assert talk.head is None
    assert harness.server.next_deadline() == harness.now
    harness.wait(0)
    assert talk.status == 200
    assert talk.header("cache-control") == "no-cache, no-transform"
    assert talk.header("x-accel-buffering") == "no"
    (primer,) = talk.events
    assert (primer.data, bool(primer.id)) == ("", True)
    harness.run_action(call.respond, {})
    assert talk.messages == [{"jsonrpc": "2.0", "id": call.request.id, "result": {}}]
    assert talk.ended


@requirement("POLL-S-008")
@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_older_clients_get_ids_but_no_primer(version: str) -> None:
    harness = ServerHarness(stream_after=0)
    talk, call = harness.call(harness.open_session(version), version=None)
    assert talk.status == 200
    assert talk.events == []
    harness.run_action(call.respond, {})
    (event,) = talk.events
    assert event.id


@requirement("SHTTP-S-018")
def test_without_a_store_there_are_no_ids() -> None:
    harness = ServerHarness(resumable=False, stream_after=0)
    talk, call = harness.call(harness.open_session())
    harness.run_action(call.notify, "notifications/x")
    harness.run_action(call.respond, {})
    assert [event.id for event in talk.events] == [None, None]
    assert harness.run_action(call.disconnect) is False


@requirement("SHTTP-S-009", "SHTTP-S-010", "SHTTP-S-011")
def test_what_is_said_before_makes_it_a_stream(harness: ServerHarness) -> None:
    talk, call = harness.call(harness.open_session())
    assert harness.run_action(call.notify, "notifications/message", {"level": "info"}) is True
    harness.run_action(call.respond, {})
    assert [message.get("method") for message in talk.messages] == ["notifications/message", None]
    assert [event.event for event in talk.events] == ["message"] * 3
    harness.wait(100)
    assert talk.ended


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resumable", [True, False])
def test_a_large_answer_that_is_there_at_once_is_json(version: str, resumable: bool) -> None:
    """It was an event, which some clients refuse, and was stored without a reader."""
    harness = ServerHarness(resumable=resumable)
    talk, call = harness.call(harness.open_session(version), version=None)
    harness.run_action(call.respond, {"text": "x" * 2_000_000})
    assert len(talk.json["result"]["text"]) == 2_000_000
    assert harness.store.count == 0


@pytest.mark.parametrize(
    ("settings", "version", "seconds"),
    [
        ({}, LATEST, 0.0),
        ({}, "2025-06-18", 0.05),
        ({"resumable": False}, LATEST, 0.05),
        ({"stream_after": 0.3}, LATEST, 0.3),
        ({"stream_after": 0.3}, "2025-03-26", 0.3),
    ],
)
def test_when_it_becomes_a_stream(settings: Any, version: str, seconds: float) -> None:
    """At once where that lets the client come back, else a little later."""
    harness = ServerHarness(**settings)
    talk, _ = harness.call(harness.open_session(version), version=None)
    if seconds:
        harness.wait(seconds - 0.01)
        assert talk.head is None
    harness.wait(0.01)
    assert talk.header("content-type") == STREAM


@pytest.mark.parametrize(("own", "seconds"), [(None, 0.3), (0.5, 0.5), (0.0, 0.0)])
def test_a_handler_may_have_its_own_time(own: float | None, seconds: float) -> None:
    app = App("own")
    app.handler("tools/call", stream_after=own)(nothing)
    harness = ServerHarness(app, stream_after=0.3)
    talk, _ = harness.call(harness.open_session())
    assert (talk.head is not None) is (own == 0)
    harness.wait(seconds - 0.01 if seconds else 0)
    assert (talk.head is not None) is (own == 0)
    harness.wait(0.02)
    assert talk.header("content-type") == STREAM


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1"])
def test_a_handler_has_no_time_that_is_none(wrong: Any) -> None:
    app = App("own")
    with pytest.raises(LocalProtocolError, match="stream_after must"):
        app.handler("tools/call", stream_after=wrong)
    assert app.handlers == {}


@requirement("JSONRPC-B-026", "JSONRPC-B-027")
def test_errors_are_answers(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    harness.run_action(call.respond_error, -32602, "bad", {"x": 1})
    assert (talk.status, talk.error) == (200, {"code": -32602, "message": "bad", "data": {"x": 1}})
    talk, call = harness.call(session)
    harness.run_action(call.respond_exception, JsonRpcError(5, "own"))
    assert talk.error == {"code": 5, "message": "own"}
    talk, call = harness.call(session)
    harness.run_action(call.respond_exception, RuntimeError("secret"))
    assert talk.error == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize("result", [math.nan, object(), "\ud800"])
def test_a_result_that_is_no_json_changes_nothing(harness: ServerHarness, result: Any) -> None:
    talk, call = harness.call(harness.open_session())
    with pytest.raises(LocalProtocolError):
        call.respond(result, now=0)
    with pytest.raises(LocalProtocolError):
        call.notify("x", {"a": result}, now=0)
    assert call.is_running
    harness.run_action(call.respond, {})
    assert talk.json["result"] == {}


@requirement("LIFECYCLE-B-011")
def test_ping_needs_no_application(harness: ServerHarness) -> None:
    talk = harness.post(request("p", "ping"), harness.open_session())
    assert talk.json == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert harness.events == []


def test_notifications_reach_the_application(harness: ServerHarness) -> None:
    session = harness.open_session()
    harness.post(notification("notifications/roots/list_changed", a=1), session)
    (event,) = harness.events
    assert isinstance(event, ClientNotified)
    assert event.notification == Notification("notifications/roots/list_changed", {"a": 1})
    assert event.peer is harness.server.sessions[0]


# Ids and bounds


@requirement("JSONRPC-B-005")
def test_an_id_that_is_running_is_refused_and_the_first_is_unharmed(harness: ServerHarness) -> None:
    session = harness.open_session()
    first, call = harness.call(session, 5)
    second = harness.post(request(5), session)
    assert (second.status, second.error["data"]["reason"]) == (400, "duplicate_request_id")
    assert second.json["id"] == 5
    assert harness.post(request("5"), session).head is None  # another id
    harness.run_action(call.respond, {})
    assert first.json["result"] == {}


def test_equal_ids_of_two_sessions_are_different_calls(harness: ServerHarness) -> None:
    talks = [harness.call(harness.open_session(), 1) for _ in range(5)]
    for number, (_, call) in enumerate(talks):
        harness.run_action(call.respond, {"number": number})
    assert [talk.json["result"]["number"] for talk, _ in talks] == [0, 1, 2, 3, 4]


def test_calls_of_a_session_are_bounded() -> None:
    harness = ServerHarness(limits=Limits(max_calls_per_session=2))
    session = harness.open_session()
    (_, first), _ = harness.call(session, 1), harness.call(session, 2)
    third = harness.post(request(3), session)
    assert (third.status, third.error["data"]) == (429, {"reason": "too_many_requests", "limit": 2})
    harness.run_action(first.respond, {})
    assert harness.post(request(3), session).head is None
    assert harness.post(request(1), harness.open_session()).head is None  # another session


# Progress


@requirement("PROGRESS-B-001", "PROGRESS-B-004", "PROGRESS-B-006", "PROGRESS-B-008")
@pytest.mark.parametrize("token", [0, 7, "t", ""])
def test_progress_has_the_token_of_the_request(harness: ServerHarness, token: int | str) -> None:
    talk, call = harness.call(harness.open_session(), token=token)
    assert harness.run_action(call.progress, 0.5)
    assert harness.run_action(call.progress, 1, 2.5, "half")
    harness.run_action(call.respond, {})
    assert [message.get("params") for message in talk.messages[:-1]] == [
        {"progressToken": token, "progress": 0.5},
        {"progressToken": token, "progress": 1, "total": 2.5, "message": "half"},
    ]


@requirement("PROGRESS-B-005")
@pytest.mark.parametrize("next_progress", [2, 1.5, -1])
def test_progress_grows(harness: ServerHarness, next_progress: float) -> None:
    talk, call = harness.call(harness.open_session(), token=1)
    harness.run_action(call.progress, 2)
    with pytest.raises(LocalProtocolError):
        call.progress(next_progress, now=0)
    assert len(talk.messages) == 1


@requirement(
    "PROGRESS-B-001", "PROGRESS-B-008", "PROGRESS-B-009", "PROGRESS-B-012", "PROGRESS-B-010"
)
@pytest.mark.parametrize("token", [None, True, 1.5, [1]])
def test_no_progress_without_a_token_or_after_the_end(harness: ServerHarness, token: Any) -> None:
    talk, call = harness.call(harness.open_session(), token=token)
    assert harness.run_action(call.progress, 1) is False
    harness.run_action(call.respond, {})
    assert talk.json["result"] == {}
    _, call = harness.call(harness.open_session(), token=1)
    harness.run_action(call.respond, {})
    assert harness.run_action(call.progress, 1) is False


# Without sessions


def test_without_sessions_every_request_stands_alone() -> None:
    harness = ServerHarness(sessions=False)
    talk = harness.post(request(0, "initialize", protocolVersion="2025-06-18"))
    assert talk.header("mcp-session-id") is None
    assert talk.json["result"]["protocolVersion"] == "2025-06-18"
    assert harness.post(notification("notifications/initialized")).status == 202
    first, call = harness.call(None, 1)
    second, other = harness.call(None, 1)
    with pytest.raises(LocalProtocolError, match="session"):
        call.ask("ping", timeout=1, now=0)
    assert call.peer.notify("x", now=0) is False
    harness.run_action(call.respond, {"first": True})
    harness.run_action(other.respond, {"first": False})
    assert (first.json["result"]["first"], second.json["result"]["first"]) == (True, False)


def test_without_sessions_streams_can_be_resumed() -> None:
    harness = ServerHarness(sessions=False)
    talk, call = harness.call(None, headers={"mcp-protocol-version": LATEST})
    harness.run_action(call.notify, "x")
    talk.lose_connection()
    harness.run_action(call.respond, {})
    resumed = harness.get(None, talk.events[0].id, {"mcp-protocol-version": LATEST})
    assert [message.get("method") for message in resumed.messages] == ["x", None]
    assert resumed.ended


# The application's side


@requirement("RESUME-S-004")
def test_without_sessions_event_ids_are_unique_over_all_streams() -> None:
    harness = ServerHarness(sessions=False)
    ids: list[str | None] = []
    for _ in range(10):
        talk, call = harness.call(None, 1, headers={"mcp-protocol-version": LATEST})
        harness.run_action(call.notify, "x")
        harness.run_action(call.respond, {})
        ids += [event.id for event in talk.events]
    assert len(ids) == len(set(ids)) == 30
    assert None not in ids


def test_calls_show_what_they_are(harness: ServerHarness) -> None:
    session = harness.open_session()
    _, call = harness.call(session, 9)
    assert repr(call) == "<call 9 tools/call: running>"
    assert session not in repr(call.peer)
    assert LATEST in repr(call.peer)
    assert "exchange" in repr(harness.server.open_exchange())


def test_the_application_may_be_slow(harness: ServerHarness) -> None:
    """When events pile up, no further request is read until some are taken."""
    harness = ServerHarness(limits=Limits(max_queued_events=2))
    session = harness.open_session()
    harness.takes_events = False
    first, second = harness.post(request(1), session), harness.post(request(2), session)
    assert (first.paused, second.paused) == (False, False)
    waiting = RawExchange(harness)
    waiting.pull()
    assert waiting.paused
    harness.takes_events = True
    harness.run_pending()
    assert not waiting.paused
    assert [type(event) for event in harness.events] == [CallReceived, CallReceived]
    waiting.lose_connection()


def test_who_has_waited_longest_is_read_first() -> None:
    harness = ServerHarness(limits=Limits(max_queued_events=1))
    session = harness.open_session()
    harness.takes_events = False
    harness.post(request(1), session)
    waiting = [RawExchange(harness) for _ in range(20)]
    for talk in waiting:
        talk.pull()
    harness.server.next_event()
    woken: list[Any] = []
    while isinstance(effect := harness.server.next_effect(), Wake):
        woken.append(effect.exchange)
    assert woken == [talk.exchange for talk in waiting]
    for talk in waiting:
        talk.lose_connection()
