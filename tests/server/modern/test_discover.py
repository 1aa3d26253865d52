"""server/discover: what a client learns of a server."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App
from sansmcp.events import CallReceived
from sansmcp.reclaim import EXTENSION

from ..harness import JSON
from ..pipe_harness import Pipe
from .harness import MODERN, SERVER_INFO, ModernServerHarness, meta, modern, modern_app

requirement = pytest.mark.requirement

RESULT: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
    "capabilities": {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "completions": {},
    },
    "instructions": "Add.",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {SERVER_INFO: {"name": "bench", "version": "1"}},
}
KEYS = {EXTENSION: {"place": "token-000000000001.0", "timeoutSeconds": 60.0}}
"""What the server tells on HTTP of the keys of calls."""


@requirement(
    "VERS-S-006", "VERS-S-007", "VERS-S-008", "CACHE-S-002", "MODERN-S-022", "JSONRPC-S-002"
)
@pytest.mark.both_eras
def test_what_a_server_tells() -> None:
    harness = ModernServerHarness(modern_app())
    talk = harness.ask(modern("d", "server/discover"))
    assert (talk.status, talk.header("content-type"), talk.ended) == (200, JSON, True)
    on_http = {**RESULT, "capabilities": {**RESULT["capabilities"], "extensions": KEYS}}
    assert talk.json == {"jsonrpc": "2.0", "id": "d", "result": on_http}
    assert harness.events == []
    assert not harness.server.is_busy


@requirement("VERS-S-006", "VERS-S-007")
@pytest.mark.both_eras
def test_what_it_tells_on_stdio() -> None:
    pipe = Pipe(modern_app()).say(modern(1, "server/discover"))
    assert pipe.said == [{"jsonrpc": "2.0", "id": 1, "result": RESULT}]
    assert pipe.events == []


def test_only_what_is_there_is_told() -> None:
    harness = ModernServerHarness(App("x", "2"), versions=(MODERN,), stream_after=0)
    talk = harness.ask(modern(1, "server/discover", about=meta(clientInfo={"name": "c"})))
    assert talk.json["result"] == {
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: {"name": "x", "version": "2"}},
    }


def test_it_says_nothing_before_the_answer() -> None:
    harness = ModernServerHarness(stream_after=0)
    assert harness.ask(modern(1, "server/discover")).header("content-type") == JSON
    assert not any(isinstance(event, CallReceived) for event in harness.events)
