"""Cancelling a call and closing the client: both end at once, and the server is told."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, RequestCancelled
from sansmcp.events import CallCompleted, Closed, MessageUndelivered
from sansmcp.states import ClientState

from .bench import SESSION, Bench, only_failure, response

requirement = pytest.mark.requirement


# Cancelling


@requirement("CANCEL-B-001", "CANCEL-B-002", "CANCEL-B-005", "CANCEL-B-006")
def test_cancelling(bench: Bench) -> None:
    handle, asked = bench.call()
    assert bench.do(bench.client.cancel, handle, "bored") is True
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestCancelled)
    assert "bored" in str(failure)
    cancelled = bench.take()
    assert cancelled.json["params"] == {"requestId": asked.id, "reason": "bored"}
    cancelled.accept()
    assert asked.aborted
    assert bench.do(bench.client.cancel, handle) is False
    assert bench.do(bench.client.cancel, 99) is False
    assert bench.requests == []
    assert bench.events == []
    other, asked2 = bench.call()
    asked2.open_stream()
    asked2.event(response(asked.id))  # the late answer, on another stream
    assert bench.events == []
    asked2.event(response(asked2.id))
    assert bench.events == [CallCompleted(other, {})]
    assert bench.do(bench.client.cancel, other) is False
    assert bench.requests == []


def test_cancelling_before_the_handshake_is_done() -> None:
    bench = Bench()
    bench.do(bench.client.start)
    bench.take()
    handle = bench.do(bench.client.call, "tools/call")
    assert bench.do(bench.client.cancel, handle)
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    assert bench.requests == []


def test_a_failed_cancellation_is_reported(bench: Bench) -> None:
    handle, _ = bench.call()
    bench.do(bench.client.cancel, handle)
    bench.take().refuse(500, b"broken")
    assert isinstance(bench.events[-1], MessageUndelivered)
    assert "broken" in bench.events[-1].reason


# Closing


@requirement("SESSION-C-004", "SESSION-C-002", "LIFECYCLE-B-018")
@pytest.mark.parametrize("status", [200, 204, 404, 405, 500, None])
def test_closing_ends_the_session_and_all_calls(bench: Bench, status: int | None) -> None:
    handle, asked = bench.call()
    bench.do(bench.client.close)
    bench.do(bench.client.close)
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    assert asked.aborted
    assert bench.client.state.name == "CLOSING"
    farewell = bench.take("DELETE")
    assert farewell.header("mcp-session-id") == SESSION
    assert farewell.header("mcp-protocol-version") == "2025-11-25"
    if status is None:
        farewell.cut()
    else:
        farewell.refuse(status)
    assert bench.events == [Closed(None)]
    assert bench.client.state is ClientState.CLOSED
    assert bench.client.next_deadline() is None
    for command in (bench.client.call, bench.client.notify):
        with pytest.raises(LocalProtocolError, match="closed"):
            command("x", now=0)
    assert not bench.client.respond(1, {}, now=0)  # nobody wants the answer any more


def test_closing_does_not_wait_for_ever(bench: Bench) -> None:
    bench.do(bench.client.close)
    farewell = bench.take("DELETE")
    bench.wait(5)
    assert bench.events == [Closed(None)]
    assert farewell.aborted


def test_closing_before_anything_has_begun() -> None:
    bench = Bench()
    bench.do(bench.client.close)
    assert bench.events == [Closed(None)]
    bench = Bench()
    bench.do(bench.client.start)
    asked = bench.take()
    bench.do(bench.client.close)
    assert asked.aborted
    assert bench.events == [Closed(None)]
    bench = Bench()
    bench.do(bench.client.start)
    bench.take_initialize()
    bench.take()
    bench.do(bench.client.close)
    assert bench.take("DELETE").header("mcp-session-id") == SESSION
