"""Revisions that there are not: a row that differs in its features needs no other code.

Each made-up row is tried on every transport that its era has. What is expected of a conversation
follows from the features of the row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import pytest

from sansmcp import (
    REVISIONS,
    App,
    Client,
    Era,
    InputRequest,
    InputRequired,
    JsonRpcError,
    LocalProtocolError,
    MemoryStore,
    Revision,
    Server,
    ServerPipe,
    StateSigner,
)
from sansmcp.effects import ClientEffect, SendBytes, StartProcess, WriteStdin
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientNotified,
    Connected,
    ProgressReceived,
    ServerNotified,
    ServerRequestReceived,
)
from sansmcp.meta_keys import LISTEN
from sansmcp.process import StdoutData
from sansmcp.revisions import of_era
from sansmcp.server_call import ServerCall
from sansmcp.testing import Link, Pair, sequential_tokens
from sansmcp.types import HTTP_SSE, STDIO, STREAMABLE_HTTP

from ..client.harness import ClientHarness
from ..messages import request
from ..server.harness import ServerHarness
from ..server.pipe_harness import Pipe
from ..server.sse_harness import SseClient

MADE_UP = "2099-01-01"
MODERN = REVISIONS["2026-07-28"]
LEGACY = REVISIONS["2025-11-25"]
CHANGED = "notifications/tools/list_changed"
NOT_FOUND = -32002
"""A code that 2026-07-28 has retired."""

Change: TypeAlias = dict[str, Any]
Script: TypeAlias = Generator[float | int, Any, Any]
Add: TypeAlias = Callable[[Revision, Change], Revision]


def without(*features: str) -> Change:
    return dict.fromkeys(features, False)


ROWS: dict[str, tuple[Revision, Change]] = {
    "newest": (MODERN, {}),
    "newest-without-version-header": (MODERN, without("version_header")),
    "newest-without-mirrored-headers": (MODERN, without("mirrored_headers")),
    "newest-without-result-type": (MODERN, without("result_type")),
    "newest-without-caching": (MODERN, without("caching")),
    "newest-without-listen": (MODERN, without("listen")),
    "newest-with-null-ids": (MODERN, without("error_without_id")),
    "newest-with-all-codes": (MODERN, {"retired_codes": MappingProxyType({})}),
    "newest-with-other-codes": (MODERN, {"retired_codes": MappingProxyType({NOT_FOUND: -32001})}),
    "stateless-without-headers-caching-listen": (
        MODERN,
        without("mirrored_headers", "caching", "listen"),
    ),
    "stateless-without-result-type-caching-header": (
        MODERN,
        without("result_type", "caching", "version_header"),
    ),
    "handshake": (LEGACY, {}),
    "handshake-without-sessions": (LEGACY, without("sessions")),
    "handshake-without-standalone-stream": (LEGACY, without("standalone_stream")),
    "handshake-without-resumption": (LEGACY, without("resumption")),
    "handshake-without-server-requests": (LEGACY, without("server_requests")),
    "handshake-without-streams": (
        LEGACY,
        without("standalone_stream", "resumption", "polling", "multi_turn"),
    ),
    "handshake-without-sessions-polling-requests": (
        LEGACY,
        without("sessions", "polling", "server_requests"),
    ),
    "handshake-without-header-turns-stream": (
        LEGACY,
        without("version_header", "multi_turn", "standalone_stream"),
    ),
    "handshake-with-batching-null-ids-no-polling": (
        LEGACY,
        {"batching": True, **without("error_without_id", "polling")},
    ),
}
CELLS = {
    f"{name}-{transport}": (*row, transport)
    for name, row in ROWS.items()
    for transport in (STREAMABLE_HTTP, HTTP_SSE, STDIO)
    if not (transport == HTTP_SSE and row[0].era is Era.MODERN)
}
every_cell = pytest.mark.parametrize(("base", "change", "transport"), CELLS.values(), ids=CELLS)
every_row = pytest.mark.parametrize(("base", "change"), ROWS.values(), ids=ROWS)


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Let there be one more row."""

    def add_row(base: Revision, change: Change) -> Revision:
        made_up = attrs.evolve(base, name=MADE_UP, **change)
        rows = MappingProxyType({**REVISIONS, MADE_UP: made_up})
        of_era.cache_clear()
        for name, module in tuple(sys.modules.items()):
            if name.split(".")[0] == "sansmcp" and "REVISIONS" in vars(module):
                monkeypatch.setattr(module, "REVISIONS", rows)
        return made_up

    return add_row


