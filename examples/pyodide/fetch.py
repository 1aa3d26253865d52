"""A client in a browser, or in Node.js: ``fetch`` of JavaScript makes the HTTP requests.

    node run.mjs wheels fetch.py http://127.0.0.1:8000/mcp

The server is that of ``sansmcp serve``.
"""

import asyncio
import os
from typing import Any

import sansmcp
import sansmcp_pyodide
from sansmcp.events import ProgressReceived


def answer_form(request: sansmcp.ServerRequest) -> dict[str, Any]:
    return {"action": "accept", "content": {"topic": "wasm"}}


async def sample(request: sansmcp.ServerRequest) -> dict[str, Any]:
    text = {"type": "text", "text": "A stack that no one sees."}
    return {"role": "assistant", "content": text, "model": "none"}


async def main(url: str) -> None:
    async with sansmcp_pyodide.connect(
        url,
        request_handlers={"elicitation/create": answer_form, "sampling/createMessage": sample},
    ) as client:
        print([tool["name"] async for tool in client.tools()])
        print((await client.call_tool("echo", {"text": "Grüße"}))["content"][0]["text"])
        print((await client.call_tool("ask"))["content"][0]["text"])
        arguments = {"steps": 3, "delay": 0.01}
        reports: list[ProgressReceived] = []
        await client.call_tool("slow", arguments, on_progress=reports.append)
        print(f"{len(reports)} reports")
        slow = asyncio.ensure_future(client.call_tool("slow", {"steps": 100, "delay": 1}))
        await asyncio.sleep(0.3)
        slow.cancel()  # aborts the request
        try:
            await client.call_tool("echo", {}, timeout=20)
        except sansmcp.JsonRpcError as error:
            print(f"error {error.code}")
    try:
        async with sansmcp_pyodide.connect(url.replace("/mcp", "/other")):
            pass
    except sansmcp.CallError as error:
        print(type(error).__name__)


# The loop of JavaScript runs it, and run.mjs waits for the value of the last line.
asyncio.ensure_future(main(os.environ["MCP_URL"]))  # noqa: RUF006
