"""An application that asks its client everything a server may ask, and tells it things unasked."""

from __future__ import annotations

from typing import Any

import sansmcp
from sansmcp_trio import Call

app = sansmcp.App("asking", "1")


async def ask(call: Call) -> str:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await call.ask("elicitation/create", {"message": "name?", "requestedSchema": schema})
    return str(answer["content"]["name"])


async def sample(call: Call) -> str:
    message = {"role": "user", "content": {"type": "text", "text": "2 + 2?"}}
    answer = await call.ask("sampling/createMessage", {"messages": [message], "maxTokens": 10})
    return str(answer["content"]["text"])


async def roots(call: Call) -> str:
    answer = await call.ask("roots/list")
    return ", ".join(root["uri"] for root in answer["roots"])


async def announce(call: Call) -> str:
    await call.notify("notifications/message", {"level": "warning", "data": "look"})
    await call.notify("notifications/tools/list_changed")
    return "announced"


_TOOLS = {tool.__name__: tool for tool in (ask, sample, roots, announce)}


@app.handler("tools/list")
def list_tools(call: Call) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in _TOOLS]}


@app.handler("tools/call")
async def call_tool(call: Call) -> dict[str, Any]:
    answer = await _TOOLS[call.params["name"]](call)
    return {"content": [{"type": "text", "text": answer}]}
