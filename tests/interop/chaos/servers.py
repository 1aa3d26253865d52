"""Servers with one tool, each made with another library: ``python servers.py LIBRARY PORT``.

The tool ``work`` appends its marker to the file that the environment variable ``CHAOS_LOG`` names,
reports some progress, and returns the marker with as many further bytes as it was told. Nothing
here imports sansmcp or this package but for the server made with it, so that the file runs in an
environment of another library's own.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

PAUSE = 0.05
"""Seconds between two reports of progress."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "marker": {"type": "string"},
        "steps": {"type": "integer"},
        "size": {"type": "integer"},
    },
    "required": ["marker", "steps", "size"],
}


async def do_work(
    marker: str, steps: int, size: int, report: Callable[[int, int], Awaitable[object]]
) -> str:
    """Note that the tool runs, report progress, and return the text of the result."""
    with open(os.environ["CHAOS_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{marker}\n")
    for step in range(1, steps + 1):
        await asyncio.sleep(PAUSE)
        await report(step, steps)
    return f"{marker} {size * 'x'}"


def serve_sansmcp(port: int) -> None:
    """Serve with sansmcp on asyncio."""
    import sansmcp
    import sansmcp_asyncio

    app = sansmcp.App("chaos", "1")

    @app.handler("tools/list")
    def list_tools(call: Any) -> dict[str, Any]:
        return {"tools": [{"name": "work", "inputSchema": SCHEMA}]}

    @app.handler("tools/call")
    async def call_tool(call: Any) -> dict[str, Any]:
        text = await do_work(**call.params["arguments"], report=call.progress)
        return {"content": [{"type": "text", "text": text}]}

    asyncio.run(sansmcp_asyncio.serve(app, http=("127.0.0.1", port)))


def serve_mcp(port: int) -> None:
    """Serve with the official SDK for Python."""
    module = importlib.import_module("mcp.server.mcpserver")
    server = module.MCPServer("chaos")
    server.tool()(_tool(module.Context))
    server.run("streamable-http", host="127.0.0.1", port=port)


def serve_fastmcp(port: int) -> None:
    """Serve with FastMCP."""
    module = importlib.import_module("fastmcp")
    server = module.FastMCP("chaos")
    server.tool()(_tool(module.Context))
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)


def _tool(context_type: Any) -> Callable[..., Awaitable[str]]:
    """Return the tool, with a parameter that both libraries find by its type."""

    async def work(marker: str, steps: int, size: int, context: Any) -> str:
        return await do_work(marker, steps, size, context.report_progress)

    work.__annotations__["context"] = context_type
    return work


SERVERS = {"sansmcp": serve_sansmcp, "mcp": serve_mcp, "fastmcp": serve_fastmcp}

if __name__ == "__main__":
    SERVERS[sys.argv[1]](int(sys.argv[2]))
