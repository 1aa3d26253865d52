"""Clients that find out which transport a server speaks, and replies recorded from servers."""

from __future__ import annotations

from sansmcp import CallError, KnownServers, ReconnectPolicy
from sansmcp.events import Closed, Connected
from sansmcp.states import ClientState

from .harness import ONCE, URL, Asked, ClientHarness, initialized
from .sse_harness import tell_endpoint

SSE_URL_POSTED = (
    b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"This URL is an event stream: GET it",'
    b'"data":{"reason":"http_sse_stream_url","mcpUrl":null}}}'
)
SESSION_REQUIRED = (
    b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"No Mcp-Session-Id: POST initialize to this'
    b' URL first","data":{"reason":"session_required","transports":["streamable-http"],'
    b'"httpSseUrl":null}}}'
)
NOT_ACCEPTABLE = (
    b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,'
    b'"message":"Not Acceptable: Client must accept text/event-stream"}}'
)
JSON = {"content_type": "application/json"}


def started(
    known_servers: KnownServers, url: str = URL, policy: ReconnectPolicy = ONCE
) -> ClientHarness:
    harness = ClientHarness(url=url, known_servers=known_servers, reconnect=policy)
    harness.run_command(harness.client.start)
    return harness


def failure(harness: ClientHarness) -> CallError:
    """The client is closed, nothing is left to do, and why."""
    event = harness.events[-1]
    assert isinstance(event, Closed)
    assert event.error is not None
    assert harness.requests == []
    assert harness.client.state is ClientState.CLOSED
    assert harness.client.next_deadline() is None
    return event.error


def by_http_sse(harness: ClientHarness) -> Asked:
    """The server is one of HTTP+SSE, and the stream is asked for."""
    stream = harness.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    asked = harness.take()
    asked.accept()
    stream.event(initialized(asked.id))
    harness.take().accept()
    assert connected(harness) == "http+sse"
    return stream


def by_streamable_http(harness: ClientHarness) -> None:
    """The server is one of Streamable HTTP, and ``initialize`` was sent."""
    harness.take_initialize()
    harness.take().accept()
    assert connected(harness) == "streamable-http"


def connected(harness: ClientHarness) -> str:
    event = harness.events[-1]
    assert isinstance(event, Connected)
    return event.transport
