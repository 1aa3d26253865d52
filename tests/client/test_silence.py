"""A connection that is silent for long may be dead without a word: its stream is resumed."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, Limits, RequestTimeout
from sansmcp.events import CallCompleted, Reconnecting, StandaloneStreamClosed

from .harness import ClientHarness, notification, only_failure, open_call, response

IDLE = Limits().stream_idle_timeout


def reconnections(harness: ClientHarness) -> list[Reconnecting]:
    return [event for event in harness.take_events() if isinstance(event, Reconnecting)]


def test_a_silent_call_is_resumed_with_the_settings_that_clients_have_by_default(
    harness: ClientHarness,
) -> None:
    """A server that falls silent after an event id."""
    handle, asked = open_call(harness)
    harness.wait(IDLE - 0.1)
    assert harness.requests == []
    harness.wait(0.1)
    assert asked.aborted
    (event,) = reconnections(harness)
    assert (event.call, event.delay, event.attempt) == (handle, 0.0, 0)
    assert event.reason == "the connection was silent for 45 s (stream_idle_timeout)"
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "e1"
    resumed.open_stream()
    resumed.event(response(asked.id), id="e2")
    assert harness.events == [CallCompleted(handle, {})]
    harness.wait(1000)
    assert harness.requests == []


@pytest.mark.parametrize("what", [b":\n\n", b":", b"data: half", b"id: e2\ndata:\n\n"])
def test_every_byte_is_a_sign_of_life(harness: ClientHarness, what: bytes) -> None:
    """Comments are sent for that."""
    _, asked = open_call(harness, timeout=1000)
    for _ in range(10):
        harness.wait(IDLE - 1)
        asked.feed(BodyData(what))
    assert harness.requests == []
    harness.wait(IDLE)
    assert asked.aborted


def test_what_cannot_be_resumed_is_left_to_the_timeout_of_its_call(harness: ClientHarness) -> None:
    handle, asked = open_call(harness, None, timeout=500)
    asked.event(notification("x"))
    harness.wait(499)
    assert not asked.aborted
    harness.wait(1)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


def test_an_id_that_is_taken_back_leaves_it_to_the_timeout(harness: ClientHarness) -> None:
    handle, asked = open_call(harness, timeout=500)
    asked.feed(BodyData(b"id\n\n"))
    harness.wait(499)
    assert not asked.aborted
    harness.wait(1)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


@pytest.mark.parametrize("id", ["s1", None])
def test_a_silent_standalone_stream_is_opened_again(id: str | None) -> None:
    """It was dead for ever after a laptop slept. With an id, or without."""
    harness = ClientHarness(standalone_stream=True).connect()
    asked = harness.take("GET")
    asked.open_stream()
    if id is not None:
        asked.event(id=id)
    for _ in range(100):  # many servers send no comments
        harness.wait(IDLE)
        assert asked.aborted
        asked = harness.take("GET")
        assert asked.header("last-event-id") == id
        asked.open_stream()
    events = reconnections(harness)
    assert [event.attempt for event in events] == [0] * 100
    asked.event(notification("x"))
    assert len(harness.events) == 1


def test_a_standalone_stream_that_is_not_read_is_not_taken_for_silent() -> None:
    harness = ClientHarness(standalone_stream=True).connect()
    asked = harness.take("GET")
    asked.open_stream()
    harness.now += IDLE
    harness.run_command(harness.client.handle_timeout, is_reading=False)
    assert not asked.aborted
    harness.wait(IDLE)
    assert asked.aborted


@pytest.mark.parametrize("listens", [True, False])
def test_a_server_that_answers_nothing_at_all_is_given_up(listens: bool) -> None:
    """A connection that brought no byte is a failed attempt."""
    harness = ClientHarness(
        standalone_stream=listens, limits=Limits(stream_idle_timeout=5)
    ).connect()
    handle = 0
    if listens:
        harness.take("GET").open_stream()
    else:
        handle, _ = open_call(harness)
    harness.wait(200)
    attempts = [event.attempt for event in harness.events if isinstance(event, Reconnecting)]
    assert attempts == [0, 1, 2, 3, 4]
    if listens:
        assert isinstance(harness.events[-1], StandaloneStreamClosed)
    else:
        harness.events[:] = harness.events[5:]
        reason = "given up after 4 attempts without progress: the connection was silent for 5 s"
        assert reason in str(only_failure(harness, handle))
    assert all(asked.aborted for asked in harness.requests)
    assert len(harness.requests) == 5
    assert harness.client.next_deadline() is None


def test_a_get_that_is_refused_or_answered_in_json_is_watched_no_more(
    harness: ClientHarness,
) -> None:
    handle, asked = open_call(harness)
    asked.cut()
    harness.wait(1)
    resumed = harness.take("GET")
    resumed.head(content_type="application/json")
    resumed.answer(response(asked.id))
    assert harness.events[-1] == CallCompleted(handle, {})
    harness.wait(1000)
    assert harness.requests == []


@pytest.mark.parametrize("who", ["machine", "driver"])
def test_what_is_not_read_is_no_silence(who: str) -> None:
    """The application takes no events, so nothing is read, whatever the server sends."""
    harness = ClientHarness(limits=Limits(max_queued_events=2)).connect()
    _, asked = open_call(harness, timeout=1000)
    if who == "machine":
        harness.takes_events = False
        asked.event(notification("x"))
        asked.event(notification("x"))
        assert harness.is_paused
        harness.wait(200)
        harness.takes_events = True
        harness.run_pending()
    else:
        for _ in range(10):
            harness.now += 20
            harness.client.handle_timeout(now=harness.now, is_reading=False)
            harness.run_pending()
    assert harness.requests == []
    asked.feed(BodyData(b":\n\n"))
    harness.wait(IDLE - 0.1)
    assert harness.requests == []
    harness.wait(0.1)
    assert harness.take("GET").header("last-event-id") is not None


def test_a_server_that_still_has_the_broken_standalone_stream_is_asked_again() -> None:
    """Servers with one such stream refuse another with 409 until they notice that it broke."""
    harness = ClientHarness(standalone_stream=True).connect()
    asked = harness.take("GET")
    asked.open_stream()
    harness.wait(IDLE)
    harness.take("GET").refuse(409)
    event = harness.take_events()[-1]
    assert isinstance(event, Reconnecting)
    assert event.attempt == 1
    harness.wait(event.delay)
    again = harness.take("GET")
    again.open_stream()
    again.event(notification("x"))
    assert len(harness.events) == 1


def test_what_a_silent_stream_has_said_about_reconnecting_counts_for_the_next_polls(
    harness: ClientHarness,
) -> None:
    """Seed 3475068536091 of the simulator: its ``retry`` was forgotten with its connection."""
    _, asked = open_call(harness)
    asked.feed(BodyData(b"retry: 7000\n\n"))
    harness.wait(IDLE)
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.end()
    events = reconnections(harness)
    assert [event.delay for event in events] == [0.0, pytest.approx(7.0, rel=0.1)]


@pytest.mark.parametrize("timeout", [4.0, 20.0, 30.0])
def test_a_short_call_has_time_left_after_a_silence(harness: ClientHarness, timeout: float) -> None:
    """The client notices within three quarters of the timeout, however short it is."""
    handle, asked = open_call(harness, timeout=timeout)
    harness.wait(timeout * 3 / 4)
    assert asked.aborted
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.event(response(asked.id), id="e2")
    assert harness.take_events()[-1] == CallCompleted(handle, {})


def test_the_total_timeout_counts_too(harness: ClientHarness) -> None:
    _, asked = open_call(harness, timeout=1000, total_timeout=8)
    harness.wait(6)
    assert asked.aborted
