"""Servers for the tests of the trio adapter, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import sansmcp
import sansmcp_trio
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_trio import Call, RunningServer

Tool = Callable[[Call], Awaitable[Any]]
Start = Callable[..., Awaitable[RunningServer]]


class ToolApp:
    """An application whose tools the test writes, and what they share with it."""

    def __init__(self) -> None:
        self.app = sansmcp.App("trio-tests", "1")
        self.tools: dict[str, Tool] = {}
        self.app.handler("tools/call")(self.call_tool)
        self.app.handler("tools/list")(self.list_tools)

    def tool(self, function: Tool) -> Tool:
        self.tools[function.__name__] = function
        return function

    async def call_tool(self, call: Call) -> Any:
        return await self.tools[call.params["name"]](call)

    def list_tools(self, call: Call) -> dict[str, Any]:
        return {"tools": [{"name": name} for name in self.tools]}


@pytest.fixture
def world() -> ToolApp:
    world = ToolApp()

    @world.tool
    async def echo(call: Call) -> dict[str, Any]:
        return {"echo": call.params["arguments"]}

    return world


@pytest.fixture
def clock(mock_clock: MockClock) -> MockClock:
    """A clock that runs as all do, but for being put forward: what has to come first has time."""
    mock_clock.rate = 1.0
    return mock_clock


@pytest.fixture
async def start(world: ToolApp, nursery: trio.Nursery) -> AsyncIterator[Start]:
    """Start a server on a free port; it is stopped at the end of the test.

    If the test does not say otherwise, it is of the revisions that have sessions.
    """
    running: list[RunningServer] = []

    async def start(**settings: Any) -> RunningServer:
        settings.setdefault("versions", HANDSHAKE_VERSIONS)
        options = {"http": ("127.0.0.1", 0), "versions": HANDSHAKE_VERSIONS, **settings}
        serve = partial(sansmcp_trio.serve, world.app, **options)
        serving: RunningServer = await nursery.start(serve)
        running.append(serving)
        return serving

    yield start
    for serving in running:
        serving.stop()
