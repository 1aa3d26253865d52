"""A server on stdio for the tests: ``python stdio_server.py LOOP``. SIGTERM stops it, too."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import uvloop

import sansmcp
import sansmcp_asyncio
from sansmcp_asyncio import Call

app = sansmcp.App("stdio-tests", "1")


@app.handler("tools/call")
async def call_tool(call: Call) -> Any:
    if call.params["name"] == "nap":
        await asyncio.sleep(0.05)
    if call.params["name"] == "disturb":
        print("printed")
        assert sys.stdin.read() == ""
    return call.params["arguments"]


async def main() -> None:
    async with sansmcp_asyncio.serve(app, stdio=True) as serving:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.stop)
        await serving.stopped.wait()


if __name__ == "__main__":
    if sys.argv[1] == "uvloop":
        loop = uvloop.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    else:
        asyncio.run(main())
