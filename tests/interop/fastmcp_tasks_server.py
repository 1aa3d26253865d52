"""A server of tasks made with fastmcp and fastmcp-tasks; it runs where these are installed.

The first argument is the port; without one the server speaks on stdio.
"""

# pyright: basic
# Pyright runs where fastmcp is not installed, and knows nothing of its types.

from __future__ import annotations

import asyncio
import sys
from typing import Any

import mcp_types
from fastmcp import Context, FastMCP  # type: ignore[import-not-found]
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]

mcp: Any = FastMCP("theirs")
mcp.add_extension(TasksExtension())

_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@mcp.tool()  # type: ignore[untyped-decorator]
async def now() -> str:
    return "now"


@mcp.tool(task=True)  # type: ignore[untyped-decorator]
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@mcp.tool(task=True)  # type: ignore[untyped-decorator]
async def fail() -> str:
    raise ToolError("no such scene")


@mcp.tool(task=True)  # type: ignore[untyped-decorator]
async def greet(ctx: Context) -> Any:
    """Ask for a name, and be entered again with it."""
    answer = (ctx.input_responses or {}).get("name")
    if answer is None:
        params = mcp_types.ElicitRequestFormParams(message="Name?", requested_schema=_SCHEMA)
        asks: Any = {"name": mcp_types.ElicitRequest(params=params)}
        return mcp_types.InputRequiredResult(input_requests=asks)
    return f"{answer.action} {(answer.content or {}).get('name')}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        where = {"host": "127.0.0.1", "port": int(sys.argv[1])}
        mcp.run(transport="http", show_banner=False, log_level="error", **where)
    else:
        mcp.run(transport="stdio", show_banner=False, log_level="error")
