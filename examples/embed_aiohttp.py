"""A server inside aiohttp, beside the other pages of a web application.

aiohttp has a parser of HTTP of its own, so message parts go in and out here, and no bytes.

python examples/embed_aiohttp.py          # prints its URL
sansmcp call http://127.0.0.1:8000/mcp add '{"a": 1, "b": 2}'
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiohttp import web

import sansmcp
from sansmcp_local import server_parts
from sansmcp_loop import Call, HttpExchange, HttpServing


class Exchange(HttpExchange):
    """One request and its response. When the client leaves, aiohttp cancels it."""

    def __init__(self, serving: HttpServing, request: web.Request) -> None:
        super().__init__(serving)
        self._request = request
        self.response = web.StreamResponse()

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        transport = self._request.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        return sansmcp.ConnectionInfo(peer=peer, is_tls=self._request.secure)

    async def receive_body(self) -> bytes:
        return await self._request.content.readany()

    async def send_head(self, head: sansmcp.ResponseHead) -> None:
        fields = {name.decode(): value.decode() for name, value in head.headers}
        self.response = web.StreamResponse(status=head.status, headers=fields)
        await self.response.prepare(self._request)

    async def send_body(self, data: bytes) -> None:
        await self.response.write(data)

    async def send_end(self) -> None:
        await self.response.write_eof()


class Mcp:
    """MCP in a web application, as long as that runs."""

    _serving: HttpServing

    def __init__(self, app: sansmcp.App, grace: float, **settings: Any) -> None:
        self._parts = server_parts(app, "Mcp", **settings)
        self._grace = grace

    def install(self, web_app: web.Application) -> None:
        """Serve what nothing else of the web application serves, from its beginning to its end."""
        web_app.router.add_route("*", "/{path:.*}", self._answer)
        web_app.on_startup.append(self._begin)
        web_app.on_shutdown.append(self._end)

    async def _begin(self, _: web.Application) -> None:
        self._serving = HttpServing(self._parts)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(self._serving, request)
        head = sansmcp.RequestHead(
            method=request.method.encode(),
            target=request.raw_path.encode(),
            headers=tuple((name.lower(), value) for name, value in request.raw_headers),
        )
        if not await exchange.run(head) and request.transport is not None:
            request.transport.abort()
        return exchange.response

    async def _end(self, _: web.Application) -> None:
        await self._serving.stop(self._grace)


def web_app(app: sansmcp.App, *, grace: float = 5.0, **settings: Any) -> web.Application:
    """A web application that serves MCP, and could serve other things beside it."""
    application = web.Application()
    Mcp(app, grace, **settings).install(application)
    return application


app = sansmcp.App("sums", "1.0")

NUMBER = {"type": "number"}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}},
}


@app.handler("tools/list")
async def list_tools(call: Call) -> dict[str, Any]:
    """What the model is offered."""
    return {"tools": [ADD]}


@app.handler("tools/call")
async def call_tool(call: Call) -> dict[str, Any]:
    """Add, and report how far it is."""
    await call.progress(1, 2, "thinking")
    await asyncio.sleep(0.1)
    arguments = call.params["arguments"]
    return {"content": [{"type": "text", "text": f"{arguments['a'] + arguments['b']:g}"}]}


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    print(f"http://127.0.0.1:{port}/mcp", flush=True)
    web.run_app(web_app(app), host="127.0.0.1", port=port, handler_cancellation=True, print=None)
