"""The client of the official SDK uses tools made from functions, over HTTP and on stdio."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp
import mcp_types
import pytest
import trio

import sansmcp_tools
from sansmcp_tools import Context, Image, ResourceLink, ThreadContext

from ..interop.conftest import serve

tools = sansmcp_tools.Tools("ours", "1.0")

VIEW, PAGE = "ui://order/view", "text/html;profile=mcp-app"
SHOWN_BY = {"ui": {"resourceUri": VIEW, "visibility": ["model", "app"]}}
UI = {"ui": {"csp": {"connectDomains": ["https://api.example"]}}, "com.example/a": [1, None]}


@tools.tool(title="Add", read_only=True)
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


@tools.tool
async def order(drink: Literal["tea", "coffee"], context: Context) -> dict[str, Any]:
    """Order a drink."""
    await context.progress(1, 2)
    answer = await context.elicit(int, f"How many cups of {drink}?")
    return {"drink": drink, "answer": repr(answer)}


@tools.tool
def order_in_thread(context: ThreadContext) -> str:
    """Order something."""
    return repr(context.elicit(bool, "Tea?"))


@tools.tool(meta=SHOWN_BY)
def show() -> list[str | Image | ResourceLink]:
    """Show content."""
    return ["see", Image(b"img"), ResourceLink("note://1", "one")]


@tools.resource("note://{id}")
def note(id: int) -> str:
    """A note."""
    return f"note {id}"


@tools.resource(VIEW, mime_type=PAGE, meta=UI)
def view() -> str:
    """The page of a tool (SEP-1865)."""
    return "<!DOCTYPE html>"


@tools.prompt
def greet(name: str, tone: Literal["warm", "cold"] = "warm") -> str:
    """Greet."""
    return f"A {tone} greeting for {name}"


async def _elicit(context: Any, params: Any) -> mcp_types.ElicitResult:
    (kind,) = (each["type"] for each in params.requested_schema["properties"].values())
    value = 3 if kind == "integer" else True
    return mcp_types.ElicitResult(action="accept", content={"value": value})


@asynccontextmanager
async def connected(transport: str, mode: Any) -> AsyncGenerator[mcp.Client]:
    """Their client, connected to our tools."""
    if transport == "stdio":
        command = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", __name__],
            cwd=Path(__file__).parents[2],
            env={"PYTHONPATH": "adapters"},
        )
        async with mcp.Client(command, mode=mode, elicitation_callback=_elicit) as client:
            yield client
        return
    async with trio.open_nursery() as nursery:
        serving = await serve(nursery, tools.app)
        async with mcp.Client(serving.url, mode=mode, elicitation_callback=_elicit) as client:
            yield client
        serving.stop()


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_their_client_uses_our_tools(transport: str, mode: str) -> None:
    reports: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async with connected(transport, mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(listed) == ["add", "order", "order_in_thread", "show"]
        assert listed["add"].annotations == mcp_types.ToolAnnotations(read_only_hint=True)
        assert listed["add"].input_schema["properties"]["a"]["description"] == "the first"
        sum = await client.call_tool("add", {"a": 1})
        assert sum.structured_content == {"result": 3}
        wrong = await client.call_tool("add", {"a": "one"})
        assert wrong.is_error
        assert "Expected `int`, got `str` - at `a`" in _text(wrong)
        tea = await client.call_tool("order", {"drink": "tea"}, progress_callback=report)
        assert tea.structured_content == {"drink": "tea", "answer": "Accepted(value=3)"}
        assert reports[:1] == [1]
        assert _text(await client.call_tool("order_in_thread")) == "Accepted(value=True)"
        shown = await client.call_tool("show")
        assert [block.type for block in shown.content] == ["text", "image", "resource_link"]
        assert listed["show"].meta == SHOWN_BY
        (resource,) = (await client.list_resources()).resources
        assert (resource.uri, resource.mime_type, resource.meta) == (VIEW, PAGE, UI)
        (contents,) = (await client.read_resource(VIEW)).contents
        assert isinstance(contents, mcp_types.TextResourceContents)
        assert (contents.mime_type, contents.text, contents.meta) == (PAGE, "<!DOCTYPE html>", UI)
        (contents,) = (await client.read_resource("note://7")).contents
        assert isinstance(contents, mcp_types.TextResourceContents)
        assert contents.text == "note 7"
        (message,) = (await client.get_prompt("greet", {"name": "Ada"})).messages
        assert isinstance(message.content, mcp_types.TextContent)
        assert message.content.text == "A warm greeting for Ada"
        reference = mcp_types.PromptReference(name="greet")
        found = await client.complete(reference, {"name": "tone", "value": "c"})
        assert found.completion.values == ["cold"]
        with pytest.raises(mcp.MCPError, match="There is no tool 'other'"):
            await client.call_tool("other")


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_their_client_listens_for_what_is_not_honoured(transport: str) -> None:
    """The subscription is acknowledged, and completed at once."""
    async with connected(transport, "2026-07-28") as client:
        async with client.listen() as subscription:
            events = [event async for event in subscription]
        assert events == []
        assert not subscription.honored.model_dump(exclude_none=True)


def _text(result: mcp_types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    return block.text


if __name__ == "__main__":
    sansmcp_tools.run(tools)
