"""Which eras a server is of: both at one endpoint, or one alone."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import LocalProtocolError
from sansmcp.events import CallReceived

from ..harness import JSON, LATEST, STREAM, expect, initialize, notification, request
from .harness import (
    MODERN,
    VERSION,
    ModernServerHarness,
    modern,
    notification_from,
)

requirement = pytest.mark.requirement
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", LATEST)
NEWEST_FIRST = [MODERN, *reversed(HANDSHAKE)]


# Both eras at one endpoint


@requirement("VERS-S-009", "VERS-S-010", "VERS-S-011", "HEADERS-S-016", "MODERN-S-001")
@pytest.mark.both_eras
def test_both_eras_are_served_at_once(harness: ModernServerHarness) -> None:
    session = harness.open_session()
    old, old_call = harness.call(session, 1)
    new, new_call = harness.start(modern(1))
    assert old_call.peer.revision.name == LATEST
    assert new_call.peer.revision.name == MODERN
    harness.run_action(old_call.respond, {"era": "old"})
    harness.run_action(new_call.respond, {"era": "new"})
    assert old.json["result"] == {"era": "old"}
    assert new.json["result"]["resultType"] == "complete"


@requirement("VERS-S-014", "VERS-S-001")
@pytest.mark.both_eras
def test_a_request_without_any_version_is_of_the_older_era() -> None:
    harness = ModernServerHarness(sessions=False)
    harness.post(request(1))
    assert harness.last_call().peer.revision.name == "2025-03-26"
    harness = ModernServerHarness(sessions=False, versions=(LATEST, MODERN))
    harness.post(request(1))
    assert harness.last_call().peer.revision.name == LATEST


@pytest.mark.both_eras
def test_the_era_of_initialize_comes_from_what_it_says(harness: ModernServerHarness) -> None:
    """What is in the header is only what a newer client would like."""
    talk = harness.post(initialize(MODERN), headers={"mcp-protocol-version": MODERN})
    assert talk.json["result"]["protocolVersion"] == LATEST
    expect(harness.ask(modern(1, "initialize")), 404, "method_not_found", -32601, id=1)


@pytest.mark.both_eras
def test_a_batch_is_of_no_stateless_revision(harness: ModernServerHarness) -> None:
    session = harness.open_session("2025-03-26")
    batch = [request(1), request(2)]
    talk = harness.post(batch, session, "2025-03-26")
    assert talk.status is None
    expect(harness.post(batch, session, MODERN), 400, "batch_not_allowed")


@requirement("MODERN-S-013")
@pytest.mark.both_eras
def test_get_and_delete_at_this_version(harness: ModernServerHarness) -> None:
    talk = harness.get(None, headers={"mcp-protocol-version": MODERN})
    expect(talk, 405, "method_not_allowed")
    assert talk.header("allow") == "POST"
    expect(harness.get(None), 400, "session_required")
    session = harness.open_session()
    assert harness.get(session, headers={"mcp-protocol-version": MODERN}).status == 200
    for given in (session, None):
        headers = {"mcp-session-id": given, "mcp-protocol-version": MODERN}
        talk = harness.send("DELETE", headers)
        expect(talk, 405, "method_not_allowed")
        assert talk.header("allow") == "POST"
    assert len(harness.server.sessions) == 1


@pytest.mark.both_eras
def test_without_a_version_the_session_is_missing() -> None:
    """Whichever of the older versions are served."""
    harness = ModernServerHarness(versions=(LATEST, MODERN))
    expect(harness.get(None), 400, "session_required")


@pytest.mark.both_eras
def test_all_versions_are_named(harness: ModernServerHarness) -> None:
    talk = harness.post(request(1, "tools/list"), headers={"mcp-protocol-version": "2030-01-01"})
    expect(talk, 400, "unsupported_version", -32022, id=1)
    assert talk.error["data"]["supported"] == NEWEST_FIRST
    headers = {"mcp-protocol-version": "2030-01-01"}
    expect(harness.get(None, headers=headers), 400, "unsupported_version", -32022)


# A server of this era only


@pytest.fixture
def alone() -> ModernServerHarness:
    return ModernServerHarness(versions=(MODERN,))


@requirement("VERS-S-012", "VERS-S-013")
@pytest.mark.parametrize("version", [None, MODERN, LATEST])
def test_alone_initialize_is_told_the_versions(
    alone: ModernServerHarness, version: str | None
) -> None:
    talk = alone.post(initialize(), headers={"mcp-protocol-version": version})
    expect(talk, 400, "unsupported_version", -32022, id=0)
    assert MODERN in talk.error["message"]
    assert talk.error["data"]["supported"] == [MODERN]
    assert talk.error["data"]["requested"] == LATEST


@requirement("MODERN-S-013")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("accept", [STREAM, JSON, None])
@pytest.mark.parametrize("version", [None, MODERN, LATEST, "2030-01-01"])
def test_alone_there_is_only_post(
    alone: ModernServerHarness, method: str, accept: str | None, version: str | None
) -> None:
    headers = {"accept": accept, "mcp-protocol-version": version, "mcp-session-id": "x"}
    talk = alone.send(method, headers)
    expect(talk, 405, "method_not_allowed")
    assert talk.header("allow") == "POST"


@requirement("VERS-S-015", "HEADERS-S-011")
def test_alone_a_missing_header_is_a_failure(alone: ModernServerHarness) -> None:
    talk = alone.ask(modern(1), {"mcp-protocol-version": None})
    expect(talk, 400, "header_mismatch", -32020, id=1)
    expect(alone.post(modern(1)), 400, "header_mismatch", -32020, id=1)
    expect(alone.post(notification("notifications/x")), 400, "header_mismatch", -32020)


@pytest.mark.parametrize("version", ["2030-01-01", LATEST])
def test_alone_what_is_of_another_version_is_told_so(
    alone: ModernServerHarness, version: str
) -> None:
    headers = {"mcp-protocol-version": version}
    talk = alone.post(request(1, "tools/list"), headers=headers)
    expect(talk, 400, "unsupported_version", -32022, id=1)
    assert talk.error["data"]["supported"] == [MODERN]
    talk = alone.post(notification("notifications/x"), headers=headers)
    expect(talk, 400, "unsupported_version", -32022)
    named = notification("notifications/x", _meta={VERSION: version})
    expect(alone.post(named), 400, "unsupported_version", -32022)


def test_alone_what_says_nothing_of_itself_is_told_what_to_say(alone: ModernServerHarness) -> None:
    expect(alone.post(request(1, "tools/list")), 400, "meta_required", -32602, id=1)
    expect(alone.post(request(1, "ping")), 400, "meta_required", -32602, id=1)
    answer: Any = {"jsonrpc": "2.0", "id": 1, "result": {}}
    expect(alone.post(answer), 400, "unexpected_response")


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("version", [None, MODERN])
def test_alone_there_are_no_batches(sessions: bool, version: str | None) -> None:
    alone = ModernServerHarness(versions=(MODERN,), sessions=sessions)
    for batch in ([], [request(1, "tools/list")], [notification("notifications/x")]):
        talk = alone.post(batch, headers={"mcp-protocol-version": version})
        expect(talk, 400, "batch_not_allowed")
    assert not any(isinstance(event, CallReceived) for event in alone.events)


def test_alone_there_is_no_older_transport() -> None:
    with pytest.raises(LocalProtocolError, match="http_sse needs a handshake revision"):
        ModernServerHarness(versions=(MODERN,), http_sse="/sse")


# A server of the older era only


@pytest.fixture
def older() -> ModernServerHarness:
    return ModernServerHarness(versions=HANDSHAKE)


@requirement("VERS-S-003", "VERS-S-004")
@pytest.mark.both_eras
def test_an_older_server_tells_its_versions(older: ModernServerHarness) -> None:
    talk = older.ask(modern(1, "server/discover"))
    expect(talk, 400, "unsupported_version", -32022, id=1)
    assert talk.error["data"]["supported"] == list(reversed(HANDSHAKE))
    assert talk.error["data"]["requested"] == MODERN
    expect(older.ask(notification_from("notifications/x")), 400, "unsupported_version", -32022)


@pytest.mark.both_eras
def test_an_older_server_at_a_version_in_the_header_only(older: ModernServerHarness) -> None:
    headers = {"mcp-protocol-version": MODERN}
    expect(older.post(request(1), headers=headers), 400, "unsupported_version", id=1)
    expect(older.post([request(1)], headers=headers), 400, "batch_not_allowed")
    expect(older.get(None, headers=headers), 405, "method_not_allowed")
