"""A server on trio: one slow tool, which reports progress and closes its connection halfway.

python examples/server.py          # prints its URL
sansmcp call http://127.0.0.1:8000/mcp count '{"to": 5}'
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import trio

import sansmcp
import sansmcp_trio

app = sansmcp.App("counter", "1.0")

COUNT = {
    "name": "count",
    "description": "Count from one to a number.",
    "inputSchema": {
        "type": "object",
        "properties": {"to": {"type": "integer", "minimum": 1}},
        "required": ["to"],
    },
}


@app.handler("tools/list")
async def list_tools(call: sansmcp_trio.Call) -> dict[str, Any]:
    """Return the tools."""
    return {"tools": [COUNT]}


@app.handler("tools/call")
async def call_tool(call: sansmcp_trio.Call) -> dict[str, Any]:
    """Count. The client may lose its connection at any time, and still gets every message."""
    if call.params["name"] != "count":
        raise sansmcp.JsonRpcError(-32602, f"There is no tool {call.params['name']!r}")
    to = int(call.params["arguments"]["to"])
    for number in range(1, to + 1):
        await trio.sleep(0.05)
        await call.progress(number, to)
        if number == to // 2:
            await call.disconnect(retry=0.1)  # the client reconnects for the rest
    return {"content": [{"type": "text", "text": f"counted to {to}"}]}


async def main(port: int) -> None:
    """Serve until Ctrl-C."""
    print(f"http://127.0.0.1:{port}/mcp", flush=True)
    await sansmcp_trio.serve(app, http=("127.0.0.1", port))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
