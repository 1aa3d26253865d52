"""What the conversations with other people's code have in common, on asyncio and on trio.

What is on both uses anyio, as the SDK does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp
import mcp_types
import pytest
import trio

import sansmcp
import sansmcp_local
import sansmcp_trio
from sansmcp import JsonRpcError
from sansmcp.events import ServerNotified

from ..thorough import always

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
_SOME_VERSIONS = always(VERSIONS, (VERSIONS[0], VERSIONS[-1]).__contains__)
in_versions = pytest.mark.parametrize("version", _SOME_VERSIONS)
"""Always in the oldest and the newest, and thoroughly in those between them."""
SDK_SERVER = [sys.executable, str(Path(__file__).with_name("sdk_server.py"))]


@contextmanager
def sdk_server(transport: str) -> Generator[str, None, None]:
    """A server made with the official SDK; gives its URL."""
    with subprocess.Popen(
        [*SDK_SERVER, transport], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def serve(
    nursery: trio.Nursery, app: sansmcp.App, **settings: Any
) -> sansmcp_trio.RunningServer:
    """Serve an application of ours over HTTP, on a free port."""
    serving: sansmcp_trio.RunningServer = await nursery.start(
        partial(sansmcp_trio.serve, app, http=("127.0.0.1", 0), **settings)
    )
    return serving


@pytest.fixture(scope="module")
def sdk_url() -> Generator[str, None, None]:
    """The URL of a server made with the SDK."""
    with sdk_server("streamable-http") as url:
        yield url


def text(result: Any) -> str:
    """The text of a tool's result, as our client gives it."""
    (content,) = result["content"]
    value: str = content["text"]
    return value


def said(result: mcp_types.CallToolResult) -> str:
    """The text of a tool's result, as their client gives it."""
    (content,) = result.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


# Our client, their server


async def exercise_sdk_server(client: sansmcp_local.Client) -> None:
    """All that ``sdk_server.py`` offers and that needs no answers of ours."""
    assert client.connected.server_info["name"] == "official"
    assert text(await client.call_tool("echo", {"text": "hällo\u2028"})) == "hällo\u2028"
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(_echo_theirs, client, f"{number} " * 20_000)
    names = {tool["name"] for tool in (await client.list_tools())["tools"]}
    assert names == {"echo", "slow", "ask", "sample", "roots", "announce", "fail"}
    assert (await client.call_tool("fail"))["isError"] is True
    (content,) = (await client.read_resource("example://greeting"))["contents"]
    assert content.get("text") == "hello"
    assert await client.ping() == {}
    with pytest.raises(JsonRpcError) as unknown:
        await client.call("no/such/method")
    assert unknown.value.code == -32601


async def _echo_theirs(client: sansmcp_local.Client, said: str) -> None:
    assert text(await client.call_tool("echo", {"text": said})) == said


async def _elicit(request: sansmcp.ServerRequest) -> Any:
    assert request.params["message"] == "name?"
    return {"action": "accept", "content": {"name": "Ada"}}


async def _sample(request: sansmcp.ServerRequest) -> Any:
    (message,) = request.params["messages"]
    assert message["content"]["text"] == "2 + 2?"
    return {"role": "assistant", "content": {"type": "text", "text": "5"}, "model": "none"}


async def _list_roots(request: sansmcp.ServerRequest) -> Any:
    return {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}


ANSWERS = {
    "elicitation/create": _elicit,
    "sampling/createMessage": _sample,
    "roots/list": _list_roots,
}
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


async def answer_sdk_requests(client: sansmcp_local.Client) -> None:
    """All that ``sdk_server.py`` may ask; the client has our ANSWERS and CAPABILITIES."""
    await receive_sdk_notifications(client)  # the stream that some questions come on is open now
    assert text(await client.call_tool("ask")) == "Ada"
    assert text(await client.call_tool("sample")) == "5"
    assert text(await client.call_tool("roots")) == "file:///a, file:///b"


