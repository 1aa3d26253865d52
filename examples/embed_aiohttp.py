"""A server inside aiohttp, beside the other pages of a web application.

aiohttp has a parser of HTTP of its own, so message parts go in and out here, and no bytes.

python examples/embed_aiohttp.py          # prints its URL
sansmcp call http://127.0.0.1:8000/mcp add '{"a": 1, "b": 2}'
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from typing import Any

from aiohttp import web

import sansmcp
from sansmcp import BodyData, BodyEnd, Idle, PeerGone, RequestHead
from sansmcp.effects import Abort, SendBody, SendEnd, SendHead
from sansmcp_loop import Call, Serving, current_loop


class Exchange:
    """One request and its response."""

    def __init__(self, serving: Serving, request: web.Request) -> None:
        self._serving = serving
        self._request = request
        self._exchange = serving.core.open_exchange(self)
        self._woken = asyncio.Event()
        self._is_asking = True
        self._response = web.StreamResponse()

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """What is known of the connection."""
        transport = self._request.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        return sansmcp.ConnectionInfo(peer=peer, is_tls=self._request.secure)

    def wake(self) -> None:
        """There is something to send."""
        self._woken.set()

    async def run(self) -> web.StreamResponse:
        """Answer the request. When the client leaves, aiohttp cancels us."""
        request = self._request
        headers = tuple((name.lower(), value) for name, value in request.raw_headers)
        target = request.raw_path.encode()
        try:
            self._feed(RequestHead(method=request.method.encode(), target=target, headers=headers))
            while await self._perform(self._serving.core.next_effect_of(self._exchange)):
                pass
        except ConnectionError:
            pass  # the client has left
        finally:
            self._feed(PeerGone())
        return self._response

    async def _perform(self, effect: SendHead | SendBody | SendEnd | Abort | Idle) -> bool:
        """Do what is to be done next; False once nothing will be."""
        match effect:
            case SendHead(head):
                fields = [(name.decode(), value.decode()) for name, value in head.headers]
                self._response = web.StreamResponse(status=head.status, headers=dict(fields))
                await self._response.prepare(self._request)
            case SendBody(data):
                await self._response.write(data)
            case SendEnd():
                await self._response.write_eof()
                return False
            case Abort():
                if self._request.transport is not None:
                    self._request.transport.abort()
                return False
            case Idle.NEED_DATA if self._is_asking:
                data = await self._request.content.readany()
                self._is_asking = bool(data)
                self._feed(BodyData(data) if data else BodyEnd())
            case _:
                self._serving.run_pending()  # what was pulled has changed the machine, its time too
                await self._woken.wait()
                self._woken.clear()
        return True

    def _feed(self, part: RequestHead | BodyData | BodyEnd | PeerGone) -> None:
        self._serving.core.receive(self._exchange, part, now=self._serving.loop.now())
        self._serving.run_pending()


class Mcp:
    """MCP on one path of a web application, as long as that runs."""

    def __init__(
        self,
        app: sansmcp.App,
        *,
        resumable: bool,
        grace: float,
        authenticate: sansmcp.Authenticator | None = None,
        **settings: Any,
    ) -> None:
        settings.setdefault(
            "seal", sansmcp.StateSeal(keys=(secrets.token_bytes(32),), clock=time.time)
        )
        self.core = sansmcp.Server(
            app,
            new_token=secrets.token_urlsafe,
            resumable=resumable,
            authentication=authenticate is not None,
            **settings,
        )
        self._authenticate = authenticate
        self._grace = grace
        self._serving: Serving

    def install(self, web_app: web.Application) -> None:
        """Serve what nothing else of the web application serves, from its beginning to its end."""
        web_app.router.add_route("*", "/{path:.*}", self._answer)
        web_app.on_startup.append(self._begin)
        web_app.on_shutdown.append(self._end)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        return await Exchange(self._serving, request).run()

    async def _begin(self, _: web.Application) -> None:
        store = sansmcp.MemoryStore(self.core.limits)
        self._serving = Serving(self.core, store, current_loop(), authenticate=self._authenticate)

    async def _end(self, _: web.Application) -> None:
        await self._serving.shut_down(self._grace)
        await self._serving.flush(lambda: True)
        self._serving.scheduler.stop()


def web_app(
    app: sansmcp.App, *, resumable: bool = True, grace: float = 5.0, **settings: Any
) -> web.Application:
    """A web application that serves MCP, and could serve other things beside it."""
    application = web.Application()
    Mcp(app, resumable=resumable, grace=grace, **settings).install(application)
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
