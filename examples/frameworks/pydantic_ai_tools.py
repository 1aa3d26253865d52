"""Tools of an MCP server as tools of Pydantic AI.

python pydantic_ai_tools.py URL    # of a server that has a tool "add", such as sansmcp serve
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import sansmcp_asyncio


def as_tool(client: sansmcp_asyncio.Client, tool: dict[str, Any]) -> Tool[None]:
    """One tool of the server."""

    async def call(**arguments: Any) -> Any:
        result = await client.call_tool(tool["name"], arguments)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise ModelRetry(text)  # the model reads it, and may try again
        return result.get("structuredContent", text)

    return Tool.from_schema(call, tool["name"], tool.get("description"), tool["inputSchema"])


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands for a model: it calls a tool, wrongly at first, and ends with the result."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart) and last.outcome == "success":
        return ModelResponse(parts=[TextPart(f"It is {last.content['result']}")])
    first = len(messages) == 1
    arguments = {"a": "one"} if first else {"a": 1, "b": 2}
    return ModelResponse(parts=[ToolCallPart("add", arguments)])


async def main(url: str) -> None:
    async with sansmcp_asyncio.connect(url) as client:
        listed = await client.call("tools/list")
        tools = [as_tool(client, tool) for tool in listed["tools"]]
        print(*(tool.name for tool in tools))
        agent = Agent(FunctionModel(script), tools=tools)
        print((await agent.run("How much is 1 + 2?")).output)


asyncio.run(main(sys.argv[1]))
