"""A server that ends its streams on purpose is asked again, for as long as the call may take."""

from __future__ import annotations

import math

import pytest

from sansmcp import BodyData, LocalProtocolError, ReconnectPolicy, RequestTimeout
from sansmcp.events import CallCompleted, CallFailed, Reconnecting, StandaloneStreamClosed

from .harness import POLICY, Asked, ClientHarness, notification, only_failure, open_call, response

requirement = pytest.mark.requirement


def poll(harness: ClientHarness) -> Asked:
    """The next GET, and how long it was waited for."""
    before = harness.now
    while not harness.requests:
        deadline = harness.client.next_deadline()
        assert deadline is not None
        assert deadline - before < 100
        harness.wait(max(deadline - harness.now, 0.0))
    return harness.take("GET")


@requirement("POLL-C-003")
@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("brings", ["nothing", "id", "same id", "retry", "comment", "message"])
def test_polls_are_no_failures(brings: str, jitter: float) -> None:
    """40 polls at 50 ms take 2 s, with or without messages."""
    harness = ClientHarness(jitter=jitter).connect()
    handle, asked = open_call(harness)
    posted = asked
    asked.event(id="e2", retry=50)
    begin = harness.now
    for number in range(40):
        asked.end()
        asked = poll(harness)
        asked.open_stream()
        match brings:
            case "id":
                asked.event(id=f"n{number}")
            case "same id":
                asked.event(id="e2")
            case "retry":
                asked.event(retry=50)
            case "comment":
                asked.feed(BodyData(b":\n\n"))
            case "message":
                asked.event(notification("x"))
            case _:
                pass
    assert 2.0 - 1e-9 <= harness.now - begin <= 2.2 + 1e-9
    attempts = {event.attempt for event in harness.take_events() if isinstance(event, Reconnecting)}
    assert attempts == {0}
    asked.event(response(posted.id, {"a": 1}), id="last")
    assert harness.events == [CallCompleted(handle, {"a": 1})]


@pytest.mark.parametrize("names", ["no time", "no time and no id", "0"])
def test_a_server_that_ends_every_stream_at_once_is_not_asked_without_a_pause(names: str) -> None:
    harness = ClientHarness(standalone_stream=names == "no time and no id").connect()
    if names == "no time and no id":
        asked = harness.take("GET")
        asked.open_stream()
    else:
        _, asked = open_call(harness, timeout=100)
    if names == "0":
        asked.event(retry=0)
    begin = harness.now
    for _ in range(20):
        asked.end()
        asked = poll(harness)
        asked.open_stream()
    assert harness.now - begin >= (0.2 if names == "0" else 20 * POLICY.initial_delay)


def test_an_idle_standalone_stream_is_asked_for_less_and_less_often() -> None:
    """Unless the server says how often, or there is something to hear."""
    harness = ClientHarness(standalone_stream=True, jitter=0.0).connect()
    delays: list[float] = []
    for number in range(8):
        asked = harness.take("GET")
        asked.open_stream()
        if number == 5:
            asked.event(notification("x"))
        if number == 7:
            asked.feed(BodyData(b"retry: 20\n"))
        asked.end()
        event = harness.take_events()[-1]
        assert isinstance(event, Reconnecting)
        delays.append(event.delay)
        harness.wait(event.delay)
    assert delays == [1.0, 2.0, 4.0, 8.0, 8.0, 1.0, 2.0, 0.02]


def test_the_standalone_stream_is_polled_for_ever() -> None:
    harness = ClientHarness(standalone_stream=True).connect()
    asked = harness.take("GET")
    for _ in range(100):
        asked.open_stream()
        asked.event(retry=2000)
        asked.end()
        asked = poll(harness)
    assert not any(isinstance(event, StandaloneStreamClosed) for event in harness.events)
    assert 200 <= harness.now <= 220


@pytest.mark.parametrize("kind", ["timeout", "total_timeout"])
def test_a_poll_is_no_progress(harness: ClientHarness, kind: str) -> None:
    """The timeouts of a call hold while it polls."""
    options = {"timeout": 1000.0, "total_timeout": 1000.0, kind: 10.0}
    handle, asked = open_call(harness, "e1", **options)
    asked.event(retry=300)
    while not any(isinstance(event, CallFailed) for event in harness.events):
        asked.end()
        harness.wait(0.33)
        if harness.requests[0].method == "POST":
            break
        asked = harness.take("GET")
        asked.open_stream()
    assert isinstance(only_failure(harness, handle), RequestTimeout)
    assert harness.take().json["method"] == "notifications/cancelled"
    assert 10.0 <= harness.now <= 10.4
    harness.wait(1000)
    assert harness.requests == []


def test_only_failures_are_counted(harness: ClientHarness) -> None:
    """Polls between them change nothing."""
    handle, asked = open_call(harness)
    attempts: list[int] = []
    for how in ("cut", "end", "refuse", "end", "end", "refuse", "cut", "end", "cut"):
        if how == "end":
            asked.open_stream()
            asked.end()
        elif how == "refuse":
            asked.refuse(503)
        else:
            asked.cut()
        event = harness.events.pop()
        if not isinstance(event, Reconnecting):
            break
        attempts.append(event.attempt)
        harness.wait(event.delay)
        asked = harness.take("GET")
    assert attempts == [1, 0, 2, 0, 0, 3, 4, 0]
    assert isinstance(event, CallFailed)
    assert event.call == handle
    assert "given up after 4 attempts without progress: cable cut" in str(event.error)


