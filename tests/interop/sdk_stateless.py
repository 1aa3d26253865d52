"""A server made with the official Python SDK; it prints its URL once it listens.

Its tools are those of the application in ``stateless.py``. With ``stdio`` it serves on standard
input and output.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import Field

from tests.interop.sdk_server import listen

server = MCPServer("official")
is_cancelled = anyio.Event()
Region = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


@server.tool()
async def region(region: Region) -> str:
    """Give back the region."""
    return region


@server.tool()
async def count(steps: int, context: Context) -> str:
    """Report progress."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps)
    return "counted"


@server.tool()
async def greet(context: Context) -> Any:
    """Ask the user for a name."""
    if context.input_responses is not None:
        answer = context.input_responses["who"]
        assert isinstance(answer, ElicitResult)
        assert answer.content is not None
        return f"{context.request_state} {answer.content['name']}"
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = ElicitRequestFormParams(message="name?", requested_schema=schema)
    return InputRequiredResult(
        input_requests={"who": ElicitRequest(params=params)}, request_state="Hello"
    )


@server.tool()
async def hang(context: Context) -> str:
    """Wait to be cancelled."""
    try:
        await context.report_progress(1)
        await anyio.sleep_forever()
    finally:
        is_cancelled.set()
    raise AssertionError


@server.tool()
async def cancelled() -> str:
    """Wait until another call was cancelled."""
    await is_cancelled.wait()
    return "a call was cancelled"


@server.tool()
async def change(context: Context) -> str:
    """Say that the tools have changed."""
    await context.notify_tools_changed()
    return "changed"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        listen(server.streamable_http_app(), "/mcp")
