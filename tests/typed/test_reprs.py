"""The ``repr`` of clients, servers, calls and apps fits on one line and says which one it is."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Generator
from functools import partial
from typing import Any

import httpx
import pytest
import trio

import sansmcp
import sansmcp_asgi
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_trio
import sansmcp_wsgi
from sansmcp_pytest import Connect, Serve
from sansmcp_tools import Tools

HTTP = ("127.0.0.1", 0)
CLIENT = re.compile(r"<\w*Client http://127\.0\.0\.1:\d+/mcp 2026-07-28 'hotel'>")
SERVER = re.compile(r"<RunningServer http://127\.0\.0\.1:\d+/mcp 'hotel'>")

seen: list[str] = []


def _app() -> sansmcp.App:
    app = sansmcp.App("hotel", "1.0")

    @app.handler("tools/call")
    def call_tool(call: Any) -> Any:
        seen.append(repr(call))
        return {"content": []}

    return app


@pytest.fixture(scope="module")
def url() -> Generator[str, None, None]:
    with sansmcp_blocking.serve(_app(), http=HTTP) as server:
        assert SERVER.fullmatch(repr(server))
        yield server.url


def test_asyncio(url: str) -> None:
    async def main() -> None:
        serving = sansmcp_asyncio.serve(_app(), http=HTTP)
        assert repr(serving) == "<Serve 'hotel'>"
        async with serving as server:
            assert SERVER.fullmatch(repr(server))
        connecting = sansmcp_asyncio.connect(url)
        assert repr(connecting) == f"<Client {url} new>"
        async with connecting as client:
            assert CLIENT.fullmatch(repr(client))
            await client.call_tool("price")
        assert repr(client) == f"<Client {url} closed>"

    asyncio.run(main())
    assert re.fullmatch(r"<\w*Call tools/call 'price' \S+>", seen[-1])


def test_trio(url: str) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(sansmcp_trio.serve, _app(), http=HTTP))
            assert SERVER.fullmatch(repr(server))
            nursery.cancel_scope.cancel()
        async with sansmcp_trio.connect(url) as client:
            assert CLIENT.fullmatch(repr(client))

    trio.run(main)


def test_blocking(url: str) -> None:
    with sansmcp_blocking.connect(url) as client:
        assert CLIENT.fullmatch(repr(client))
        call = client.start_call("tools/call", {"name": "price", "arguments": {"a": "x" * 9000}})
        assert repr(call) == "<PendingCall tools/call 'price'>"
        call.result()
        assert repr(call) == "<PendingCall tools/call 'price' ended>"


def test_httpx(url: str) -> None:
    async def main() -> None:
        async with (
            httpx.AsyncClient() as http,
            sansmcp_httpx.connect(url, http=http) as client,
        ):
            assert CLIENT.fullmatch(repr(client))

    asyncio.run(main())
    with httpx.Client() as http, sansmcp_httpx.connect_blocking(url, http=http) as client:
        assert CLIENT.fullmatch(repr(client))


def test_bindings() -> None:
    assert repr(sansmcp_asgi.asgi_app(_app())) == "<AsgiApp 'hotel'>"
    served = sansmcp_wsgi.WsgiApp(_app())
    assert repr(served) == "<WsgiApp 'hotel'>"
    served.shut_down()


def test_the_pytest_plugin(mcp_client: Connect, mcp_server: Serve) -> None:
    server = mcp_server(_app())
    assert re.fullmatch(r"<Server \S+ 'hotel'>", repr(server))
    client = mcp_client(server)
    assert re.fullmatch(r"<Client \S+ 2026-07-28 'hotel'>", repr(client))
    call = client.start("tools/call", {"name": "price"})
    assert re.fullmatch(r"<PendingCall>", repr(call))
    call.result()


def test_machines() -> None:
    client = sansmcp.Client("http://a.example/mcp?key=secret", jitter=lambda: 0.5)
    assert repr(client) == "<Client http://a.example/mcp?... new>"
    client = sansmcp.Client(["/usr/bin/python", "--token", "secret"], jitter=lambda: 0.5)
    assert repr(client) == "<Client /usr/bin/python new>"
    server = sansmcp.Server(_app(), new_token=lambda: "t" * 16)
    assert repr(server) == "<Server 'hotel'>"


def _nothing(call: Any) -> Any:
    return {}


def _sleep() -> int:
    return 1


def test_apps() -> None:
    app = _app()
    assert repr(app) == "<App 'hotel' 1.0: tools/call>"
    app.handler("tools/list")(_nothing)
    assert repr(app) == "<App 'hotel' 1.0: tools/call, tools/list>"
    assert repr(sansmcp.App("empty")) == "<App 'empty' 0: no handlers>"
    tools = Tools("inn", "2")
    tools.tool(name="sleep")(_sleep)
    assert repr(tools) == "<Tools 'inn' 2: tools/list, tools/call>"
    for number in range(1000):
        app.handler(f"com.example/{number}")(_nothing)
    assert len(repr(app)) < 200


def test_a_command_and_a_server_that_names_itself_at_length() -> None:
    code = (
        "import sansmcp, sansmcp_blocking\n"
        "sansmcp_blocking.serve(sansmcp.App('\\x1b[2J' + 'x' * 5000), stdio=True).wait()"
    )
    with sansmcp_blocking.connect([sys.executable, "-c", code]) as client:
        shown = repr(client)
    assert shown.startswith(f"<Client {sys.executable} 2026-07-28 '\\x1b[2Jxxx")
    assert len(shown) < 300
