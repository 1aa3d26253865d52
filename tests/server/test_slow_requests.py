"""Requests whose body ends long after their head: what has changed in between counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import BodyData, BodyEnd, Limits, RequestHead

from .harness import BOTH, JSON, PING, RawExchange, ServerHarness, expect, initialize, request
from .sse_harness import SseClient


def begin(
    harness: ServerHarness,
    method: str,
    session: str | None = None,
    target: str = "/mcp",
    message: Any = None,
) -> RawExchange:
    """A request of which only the end is missing."""
    headers = {"host": "localhost", "accept": BOTH, "content-type": JSON}
    if session is not None:
        headers["mcp-session-id"] = session
    head = RequestHead(
        method=method.encode(),
        target=target.encode(),
        headers=tuple((name.encode(), value.encode()) for name, value in headers.items()),
    )
    talk = RawExchange(harness).feed(head)
    return talk if message is None else talk.feed(BodyData(json.dumps(message).encode()))


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_the_session_ends_in_between(method: str) -> None:
    harness = ServerHarness()
    session = harness.open_session()
    talk = begin(harness, method, session, message=request(1) if method == "POST" else None)
    harness.send("DELETE", {"mcp-session-id": session})
    id = 1 if method == "POST" else None
    expect(talk.feed(BodyEnd()), 404, "session_not_found", id=id)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_the_server_shuts_down_in_between(method: str) -> None:
    harness = ServerHarness()
    session = harness.open_session()
    talk = begin(harness, method, session, message=request(1) if method == "POST" else None)
    harness.run_action(harness.server.shut_down)
    assert talk.feed(BodyEnd()).status == 503
    assert talk.ended


def test_a_server_that_drains_in_between_starts_nothing() -> None:
    harness = ServerHarness()
    session = harness.open_session()
    call = begin(harness, "POST", session, message=request(1))
    opening = begin(harness, "POST", message=initialize())
    harness.run_action(harness.server.drain)
    expect(call.feed(BodyEnd()), 503, "shutting_down", id=1)
    refused = opening.feed(BodyEnd())
    assert (refused.status, refused.json["id"]) == (503, 0)
    assert len(harness.server.sessions) == 1


def test_http_sse_opens_no_stream_when_the_server_drains_in_between() -> None:
    harness = ServerHarness(http_sse="/sse")
    talk = begin(harness, "GET", target="/sse")
    harness.run_action(harness.server.drain)
    expect(talk.feed(BodyEnd()), 503, "shutting_down")


def test_http_sse_opens_no_stream_when_others_took_the_room_in_between() -> None:
    harness = ServerHarness(http_sse="/sse", limits=Limits(max_sessions=3))
    slow = [begin(harness, "GET", target="/sse") for _ in range(10)]
    statuses = [talk.feed(BodyEnd()).status for talk in slow]
    assert statuses == [200] * 3 + [503] * 7


@pytest.mark.parametrize("initialized", [True, False])
def test_the_stream_of_http_sse_ends_in_between(initialized: bool) -> None:
    harness = ServerHarness(http_sse="/sse")
    gone, stopped = SseClient(harness), SseClient(harness)
    if initialized:
        gone.open()
        stopped.open()
    talks = [
        begin(harness, "POST", target=each.uri, message=request(1)) for each in (gone, stopped)
    ]
    gone.stream.lose_connection()
    expect(talks[0].feed(BodyEnd()), 404, "session_not_found")
    harness.run_action(harness.server.shut_down)
    expect(talks[1].feed(BodyEnd()), 404, "session_not_found")


def test_the_end_of_a_stream_of_http_sse_is_not_sent_yet() -> None:
    harness = ServerHarness(http_sse="/sse")
    client = SseClient(harness)
    client.stream.reads = False
    talk = begin(harness, "POST", target=client.uri, message=json.loads(PING))
    harness.run_action(harness.server.shut_down)
    assert talk.feed(BodyEnd()).status == 202
    client.stream.reads = True
    client.stream.pull()
    assert client.stream.ended
    assert client.said == []
