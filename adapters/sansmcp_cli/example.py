"""The example application: a few tools that show what the wire can do, a resource and a prompt.

``sansmcp serve`` serves it when it is given no other; the tests use it too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from sansmcp import App, JsonRpcError
from sansmcp_trio import Call

Tool: TypeAlias = Callable[[Call, dict[str, Any]], Awaitable[str]]

app = App("sansmcp-example", "1.0", "Try the tools echo, add, slow, big and fail.")


async def echo(call: Call, arguments: dict[str, Any]) -> str:
    """Give back the text."""
    return str(arguments["text"])


async def add(call: Call, arguments: dict[str, Any]) -> str:
    """Add two numbers."""
    return str(arguments["a"] + arguments["b"])


async def slow(call: Call, arguments: dict[str, Any]) -> str:
    """Report progress, let the client go in the middle, and finish while it is away."""
    steps, delay = int(arguments.get("steps", 5)), float(arguments.get("delay", 0.1))
    for step in range(1, steps + 1):
        await trio.sleep(delay)
        await call.progress(step, steps, f"step {step} of {steps}")
        if step == (steps + 1) // 2:
            await call.disconnect(retry=float(arguments.get("retry", 2 * delay)))
    return f"{steps} steps done"


async def big(call: Call, arguments: dict[str, Any]) -> str:
    """A text of that many bytes."""
    return "x" * int(arguments["bytes"])


async def fail(call: Call, arguments: dict[str, Any]) -> str:
    """A tool that fails."""
    raise ValueError(str(arguments.get("reason", "this tool always fails")))


_NUMBER = {"type": "number"}
_TOOLS: dict[str, tuple[Tool, dict[str, Any], list[str]]] = {
    "echo": (echo, {"text": {"type": "string"}}, ["text"]),
    "add": (add, {"a": _NUMBER, "b": _NUMBER}, ["a", "b"]),
    "slow": (slow, {"steps": {"type": "integer"}, "delay": _NUMBER, "retry": _NUMBER}, []),
    "big": (big, {"bytes": {"type": "integer", "minimum": 0}}, ["bytes"]),
    "fail": (fail, {"reason": {"type": "string"}}, []),
}


@app.handler("tools/list")
def list_tools(call: Call) -> dict[str, Any]:
    """All tools, on one page."""
    return {
        "tools": [
            {
                "name": name,
                "description": tool.__doc__,
                "inputSchema": {"type": "object", "properties": properties, "required": required},
            }
            for name, (tool, properties, required) in _TOOLS.items()
        ]
    }


@app.handler("tools/call")
async def call_tool(call: Call) -> dict[str, Any]:
    """Run a tool.

    What goes wrong inside a tool is a result that says so; errors are for calls that cannot be run.
    """
    name = call.params.get("name")
    if name not in _TOOLS:
        raise JsonRpcError(-32602, f"There is no tool {name!r}", {"tools": list(_TOOLS)})
    tool, _, required = _TOOLS[name]
    arguments: dict[str, Any] = call.params.get("arguments") or {}
    missing = [parameter for parameter in required if parameter not in arguments]
    if missing:
        raise JsonRpcError(-32602, f"{name} needs {' and '.join(missing)}")
    try:
        text, failed = await tool(call, arguments), False
    except (ValueError, TypeError) as error:
        text, failed = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


@app.handler("resources/list")
def list_resources(call: Call) -> dict[str, Any]:
    """The one resource."""
    return {
        "resources": [{"uri": "example://greeting", "name": "greeting", "mimeType": "text/plain"}]
    }


@app.handler("resources/read")
def read_resource(call: Call) -> dict[str, Any]:
    """Its contents."""
    uri = call.params.get("uri")
    if uri != "example://greeting":
        raise JsonRpcError(-32002, f"There is no resource {uri!r}")
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "Hello from sansmcp"}]}


@app.handler("prompts/list")
def list_prompts(call: Call) -> dict[str, Any]:
    """The one prompt."""
    return {"prompts": [{"name": "greet", "arguments": [{"name": "name", "required": True}]}]}


@app.handler("prompts/get")
def get_prompt(call: Call) -> dict[str, Any]:
    """It, filled in."""
    arguments: dict[str, str] = call.params.get("arguments") or {}
    text = f"Say hello to {arguments.get('name', 'everybody')}."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
