"""HTTP+SSE with a silent event stream: a ping tells a dead connection from a quiet server."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, Disconnected, Limits
from sansmcp.events import CallCompleted, CallFailed, Connected, SessionExpired
from sansmcp.states import ClientState

from .harness import Asked, error, initialized, notification, only_failure, request, response
from .sse_harness import SseHarness

IDLE, POST = Limits().stream_idle_timeout, Limits().post_timeout
NEW = "/messages?s=second"


@pytest.fixture
def harness() -> SseHarness:
    return SseHarness(capabilities={"elicitation": {}}).connect()


def take_ping(harness: SseHarness) -> Asked:
    asked = harness.take()
    assert asked.json["method"] == "ping"
    return asked


def reopen(harness: SseHarness) -> None:
    """The session that follows."""
    asked = harness.locate(NEW)
    asked.accept()
    harness.say(initialized(asked.id))
    harness.take().accept()
    assert any(isinstance(event, Connected) for event in harness.take_events())


def test_a_stream_that_brings_no_response_to_ping_is_dead(harness: SseHarness) -> None:
    """The POSTs of the client are accepted, but what they lead to is lost."""
    old = harness.stream
    harness.wait(IDLE)
    take_ping(harness).accept()
    kept, _ = harness.make("tools/list", timeout=1000)
    lost, _ = harness.make(timeout=1000)
    harness.wait(POST)
    assert old.aborted
    failed, expired = harness.take_events()[:2]
    assert isinstance(failed, CallFailed)
    assert failed.call == lost
    assert isinstance(failed.error, Disconnected)
    assert "silent" in str(failed.error)
    assert expired == SessionExpired((lost,))
    harness.wait(1)
    reopen(harness)
    again = harness.take()
    again.accept()
    harness.say(response(again.id))
    assert harness.events == [CallCompleted(kept, {})]


def test_it_is_found_out_within_the_time_of_a_call(harness: SseHarness) -> None:
    """A call that may be repeated completes in the new session."""
    harness.wait(1)
    handle, _ = harness.make("tools/list", timeout=8)
    harness.wait(4)
    take_ping(harness).accept()
    harness.wait(2)
    assert harness.stream.aborted
    harness.wait(0.5)
    reopen(harness)
    again = harness.take()
    again.accept()
    harness.say(response(again.id))
    assert harness.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize("how", ["result", "error", "invalid", "comment", "other"])
def test_any_sign_of_life_will_do(harness: SseHarness, how: str) -> None:
    """A server that does not know the method responds, too."""
    ping: Asked | None = None
    for _ in range(3):
        harness.wait(IDLE)
        ping = take_ping(harness)
        ping.accept()
        if how == "result":
            harness.say(response(ping.id))
        elif how == "error":
            harness.say(error(ping.id, -32601, "Method not found"))
        elif how == "invalid":
            harness.say({"jsonrpc": "2.0", "id": ping.id})
        elif how == "comment":
            harness.stream.feed(BodyData(b":\n\n"))
        else:
            harness.say(notification("notifications/message", data="x"))
        harness.wait(IDLE - 2)
        assert harness.requests == []
        harness.keep_alive(1)
    assert harness.client.state is ClientState.READY
    assert ping is not None
    harness.say(response(ping.id))  # late
    assert [event for event in harness.events if isinstance(event, CallFailed)] == []


@pytest.mark.parametrize("how", ["held", "cut", "refused"])
def test_a_server_that_does_not_take_the_ping_shows_nothing(harness: SseHarness, how: str) -> None:
    """It may be busy with a call, or out of reach: the stream is kept, and tested again."""
    handle, id = harness.make(timeout=1000)
    harness.wait(IDLE)
    ping = take_ping(harness)
    if how == "cut":
        ping.cut()
    elif how == "refused":
        ping.refuse(503)
    if how == "held":
        harness.wait(POST + 1)
        assert ping.aborted  # its connection may be dead, too
    harness.wait(IDLE)
    take_ping(harness)
    harness.say(response(id))
    assert [event for event in harness.events if isinstance(event, CallCompleted)] == [
        CallCompleted(handle, {})
    ]


def test_a_client_that_reads_nothing_takes_no_silence_for_a_dead_stream(
    harness: SseHarness,
) -> None:
    harness.now += IDLE
    harness.run_command(harness.client.handle_timeout, is_reading=False)
    assert harness.requests == []


def test_a_silent_stream_in_the_opening_is_left_to_connect_timeout() -> None:
    harness = SseHarness(connect_timeout=100).start()
    harness.locate().accept()
    harness.wait(IDLE + POST)
    assert harness.requests == []
    assert harness.client.state is ClientState.CONNECTING


@pytest.mark.parametrize("what", ["call", "response", "notification", "ping"])
def test_a_message_url_that_is_gone_leads_to_a_new_session(harness: SseHarness, what: str) -> None:
    """An instance that does not know the session answers 404; the stream may live elsewhere."""
    other, _ = harness.make()
    if what == "call":
        _, asked = harness.call()
    elif what == "notification":
        harness.run_command(harness.client.notify, "notifications/x")
        asked = harness.take()
    elif what == "ping":
        harness.wait(IDLE)
        asked = take_ping(harness)
    else:
        harness.say(request("q", "elicitation/create"))
        harness.run_command(harness.client.respond, "q", {})
        asked = harness.take()
    harness.take_events()
    asked.refuse(404)
    assert harness.stream.aborted
    assert other in [event.call for event in harness.events if isinstance(event, CallFailed)]
    reopen(harness)
    handle, id = harness.make()
    harness.say(response(id))
    assert harness.events == [CallCompleted(handle, {})]


def test_sessions_that_are_forgotten_again_and_again_close_the_client() -> None:
    harness = SseHarness().connect()
    while True:
        _, asked = harness.call("tools/list")
        asked.refuse(404)
        if harness.client.state is ClientState.CLOSED:
            break
        harness.wait(10)
        harness.initialize()
        harness.requests.clear()
    assert "has discarded 6 sessions in a row" in str(harness.closed())


def test_a_forgotten_session_in_the_confirmation_is_opened_again() -> None:
    harness = SseHarness().start()
    harness.take_initialize()
    harness.take().refuse(404)
    assert harness.stream.aborted
    reopen(harness)


def test_a_call_whose_session_is_gone_says_so(harness: SseHarness) -> None:
    handle, asked = harness.call()
    asked.refuse(404)
    assert "HTTP 404" in str(only_failure(harness, handle))
