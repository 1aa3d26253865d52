"""Requests of which no byte was sent: repeated in time, or ended by an error that says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sansmcp import ConnectionLost, Disconnected, ReconnectPolicy
from sansmcp.client.attempts import LOCAL_PATIENCE
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Closed,
    Connected,
    MessageUndelivered,
    Reconnecting,
)
from sansmcp.http import Unsent, Url

from .harness import LATEST, ONCE, POLICY, Asked, ClientHarness, initialized, only_failure, response
from .modern.harness import MODERN, ModernClientHarness
from .sse_harness import SseHarness

REMOTE = "http://mcp.example/mcp"
STEADY = ReconnectPolicy(initial_delay=1.0, max_delay=1.0, max_attempts=1000)
HARNESSES = (
    lambda: ClientHarness(url=REMOTE).connect(),
    lambda: ModernClientHarness(url=REMOTE, versions=(MODERN,)).connect(),
    lambda: SseHarness().connect(),
)


def fail(asked: Asked, unsent: Unsent | None = Unsent.UNREACHABLE) -> None:
    asked.feed(ConnectionLost("no route to host", unsent))


@pytest.mark.parametrize("make", HARNESSES)
def test_a_call_that_was_not_sent_is_repeated(make: Callable[[], ClientHarness]) -> None:
    """Also one that is not idempotent: the server has not seen it."""
    harness = make()
    handle, asked = harness.call(idempotent=False)
    fail(asked)
    (event,) = harness.take_events()
    assert isinstance(event, Reconnecting)
    assert (event.call, event.attempt, event.reason) == (handle, 1, "no route to host")
    harness.wait(1)
    again = harness.take()
    assert again.id != asked.id
    if isinstance(harness, SseHarness):
        again.accept()
        harness.say(response(again.id))
    else:
        again.result()
    assert harness.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize("make", HARNESSES)
def test_what_may_have_been_sent_is_not_repeated(make: Callable[[], ClientHarness]) -> None:
    harness = make()
    handle, asked = harness.call()
    fail(asked, None)
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert error.was_sent
    assert "the outcome is unknown" in str(error)
    harness.wait(10)
    assert harness.requests == []


def test_it_is_given_up_with_an_error_that_says_so() -> None:
    harness = ClientHarness(url=REMOTE).connect()
    handle, asked = harness.call(timeout=1000)
    for _ in range(POLICY.max_attempts):
        fail(asked)
        harness.wait(8)
        asked = harness.take()
    harness.take_events()
    fail(asked)
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert not error.was_sent
    assert str(error) == "tools/call was not sent: no route to host"


def test_it_is_not_repeated_beyond_its_time() -> None:
    harness = ClientHarness(url=REMOTE).connect()
    handle, asked = harness.call(timeout=0.4)
    fail(asked)
    assert "was not sent" in str(only_failure(harness, handle))


def test_what_fails_for_ever_is_not_repeated() -> None:
    harness = ClientHarness(url=REMOTE).connect()
    handle, asked = harness.call("tools/list")
    fail(asked, Unsent.PERMANENT)
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert not error.was_sent


@pytest.mark.parametrize("how", ["cut", "refused"])
def test_a_request_that_was_sent_once_is_uncertain_later(how: str) -> None:
    """A call that may be repeated: the first attempt was sent, the second one was not."""
    harness = ClientHarness(url=REMOTE, reconnect=ReconnectPolicy(max_attempts=1)).connect()
    handle, asked = harness.call("tools/list")
    if how == "cut":
        fail(asked, None)
    else:
        asked.refuse(502)
    harness.wait(1)
    harness.take_events()
    fail(harness.take())
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert error.was_sent
    assert "the outcome is unknown" in str(error)


def test_a_stream_is_resumed_as_after_any_failure() -> None:
    harness = ClientHarness(url=REMOTE).connect()
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(id="e1")
    asked.cut()
    for _ in range(POLICY.max_attempts - 1):
        harness.wait(8)
        fail(harness.take("GET"))
    harness.wait(8)
    resumed = harness.take("GET")
    resumed.open_stream()
    resumed.event(response(asked.id), id="e2")
    assert CallCompleted(handle, {}) in harness.events


@pytest.mark.parametrize("unsent", [None, Unsent.UNREACHABLE, Unsent.PERMANENT])
def test_notifications(unsent: Unsent | None) -> None:
    """They are sent once; one of which nothing left may be sent again."""
    harness = ClientHarness(url=REMOTE).connect()
    harness.run_command(harness.client.notify, "notifications/x")
    fail(harness.take(), unsent)
    harness.wait(1)
    if unsent is Unsent.UNREACHABLE:
        harness.take().accept()
        assert harness.events == []
    else:
        assert harness.requests == []
        assert [type(event) for event in harness.events] == [MessageUndelivered]


# The server that is not there


@pytest.mark.parametrize("url", ["http://localhost:1/", "http://127.0.0.1:1/", "http://[::1]:1/"])
def test_refusals_of_this_machine_are_repeated_for_a_moment(url: str) -> None:
    assert Url.parse(url).is_local
    harness = ClientHarness(url=url, reconnect=STEADY)
    harness.run_command(harness.client.start)
    started = harness.now
    fail(harness.take(), Unsent.REFUSED)
    while not isinstance(harness.events[-1], Closed):
        harness.wait(1)
        fail(harness.take(), Unsent.REFUSED)
    assert 2 < harness.now - started <= LOCAL_PATIENCE
    closed = harness.events[-1]
    assert isinstance(closed, Closed)
    assert "cannot be reached: no route to host" in str(closed.error)


def test_those_of_other_machines_are_repeated_for_all_the_time() -> None:
    harness = ClientHarness(url=REMOTE, reconnect=STEADY)
    harness.run_command(harness.client.start)
    for _ in range(20):
        fail(harness.take(), Unsent.REFUSED)
        harness.wait(1)
    asked = harness.take()
    asked.answer(initialized(asked.id, LATEST))
    harness.take().accept()
    assert isinstance(harness.events[-1], Connected)


def test_a_short_connect_timeout_holds() -> None:
    harness = ClientHarness(reconnect=STEADY, connect_timeout=2)
    harness.run_command(harness.client.start)
    fail(harness.take(), Unsent.REFUSED)
    harness.wait(2)
    fail(harness.take(), Unsent.REFUSED)
    assert isinstance(harness.events[-1], Closed)


def test_a_call_to_a_server_of_this_machine_that_is_gone_ends_soon() -> None:
    harness = ClientHarness(reconnect=STEADY).connect()
    handle, asked = harness.call()
    for _ in range(int(LOCAL_PATIENCE) + 5):
        fail(asked, Unsent.REFUSED)
        if not harness.requests and isinstance(harness.events[-1], CallFailed):
            break
        harness.wait(1)
        asked = harness.take()
    assert harness.now <= LOCAL_PATIENCE + 1
    assert "was not sent" in str(only_failure(harness, handle))


def test_it_is_found_when_it_starts_again() -> None:
    harness = ClientHarness(reconnect=STEADY).connect()
    handle, asked = harness.call("tools/list", timeout=100)
    for _ in range(2):  # each time it is away for less than a moment
        for _ in range(3):
            fail(asked, Unsent.REFUSED)
            harness.wait(1)
            asked = harness.take()
        harness.wait(20)
        asked.cut()  # it was sent, and may be repeated
        harness.wait(1)
        asked = harness.take()
    asked.result({})
    assert CallCompleted(handle, {}) in harness.events


@pytest.mark.parametrize("versions", [(LATEST,), (MODERN,)])
def test_what_fails_for_ever_ends_the_opening_at_once(versions: tuple[str, ...]) -> None:
    harness = ClientHarness(versions=versions)
    harness.run_command(harness.client.start)
    fail(harness.take(), Unsent.PERMANENT)
    (closed,) = harness.events
    assert isinstance(closed, Closed)
    assert "cannot be reached: no route to host" in str(closed.error)


def test_so_it_is_with_the_event_stream_of_http_sse() -> None:
    harness = SseHarness().start()
    fail(harness.take("GET"), Unsent.PERMANENT)
    assert "no route to host" in str(harness.closed())


def test_the_event_stream_that_is_refused_is_tried_for_a_moment() -> None:
    harness = SseHarness(reconnect=STEADY).start()
    for _ in range(3):
        fail(harness.take("GET"), Unsent.REFUSED)
        harness.wait(1)
    fail(harness.take("GET"), Unsent.REFUSED)
    harness.wait(2)
    fail(harness.take("GET"), Unsent.REFUSED)
    assert "no route to host" in str(harness.closed())


def test_without_further_attempts_the_first_failure_is_the_last() -> None:
    harness = ClientHarness(reconnect=ONCE).connect()
    handle, asked = harness.call()
    fail(asked)
    assert "was not sent" in str(only_failure(harness, handle))
