"""A server made with the official Python SDK; with HTTP it prints its URL once it listens.

Run it with one of ``streamable-http``, ``sse`` and ``stdio``.
"""

# pyright: reportDeprecated=false
# What 2026-07-28 deprecates is what clients of older revisions have.

from __future__ import annotations

import socket
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel
from starlette.applications import Starlette


class ListStore(EventStore):
    """Keeps all events of all streams in one list.

    A replay goes on until the response: their transport loses what is stored between the end of a
    replay and the moment at which the stream is live again.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, JSONRPCMessage | None]] = []
        self.stored = anyio.Event()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.events.append((stream_id, message))
        self.stored.set()
        self.stored = anyio.Event()
        return str(len(self.events) - 1)

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        number = int(last_event_id)
        stream_id, _ = self.events[number]
        while True:
            number += 1
            while number == len(self.events):
                await self.stored.wait()
            stream, message = self.events[number]
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    return stream_id


class Answer(BaseModel):
    """What the user is asked for."""

    name: str


server = MCPServer("official")


@server.tool()
async def echo(text: str) -> str:
    """Give back the text."""
    return text


@server.tool()
async def slow(steps: int, context: Context, pause: float = 0.05) -> str:
    """Report progress, and close the stream in the middle for so many seconds."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps, f"step {step}")
        if step == steps // 2:
            await context.close_sse_stream()
            await anyio.sleep(pause)
    return "done"


@server.tool()
async def ask(context: Context) -> str:
    """Ask the user for a name."""
    result = await context.elicit("name?", Answer)
    return result.data.name if result.action == "accept" else result.action


@server.tool()
async def sample(context: Context) -> str:
    """Ask the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="2 + 2?"))
    result = await context.session.create_message([question], max_tokens=10)
    assert isinstance(result.content, TextContent)
    return result.content.text


@server.tool()
async def roots(context: Context) -> str:
    """Ask for the client's roots."""
    result = await context.session.list_roots()
    return ", ".join(str(root.uri) for root in result.roots)


@server.tool()
async def announce(context: Context) -> None:
    """Log, and say that the tools have changed."""
    await context.log("warning", "look")
    await context.session.send_tool_list_changed()


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("this tool fails")


@server.resource("example://greeting")
def greeting() -> str:
    """A resource."""
    return "hello"


def main(transport: str) -> None:
    """Serve, over HTTP on a free port."""
    match transport:
        case "stdio":
            server.run("stdio")
        case "sse":
            listen(server.sse_app(), "/sse")
        case _:
            app = server.streamable_http_app(event_store=ListStore(), retry_interval=20)
            listen(app, "/mcp")


def listen(app: Starlette, path: str) -> None:
    """Serve an application on a free port, and print the URL of a path of it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
