"""Batches of the server: when one of their messages ends the client, the others are not heard."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.events import Connected, ProtocolViolation, ServerNotified

from .bench import Bench, error, initialized, notification, request, response
from .detection_bench import failure
from .process_bench import ProcessBench
from .sse_bench import SseBench

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


def answered(transport: str, batch: list[Any]) -> Bench:
    """A client whose ``initialize`` is answered by a batch."""
    if transport == "stdio":
        process = ProcessBench().start()
        process.say(batch)
        return process
    if transport == "http+sse":
        bench = SseBench().start()
        bench.locate().accept()
        bench.say(batch)
        return bench
    streamable = Bench()
    streamable.do(streamable.client.start)
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
    bench = answered(transport, [ending, *REST])
    if isinstance(bench, ProcessBench):
        assert bench.events == []
        assert bench.written == []
        bench.exit()
    failure(bench)
    assert len(bench.events) == 1


@pytest.mark.parametrize("transport", ["stdio", "http+sse", "stream", "json"])
def test_what_comes_with_the_answer_is_heard(transport: str) -> None:
    bench = answered(transport, [notification("a"), initialized(0), notification("b")])
    if not isinstance(bench, ProcessBench):
        bench.take().accept()
    names = [e.notification.method for e in bench.events if isinstance(e, ServerNotified)]
    assert names == ["a", "b"]
    assert any(isinstance(event, Connected) for event in bench.events)


@pytest.mark.parametrize("transport", ["stdio", "http+sse", "stream", "json"])
def test_what_comes_with_the_answer_and_is_no_message_is_reported(transport: str) -> None:
    bench = answered(transport, [initialized(0), {"bad": 1}, notification("b")])
    if not isinstance(bench, ProcessBench):
        bench.take().accept()
    kinds = [type(event) for event in bench.events]
    assert sorted(kinds, key=str) == sorted([Connected, ServerNotified, ProtocolViolation], key=str)
