"""Batches of the server: when one of their messages ends the client, the others are not heard."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.events import CallCompleted, Connected, ProtocolViolation, ServerNotified
from sansmcp.http import BodyData
from sansmcp.process import StdoutData

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


@pytest.mark.parametrize("transport", ["stdio", "http+sse", "stream"])
def test_any_number_of_batches_of_nothing_may_come_at_once(transport: str) -> None:
    """More than Python calls functions inside of another."""
    lines, events = b"[]\n" * 5000, b"data: []\n\n" * 5000
    if transport == "stdio":
        process = ProcessHarness().connect()
        handle, id = process.make()
        process.feed(StdoutData(lines))
        process.say(response(id))
        assert process.events == [CallCompleted(handle, {})]
    elif transport == "http+sse":
        session = SseHarness().connect()
        handle, asked = session.call()
        asked.accept()
        session.stream.feed(BodyData(events))
        session.say(response(asked.id))
        assert session.take_events() == [CallCompleted(handle, {})]
    else:
        harness = ClientHarness().connect()
        handle, asked = harness.call()
        asked.open_stream()
        asked.feed(BodyData(events))
        asked.event(response(asked.id))
        assert harness.take_events() == [CallCompleted(handle, {})]
