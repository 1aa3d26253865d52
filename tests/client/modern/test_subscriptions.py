"""Subscriptions: one long request whose notifications reach the call, until either side ends it."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import BodyData, Disconnected, RequestCancelled, RequestTimeout
from sansmcp.codecs.sse import KEEP_ALIVE
from sansmcp.events import CallCompleted, CallFailed, Reconnecting, ServerNotified

from ..harness import POLICY, Asked, error, notification, only_failure, response
from .harness import MODERN, PREFIX, SUBSCRIPTION, ModernClientHarness, ModernProcess, ends

requirement = pytest.mark.requirement
LISTEN = "subscriptions/listen"
FILTER = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tools/list_changed"


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness().connect()


@pytest.fixture
def process() -> ModernProcess:
    return ModernProcess().connect()


def about(id: Any, method: str = CHANGED, **params: Any) -> dict[str, Any]:
    """A notification of a subscription."""
    return notification(method, **params, _meta={SUBSCRIPTION: id})


def over(id: Any) -> dict[str, Any]:
    return response(id, {"resultType": "complete", "_meta": {SUBSCRIPTION: id}})


def listen(harness: ModernClientHarness, **options: Any) -> tuple[int, Asked]:
    """A subscription that is acknowledged."""
    handle, asked = harness.call(LISTEN, params=FILTER, **options)
    acknowledge(asked)
    return handle, asked


def acknowledge(asked: Asked) -> None:
    asked.open_stream()
    asked.event(about(asked.id, ACKNOWLEDGED, notifications={"toolsListChanged": True}))


def heard(harness: ModernClientHarness | ModernProcess) -> list[tuple[int | None, str]]:
    """The notifications since the last look, and the calls they belong to."""
    found = [event for event in harness.take_events() if isinstance(event, ServerNotified)]
    return [(event.call, event.notification.method) for event in found]


# HTTP


@requirement("SUBS-C-001", "SUBS-C-002")
def test_notifications_reach_the_call(harness: ModernClientHarness) -> None:
    handle, asked = listen(harness)
    params = asked.json["params"]
    assert params["notifications"] == FILTER["notifications"]
    assert params["_meta"][PREFIX + "protocolVersion"] == MODERN
    assert asked.header("mcp-method") == LISTEN
    (acknowledged,) = harness.take_events()
    assert isinstance(acknowledged, ServerNotified)
    assert acknowledged.call == handle
    granted = (acknowledged.notification.params or {})["notifications"]
    assert granted == {"toolsListChanged": True}  # the application sees what it does not get
    asked.event(about(asked.id))
    asked.feed()
    asked.event(about(asked.id, "notifications/resources/updated", uri="file:///a"))
    assert heard(harness) == [(handle, CHANGED), (handle, "notifications/resources/updated")]


@requirement("SUBS-C-004")
def test_several_at_once(harness: ModernClientHarness) -> None:
    first, one = listen(harness)
    second, two = listen(harness)
    harness.take_events()
    two.event(about(two.id))
    one.event(about(one.id))
    assert heard(harness) == [(second, CHANGED), (first, CHANGED)]


def test_they_last_as_long_as_the_server_likes(harness: ModernClientHarness) -> None:
    handle, asked = listen(harness)
    for _ in range(1000):
        harness.wait(15)
        asked.feed(BodyData(KEEP_ALIVE))
    assert harness.requests == []
    asked.event(about(asked.id))
    assert heard(harness)[-1] == (handle, CHANGED)
    other, _ = listen(harness, timeout=5)
    harness.wait(5)
    assert isinstance(only_failure(harness, other), RequestTimeout)
    third, _ = listen(harness, total_timeout=7)
    harness.wait(7)
    assert isinstance(only_failure(harness, third), RequestTimeout)
    assert not asked.aborted


def test_the_server_ends_it(harness: ModernClientHarness) -> None:
    handle, asked = listen(harness)
    asked.event(over(asked.id))
    asked.end()
    assert ends(harness) == [CallCompleted(handle, over(asked.id)["result"])]
    harness.wait(1000)
    assert harness.requests == []


@requirement("SUBS-C-005", "CANCEL-C-003")
@pytest.mark.parametrize("closes", [True, False])
def test_the_client_ends_it(harness: ModernClientHarness, closes: bool) -> None:
    handle, asked = listen(harness)
    if closes:
        harness.run_command(harness.client.close)
    else:
        harness.run_command(harness.client.cancel, handle)
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    assert asked.aborted
    assert harness.requests == []
    assert harness.client.next_deadline() is None


@requirement("SUBS-C-006")
@pytest.mark.parametrize("clean", [True, False])
def test_one_that_breaks_is_made_again(harness: ModernClientHarness, clean: bool) -> None:
    handle, asked = listen(harness)
    if clean:
        asked.end()
    else:
        asked.cut()
    harness.wait(POLICY.initial_delay)
    again = harness.take()
    assert again.id != asked.id
    assert again.json["params"]["notifications"] == FILTER["notifications"]
    acknowledge(again)
    again.event(about(again.id))
    assert heard(harness) == [(handle, ACKNOWLEDGED), (handle, ACKNOWLEDGED), (handle, CHANGED)]


def test_one_that_breaks_now_and_then_is_made_again_for_ever(harness: ModernClientHarness) -> None:
    handle, asked = listen(harness)
    for _ in range(3 * POLICY.max_attempts):
        harness.wait(40)
        asked.cut()
        harness.wait(8)
        asked = harness.take()
        acknowledge(asked)
    attempts = [event.attempt for event in harness.events if isinstance(event, Reconnecting)]
    assert set(attempts) == {1}
    asked.event(over(asked.id))
    assert [event.call for event in ends(harness)] == [handle]


def test_one_that_breaks_at_once_is_given_up(harness: ModernClientHarness) -> None:
    """The acknowledgement always comes; it is no progress."""
    handle, asked = listen(harness)
    for _ in range(POLICY.max_attempts):
        asked.end()
        harness.wait(8)
        asked = harness.take()
        acknowledge(asked)
    asked.end()
    assert isinstance(only_failure(harness, handle), Disconnected)
    assert harness.client.next_deadline() is None


# stdio


@requirement("SUBS-C-003", "SUBS-C-004", "MODERN-B-002")
def test_on_one_stream_the_id_tells_them_apart(process: ModernProcess) -> None:
    first, one = process.make(LISTEN, params=FILTER)
    second, two = process.make(LISTEN, params=FILTER)
    process.say(about(one, ACKNOWLEDGED), about(two, ACKNOWLEDGED))
    process.say(about(two), about(one), about(str(one)), about(99), about(True), about([1]))
    process.say(notification(CHANGED), {**notification(CHANGED), "params": {"_meta": 5}})
    assert heard(process) == [
        (first, ACKNOWLEDGED),
        (second, ACKNOWLEDGED),
        (second, CHANGED),
        (first, CHANGED),
        *[(None, CHANGED)] * 6,
    ]
    assert process.client.next_deadline() is None


@requirement("SUBS-C-005", "CANCEL-C-004")
def test_the_client_ends_it_by_a_message(process: ModernProcess) -> None:
    handle, id = process.make(LISTEN, params=FILTER)
    process.run_command(process.client.cancel, handle)
    (told,) = process.written
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", id)
    process.take_events()
    process.say(about(id), over(id))
    assert heard(process) == [(None, CHANGED)]


@pytest.mark.parametrize("cancels", [True, False])
def test_the_server_ends_it_by_a_result(process: ModernProcess, cancels: bool) -> None:
    handle, id = process.make(LISTEN, params=FILTER)
    process.say(over(id))
    if cancels:
        process.say(notification("notifications/cancelled", requestId=id))
    assert process.events == [CallCompleted(handle, over(id)["result"])]


@pytest.mark.parametrize("reason", ["bye", None, 5])
def test_the_server_ends_it_by_a_cancellation(process: ModernProcess, reason: Any) -> None:
    handle, id = process.make(LISTEN, params=FILTER)
    other, _ = process.make(LISTEN, params=FILTER)
    process.say(notification("notifications/cancelled", requestId=id, reason=reason))
    process.say(over(id))
    failure = only_failure(process, handle)
    assert isinstance(failure, Disconnected)
    assert "the server has ended the subscription" in str(failure)
    assert ("bye" in str(failure)) is (reason == "bye")
    process.say(error(id))
    assert process.events == []
    assert process.written == []
    process.run_command(process.client.cancel, other)


def test_it_ends_with_the_process(process: ModernProcess) -> None:
    handle, _ = process.make(LISTEN, params=FILTER)
    process.exit(0)
    assert [e.call for e in process.events if isinstance(e, CallFailed)] == [handle]
    process.closed()


@requirement("SUBS-C-007")
@pytest.mark.both_eras
def test_what_waits_for_a_process_that_is_started_again_is_sent_to_that() -> None:
    process = ModernProcess().start()
    handle = process.run_command(process.client.call, LISTEN, FILTER)
    process.exit(1)
    process.offered()
    process.say({**response(1), "result": {"protocolVersion": "2025-11-25"}})
    assert [message["method"] for message in process.written][-1] == LISTEN
    assert ends(process) == []
    process.run_command(process.client.cancel, handle)
