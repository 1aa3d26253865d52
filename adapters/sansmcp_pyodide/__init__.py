"""An MCP client in WebAssembly, on JavaScript's ``fetch``: for Pyodide, in a browser or Node.js.

    async with sansmcp_pyodide.connect("https://example.com/mcp") as client:
        result = await client.call_tool("echo", {"text": "hi"}, timeout=30)

A server on another origin must allow the page. The protocol is in :mod:`sansmcp`.
"""

from ._client import Client, connect

__all__ = ["Client", "connect"]
