"""Clients that find out which transport a server speaks, and replies recorded from servers."""

from __future__ import annotations

from sansmcp import CallError, KnownServers, ReconnectPolicy
from sansmcp.events import Closed, Connected
from sansmcp.states import ClientState

from .bench import ONCE, URL, Asked, Bench, initialized
from .sse_bench import tell_endpoint

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


def started(known_servers: KnownServers, url: str = URL, policy: ReconnectPolicy = ONCE) -> Bench:
    bench = Bench(url=url, known_servers=known_servers, reconnect=policy)
    bench.do(bench.client.start)
    return bench


def failure(bench: Bench) -> CallError:
    """The client is closed, nothing is left to do, and why."""
    event = bench.events[-1]
    assert isinstance(event, Closed)
    assert event.error is not None
    assert bench.requests == []
    assert bench.client.state is ClientState.CLOSED
    assert bench.client.next_deadline() is None
    return event.error


def by_http_sse(bench: Bench) -> Asked:
    """The server is one of HTTP+SSE, and the stream is asked for."""
    stream = bench.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    asked = bench.take()
    asked.accept()
    stream.event(initialized(asked.id))
    bench.take().accept()
    assert connected(bench) == "http+sse"
    return stream


def by_streamable_http(bench: Bench) -> None:
    """The server is one of Streamable HTTP, and ``initialize`` was sent."""
    bench.take_initialize()
    bench.take().accept()
    assert connected(bench) == "streamable-http"


def connected(bench: Bench) -> str:
    event = bench.events[-1]
    assert isinstance(event, Connected)
    return event.transport
