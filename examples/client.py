"""A client on trio: call a tool, show its progress, and print its result or error.

python examples/client.py http://127.0.0.1:8000/mcp count '{"to": 5}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import trio

import sansmcp
import sansmcp_trio
from sansmcp.events import ProgressReceived


def show(report: ProgressReceived) -> None:
    """Print a progress report. Reports that follow a reconnection come here, too."""
    print(f"{report.progress:g} of {report.total or '?'}")


async def main(url: str, tool: str, arguments: dict[str, Any]) -> None:
    """Connect, call the tool, and print its result."""
    async with sansmcp_trio.connect(url, name="example-client", version="1.0") as client:
        print("connected to", client.connected.server_info["name"])
        try:
            result = await client.call_tool(tool, arguments, timeout=30, on_progress=show)
        except sansmcp.CallError as error:
            print("failed:", error)
        else:
            print(result["content"][0]["text"])


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
