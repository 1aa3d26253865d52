"""Tools of an MCP server as tools of smolagents.

python smolagents_tools.py URL    # of a server that has a tool "add", such as sansmcp serve
"""

from __future__ import annotations

import sys
from typing import Any

from smolagents import ChatMessage, MessageRole, Model, Tool, ToolCallingAgent
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

import sansmcp_blocking


class McpTool(Tool):
    """One tool of the server."""

    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, client: sansmcp_blocking.Client, tool: dict[str, Any]) -> None:
        self.client, self.name = client, tool["name"]
        self.description = tool.get("description", "")
        schema = tool["inputSchema"]
        self.inputs = {
            name: {
                "type": each.get("type", "any"),
                "description": each.get("description", name),
                **({} if name in schema.get("required", ()) else {"nullable": True}),
            }
            for name, each in schema.get("properties", {}).items()
        }
        super().__init__()

    def forward(self, **arguments: Any) -> str:
        """Call the tool."""
        result = self.client.call_tool(self.name, arguments)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise ValueError(text)  # the model reads it
        return text


class Script(Model):
    """Stands for a model: it calls a tool, and ends with what the tool has returned."""

    def generate(self, messages: list[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        """Return the next call."""
        last = messages[-1].content
        text = last if isinstance(last, str) else str((last or [{}])[-1].get("text"))
        _, _, answer = text.partition("Observation:\n")
        wanted: tuple[str, dict[str, Any]] = ("add", {"a": 1, "b": 2})
        if answer:
            wanted = ("final_answer", {"answer": f"It is {answer}"})
        function = ChatMessageToolCallFunction(arguments=wanted[1], name=wanted[0])
        call = ChatMessageToolCall(function=function, id=wanted[0], type="function")
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def main(url: str) -> None:
    with sansmcp_blocking.connect(url) as client:
        tools = [McpTool(client, tool) for tool in client.call("tools/list")["tools"]]
        print(*(tool.name for tool in tools))
        agent = ToolCallingAgent(tools=tools, model=Script(), max_tool_threads=1, verbosity_level=0)
        print(agent.run("How much is 1 + 2?"))


main(sys.argv[1])
