"""The story of seed 004: a client set up for HTTP+SSE, a server of Streamable HTTP, and a bare 406.

Here each such mistake gets a status, a reason and a sentence that says what to send instead, and
our client shows what a server has said.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import httpx2
import mcp
import pytest
import trio
from mcp.client.sse import sse_client

import sansmcp
import sansmcp_trio
from sansmcp_cli import example

from .conftest import exercise_our_server, sdk_server, serve, text

Served = Callable[..., Awaitable[sansmcp_trio.RunningServer]]


@pytest.fixture
async def served(nursery: trio.Nursery) -> AsyncGenerator[Served, None]:
    """Start a server with the example application."""
    running: list[sansmcp_trio.RunningServer] = []

    async def start(**settings: Any) -> sansmcp_trio.RunningServer:
        running.append(await serve(nursery, example.app, **settings))
        return running[-1]

    yield start
    for serving in running:
        serving.stop()


@attrs.frozen
class Answer:
    """What came back, to the last byte."""

    status: int
    headers: dict[str, str]
    body: str


async def request(url: str, method: str, *lines: str, body: str = "", until: str = "") -> Answer:
    """Send exactly these bytes, and read until that, or until the end of the connection."""
    where = sansmcp.Url.parse(url)
    head = (f"{method} {where.target} HTTP/1.1", f"Host: {where.authority}", "Connection: close")
    async with await trio.open_tcp_stream(where.host, where.port) as stream:
        await stream.send_all("\r\n".join((*head, *lines, "", body)).encode())
        received = ""
        async for data in stream:
            received += data.decode()
            if until and until in received:
                break
    answered, _, rest = received.partition("\r\n\r\n")
    status, *fields = answered.split("\r\n")
    headers = {name.lower(): value for name, _, value in (f.partition(": ") for f in fields)}
    return Answer(int(status.split()[1]), headers, rest)


EVENT_STREAM = "Accept: text/event-stream"
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        },
    }
)


def post(url: str, accept: str) -> Awaitable[Answer]:
    """POST initialize."""
    lines = ("Content-Type: application/json", f"Content-Length: {len(INITIALIZE)}")
    return request(url, "POST", *lines, f"Accept: {accept}", body=INITIALIZE)


# What our server says


async def test_an_old_client_is_told_that_its_transport_is_not_served(served: Served) -> None:
    answer = await request((await served()).url, "GET", EVENT_STREAM)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert answer.body == (
        '{"jsonrpc":"2.0","error":{"code":-32600,"message":"No Mcp-Session-Id: POST initialize to '
        "this URL first, then GET with the id it returns. The HTTP+SSE transport is not served on "
        'this URL","data":{"reason":"session_required","transports":["streamable-http"],'
        '"httpSseUrl":null}}}'
    )


async def test_an_old_client_is_told_where_its_transport_is_served(served: Served) -> None:
    answer = await request((await served(http_sse="/sse")).url, "GET", EVENT_STREAM)
    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert error["data"] == {
        "reason": "session_required",
        "transports": ["streamable-http"],
        "httpSseUrl": "/sse",
    }
    assert error["message"].endswith("The HTTP+SSE transport is served at /sse")


@pytest.mark.parametrize(("http_sse", "messages"), [("/sse", "/messages"), ("/mcp", "/mcp")])
async def test_an_old_client_is_welcome_where_its_transport_is_served(
    served: Served, http_sse: str, messages: str
) -> None:
    serving = await served(http_sse=http_sse)
    url = serving.url.replace("/mcp", http_sse)
    answer = await request(url, "GET", EVENT_STREAM, until="session_id=")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert f"event: endpoint\ndata: {messages}?session_id=" in answer.body


@pytest.mark.parametrize(
    "accept", [["Accept: application/json"], ["Accept: text/html"], ["Accept: text/html, */*;q=0"]]
)
async def test_a_get_that_wants_no_event_stream(served: Served, accept: list[str]) -> None:
    answer = await request((await served()).url, "GET", *accept)
    assert (answer.status, answer.headers["content-type"]) == (406, "application/json")
    assert answer.body == (
        '{"jsonrpc":"2.0","error":{"code":-32600,"message":"GET here opens an event stream: send '
        'Accept: text/event-stream","data":{"reason":"not_acceptable","required":'
        '["text/event-stream"]}}}'
    )


@pytest.mark.parametrize(
    ("accept", "missing"),
    [
        ("application/json", "text/event-stream"),
        ("text/event-stream", "application/json"),
        ("text/event-stream, application/json;q=0", "application/json"),
    ],
)
async def test_a_post_is_told_which_media_type_is_missing(
    served: Served, accept: str, missing: str
) -> None:
    answer = await post((await served()).url, accept)
    assert (answer.status, answer.headers["content-type"]) == (406, "application/json")
    assert answer.body == (
        '{"jsonrpc":"2.0","error":{"code":-32600,"message":"POST needs Accept: application/json, '
        f'text/event-stream; {missing} is missing","data":{{"reason":"not_acceptable","required":'
        f'["application/json","text/event-stream"],"missing":["{missing}"]}}}}}}'
    )


async def test_a_post_to_the_event_stream_is_told_where_messages_go(served: Served) -> None:
    serving = await served(http_sse="/sse")
    answer = await post(serving.url.replace("/mcp", "/sse"), "application/json, text/event-stream")
    assert (answer.status, answer.headers["allow"]) == (405, "GET")
    assert json.loads(answer.body)["error"]["data"] == {
        "reason": "http_sse_stream_url",
        "mcpUrl": "/mcp",
    }


async def test_an_invented_session_id_is_told_from_a_missing_one(served: Served) -> None:
    """The wrong theory of the story was ``?sessionId=`` in the URL."""
    serving = await served()
    in_the_query = await request(f"{serving.url}?sessionId=mine", "GET", EVENT_STREAM)
    assert json.loads(in_the_query.body)["error"]["data"]["reason"] == "session_required"
    in_the_head = await request(serving.url, "GET", EVENT_STREAM, "Mcp-Session-Id: mine")
    error = json.loads(in_the_head.body)["error"]
    assert (in_the_head.status, error["code"]) == (404, -32600)
    assert error["message"].startswith("Unknown or expired session; send initialize to open")
    assert error["data"] == {"reason": "session_not_found"}


# What their client, set up for HTTP+SSE, makes of it


async def test_their_old_client_fails_where_its_transport_is_not_served(served: Served) -> None:
    serving = await served()
    with pytest.RaisesGroup(
        pytest.RaisesExc(httpx2.HTTPStatusError, match="400"),
        allow_unwrapped=True,
        flatten_subgroups=True,
    ):
        async with mcp.Client(sse_client(serving.url), mode="legacy"):
            pytest.fail("It must not connect")


@pytest.mark.parametrize("http_sse", ["/sse", "/mcp"])
async def test_their_old_client_works_where_both_are_served(served: Served, http_sse: str) -> None:
    serving = await served(http_sse=http_sse)
    url = serving.url.replace("/mcp", http_sse)
    async with mcp.Client(sse_client(url), mode="legacy") as client:
        await exercise_our_server(client)


# What our client makes of the servers of others


@pytest.fixture(scope="module")
def sdk_url() -> Generator[str, None, None]:
    """A server of the official SDK that speaks only Streamable HTTP, as in the story."""
    with sdk_server("streamable-http") as url:
        yield url


async def test_our_client_set_up_for_http_sse_shows_what_their_server_says(sdk_url: str) -> None:
    with pytest.raises(sansmcp.RequestRefused) as refused:
        async with sansmcp_trio.connect(sdk_url, transports=("http+sse",)):
            pytest.fail("It must not connect")
    error = refused.value
    assert (error.http_method, error.url, error.status) == ("GET", sdk_url, 400)
    assert f"GET {sdk_url} was answered with HTTP 400: Bad Request: Missing session ID" in str(
        error
    )


async def test_our_client_left_to_itself_gets_along_with_their_server(sdk_url: str) -> None:
    async with sansmcp_trio.connect(sdk_url) as client:
        assert text(await client.call_tool("echo", {"text": "hi"})) == "hi"


def refusal(**more: Any) -> str:
    """What servers of others put beside the status, or should."""
    error = {"code": -32600, "message": "Not with that Accept", **more}
    return json.dumps({"jsonrpc": "2.0", "error": error})


async def refuse(body: str, stream: trio.SocketStream) -> None:
    """Answer every request on a connection with 406, and close it."""
    async with stream:
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        await stream.send_all(
            "HTTP/1.1 406 Not Acceptable\r\nContent-Type: application/json\r\nConnection: close"
            f"\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )


@asynccontextmanager
async def refusing(body: str) -> AsyncGenerator[str, None]:
    """A server that answers everything with 406."""
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(trio.serve_tcp, partial(refuse, body), 0, host="127.0.0.1")
        )
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("transport", "method"), [("streamable-http", "POST"), ("http+sse", "GET")]
)
async def test_our_client_shows_everything_about_a_406(transport: str, method: str) -> None:
    async with refusing(refusal(data={"reason": "no_such_form"})) as url:
        with pytest.raises(sansmcp.RequestRefused) as refused:
            async with sansmcp_trio.connect(url, transports=(transport,)):
                pytest.fail("It must not connect")
    shown = refused.value
    assert (shown.status, shown.http_method, shown.url) == (406, method, url)
    assert shown.reason == "no_such_form"
    assert b"Not with that Accept" in shown.body
    assert str(shown).endswith(
        f"{method} {url} was answered with HTTP 406: Not with that Accept (no_such_form)"
    )


async def test_our_client_tells_of_every_attempt_and_takes_406_for_no_login() -> None:
    async with refusing(refusal()) as url:
        with pytest.raises(sansmcp.NegotiationFailed) as failed:
            async with sansmcp_trio.connect(url):
                pytest.fail("It must not connect")
    assert str(failed.value).splitlines() == [
        f"No MCP transport works at {url}:",
        f"- streamable-http: initialize was refused: POST {url} was answered with HTTP 406: "
        "Not with that Accept",
        f"- http+sse: opening the event stream was refused: GET {url} was answered with HTTP 406: "
        "Not with that Accept",
    ]
    statuses = [getattr(attempt, "status", None) for attempt in failed.value.attempts]
    assert statuses == [406, 406]


async def test_our_client_shows_a_406_without_any_explanation() -> None:
    async with refusing("") as url:
        with pytest.raises(sansmcp.RequestRefused) as refused:
            async with sansmcp_trio.connect(url, transports=("streamable-http",)):
                pytest.fail("It must not connect")
    assert str(refused.value).endswith(f"POST {url} was answered with HTTP 406: no explanation")
