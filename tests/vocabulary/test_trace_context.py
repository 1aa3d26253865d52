"""What travels in ``_meta`` for others, such as trace context, is passed on as it is.

Source: 2026-07-28 basic: ``_meta``; W3C Trace Context and Baggage.
"""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, Client, MemoryStore, Server, ServerCall
from sansmcp.events import CallCompleted, ServerNotified
from sansmcp.revisions import REVISIONS
from sansmcp.testing import Link, Pair, sequential_tokens

CONTEXT = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "baggage": "userId=Am%C3%A9lie,serverNode=DF%2028",
    "com.example/other": {"deep": [1, None, "x"]},
}


def of_others(params: Any) -> dict[str, Any]:
    """What is in ``_meta`` and not ours."""
    return {name: value for name, value in params["_meta"].items() if name in CONTEXT}


@pytest.mark.parametrize("version", REVISIONS)
def test_trace_context_is_passed_on_both_ways(version: str) -> None:
    received: list[Any] = []

    def answer(call: ServerCall) -> dict[str, Any]:
        received.append(of_others(call.request.params))
        call.notify("notifications/x", {"_meta": dict(CONTEXT)}, now=pair.clock.now)
        return {"_meta": dict(CONTEXT)}

    app = App("traced")
    app.handler("tools/call")(answer)
    client = Client("http://localhost/mcp", jitter=lambda: 0.5, versions=(version,))
    server = Server(app, new_token=sequential_tokens())
    pair = Pair(client, server, Link(lambda: 0.5), store=MemoryStore())
    client.start(now=0.0)
    client.call("tools/call", {"name": "x", "_meta": dict(CONTEXT)}, now=0.0)
    pair.run(until=10)
    (notified,) = (event for event in pair.events if isinstance(event, ServerNotified))
    (completed,) = (event for event in pair.events if isinstance(event, CallCompleted))
    assert received == [CONTEXT]
    assert of_others(notified.notification.params) == CONTEXT
    assert of_others(completed.result) == CONTEXT
