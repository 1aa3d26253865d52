"""An application that asks its client everything a server may ask, and tells it things unasked."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import sansmcp

from ..conformance.steps import Script, awaiting, blocking

Call: TypeAlias = sansmcp.BaseCall[Any, Any]
Steps: TypeAlias = Generator[Any, Any, str]


def ask(call: Call) -> Steps:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = yield call.ask("elicitation/create", {"message": "name?", "requestedSchema": schema})
    return str(answer["content"]["name"])


def sample(call: Call) -> Steps:
    message = {"role": "user", "content": {"type": "text", "text": "2 + 2?"}}
    answer = yield call.ask("sampling/createMessage", {"messages": [message], "maxTokens": 10})
    return str(answer["content"]["text"])


def roots(call: Call) -> Steps:
    answer = yield call.ask("roots/list")
    return ", ".join(root["uri"] for root in answer["roots"])


def announce(call: Call) -> Steps:
    yield call.notify("notifications/message", {"level": "warning", "data": "look"})
    yield call.notify("notifications/tools/list_changed")
    return "announced"


_TOOLS = {tool.__name__: tool for tool in (ask, sample, roots, announce)}


def list_tools(call: Call) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in _TOOLS]}


def call_tool(call: Call) -> Generator[Any, Any, dict[str, Any]]:
    answer = yield from _TOOLS[call.params["name"]](call)
    return {"content": [{"type": "text", "text": answer}]}


def _app(kind: Callable[[Script], Any]) -> sansmcp.App:
    app = sansmcp.App("asking", "1")
    app.handler("tools/list")(list_tools)
    app.handler("tools/call")(kind(call_tool))
    return app


app = _app(awaiting)
blocking_app = _app(blocking)
