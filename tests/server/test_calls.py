"""Calls: answered in JSON or as a stream, told apart by session and id, and bounded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import App, JsonRpcError, Limits, LocalProtocolError
from sansmcp.effects import Wake
from sansmcp.events import CallReceived, ClientNotified
from sansmcp.messages import Notification
from sansmcp.states import CallState

from .bench import LATEST, STREAM, Bench, Talk, notification, request

requirement = pytest.mark.requirement
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", LATEST]


# Answers


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
def test_an_answer_that_takes_time_is_a_stream_at_once(bench: Bench) -> None:
    """Row A2 of the review: it was one after 50 ms, and could not be resumed before."""
    talk, call = bench.call(bench.open_session())
    assert talk.head is None
    assert bench.server.next_deadline() == bench.now
    bench.wait(0)
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


@requirement("SHTTP-S-018")
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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resumable", [True, False])
def test_a_large_answer_that_is_there_at_once_is_json(version: str, resumable: bool) -> None:
    """Row E3 of the review: it was an event that some clients refuse, and was stored for nobody."""
    bench = Bench(resumable=resumable)
    talk, call = bench.call(bench.open_session(version), version=None)
    bench.do(call.respond, {"text": "x" * 2_000_000})
    assert len(talk.json["result"]["text"]) == 2_000_000
    assert bench.store.count == 0


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
    """Row A2 of the review: at once where that lets the client come back, else a little later."""
    bench = Bench(**settings)
    talk, _ = bench.call(bench.open_session(version), version=None)
    if seconds:
        bench.wait(seconds - 0.01)
        assert talk.head is None
    bench.wait(0.01)
    assert talk.header("content-type") == STREAM


@pytest.mark.parametrize(("own", "seconds"), [(None, 0.3), (0.5, 0.5), (0.0, 0.0)])
def test_a_handler_may_have_its_own_time(own: float | None, seconds: float) -> None:
    app = App("own")
    app.handler("tools/call", stream_after=own)(lambda: None)
    bench = Bench(app, stream_after=0.3)
    talk, _ = bench.call(bench.open_session())
    assert (talk.head is not None) is (own == 0)
    bench.wait(seconds - 0.01 if seconds else 0)
    assert (talk.head is not None) is (own == 0)
    bench.wait(0.02)
    assert talk.header("content-type") == STREAM


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1"])
def test_a_handler_has_no_time_that_is_none(wrong: Any) -> None:
    app = App("own")
    with pytest.raises(LocalProtocolError, match="stream_after must"):
        app.handler("tools/call", stream_after=wrong)
    assert app.handlers == {}


@requirement("JSONRPC-B-026", "JSONRPC-B-027")
def test_errors_are_answers(bench: Bench) -> None:
    session = bench.open_session()
    talk, call = bench.call(session)
    bench.do(call.respond_error, -32602, "bad", {"x": 1})
    assert (talk.status, talk.error) == (200, {"code": -32602, "message": "bad", "data": {"x": 1}})
    talk, call = bench.call(session)
    bench.do(call.respond_exception, JsonRpcError(5, "own"))
    assert talk.error == {"code": 5, "message": "own"}
    talk, call = bench.call(session)
    bench.do(call.respond_exception, RuntimeError("secret"))
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
    assert event.peer is bench.server.sessions[0]


# Ids and bounds


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


@requirement(
    "PROGRESS-B-001", "PROGRESS-B-008", "PROGRESS-B-009", "PROGRESS-B-012", "PROGRESS-B-010"
)
@pytest.mark.parametrize("token", [None, True, 1.5, [1]])
def test_no_progress_without_a_token_or_after_the_end(bench: Bench, token: Any) -> None:
    talk, call = bench.call(bench.open_session(), token=token)
    assert bench.do(call.progress, 1) is False
    bench.do(call.respond, {})
    assert talk.json["result"] == {}
    _, call = bench.call(bench.open_session(), token=1)
    bench.do(call.respond, {})
    assert bench.do(call.progress, 1) is False


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
    assert call.peer.notify("x", now=0) is False
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


# The application's side


@requirement("RESUME-S-004")
def test_without_sessions_event_ids_are_unique_over_all_streams() -> None:
    bench = Bench(sessions=False)
    ids: list[str | None] = []
    for _ in range(10):
        talk, call = bench.call(None, 1, headers={"mcp-protocol-version": LATEST})
        bench.do(call.notify, "x")
        bench.do(call.respond, {})
        ids += [event.id for event in talk.events]
    assert len(ids) == len(set(ids)) == 30
    assert None not in ids


def test_calls_show_what_they_are(bench: Bench) -> None:
    session = bench.open_session()
    _, call = bench.call(session, 9)
    assert repr(call) == "<call 9 tools/call: running>"
    assert session not in repr(call.peer)
    assert LATEST in repr(call.peer)
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


def test_who_has_waited_longest_is_read_first() -> None:
    bench = Bench(limits=Limits(max_queued_events=1))
    session = bench.open_session()
    bench.takes_events = False
    bench.post(request(1), session)
    waiting = [Talk(bench) for _ in range(20)]
    for talk in waiting:
        talk.pull()
    bench.server.next_event()
    woken: list[Any] = []
    while isinstance(effect := bench.server.next_effect(), Wake):
        woken.append(effect.exchange)
    assert woken == [talk.exchange for talk in waiting]
    for talk in waiting:
        talk.gone()