class ProcessPair(Pair):
    """A pair whose server is the process of the client, and never ends before it."""

    _pipe: ServerPipe

    def _perform(self, effect: ClientEffect) -> None:
        if isinstance(effect, StartProcess):
            self._pipe = ServerPipe(self.server, driver=self, now=self.clock.now)
        elif isinstance(effect, WriteStdin):
            for piece in self.link.pieces(effect.data):
                self.later(lambda piece=piece: self._reach_server(piece))  # type: ignore[misc]

    def _reach_server(self, data: bytes) -> None:
        self._pipe.receive_data(data, now=self.clock.now)
        self.drive()

    def drive(self) -> None:
        """Let the server send what it can: a Wake effect asks for it."""
        while isinstance(effect := self._pipe.next_effect(), SendBytes):
            for piece in self.link.pieces(effect.data):
                self.later(lambda piece=piece: self._reach_client(piece))  # type: ignore[misc]

    def _reach_client(self, data: bytes) -> None:
        self.client.receive_process_part(StdoutData(data), now=self.clock.now)


def handler(call: ServerCall) -> Script:
    """Report progress, then fail, ask for input or give a result."""
    if not call.handler_input.input_responses:
        call.progress(1, now=call.driver.clock.now)
        yield 0.2
    if call.request.method == "prompts/get":
        raise JsonRpcError(NOT_FOUND, "There is no such prompt")
    if call.request.method == "resources/read" and not call.handler_input.input_responses:
        return InputRequired({"a": InputRequest("elicitation/create", {})}, state="s")
    given = dict(call.handler_input.input_responses)
    return {"tools": [], "content": [], "ttlMs": 60_000, "given": given}


def run(
    script: Any,
    input_schema: Any = None,
    *,
    transport: str = STREAMABLE_HTTP,
    served: Sequence[str] = (MADE_UP,),
    spoken: Sequence[str] = (MADE_UP,),
    **link: Any,
) -> Pair:
    """Let a client open a session."""
    app = App(
        "made-up", "1", capabilities={"tools": {"listChanged": True}}, input_schema=input_schema
    )
    for method in ("tools/call", "tools/list", "prompts/get", "resources/read"):
        app.handler(method)(script)
    server = Server(
        app,
        new_token=sequential_tokens(),
        versions=tuple(served),
        resumable=True,
        http_sse="/sse" if transport == HTTP_SSE else None,
        state_signer=StateSigner(keys=(b"k" * 32,), clock=lambda: 0.0),
    )
    targets = {
        STREAMABLE_HTTP: "http://localhost/mcp",
        HTTP_SSE: "http://localhost/sse",
        STDIO: ("server",),
    }
    client = Client(
        targets[transport],
        jitter=lambda: 0.5,
        versions=tuple(spoken),
        capabilities={"elicitation": {}},
        cache=True,
        **({} if transport == STDIO else {"transports": (transport,)}),  # type: ignore[arg-type]
    )
    kind = ProcessPair if transport == STDIO else Pair
    pair = kind(client, server, Link(lambda: 0.5, **link), store=MemoryStore())
    client.start(now=0.0)
    pair.run(1.0)
    return pair


def events_of(pair: Pair, kind: Any) -> list[Any]:
    return [event for event in pair.events if isinstance(event, kind)]


def ends(pair: Pair) -> list[CallCompleted | CallFailed]:
    return events_of(pair, CallCompleted | CallFailed)


def headers_of(pair: Pair) -> set[bytes]:
    """The names of all headers that the client has sent."""
    return {name for request in pair.requests for name, _ in request.head.headers}


def calls_at(pair: Pair, method: str) -> int:
    """How often the handler of a method was called."""
    received = [event for event in pair.server_events if isinstance(event, CallReceived)]
    return [event.call.request.method for event in received].count(method)


def call(pair: Pair, method: str, params: Any = None) -> CallCompleted | CallFailed:
    """Make a call, and give whatever input it needs."""
    before, asked = len(ends(pair)), len(events_of(pair, ServerRequestReceived))
    pair.client.call(method, params, now=pair.clock.now)
    pair.run(pair.clock.now + 2)
    for event in events_of(pair, ServerRequestReceived)[asked:]:
        pair.client.respond(event.request.id, {"action": "accept"}, now=pair.clock.now)
    pair.run(pair.clock.now + 3)
    assert len(ends(pair)) == before + 1
    return ends(pair)[-1]


