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

from .harness import (
    LATEST,
    ONCE,
    POLICY,
    SESSION,
    URL,
    Asked,
    ClientHarness,
    error,
    initialized,
    notification,
)

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ClientHarness:
    harness = ClientHarness(reconnect=ONCE)
    harness.run_command(harness.client.start)
    return harness


def failure(harness: ClientHarness) -> CallError:
    """The client is closed, and says why."""
    event = harness.events[-1]
    assert isinstance(event, Closed)
    assert event.error is not None
    assert harness.client.state is ClientState.CLOSED
    assert harness.client.next_deadline() is None
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
    harness = ClientHarness(
        name="me",
        version="7",
        capabilities={"roots": {}},
        headers=((b"authorization", b"Bearer x"),),
    )
    harness.run_command(harness.client.start)
    asked = harness.take()
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
    harness = ClientHarness(versions=versions)
    harness.run_command(harness.client.start)
    assert harness.take().json["params"]["protocolVersion"] == versions[-1]


@requirement("LIFECYCLE-C-002", "LIFECYCLE-C-003", "VERS-C-001", "VERS-C-002", "SESSION-C-002")
def test_calls_wait_until_the_server_has_taken_the_notification(harness: ClientHarness) -> None:
    harness.run_command(harness.client.call, "tools/call", {"name": "x"})
    harness.take_initialize()
    confirmation = harness.take()
    assert confirmation.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert confirmation.header("mcp-session-id") == SESSION
    assert confirmation.header("mcp-protocol-version") == LATEST
    assert harness.events == []
    confirmation.accept()
    assert harness.events == [
        Connected(
            transport="streamable-http",
            version=LATEST,
            server_info={"name": "server", "version": "1"},
            capabilities={"tools": {}},
            instructions=None,
        )
    ]
    asked = harness.take()
    assert asked.json["method"] == "tools/call"
    assert asked.header("mcp-session-id") == SESSION


@requirement("VERS-C-001", "LIFECYCLE-B-002")
@pytest.mark.parametrize(
    ("version", "header"),
    [("2024-11-05", None), ("2025-03-26", None), ("2025-06-18", "2025-06-18"), (LATEST, LATEST)],
)
def test_the_version_header_is_sent_where_it_exists(
    harness: ClientHarness, version: str, header: str | None
) -> None:
    harness.take_initialize(version)
    confirmation = harness.take()
    assert confirmation.header("mcp-protocol-version") == header
    confirmation.accept()
    assert isinstance(harness.events[-1], Connected)
    assert harness.events[-1].version == version


def test_a_server_without_sessions(harness: ClientHarness) -> None:
    harness.initialize(session=None)
    _, asked = harness.call()
    assert asked.header("mcp-session-id") is None
    harness.run_command(harness.client.close)
    assert harness.requests == []
    assert isinstance(harness.events[-1], Closed)


def test_the_answer_may_be_a_stream(harness: ClientHarness) -> None:
    asked = harness.take()
    asked.head(content_type="text/event-stream; charset=utf-8", mcp_session_id=SESSION)
    asked.event(notification("notifications/message", data=1))
    asked.event(b"not json")
    asked.event(initialized(asked.id))
    assert harness.take().header("mcp-session-id") == SESSION
    asked.end()
    assert not asked.aborted
    assert isinstance(harness.events[-1], ProtocolViolation)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_takes_the_notification(harness: ClientHarness, status: int) -> None:
    harness.take_initialize()
    harness.take().refuse(status, b"whatever", content_type="text/html")
    assert isinstance(harness.events[-1], Connected)


def test_a_stream_as_the_answer_to_the_notification_is_not_waited_for(
    harness: ClientHarness,
) -> None:
    harness.take_initialize()
    asked = harness.take()
    asked.open_stream()
    assert asked.aborted
    assert isinstance(harness.events[-1], Connected)


def test_instructions_are_told(harness: ClientHarness) -> None:
    asked = harness.take()
    message = initialized(asked.id)
    message["result"]["instructions"] = "be nice"
    message["result"]["serverInfo"] = "odd"
    asked.answer(message)
    harness.take().accept()
    (event,) = harness.events
    assert isinstance(event, Connected)
    assert (event.instructions, event.server_info) == ("be nice", {})


# Failures


