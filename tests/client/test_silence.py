"""A connection that is silent for long may be dead without a word: its stream is resumed."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, Limits, RequestTimeout
from sansmcp.events import CallCompleted, Reconnecting, StandaloneStreamClosed

from .bench import Bench, notification, only_failure, open_call, response

IDLE = Limits().stream_idle_timeout


def reconnections(bench: Bench) -> list[Reconnecting]:
    return [event for event in bench.take_events() if isinstance(event, Reconnecting)]


def test_a_silent_call_is_resumed_with_the_settings_that_clients_have_by_default(
    bench: Bench,
) -> None:
    """Row A7 of the review: a server that falls silent after an event id."""
    handle, asked = open_call(bench)
    bench.wait(IDLE - 0.1)
    assert bench.requests == []
    bench.wait(0.1)
    assert asked.aborted
    (event,) = reconnections(bench)
    assert (event.call, event.delay, event.attempt) == (handle, 0.0, 0)
    assert event.reason == "the connection was silent for 45 s (stream_idle_timeout)"
    resumed = bench.take("GET")
    assert resumed.header("last-event-id") == "e1"
    resumed.open_stream()
    resumed.event(response(asked.id), id="e2")
    assert bench.events == [CallCompleted(handle, {})]
    bench.wait(1000)
    assert bench.requests == []


@pytest.mark.parametrize("what", [b":\n\n", b":", b"data: half", b"id: e2\ndata:\n\n"])
def test_every_byte_is_a_sign_of_life(bench: Bench, what: bytes) -> None:
    """Row A7 of the review: comments are sent for that."""
    _, asked = open_call(bench, timeout=1000)
    for _ in range(10):
        bench.wait(IDLE - 1)
        asked.feed(BodyData(what))
    assert bench.requests == []
    bench.wait(IDLE)
    assert asked.aborted


def test_what_cannot_be_resumed_is_left_to_the_timeout_of_its_call(bench: Bench) -> None:
    """Row A7 of the review."""
    handle, asked = open_call(bench, None, timeout=500)
    asked.event(notification("x"))
    bench.wait(499)
    assert not asked.aborted
    bench.wait(1)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


def test_an_id_that_is_taken_back_leaves_it_to_the_timeout(bench: Bench) -> None:
    handle, asked = open_call(bench, timeout=500)
    asked.feed(BodyData(b"id\n\n"))
    bench.wait(499)
    assert not asked.aborted
    bench.wait(1)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


@pytest.mark.parametrize("id", ["s1", None])
def test_a_silent_standalone_stream_is_opened_again(id: str | None) -> None:
    """Row A7 of the review: it was dead for ever after a laptop slept. With an id, or without."""
    bench = Bench(standalone_stream=True).connect()
    asked = bench.take("GET")
    asked.open_stream()
    if id is not None:
        asked.event(id=id)
    for _ in range(100):  # many servers send no comments
        bench.wait(IDLE)
        assert asked.aborted
        asked = bench.take("GET")
        assert asked.header("last-event-id") == id
        asked.open_stream()
    events = reconnections(bench)
    assert [event.attempt for event in events] == [0] * 100
    asked.event(notification("x"))
    assert len(bench.events) == 1


@pytest.mark.parametrize("listens", [True, False])
def test_a_server_that_answers_nothing_at_all_is_given_up(listens: bool) -> None:
    """Row A7 of the review: a connection that brought no byte is a failed attempt."""
    bench = Bench(standalone_stream=listens, limits=Limits(stream_idle_timeout=5)).connect()
    handle = 0
    if listens:
        bench.take("GET").open_stream()
    else:
        handle, _ = open_call(bench)
    bench.wait(200)
    attempts = [event.attempt for event in bench.events if isinstance(event, Reconnecting)]
    assert attempts == [0, 1, 2, 3, 4]
    if listens:
        assert isinstance(bench.events[-1], StandaloneStreamClosed)
    else:
        bench.events[:] = bench.events[5:]
        reason = "given up after 4 attempts without progress: the connection was silent for 5 s"
        assert reason in str(only_failure(bench, handle))
    assert all(asked.aborted for asked in bench.requests)
    assert len(bench.requests) == 5
    assert bench.client.next_deadline() is None


def test_a_get_that_is_refused_or_answered_in_json_is_watched_no_more(bench: Bench) -> None:
    handle, asked = open_call(bench)
    asked.cut()
    bench.wait(1)
    resumed = bench.take("GET")
    resumed.head(content_type="application/json")
    resumed.answer(response(asked.id))
    assert bench.events[-1] == CallCompleted(handle, {})
    bench.wait(1000)
    assert bench.requests == []


@pytest.mark.parametrize("who", ["machine", "driver"])
def test_what_is_not_read_is_no_silence(who: str) -> None:
    """The application takes no events, so nothing is read, whatever the server sends."""
    bench = Bench(limits=Limits(max_queued_events=2)).connect()
    _, asked = open_call(bench, timeout=1000)
    if who == "machine":
        bench.takes_events = False
        asked.event(notification("x"))
        asked.event(notification("x"))
        assert bench.is_paused
        bench.wait(200)
        bench.takes_events = True
        bench.settle()
    else:
        for _ in range(10):
            bench.now += 20
            bench.client.handle_timeout(now=bench.now, is_reading=False)
            bench.settle()
    assert bench.requests == []
    asked.feed(BodyData(b":\n\n"))
    bench.wait(IDLE - 0.1)
    assert bench.requests == []
    bench.wait(0.1)
    assert bench.take("GET").header("last-event-id") is not None


def test_a_server_that_still_has_the_broken_standalone_stream_is_asked_again() -> None:
    """Servers with one such stream refuse another with 409 until they notice that it broke."""
    bench = Bench(standalone_stream=True).connect()
    asked = bench.take("GET")
    asked.open_stream()
    bench.wait(IDLE)
    bench.take("GET").refuse(409)
    event = bench.take_events()[-1]
    assert isinstance(event, Reconnecting)
    assert event.attempt == 1
    bench.wait(event.delay)
    again = bench.take("GET")
    again.open_stream()
    again.event(notification("x"))
    assert len(bench.events) == 1


def test_what_a_silent_stream_has_said_about_reconnecting_counts_for_the_next_polls(
    bench: Bench,
) -> None:
    """Seed 3475068536091 of the simulator: its ``retry`` was forgotten with its connection."""
    _, asked = open_call(bench)
    asked.feed(BodyData(b"retry: 7000\n\n"))
    bench.wait(IDLE)
    resumed = bench.take("GET")
    resumed.open_stream()
    resumed.end()
    events = reconnections(bench)
    assert [event.delay for event in events] == [0.0, pytest.approx(7.0, rel=0.1)]