@every_cell
@pytest.mark.parametrize("fragments", [False, True])
def test_a_conversation(
    add: Add, base: Revision, change: Change, transport: str, fragments: bool
) -> None:
    row = add(base, change)
    is_legacy, is_http = row.era is Era.LEGACY, transport == STREAMABLE_HTTP
    pair = run(handler, transport=transport, fragments=fragments)
    (connected,) = events_of(pair, Connected)
    assert (connected.version, connected.transport) == (MADE_UP, transport)
    end = call(pair, "tools/call", {"name": "x", "arguments": {}})
    assert isinstance(end, CallCompleted)
    assert ("resultType" in end.result) == row.result_type
    assert events_of(pair, ProgressReceived)
    for _ in range(2):
        assert isinstance(call(pair, "tools/list"), CallCompleted)
    assert calls_at(pair, "tools/list") == (1 if row.caching else 2)
    pair.client.notify("notifications/roots/list_changed", now=pair.clock.now)
    pair.server.publish(CHANGED, now=pair.clock.now)
    pair.run(pair.clock.now + 1)
    assert any(isinstance(event, ClientNotified) for event in pair.server_events)
    has_stream = not is_http or (row.sessions and row.standalone_stream)
    assert len(events_of(pair, ServerNotified)) == (is_legacy and has_stream)
    if transport != STDIO:
        names = headers_of(pair)
        assert (b"mcp-protocol-version" in names) == row.version_header
        assert (b"mcp-method" in names) == row.mirrored_headers
        assert (b"mcp-session-id" in names) == (is_http and row.sessions)
    if is_legacy:
        assert len(pair.server.sessions) == (not is_http or row.sessions)
    pair.client.close(now=pair.clock.now)
    if transport != STDIO:
        pair.run()
    methods = {request.head.method for request in pair.requests}
    assert (b"DELETE" in methods) == (is_http and row.sessions)


@every_cell
def test_input(add: Add, base: Revision, change: Change, transport: str) -> None:
    """Handlers get input if results can ask for it, or servers can make requests."""
    row = add(base, change)
    pair = run(handler, transport=transport)
    reason = None
    if row.era is Era.MODERN:
        reason = None if row.result_type else "a result cannot ask for input"
    elif not row.server_requests:
        reason = "servers make no requests"
    if reason is not None:
        with pytest.raises(LocalProtocolError, match=reason):
            call(pair, "resources/read", {"uri": "a:b"})
        return
    end = call(pair, "resources/read", {"uri": "a:b"})
    if row.era is Era.LEGACY and transport == STREAMABLE_HTTP and not row.sessions:
        # What the client has said in initialize belongs to no request.
        assert isinstance(end, CallFailed)
        assert "needs a client with the capability elicitation" in str(end.error)
        return
    assert isinstance(end, CallCompleted)
    assert end.result["given"] == {"a": {"action": "accept"}}


@every_cell
def test_subscriptions(add: Add, base: Revision, change: Change, transport: str) -> None:
    row = add(base, change)
    pair = run(handler, transport=transport)
    pair.client.call(LISTEN, {"notifications": {"toolsListChanged": True}}, now=pair.clock.now)
    pair.run(pair.clock.now + 2)
    if row.listen:
        pair.server.publish(CHANGED, now=pair.clock.now)
        pair.run(pair.clock.now + 1)
        assert CHANGED in [event.notification.method for event in events_of(pair, ServerNotified)]
        assert ends(pair) == []
    else:
        (end,) = ends(pair)
        assert isinstance(end, CallFailed)
        assert isinstance(end.error, JsonRpcError)
        assert end.error.code == -32601


@every_cell
def test_error_codes(add: Add, base: Revision, change: Change, transport: str) -> None:
    row = add(base, change)
    end = call(run(handler, transport=transport), "prompts/get", {"name": "x"})
    assert isinstance(end, CallFailed)
    assert isinstance(end.error, JsonRpcError)
    assert end.error.code == row.retired_codes.get(NOT_FOUND, NOT_FOUND)


@every_cell
def test_negotiation(add: Add, base: Revision, change: Change, transport: str) -> None:
    """The row beside the one that it is a copy of: the newest that both sides have is chosen."""
    add(base, change)
    both = (base.name, MADE_UP)
    for served, spoken, chosen in (
        (both, both, MADE_UP),
        ((MADE_UP,), both, MADE_UP),
        (both, (MADE_UP,), MADE_UP),
        ((base.name,), both, base.name),
        (both, (base.name,), base.name),
        ((*REVISIONS, MADE_UP), (MADE_UP,), MADE_UP),
    ):
        pair = run(handler, transport=transport, served=served, spoken=spoken)
        (connected,) = events_of(pair, Connected)
        assert connected.version == chosen
        assert isinstance(call(pair, "tools/call", {"name": "x"}), CallCompleted)


@every_row
def test_errors_without_a_request(add: Add, base: Revision, change: Change) -> None:
    row = add(base, change)
    (error,) = Pipe(versions=(MADE_UP,)).say(b"{").said
    assert error.get("id") is None
    assert ("id" in error) == (not row.error_without_id)


