"""One process that serves stdio, HTTP and HTTP+SSE, and how others find it."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_local import State, read_state
from sansmcp_trio import Client

from ..tool_app import ToolApp
from . import programs
from .programs import ours, start, until

connect = partial(programs.connect, versions=HANDSHAKE_VERSIONS)
LOCAL = ("127.0.0.1", 0)
BOTH = {"http": LOCAL, "http_sse": "/sse"}
CLI = [sys.executable, "-m", "sansmcp_cli", "serve", "--http", "127.0.0.1:0"]


async def appeared(path: Path) -> State:
    await until(path.exists)
    state = read_state(path)
    assert state is not None
    return state


# All at once


async def test_three_transports_of_one_process_at_the_same_time(tmp_path: Path) -> None:
    results: list[Any] = []
    answers = {"elicitation/create": answer}
    capabilities: dict[str, Any] = {"elicitation": {}}

    async def talk(client: Client, transport: str) -> None:
        assert client.connected.transport == transport
        results.append(await client.call_tool("meet", {"name": transport, "expected": 3}))
        assert await client.call_tool("ask", {"message": transport}) == {"answer": transport}

    path = tmp_path / "state"
    command = ours(**BOTH, state_file=str(path))
    async with connect(
        command, request_handlers=answers, capabilities=capabilities, close_timeout=0.1
    ) as first:
        url = (await appeared(path)).url
        assert url is not None

        async def talk_to(url: str, transport: str) -> None:
            async with connect(
                url, transports=(transport,), request_handlers=answers, capabilities=capabilities
            ) as client:
                await talk(client, transport)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk, first, "stdio")
            nursery.start_soon(talk_to, url, "streamable-http")
            nursery.start_soon(talk_to, url.replace("/mcp", "/sse"), "http+sse")
    assert results == 3 * [{"met": ["http+sse", "stdio", "streamable-http"]}]


async def answer(request: sansmcp.ServerRequest) -> Any:
    return {"answer": request.params["message"]}


@pytest.mark.parametrize("stops", [False, True])
async def test_the_end_of_standard_input(tmp_path: Path, stops: bool) -> None:
    path = tmp_path / "state"
    command = ours(**BOTH, state_file=str(path), **({"stop_on_stdin_eof": True} if stops else {}))
    process = await start(command, stdin=PIPE)
    assert process.stdin is not None
    state = await appeared(path)
    assert state.url is not None
    async with connect(state.url) as client:
        await process.stdin.aclose()
        if stops:
            assert await process.wait() == 0
            assert not path.exists()
        else:
            assert await client.call_tool("meet", {"name": "x", "expected": 1}) == {"met": ["x"]}
            process.kill()
            await process.wait()


# Where it listens


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is taken; the one after it is free. Nobody is given one of these by chance."""
    for port in range(20_000 + os.getpid() % 5_000 * 2, 32_000, 2):
        with ExitStack() as stack:
            try:  # the first one first: who has it has both
                for one in (port, port + 1):
                    taken = stack.enter_context(socket.create_server(("127.0.0.1", one)))
                taken.close()
            except OSError:
                continue
            yield port
            return


async def test_the_first_free_port_of_a_range(
    world: ToolApp, nursery: trio.Nursery, port: int
) -> None:
    serve = partial(sansmcp_trio.serve, world.app, http=("127.0.0.1", range(port, port + 2)))
    serving: sansmcp_trio.RunningServer = await nursery.start(serve)
    assert serving.url == f"http://127.0.0.1:{port + 1}/mcp"
    async with connect(serving.url) as client:
        assert await client.ping() is not None
    serving.stop()


async def test_no_free_port(world: ToolApp, port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        await sansmcp_trio.serve(world.app, http=("127.0.0.1", range(port, port + 1)))
    with pytest.raises(sansmcp.LocalProtocolError, match="must not be empty"):
        await sansmcp_trio.serve(world.app, http=("127.0.0.1", range(0)))


async def test_nothing_to_serve_on(world: ToolApp) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="set http, unix or stdio"):
        await sansmcp_trio.serve(world.app)


# How others find it


async def test_the_state_file_lasts_as_long_as_the_server(world: ToolApp, tmp_path: Path) -> None:
    path = tmp_path / "state"
    serve = partial(sansmcp_trio.serve, world.app, http=LOCAL, http_sse="/sse", state_file=path)
    async with trio.open_nursery() as nursery:
        serving: sansmcp_trio.RunningServer = await nursery.start(serve)
        state = read_state(path)
        assert state is not None
        assert state.url is not None
        assert state.url == serving.url == f"http://127.0.0.1:{state.port}/mcp"
        assert (state.pid, state.transports) == (os.getpid(), ("streamable-http", "http+sse"))
        async with connect(state.url) as client:
            assert await client.ping() is not None
        serving.stop()
    assert os.listdir(tmp_path) == []


async def test_a_state_file_that_cannot_be_written(world: ToolApp, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "state", tmp_path):
        with pytest.raises(OSError, match=r"No such file|Is a directory"):
            await sansmcp_trio.serve(world.app, http=LOCAL, state_file=path)
    assert os.listdir(tmp_path) == []
    gc.collect()  # what still listened would warn


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_state_file_of_a_server_that_is_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "state"
    command = [*CLI, "--dual", "--http-sse", "--state-file", str(path)]
    process = await start(command, stdin=PIPE)
    assert process.stdin is not None
    async with process.stdin:
        state = await appeared(path)
        assert state.transports == ("streamable-http", "http+sse", "stdio")
        assert state.pid == process.pid
        assert state.url is not None
        async with connect(state.url, close_timeout=0.1) as client:
            assert await client.ping() is not None
            process.send_signal(number)
            status = await process.wait()
    assert read_state(path) is None
    if number == signal.SIGTERM:
        assert (status, path.exists()) == (0, False)
    else:
        assert json.loads(path.read_text())["pid"] == state.pid
