"""Async tests of this folder run on the loop of asyncio, and again on that of uvloop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_asyncio import Call
from sansmcp_asyncio._server import Serve

from ..leak_check import freeze_what_is_there
from .loops import LOOPS, on_a_loop

Tool = Callable[[Call], Awaitable[Any]]
LOCAL = ("127.0.0.1", 0)


@pytest.hookimpl(tryfirst=True)  # before all that is async is taken for trio
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.obj = on_a_loop(item.obj, item.funcargs)


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    """What others have left behind is theirs."""
    for kind in LOOPS:
        LOOPS[kind]().close()
    freeze_what_is_there()


@pytest.fixture(autouse=True, params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """The kind of the loop that an async test runs on."""
    kind: str = request.param
    return kind


class ToolApp:
    """An application whose tools the test writes."""

    def __init__(self) -> None:
        self.app = sansmcp.App("asyncio-tests", "1")
        self.tools: dict[str, Tool] = {}
        self.app.handler("tools/call")(self._call_tool)
        self.app.handler("tools/list")(self._list_tools)
        self.tool(echo)

    def tool(self, function: Tool) -> Tool:
        self.tools[function.__name__] = function
        return function

    def serve(self, **settings: Any) -> Serve:
        """Serve it; if the test does not say otherwise, with the revisions that have sessions."""
        options: dict[str, Any] = {"http": LOCAL, "versions": HANDSHAKE_VERSIONS, **settings}
        return sansmcp_asyncio.serve(self.app, **options)

    def _list_tools(self, call: Call) -> dict[str, Any]:
        return {"tools": [{"name": name} for name in self.tools]}

    async def _call_tool(self, call: Call) -> Any:
        return await self.tools[call.params["name"]](call)


async def echo(call: Call) -> dict[str, Any]:
    return {"echo": call.params["arguments"]}


@pytest.fixture
def world() -> ToolApp:
    return ToolApp()
