"""The standalone stream: what belongs to no call is heard there, and losing it hurts nobody."""

from __future__ import annotations

import pytest

from sansmcp import Limits
from sansmcp.events import (
    CallCompleted,
    ProtocolViolation,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    StandaloneStreamClosed,
)

from .harness import SESSION, Asked, ClientHarness, notification, request, response

requirement = pytest.mark.requirement


@pytest.fixture
def listening() -> tuple[ClientHarness, Asked]:
    harness = ClientHarness(standalone_stream=True, capabilities={"roots": {}}).connect()
    return harness, harness.take("GET")


@requirement("SHTTP-C-009", "SHTTP-C-010", "LIFECYCLE-B-015")
def test_the_listener_hears_what_belongs_to_no_call(listening: tuple[ClientHarness, Asked]) -> None:
    harness, asked = listening
    assert asked.header("last-event-id") is None
    assert asked.header("mcp-session-id") == SESSION
    asked.open_stream()
    asked.event(id="s1")
    asked.event(notification("notifications/tools/list_changed"), id="s2")
    (event,) = harness.take_events()
    assert isinstance(event, ServerNotified)
    assert event.call is None
    asked.event(request(1, "ping"))
    assert harness.take().json == response(1)
    asked.event(b"{")
    assert isinstance(harness.events[-1], ProtocolViolation)


@requirement("SHTTP-C-007", "SHTTP-S-012")
def test_questions_that_belong_to_no_call_are_refused(
    listening: tuple[ClientHarness, Asked],
) -> None:
    harness, asked = listening
    asked.open_stream()
    asked.event(request(1, "roots/list"))
    answer = harness.take().json
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)
    harness.call()
    asked.event(request(2, "roots/list"))  # older servers use the wrong stream
    (event,) = harness.events
    assert isinstance(event, ServerRequestReceived)
    assert harness.run_command(harness.client.respond, 2, {"roots": []})


def test_a_question_on_the_standalone_stream_can_be_withdrawn(
    listening: tuple[ClientHarness, Asked],
) -> None:
    harness, asked = listening
    harness.call()
    asked.open_stream()
    asked.event(request(2, "roots/list"))
    asked.event(notification("notifications/cancelled", requestId=2))
    assert harness.events[-1] == ServerRequestCancelled(2, "cancelled by the server")
    assert harness.run_command(harness.client.respond, 2, {}) is False


# A listener that ends


@requirement("SHTTP-S-019")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 409, 200, 204])
def test_a_refused_listener_hurts_nobody(
    listening: tuple[ClientHarness, Asked], status: int
) -> None:
    harness, asked = listening
    asked.refuse(status, content_type="text/plain")
    (event,) = harness.take_events()
    assert isinstance(event, StandaloneStreamClosed)
    assert str(status) in event.reason
    harness.wait(1000)
    assert harness.requests == []
    handle, call = harness.call()
    call.result()
    assert harness.events == [CallCompleted(handle, {})]


@requirement("POLL-S-006", "SHTTP-S-024")
def test_a_broken_listener_comes_back(listening: tuple[ClientHarness, Asked]) -> None:
    harness, asked = listening
    asked.open_stream()
    asked.end()
    harness.wait(1.1)
    fresh = harness.take("GET")
    assert fresh.header("last-event-id") is None
    fresh.open_stream()
    fresh.event(id="s7")
    fresh.cut()
    harness.wait(1)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "s7"
    resumed.refuse(400)  # the server has forgotten: better a new stream than none
    harness.wait(2)
    assert harness.take("GET").header("last-event-id") is None


def test_a_listener_without_progress_is_given_up(listening: tuple[ClientHarness, Asked]) -> None:
    harness, asked = listening
    for _ in range(4):
        asked.open_stream()
        asked.cut()
        harness.wait(8)
        asked = harness.take("GET")
    asked.refuse(502)
    assert isinstance(harness.events[-1], StandaloneStreamClosed)
    assert "given up" in harness.events[-1].reason
    harness.wait(1000)
    assert harness.requests == []


def test_a_listener_that_cannot_be_read_is_given_up() -> None:
    harness = ClientHarness(standalone_stream=True, limits=Limits(max_message_bytes=300)).connect()
    asked = harness.take("GET")
    asked.open_stream()
    asked.event(b"x" * 400)
    assert isinstance(harness.events[-1], StandaloneStreamClosed)
    assert asked.aborted


def redirected(harness: ClientHarness, asked: Asked) -> Asked:
    """Send a listener elsewhere; returns what follows."""
    asked.refuse(307, location="/elsewhere")
    followed = harness.take("GET")
    assert followed.effect.url == "http://localhost:8000/elsewhere"
    assert followed.header("mcp-session-id") == SESSION
    assert harness.events == []
    return followed


@pytest.mark.parametrize("is_open", [True, False])
def test_closing_ends_a_listener_that_was_redirected(
    listening: tuple[ClientHarness, Asked], is_open: bool
) -> None:
    harness, asked = listening
    followed = redirected(harness, asked)
    if is_open:
        followed.open_stream()
    harness.run_command(harness.client.close)
    assert followed.aborted
    harness.take("DELETE").refuse(200)
    harness.wait(1000)
    assert harness.requests == []


def test_a_listener_that_was_redirected_is_replaced_when_it_is_silent(
    listening: tuple[ClientHarness, Asked],
) -> None:
    harness, asked = listening
    followed = redirected(harness, asked)
    followed.open_stream()
    followed.event(id="s1")
    harness.wait(harness.client.limits.stream_idle_timeout)
    assert followed.aborted
    again = harness.take("GET")
    assert again.effect.url == followed.effect.url
    assert again.header("last-event-id") == "s1"


@requirement("SHTTP-C-011")
def test_closing_ends_the_listener(listening: tuple[ClientHarness, Asked]) -> None:
    harness, asked = listening
    asked.open_stream()
    harness.run_command(harness.client.close)
    assert asked.aborted
    harness.take("DELETE").refuse(200)
    harness.wait(1000)
    assert harness.requests == []
