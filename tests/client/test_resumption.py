"""Streams that break: resumed from the last event id, patiently, and never for ever."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import BodyData, CallError, Disconnected, Limits, ReconnectPolicy, RequestTimeout
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    ListenerStopped,
    Reconnecting,
    ServerAsked,
    ServerNotified,
    ServerWithdrew,
    Violation,
)

from .bench import LATEST, SESSION, Asked, Bench, notification, request, response

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> Bench:
    return Bench().connect()


def open_call(bench: Bench, id: str | None = "e1", **options: Any) -> tuple[int, Asked]:
    """A call whose stream has begun, and has given an id."""
    handle, asked = bench.call(**options)
    asked.open_stream()
    if id is not None:
        asked.event(id=id)
    return handle, asked


def failure(bench: Bench, handle: int) -> CallError:
    (event,) = [e for e in bench.take_events() if isinstance(e, CallFailed)]
    assert event.call == handle
    return event.error


@requirement(
    "RESUME-C-001",
    "RESUME-C-002",
    "RESUME-C-003",
    "POLL-C-002",
    "POLL-C-004",
    "SSE-C-024",
    "SSE-C-026",
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
    assert (event.call, event.delay, event.attempt) == (handle, 0.5, 1)
    bench.wait(0.4)
    assert bench.requests == []
    bench.wait(0.1)
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


@requirement("POLL-C-003", "SSE-C-017", "SSE-C-025")
def test_the_server_says_how_long_to_wait_at_least(bench: Bench) -> None:
    _, asked = open_call(bench)
    asked.event(id="e2", retry=3000)
    asked.end()
    (event,) = bench.events
    assert isinstance(event, Reconnecting)
    assert event.delay == 3.5
    bench.wait(3.4)
    assert bench.requests == []
    bench.wait(0.2)
    resumed = bench.take("GET")
    resumed.open_stream()
    resumed.end()  # still in force
    last = bench.events[-1]
    assert isinstance(last, Reconnecting)
    assert last.delay == 4.0


def test_no_retry_before_the_minimum_whatever_chance_says() -> None:
    for jitter in (0.0, 0.999):
        bench = Bench(jitter=jitter).connect()
        _, asked = open_call(bench)
        asked.event(id="e2", retry=2000)
        asked.cut()
        (event,) = bench.events
        assert isinstance(event, Reconnecting)
        assert 2.0 <= event.delay < 3.0


def test_delays_grow_to_a_cap_and_the_stream_is_given_up(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    delays: list[tuple[int, float]] = []
    while True:
        event = bench.events.pop()
        if not isinstance(event, Reconnecting):
            break
        delays.append((event.attempt, event.delay))
        bench.wait(event.delay)
        resumed = bench.take("GET")
        resumed.open_stream()  # opening is no progress
        resumed.end()
    assert delays == [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)]
    assert isinstance(event, CallFailed)
    assert event.call == handle
    assert isinstance(event.error, Disconnected)
    assert "given up after 4 attempts without progress" in str(event.error)
    bench.wait(1000)
    assert bench.requests == []


def test_the_cap() -> None:
    policy = ReconnectPolicy(initial=1.0, cap=8.0)
    assert [policy.delay(n, 0.0, 0.5) for n in (1, 2, 4, 5, 9, 1000)] == [
        0.5,
        1.0,
        4.0,
        4.0,
        4.0,
        4.0,
    ]
    assert policy.delay(1, 5.0, 0.0) == 5.0


@pytest.mark.parametrize("progress", ["id", "message", "same id", "retry", "comment"])
def test_only_progress_starts_the_count_again(bench: Bench, progress: str) -> None:
    _, asked = open_call(bench)
    asked.cut()
    attempts: list[int] = []
    for number in range(12):
        event = bench.events.pop()
        if not isinstance(event, Reconnecting):
            break
        attempts.append(event.attempt)
        bench.wait(event.delay)
        resumed = bench.take("GET")
        resumed.open_stream()
        if progress == "id":
            resumed.event(id=f"e{number + 2}")
        elif progress == "message":
            resumed.event(notification("x"))
        elif progress == "same id":
            resumed.event(id="e1")
        elif progress == "retry":
            resumed.event(retry=0)
        resumed.cut()
    real = progress in ("id", "message")
    assert attempts == ([1] * 12 if real else [1, 2, 3, 4])


@requirement("POLL-S-004")
@pytest.mark.parametrize("clean", [True, False])
def test_without_an_id_nothing_can_be_resumed(bench: Bench, clean: bool) -> None:
    handle, asked = open_call(bench, None)
    asked.event(notification("x"))
    if clean:
        asked.end()
    else:
        asked.cut("reset by peer")
    error = failure(bench, handle)
    assert isinstance(error, Disconnected)
    assert ("closed the stream" if clean else "reset by peer") in str(error)
    bench.wait(1000)
    assert bench.requests == []


def test_an_empty_id_takes_the_cursor_away(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.feed(BodyData(b"id\n\n"))
    asked.cut()
    assert isinstance(failure(bench, handle), Disconnected)


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
    assert sum(isinstance(event, ServerAsked) for event in bench.events) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 410, 501])
def test_a_refused_resumption_ends_the_call_or_passes(bench: Bench, status: int) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    bench.wait(1)
    bench.take("GET").refuse(status, b"not here")
    if status == 501:
        assert isinstance(bench.events[-1], Reconnecting)
        return
    error = failure(bench, handle)
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
    assert isinstance(failure(bench, handle), Disconnected)
    bench.wait(1000)
    assert bench.requests == []


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_resumption_that_may_work_later_is_tried_again(bench: Bench, status: int) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    for attempt in (1, 2, 3):
        event = bench.events.pop()
        assert isinstance(event, Reconnecting)
        assert event.attempt == attempt
        bench.wait(event.delay)
        bench.take("GET").refuse(status)
    bench.wait(5)
    resumed = bench.take("GET")
    resumed.open_stream()
    resumed.event(response(asked.id))
    assert bench.events[-1] == CallCompleted(handle, {})


def test_a_resumption_may_be_answered_by_json(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    bench.wait(1)
    bench.take("GET").answer(response(asked.id))
    assert bench.events[-1] == CallCompleted(handle, {})


def test_a_call_that_waits_for_its_next_attempt_can_time_out_and_be_cancelled(bench: Bench) -> None:
    handle, asked = open_call(bench, timeout=5)
    asked.event(id="e2", retry=60_000)
    asked.end()
    bench.wait(5)
    assert isinstance(failure(bench, handle), RequestTimeout)
    assert bench.take().json["method"] == "notifications/cancelled"
    handle, asked = open_call(bench)
    asked.cut()
    bench.do(bench.client.cancel, handle)
    bench.take()
    bench.wait(1000)
    assert bench.requests == []


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


def test_event_types_that_mcp_does_not_know_are_ignored(bench: Bench) -> None:
    _, asked = open_call(bench)
    asked.feed(BodyData(b'event: ping\ndata: {"x":1}\n\nevent: ping\ndata:\n\nevent: e\n\n'))
    assert bench.events == []


@pytest.mark.parametrize("data", [b"{", b"x", b"\xff", b'{"jsonrpc":"1.0"}'])
def test_events_that_are_no_messages_are_reported_and_skipped(bench: Bench, data: bytes) -> None:
    handle, asked = open_call(bench)
    asked.event(data)
    (event,) = bench.take_events()
    assert isinstance(event, Violation)
    asked.event(response(asked.id))
    assert bench.events == [CallCompleted(handle, {})]


# Calls that may be repeated


def test_a_lost_call_that_may_be_repeated_is(bench: Bench) -> None:
    handle, asked = bench.call(idempotent=True)
    asked.cut()
    (event,) = bench.take_events()
    assert isinstance(event, Reconnecting)
    bench.wait(event.delay)
    again = bench.take()
    assert again.json["method"] == "tools/call"
    assert again.id != asked.id
    assert again.json["params"]["_meta"]["progressToken"] == again.id
    again.answer(response(again.id, {"a": 1}))
    assert bench.events == [CallCompleted(handle, {"a": 1})]


@pytest.mark.parametrize("method", ["tools/list", "resources/read", "prompts/get", "ping"])
def test_methods_that_merely_read_are_repeated(bench: Bench, method: str) -> None:
    _, asked = bench.call(method)
    asked.cut()
    bench.wait(1)
    assert bench.take().json["method"] == method


def test_they_need_not_be(bench: Bench) -> None:
    handle, asked = bench.call("tools/list", idempotent=False)
    asked.cut()
    assert isinstance(failure(bench, handle), Disconnected)


def test_repetitions_are_bounded(bench: Bench) -> None:
    handle, asked = bench.call(idempotent=True)
    for _ in range(4):
        asked.cut("again")
        bench.wait(4)
        asked = bench.take()
    asked.cut("again")
    assert "given up after 4 attempts" in str(failure(bench, handle))
    assert bench.requests == []


def test_what_cannot_be_resumed_is_repeated_if_it_may_be(bench: Bench) -> None:
    handle, asked = open_call(bench, idempotent=True)
    asked.cut()
    bench.wait(1)
    bench.take("GET").refuse(400)
    bench.wait(2)
    again = bench.take()
    again.answer(response(again.id))
    assert bench.events[-1] == CallCompleted(handle, {})


def test_a_refused_request_is_not_repeated(bench: Bench) -> None:
    _, asked = bench.call(idempotent=True)
    asked.refuse(503)
    bench.wait(1000)
    assert bench.requests == []


# The standalone stream


@pytest.fixture
def listening() -> tuple[Bench, Asked]:
    bench = Bench(listen=True, capabilities={"roots": {}}).connect()
    return bench, bench.take("GET")


@requirement("SHTTP-C-009", "SHTTP-C-010")
def test_the_listener_hears_what_belongs_to_no_call(listening: tuple[Bench, Asked]) -> None:
    bench, asked = listening
    assert asked.header("last-event-id") is None
    assert asked.header("mcp-session-id") == SESSION
    asked.open_stream()
    asked.event(id="s1")
    asked.event(notification("notifications/tools/list_changed"), id="s2")
    (event,) = bench.take_events()
    assert isinstance(event, ServerNotified)
    assert event.call is None
    asked.event(request(1, "ping"))
    assert bench.take().json == response(1)
    asked.event(b"{")
    assert isinstance(bench.events[-1], Violation)


@requirement("SHTTP-C-007", "SHTTP-S-012")
def test_questions_that_belong_to_no_call_are_refused(listening: tuple[Bench, Asked]) -> None:
    bench, asked = listening
    asked.open_stream()
    asked.event(request(1, "roots/list"))
    answer = bench.take().json
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)
    bench.call()
    asked.event(request(2, "roots/list"))  # older servers use the wrong stream
    (event,) = bench.events
    assert isinstance(event, ServerAsked)
    assert bench.do(bench.client.respond, 2, {"roots": []})


def test_a_question_on_the_standalone_stream_can_be_withdrawn(
    listening: tuple[Bench, Asked],
) -> None:
    bench, asked = listening
    bench.call()
    asked.open_stream()
    asked.event(request(2, "roots/list"))
    asked.event(notification("notifications/cancelled", requestId=2))
    assert bench.events[-1] == ServerWithdrew(2, "withdrawn by the server")
    assert bench.do(bench.client.respond, 2, {}) is False


@requirement("SHTTP-S-019")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 409, 200, 204])
def test_a_refused_listener_hurts_nobody(listening: tuple[Bench, Asked], status: int) -> None:
    bench, asked = listening
    asked.refuse(status, content_type="text/plain")
    (event,) = bench.take_events()
    assert isinstance(event, ListenerStopped)
    assert str(status) in event.reason
    bench.wait(1000)
    assert bench.requests == []
    handle, call = bench.call()
    call.result()
    assert bench.events == [CallCompleted(handle, {})]


@requirement("POLL-S-006", "SHTTP-S-024")
def test_a_broken_listener_comes_back(listening: tuple[Bench, Asked]) -> None:
    bench, asked = listening
    asked.open_stream()
    asked.end()
    bench.wait(1)
    fresh = bench.take("GET")
    assert fresh.header("last-event-id") is None
    fresh.open_stream()
    fresh.event(id="s7")
    fresh.cut()
    bench.wait(1)
    resumed = bench.take("GET")
    assert resumed.header("last-event-id") == "s7"
    resumed.refuse(400)  # the server has forgotten: better a new stream than none
    bench.wait(2)
    assert bench.take("GET").header("last-event-id") is None


def test_a_listener_without_progress_is_given_up(listening: tuple[Bench, Asked]) -> None:
    bench, asked = listening
    for _ in range(4):
        asked.open_stream()
        asked.end()
        bench.wait(8)
        asked = bench.take("GET")
    asked.refuse(502)
    assert isinstance(bench.events[-1], ListenerStopped)
    assert "given up" in bench.events[-1].reason
    bench.wait(1000)
    assert bench.requests == []


def test_a_listener_that_cannot_be_read_is_given_up() -> None:
    bench = Bench(listen=True, limits=Limits(max_message_bytes=300)).connect()
    asked = bench.take("GET")
    asked.open_stream()
    asked.event(b"x" * 400)
    assert isinstance(bench.events[-1], ListenerStopped)
    assert asked.aborted


@requirement("SHTTP-C-011")
def test_closing_ends_the_listener(listening: tuple[Bench, Asked]) -> None:
    bench, asked = listening
    asked.open_stream()
    bench.do(bench.client.close)
    assert asked.aborted
    bench.take("DELETE").refuse(200)
    bench.wait(1000)
    assert bench.requests == []
