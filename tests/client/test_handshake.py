"""The handshake: what is offered, what is accepted, and every way in which it fails."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    CallError,
    Client,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    LocalProtocolError,
    NegotiationFailed,
    RequestRefused,
    RequestTimeout,
)
from sansmcp.events import CallFailed, Closed, Connected, MessageUndelivered, ProtocolViolation
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp.states import ClientState

from .bench import (
    LATEST,
    ONCE,
    POLICY,
    SESSION,
    URL,
    Asked,
    Bench,
    error,
    initialized,
    notification,
)

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> Bench:
    bench = Bench(reconnect=ONCE)
    bench.do(bench.client.start)
    return bench


def failure(bench: Bench) -> CallError:
    """The client is closed, and says why."""
    event = bench.events[-1]
    assert isinstance(event, Closed)
    assert event.error is not None
    assert bench.client.state is ClientState.CLOSED
    assert bench.client.next_deadline() is None
    return event.error


@requirement(
    "LIFECYCLE-C-001",
    "LIFECYCLE-C-004",
    "LIFECYCLE-C-005",
    "LIFECYCLE-C-008",
    "SHTTP-C-001",
    "SHTTP-C-002",
    "SHTTP-C-003",
    "SESSION-C-005",
)
def test_initialize_comes_first() -> None:
    bench = Bench(
        name="me",
        version="7",
        capabilities={"roots": {}},
        headers=((b"authorization", b"Bearer x"),),
    )
    bench.do(bench.client.start)
    asked = bench.take()
    assert asked.json == {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "me", "version": "7"},
        },
    }
    assert asked.effect.url == URL
    assert asked.effect.head.target == b"/mcp"
    assert asked.header("content-type") == "application/json"
    assert asked.header("accept") == "application/json, text/event-stream"
    assert asked.header("authorization") == "Bearer x"
    assert asked.header("mcp-session-id") is None
    assert asked.header("mcp-protocol-version") is None
    assert "Bearer x" not in repr(asked.effect)


@requirement("LIFECYCLE-C-004")
@pytest.mark.parametrize("count", range(1, len(HANDSHAKE_VERSIONS) + 1))
def test_the_newest_of_the_versions_that_were_set_is_offered(count: int) -> None:
    versions = HANDSHAKE_VERSIONS[:count]
    bench = Bench(versions=versions)
    bench.do(bench.client.start)
    assert bench.take().json["params"]["protocolVersion"] == versions[-1]


@requirement("LIFECYCLE-C-002", "LIFECYCLE-C-003", "VERS-C-001", "VERS-C-002", "SESSION-C-002")
def test_calls_wait_until_the_server_has_taken_the_notification(bench: Bench) -> None:
    bench.do(bench.client.call, "tools/call", {"name": "x"})
    bench.take_initialize()
    confirmation = bench.take()
    assert confirmation.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert confirmation.header("mcp-session-id") == SESSION
    assert confirmation.header("mcp-protocol-version") == LATEST
    assert bench.events == []
    confirmation.accept()
    assert bench.events == [
        Connected(
            transport="streamable-http",
            version=LATEST,
            server_info={"name": "server", "version": "1"},
            capabilities={"tools": {}},
            instructions=None,
        )
    ]
    asked = bench.take()
    assert asked.json["method"] == "tools/call"
    assert asked.header("mcp-session-id") == SESSION


@requirement("VERS-C-001", "LIFECYCLE-B-002")
@pytest.mark.parametrize(
    ("version", "header"),
    [("2024-11-05", None), ("2025-03-26", None), ("2025-06-18", "2025-06-18"), (LATEST, LATEST)],
)
def test_the_version_header_is_sent_where_it_exists(
    bench: Bench, version: str, header: str | None
) -> None:
    bench.take_initialize(version)
    confirmation = bench.take()
    assert confirmation.header("mcp-protocol-version") == header
    confirmation.accept()
    assert isinstance(bench.events[-1], Connected)
    assert bench.events[-1].version == version


def test_a_server_without_sessions(bench: Bench) -> None:
    bench.shake_hands(session=None)
    _, asked = bench.call()
    assert asked.header("mcp-session-id") is None
    bench.do(bench.client.close)
    assert bench.requests == []
    assert isinstance(bench.events[-1], Closed)


def test_the_answer_may_be_a_stream(bench: Bench) -> None:
    asked = bench.take()
    asked.head(content_type="text/event-stream; charset=utf-8", mcp_session_id=SESSION)
    asked.event(notification("notifications/message", data=1))
    asked.event(b"not json")
    asked.event(initialized(asked.id))
    assert bench.take().header("mcp-session-id") == SESSION
    asked.end()
    assert not asked.aborted
    assert isinstance(bench.events[-1], ProtocolViolation)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_takes_the_notification(bench: Bench, status: int) -> None:
    bench.take_initialize()
    bench.take().refuse(status, b"whatever", content_type="text/html")
    assert isinstance(bench.events[-1], Connected)


def test_a_stream_as_the_answer_to_the_notification_is_not_waited_for(bench: Bench) -> None:
    bench.take_initialize()
    asked = bench.take()
    asked.open_stream()
    assert asked.aborted
    assert isinstance(bench.events[-1], Connected)


def test_instructions_are_told(bench: Bench) -> None:
    asked = bench.take()
    message = initialized(asked.id)
    message["result"]["instructions"] = "be nice"
    message["result"]["serverInfo"] = "odd"
    asked.answer(message)
    bench.take().accept()
    (event,) = bench.events
    assert isinstance(event, Connected)
    assert (event.instructions, event.server_info) == ("be nice", {})


# Failures


@requirement("LIFECYCLE-C-006")
@pytest.mark.parametrize("version", ["2026-07-28", "1.0", "draft"])
def test_no_common_version(bench: Bench, version: str) -> None:
    bench.take_initialize(version)
    error = failure(bench)
    assert isinstance(error, NegotiationFailed)
    assert version in str(error)
    assert LATEST in str(error)


@pytest.mark.parametrize("result", [{}, {"protocolVersion": 1}, [], None, "x"])
def test_an_answer_without_a_version(bench: Bench, result: Any) -> None:
    asked = bench.take()
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "result": result})
    assert isinstance(failure(bench), InvalidResponse)


@pytest.mark.parametrize("session", ["", "a b", "\x01", "x" * 2000])
def test_an_illegal_session_id(bench: Bench, session: str) -> None:
    asked = bench.take()
    asked.answer(initialized(asked.id), mcp_session_id=session)
    assert isinstance(failure(bench), InvalidResponse)


@pytest.mark.parametrize("status", [200, 400, 500])
def test_an_error_of_the_server(bench: Bench, status: int) -> None:
    asked = bench.take()
    asked.answer(error(asked.id, -32602, "bad version"), status)
    raised = failure(bench)
    assert isinstance(raised, JsonRpcError)
    assert (raised.code, raised.message) == (-32602, "bad version")


@pytest.mark.parametrize(
    ("status", "body", "part"),
    [
        (401, b"", "HTTP 401: the server requires authorization"),
        (
            403,
            b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"not from there",'
            b'"data":{"reason":"origin_not_allowed"}}}',
            "not from there",
        ),
        (200, b"<html>", "text/html instead of JSON"),
        (202, b"", "HTTP 202"),
        (204, b"", "HTTP 204"),
    ],
)
def test_no_mcp_server(bench: Bench, status: int, body: bytes, part: str) -> None:
    bench.take().refuse(status, body, content_type="text/html")
    error = failure(bench)
    assert isinstance(error, RequestRefused)
    assert part in str(error)
    assert f"POST {URL}" in str(error)
    assert (error.status, error.url, error.http_method, error.body) == (status, URL, "POST", body)
    assert error.reason == ("origin_not_allowed" if status == 403 else None)


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b'{"jsonrpc":"2.0","id":0}'])
def test_an_answer_that_cannot_be_read(bench: Bench, body: bytes) -> None:
    bench.take().answer(body)
    error = failure(bench)
    if body == b"[]":
        assert isinstance(error, Disconnected)
    else:
        assert isinstance(error, InvalidResponse)
        assert error.__cause__ is not None


@pytest.mark.parametrize("begun", [False, True])
def test_a_connection_that_breaks(begun: bool) -> None:
    bench = Bench(reconnect=POLICY if begun else ONCE)
    bench.do(bench.client.start)
    asked = bench.take()
    if begun:
        asked.open_stream()
        asked.event(id="1")
    asked.cut("no route to host")
    if begun:  # an event id was seen: the answer can be fetched
        bench.wait(0.5)
        resumed = bench.take("GET")
        assert resumed.header("last-event-id") == "1"
        resumed.open_stream()
        resumed.event(initialized(asked.id))
        assert bench.take().json["method"] == "notifications/initialized"
    else:
        error = failure(bench)
        assert isinstance(error, Disconnected)
        assert "no route to host" in str(error)


@requirement("CANCEL-C-001", "LIFECYCLE-B-003")
@pytest.mark.parametrize("confirming", [False, True])
def test_a_server_that_does_not_answer(bench: Bench, confirming: bool) -> None:
    if confirming:
        bench.take_initialize()
    asked = bench.take()
    bench.wait(29)
    assert bench.events == []
    bench.wait(1)
    error = failure(bench)
    assert isinstance(error, RequestTimeout)
    assert error.seconds == 30
    assert asked.aborted
    assert bench.requests == []


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_server_that_does_not_take_the_notification(bench: Bench, status: int) -> None:
    bench.take_initialize()
    bench.take().refuse(status, b"no")
    assert str(status) in str(failure(bench))
    assert isinstance(bench.events[0], MessageUndelivered)


def test_calls_that_wait_fail_with_the_handshake(bench: Bench) -> None:
    handle = bench.do(bench.client.call, "tools/list")
    bench.take().refuse(500)
    (failed, closed) = bench.events
    assert isinstance(failed, CallFailed)
    assert isinstance(closed, Closed)
    assert failed.call == handle
    assert isinstance(failed.error, Disconnected)
    assert failed.error.__cause__ is closed.error


def test_a_question_during_the_handshake_finds_its_way(bench: Bench) -> None:
    asked = bench.take()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert bench.take().json == {"jsonrpc": "2.0", "id": 1, "result": {}}


# Redirects


def redirected(bench: Bench, status: int, location: str) -> Asked | None:
    bench.take().refuse(status, location=location)
    return bench.take() if bench.requests else None


@requirement("SSE-C-029")
@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/mcp/", "http://localhost:8000/mcp/", "mcp/", "?x=1"])
def test_redirects_within_the_origin_are_followed(bench: Bench, status: int, location: str) -> None:
    asked = redirected(bench, status, location)
    assert asked is not None
    assert asked.json["method"] == "initialize"
    asked.answer(initialized(asked.id))
    assert bench.take().effect.url == asked.effect.url  # it is remembered


@requirement("SESSION-C-001")
@pytest.mark.parametrize(
    ("status", "location"),
    [
        (307, "https://localhost:8000/mcp"),
        (307, "http://localhost:8001/mcp"),
        (307, "http://evil.example/mcp"),
        (308, "//evil.example/"),
        (307, "file:///etc/passwd"),
        (307, "http://[::1"),
        (301, "/mcp/"),
        (302, "/mcp/"),
        (303, "/mcp/"),
    ],
)
def test_other_redirects_are_not(bench: Bench, status: int, location: str) -> None:
    assert redirected(bench, status, location) is None
    error = failure(bench)
    assert isinstance(error, RequestRefused)
    assert location in str(error)


def test_redirects_are_bounded(bench: Bench) -> None:
    for _ in range(3):
        bench.take().refuse(307, location="/mcp")
    assert redirected(bench, 307, "/mcp") is None
    assert isinstance(failure(bench), RequestRefused)


def test_a_redirect_without_a_location(bench: Bench) -> None:
    bench.take().refuse(307)
    assert isinstance(failure(bench), RequestRefused)


# Holding it wrong


def test_what_cannot_be_done_is_refused_at_once() -> None:
    with pytest.raises(LocalProtocolError, match="URL"):
        Client("localhost:8000", jitter=float)
    with pytest.raises(LocalProtocolError, match="version"):
        Client(URL, jitter=float, versions=("2025-11-25", "nope"))
    bench = Bench()
    with pytest.raises(LocalProtocolError, match="Connected"):
        bench.client.notify("x", now=0)
    bench.do(bench.client.start)
    with pytest.raises(LocalProtocolError):
        bench.client.start(now=0)
    assert len(bench.requests) == 1
