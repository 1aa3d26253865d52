"""The example application: tools for the features of the protocol, a resource and a prompt.

``sansmcp serve`` serves it by default; the tests use it, too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias

import sansmcp_local
from sansmcp import App, BaseCall, InputRequest, InputRequired, JsonRpcError

EXECUTION_LOG = "SANSMCP_EXAMPLE_LOG"
"""Environment variable: a file to which each run of a tool appends a line of JSON.

It counts executions beside results, across all processes that run the tools.
"""

Call: TypeAlias = BaseCall[Any, Any]
Steps: TypeAlias = Generator[Any, None, "str | InputRequired"]
"""A tool for all adapters: it yields the results of call methods, which may be awaitables."""

Tool: TypeAlias = Callable[[Call, dict[str, Any], Callable[[float], Any]], Steps]
"""Takes a call, the arguments, and a function that sleeps."""


def echo(call: Call, arguments: dict[str, Any], sleep: Callable[[float], Any]) -> Steps:
    """Return the text."""
    yield from ()
    return str(arguments["text"])


def add(call: Call, arguments: dict[str, Any], sleep: Callable[[float], Any]) -> Steps:
    """Add two numbers."""
    yield from ()
    return str(arguments["a"] + arguments["b"])


def slow(call: Call, arguments: dict[str, Any], sleep: Callable[[float], Any]) -> Steps:
    """Report progress, disconnect the client in the middle, and finish while it is disconnected."""
    steps, delay = int(arguments.get("steps", 5)), float(arguments.get("delay", 0.1))
    for step in range(1, steps + 1):
        yield sleep(delay)
        yield call.progress(step, steps, f"step {step} of {steps}")
        if step == (steps + 1) // 2:
            yield call.disconnect(retry=float(arguments.get("retry", 2 * delay)))
    return f"{steps} steps done"


def big(call: Call, arguments: dict[str, Any], sleep: Callable[[float], Any]) -> Steps:
    """Return a text of that many bytes."""
    yield from ()
    return "x" * int(arguments["bytes"])


def fail(call: Call, arguments: dict[str, Any], sleep: Callable[[float], Any]) -> Steps:
    """Fail, with the given reason."""
    yield from ()
    raise ValueError(str(arguments.get("reason", "this tool always fails")))


def ask(call: Call, arguments: dict[str, Any], sleep: Callable[[float], Any]) -> Steps:
    """Ask the user for a topic, then the model of the client for a poem about it."""
    yield from ()
    if call.saved_state is None:
        schema = {"type": "object", "properties": {"topic": {"type": "string"}}}
        question = {"message": "A poem about what?", "requestedSchema": schema}
        return InputRequired({"topic": InputRequest("elicitation/create", question)}, state={})
    if "topic" in call.input_responses:
        topic = call.input_responses["topic"].get("content", {}).get("topic", "nothing")
        text = {"type": "text", "text": f"A poem about {topic}, please."}
        order = {"messages": [{"role": "user", "content": text}], "maxTokens": 100}
        poem = InputRequest("sampling/createMessage", order)
        return InputRequired({"poem": poem}, state={"topic": topic})
    return f"{call.saved_state['topic']}: {call.input_responses['poem']['content']['text']}"


_NUMBER = {"type": "number"}
_TOOLS: dict[str, tuple[Tool, dict[str, Any], list[str]]] = {
    "echo": (echo, {"text": {"type": "string"}}, ["text"]),
    "add": (add, {"a": _NUMBER, "b": _NUMBER}, ["a", "b"]),
    "slow": (slow, {"steps": {"type": "integer"}, "delay": _NUMBER, "retry": _NUMBER}, []),
    "big": (big, {"bytes": {"type": "integer", "minimum": 0}}, ["bytes"]),
    "ask": (ask, {}, []),
    "fail": (fail, {"reason": {"type": "string"}}, []),
}


def list_tools(call: Call) -> dict[str, Any]:
    """Return all tools, on one page."""
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


async def call_tool(call: Call) -> dict[str, Any] | InputRequired:
    """Run a tool in an event loop."""
    steps = _steps(call, _sleep)
    try:
        while True:
            await next(steps)
    except StopIteration as done:
        result: dict[str, Any] | InputRequired = done.value
        return result


def call_tool_in_thread(call: Call) -> dict[str, Any] | InputRequired:
    """Run a tool in a thread; call methods block."""
    steps = _steps(call, time.sleep)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: dict[str, Any] | InputRequired = done.value
        return result


def _steps(
    call: Call, sleep: Callable[[float], Any]
) -> Generator[Any, None, dict[str, Any] | InputRequired]:
    """Run a tool.

    A failure inside a tool is a result with ``isError``; a call that cannot be run is an error.
    """
    name = call.params.get("name")
    if name not in _TOOLS:
        raise JsonRpcError(-32602, f"There is no tool {name!r}", {"tools": list(_TOOLS)})
    tool, _, required = _TOOLS[name]
    arguments: dict[str, Any] = call.params.get("arguments") or {}
    _log_execution(name, arguments)
    missing = [parameter for parameter in required if parameter not in arguments]
    if missing:
        raise JsonRpcError(-32602, f"{name} needs {' and '.join(missing)}")
    try:
        text, failed = (yield from tool(call, arguments, sleep)), False
        if isinstance(text, InputRequired):
            return text
    except (ValueError, TypeError) as error:
        text, failed = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def _log_execution(name: str, arguments: dict[str, Any]) -> None:
    file = os.environ.get(EXECUTION_LOG)
    if file is not None:
        line = json.dumps({"tool": name, "arguments": arguments}) + "\n"
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(
                descriptor, line.encode()
            )  # one write, so that lines of several processes do not mix
        finally:
            os.close(descriptor)


def _sleep(seconds: float) -> Awaitable[object]:
    loop = sansmcp_local.current_loop()
    return loop.within(seconds, loop.event().wait)


def list_resources(call: Call) -> dict[str, Any]:
    """Return the only resource."""
    return {
        "resources": [{"uri": "example://greeting", "name": "greeting", "mimeType": "text/plain"}]
    }


def read_resource(call: Call) -> dict[str, Any]:
    """Return the contents of the resource."""
    uri = call.params.get("uri")
    if uri != "example://greeting":
        raise JsonRpcError(-32002, f"There is no resource {uri!r}")
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "Hello from sansmcp"}]}


def list_prompts(call: Call) -> dict[str, Any]:
    """Return the only prompt."""
    return {"prompts": [{"name": "greet", "arguments": [{"name": "name", "required": True}]}]}


def get_prompt(call: Call) -> dict[str, Any]:
    """Return the prompt with its arguments filled in."""
    arguments: dict[str, str] = call.params.get("arguments") or {}
    text = f"Say hello to {arguments.get('name', 'everybody')}."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _app(tools_call: Callable[[Call], Any]) -> App:
    app = App("sansmcp-example", "1.0", "Try the tools echo, add, slow, big, ask and fail.")
    app.handler("tools/list", inline=True)(list_tools)
    app.handler("tools/call")(tools_call)
    app.handler("resources/list", inline=True)(list_resources)
    app.handler("resources/read", inline=True)(read_resource)
    app.handler("prompts/list", inline=True)(list_prompts)
    app.handler("prompts/get", inline=True)(get_prompt)
    return app


app = _app(call_tool)
"""For the event loops, asyncio and trio."""

blocking_app = _app(call_tool_in_thread)
"""For threads."""
