"""Clients of 2026-07-28 hear through ``subscriptions/listen`` of a tool that is added."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
import trio

import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp.events import ServerNotified
from sansmcp_tools import Tools

HTTP = ("127.0.0.1", 0)


def in_asyncio(tools: Tools, use: Callable[[str], None]) -> None:
    async def main() -> None:
        async with sansmcp_asyncio.serve(tools.app, http=HTTP) as server:
            tools.attach(server.publish)
            await asyncio.to_thread(use, server.url)

    asyncio.run(main())


def in_trio(tools: Tools, use: Callable[[str], None]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(sansmcp_trio.serve, tools.app, http=HTTP))
            tools.attach(server.publish)
            await trio.to_thread.run_sync(use, server.url)
            nursery.cancel_scope.cancel()

    trio.run(main)


def in_threads(tools: Tools, use: Callable[[str], None]) -> None:
    with sansmcp_blocking.serve(tools.app, http=HTTP) as server:
        tools.attach(server.publish)
        use(server.url)


@pytest.mark.parametrize("host", [in_asyncio, in_trio, in_threads])
def test_an_added_tool_is_heard(host: Callable[..., None], tools: Tools) -> None:
    def change_in_thread() -> None:
        tools.tool(name="late")(lambda: None)

    async def change_in_loop() -> None:
        change_in_thread()

    heard: list[str] = []
    tool = "change"
    tools.tool(name=tool)(change_in_thread if host is in_threads else change_in_loop)

    def use(url: str) -> None:
        with sansmcp_blocking.connect(url, versions=("2026-07-28",)) as client:
            wanted = {"notifications": {"toolsListChanged": True}}
            events = client.events(timeout=30)
            listening = client.start_call("subscriptions/listen", wanted)
            for event in events:
                if isinstance(event, ServerNotified) and event.call == listening.handle:
                    heard.append(event.notification.method)
                    if len(heard) == 2:
                        break
                    client.call_tool(tool)
            assert "late" in [each["name"] for each in client.tools()]
            listening.cancel()

    host(tools, use)
    assert heard == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
