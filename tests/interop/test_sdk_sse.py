"""The official Python SDK on HTTP+SSE, the deprecated transport, in both directions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
import pytest
import trio
from mcp.client.sse import sse_client

import sansmcp
import sansmcp_trio
from sansmcp.events import ProgressReceived
from sansmcp_cli import example
from sansmcp_trio import Call

from . import asking
from .conftest import (
    ANSWERS,
    CAPABILITIES,
    FakeUser,
    answer_sdk_requests,
    exercise_our_server,
    exercise_sdk_server,
    follow_our_progress,
    in_versions,
    receive_sdk_notifications,
    sdk_server,
    serve,
    text,
)


@pytest.fixture(scope="module")
def sdk_url() -> Iterator[str]:
    """The URL of the event stream of a server made with the SDK."""
    with sdk_server("sse") as url:
        yield url


# Our client, their server


@in_versions
async def test_our_client_uses_their_server(sdk_url: str, version: str) -> None:
    async with sansmcp_trio.connect(
        sdk_url, transports=("http+sse",), versions=(version,)
    ) as client:
        assert client.connected.version == version
        await exercise_sdk_server(client)


async def test_our_client_finds_out_what_their_server_speaks(sdk_url: str) -> None:
    async with sansmcp_trio.connect(sdk_url, known_servers=sansmcp.KnownServers()) as client:
        assert client.connected.transport == "http+sse"
        assert text(await client.call_tool("echo", {"text": "found"})) == "found"


async def test_our_client_hears_their_progress_and_notifications(sdk_url: str) -> None:
    reports: list[ProgressReceived] = []
    async with sansmcp_trio.connect(sdk_url) as client:
        result = await client.call_tool("slow", {"steps": 6}, on_progress=reports.append)
        assert text(result) == "done"
        assert [report.progress for report in reports] == [1, 2, 3, 4, 5, 6]
        await receive_sdk_notifications(client)


async def test_our_client_answers_their_questions(sdk_url: str) -> None:
    async with sansmcp_trio.connect(
        sdk_url, request_handlers=ANSWERS, capabilities=CAPABILITIES
    ) as client:
        await answer_sdk_requests(client)


async def test_a_call_to_their_server_times_out_and_the_next_one_works(sdk_url: str) -> None:
    async with sansmcp_trio.connect(sdk_url) as client:
        with pytest.raises(sansmcp.RequestTimeout):  # the tool sleeps longer than that
            await client.call_tool("slow", {"steps": 2, "pause": 10}, timeout=0.02)
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"


# Their client, our server


@asynccontextmanager
async def their_client(
    app: sansmcp.App, http_sse: str, **settings: Any
) -> AsyncGenerator[mcp.Client, None]:
    """Their client, and our server, whose event stream is on a path of its own or on /mcp."""
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, app, http_sse=http_sse)
        url = serving.url.removesuffix("/mcp") + http_sse
        async with mcp.Client(sse_client(url), mode="legacy", **settings) as client:
            yield client
        serving.stop()


@pytest.fixture(params=["/sse", "/mcp"])
def http_sse(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


async def test_their_client_uses_our_server(http_sse: str, version: str) -> None:
    async with their_client(example.app, http_sse) as client:
        assert client.protocol_version == version
        await exercise_our_server(client)


async def test_their_client_hears_our_progress(http_sse: str) -> None:
    async with their_client(example.app, http_sse) as client:
        await follow_our_progress(client)


async def test_their_client_answers_our_questions(http_sse: str) -> None:
    person = FakeUser()
    async with their_client(asking.app, http_sse, **person.settings) as client:
        await person.converse(client)


async def test_a_call_that_their_client_gives_up_is_cancelled(http_sse: str) -> None:
    app = sansmcp.App("waits")
    begun, ended = trio.Event(), trio.Event()

    @app.handler("tools/call")
    async def call_tool(call: Call) -> None:
        try:
            begun.set()
            await trio.sleep_forever()
        finally:
            ended.set()

    async def call(client: mcp.Client) -> None:
        await client.call_tool("wait", {})

    async with their_client(app, http_sse) as client:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, client)
                await begun.wait()
                nursery.cancel_scope.cancel()
            await ended.wait()


async def test_clients_of_both_transports_share_our_server(http_sse: str) -> None:
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, example.app, http_sse=http_sse)
        url = serving.url.removesuffix("/mcp") + http_sse
        async with (
            mcp.Client(sse_client(url), mode="legacy") as old,
            mcp.Client(serving.url, mode="legacy") as new,
        ):
            await exercise_our_server(old)
            await exercise_our_server(new)
        serving.stop()
