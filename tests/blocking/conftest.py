"""Servers for the tests of the blocking adapter, over real sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp_blocking import Call, RunningServer

Tool = Callable[[Call], Any]
Start = Callable[..., RunningServer]

PATIENCE = 20.0
"""Seconds for what takes a moment, on a machine that has much else to do."""


class ToolApp:
    """An application whose tools the test writes."""

    def __init__(self) -> None:
        self.app = sansmcp.App("blocking-tests", "1")
        self.tools: dict[str, Tool] = {}
        self.app.handler("tools/call")(self.call_tool)
        self.app.handler("tools/list")(self.list_tools)

    def tool(self, function: Tool) -> Tool:
        self.tools[function.__name__] = function
        return function

    def call_tool(self, call: Call) -> Any:
        return self.tools[call.params["name"]](call)

    def list_tools(self, call: Call) -> dict[str, Any]:
        return {"tools": [{"name": name} for name in self.tools]}


@pytest.fixture
def world() -> ToolApp:
    world = ToolApp()

    @world.tool
    def echo(call: Call) -> dict[str, Any]:
        return {"echo": call.params["arguments"]}

    return world


@pytest.fixture(autouse=True)
def no_final_flush_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stops gives its last threads as long as they take."""
    monkeypatch.setattr("sansmcp_blocking._server._FINAL_FLUSH_TIMEOUT", PATIENCE)


@pytest.fixture
def start(world: ToolApp) -> Iterator[Start]:
    """Start a server on a free port; nothing of it is left after the test."""
    before = set(threading.enumerate())
    with ExitStack() as stack:

        def start(**settings: Any) -> RunningServer:
            options: dict[str, Any] = {"http": ("127.0.0.1", 0), **settings}
            return stack.enter_context(sansmcp_blocking.serve(world.app, **options))

        yield start
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)  # its last steps
    assert set(threading.enumerate()) <= before


def wait_for_event(event: threading.Event) -> None:
    """Wait for what another thread does."""
    assert event.wait(PATIENCE)
