"""Trying again: after growing delays, never for ever, and calls only if they may be repeated."""

from __future__ import annotations

import pytest

from sansmcp import Disconnected, JsonRpcError, ReconnectPolicy, RequestTimeout
from sansmcp.events import CallCompleted, CallFailed, Reconnecting

from .harness import Asked, ClientHarness, notification, only_failure, open_call, response

requirement = pytest.mark.requirement


# Delays and attempts


@requirement("POLL-C-003", "SSE-C-017", "SSE-C-025")
def test_the_server_says_how_long_to_wait_at_least(harness: ClientHarness) -> None:
    _, asked = open_call(harness)
    asked.event(id="e2", retry=3000)
    asked.cut()
    (event,) = harness.events
    assert isinstance(event, Reconnecting)
    assert event.delay == 3.5
    harness.wait(3.4)
    assert harness.requests == []
    harness.wait(0.2)
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.cut()  # still in force
    last = harness.events[-1]
    assert isinstance(last, Reconnecting)
    assert last.delay == 4.0


def test_no_retry_before_the_minimum_whatever_chance_says() -> None:
    for jitter in (0.0, 0.999):
        harness = ClientHarness(jitter=jitter).connect()
        _, asked = open_call(harness)
        asked.event(id="e2", retry=2000)
        asked.cut()
        (event,) = harness.events
        assert isinstance(event, Reconnecting)
        assert 2.0 <= event.delay < 3.0


def test_delays_grow_to_a_cap_and_the_stream_is_given_up(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    delays: list[tuple[int, float]] = []
    while True:
        event = harness.events.pop()
        if not isinstance(event, Reconnecting):
            break
        delays.append((event.attempt, event.delay))
        harness.wait(event.delay)
        resumed = harness.take("GET")
        resumed.open_stream()  # opening is no progress
        resumed.cut()
    assert delays == [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)]
    assert isinstance(event, CallFailed)
    assert event.call == handle
    assert isinstance(event.error, Disconnected)
    assert "given up after 4 attempts without progress" in str(event.error)
    harness.wait(1000)
    assert harness.requests == []


def test_the_cap() -> None:
    policy = ReconnectPolicy(initial_delay=1.0, max_delay=8.0)
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
def test_only_progress_starts_the_count_again(harness: ClientHarness, progress: str) -> None:
    _, asked = open_call(harness)
    asked.cut()
    attempts: list[int] = []
    for number in range(12):
        event = harness.events.pop()
        if not isinstance(event, Reconnecting):
            break
        attempts.append(event.attempt)
        harness.wait(event.delay)
        resumed = harness.take("GET")
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


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_resumption_that_may_work_later_is_tried_again(
    harness: ClientHarness, status: int
) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    for attempt in (1, 2, 3):
        event = harness.events.pop()
        assert isinstance(event, Reconnecting)
        assert event.attempt == attempt
        harness.wait(event.delay)
        harness.take("GET").refuse(status)
    harness.wait(5)
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.event(response(asked.id))
    assert harness.events[-1] == CallCompleted(handle, {})


def test_a_call_that_waits_for_its_next_attempt_can_time_out_and_be_cancelled(
    harness: ClientHarness,
) -> None:
    handle, asked = open_call(harness, timeout=5)
    asked.event(id="e2", retry=60_000)
    asked.end()
    harness.wait(5)
    assert isinstance(only_failure(harness, handle), RequestTimeout)
    assert harness.take().json["method"] == "notifications/cancelled"
    handle, asked = open_call(harness)
    asked.cut()
    harness.run_command(harness.client.cancel, handle)
    harness.take()
    harness.wait(1000)
    assert harness.requests == []


# Calls that may be repeated


def test_a_lost_call_that_may_be_repeated_is(harness: ClientHarness) -> None:
    handle, asked = harness.call(idempotent=True)
    asked.cut()
    (event,) = harness.take_events()
    assert isinstance(event, Reconnecting)
    harness.wait(event.delay)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    assert again.id != asked.id
    assert again.json["params"]["_meta"]["progressToken"] == again.id
    again.answer(response(again.id, {"a": 1}))
    assert harness.events == [CallCompleted(handle, {"a": 1})]


