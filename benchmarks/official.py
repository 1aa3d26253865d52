"""The server of the official SDK that is measured, with sessions, on HTTP and stdio."""

from __future__ import annotations

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from .contestants import HOST, announce, listen

server = MCPServer("benchmark", log_level="ERROR")


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Give back the text."""
    return text


@server.tool(structured_output=False)
async def say(events: int, context: Context) -> str:
    """Report progress."""
    for number in range(events):
        await context.report_progress(number, message="a line of what a tool has to say")
    return "hello"


def serve_http() -> None:
    """Serve over HTTP."""
    listener = listen()
    announce(f"http://{HOST}:{listener.getsockname()[1]}/mcp")
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def serve_stdio() -> None:
    """Serve on standard input and output."""
    server.run("stdio")