@requirement("LIFECYCLE-C-006")
@pytest.mark.parametrize("version", ["2026-07-28", "1.0", "draft"])
def test_no_common_version(harness: ClientHarness, version: str) -> None:
    harness.take_initialize(version)
    error = failure(harness)
    assert isinstance(error, NegotiationFailed)
    assert version in str(error)
    assert LATEST in str(error)


@pytest.mark.parametrize("result", [{}, {"protocolVersion": 1}, [], None, "x"])
def test_an_answer_without_a_version(harness: ClientHarness, result: Any) -> None:
    asked = harness.take()
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "result": result})
    assert isinstance(failure(harness), InvalidResponse)


@pytest.mark.parametrize("session", ["", "a b", "\x01", "x" * 2000])
def test_an_illegal_session_id(harness: ClientHarness, session: str) -> None:
    asked = harness.take()
    asked.answer(initialized(asked.id), mcp_session_id=session)
    assert isinstance(failure(harness), InvalidResponse)


OLDER = "Unsupported protocol version: 2025-11-25 (supported versions: 2024-11-05, 2025-06-18)"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (error(0, -32602, OLDER), 200),
        (error(0, -32602, OLDER), 400),
        (error(None, -32000, OLDER), 400),
        (error(0, -32602, "no", data={"supported": ["2023-01-01", "2025-06-18"]}), 200),
        (error(0, -32022, "no", data={"supported": ["2025-06-18"]}), 400),
        (error(None, -32602, "no", data={"supported": ["2025-06-18"]}), 400),
    ],
)
def test_a_server_that_names_older_versions_is_offered_the_newest(
    harness: ClientHarness, answer: dict[str, Any], status: int
) -> None:
    """It should respond to ``initialize`` with one of its versions, and refuses it instead."""
    asked = harness.take()
    assert asked.json["params"]["protocolVersion"] == LATEST
    asked.answer({**answer, "id": None if answer["id"] is None else asked.id}, status)
    again = harness.take()
    assert again.json["method"] == "initialize"
    assert again.json["params"]["protocolVersion"] == "2025-06-18"
    again.answer(initialized(again.id, version="2025-06-18"))
    harness.take().answer(None, 202)
    assert harness.client.state is ClientState.READY


def test_a_server_that_refuses_each_version_ends_the_opening(harness: ClientHarness) -> None:
    """Each offer is older than the last one; the error has those before it."""
    text = "supported: " + ", ".join(HANDSHAKE_VERSIONS)
    for version in reversed(HANDSHAKE_VERSIONS):
        asked = harness.take()
        assert asked.json["params"]["protocolVersion"] == version
        asked.answer(error(asked.id, -32602, text), 400)
    raised = failure(harness)
    assert isinstance(raised, JsonRpcError)
    assert len(raised.attempts) == len(HANDSHAKE_VERSIONS) - 1


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (error(0, -32602, "no", data={"supported": [LATEST, "2025-06-18"]}), 200),
        (error(0, -32602, "no", data={"supported": ["2023-01-01"]}), 200),
        (error(0, -32602, f"{OLDER}".replace("2025-06-18", "x").replace("2024-11-05", "y")), 200),
        (error(None, -32000, OLDER), 403),
    ],
)
def test_other_refusals_are_not_about_the_version(
    harness: ClientHarness, answer: dict[str, Any], status: int
) -> None:
    asked = harness.take()
    asked.answer({**answer, "id": None if answer["id"] is None else asked.id}, status)
    assert isinstance(failure(harness), CallError)


@pytest.mark.parametrize("status", [200, 400, 500])
def test_an_error_of_the_server(harness: ClientHarness, status: int) -> None:
    asked = harness.take()
    asked.answer(error(asked.id, -32602, "bad version"), status)
    raised = failure(harness)
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
def test_no_mcp_server(harness: ClientHarness, status: int, body: bytes, part: str) -> None:
    harness.take().refuse(status, body, content_type="text/html")
    error = failure(harness)
    assert isinstance(error, RequestRefused)
    assert part in str(error)
    assert f"POST {URL}" in str(error)
    assert (error.status, error.url, error.http_method, error.body) == (status, URL, "POST", body)
    assert error.reason == ("origin_not_allowed" if status == 403 else None)


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b'{"jsonrpc":"2.0","id":0}'])
def test_an_answer_that_cannot_be_read(harness: ClientHarness, body: bytes) -> None:
    harness.take().answer(body)
    error = failure(harness)
    if body == b"[]":
        assert isinstance(error, Disconnected)
    else:
        assert isinstance(error, InvalidResponse)
        assert error.__cause__ is not None


