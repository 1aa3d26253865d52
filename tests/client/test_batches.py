"""Batches of the server: when one of their messages ends the client, the others are not heard."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.events import Connected, ProtocolViolation, ServerNotified

from .detection_harness import failure
from .harness import ClientHarness, error, initialized, notification, request, response
from .process_harness import ProcessHarness
from .sse_harness import SseHarness

requirement = pytest.mark.requirement
ENDINGS = [error(0), response(0, {}), initialized(0, "1999-01-01")]
REST = [
    error(0),
    response(0),
    initialized(0),
    notification("n"),
    request(1, "ping"),
    {"jsonrpc": "2.0", "id": 0},
    {"bad": 1},
]


def answered(transport: str, batch: list[Any]) -> ClientHarness:
    """A client whose ``initialize`` is answered by a batch."""
    if transport == "stdio":
        process = ProcessHarness().start()
        process.say(batch)
        return process
    if transport == "http+sse":
        harness = SseHarness().start()
        harness.locate().accept()
        harness.say(batch)
        return harness
    streamable = ClientHarness()
    streamable.run_command(streamable.client.start)
    asked = streamable.take()
    if transport == "stream":
        asked.open_stream()
        asked.event(batch)
    else:
        asked.answer(batch)
    return streamable


@requirement("JSONRPC-B-038")
@pytest.mark.parametrize("transport", ["stdio", "http+sse", "stream", "json"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_follows_an_end_is_not_heard(transport: str, ending: Any) -> None:
    harness = answered(transport, [ending, *REST])
    if isinstance(harness, ProcessHarness):
        assert harness.events == []
        assert harness.written == []
        harness.exit()
    failure(harness)
    assert len(harness.events) == 1


@pytest.mark.parametrize("transport", ["stdio", "http+sse", "stream", "json"])
def test_what_comes_with_the_answer_is_heard(transport: str) -> None:
    harness = answered(transport, [notification("a"), initialized(0), notification("b")])
    if not isinstance(harness, ProcessHarness):
        harness.take().accept()
    names = [e.notification.method for e in harness.events if isinstance(e, ServerNotified)]
    assert names == ["a", "b"]
    assert any(isinstance(event, Connected) for event in harness.events)


@pytest.mark.parametrize("transport", ["stdio", "http+sse", "stream", "json"])
def test_what_comes_with_the_answer_and_is_no_message_is_reported(transport: str) -> None:
    harness = answered(transport, [initialized(0), {"bad": 1}, notification("b")])
    if not isinstance(harness, ProcessHarness):
        harness.take().accept()
    kinds = [type(event) for event in harness.events]
    assert sorted(kinds, key=str) == sorted([Connected, ServerNotified, ProtocolViolation], key=str)
