"""Tools of an MCP server as tools of OpenAI Agents.

python openai_agents_tools.py URL    # of a server that has a tool "add", such as sansmcp serve
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import agents
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import sansmcp_asyncio


def as_tool(client: sansmcp_asyncio.Client, tool: dict[str, Any]) -> agents.FunctionTool:
    """One tool of the server."""

    async def call(context: ToolContext[Any], arguments: str) -> str:
        result = await client.call_tool(tool["name"], json.loads(arguments))
        # With isError the text says what was wrong, and the model reads it.
        return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")

    return agents.FunctionTool(
        name=tool["name"],
        description=tool.get("description", ""),
        params_json_schema=tool["inputSchema"],
        on_invoke_tool=call,
        strict_json_schema=False,  # the schema is the server's
    )


class Script(agents.Model):
    """Stands for a model: it calls a tool, and ends with what the tool has returned."""

    async def get_response(
        self, system_instructions: str | None, input: Any, *_: Any, **__: Any
    ) -> agents.ModelResponse:
        """Return the next call, or the end."""
        last = input[-1] if isinstance(input, list) else {}
        output: ResponseFunctionToolCall | ResponseOutputMessage
        if last.get("type") == "function_call_output":
            text = ResponseOutputText(
                text=f"It is {last['output']}", type="output_text", annotations=[]
            )
            output = ResponseOutputMessage(
                id="2", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            output = ResponseFunctionToolCall(
                name="add", arguments='{"a": 1, "b": 2}', call_id="1", type="function_call"
            )
        return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used here."""
        raise NotImplementedError


async def main(url: str) -> None:
    agents.set_tracing_disabled(True)  # it would be sent to a service
    async with sansmcp_asyncio.connect(url) as client:
        listed = await client.call("tools/list")
        tools = [as_tool(client, tool) for tool in listed["tools"]]
        print(*(tool.name for tool in tools))
        agent = agents.Agent(name="adder", model=Script(), tools=list[agents.Tool](tools))
        print((await agents.Runner.run(agent, "How much is 1 + 2?")).final_output)


asyncio.run(main(sys.argv[1]))