@every_cell
def test_batches(add: Add, base: Revision, change: Change, transport: str) -> None:
    row = add(base, change)
    if row.era is Era.MODERN:
        return
    batch = [request(1, "ping"), request(2, "ping")]
    harness = ServerHarness(versions=(MADE_UP,), http_sse="/sse")
    if transport == STDIO:
        (answer,) = Pipe(versions=(MADE_UP,)).open(MADE_UP).say(batch).said
    elif transport == HTTP_SSE:
        client = SseClient(harness).open(MADE_UP)
        taken = client.post(batch)
        answer = client.said[0] if taken.status == 202 else taken.json
    else:
        session = harness.open_session(MADE_UP) if row.sessions else None
        answer = harness.post(batch, session, MADE_UP).json
    assert isinstance(answer, list) == row.batching


@every_row
def test_streams_are_resumed(add: Add, base: Revision, change: Change) -> None:
    """A call whose connection breaks goes on if its stream can be resumed."""
    row = add(base, change)
    pair = run(handler)
    pair.client.call("tools/call", {"name": "x"}, now=pair.clock.now)
    pair.run(pair.clock.now + 0.1)
    pair.break_connections()
    pair.run(pair.clock.now + 20)
    (end,) = ends(pair)
    assert isinstance(end, CallCompleted if row.resumption else CallFailed)
    if isinstance(end, CallFailed):
        assert "the outcome is unknown" in str(end.error)
    is_read = row.resumption or row.standalone_stream
    assert any(request.head.method == b"GET" for request in pair.requests) == is_read


@every_row
def test_streams_that_others_ask_for(add: Add, base: Revision, change: Change) -> None:
    """The client of the library asks for no stream that the revision lacks; others may."""
    row = add(base, change)
    harness = ServerHarness(versions=(MADE_UP,))
    has_session = row.era is Era.LEGACY and row.sessions
    session = harness.open_session(MADE_UP) if has_session else None
    headers = {"mcp-protocol-version": MADE_UP}
    is_offered = row.standalone_stream and row.sessions
    standalone = harness.get(session, None, headers)
    assert (standalone.status == 200) == is_offered
    if not is_offered:
        assert (standalone.status, standalone.header("allow")) == (405, "POST")
    cursor = harness.get(session, "abc-1", headers)
    if not row.resumption:
        assert (cursor.status, cursor.header("allow")) == (405, "POST")
    elif has_session:
        assert cursor.status != 405
    ended = harness.send("DELETE", {"mcp-session-id": session, **headers})
    assert ended.status == (200 if has_session else 405)


@every_row
def test_event_ids(add: Add, base: Revision, change: Change) -> None:
    row = add(base, change)
    if row.era is Era.MODERN:
        return
    harness = ServerHarness(versions=(MADE_UP,))
    session = harness.open_session(MADE_UP) if row.sessions else None
    headers = {"mcp-protocol-version": MADE_UP}
    talk, call = harness.call(session, token=1, version=MADE_UP, headers=headers)
    harness.run_action(call.progress, 1)
    harness.run_action(call.respond, {})
    ids = [event.id for event in talk.events]
    assert len(ids) == 2 + (row.polling and row.resumption)
    assert all(ids) == any(ids) == row.resumption
    assert (harness.store.size > 0) == row.resumption


def test_parameters_are_not_mirrored(add: Add) -> None:
    """``x-mcp-header`` in a tool's schema asks for no header where the revision has none."""
    add(*ROWS["newest-without-mirrored-headers"])
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    pair = run(handler, input_schema={"x": schema}.get)
    end = call(pair, "tools/call", {"name": "x", "arguments": {"a": "b"}})
    assert isinstance(end, CallCompleted)
    assert not [name for name in headers_of(pair) if name.startswith(b"mcp-param")]


def test_the_server_makes_no_requests(add: Add) -> None:
    add(*ROWS["handshake-without-server-requests"])
    harness = ServerHarness(versions=(MADE_UP,))
    _, asking = harness.call(harness.open_session(MADE_UP, {"roots": {}}), version=MADE_UP)
    with pytest.raises(LocalProtocolError, match="servers make no requests"):
        harness.run_action(asking.ask, "roots/list", timeout=5.0)


@every_row
def test_session_ids_that_a_server_sends(add: Add, base: Revision, change: Change) -> None:
    """Our server sends none where the revision has no sessions; others may."""
    row = add(base, change)
    if row.era is Era.MODERN:
        return
    harness = ClientHarness(versions=(MADE_UP,), standalone_stream=False)
    _, asked = harness.connect(MADE_UP, "abc").call()
    assert asked.header("mcp-session-id") == ("abc" if row.sessions else None)
