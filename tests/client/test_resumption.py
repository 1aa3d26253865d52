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

from .harness import (
    LATEST,
    SESSION,
    ClientHarness,
    notification,
    only_failure,
    open_call,
    request,
    response,
)

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
def test_a_stream_is_resumed_after_any_end(harness: ClientHarness, clean: bool) -> None:
    handle, asked = open_call(harness)
    if clean:
        asked.end()
    else:
        asked.cut("reset")
    (event,) = harness.take_events()
    assert isinstance(event, Reconnecting)
    delay, attempt = (1.05, 0) if clean else (0.5, 1)  # a poll is no attempt
    assert (event.call, event.delay, event.attempt) == (handle, delay, attempt)
    harness.wait(delay - 0.1)
    assert harness.requests == []
    harness.wait(0.11)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "e1"
    assert resumed.header("mcp-session-id") == SESSION
    assert resumed.header("mcp-protocol-version") == LATEST
    assert resumed.header("accept") == "text/event-stream"
    assert resumed.header("cache-control") == "no-store"
    assert "e1" not in repr(resumed.effect)
    resumed.open_stream()
    resumed.event(response(asked.id, {"a": 1}), id="e2")
    assert harness.events == [CallCompleted(handle, {"a": 1})]
    resumed.end()
    harness.wait(1000)
    assert harness.requests == []


@requirement("SSE-C-026")
@pytest.mark.parametrize("id", ["e1", "ä", "日本 ✓", "\N{GRINNING FACE}", "\u2028", "a b"])
def test_the_last_event_id_is_sent_in_utf8(id: str) -> None:
    harness = ClientHarness(standalone_stream=True).connect()
    first = harness.take("GET")
    first.open_stream()
    first.event(notification("x"), id=id)
    first.cut()
    harness.wait(1)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == id  # the bench reads UTF-8
    resumed.open_stream()
    resumed.feed(BodyData(b"id\n\n"))
    resumed.cut()
    harness.wait(1)
    headers = [first.header("last-event-id"), harness.take("GET").header("last-event-id")]
    assert headers == [None, None]


@pytest.mark.parametrize("clean", [True, False])
def test_without_an_id_nothing_can_be_resumed(harness: ClientHarness, clean: bool) -> None:
    handle, asked = open_call(harness, None)
    asked.event(notification("x"))
    if clean:
        asked.end()
    else:
        asked.cut("reset by peer")
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert ("closed the stream" if clean else "reset by peer") in str(error)
    harness.wait(1000)
    assert harness.requests == []


def test_an_empty_id_takes_the_cursor_away(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    asked.feed(BodyData(b"id\n\n"))
    asked.cut()
    assert isinstance(only_failure(harness, handle), Disconnected)


# Nothing twice


def test_what_comes_twice_is_delivered_once(harness: ClientHarness) -> None:
    _, asked = open_call(harness)
    asked.event(notification("a"), id="e2")
    asked.event(notification("b"), id="e3")
    asked.cut()
    harness.wait(1)
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.event(notification("a"), id="e2")  # a server that goes back too far
    resumed.event(notification("b"), id="e3")
    resumed.event(notification("c"), id="e4")
    names = [e.notification.method for e in harness.events if isinstance(e, ServerNotified)]
    assert names == ["a", "b", "c"]


def test_ids_that_were_seen_are_remembered_within_bounds() -> None:
    harness = ClientHarness(limits=Limits(max_seen_event_ids=3)).connect()
    _, asked = open_call(harness)
    for number in range(10):
        asked.event(notification("x"), id=f"n{number}")
    harness.take_events()
    asked.event(notification("x"), id="n8")
    assert harness.events == []
    asked.event(notification("x"), id="n1")
    assert len(harness.events) == 1


def test_a_question_that_is_replayed_is_asked_once() -> None:
    harness = ClientHarness(capabilities={"elicitation": {}}).connect()
    _, asked = open_call(harness)
    asked.event(request(1, "elicitation/create"), id="e2")
    asked.cut()
    harness.wait(1)
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.event(request(1, "elicitation/create"), id="e2")
    assert sum(isinstance(event, ServerRequestReceived) for event in harness.events) == 1


# Answers to a resumption


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 410, 501])
def test_a_refused_resumption_ends_the_call_or_passes(harness: ClientHarness, status: int) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    harness.wait(1)
    harness.take("GET").refuse(status, b"not here")
    if status == 501:
        assert isinstance(harness.events[-1], Reconnecting)
        return
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert (
        f"cannot be resumed: GET http://localhost:8000/mcp was answered with HTTP {status}"
        in str(error)
    )
    harness.wait(1000)
    assert harness.requests == []


@requirement("SSE-C-021", "SSE-C-022", "SSE-C-023")
@pytest.mark.parametrize(
    ("status", "kind"), [(204, ""), (200, "text/html"), (202, ""), (201, "text/event-stream")]
)
def test_what_is_no_stream_ends_the_call(harness: ClientHarness, status: int, kind: str) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    harness.wait(1)
    harness.take("GET").refuse(status, b"hello", content_type=kind)
    assert isinstance(only_failure(harness, handle), Disconnected)
    harness.wait(1000)
    assert harness.requests == []


def test_a_resumption_may_be_answered_by_json(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    harness.wait(1)
    harness.take("GET").answer(response(asked.id))
    assert harness.events[-1] == CallCompleted(handle, {})


# After the answer


@requirement("RESUME-C-001")
def test_never_resumed_after_the_answer_was_seen(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    asked.event(response(asked.id), id="e2")
    asked.cut()
    assert harness.take_events() == [CallCompleted(handle, {})]
    harness.wait(1000)
    assert harness.requests == []


def test_a_response_that_does_not_end_is_left_after_a_while(harness: ClientHarness) -> None:
    _, asked = open_call(harness)
    asked.event(response(asked.id), id="e2")
    asked.event(notification("late"))
    asked.feed(BodyData(b"data: x\n\n"))
    assert not asked.aborted
    harness.wait(1)
    assert asked.aborted
    assert len(harness.events) == 1


@pytest.mark.parametrize("how", ["end", "cut", "garbled"])
def test_the_rest_of_an_answered_stream_is_of_no_interest(how: str) -> None:
    harness = ClientHarness(limits=Limits(max_message_bytes=300)).connect()
    _, asked = open_call(harness)
    asked.event(response(asked.id), id="e2")
    if how == "end":
        asked.end()
    elif how == "cut":
        asked.cut()
    else:
        asked.event(b"x" * 400)
    assert len(harness.events) == 1
    harness.wait(100)
    assert harness.requests == []


# Events that are no messages


def test_event_types_that_mcp_does_not_know_are_ignored(harness: ClientHarness) -> None:
    _, asked = open_call(harness)
    asked.feed(BodyData(b'event: ping\ndata: {"x":1}\n\nevent: ping\ndata:\n\nevent: e\n\n'))
    assert harness.events == []


@pytest.mark.parametrize("data", [b"{", b"x", b"\xff", b'{"jsonrpc":"1.0"}'])
def test_events_that_are_no_messages_are_reported_and_skipped(
    harness: ClientHarness, data: bytes
) -> None:
    handle, asked = open_call(harness)
    asked.feed(BodyData(b"data: " + data + b"\n\n"))  # encode_event() refuses what is not UTF-8
    (event,) = harness.take_events()
    assert isinstance(event, ProtocolViolation)
    asked.event(response(asked.id))
    assert harness.events == [CallCompleted(handle, {})]
