"""What the tests of 2026-07-28 have in common with other people's code: tools, and their use.

The servers in ``sdk_stateless.py`` and ``node/server.mjs`` have the same tools, and the client in
``node/client.mjs`` uses them in the same way. ``python -m tests.interop.stateless`` serves ours on
stdio.
"""

from __future__ import annotations

import time
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

import sansmcp
import sansmcp_trio
from sansmcp import InputRequest, InputRequired, JsonRpcError
from sansmcp.events import ProgressReceived, ServerNotified
from sansmcp_trio import Call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

MODERN = "2026-07-28"
SEAL = sansmcp.StateSigner(keys=(b"a key for these tests",), clock=time.time)
REGION = "Zürich "
"""Repeated in a header, which has to encode it."""
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "region": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "count": {"steps": {"type": "integer"}},
    "greet": {},
    "hang": {},
    "cancelled": {},
    "change": {},
}
"""The arguments of the tools."""


class Tools:
    """Our application."""

    def __init__(self) -> None:
        self.serving: sansmcp_trio.RunningServer | None = None
        self._is_cancelled = trio.Event()
        self.app = sansmcp.App("ours", "1", capabilities={"tools": {"listChanged": True}})
        self.app.input_schema = _schema_of
        self.app.handler("tools/list")(_list_tools)
        self.app.handler("tools/call")(self._call_tool)

    async def _call_tool(self, call: Call) -> Any:
        name = call.params["name"]
        if name not in SCHEMAS:
            raise JsonRpcError(-32602, f"There is no tool {name!r}")
        tool: Callable[[Call], Awaitable[Any]] = getattr(self, name)
        found = await tool(call)
        return found if isinstance(found, InputRequired) else _text(found)

    async def region(self, call: Call) -> Any:
        return call.params["arguments"]["region"]

    async def count(self, call: Call) -> Any:
        steps = call.params["arguments"]["steps"]
        for step in range(1, steps + 1):
            await call.progress(step, steps)
        return "counted"

    async def greet(self, call: Call) -> Any:
        if call.input_responses:
            return f"{call.saved_state} {call.input_responses['who']['content']['name']}"
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = {"mode": "form", "message": "name?", "requestedSchema": schema}
        return InputRequired({"who": InputRequest("elicitation/create", question)}, "Hello")

    async def hang(self, call: Call) -> Any:
        try:
            await call.progress(1)  # whoever has heard of it may cancel before this returns
            await trio.sleep_forever()
        finally:
            self._is_cancelled.set()

    async def cancelled(self, call: Call) -> Any:
        await self._is_cancelled.wait()
        return "a call was cancelled"

    async def change(self, call: Call) -> Any:
        assert self.serving is not None
        self.serving.publish("notifications/tools/list_changed")
        return "changed"


def _schema_of(tool: str) -> Mapping[str, Any] | None:
    return {"type": "object", "properties": SCHEMAS[tool]} if tool in SCHEMAS else None


def _list_tools(call: Call) -> Any:
    return {"tools": [{"name": name, "inputSchema": _schema_of(name)} for name in SCHEMAS]}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def served(**settings: Any) -> AsyncGenerator[sansmcp_trio.RunningServer, None]:
    """Serve our application; it is stopped at the end of the block, unless it has been before."""
    tools = Tools()
    async with trio.open_nursery() as nursery:
        serve = partial(
            sansmcp_trio.serve, tools.app, versions=(MODERN,), state_signer=SEAL, **settings
        )
        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        tools.serving = serving
        yield serving
        serving.stop()


# Our client, their server


async def use_their_tools(client: sansmcp_trio.Client) -> None:
    """Whatever there is at this revision; the client is to answer ``elicitation/create``."""
    assert client.connected.version == MODERN
    assert client.connected.server_info["name"] == "official"
    listed = await client.list_tools()
    assert {tool["name"] for tool in listed["tools"]} == SCHEMAS.keys()
    assert type(listed.get("ttlMs")) is int
    assert await _call(client, "region", region=REGION) == REGION
    reports: list[ProgressReceived] = []
    counted = await client.call_tool("count", {"steps": 4}, on_progress=reports.append)
    assert counted["content"][0]["text"] == "counted"
    assert [(report.progress, report.total) for report in reports] == [
        (step, 4) for step in (1, 2, 3, 4)
    ]
    assert await _call(client, "greet") == "Hello Ada"
    await _listen(client)
    with trio.CancelScope() as scope:
        await client.call_tool("hang", on_progress=lambda _: scope.cancel())
    with trio.fail_after(30):
        assert await _call(client, "cancelled") == "a call was cancelled"


async def elicit(request: sansmcp.ServerRequest) -> Any:
    """What a person says to the tool that asks."""
    assert request.params["message"] == "name?"
    return {"action": "accept", "content": {"name": "Ada"}}


async def _call(client: sansmcp_trio.Client, tool: str, **arguments: Any) -> Any:
    (content,) = (await client.call_tool(tool, arguments))["content"]
    return content["text"]


async def _listen(client: sansmcp_trio.Client) -> None:
    wanted = {"notifications": {"toolsListChanged": True}}
    heard: list[str] = []
    async with aclosing(client.events()) as events, trio.open_nursery() as nursery:
        nursery.start_soon(client.call, "subscriptions/listen", wanted)
        with trio.fail_after(30):
            async for event in events:
                if isinstance(event, ServerNotified) and event.call is not None:
                    heard.append(event.notification.method)
                    if len(heard) == 2:
                        break
                    await _call(client, "change")
        nursery.cancel_scope.cancel()
    assert heard == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]


async def _main() -> None:
    async with served(stdio=True) as serving:
        await serving.stopped.wait()


if __name__ == "__main__":
    trio.run(_main)
