"""server/discover: what a client learns of a server."""

from __future__ import annotations

import pytest

from sansmcp import App
from sansmcp.events import CallReceived

from ..bench import JSON
from ..pipe_bench import Pipe
from .bench import MODERN, SERVER_INFO, ModernBench, meta, modern, modern_app

requirement = pytest.mark.requirement

RESULT = {
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


@requirement(
    "VERS-S-006", "VERS-S-007", "VERS-S-008", "CACHE-S-002", "MODERN-S-022", "JSONRPC-S-002"
)
@pytest.mark.both_eras
def test_what_a_server_tells() -> None:
    bench = ModernBench(modern_app())
    talk = bench.ask(modern("d", "server/discover"))
    assert (talk.status, talk.header("content-type"), talk.ended) == (200, JSON, True)
    assert talk.json == {"jsonrpc": "2.0", "id": "d", "result": RESULT}
    assert bench.events == []
    assert not bench.server.is_busy


@requirement("VERS-S-006", "VERS-S-007")
@pytest.mark.both_eras
def test_what_it_tells_on_stdio() -> None:
    pipe = Pipe(modern_app()).say(modern(1, "server/discover"))
    assert pipe.said == [{"jsonrpc": "2.0", "id": 1, "result": RESULT}]
    assert pipe.events == []


def test_only_what_is_there_is_told() -> None:
    bench = ModernBench(App("x", "2"), versions=(MODERN,), stream_after=0)
    talk = bench.ask(modern(1, "server/discover", about=meta(clientInfo={"name": "c"})))
    assert talk.json["result"] == {
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: {"name": "x", "version": "2"}},
    }


def test_it_says_nothing_before_the_answer() -> None:
    bench = ModernBench(stream_after=0)
    assert bench.ask(modern(1, "server/discover")).header("content-type") == JSON
    assert not any(isinstance(event, CallReceived) for event in bench.events)
