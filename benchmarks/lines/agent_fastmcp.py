"""An agent with three servers, whose model is at standard input and output: FastMCP."""

# pyright: basic
import asyncio
import json
import sys
from pathlib import Path

from fastmcp import Client  # type: ignore[import-not-found]


async def main() -> None:
    async with Client(json.loads(Path(sys.argv[1]).read_text())) as client:
        print(json.dumps(sorted(tool.name for tool in await client.list_tools())), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            result = await client.call_tool(call["tool"], call["arguments"])
            print(result.content[0].text, flush=True)


asyncio.run(main())
