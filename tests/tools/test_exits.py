"""A handler that calls ``sys.exit()`` ends its call, and not the server."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp_tools import Tools

from .conftest import text_of

HTTP = ("127.0.0.1", 0)


async def leave() -> str:
    sys.exit("a secret")


def leave_in_thread() -> str:
    sys.exit(3)


def in_asyncio(app: sansmcp.App, use: Callable[[str], None]) -> None:
    async def main() -> None:
        async with sansmcp_asyncio.serve(app, http=HTTP) as server:
            await asyncio.to_thread(use, server.url)

    asyncio.run(main())


def in_trio(app: sansmcp.App, use: Callable[[str], None]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(sansmcp_trio.serve, app, http=HTTP))
            await trio.to_thread.run_sync(use, server.url)
            nursery.cancel_scope.cancel()

    trio.run(main)


def in_threads(app: sansmcp.App, use: Callable[[str], None]) -> None:
    with sansmcp_blocking.serve(app, http=HTTP) as server:
        use(server.url)


@pytest.mark.parametrize(
    ("host", "function"),
    [
        (in_asyncio, leave),
        (in_asyncio, leave_in_thread),
        (in_trio, leave),
        (in_trio, leave_in_thread),
        (in_threads, leave_in_thread),
    ],
)
def test_a_tool_that_exits_has_failed(
    tools: Tools, host: Any, function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tools.tool(name="leave")(function)
    tools.tool(name="stay")(lambda: "here")

    def use(url: str) -> None:
        with sansmcp_blocking.connect(url) as client:
            result = client.call_tool("leave")
            assert result["isError"]
            assert text_of(result) == "The tool has failed. The log of the server has the reason"
            assert text_of(client.call_tool("stay")) == "here"

    host(tools, use)
    assert "SystemExit(" in caplog.text


@pytest.mark.parametrize("host", [in_asyncio, in_trio, in_threads])
@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_exits_has_failed(
    host: Any, inline: bool, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if is_async and host is in_threads:
        return
    app = sansmcp.App("exits")

    def exit_plainly(call: Any) -> Any:
        if call.params["name"] == "leave":
            sys.exit(3)
        return {"content": []}

    async def exit_later(call: Any) -> Any:
        return exit_plainly(call)

    app.handler("tools/call", inline=inline)(exit_later if is_async else exit_plainly)

    def use(url: str) -> None:
        with sansmcp_blocking.connect(url) as client:
            with pytest.raises(sansmcp.JsonRpcError, match="Internal error"):
                client.call_tool("leave")
            assert client.call_tool("stay")["content"] == []

    with caplog.at_level(logging.ERROR):
        host(app, use)
    assert "SystemExit(3)" in caplog.text
