"""Which era a server at a URL is of, found out by what it answers; replies are recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sansmcp import (
    BodyData,
    Disconnected,
    Era,
    JsonRpcError,
    KnownServers,
    NegotiationFailed,
    RequestCancelled,
    RequestRefused,
)
from sansmcp.events import (
    CallFailed,
    Closed,
    Connected,
    ProtocolViolation,
    Reconnecting,
    ServerNotified,
)
from sansmcp.revisions import REVISIONS

from ..detection_harness import JSON, SSE_URL_POSTED, by_http_sse, failure
from ..harness import LATEST, ONCE, URL, Asked, error, initialized, notification, request
from .harness import META, MODERN, ModernClientHarness, discovered, failed, offered, refused_version

requirement = pytest.mark.requirement
STREAM = "text/event-stream"
HTML = {"content_type": "text/html"}


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness()


def reply(asked: Asked, message: Any, status: int = 200) -> None:
    """A JSON-RPC message, as the answer to whatever was asked."""
    asked.answer(message, status)


def becomes_modern(harness: ModernClientHarness) -> None:
    assert harness.era() is Era.MODERN
    harness.call()[1].result()


def becomes_legacy(harness: ModernClientHarness, version: str = LATEST) -> None:
    asked = harness.take()
    assert offered(asked) == version
    asked.answer(initialized(asked.id, version))
    harness.take().accept()
    assert harness.era() is Era.LEGACY
    assert harness.take("GET").header("mcp-protocol-version") is not None


# What is asked


@requirement("VERS-C-004", "VERS-C-008", "MODERN-C-006", "HEADERS-C-001", "HEADERS-C-003")
def test_the_question(harness: ModernClientHarness) -> None:
    asked = harness.start()
    assert asked.json == {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "server/discover",
        "params": {"_meta": META},
    }
    assert asked.header("mcp-protocol-version") == MODERN
    assert asked.header("mcp-method") == "server/discover"
    assert asked.header("mcp-name") is None
    assert asked.header("accept") == "application/json, text/event-stream"


# A server of the new era


@requirement("VERS-C-005", "MODERN-C-005")
@pytest.mark.parametrize("versions", [(MODERN,), (LATEST, MODERN), (MODERN, "2099-01-01", "x")])
@pytest.mark.parametrize("streams", [True, False])
def test_a_version_that_both_speak(
    harness: ModernClientHarness, versions: tuple[str, ...], streams: bool
) -> None:
    asked = harness.start()
    handle = harness.run_command(harness.client.call, "tools/call")
    if streams:
        asked.open_stream()
        asked.event(notification("notifications/message", level="info"))
        asked.event(discovered(asked.id, *versions))
    else:
        asked.answer(discovered(asked.id, *versions))
    connected = [event for event in harness.events if isinstance(event, Connected)]
    assert [(e.version, e.transport) for e in connected] == [(MODERN, "streamable-http")]
    assert harness.take().json["method"] == "tools/call"  # it has waited, and nothing else is sent
    assert handle == 1


@pytest.mark.parametrize(
    ("more", "info"),
    [
        ({}, {}),
        ({"_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}}}, {"name": "s"}),
        ({"serverInfo": {"name": "top"}}, {"name": "top"}),
        ({"serverInfo": "s", "_meta": 5}, {}),
    ],
)
def test_what_the_server_says_of_itself(
    harness: ModernClientHarness, more: Mapping[str, Any], info: Mapping[str, Any]
) -> None:
    asked = harness.start()
    asked.answer(discovered(asked.id, instructions="be kind", **more))
    assert harness.events == [
        Connected(
            transport="streamable-http",
            version=MODERN,
            server_info=info,
            capabilities={"tools": {}},
            instructions="be kind",
        )
    ]


def test_odd_members_of_the_answer_are_left_out(harness: ModernClientHarness) -> None:
    asked = harness.start()
    asked.answer(discovered(asked.id, instructions=5, capabilities=None))
    (event,) = harness.events
    assert isinstance(event, Connected)
    assert (event.instructions, event.capabilities) == (None, {})


@requirement("VERS-C-003", "VERS-C-009", "VERS-C-010")
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_the_server_asks_for_a_version_that_both_speak(
    harness: ModernClientHarness, status: int
) -> None:
    asked = harness.start()
    reply(asked, refused_version(asked.id, LATEST, MODERN), status)
    again = harness.take()
    assert again.json["method"] == "server/discover"
    assert again.id != asked.id
    again.answer(discovered(again.id))
    becomes_modern(harness)


def test_it_is_asked_once_more_only(harness: ModernClientHarness) -> None:
    asked = harness.start()
    reply(asked, refused_version(asked.id, MODERN), 400)
    again = harness.take()
    reply(again, refused_version(again.id, MODERN), 400)
    reported = failure(harness)
    assert isinstance(reported, JsonRpcError)
    assert (reported.code, reported.http_status) == (-32022, 400)


@requirement("VERS-C-010")
@pytest.mark.parametrize("status", [200, 400, 401, 503])
@pytest.mark.parametrize("code", [-32020, -32021])
def test_other_errors_of_the_new_era_are_reported(
    harness: ModernClientHarness, status: int, code: int
) -> None:
    asked = harness.start()
    reply(asked, failed(asked.id, code, "no", {"x": 1}), status)
    reported = failure(harness)
    assert isinstance(reported, JsonRpcError)
    assert (reported.code, reported.data) == (code, {"x": 1})


@requirement("VERS-C-003")
@pytest.mark.parametrize("data", [{"supported": ["2099-01-01"]}, {"supported": 5}, {}, None])
@pytest.mark.both_eras
def test_no_version_in_common(harness: ModernClientHarness, data: Any) -> None:
    asked = harness.start()
    reply(asked, failed(asked.id, -32022, "too old", data), 400)
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    assert f"{LATEST}, {MODERN}" in str(reported)
    assert ("2099-01-01" in str(reported)) is ("2099" in str(data))
    assert ("too old (code -32022)" in str(reported)) is ("2099" not in str(data))


# A server of the old era


@pytest.mark.parametrize("as_error", [True, False])
@pytest.mark.both_eras
def test_only_older_versions_in_common(harness: ModernClientHarness, as_error: bool) -> None:
    asked = harness.start()
    versions = ("2024-11-05", "2025-06-18", "2099-01-01")
    if as_error:
        reply(asked, refused_version(asked.id, *versions), 400)
    else:
        reply(asked, discovered(asked.id, *versions))
    becomes_legacy(harness, "2025-06-18")


@requirement("VERS-C-011")
@pytest.mark.parametrize(
    "message",
    [
        error(0, -32601),
        error(0, -32600),
        error(0, 0),
        error(None, -32600),
        error("server-error", -32600, "Bad Request: Missing session ID"),
        {"jsonrpc": "2.0", "error": {"code": -32600, "message": "no id"}},
        {"jsonrpc": "2.0", "id": 0, "result": {}},
        {"jsonrpc": "2.0", "id": 0, "result": {"supportedVersions": MODERN}},
        {"jsonrpc": "2.0", "id": 0, "result": []},
        {"jsonrpc": "2.0", "id": 7, "result": {"supportedVersions": [MODERN]}},
        {"jsonrpc": "2.0", "id": 0},
        b"",
        b"OK",
    ],
)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.both_eras
def test_any_other_answer_comes_from_an_old_server(
    harness: ModernClientHarness, message: Any, streams: bool
) -> None:
    asked = harness.start()
    if streams:
        asked.open_stream()
        asked.event(message)
        asked.end()
    else:
        asked.answer(message)
    becomes_legacy(harness)


@requirement("VERS-C-009", "VERS-C-011", "VERS-C-012")
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, b"<!DOCTYPE html>", HTML),
        (202, b"", {}),
        (204, b"", {}),
        (302, b"", {"location": "/login"}),
        (400, b"", {}),
        (400, b"Bad Request: Missing session ID", {"content_type": "text/plain"}),
        (400, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"x"}}', JSON),
        (400, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"x"}}', JSON),
        (400, b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32001,"message":"x"}}', JSON),
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32004,"message":"x"}}', JSON),
        (404, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"x"}}', JSON),
        (404, b'{"detail":"Not Found"}', JSON),
        (405, SSE_URL_POSTED, JSON),
        (406, b"", {}),
        (410, b"", {}),
        (415, b"", {}),
        (418, b"", {}),
        (422, b'{"detail":[]}', JSON),
    ],
)
@pytest.mark.both_eras
def test_refusals_that_come_from_old_servers(
    harness: ModernClientHarness, status: int, body: bytes, headers: Mapping[str, str]
) -> None:
    harness.start().refuse(status, body, **headers)
    becomes_legacy(harness)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.both_eras
def test_a_server_that_does_not_answer_in_time_is_old(streams: bool) -> None:
    harness = ModernClientHarness(probe_timeout=3)
    asked = harness.start()
    if streams:
        asked.open_stream()
    harness.wait(2.9)
    assert harness.requests == []
    harness.wait(0.1)
    assert asked.aborted
    asked.feed(BodyData(b"late"))
    becomes_legacy(harness)


def test_connecting_takes_no_longer_than_it_may_because_of_the_probe() -> None:
    harness = ModernClientHarness(connect_timeout=2)
    asked = harness.start()
    harness.wait(2)
    assert asked.aborted


@pytest.mark.both_eras
def test_an_old_server_of_http_sse(harness: ModernClientHarness) -> None:
    harness.start().refuse(405, SSE_URL_POSTED, **JSON)
    harness.take().refuse(405, SSE_URL_POSTED, **JSON)
    by_http_sse(harness)


@pytest.mark.both_eras
def test_the_url_that_messages_of_http_sse_go_to(harness: ModernClientHarness) -> None:
    harness.start().accept()
    asked = harness.take()
    assert offered(asked) == LATEST
    asked.accept()
    reported = failure(harness)
    assert isinstance(reported, RequestRefused)
    assert "open the URL of its event stream" in str(reported)


# What decides nothing


@pytest.mark.parametrize(
    "status", [401, 403, 407, 408, 413, 425, 429, 431, 500, 501, 502, 503, 504]
)
@pytest.mark.both_eras
def test_refusals_that_decide_nothing(status: int) -> None:
    """A handshake is tried once, and what comes of that is reported."""
    known_servers = KnownServers()
    harness = ModernClientHarness(known_servers=known_servers, reconnect=ONCE)
    harness.start().refuse(status, b"no reason")
    asked = harness.take()
    assert offered(asked) == LATEST
    asked.refuse(status, b"because")
    reported = failure(harness)
    assert isinstance(reported, RequestRefused)
    assert (reported.status, reported.body) == (status, b"because")
    assert known_servers.era(URL) is None


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 501, 502, 503, 504])
@pytest.mark.both_eras
def test_a_server_that_fails_at_what_it_does_not_know(
    harness: ModernClientHarness, status: int
) -> None:
    """It is asked by ``initialize``, which works."""
    harness.start().refuse(status, b"Internal Server Error")
    becomes_legacy(harness)


@pytest.mark.both_eras
def test_a_failure_says_nothing_about_the_next_time() -> None:
    """The server may have been starting: the next client asks it again for its version."""
    known_servers = KnownServers()
    harness = ModernClientHarness(known_servers=known_servers)
    harness.start().refuse(503)
    becomes_legacy(harness)
    assert known_servers.era(URL) is None
    harness = ModernClientHarness(known_servers=known_servers)
    asked = harness.start()
    asked.answer(discovered(asked.id))
    becomes_modern(harness)


@pytest.mark.parametrize("status", [401, 500])
def test_a_client_of_the_new_era_reports_what_any_server_could_say(status: int) -> None:
    harness = ModernClientHarness(versions=(MODERN,))
    harness.start().refuse(status, b"because")
    reported = failure(harness)
    assert isinstance(reported, RequestRefused)
    assert (reported.status, reported.body) == (status, b"because")


# A server that is not there yet


@pytest.mark.parametrize("versions", [tuple(REVISIONS), (MODERN,)])
@pytest.mark.parametrize("how", ["refused", "json", "stream", "503", "503 later"])
def test_it_is_asked_again(versions: tuple[str, ...], how: str) -> None:
    """A server that starts a second after its client."""
    harness = ModernClientHarness(versions=versions)
    harness.run_command(harness.client.start)
    for attempt in (1, 2):
        asked = harness.take()
        assert asked.json["method"] == "server/discover"
        if how == "503":
            asked.refuse(503)
            if len(versions) > 1:
                harness.take().refuse(503)  # initialize
        elif how == "503 later":
            asked.refuse(503, retry_after="2")
        else:
            if how != "refused":
                asked.head(content_type="application/json" if how == "json" else STREAM)
            asked.cut("connection refused")
        event = harness.take_events()[-1]
        assert isinstance(event, Reconnecting)
        assert event.attempt == attempt
        assert event.delay == 0.5 * 2 ** (attempt - 1) + (2 if how == "503 later" else 0)
        assert harness.requests == []
        harness.wait(event.delay)
    asked = harness.take()
    asked.answer(discovered(asked.id))
    becomes_modern(harness)


@pytest.mark.parametrize("versions", [tuple(REVISIONS), (MODERN,)])
def test_a_server_that_never_comes(versions: tuple[str, ...]) -> None:
    harness = ModernClientHarness(versions=versions)
    harness.run_command(harness.client.start)
    for delay in (0.5, 1.0, 2.0, 4.0, 0.0):
        harness.take().cut("connection refused")
        harness.wait(delay)
    reported = failure(harness)
    assert isinstance(reported, Disconnected)
    assert len(reported.attempts) == 4
    assert str(reported).endswith(": connection refused (so did 4 attempts before)")


@pytest.mark.both_eras
def test_a_silent_server_is_asked_for_its_version_once() -> None:
    harness = ModernClientHarness(connect_timeout=20)
    harness.start()
    harness.wait(5)
    harness.take().cut("reset")
    harness.wait(0.5)
    assert offered(harness.take()) == LATEST
    harness.wait(14.4)
    assert not isinstance(harness.events[-1], Closed)
    harness.wait(0.1)
    assert "initialize got no response" in str(failure(harness))


@pytest.mark.parametrize("how", ["at once", "json", "stream"])
def test_a_server_out_of_reach_decides_nothing(how: str) -> None:
    harness = ModernClientHarness(reconnect=ONCE)
    asked = harness.start()
    if how != "at once":
        asked.head(content_type="application/json" if how == "json" else STREAM)
    asked.cut()
    reported = failure(harness)
    assert isinstance(reported, Disconnected)
    assert "cable cut" in str(reported)


# What the server says meanwhile, and what the application does


def test_what_comes_before_the_answer(harness: ModernClientHarness) -> None:
    asked = harness.start()
    asked.open_stream()
    asked.event(notification("early"))
    asked.event(request(1, "ping"))
    asked.event(b"{}")
    asked.event(discovered(asked.id))
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerNotified, ProtocolViolation, ProtocolViolation, Connected]
    assert harness.requests == []


def test_closing_meanwhile(harness: ModernClientHarness) -> None:
    asked = harness.start()
    handle = harness.run_command(harness.client.call, "tools/call")
    harness.run_command(harness.client.close)
    assert asked.aborted
    ended, closed = harness.events
    assert isinstance(ended, CallFailed)
    assert ended.call == handle
    assert isinstance(ended.error, RequestCancelled)
    assert closed == Closed(None)
    assert harness.client.next_deadline() is None
