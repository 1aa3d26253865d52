"""The end of clients and servers: calls end, streams end, and nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import (
    Disconnected,
    JsonRpcError,
    LocalProtocolError,
    RequestCancelled,
    RequestRefused,
    SessionLost,
)
from sansmcp.events import Closed
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_trio import Call

from ..tool_app import ToolApp
from .conftest import Start

# Clients


async def test_closing_from_another_task(start: Start, world: ToolApp) -> None:
    begun = trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        await trio.sleep_forever()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:

        async def close() -> None:
            await begun.wait()
            await client.aclose()
            await client.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with pytest.raises(RequestCancelled, match="closed"):
                await client.call_tool("hang")
        with pytest.raises(LocalProtocolError, match="closed"):
            await client.call_tool("echo")
        assert [type(event) async for event in client.events()] == []


async def test_events_end_with_the_client(start: Start) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        events = client.events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.aclose)
            seen = [event async for event in events]
        assert isinstance(seen[-1], Closed)


# Servers


async def test_stopping_lets_calls_end_and_ends_streams(start: Start, world: ToolApp) -> None:
    begun, go_on = trio.Event(), trio.Event()

    @world.tool
    async def work(call: Call) -> dict[str, Any]:
        await call.progress(1)
        begun.set()
        await go_on.wait()
        return {"done": True}

    serving = await start()
    results: list[Any] = []
    async with sansmcp_trio.connect(serving.url) as client:

        async def caller() -> None:
            results.append(await client.call_tool("work"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller)
            await begun.wait()
            serving.stop()
            go_on.set()
        assert results == [{"done": True}]
        await serving.wait_until(lambda: not serving.drivers)
        with pytest.raises((Disconnected, RequestRefused, SessionLost)):
            await client.call_tool("echo", timeout=30)  # all attempts take some five seconds


async def test_stopping_does_not_wait_for_ever(start: Start, world: ToolApp) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        await call.progress(1)
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving = await start(graceful_timeout=0.05)
    policy = sansmcp.ReconnectPolicy(initial_delay=0.01, max_attempts=2)
    async with sansmcp_trio.connect(serving.url, reconnect=policy) as client:
        async with trio.open_nursery() as nursery:

            async def caller() -> None:
                with pytest.raises(JsonRpcError, match="shutting down"):
                    await client.call_tool("hang")

            nursery.start_soon(caller)
            await begun.wait()
            serving.stop()
        await cancelled.wait()


async def test_cancelling_the_server_stops_it_properly(world: ToolApp) -> None:
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[sansmcp_trio.RunningServer]) -> None:
            await sansmcp_trio.serve(
                world.app,
                http=("127.0.0.1", 0),
                versions=HANDSHAKE_VERSIONS,
                graceful_timeout=1,
                task_status=task_status,
            )

        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        async with sansmcp_trio.connect(serving.url) as client:
            assert (await client.call_tool("echo"))["echo"] == {}
        nursery.cancel_scope.cancel()
    assert serving.has_ended
    assert not serving.drivers


async def test_an_address_that_cannot_be_bound(start: Start, world: ToolApp) -> None:
    serving = await start()
    port = sansmcp.Url.parse(serving.url).port
    with pytest.raises(OSError, match="in use"):
        await sansmcp_trio.serve(world.app, http=("127.0.0.1", port))
