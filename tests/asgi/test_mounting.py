"""Mounted in the applications of frameworks, at any path, behind their middleware."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import fastapi
import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

import sansmcp_trio
from sansmcp import RequestRefused, SecurityPolicy
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_asgi import AsgiApp, Call, asgi_app
from sansmcp_asgi._exchange import request_head

from ..tool_app import ToolApp
from .conftest import Host
from .loops import PATIENCE

ANY_HOST = SecurityPolicy(allowed_hosts=("*",))


def mounted(mcp: AsgiApp) -> Any:
    return Starlette(routes=[Mount("/a", routes=[Mount("/b", mcp)])])


def routed(mcp: AsgiApp) -> Any:
    return Starlette(routes=[Mount("/a/b", routes=[Route("/mcp", mcp)])])


def at_the_root(mcp: AsgiApp) -> Any:
    return Starlette(routes=[Mount("/", mcp)])


def in_fastapi(mcp: AsgiApp) -> Any:
    app = fastapi.FastAPI()
    app.mount("/a/b", mcp)
    return app


@pytest.mark.parametrize(
    ("frame", "root"),
    [(mounted, "/a/b"), (routed, "/a/b"), (at_the_root, ""), (in_fastapi, "/a/b")],
)
async def test_any_path(
    host: Host, world: ToolApp, frame: Callable[[AsgiApp], Any], root: str
) -> None:
    """Nobody runs our lifespan, and nothing has to be begun."""
    with host.serve(frame(asgi_app(world.app))) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}{root}/mcp") as client:
            assert (await client.call_tool("echo", {"a": 1}))["echo"] == {"a": 1}
        with pytest.raises(RequestRefused, match="404"):
            async with sansmcp_trio.connect(f"{url}{root}/other", transports=("streamable-http",)):
                raise AssertionError("connected")


async def test_the_place_itself_is_the_path(host: Host, world: ToolApp) -> None:
    app = Starlette(routes=[Mount("/a", asgi_app(world.app, path="/"))])
    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/a/") as client:
            assert (await client.call_tool("echo", {"a": 1}))["echo"] == {"a": 1}


async def test_http_sse_tells_the_whole_path(host: Host, world: ToolApp) -> None:
    app = mounted(asgi_app(world.app, http_sse="/sse"))
    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/a/b/sse", transports=("http+sse",)) as client:
            assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}


class Backend(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        name = conn.headers["authorization"].removeprefix("Bearer ")
        return AuthCredentials(), SimpleUser(name)


@pytest.mark.requirement("SEC-S-005", "SEC-B-001", "SESSION-S-008")
async def test_a_session_is_its_users_alone(host: Host, world: ToolApp) -> None:
    @world.tool
    async def whoami(call: Call) -> Any:
        return {"principal": call.peer.principal}

    mcp = asgi_app(
        world.app,
        authenticate=lambda _, connection: connection.environ["user"].display_name,
        versions=HANDSHAKE_VERSIONS,
    )
    users = Middleware(AuthenticationMiddleware, backend=Backend())
    app = Starlette(routes=[Mount("/", mcp)], middleware=[users])
    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            session = await open_session(http, {"authorization": "Bearer ada"})
            call = {**REQUEST, "method": "tools/call", "params": {"name": "whoami"}}
            answers = [
                await http.post("/mcp", json=call, headers={**session, "authorization": user})
                for user in ("Bearer ada", "Bearer eve")
            ]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert answers[0].json()["result"] == {"principal": "ada"}


NAME: ContextVar[str] = ContextVar("NAME")


class NameMiddleware(BaseHTTPMiddleware):
    """Wraps receive and send, runs the application in a task of its own, sets a variable."""

    async def dispatch(self, request: Request, call_next: Any) -> Response:
        NAME.set("from the middleware")
        response: Response = await call_next(request)
        return response


async def test_behind_a_middleware_that_wraps_all(world: ToolApp) -> None:
    @world.tool
    async def name(call: Call) -> Any:
        await call.progress(1)
        await call.disconnect(retry=0.01)
        await call.progress(2)
        return {"name": NAME.get()}

    reports: list[float] = []
    app = NameMiddleware(asgi_app(world.app, versions=HANDSHAKE_VERSIONS))
    with Host("uvicorn").serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/mcp") as client:
            result = await client.call_tool(
                "name", on_progress=lambda report: reports.append(report.progress)
            )
    assert result == {"name": "from the middleware"}
    assert reports == [1, 2]


async def test_http_2(world: ToolApp) -> None:
    """All requests of a client on one connection, with streams that stay open."""
    app = asgi_app(world.app, versions=HANDSHAKE_VERSIONS)
    with Host("hypercorn-trio").serve(app) as url, trio.fail_after(PATIENCE):
        client = httpx.AsyncClient(base_url=url, http1=False, http2=True, timeout=PATIENCE)
        async with client as http:
            session = await open_session(http)
            stream = {**session, "accept": "text/event-stream"}
            async with http.stream("GET", "/mcp", headers=stream) as listening:
                assert (listening.status_code, listening.http_version) == (200, "HTTP/2")
                answer = await http.post("/mcp", json=CALL, headers=session)
                assert answer.json()["result"] == {"echo": {}}


# Without a server


HEADERS = {"accept": "application/json, text/event-stream"}
REQUEST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1}
CALL: dict[str, Any] = {
    **REQUEST,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {}},
}
INITIALIZE: dict[str, Any] = {
    **REQUEST,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}},
}


async def open_session(
    http: httpx.AsyncClient, headers: dict[str, str] | None = None
) -> dict[str, str]:
    """The handshake; returns the headers of further requests."""
    headers = {**HEADERS, **(headers or {})}
    opened = await http.post("/mcp", json=INITIALIZE, headers=headers)
    assert opened.status_code == 200, opened.text
    return {**headers, "mcp-session-id": opened.headers["mcp-session-id"]}


def test_with_the_test_client_of_starlette(world: ToolApp) -> None:
    app = mounted(asgi_app(world.app, policy=ANY_HOST))
    with TestClient(app, headers=HEADERS) as client:
        opened = client.post("/a/b/mcp", json=INITIALIZE)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        answer = client.post("/a/b/mcp", json=CALL, headers=session)
        assert answer.json()["result"] == {"echo": {}}
    # Another event loop is another server, which knows nothing of the first.
    answer = TestClient(app, headers=HEADERS).post("/a/b/mcp", json=CALL, headers=session)
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("root", "path", "target", "told"),
    [
        ("", "/mcp", b"/mcp", b""),
        ("/a", "/a/mcp", b"/mcp", b"/a"),
        ("/a", "/mcp", b"/mcp", b"/a"),
        ("/a/", "/a/mcp", b"/mcp", b"/a"),
        ("/a", "/ab/mcp", b"/ab/mcp", b"/a"),
        ("/a", "/a", b"/", b"/a"),
        ("", "/x y?\u00e9", b"/x%20y%3F%C3%A9", b""),
    ],
)
def test_both_readings_of_the_root_path(root: str, path: str, target: bytes, told: bytes) -> None:
    scope = {
        "method": "GET",
        "path": path,
        "root_path": root,
        "query_string": b"q=1",
        "headers": [(b"Host", b"h")],
    }
    head = request_head(scope)
    assert (head.target, head.root) == (target + b"?q=1", told)
    assert (head.method, head.headers) == (b"GET", ((b"host", b"h"),))
