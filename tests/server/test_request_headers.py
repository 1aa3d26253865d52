"""What handlers see of the HTTP request that they answer."""

from __future__ import annotations

import pytest

from sansmcp import RequestHeaders, ServerCall
from sansmcp.events import CallReceived
from sansmcp.server.stdio import ServerPipe

from .harness import ServerHarness, request
from .modern.harness import ModernServerHarness, modern
from .sse_harness import SseClient

SECRET = {"authorization": "Bearer hunter2", "x-tenant": "blue"}


def call_of(harness: ServerHarness) -> ServerCall:
    (event,) = [event for event in harness.events if isinstance(event, CallReceived)]
    return event.call


def shown(headers: RequestHeaders) -> None:
    assert headers["x-tenant"] == headers["X-Tenant"] == "blue"
    assert headers.get("x-other") is None
    assert {"authorization", "x-tenant"} <= {*headers}
    assert len(headers) == len({*headers})
    assert "authorization" in repr(headers)
    assert "hunter2" not in repr(headers)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
def test_in_a_session(version: str) -> None:
    harness = ServerHarness()
    session = harness.open_session(version)
    harness.post(request(1), session, version, headers={**SECRET})
    shown(call_of(harness).headers)


def test_without_a_session() -> None:
    harness = ModernServerHarness()
    harness.ask(modern(1, "tools/call", name="x"), headers={**SECRET})
    shown(call_of(harness).headers)


def test_several_values_of_one_name() -> None:
    harness = ModernServerHarness()
    harness.ask_with(modern(1, "tools/call", name="x"), (b"x-a", b"1"), (b"x-a", b"\xe4"))
    headers = call_of(harness).headers
    assert (headers["x-a"], headers.values_of("X-A")) == ("1, \u00e4", ("1", "\u00e4"))


def test_on_http_sse_they_are_those_of_the_stream() -> None:
    harness = ServerHarness(http_sse="/sse")
    call = SseClient(harness, "/sse").open().call()
    assert call.headers["accept"] == "text/event-stream"


def test_there_are_none_on_stdio() -> None:
    harness = ServerHarness()
    pipe = ServerPipe(harness.server, now=0)
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{'
    line += b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    line += b'"io.modelcontextprotocol/clientCapabilities":{}}}}\n'
    pipe.receive_data(line, now=0)
    harness.run_pending()
    assert dict(call_of(harness).headers) == {}
