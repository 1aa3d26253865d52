"""The era of a server at a URL: remembered, asked again when that fails, and told late."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sansmcp import Era, JsonRpcError, KnownServers, NegotiationFailed, RequestRefused
from sansmcp.events import CallFailed, SessionExpired

from ..detection_harness import JSON, SESSION_REQUIRED, by_http_sse, failure
from ..harness import LATEST, ONCE, SESSION, URL, error, initialized
from ..sse_harness import tell_endpoint
from .harness import MODERN, ModernClientHarness, discovered, offered, refused_version

requirement = pytest.mark.requirement


def remembering(transport: str = "streamable-http", era: Era = Era.LEGACY) -> KnownServers:
    known_servers = KnownServers()
    known_servers.remember(URL, transport, era)
    return known_servers


def trusting(known_servers: KnownServers) -> ModernClientHarness:
    """A client that begins with the handshake."""
    harness = ModernClientHarness(
        known_servers=known_servers, standalone_stream=False, reconnect=ONCE
    )
    harness.run_command(harness.client.start)
    assert offered(harness.requests[0]) == LATEST
    return harness


@requirement("VERS-C-006", "VERS-C-011")
@pytest.mark.both_eras
def test_the_next_client_of_an_old_server_does_not_ask() -> None:
    known_servers = KnownServers()
    harness = ModernClientHarness(known_servers=known_servers, standalone_stream=False)
    harness.start().refuse(400)
    harness.initialize()
    assert known_servers.era(URL) is Era.LEGACY
    harness.call()[1].result()
    harness.call()[1].refuse(404)  # the session has ended
    assert any(isinstance(event, SessionExpired) for event in harness.events)
    harness.initialize()
    trusting(known_servers).initialize()


@requirement("VERS-C-006")
def test_a_server_of_the_new_era_is_asked_and_remembered() -> None:
    known_servers = remembering("http+sse", Era.MODERN)
    harness = ModernClientHarness(
        known_servers=known_servers, transports=("streamable-http",)
    ).connect()
    assert known_servers.era(URL) is Era.MODERN
    assert harness.requests == []
    ModernClientHarness(known_servers=known_servers).connect()


@requirement("VERS-C-007")
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"", {}),
        (400, SESSION_REQUIRED, JSON),
        (400, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no _meta"}}', JSON),
        (404, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"what?"}}', JSON),
        (405, b"", {}),
        (
            400,
            b'{"jsonrpc":"2.0","error":{"code":-32022,"message":"no","data":{"supported":["'
            + MODERN.encode()
            + b'"]}}}',
            JSON,
        ),
    ],
)
@pytest.mark.both_eras
def test_when_what_is_remembered_fails_the_server_is_asked(
    status: int, body: bytes, headers: Mapping[str, str]
) -> None:
    known_servers = remembering()
    harness = trusting(known_servers)
    harness.take().refuse(status, body, **headers)
    asked = harness.take()
    assert asked.json["method"] == "server/discover"
    asked.answer(discovered(asked.id))
    assert harness.era() is Era.MODERN
    assert known_servers.era(URL) is Era.MODERN


@requirement("VERS-C-007")
@pytest.mark.both_eras
def test_when_what_is_remembered_is_of_no_common_version_the_server_is_asked() -> None:
    harness = trusting(remembering())
    asked = harness.take()
    asked.answer(initialized(asked.id, "2023-01-01"))
    asked = harness.take()
    asked.answer(discovered(asked.id))
    assert harness.era() is Era.MODERN


@pytest.mark.both_eras
def test_when_that_fails_too_the_other_transport_is_tried() -> None:
    harness = trusting(remembering())
    for _ in range(3):
        harness.take().refuse(405)
    by_http_sse(harness)


@pytest.mark.both_eras
def test_when_everything_fails_all_is_told() -> None:
    harness = trusting(remembering())
    methods = ["POST", "POST", "POST", "GET"]
    for method in methods:
        harness.take(method).refuse(404)
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    assert len(reported.attempts) == 3  # what is asked first counts with the handshake after it


@pytest.mark.parametrize("status", [401, 503])
@pytest.mark.both_eras
def test_what_decides_nothing_changes_nothing(status: int) -> None:
    known_servers = remembering()
    harness = trusting(known_servers)
    harness.take().refuse(status)
    assert isinstance(failure(harness), RequestRefused)
    assert known_servers.era(URL) is Era.LEGACY


@pytest.mark.both_eras
def test_a_server_of_http_sse_that_was_replaced() -> None:
    known_servers = remembering("http+sse")
    harness = ModernClientHarness(known_servers=known_servers)
    harness.run_command(harness.client.start)
    harness.take("GET").refuse(405)
    asked = harness.take()
    asked.answer(discovered(asked.id))
    assert harness.era() is Era.MODERN


# Late evidence


@requirement("VERS-C-010")
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.both_eras
def test_a_slow_server_of_the_new_era(status: int, answers: bool) -> None:
    """It says what it is when it is offered a handshake; then it is asked once more."""
    harness = ModernClientHarness(probe_timeout=5)
    harness.start()
    harness.wait(5)
    asked = harness.take()
    asked.answer(refused_version(asked.id, MODERN), status)
    again = harness.take()
    assert again.json["method"] == "server/discover"
    assert again.header("mcp-protocol-version") == MODERN
    if answers:
        again.answer(discovered(again.id))
        assert harness.era() is Era.MODERN
        return
    harness.wait(5)
    last = harness.take()
    assert offered(last) == LATEST
    last.answer(refused_version(last.id, MODERN), status)
    reported = failure(harness)
    assert isinstance(reported, JsonRpcError)
    assert reported.code == -32022


@pytest.mark.both_eras
def test_late_evidence_in_a_later_session() -> None:
    harness = ModernClientHarness(standalone_stream=False)
    harness.start().refuse(404)
    harness.initialize()
    harness.call()[1].result()
    handle, asked = harness.call()
    asked.refuse(404)
    expired = harness.take()
    expired.answer(refused_version(expired.id, MODERN), 400)
    again = harness.take()
    again.answer(discovered(again.id))
    assert harness.era() is Era.MODERN
    assert [e.call for e in harness.events if isinstance(e, CallFailed)] == [handle]
    _, asked = harness.call()
    assert asked.header("mcp-session-id") is None
    assert SESSION not in str(asked.effect.head)


@pytest.mark.both_eras
def test_on_http_sse_there_is_no_new_era() -> None:
    harness = ModernClientHarness(transports=("http+sse",))
    harness.run_command(harness.client.start)
    stream = harness.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    asked = harness.take()
    assert offered(asked) == LATEST
    asked.accept()
    stream.event(refused_version(asked.id, MODERN))
    assert isinstance(failure(harness), JsonRpcError)


@pytest.mark.both_eras
def test_errors_of_the_old_era_are_no_evidence() -> None:
    harness = ModernClientHarness()
    harness.start().refuse(400)
    asked = harness.take()
    asked.answer(error(asked.id, -32602, "no"), 400)
    assert isinstance(failure(harness), JsonRpcError)


@pytest.mark.both_eras
def test_the_version_that_was_offered_may_be_answered_by_another() -> None:
    harness = ModernClientHarness(standalone_stream=False)
    harness.start().answer(discovered(0, "2025-06-18"))
    asked = harness.take()
    assert offered(asked) == "2025-06-18"
    asked.answer(initialized(asked.id, "2025-03-26"))
    harness.take().accept()
    assert harness.era() is Era.LEGACY
