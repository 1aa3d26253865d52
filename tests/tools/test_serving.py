"""Tools are an App: what takes an App takes them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

import sansmcp
import sansmcp_asgi
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_telemetry
import sansmcp_trio
import sansmcp_wsgi
from sansmcp_pytest import Connect, Serve
from sansmcp_tools import Tools

from .conftest import text_of

HTTP = ("127.0.0.1", 0)


@pytest.fixture(name="adder")
def make_adder() -> Tools:
    """Tools with one tool that every adapter can run."""
    tools = Tools("adder", "1.0", "Adds.")

    @tools.tool
    def add(a: int, b: int) -> int:
        return a + b

    return tools


def _added(url: str) -> str:
    with sansmcp_blocking.connect(url) as client:
        return text_of(client.call_tool("add", {"a": 1, "b": 2}))


def in_asyncio(tools: Tools) -> str:
    async def main() -> str:
        async with sansmcp_asyncio.serve(tools, http=HTTP) as server:
            return await asyncio.to_thread(_added, server.url)

    return asyncio.run(main())


def in_trio(tools: Tools) -> str:
    async def main() -> str:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(sansmcp_trio.serve, tools, http=HTTP))
            said = await trio.to_thread.run_sync(_added, server.url)
            nursery.cancel_scope.cancel()
        return said

    return trio.run(main)


def in_threads(tools: Tools) -> str:
    with sansmcp_blocking.serve(tools, http=HTTP) as server:
        return _added(server.url)


def under_asgi(tools: Tools) -> str:
    async def main() -> str:
        served = sansmcp_asgi.asgi_app(tools)
        transport = httpx.ASGITransport(served)
        async with (
            httpx.AsyncClient(transport=transport) as http,
            sansmcp_httpx.connect("http://localhost/mcp", http=http) as client,
        ):
            said = text_of(await client.call_tool("add", {"a": 1, "b": 2}))
        await served.stop()
        return said

    return asyncio.run(main())


def under_wsgi(tools: Tools) -> str:
    served = sansmcp_wsgi.WsgiApp(tools)
    try:
        with (
            httpx.Client(transport=httpx.WSGITransport(served)) as http,
            sansmcp_httpx.connect_blocking("http://localhost/mcp", http=http) as client,
        ):
            return text_of(client.call_tool("add", {"a": 1, "b": 2}))
    finally:
        served.shut_down()


@pytest.mark.parametrize("host", [in_asyncio, in_trio, in_threads, under_asgi, under_wsgi])
def test_every_adapter_serves_tools(host: Callable[[Tools], str], adder: Tools) -> None:
    assert host(adder) == "3"


def test_the_pytest_plugin_serves_tools(
    mcp_client: Connect, mcp_server: Serve, adder: Tools
) -> None:
    assert text_of(mcp_client(adder).call_tool("add", {"a": 1, "b": 2})) == "3"
    assert text_of(mcp_client(mcp_server(adder)).call_tool("add", {"a": 1, "b": 2})) == "3"


def test_tools_are_an_app(adder: Tools) -> None:
    assert isinstance(adder, sansmcp.App)
    assert adder.app is adder
    assert (adder.name, adder.version, adder.instructions) == ("adder", "1.0", "Adds.")
    server = sansmcp.Server(adder, new_token=lambda: "t" * 16)
    assert server.app is adder
    handler = sansmcp_telemetry.send_logs(adder, "tests.tools.nothing")
    assert "logging/setLevel" in adder.handlers
    handler.close()


@pytest.mark.parametrize("name", ["tools", "tools.app", "Nested.inner.tools"])
@pytest.mark.parametrize("adapter", ["asyncio", "trio", "blocking"])
def test_the_command_serves_tools(tmp_path: Path, name: str, adapter: str) -> None:
    (tmp_path / "adder.py").write_text(
        "import sansmcp_tools\n"
        "tools = sansmcp_tools.Tools('adder')\n"
        "@tools.tool\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "class Nested:\n"
        "    class inner:\n"
        "        tools = tools\n"
    )
    command = [sys.executable, "-m", "sansmcp_cli", "serve", f"adder:{name}", "--stdio"]
    with sansmcp_blocking.connect([*command, "--adapter", adapter], cwd=tmp_path) as client:
        assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("value.nope", "has no attribute 'nope'"),
        ("value.", "Cannot load the application 'adder:value.'"),
        ("value", "'adder:value' is int; an App or Tools is wanted"),
    ],
)
def test_what_is_no_app_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "adder.py").write_text("value = 1\n")
    command = [sys.executable, "-m", "sansmcp_cli", "serve", f"adder:{name}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


SERVE: list[Callable[[Any], object]] = [
    lambda app: sansmcp_asyncio.serve(app, http=HTTP),
    lambda app: sansmcp_blocking.serve(app, http=HTTP),
    sansmcp_asgi.asgi_app,
    sansmcp_wsgi.WsgiApp,
]


@pytest.mark.parametrize("serve", SERVE, ids=["asyncio", "blocking", "asgi", "wsgi"])
def test_what_is_no_app_is_refused_in_the_same_words(serve: Callable[[Any], object]) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="app must be App, and is int"):
        serve(1)
