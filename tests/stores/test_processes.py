"""Real processes that share a file, behind a relay that sends each connection to another one."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

import sansmcp

from .conftest import TEXT, WAYS, Server, ask, connect, poem, topic

requirement = pytest.mark.requirement
pytestmark = pytest.mark.simulation

CALLS = 34
"""In each of the three ways: a hundred in all."""

ONE_REQUEST_EACH = sansmcp.Limits(idle_connection_timeout=1e-6)
"""Connections that are kept for nothing after their first request."""


@asynccontextmanager
async def relaying(servers: list[Server]) -> AsyncGenerator[str, None]:
    """A relay without any idea of HTTP; gives the URL behind it."""
    turns = itertools.count()

    async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            async for data in source:
                await sink.send_all(data)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.aclose_forcefully(sink)

    async def relay(client: trio.SocketStream) -> None:
        port = servers[next(turns) % len(servers)].port
        try:
            server = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await client.aclose()
            return
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(copy, client, server)
            nursery.start_soon(copy, server, client)

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, relay, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


@requirement("MTURN-S-009", "MTURN-B-001")
async def test_every_request_may_go_to_another_process(servers: list[Server]) -> None:
    answers = {"elicitation/create": topic, "sampling/createMessage": poem}
    async with relaying(servers) as url:
        for way in WAYS:
            async with connect(url, way, answers, ONE_REQUEST_EACH) as client:
                for _ in range(CALLS):
                    assert await ask(client) == TEXT


@pytest.mark.parametrize("way", WAYS)
async def test_processes_are_killed_between_the_rounds(way: str, servers: list[Server]) -> None:
    """One before each answer, until one is left."""
    alive = list(servers)

    def kill() -> None:
        victim = alive.pop(0)
        victim.process.kill()
        victim.process.wait(timeout=20)

    async def topic_and_kill(params: Any) -> dict[str, Any]:
        kill()
        return await topic(params)

    async def poem_and_kill(params: Any) -> dict[str, Any]:
        kill()
        return await poem(params)

    answers = {"elicitation/create": topic_and_kill, "sampling/createMessage": poem_and_kill}
    async with relaying(servers) as url, connect(url, way, answers, ONE_REQUEST_EACH) as client:
        result = await client.call_tool("ask", timeout=30, idempotent=True)
        assert result["content"][0]["text"] == TEXT
    assert len(alive) == 1
