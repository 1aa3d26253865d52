"""The authorization server, and our servers on every adapter."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from sansmcp import App

from ..asgi.conftest import Host as AsgiHost
from ..asgi.test_check_adapter import AsgiServers
from ..asyncio.adapter_under_test import AsyncioServers
from ..blocking.adapter_under_test import BlockingServers
from ..trio.adapter_under_test import TrioServers
from ..wsgi.conftest import Host as WsgiHost
from ..wsgi.test_check_adapter import WsgiServers
from .authorization_server import AuthorizationServer, authorization_server

ADAPTERS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioServers("asyncio"),
    "trio": TrioServers,
    "blocking": BlockingServers,
    "asgi": lambda: AsgiServers(AsgiHost("uvicorn")),
    "wsgi": lambda: WsgiServers(WsgiHost("waitress")),
}


@pytest.fixture(scope="session")
def issuer() -> Generator[AuthorizationServer, None, None]:
    """An authorization server for all tests."""
    with authorization_server() as server:
        yield server


def who_app() -> App:
    """A tool that tells who called it, and one that needs a scope of its own."""
    app = App("who", "1")
    needed = {"wipe": ("write",)}

    @app.handler(
        "tools/call",
        inline=True,
        scopes=lambda request: needed.get((request.params or {})["name"], ()),
    )
    def call_tool(call: Any) -> Any:
        told = f"{call.principal}: {' '.join(sorted(call.scopes))}"
        return {"content": [{"type": "text", "text": told}]}

    @app.handler("tools/list", inline=True)
    def list_tools(call: Any) -> Any:
        schema = {"type": "object"}
        return {"tools": [{"name": name, "inputSchema": schema} for name in ("who", "wipe")]}

    return app
