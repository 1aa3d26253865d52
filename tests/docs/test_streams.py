"""What the page on streams says of them is so."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeGuard

import pytest

from sansmcp import App, Client, MemoryStore, ReconnectPolicy, Server, ServerCall
from sansmcp.events import CallCancelled, CallCompleted, CallFailed, CallReceived, ClientEvent
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS, REVISIONS
from sansmcp.testing import Link, Pair, sequential_tokens

from ..examples.test_examples import output_of
from .documents import DOCS, blocks, rows

PAGE = DOCS / "streams.md"

SCENARIOS: list[tuple[int, tuple[str, ...], str, dict[str, bool]]] = [
    (0, HANDSHAKE_VERSIONS, "streamable-http", {}),
    (1, HANDSHAKE_VERSIONS, "streamable-http", {"resumable": False}),
    (2, HANDSHAKE_VERSIONS, "streamable-http", {"resumable": False, "reclaim": False}),
    (3, HANDSHAKE_VERSIONS[:1], "http+sse", {}),
    (4, MODERN_VERSIONS, "streamable-http", {}),
    (5, MODERN_VERSIONS, "streamable-http", {"reclaim": False}),
    (5, HANDSHAKE_VERSIONS[:1], "http+sse", {"reclaim": False}),
]
"""For each row of the table: versions, transport, and settings of the server."""


def work(call: ServerCall) -> Generator[float, None, object]:
    yield 1.0
    call.progress(1, now=call.driver.clock.now)
    yield 1.0
    return {"tools": [], "content": []}


def fate(method: str, version: str, transport: str, **settings: Any) -> tuple[str, str]:
    """What becomes of a call, and of its handler, when all connections break."""
    app = App("worker", "1")
    app.handler(method)(work)
    path = {"http+sse": "/sse"}.get(transport)
    tokens = sequential_tokens()
    server = Server(app, new_token=tokens, versions=(version,), http_sse=path, **settings)
    url = f"http://localhost{path or server.path}"
    client = Client(
        url,
        jitter=lambda: 0.5,
        random_bytes=bytes,
        versions=(version,),
        transports=(transport,),
    )
    store = MemoryStore(server.limits) if settings.get("resumable", True) else None
    pair = Pair(client, server, Link(lambda: 0.5), store=store)
    client.start(now=0.0)
    call = client.call(method, {"name": "any"}, now=0.0)
    pair.clock.call_at(1.5, pair.break_connections)
    pair.run(until=20.0)
    times = [type(event) for event in pair.server_events].count(CallReceived)
    (end,) = (
        event for event in pair.events if getattr(event, "call", None) == call and is_end(event)
    )
    match end:
        case CallCompleted():
            has_ids = REVISIONS[version].resumption and store is not None and path is None
            once = "resumed" if has_ids else "reclaimed"
            outcome = once if times == 1 else "repeated"
        case CallFailed(error=error):
            outcome = f"`{type(error).__name__}`"
    is_cancelled = any(isinstance(event, CallCancelled) for event in pair.server_events)
    return outcome, "cancelled" if is_cancelled else "continues"


def is_end(event: ClientEvent) -> TypeGuard[CallCompleted | CallFailed]:
    return isinstance(event, CallCompleted | CallFailed)


@pytest.mark.parametrize(("row", "versions", "transport", "settings"), SCENARIOS)
def test_what_the_caller_sees(
    row: int, versions: tuple[str, ...], transport: str, settings: dict[str, bool]
) -> None:
    _, reads, others, handler = rows(PAGE)[row]
    of_call, _, of_read = handler.partition("; ")
    of_read = of_read.removesuffix(" if it only reads") or of_call
    cells = (("tools/list", reads, of_read), ("tools/call", others, of_call))
    for version in versions:
        for method, *said in cells:
            seen = fate(method, version, transport, **settings)
            assert seen == tuple(said), (version, method)


def test_a_client_is_let_go(tmp_path: Path) -> None:
    (program,), (printed,) = blocks(PAGE, "python"), blocks(PAGE, "text")
    script = tmp_path / "polling.py"
    script.write_text(program, encoding="utf-8")
    shown = re.sub(r"(id|event) [\w-]{4}\.\.\.-", r"\1 ID-", output_of(script))
    shown = re.sub(r"in 0\.2\d* s:", "in 0.2 s:", shown)
    assert shown[shown.index("client #3 >") :] == printed


def test_the_delays_by_default() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    (delays, last) = re.findall(r"is up to ([\d., and]+) seconds, and then up to (\d+),", text)[0]
    policy = ReconnectPolicy()
    longest = [policy.delay(attempt, 0.0, 1.0) for attempt in range(1, 20)]
    shown = [float(delay) for delay in re.findall(r"[\d.]+", delays)]
    assert longest[: len(shown)] == shown
    assert {*longest[len(shown) :]} == {float(last)}
