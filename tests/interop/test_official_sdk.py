"""The official Python SDK at the other end, in both directions, at each revision it speaks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mcp
import mcp_types
import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import JsonRpcError, ReconnectPolicy
from sansmcp.events import ProgressReceived, Reconnecting
from sansmcp_cli import example
from sansmcp_trio import Call

pytestmark = pytest.mark.filterwarnings("default")

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
POLICY = ReconnectPolicy(initial=0.02)


@pytest.fixture(scope="module")
def sdk_url() -> Iterator[str]:
    """The URL of a server made with the SDK."""
    script = Path(__file__).with_name("sdk_server.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def text(result: Any) -> str:
    (content,) = result["content"]
    value: str = content["text"]
    return value


# Our client, their server


@pytest.mark.parametrize("version", VERSIONS)
async def test_our_client_uses_their_server(sdk_url: str, version: str) -> None:
    async with sansmcp_trio.connect(sdk_url, versions=(version,)) as client:
        assert client.connected.version == version
        assert client.connected.server_info["name"] == "official"
        assert text(await client.call_tool("echo", {"text": "hällo\u2028"})) == "hällo\u2028"
        names = {tool["name"] for tool in (await client.list_tools())["tools"]}
        assert names == {"echo", "slow", "ask", "fail"}
        assert (await client.call_tool("fail"))["isError"] is True
        (content,) = (await client.read_resource("example://greeting"))["contents"]
        assert content["text"] == "hello"
        assert await client.ping() == {}
        with pytest.raises(JsonRpcError):
            await client.call("no/such/method")


@pytest.mark.parametrize("version", VERSIONS)
async def test_our_client_follows_their_streams(sdk_url: str, version: str) -> None:
    """At 2025-11-25 the server closes the stream in the middle, and we come back for the rest."""
    reports: list[ProgressReceived] = []
    reconnections: list[Reconnecting] = []
    async with sansmcp_trio.connect(sdk_url, versions=(version,), reconnect=POLICY) as client:

        async def watch() -> None:
            async for event in client.events():
                if isinstance(event, Reconnecting) and event.call is not None:
                    reconnections.append(event)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            result = await client.call_tool("slow", {"steps": 6}, on_progress=reports.append)
            nursery.cancel_scope.cancel()
    assert text(result) == "done"
    assert [report.progress for report in reports] == [1, 2, 3, 4, 5, 6]
    if version == "2025-11-25":
        assert reconnections
        assert all(event.delay >= 0.02 for event in reconnections)


async def test_our_client_answers_their_questions(sdk_url: str) -> None:
    async def elicit(params: Any) -> Any:
        assert params["message"] == "name?"
        return {"action": "accept", "content": {"name": "Ada"}}

    async with sansmcp_trio.connect(
        sdk_url, answers={"elicitation/create": elicit}, capabilities={"elicitation": {}}
    ) as client:
        assert text(await client.call_tool("ask")) == "Ada"


async def test_a_call_to_their_server_times_out(sdk_url: str) -> None:
    async with sansmcp_trio.connect(sdk_url) as client:
        with pytest.raises(sansmcp.RequestTimeout):
            await client.call_tool("slow", {"steps": 10}, timeout=0.0)
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"


# Their client, our server


async def serve(nursery: trio.Nursery, app: sansmcp.App, **settings: Any) -> sansmcp_trio.Serving:
    serving: sansmcp_trio.Serving = await nursery.start(
        partial(sansmcp_trio.serve, app, http=("127.0.0.1", 0), **settings)
    )
    return serving


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_their_client_uses_our_server(version: str, mode: Any) -> None:
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, example.app, versions=(version,))
        async with mcp.Client(serving.url, mode=mode) as client:
            tools = await client.list_tools()
            assert [tool.name for tool in tools.tools] == ["echo", "add", "slow", "big", "fail"]
            result = await client.call_tool("echo", {"text": "hällo\u2028"})
            (content,) = result.content
            assert isinstance(content, mcp_types.TextContent)
            assert content.text == "hällo\u2028"
            failed = await client.call_tool("fail", {})
            assert failed.is_error
            resource = await client.read_resource("example://greeting")
            assert isinstance(resource.contents[0], mcp_types.TextResourceContents)
            assert resource.contents[0].text == "Hello from sansmcp"
            big = await client.call_tool("big", {"bytes": 300_000})
            assert isinstance(big.content[0], mcp_types.TextContent)
            assert len(big.content[0].text) == 300_000
            with pytest.raises(mcp.MCPError):
                await client.call_tool("unknown", {})
        serving.stop()


@pytest.mark.parametrize("version", VERSIONS)
async def test_their_client_follows_our_streams(version: str) -> None:
    """At 2025-11-25 our server lets the client go in the middle; it comes back for the rest."""
    reports: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, example.app, versions=(version,))
        async with mcp.Client(serving.url, mode="legacy") as client:
            arguments = {"steps": 4, "delay": 0.01, "retry": 0.01}
            result = await client.call_tool("slow", arguments, progress_callback=on_progress)
            (content,) = result.content
            assert isinstance(content, mcp_types.TextContent)
            assert content.text == "4 steps done"
        serving.stop()
    assert reports == [1, 2, 3, 4]


async def test_their_client_answers_our_questions() -> None:
    app = sansmcp.App("asks")

    @app.handler("tools/list")
    def list_tools(call: Call) -> dict[str, Any]:
        return {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}

    @app.handler("tools/call")
    async def call_tool(call: Call) -> dict[str, Any]:
        answer = await call.ask(
            "elicitation/create",
            {"message": "name?", "requestedSchema": {"type": "object", "properties": {}}},
        )
        await call.notify("notifications/message", {"level": "info", "data": "thanks"})
        return {"content": [{"type": "text", "text": answer["content"]["name"]}]}

    async def elicit(context: Any, params: Any) -> Any:
        return mcp_types.ElicitResult(action="accept", content={"name": "Ada"})

    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, app)
        async with mcp.Client(serving.url, mode="legacy", elicitation_callback=elicit) as client:
            result = await client.call_tool("ask", {})
            (content,) = result.content
            assert isinstance(content, mcp_types.TextContent)
            assert content.text == "Ada"
        serving.stop()
