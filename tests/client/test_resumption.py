"""Streams that break: resumed from the last event id, with nothing lost and nothing twice."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, Disconnected, Limits
from sansmcp.events import (
    CallCompleted,
    ProtocolViolation,
    Reconnecting,
    ServerNotified,
    ServerRequestReceived,
)

from .bench import LATEST, SESSION, Bench, notification, only_failure, open_call, request, response

requirement = pytest.mark.requirement


@requirement(
    "RESUME-C-001",
    "RESUME-C-002",
    "RESUME-C-003",
    "POLL-C-002",
    "POLL-C-004",
    "SSE-C-024",
    "SSE-C-027",
    "SHTTP-C-010",
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_is_resumed_after_any_end(bench: Bench, clean: bool) -> None:
    handle, asked = open_call(bench)
    if clean:
        asked.end()
    else:
        asked.cut("reset")
    (event,) = bench.take_events()
    assert isinstance(event, Reconnecting)
    delay, attempt = (1.05, 0) if clean else (0.5, 1)  # a poll is no attempt
    assert (event.call, event.delay, event.attempt) == (handle, delay, attempt)
    bench.wait(delay - 0.1)
    assert bench.requests == []
    bench.wait(0.11)
    resumed = bench.take("GET")
    assert resumed.header("last-event-id") == "e1"
    assert resumed.header("mcp-session-id") == SESSION
    assert resumed.header("mcp-protocol-version") == LATEST
    assert resumed.header("accept") == "text/event-stream"
    assert resumed.header("cache-control") == "no-store"
    assert "e1" not in repr(resumed.effect)
    resumed.open_stream()
    resumed.event(response(asked.id, {"a": 1}), id="e2")
    assert bench.events == [CallCompleted(handle, {"a": 1})]
    resumed.end()
    bench.wait(1000)
    assert bench.requests == []


@requirement("SSE-C-026")
@pytest.mark.parametrize("id", ["e1", "ä", "日本 ✓", "\N{GRINNING FACE}", "\u2028", "a b"])
def test_the_last_event_id_is_sent_in_utf8(id: str) -> None:
    bench = Bench(standalone_stream=True).connect()
    first = bench.take("GET")
    first.open_stream()
    first.event(notification("x"), id=id)
    first.cut()
    bench.wait(1)
    resumed = bench.take("GET")
    assert resumed.header("last-event-id") == id  # the bench reads UTF-8
    resumed.open_stream()
    resumed.feed(BodyData(b"id\n\n"))
    resumed.cut()
    bench.wait(1)
    headers = [first.header("last-event-id"), bench.take("GET").header("last-event-id")]
    assert headers == [None, None]


@pytest.mark.parametrize("clean", [True, False])
def test_without_an_id_nothing_can_be_resumed(bench: Bench, clean: bool) -> None:
    handle, asked = open_call(bench, None)
    asked.event(notification("x"))
    if clean:
        asked.end()
    else:
        asked.cut("reset by peer")
    error = only_failure(bench, handle)
    assert isinstance(error, Disconnected)
    assert ("closed the stream" if clean else "reset by peer") in str(error)
    bench.wait(1000)
    assert bench.requests == []


def test_an_empty_id_takes_the_cursor_away(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.feed(BodyData(b"id\n\n"))
    asked.cut()
    assert isinstance(only_failure(bench, handle), Disconnected)


# Nothing twice


def test_what_comes_twice_is_delivered_once(bench: Bench) -> None:
    _, asked = open_call(bench)
    asked.event(notification("a"), id="e2")
    asked.event(notification("b"), id="e3")
    asked.cut()
    bench.wait(1)
    resumed = bench.take("GET")
    resumed.open_stream()
    resumed.event(notification("a"), id="e2")  # a server that goes back too far
    resumed.event(notification("b"), id="e3")
    resumed.event(notification("c"), id="e4")
    names = [e.notification.method for e in bench.events if isinstance(e, ServerNotified)]
    assert names == ["a", "b", "c"]


def test_ids_that_were_seen_are_remembered_within_bounds() -> None:
    bench = Bench(limits=Limits(max_seen_event_ids=3)).connect()
    _, asked = open_call(bench)
    for number in range(10):
        asked.event(notification("x"), id=f"n{number}")
    bench.take_events()
    asked.event(notification("x"), id="n8")
    assert bench.events == []
    asked.event(notification("x"), id="n1")
    assert len(bench.events) == 1


def test_a_question_that_is_replayed_is_asked_once() -> None:
    bench = Bench(capabilities={"elicitation": {}}).connect()
    _, asked = open_call(bench)
    asked.event(request(1, "elicitation/create"), id="e2")
    asked.cut()
    bench.wait(1)
    resumed = bench.take("GET")
    resumed.open_stream()
    resumed.event(request(1, "elicitation/create"), id="e2")
    assert sum(isinstance(event, ServerRequestReceived) for event in bench.events) == 1


# Answers to a resumption


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 410, 501])
def test_a_refused_resumption_ends_the_call_or_passes(bench: Bench, status: int) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    bench.wait(1)
    bench.take("GET").refuse(status, b"not here")
    if status == 501:
        assert isinstance(bench.events[-1], Reconnecting)
        return
    error = only_failure(bench, handle)
    assert isinstance(error, Disconnected)
    assert (
        f"cannot be resumed: GET http://localhost:8000/mcp was answered with HTTP {status}"
        in str(error)
    )
    bench.wait(1000)
    assert bench.requests == []


@requirement("SSE-C-021", "SSE-C-022", "SSE-C-023")
@pytest.mark.parametrize(
    ("status", "kind"), [(204, ""), (200, "text/html"), (202, ""), (201, "text/event-stream")]
)
def test_what_is_no_stream_ends_the_call(bench: Bench, status: int, kind: str) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    bench.wait(1)
    bench.take("GET").refuse(status, b"hello", content_type=kind)
    assert isinstance(only_failure(bench, handle), Disconnected)
    bench.wait(1000)
    assert bench.requests == []


def test_a_resumption_may_be_answered_by_json(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    bench.wait(1)
    bench.take("GET").answer(response(asked.id))
    assert bench.events[-1] == CallCompleted(handle, {})


# After the answer


@requirement("RESUME-C-001")
def test_never_resumed_after_the_answer_was_seen(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.event(response(asked.id), id="e2")
    asked.cut()
    assert bench.take_events() == [CallCompleted(handle, {})]
    bench.wait(1000)
    assert bench.requests == []


def test_a_response_that_does_not_end_is_left_after_a_while(bench: Bench) -> None:
    _, asked = open_call(bench)
    asked.event(response(asked.id), id="e2")
    asked.event(notification("late"))
    asked.feed(BodyData(b"data: x\n\n"))
    assert not asked.aborted
    bench.wait(1)
    assert asked.aborted
    assert len(bench.events) == 1


@pytest.mark.parametrize("how", ["end", "cut", "garbled"])
def test_the_rest_of_an_answered_stream_is_of_no_interest(how: str) -> None:
    bench = Bench(limits=Limits(max_message_bytes=300)).connect()
    _, asked = open_call(bench)
    asked.event(response(asked.id), id="e2")
    if how == "end":
        asked.end()
    elif how == "cut":
        asked.cut()
    else:
        asked.event(b"x" * 400)
    assert len(bench.events) == 1
    bench.wait(100)
    assert bench.requests == []


# Events that are no messages


def test_event_types_that_mcp_does_not_know_are_ignored(bench: Bench) -> None:
    _, asked = open_call(bench)
    asked.feed(BodyData(b'event: ping\ndata: {"x":1}\n\nevent: ping\ndata:\n\nevent: e\n\n'))
    assert bench.events == []


@pytest.mark.parametrize("data", [b"{", b"x", b"\xff", b'{"jsonrpc":"1.0"}'])
def test_events_that_are_no_messages_are_reported_and_skipped(bench: Bench, data: bytes) -> None:
    handle, asked = open_call(bench)
    asked.feed(BodyData(b"data: " + data + b"\n\n"))  # encode_event() refuses what is not UTF-8
    (event,) = bench.take_events()
    assert isinstance(event, ProtocolViolation)
    asked.event(response(asked.id))
    assert bench.events == [CallCompleted(handle, {})]
