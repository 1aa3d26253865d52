"""An agent with three servers, whose model is at standard input and output: sansmcp."""

import asyncio
import json
import sys

import sansmcp_asyncio


async def main() -> None:
    async with sansmcp_asyncio.ClientGroup(sys.argv[1]) as group:
        names = [tool["name"] async for tool in group.tools()]
        print(json.dumps(sorted(names)), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            result = await group.call_tool(call["tool"], call["arguments"])
            print(result["content"][0]["text"], flush=True)


asyncio.run(main())