@pytest.mark.parametrize("begun", [False, True])
def test_a_connection_that_breaks(begun: bool) -> None:
    harness = ClientHarness(reconnect=POLICY if begun else ONCE)
    harness.run_command(harness.client.start)
    asked = harness.take()
    if begun:
        asked.open_stream()
        asked.event(id="1")
    asked.cut("no route to host")
    if begun:  # an event id was seen: the answer can be fetched
        harness.wait(0.5)
        resumed = harness.take("GET")
        assert resumed.header("last-event-id") == "1"
        resumed.open_stream()
        resumed.event(initialized(asked.id))
        assert harness.take().json["method"] == "notifications/initialized"
    else:
        error = failure(harness)
        assert isinstance(error, Disconnected)
        assert "no route to host" in str(error)


@requirement("CANCEL-C-001", "LIFECYCLE-B-003")
@pytest.mark.parametrize("confirming", [False, True])
def test_a_server_that_does_not_answer(harness: ClientHarness, confirming: bool) -> None:
    if confirming:
        harness.take_initialize()
    asked = harness.take()
    harness.wait(29)
    assert harness.events == []
    harness.wait(1)
    error = failure(harness)
    assert isinstance(error, RequestTimeout)
    assert error.seconds == 30
    assert asked.aborted
    assert harness.requests == []


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_server_that_does_not_take_the_notification(harness: ClientHarness, status: int) -> None:
    harness.take_initialize()
    harness.take().refuse(status, b"no")
    assert str(status) in str(failure(harness))
    assert isinstance(harness.events[0], MessageUndelivered)


def test_calls_that_wait_fail_with_the_handshake(harness: ClientHarness) -> None:
    handle = harness.run_command(harness.client.call, "tools/list")
    harness.take().refuse(500)
    (failed, closed) = harness.events
    assert isinstance(failed, CallFailed)
    assert isinstance(closed, Closed)
    assert failed.call == handle
    assert isinstance(failed.error, Disconnected)
    assert failed.error.__cause__ is closed.error


def test_a_question_during_the_handshake_finds_its_way(harness: ClientHarness) -> None:
    asked = harness.take()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert harness.take().json == {"jsonrpc": "2.0", "id": 1, "result": {}}


# Redirects


def redirected(harness: ClientHarness, status: int, location: str) -> Asked | None:
    harness.take().refuse(status, location=location)
    return harness.take() if harness.requests else None


@requirement("SSE-C-029")
@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/mcp/", "http://localhost:8000/mcp/", "mcp/", "?x=1"])
def test_redirects_within_the_origin_are_followed(
    harness: ClientHarness, status: int, location: str
) -> None:
    asked = redirected(harness, status, location)
    assert asked is not None
    assert asked.json["method"] == "initialize"
    asked.answer(initialized(asked.id))
    assert harness.take().effect.url == asked.effect.url  # it is remembered


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
def test_other_redirects_are_not(harness: ClientHarness, status: int, location: str) -> None:
    assert redirected(harness, status, location) is None
    error = failure(harness)
    assert isinstance(error, RequestRefused)
    assert location in str(error)


def test_redirects_are_bounded(harness: ClientHarness) -> None:
    for _ in range(3):
        harness.take().refuse(307, location="/mcp")
    assert redirected(harness, 307, "/mcp") is None
    assert isinstance(failure(harness), RequestRefused)


def test_a_redirect_without_a_location(harness: ClientHarness) -> None:
    harness.take().refuse(307)
    assert isinstance(failure(harness), RequestRefused)


# Holding it wrong


def test_what_cannot_be_done_is_refused_at_once() -> None:
    with pytest.raises(LocalProtocolError, match="URL"):
        Client("localhost:8000", jitter=float)
    with pytest.raises(LocalProtocolError, match="version"):
        Client(URL, jitter=float, versions=("2025-11-25", "nope"))
    harness = ClientHarness()
    with pytest.raises(LocalProtocolError, match="Connected"):
        harness.client.notify("x", now=0)
    harness.run_command(harness.client.start)
    with pytest.raises(LocalProtocolError):
        harness.client.start(now=0)
    assert len(harness.requests) == 1
