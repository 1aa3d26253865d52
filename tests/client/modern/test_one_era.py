"""Clients of one era only: those of the new one say why a server is not for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    Era,
    KnownServers,
    LocalProtocolError,
    NegotiationFailed,
    RequestTimeout,
)
from sansmcp.events import Connected
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from sansmcp.states import ClientState

from ..detection_harness import JSON, failure
from ..harness import LATEST, URL, ClientHarness, error, notification
from .harness import MODERN, ModernClientHarness, ModernProcess, discovered

requirement = pytest.mark.requirement


def needs_a_handshake(harness: ModernClientHarness) -> str:
    """Why a client of the new era says so."""
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    what, _, why = str(reported).partition(": ")
    assert what == f"The server needs a handshake, and {MODERN} has none"
    return why


@pytest.fixture
def newer() -> ModernClientHarness:
    return ModernClientHarness(versions=MODERN_VERSIONS)


@requirement("STDIO-C-017")
@pytest.mark.parametrize("status", [200, 400, 404, 405, 202])
def test_a_client_of_the_new_era_says_what_the_server_needs(
    newer: ModernClientHarness, status: int
) -> None:
    newer.start().refuse(status, json.dumps(error(0, -32601, "what?")).encode(), **JSON)
    assert "what?" in needs_a_handshake(newer)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (discovered(0, LATEST, "2025-06-18"), f"it speaks {LATEST}, 2025-06-18"),
        ({"jsonrpc": "2.0", "id": 0, "result": {}}, "the response to server/discover lists no"),
        ({"jsonrpc": "2.0", "id": 0}, "the response to server/discover breaks the protocol: "),
        (notification("notifications/message"), "server/discover got no response"),
    ],
)
def test_a_client_of_the_new_era_says_what_the_server_has_said(
    newer: ModernClientHarness, answer: Any, why: str
) -> None:
    newer.start().answer(answer)
    assert needs_a_handshake(newer).startswith(why)


def test_a_client_of_the_new_era_says_that_the_server_says_nothing(
    newer: ModernClientHarness,
) -> None:
    """It has nothing else to try, so it waits longer than for a probe."""
    newer.start()
    newer.wait(29.9)
    assert newer.client.state is ClientState.CONNECTING
    newer.wait(0.1)
    reported = failure(newer)
    assert isinstance(reported, RequestTimeout)
    assert reported.method == "server/discover"
    what = f"server/discover got no response from {URL} within 30 s (connect_timeout)"
    assert str(reported) == what


def test_a_client_of_the_new_era_waits_for_a_process_that_starts_slowly() -> None:
    """Such as one that npx or uvx installs first."""
    harness = ModernProcess(versions=MODERN_VERSIONS).start()
    harness.wait(29)
    harness.say(discovered(0))
    assert any(isinstance(event, Connected) for event in harness.events)


def test_a_client_of_the_new_era_cannot_use_http_sse() -> None:
    with pytest.raises(LocalProtocolError, match="http"):
        ModernClientHarness(versions=MODERN_VERSIONS, transports=("http+sse",))
    known_servers = KnownServers()
    known_servers.remember(URL, "http+sse", Era.LEGACY)
    harness = ModernClientHarness(versions=MODERN_VERSIONS, known_servers=known_servers).connect()
    harness.call()[1].result()


@pytest.mark.both_eras
def test_a_client_of_the_old_era_asks_nothing() -> None:
    harness = ClientHarness(versions=HANDSHAKE_VERSIONS)
    harness.run_command(harness.client.start)
    assert harness.take().json["method"] == "initialize"