@pytest.mark.parametrize("method", ["tools/list", "resources/read", "prompts/get", "ping"])
def test_methods_that_merely_read_are_repeated(harness: ClientHarness, method: str) -> None:
    _, asked = harness.call(method)
    asked.cut()
    harness.wait(1)
    assert harness.take().json["method"] == method


def test_they_need_not_be(harness: ClientHarness) -> None:
    handle, asked = harness.call("tools/list", idempotent=False)
    asked.cut()
    assert isinstance(only_failure(harness, handle), Disconnected)


def test_repetitions_are_bounded(harness: ClientHarness) -> None:
    handle, asked = harness.call(idempotent=True)
    for _ in range(4):
        asked.cut("again")
        harness.wait(4)
        asked = harness.take()
    asked.cut("again")
    assert "given up after 4 attempts" in str(only_failure(harness, handle))
    assert harness.requests == []


def died(asked: Asked) -> None:
    """The instance that ran a call has died, which another one of the server says."""
    error = {"code": -32603, "message": "died", "data": {"reason": "instance_lost"}}
    asked.event({"jsonrpc": "2.0", "id": asked.id, "error": error}, id="e2")


def test_a_call_whose_instance_has_died_is_repeated_if_it_may_be(harness: ClientHarness) -> None:
    call, asked = open_call(harness, idempotent=True)
    died(asked)
    (event,) = harness.take_events()
    assert isinstance(event, Reconnecting)
    assert "died" in event.reason
    harness.wait(event.delay + 1e-9)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    again.answer(response(again.id, {}))
    assert harness.take_events() == [CallCompleted(call, {})]


def test_a_call_whose_instance_has_died_ends_if_it_may_not_be_repeated(
    harness: ClientHarness,
) -> None:
    call, asked = open_call(harness)
    died(asked)
    failure = only_failure(harness, call)
    assert isinstance(failure, JsonRpcError)
    assert failure.data == {"reason": "instance_lost"}
    assert harness.requests == []


def test_a_call_whose_instances_always_die_ends() -> None:
    harness = ClientHarness(reconnect=ReconnectPolicy(max_attempts=2)).connect()
    call, asked = open_call(harness, idempotent=True)
    for _ in range(2):
        died(asked)
        (event,) = harness.take_events()
        assert isinstance(event, Reconnecting)
        harness.wait(event.delay + 1e-9)
        asked = harness.take()
        asked.open_stream()
    died(asked)
    assert isinstance(only_failure(harness, call), JsonRpcError)


def test_what_cannot_be_resumed_is_repeated_if_it_may_be(harness: ClientHarness) -> None:
    handle, asked = open_call(harness, idempotent=True)
    asked.cut()
    harness.wait(1)
    harness.take("GET").refuse(400)
    harness.wait(2)
    again = harness.take()
    again.answer(response(again.id))
    assert harness.events[-1] == CallCompleted(handle, {})


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("301", 300),
        ("999999999", 300),
        ("1" * 5000, 0),
        ("-1", 0),
        ("1.5", 0),
        ("\u0664", 0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0),  # the response has no date of its own
    ],
)
def test_a_server_that_is_busy_says_how_long_to_wait_at_least(
    harness: ClientHarness, value: str, seconds: float
) -> None:
    """The answer to a resumption; dates and nonsense are as good as nothing."""
    _, asked = open_call(harness)
    asked.cut()
    harness.wait(0.5)
    harness.take("GET").refuse(503, retry_after=value)
    event = harness.events[-1]
    assert isinstance(event, Reconnecting)
    assert event.delay == seconds + 1.0


def test_a_refused_request_is_not_repeated(harness: ClientHarness) -> None:
    _, asked = harness.call(idempotent=True)
    asked.refuse(500)
    harness.wait(1000)
    assert harness.requests == []


def test_reconnections_spread_out() -> None:
    """The clients of a server that comes back do not come at once."""
    policy = ReconnectPolicy(initial_delay=1.0, max_delay=30.0)
    for attempt in (1, 3, 9):
        window = policy.delay(attempt, 0.0, 1.0)
        delays = [policy.delay(attempt, 0.0, chance / 1000) for chance in range(1000)]
        assert max(delays) - min(delays) >= 0.8 * window
