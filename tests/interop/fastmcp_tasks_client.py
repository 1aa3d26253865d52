"""A client made with fastmcp and fastmcp-tasks; it runs where these are installed.

``fastmcp_tasks_client.py URL`` or ``fastmcp_tasks_client.py COMMAND ARGUMENTS`` uses the tools of
``task_tools.py``, and prints what came of it as JSON.
"""

# pyright: basic
# Pyright runs where fastmcp is not installed, and knows nothing of its types.

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found]
from fastmcp_tasks import call_tool_task  # type: ignore[import-not-found]
from mcp import MCPError

_NAMES = {"first": "Ada", "last": "Lovelace"}


async def _elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    return {"name": _NAMES[message]}


async def _use(target: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    client: Any
    async with Client(target, mode="auto", elicitation_handler=_elicit, timeout=60) as client:

        async def call(name: str) -> str:
            text: str = (await client.call_tool(name)).content[0].text
            return text

        found["version"] = client.protocol_version
        for name in ("now", "work", "greet", "ask_before"):
            found[name] = await call(name)
        for name in ("refuse", "fail"):
            try:
                await call(name)
            except ToolError as error:
                found[name] = str(error)
        hanging: Any = await call_tool_task(client, "hang")
        assert (await hanging.status()).status == "working"
        await hanging.cancel()
        found["hang"] = (await hanging.wait()).status
        found["cancelled"] = await call("cancelled")
        hanging.create_result.task_id = "no-such-task-1234"
        try:
            await hanging.status()
        except MCPError as error:
            found["unknown"] = error.error.code
    return found


if __name__ == "__main__":
    url, *args = sys.argv[1:]
    target = StdioTransport(url, args, dict(os.environ)) if args else url
    print(json.dumps(asyncio.run(_use(target))))
