"""A server on stdio or HTTP that asks the user, and tells what the user said."""

from __future__ import annotations

from typing import Any

from sansmcp import App, BaseCall, InputRequest, InputRequired

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "As on the\nticket", "minLength": 2},
        "age": {"type": "integer", "minimum": 18, "default": 30},
        "mail": {"type": "string", "format": "email"},
        "class": {
            "type": "string",
            "oneOf": [{"const": "1st", "title": "First"}, {"const": "2nd", "title": "Second"}],
            "default": "2nd",
        },
        "meals": {"type": "array", "items": {"enum": ["fish", "rice"]}},
        "seat": {"type": "boolean", "title": "At a \u001b[31mwindow"},
    },
    "required": ["name", "seat"],
}

ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "book": ("elicitation/create", {"message": "Who travels?\u0007", "requestedSchema": FORM}),
    "confirm": (
        "elicitation/create",
        {"message": "Really?", "requestedSchema": {"type": "object", "properties": {}}},
    ),
    "agree": (
        "elicitation/create",
        {
            "message": "Agreed?",
            "requestedSchema": {
                "type": "object",
                "properties": {"agreed": {"type": "boolean"}},
                "required": ["agreed"],
            },
        },
    ),
    "pay": (
        "elicitation/create",
        {
            "mode": "url",
            "message": "Pay, please",
            "url": "https://pay.example/now?id=1",
            "elicitationId": "e",
        },
    ),
    "steal": (
        "elicitation/create",
        {"mode": "url", "message": "Run it", "url": "file:///bin/sh", "elicitationId": "e"},
    ),
    "look": ("roots/list", {}),
    "think": (
        "sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
            "maxTokens": 9,
        },
    ),
}

app = App("asking", "1.0")


@app.handler("tools/list", inline=True)
def list_tools(call: BaseCall[Any, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return {"tools": [{"name": name, "inputSchema": schema} for name in ASKS]}


@app.handler("tools/call", inline=True)
def call_tool(call: BaseCall[Any, Any]) -> Any:
    method, params = ASKS[call.params["name"]]
    if call.saved_state is None:
        return InputRequired({"it": InputRequest(method, params)}, state={})
    answer = dict(call.input_responses["it"])
    return {"content": [{"type": "text", "text": "told"}], "structuredContent": answer}
