"""Tools of an MCP server as tools of LangChain.

python langchain_tools.py URL    # of a server that has a tool "add", such as sansmcp serve
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.tools import StructuredTool, ToolException

import sansmcp_asyncio


def as_tool(client: sansmcp_asyncio.Client, tool: dict[str, Any]) -> StructuredTool:
    """One tool of the server."""

    async def call(**arguments: Any) -> tuple[str, Any]:
        result = await client.call_tool(tool["name"], arguments)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise ToolException(text)  # the model reads it
        return text, result.get("structuredContent")

    return StructuredTool(
        name=tool["name"],
        description=tool.get("description", ""),
        args_schema=tool["inputSchema"],
        coroutine=call,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


async def main(url: str) -> None:
    async with sansmcp_asyncio.connect(url) as client:
        listed = await client.call("tools/list")
        tools = {tool["name"]: as_tool(client, tool) for tool in listed["tools"]}
        print(*tools)
        # What an agent does with each call that a model asks for:
        for arguments in ({"a": 1, "b": 2}, {"a": "one"}):
            call = ToolCall(name="add", args=arguments, id="1", type="tool_call")
            answer = await tools["add"].ainvoke(call)
            print(answer.status, answer.content)


asyncio.run(main(sys.argv[1]))
