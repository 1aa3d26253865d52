"""Cancelling a call and closing the client: both end at once, and the server is told."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, RequestCancelled
from sansmcp.events import CallCompleted, Closed, MessageUndelivered
from sansmcp.states import ClientState

from .harness import SESSION, ClientHarness, only_failure, response

requirement = pytest.mark.requirement


# Cancelling


@requirement("CANCEL-B-001", "CANCEL-B-002", "CANCEL-B-005", "CANCEL-B-006")
def test_cancelling(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    assert harness.run_command(harness.client.cancel, handle, "bored") is True
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestCancelled)
    assert "bored" in str(failure)
    cancelled = harness.take()
    assert cancelled.json["params"] == {"requestId": asked.id, "reason": "bored"}
    cancelled.accept()
    assert asked.aborted
    assert harness.run_command(harness.client.cancel, handle) is False
    assert harness.run_command(harness.client.cancel, 99) is False
    assert harness.requests == []
    assert harness.events == []
    other, asked2 = harness.call()
    asked2.open_stream()
    asked2.event(response(asked.id))  # the late answer, on another stream
    assert harness.events == []
    asked2.event(response(asked2.id))
    assert harness.events == [CallCompleted(other, {})]
    assert harness.run_command(harness.client.cancel, other) is False
    assert harness.requests == []


def test_cancelling_before_the_handshake_is_done() -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    harness.take()
    handle = harness.run_command(harness.client.call, "tools/call")
    assert harness.run_command(harness.client.cancel, handle)
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    assert harness.requests == []


def test_a_failed_cancellation_is_reported(harness: ClientHarness) -> None:
    handle, _ = harness.call()
    harness.run_command(harness.client.cancel, handle)
    harness.take().refuse(500, b"broken")
    assert isinstance(harness.events[-1], MessageUndelivered)
    assert "broken" in harness.events[-1].reason


# Closing


@requirement("SESSION-C-004", "SESSION-C-002", "LIFECYCLE-B-018")
@pytest.mark.parametrize("status", [200, 204, 404, 405, 500, None])
def test_closing_ends_the_session_and_all_calls(harness: ClientHarness, status: int | None) -> None:
    handle, asked = harness.call()
    harness.run_command(harness.client.close)
    harness.run_command(harness.client.close)
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    assert asked.aborted
    assert harness.client.state.name == "CLOSING"
    farewell = harness.take("DELETE")
    assert farewell.header("mcp-session-id") == SESSION
    assert farewell.header("mcp-protocol-version") == "2025-11-25"
    if status is None:
        farewell.cut()
    else:
        farewell.refuse(status)
    assert harness.events == [Closed(None)]
    assert harness.client.state is ClientState.CLOSED
    assert harness.client.next_deadline() is None
    for command in (harness.client.call, harness.client.notify):
        with pytest.raises(LocalProtocolError, match="closed"):
            command("x", now=0)
    assert not harness.client.respond(1, {}, now=0)  # nobody wants the answer any more


def test_closing_does_not_wait_for_ever(harness: ClientHarness) -> None:
    harness.run_command(harness.client.close)
    farewell = harness.take("DELETE")
    harness.wait(5)
    assert harness.events == [Closed(None)]
    assert farewell.aborted


def test_closing_before_anything_has_begun() -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.close)
    assert harness.events == [Closed(None)]
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    asked = harness.take()
    harness.run_command(harness.client.close)
    assert asked.aborted
    assert harness.events == [Closed(None)]
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    harness.take_initialize()
    harness.take()
    harness.run_command(harness.client.close)
    assert harness.take("DELETE").header("mcp-session-id") == SESSION
