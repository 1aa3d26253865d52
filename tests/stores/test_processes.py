"""Real processes that share a file, behind a relay that sends each connection to another one."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_trio

from ..cli.conftest import started

requirement = pytest.mark.requirement
WAYS = {
    "requests": ("2025-06-18", False),
    "multi-turn streams": ("2025-11-25", True),
    "results": ("2026-07-28", False),
}
CALLS = 12


class Server:
    """One process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.port = sansmcp.Url.parse(process.stdout.readline().strip()).port


@pytest.fixture
def servers(tmp_path: Path) -> Generator[list[Server], None, None]:
    """Three processes with the example application."""
    store = str(tmp_path / "store.db")
    command = ("serve", "--http", "127.0.0.1:0", "--store", store, "--multi-turn")
    with ExitStack() as stack:
        processes = [stack.enter_context(started(*command)) for _ in range(3)]
        yield [Server(process) for process in processes]


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


def connect(url: str, way: str, answers: dict[str, Any]) -> Any:
    """A client that uses each connection for one request only."""
    version, multi_turn = WAYS[way]
    return sansmcp_trio.connect(
        url,
        versions=(version,),
        multi_turn=multi_turn,
        capabilities={"elicitation": {}, "sampling": {}},
        answers=answers,
        listen=False,
        reconnect=sansmcp.ReconnectPolicy(initial=0.1, cap=0.5, attempts=30),
        limits=sansmcp.Limits(idle_connection_timeout=1e-6),
    )


async def topic(params: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"topic": "the sea"}}


async def poem(params: Any) -> dict[str, Any]:
    text = params["messages"][0]["content"]["text"]
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": text.upper()}}


TEXT = "the sea: A POEM ABOUT THE SEA, PLEASE."


async def ask(client: sansmcp_trio.Client) -> str:
    result = await client.call_tool("ask", timeout=30)
    text: str = result["content"][0]["text"]
    return text


@requirement("MTURN-S-009", "MTURN-B-001")
async def test_every_request_may_go_to_another_process(servers: list[Server]) -> None:
    answers = {"elicitation/create": topic, "sampling/createMessage": poem}
    async with relaying(servers) as url:
        for way in WAYS:
            async with connect(url, way, answers) as client:
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
    async with relaying(servers) as url, connect(url, way, answers) as client:
        result = await client.call_tool("ask", timeout=30, idempotent=True)
        assert result["content"][0]["text"] == TEXT
    assert len(alive) == 1
