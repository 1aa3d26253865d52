"""An agent with three servers, whose model is at standard input and output: the official SDK."""

# mypy: disable-error-code=union-attr
# pyright: basic, reportAttributeAccessIssue=false
import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from mcp import Client, StdioServerParameters


async def main() -> None:
    servers = json.loads(Path(sys.argv[1]).read_text())["mcpServers"]
    tools = {}
    async with AsyncExitStack() as stack:
        for name, server in servers.items():
            parameters = StdioServerParameters(command=server["command"], args=server["args"])
            client = await stack.enter_async_context(Client(parameters))
            for tool in (await client.list_tools()).tools:
                tools[f"{name}_{tool.name}"] = client, tool.name
        print(json.dumps(sorted(tools)), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            client, name = tools[call["tool"]]
            result = await client.call_tool(name, call["arguments"])
            print(result.content[0].text, flush=True)


asyncio.run(main())
