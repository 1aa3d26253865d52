"""Subscriptions whose connection is silent: a dead one is noticed, a quiet one loses nothing."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, Disconnected, Limits
from sansmcp.codecs.sse import KEEP_ALIVE
from sansmcp.events import CallCompleted, Reconnecting

from ..harness import POLICY, Asked, only_failure
from .harness import ModernClientHarness, ends, failed
from .test_subscriptions import (
    ACKNOWLEDGED,
    CHANGED,
    FILTER,
    about,
    acknowledge,
    heard,
    listen,
    over,
)

IDLE = Limits().stream_idle_timeout
SILENT = "the connection was silent for 45 s (stream_idle_timeout)"


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(cache=True).connect()


def reconnections(harness: ModernClientHarness) -> list[Reconnecting]:
    return [event for event in harness.take_events() if isinstance(event, Reconnecting)]


def quiet(harness: ModernClientHarness) -> tuple[int, Asked, Asked]:
    """A subscription at a server that sends no comments, and its renewal."""
    handle, first = listen(harness)
    harness.wait(IDLE)
    second = harness.take()
    assert not first.aborted
    assert second.id != first.id
    assert second.json["params"]["notifications"] == FILTER["notifications"]
    harness.take_events()
    return handle, first, second


def test_the_silence_of_a_server_that_has_sent_comments_is_a_dead_connection(
    harness: ModernClientHarness,
) -> None:
    handle, asked = listen(harness)
    for _ in range(4):
        harness.wait(IDLE - 1)
        asked.feed(BodyData(KEEP_ALIVE))
    assert harness.requests == []
    harness.wait(IDLE)
    assert asked.aborted
    (event,) = reconnections(harness)
    assert (event.call, event.delay, event.attempt) == (handle, 0.0, 0)
    assert event.reason == SILENT
    again = harness.take()
    acknowledge(again)
    again.event(about(again.id))
    assert heard(harness) == [(handle, ACKNOWLEDGED), (handle, CHANGED)]


def test_a_request_that_gets_no_byte_is_a_failed_attempt(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("subscriptions/listen", params=FILTER)
    for attempt in range(1, POLICY.max_attempts + 1):
        harness.wait(IDLE)
        assert asked.aborted
        assert [event.attempt for event in reconnections(harness)] == [attempt]
        harness.wait(8)
        asked = harness.take()
    harness.wait(IDLE)
    assert isinstance(only_failure(harness, handle), Disconnected)
    assert harness.client.next_deadline() is None


def test_a_quiet_subscription_is_renewed_without_a_word(harness: ModernClientHarness) -> None:
    handle, first, second = quiet(harness)
    first.event(about(first.id))  # it lives, after all
    acknowledge(second)
    assert first.aborted
    second.event(about(second.id))
    assert heard(harness) == [(handle, CHANGED), (handle, CHANGED)]
    for _ in range(3):
        harness.wait(IDLE)
        third = harness.take()
        acknowledge(third)
        assert second.aborted
        second = third
    assert harness.take_events() == []
    second.event(over(second.id))
    assert ends(harness) == [CallCompleted(handle, over(second.id)["result"])]


def test_a_renewal_that_gets_no_answer_shows_that_the_connection_is_dead(
    harness: ModernClientHarness,
) -> None:
    handle, first, second = quiet(harness)
    second.open_stream()
    harness.wait(IDLE)
    assert first.aborted
    assert second.aborted
    (event,) = reconnections(harness)
    assert (event.call, event.attempt, event.reason) == (handle, 0, SILENT)
    acknowledge(harness.take())
    assert heard(harness) == [(handle, ACKNOWLEDGED)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_renewal_that_breaks_shows_it_too(harness: ModernClientHarness, clean: bool) -> None:
    handle, first, second = quiet(harness)
    if clean:
        second.refuse(200, content_type="text/event-stream")
    else:
        second.cut("connection refused")
    assert first.aborted
    (event,) = reconnections(harness)
    assert (event.call, event.delay, event.attempt) == (handle, 0.0, 0)
    # What is tried at once, and counts as no failure, tells of the silence that explains it.
    failure = "the server closed the stream before the response" if clean else "connection refused"
    assert event.reason == f"{SILENT}, and a second subscription failed: {failure}"
    harness.wait(0)
    acknowledge(harness.take())
    assert heard(harness) == [(handle, ACKNOWLEDGED)]


@pytest.mark.parametrize("how", ["error", "refused", "invalid"])
def test_a_server_that_takes_no_second_subscription_keeps_the_first(
    harness: ModernClientHarness, how: str
) -> None:
    handle, first, second = quiet(harness)
    if how == "error":
        second.open_stream()
        second.event(failed(second.id, -32603))
    elif how == "refused":
        second.refuse(503)
    else:
        second.answer(b"{")
    assert not first.aborted
    harness.wait(IDLE - 1)
    assert harness.requests == []
    first.event(about(first.id))
    harness.wait(IDLE)
    acknowledge(harness.take())
    assert first.aborted
    assert heard(harness) == [(handle, CHANGED)]


def test_a_renewal_that_the_server_completes_is_the_end(harness: ModernClientHarness) -> None:
    handle, first, second = quiet(harness)
    second.open_stream()
    second.event(over(second.id))
    assert ends(harness) == [CallCompleted(handle, over(second.id)["result"])]
    harness.wait(1)
    assert first.aborted
    harness.wait(1000)
    assert harness.requests == []


@pytest.mark.parametrize("completes", [True, False])
def test_the_end_of_the_first_ends_its_renewal(
    harness: ModernClientHarness, completes: bool
) -> None:
    handle, first, second = quiet(harness)
    if completes:
        first.event(over(first.id))
        assert [event.call for event in ends(harness)] == [handle]
    else:
        first.cut()
    assert second.aborted
    harness.wait(8)
    assert len(harness.requests) == (not completes)


def test_one_renewal_at_a_time(harness: ModernClientHarness) -> None:
    _, first, second = quiet(harness)
    first.event(about(first.id))
    harness.wait(1)
    second.open_stream()
    harness.wait(IDLE - 1)  # the first has been silent again for as long
    assert harness.requests == []
    second.event(about(second.id, ACKNOWLEDGED, notifications={}))
    assert first.aborted


@pytest.mark.parametrize("renews", [True, False])
def test_lists_in_the_cache_are_not_trusted_after_a_silence(
    harness: ModernClientHarness, renews: bool
) -> None:
    _, asked = listen(harness)
    if not renews:
        asked.feed(BodyData(KEEP_ALIVE))
    _, list_request = harness.call("tools/list")
    list_request.result({"tools": [], "ttlMs": 10**9})
    harness.run_command(harness.client.call, "tools/list")
    assert harness.requests == []
    harness.wait(IDLE)
    acknowledge(harness.take())
    harness.call("tools/list")  # asks the server again


def test_a_client_that_reads_nothing_takes_no_silence_for_a_dead_connection(
    harness: ModernClientHarness,
) -> None:
    _, asked = listen(harness)
    harness.now += IDLE
    harness.run_command(harness.client.handle_timeout, is_reading=False)
    assert not asked.aborted
    assert harness.requests == []