@pytest.mark.parametrize("how", ["cut", "end"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_retry_counts_as_soon_as_its_line_has_come(
    harness: ClientHarness, how: str, newline: bytes
) -> None:
    """WHATWG 9.2.6 sets the reconnection time when the line is read."""
    _, asked = open_call(harness)
    asked.feed(BodyData(b"data" + newline + b"retry: 7000" + newline + b"data: half"))
    if how == "cut":
        asked.cut()
    else:
        asked.end()
    (event,) = harness.events
    assert isinstance(event, Reconnecting)
    assert event.delay == pytest.approx(7.5 if how == "cut" else 7.35)


def test_a_time_without_the_end_of_its_line_is_none(harness: ClientHarness) -> None:
    _, asked = open_call(harness)
    asked.feed(BodyData(b"retry: 70"))
    asked.end()
    (event,) = harness.events
    assert isinstance(event, Reconnecting)
    assert event.delay == 1.05


@pytest.mark.parametrize("retry", [b"-1", b"1.5", b"x", b"", b"1e3"])
def test_times_that_are_none_are_ignored(harness: ClientHarness, retry: bytes) -> None:
    _, asked = open_call(harness)
    asked.feed(BodyData(b"retry: " + retry + b"\n\n"))
    asked.end()
    (event,) = harness.events
    assert isinstance(event, Reconnecting)
    assert event.delay == 1.05


def test_a_time_that_is_too_long_is_ended_by_the_timeout(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    asked.feed(BodyData(b"retry: " + b"9" * 5000 + b"\n\n"))
    asked.end()
    (event,) = harness.take_events()
    assert isinstance(event, Reconnecting)
    assert math.isfinite(event.delay)
    harness.wait(61)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


@pytest.mark.parametrize("how", ["cut", "end"])
def test_no_deadline_is_further_away_than_selectors_can_wait(how: str) -> None:
    """Selectors raise for a time that does not fit, and a server could end a client by that."""
    harness = ClientHarness(standalone_stream=True).connect()
    asked = harness.take("GET")
    asked.open_stream()
    asked.event(retry=10**16 - 1)
    if how == "cut":
        asked.cut()
    else:
        asked.end()
    deadline = harness.client.next_deadline()
    assert deadline is not None
    assert 86_400 <= deadline - harness.now <= 86_400 * 1.1


def test_a_repeated_request_is_no_poll(harness: ClientHarness) -> None:
    """Without an id the request has to be made again, which is not done for ever."""
    handle, asked = harness.call(idempotent=True)
    for _ in range(5):
        asked.open_stream()
        asked.end()
        harness.wait(8)
        if harness.requests:
            asked = harness.take()
    assert "given up after 4 attempts" in str(only_failure(harness, handle))


def test_a_document_that_answers_nothing_is_no_poll(harness: ClientHarness) -> None:
    handle, asked = open_call(harness)
    for _ in range(5):
        asked.cut()
        harness.wait(8)
        if harness.requests:
            asked = harness.take("GET")
            asked.head(content_type="application/json")
            asked.feed(BodyData(b"[]"))
            asked.end()
            harness.wait(8)
            asked = harness.take("GET") if harness.requests else asked
    assert "given up after 4 attempts" in str(only_failure(harness, handle))


def test_a_stream_that_has_lasted_starts_the_count_again() -> None:
    """A standalone stream that breaks once a day is not given up after four days."""
    harness = ClientHarness(standalone_stream=True).connect()
    for _ in range(20):
        asked = harness.take("GET")
        asked.open_stream()
        harness.wait(POLICY.max_delay + 0.1)
        asked.cut()
        event = harness.take_events()[-1]
        assert isinstance(event, Reconnecting)
        assert event.attempt == 1
        harness.wait(event.delay)


def test_good_polls_for_a_while_start_the_count_again(harness: ClientHarness) -> None:
    """A quiet call that polls for hours is not given up for a few failures in that time."""
    _, asked = open_call(harness, timeout=1e6)
    asked.event(retry=1000)
    for _ in range(20):
        for _ in range(10):
            asked.end()
            harness.wait(1.05)
            asked = harness.take("GET")
            asked.open_stream()
        asked.cut()
        event = harness.take_events()[-1]
        assert isinstance(event, Reconnecting)
        assert event.attempt == 1
        harness.wait(event.delay)
        asked = harness.take("GET")
        asked.open_stream()


def test_the_times_of_polls() -> None:
    policy = ReconnectPolicy(initial_delay=1.0, max_delay=8.0)
    assert [policy.poll_delay(n, None, 0.0) for n in (0, 1, 2, 3, 9, 1000)] == [1, 2, 4, 8, 8, 8]
    assert policy.poll_delay(5, 2.0, 1.0) == 2.2
    assert policy.poll_delay(0, 0.0, 0.0) == 0.01
    with pytest.raises(LocalProtocolError):
        ReconnectPolicy(initial_delay=0.0)
