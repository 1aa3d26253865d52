"""Pages of other origins: headers for browsers, by the setting or by a middleware, each once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount

from sansmcp import ProtectedResource, Refusal, SecurityPolicy
from sansmcp_asgi import asgi_app

from ..django_site import ORIGIN, PAGE, asgi_site
from ..tool_app import ToolApp
from .conftest import Host
from .loops import PATIENCE
from .test_mounting import CALL, HEADERS, INITIALIZE

PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,mcp-param-city,mcp-session-id",
}
USER = {"authorization": "Bearer ada"}
NEEDED = ("mcp-session-id", "www-authenticate")
"""Headers that a page must be able to read."""


def authenticate(head: Any, connection: Any) -> Any:
    return "ada" if head.values(b"authorization") else Refusal()


PROTECTED: Any = {
    "authenticate": authenticate,
    "protected_resource": ProtectedResource(
        resource="http://localhost/mcp", authorization_servers=("https://login.example.com",)
    ),
}


def by_the_setting(world: ToolApp) -> Any:
    policy = SecurityPolicy(allowed_origins=(ORIGIN,), cors=True)
    mcp = asgi_app(world.app, policy=policy, **PROTECTED)
    return Starlette(routes=[Mount("/", mcp)])


def by_a_middleware(world: ToolApp) -> Any:
    policy = SecurityPolicy(allowed_origins=(ORIGIN,))
    mcp = asgi_app(world.app, policy=policy, **PROTECTED)
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
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Bearer resource_metadata=")

            opened = await http.post("/mcp", json=INITIALIZE, headers=USER)
            check_readable(opened)
            session = {**USER, "mcp-session-id": opened.headers["mcp-session-id"]}
            called = await http.post("/mcp", json=CALL, headers=session)
            check_readable(called)
            async with http.stream("GET", "/mcp", headers=session) as stream:
                check_readable(stream)
                assert stream.headers["content-type"] == "text/event-stream"
            check_readable(await http.get("/elsewhere", headers=USER))
            metadata = await http.get("/.well-known/oauth-protected-resource")
            assert metadata.status_code == 200
            assert len(metadata.headers.get_list("access-control-allow-origin")) == 1


async def _beside_django(world: ToolApp) -> None:
    mcp = Mount("/tools", by_the_setting(world))
    transport = httpx.ASGITransport(Starlette(routes=[mcp, Mount("/", asgi_site())]))
    headers = {**HEADERS, "origin": ORIGIN}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as http:
        page = await http.get(PAGE)
        assert (page.status_code, page.text) == (200, "a page of Django")
        assert page.headers.get_list("access-control-allow-origin") == [ORIGIN]
        asked = await http.options("/tools/mcp", headers=PREFLIGHT)
        assert asked.headers.get_list("access-control-allow-origin") == [ORIGIN]
        for more, status in (({}, 401), (USER, 200)):
            opened = await http.post("/tools/mcp", json=INITIALIZE, headers=more)
            check_readable(opened)
            assert opened.status_code == status


def test_a_page_uses_a_server_beside_django(world: ToolApp) -> None:
    """The middleware of Django sees the requests of its own site only. It needs asyncio."""
    asyncio.run(_beside_django(world))
