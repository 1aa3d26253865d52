"""Pages of other origins: headers for browsers, by the setting or by a middleware, each once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount

from sansmcp import Refusal, SecurityPolicy
from sansmcp_asgi import asgi_app

from ..tool_app import ToolApp
from .conftest import Host
from .loops import PATIENCE
from .test_mounting import CALL, HEADERS, INITIALIZE

ORIGIN = "https://app.example.com"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,mcp-param-city,mcp-session-id",
}
USER = {"authorization": "Bearer ada"}
NEEDED = ("mcp-session-id", "www-authenticate")
"""Headers that a page must be able to read."""


def authenticate(head: Any, connection: Any) -> Any:
    return "ada" if head.values(b"authorization") else Refusal()


def by_the_setting(world: ToolApp) -> Any:
    policy = SecurityPolicy(allowed_origins=(ORIGIN,), cors=True)
    mcp = asgi_app(world.app, policy=policy, authenticate=authenticate)
    return Starlette(routes=[Mount("/", mcp)])


def by_a_middleware(world: ToolApp) -> Any:
    policy = SecurityPolicy(allowed_origins=(ORIGIN,))
    mcp = asgi_app(world.app, policy=policy, authenticate=authenticate)
    pages = Middleware(
        CORSMiddleware,
        allow_origins=[ORIGIN],
        allow_methods=["POST", "GET", "DELETE"],
        allow_headers=PREFLIGHT["access-control-request-headers"].split(","),
        expose_headers=NEEDED,
    )
    return Starlette(routes=[Mount("/", mcp)], middleware=[pages])


def check_readable(answer: httpx.Response) -> None:
    """Check that the page may read a response: no header comes twice."""
    names = [name.lower() for name, _ in answer.headers.multi_items()]
    assert len(names) == len(set(names))
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"].lower() == "origin"
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert set(NEEDED) <= set(exposed.split(", "))


@pytest.mark.parametrize("serve", [by_the_setting, by_a_middleware])
async def test_a_page_uses_the_server(host: Host, world: ToolApp, serve: Any) -> None:
    headers = {**HEADERS, "origin": ORIGIN}
    with host.serve(serve(world)) as url, trio.fail_after(PATIENCE):
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, headers=headers) as http:
            asked = await http.options("/mcp", headers=PREFLIGHT)
            assert asked.status_code == 200
            assert len(asked.headers.get_list("access-control-allow-origin")) == 1
            allowed = asked.headers["access-control-allow-headers"].lower().split(", ")
            wanted = PREFLIGHT["access-control-request-headers"].split(",")
            assert set(wanted) <= set(allowed)

            refused = await http.post("/mcp", json=INITIALIZE)
            check_readable(refused)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")

            opened = await http.post("/mcp", json=INITIALIZE, headers=USER)
            check_readable(opened)
            session = {**USER, "mcp-session-id": opened.headers["mcp-session-id"]}
            called = await http.post("/mcp", json=CALL, headers=session)
            check_readable(called)
            async with http.stream("GET", "/mcp", headers=session) as stream:
                check_readable(stream)
                assert stream.headers["content-type"] == "text/event-stream"
            check_readable(await http.get("/elsewhere", headers=USER))
