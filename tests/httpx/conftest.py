"""A server with tools for the tests of the httpx adapter, and the event loops."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx
import pytest

import sansmcp
from sansmcp_asgi import Call, asgi_app
from sansmcp_local import current_loop

from ..asgi.conftest import Host
from ..asgi.loops import RUNS, Run


class Token(httpx.Auth):
    """Authentication, as httpx wants it."""

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["authorization"] = "Bearer token"
        yield request


app = sansmcp.App("httpx-tests", "1")


class FakeWebServer:
    """The MCP application as a web application that remembers who has asked."""

    def __init__(self) -> None:
        self.mcp = asgi_app(app, graceful_timeout=0.01)
        self.seen: list[dict[str, str]] = []
        """The headers of the requests."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            pairs = scope["headers"]
            self.seen.append({name.decode(): value.decode() for name, value in pairs})
        await self.mcp(scope, receive, send)


@app.handler("tools/call")
async def call_tool(call: Call) -> Any:
    arguments = call.params["arguments"]
    match call.params["name"]:
        case "slow":
            loop = current_loop()
            await loop.within(arguments["seconds"], loop.event().wait)
        case "steps":
            for step in (1, 2, 3):
                await call.progress(step)
                await call.disconnect(retry=0.01)
        case "ask":
            return {"said": await call.ask("elicitation/create", {"message": "name?"})}
        case "tell":
            await call.notify("notifications/message", {"level": "info", "data": "look"})
        case _:
            pass
    return {"arguments": arguments}


@pytest.fixture(scope="module")
def web() -> FakeWebServer:
    return FakeWebServer()


@pytest.fixture(scope="module")
def url(web: FakeWebServer) -> Generator[str, None, None]:
    with Host("hypercorn-asyncio").serve(web) as url:
        yield f"{url}/mcp"


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function in one of the event loops."""
    function: Run = request.param
    return function
