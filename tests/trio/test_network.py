"""Sockets: over TLS, used again, and peers that leave or take nothing harm nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import sansmcp
import sansmcp_trio
from sansmcp import Disconnected, Limits
from sansmcp.events import ServerNotified
from sansmcp_trio import Call

from ..tls import ONCE, contexts
from ..tool_app import ToolApp
from .conftest import Start


async def test_a_server_over_tls(start: Start) -> None:
    server_context, client_context = contexts()
    serving = await start(ssl_context=server_context)
    assert serving.url.startswith("https://127.0.0.1:")
    async with sansmcp_trio.connect(serving.url, ssl_context=client_context) as client:
        for _ in range(3):
            assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}
    with pytest.raises(Disconnected, match="certificate verify failed"):
        async with sansmcp_trio.connect(serving.url, reconnect=ONCE):
            raise AssertionError("connected")


async def raw(serving: sansmcp_trio.RunningServer) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", sansmcp.Url.parse(serving.url).port)


async def test_connections_are_used_again(start: Start) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url, standalone_stream=False) as client:
        for _ in range(10):
            await client.call_tool("echo")
        assert len(serving.drivers) == 1


async def test_a_connection_that_the_server_has_closed_is_not_used_again(
    start: Start, clock: MockClock
) -> None:
    serving = await start(limits=Limits(keep_alive_timeout=60))
    limits = Limits(idle_connection_timeout=1000)
    async with sansmcp_trio.connect(serving.url, standalone_stream=False, limits=limits) as client:
        await client.call_tool("echo")
        clock.jump(60)
        await serving.wait_until(lambda: not serving.drivers)
        await client.call_tool("echo")


# Peers that leave or are slow


@pytest.mark.parametrize("data", [b"", b"GET", b"\x16\x03\x01", b"POST /mcp HTTP/1.1\r\nhost: a"])
async def test_clients_that_leave_leave_nothing(start: Start, data: bytes) -> None:
    serving = await start()
    for _ in range(20):
        stream = await raw(serving)
        if data:
            await stream.send_all(data)
        await trio.aclose_forcefully(stream)
    async with sansmcp_trio.connect(serving.url) as client:
        assert await client.call_tool("echo") == {"echo": {}}
    await serving.wait_until(lambda: not serving.drivers)


async def test_a_peer_that_takes_nothing_is_dropped(start: Start, world: ToolApp) -> None:
    @world.tool
    async def chatter(call: Call) -> dict[str, Any]:
        for _ in range(100):
            await call.notify("n", {"text": "x" * 100_000})
        return {}

    serving = await start(limits=Limits(send_timeout=0.2))
    async with sansmcp_trio.connect(serving.url, standalone_stream=False) as client:
        (session,) = serving.core.sessions
        assert session.id is not None
        await client.ping()
        others = len(serving.drivers)
        body = json.dumps(
            {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "chatter"}}
        )
        stream = await raw(serving)
        await stream.send_all(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n"
            b"content-type: application/json\r\nmcp-session-id: "
            + session.id.reveal().encode()
            + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body.encode()
        )
        await serving.wait_until(lambda: len(serving.drivers) != others)
        await serving.wait_until(lambda: len(serving.drivers) <= others)
        assert await client.call_tool("echo") == {"echo": {}}
        await stream.aclose()


async def test_events_that_nobody_takes_stop_the_reading(start: Start, world: ToolApp) -> None:
    """The server is held up, and goes on when somebody takes them; nothing is lost."""

    @world.tool
    async def chatter(call: Call) -> dict[str, Any]:
        for number in range(200):
            await call.notify("n", {"number": number, "text": "x" * 2000})
        return {}

    serving = await start(resumable=False, limits=Limits(max_unsent_bytes=10_000))
    async with sansmcp_trio.connect(serving.url, limits=Limits(max_queued_events=5)) as client:
        events = client.events()
        numbers: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "chatter")
            async for event in events:
                assert isinstance(event, ServerNotified)
                assert event.notification.params is not None
                numbers.append(event.notification.params["number"])
                await trio.lowlevel.checkpoint()
                if len(numbers) == 200:
                    break
        await events.aclose()
    assert numbers == list(range(200))
