"""Revisions that there are not: a row that differs in its features needs no other code."""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from sansmcp import (
    REVISIONS,
    App,
    Client,
    InputRequest,
    InputRequired,
    LocalProtocolError,
    MemoryStore,
    Server,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Connected,
    ProgressReceived,
    StandaloneStreamClosed,
)
from sansmcp.revisions import of_era
from sansmcp.server_call import ServerCall
from sansmcp.testing import Link, Pair, sequential_tokens

from ..server.harness import ServerHarness

MADE_UP = "2099-01-01"
MODERN = REVISIONS["2026-07-28"]
LEGACY = REVISIONS["2025-11-25"]
LACKS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "without-headers-caching-listen": (MODERN, ("mirrored_headers", "caching", "listen")),
    "without-result-type": (MODERN, ("result_type", "caching", "error_without_id")),
    "without-server-requests": (LEGACY, ("server_requests",)),
    "without-streams": (LEGACY, ("standalone_stream", "resumption", "polling", "multi_turn")),
}
Talk = Generator[float | int, Any, Any]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let there be one more row."""

    def add_row(row: Any, lacks: tuple[str, ...]) -> None:
        made_up = attrs.evolve(row, name=MADE_UP, **dict.fromkeys(lacks, False))
        rows = MappingProxyType({**REVISIONS, MADE_UP: made_up})
        of_era.cache_clear()
        for name, module in tuple(sys.modules.items()):
            if name.split(".")[0] == "sansmcp" and "REVISIONS" in vars(module):
                monkeypatch.setattr(module, "REVISIONS", rows)

    return add_row


def handler(call: ServerCall) -> Talk:
    """Report progress, then answer by questions or a result."""
    call.progress(1, now=call.driver.clock.now)
    yield 0.2
    if call.request.method == "resources/read":
        return InputRequired({"a": InputRequest("elicitation/create", {})})
    return {"tools": [], "content": [], "ttlMs": 60_000}


def run(script: Any, input_schema: Any = None, **link: Any) -> Pair:
    app = App("made-up", "1", input_schema=input_schema)
    for method in ("tools/call", "tools/list", "prompts/get", "resources/read"):
        app.handler(method)(script)
    versions = (MADE_UP,)
    server = Server(app, new_token=sequential_tokens(), versions=versions, resumable=True)
    client = Client(
        "http://localhost/mcp",
        jitter=lambda: 0.5,
        versions=versions,
        capabilities={"elicitation": {}},
    )
    pair = Pair(client, server, Link(lambda: 0.5, **link), store=MemoryStore())
    client.start(now=0.0)
    pair.run(1.0)
    return pair


def ends(pair: Pair) -> list[CallCompleted | CallFailed]:
    return [event for event in pair.events if isinstance(event, CallCompleted | CallFailed)]


def heads(pair: Pair) -> list[dict[bytes, bytes]]:
    return [dict(request.head.headers) for request in pair.requests]


def call(pair: Pair, method: str, params: Any = None) -> CallCompleted | CallFailed:
    before = len(ends(pair))
    pair.client.call(method, params, now=pair.clock.now)
    pair.run(pair.clock.now + 5)
    assert len(ends(pair)) == before + 1
    return ends(pair)[-1]


@pytest.mark.parametrize(("row", "lacks"), LACKS.values(), ids=LACKS)
@pytest.mark.parametrize("fragments", [False, True])
def test_a_conversation(add: Any, row: Any, lacks: tuple[str, ...], fragments: bool) -> None:
    add(row, lacks)
    pair = run(handler, fragments=fragments)
    (connected,) = (event for event in pair.events if isinstance(event, Connected))
    assert connected.version == MADE_UP
    answer = call(pair, "tools/call", {"name": "x", "arguments": {}})
    assert isinstance(answer, CallCompleted)
    assert ("resultType" in answer.result) == (row is MODERN and "result_type" not in lacks)
    assert any(isinstance(event, ProgressReceived) for event in pair.events)
    first = call(pair, "tools/list")
    assert isinstance(first, CallCompleted)
    count = len(pair.requests)
    assert isinstance(call(pair, "tools/list"), CallCompleted)
    assert len(pair.requests) == count + 1, "nothing is cached"
    names = {name for head in heads(pair) for name in head}
    assert (b"mcp-method" in names) == (row is MODERN and "mirrored_headers" not in lacks)
    pair.server.publish("notifications/tools/list_changed", now=pair.clock.now)
    pair.client.close(now=pair.clock.now)
    pair.run()


def test_no_subscriptions(add: Any) -> None:
    add(*LACKS["without-headers-caching-listen"])
    answer = call(run(handler), "subscriptions/listen", {"notifications": {}})
    assert isinstance(answer, CallFailed)
    assert "Method not found" in str(answer.error) or "-32601" in str(answer.error)


def test_parameters_are_not_mirrored(add: Any) -> None:
    """``x-mcp-header`` in a tool's schema asks for no header where the revision has none."""
    add(*LACKS["without-headers-caching-listen"])
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    pair = run(handler, input_schema={"x": schema}.get)
    assert isinstance(
        call(pair, "tools/call", {"name": "x", "arguments": {"a": "b"}}), CallCompleted
    )
    assert not [name for head in heads(pair) for name in head if name.startswith(b"mcp-param")]


def test_a_result_cannot_ask(add: Any) -> None:
    add(*LACKS["without-result-type"])
    with pytest.raises(LocalProtocolError, match="a result cannot ask for input"):
        call(run(handler), "resources/read", {"uri": "a:b"})


def test_no_stream_can_be_resumed(add: Any) -> None:
    add(*LACKS["without-streams"])
    pair = run(handler)
    pair.client.call("tools/call", {"name": "x"}, now=pair.clock.now)
    pair.run(pair.clock.now + 0.1)
    pair.break_connections()
    pair.run(pair.clock.now + 20)
    (end,) = ends(pair)
    assert isinstance(end, CallFailed)
    assert "the outcome is unknown" in str(end.error)
    assert not any(request.head.method == b"GET" for request in pair.requests)
    assert not any(isinstance(event, StandaloneStreamClosed) for event in pair.events)


def test_the_server_offers_no_streams(add: Any) -> None:
    """The client of the library would not ask; others may."""
    add(*LACKS["without-streams"])
    app = App("made-up", "1", capabilities={"tools": {"listChanged": True}})
    app.handler("tools/call")(lambda: None)
    harness = ServerHarness(app, versions=(MADE_UP,))
    session = harness.open_session(MADE_UP)
    headers = {"mcp-protocol-version": MADE_UP}
    for last_id in (None, "abc-1"):
        refused = harness.get(session, last_id, headers)
        assert (refused.status, refused.header("allow")) == (405, "POST")
    harness.run_action(harness.server.publish, "notifications/tools/list_changed")
    talk, call = harness.call(session, token=1, version=MADE_UP)
    harness.run_action(call.progress, 1)
    harness.run_action(call.respond, {})
    assert [event.id for event in talk.events] == [None, None]
    assert harness.store.size == 0


def test_the_server_makes_no_requests(add: Any) -> None:
    add(*LACKS["without-server-requests"])
    with pytest.raises(LocalProtocolError, match="servers make no requests"):
        call(run(handler), "resources/read", {"uri": "a:b"})
    harness = ServerHarness(versions=(MADE_UP,))
    _, asking = harness.call(harness.open_session(MADE_UP, {"roots": {}}), version=MADE_UP)
    with pytest.raises(LocalProtocolError, match="servers make no requests"):
        harness.run_action(asking.ask, "roots/list", timeout=5.0)