async def receive_sdk_notifications(client: sansmcp_local.Client) -> None:
    """A tool logs, and says that tools have changed: both arrive, maybe on two streams.

    They keep nothing for a stream that opens later, so we ask until ours is there.
    """
    heard: dict[str, Any] = {}
    async with aclosing(client.events()) as events:
        with anyio.fail_after(30):
            while "notifications/tools/list_changed" not in heard:
                await client.call_tool("announce")
                method = ""
                while method != "notifications/message":  # which comes on the stream of the call
                    event = await anext(events)
                    if isinstance(event, ServerNotified):
                        method = event.notification.method
                        heard[method] = event.notification.params
    assert heard.keys() == {"notifications/message", "notifications/tools/list_changed"}
    assert heard["notifications/message"]["data"] == "look"


# Their client, our server


async def exercise_our_server(client: mcp.Client) -> None:
    """All that the example application offers, but for disconnections."""
    tools = await client.list_tools()
    assert [tool.name for tool in tools.tools] == ["echo", "add", "slow", "big", "ask", "fail"]
    assert said(await client.call_tool("echo", {"text": "hällo\u2028"})) == "hällo\u2028"
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(_echo_ours, client, f"{number} " * 20_000)
    assert (await client.call_tool("fail", {})).is_error
    resource = await client.read_resource("example://greeting")
    assert isinstance(resource.contents[0], mcp_types.TextResourceContents)
    assert resource.contents[0].text == "Hello from sansmcp"
    prompt = await client.get_prompt("greet", {"name": "Ada"})
    assert isinstance(prompt.messages[0].content, mcp_types.TextContent)
    assert prompt.messages[0].content.text == "Say hello to Ada."
    assert len(said(await client.call_tool("big", {"bytes": 300_000}))) == 300_000
    with pytest.raises(mcp.MCPError) as unknown:
        await client.call_tool("unknown", {})
    assert unknown.value.error.code == -32602


async def _echo_ours(client: mcp.Client, text: str) -> None:
    assert said(await client.call_tool("echo", {"text": text})) == text


async def follow_our_progress(client: mcp.Client) -> None:
    """A tool that reports progress: every report arrives once, in order, before the result."""
    reports: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    arguments = {"steps": 4, "delay": 0.01, "retry": 0.01}
    result = await client.call_tool("slow", arguments, progress_callback=on_progress)
    assert said(result) == "4 steps done"
    assert reports == [1, 2, 3, 4]


class FakeUser:
    """Answers for their client all that our asking application asks, and hears what it says."""

    def __init__(self) -> None:
        self.logged: list[Any] = []
        self.notified: list[str] = []
        self.settings: dict[str, Any] = {
            "elicitation_callback": self._elicit,
            "sampling_callback": self._sample,
            "list_roots_callback": self._list_roots,
            "logging_callback": self._log,
            "message_handler": self._hear,
        }

    async def converse(self, client: mcp.Client) -> None:
        """Let the application ask everything."""
        assert said(await client.call_tool("ask", {})) == "Ada"
        assert said(await client.call_tool("sample", {})) == "5"
        assert said(await client.call_tool("roots", {})) == "file:///a"
        assert said(await client.call_tool("announce", {})) == "announced"
        with anyio.fail_after(30):
            while not (self.logged and self.notified):
                await anyio.sleep(0.01)
        assert self.logged == ["look"]
        assert "notifications/tools/list_changed" in self.notified

    async def _elicit(self, context: Any, params: Any) -> mcp_types.ElicitResult:
        assert params.message == "name?"
        return mcp_types.ElicitResult(action="accept", content={"name": "Ada"})

    async def _sample(self, context: Any, params: Any) -> mcp_types.CreateMessageResult:
        content = mcp_types.TextContent(type="text", text="5")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="none")

    async def _list_roots(self, context: Any) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult.model_validate({"roots": [{"uri": "file:///a"}]})

    async def _log(self, params: Any) -> None:
        self.logged.append(params.data)

    async def _hear(self, message: Any) -> None:
        self.notified.append(str(getattr(message, "method", message)))


@pytest.fixture(params=_SOME_VERSIONS)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A protocol version, which their client offers instead of the newest it knows."""
    offered: str = request.param
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", offered)
    return offered
