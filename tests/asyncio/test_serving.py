"""Servers: where they listen, how they stop, and peers that take or send nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp import Disconnected, Limits, LocalProtocolError, RequestTimeout
from sansmcp.events import ServerNotified
from sansmcp_asyncio import Call, RunningServer, connect
from sansmcp_local import read_state

from ..tls import ONCE, contexts
from ..trio.programs import outside
from .conftest import LOCAL, ToolApp
from .loops import PATIENCE

MUCH = Limits(max_queued_events=5)


async def raw(serving: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", sansmcp.Url.parse(serving.url).port)


async def test_a_peer_that_is_gone_is_sent_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Asyncio logs a warning for each further write: 236 of them for the requests of one peer."""
    app = _application()

    @app.handler("tools/list", inline=True)
    def list_tools(call: Call) -> Any:
        return {"tools": []}

    prefix = "io.modelcontextprotocol/"
    meta: Any = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    body = json.dumps(message).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
        f"mcp-method: tools/list\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    async with sansmcp_asyncio.serve(app, http=LOCAL) as serving:
        with socket.create_connection(("127.0.0.1", sansmcp.Url.parse(serving.url).port)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(head.encode() + body)
            while not serving.connections:
                await asyncio.sleep(0.01)
            peer.sendall(1000 * (head.encode() + body))
        async with connect(serving.url) as client:
            await client.ping()
    assert "socket.send() raised exception." not in caplog.messages


# Where


async def test_a_server_over_tls(world: ToolApp) -> None:
    server_context, client_context = contexts()
    async with world.serve(ssl_context=server_context) as serving:
        assert serving.url.startswith("https://127.0.0.1:")
        async with connect(serving.url, ssl_context=client_context) as client:
            for size in (1, 1_000_000):
                assert await client.call_tool("echo", {"a": size * "x"}) == {
                    "echo": {"a": size * "x"}
                }
        with pytest.raises(Disconnected, match="certificate verify failed"):
            await connect(serving.url, reconnect=ONCE)
        _, writer = await raw(serving)
        writer.write(b"no TLS at all")
        writer.close()


async def test_a_server_over_tls_stops_though_a_client_says_nothing(world: ToolApp) -> None:
    server_context, client_context = contexts()
    async with world.serve(ssl_context=server_context) as serving:
        port = sansmcp.Url.parse(serving.url).port
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
    writer.transport.abort()


async def test_the_first_free_port_of_a_range(world: ToolApp) -> None:
    async with world.serve() as first:
        port = sansmcp.Url.parse(first.url).port
        async with world.serve(http=("127.0.0.1", range(port, port + 20))) as second:
            assert first.url != second.url
            async with connect(second.url) as client:
                await client.ping()
        with pytest.raises(OSError, match="in use"):
            await world.serve(http=("127.0.0.1", port))
    with pytest.raises(LocalProtocolError, match="must not be empty"):
        await world.serve(http=("127.0.0.1", range(0)))
    with pytest.raises(LocalProtocolError, match="set http, unix or stdio"):
        world.serve(http=None)


async def test_the_state_file_lasts_as_long_as_the_server(world: ToolApp, tmp_path: Path) -> None:
    async with world.serve(state_file=tmp_path / "state") as serving:
        state = read_state(tmp_path / "state")
        assert state is not None
        assert (state.url, state.pid) == (serving.url, os.getpid())
    for path in (tmp_path / "nowhere" / "state", tmp_path):
        with pytest.raises(OSError, match=r"No such file|Is a directory"):
            await world.serve(state_file=path)
    assert os.listdir(tmp_path) == []


# Stopping


async def test_a_server_that_is_awaited_until_it_is_stopped(world: ToolApp) -> None:
    async with world.serve() as serving:
        asyncio.get_running_loop().call_soon(serving.stop)
        await serving.stopped.wait()
    assert (serving.has_ended, serving.connections) == (True, set())


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_just_accepted_is_served(turns: int) -> None:
    """What this process does not accept is left to another one that has the socket, too."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    with listener.dup() as other, socket.create_connection(listener.getsockname()) as peer:
        other.setblocking(False)
        peer.setblocking(False)
        async with sansmcp_asyncio.serve(
            _application(), http=[listener], health_path="/health", lame_duck_timeout=PATIENCE
        ) as serving:
            for _ in range(turns):
                await asyncio.sleep(0)
            serving.stop()
            for _ in range(6):  # so that the server must know of a connection without bytes
                await asyncio.sleep(0)
            peer.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            received = asyncio.create_task(loop.sock_recv(peer, 1000))
            left = asyncio.create_task(loop.sock_accept(other))
            done, _ = await asyncio.wait(
                [received, left], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
            if left in done:
                left.result()[0].close()
                received.cancel()
            else:
                left.cancel()
                assert received.result().startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_a_server(world: ToolApp, times: int) -> None:
    """The first time running calls get their grace, the second time they do not."""
    begun, go_on, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @world.tool
    async def work(call: Call) -> Any:
        begun.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {"done": True}

    async def run() -> None:
        async with world.serve(graceful_timeout=1000) as serving:
            started.set_result(serving)
            await serving.stopped.wait()

    started: asyncio.Future[RunningServer] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run())
    serving = await started
    async with connect(serving.url) as client:
        calling = asyncio.ensure_future(client.call_tool("work"))
        await begun.wait()
        for _ in range(times):
            running.cancel()
            await serving.stopped.wait()
            await asyncio.sleep(0)
        if times == 1:
            go_on.set()
            assert await calling == {"done": True}
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cancelled.is_set() is (times == 2)
        calling.cancel()
        await asyncio.wait([calling])


SERVER = """
import asyncio, sansmcp_asyncio
from sansmcp_cli import example

async def main():
    async with sansmcp_asyncio.serve(example.app, http=("127.0.0.1", 0)) as serving:
        print(serving.url, flush=True)
        await serving.stopped.wait()

asyncio.run(main())
"""


def test_an_interrupt() -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SERVER],
        env=outside(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert said.endswith("\nKeyboardInterrupt\n")
    assert "Warning" not in said
    assert "Group" not in said


# Peers


async def test_connections_are_used_again(world: ToolApp) -> None:
    async with world.serve() as serving, connect(serving.url, standalone_stream=False) as client:
        for _ in range(10):
            await client.call_tool("echo")
        assert len(serving.connections) == 1


async def test_a_connection_that_is_closed_while_nobody_looks_is_not_used_again(
    world: ToolApp,
) -> None:
    limits = Limits(keep_alive_timeout=1)  # which no busy machine takes between two requests
    async with world.serve(limits=limits) as serving, connect(serving.url) as client:
        await client.call_tool("echo")
        # The server closes it in the same turn of the loop in which the next call is made.
        time.sleep(1.01)
        await client.call_tool("echo")
        await serving.wait_until(lambda: len(serving.connections) <= 1)


@pytest.mark.parametrize("data", [b"", b"GET", b"\x16\x03\x01", b"POST /mcp HTTP/1.1\r\nhost: a"])
async def test_clients_that_leave_leave_nothing(world: ToolApp, data: bytes) -> None:
    async with world.serve() as serving:
        for _ in range(20):
            _, writer = await raw(serving)
            writer.write(data)
            writer.transport.abort()
        async with connect(serving.url) as client:
            assert await client.call_tool("echo") == {"echo": {}}
        await serving.wait_until(lambda: not serving.connections)


async def test_events_that_nobody_takes_stop_the_reading(world: ToolApp) -> None:
    """The server is held up, and goes on when somebody takes them; nothing is lost."""

    @world.tool
    async def chatter(call: Call) -> dict[str, Any]:
        for number in range(200):
            await call.notify("n", {"number": number, "text": "x" * 2000})
        return {}

    limits = Limits(max_unsent_bytes=10_000)
    async with (
        world.serve(resumable=False, limits=limits) as serving,
        connect(serving.url, limits=MUCH) as client,
    ):
        events = client.events()
        numbers: list[Any] = []
        calling = asyncio.ensure_future(client.call_tool("chatter"))
        async for event in events:
            assert isinstance(event, ServerNotified)
            numbers.append((event.notification.params or {})["number"])
            if len(numbers) == 200:
                break
        await events.aclose()
        await calling
    assert numbers == list(range(200))


async def test_a_call_times_out_though_nobody_takes_the_events(world: ToolApp) -> None:
    @world.tool
    async def chatty(call: Call) -> None:
        while True:
            await call.notify("notifications/chat", {"text": "x" * 1000})

    async with world.serve() as serving, connect(serving.url, limits=MUCH) as client:
        events, timeout = client.events(), 1.0
        hearing = asyncio.ensure_future(anext(events))
        while not hearing.done():  # on a busy machine that takes longer
            with pytest.raises(RequestTimeout):
                await client.call_tool("chatty", timeout=timeout)
            timeout *= 2
        await events.aclose()  # looks no more, so what comes is read again
        assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}


# How it is written


def _application() -> sansmcp.App:
    return sansmcp.App("spelling", "1")


def test_asyncio_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """``RuntimeError: no running event loop``."""
    begun: list[RunningServer] = []

    async def main() -> None:
        begun.append(await sansmcp_asyncio.serve(_application(), http=LOCAL).__aenter__())
        await begun[0].__aexit__()

    asyncio.run(main())

    async def stop_soon(self: RunningServer) -> RunningServer:
        await entered(self)
        begun.append(self)
        self.stop()
        return self

    entered = RunningServer.__aenter__
    monkeypatch.setattr(RunningServer, "__aenter__", stop_soon)
    asyncio.run(sansmcp_asyncio.serve(_application(), http=LOCAL))
    assert begun[1].has_ended

    async def in_a_task() -> None:
        await asyncio.create_task(sansmcp_asyncio.serve(_application(), http=LOCAL))
        await sansmcp_asyncio.serve(_application(), http=LOCAL)

    asyncio.run(in_a_task())
    assert len(begun) == 4


def test_who_forgets_to_await_it_is_told() -> None:
    """It did nothing, silently."""
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        sansmcp_asyncio.serve(_application(), http=LOCAL)
    sansmcp_asyncio.serve(_application(), http=LOCAL).close()


def test_an_unknown_setting_names_what_there_is() -> None:
    """``Server.__init__()`` was blamed."""
    settings: dict[str, Any] = {"session": False}
    with pytest.raises(TypeError, match=r"serve\(\) got .* 'session'; did you mean 'sessions'\?"):
        sansmcp_asyncio.serve(_application(), http=LOCAL, **settings)


async def test_the_url_is_logged(world: ToolApp, caplog: pytest.LogCaptureFixture) -> None:
    """The README's server looked hung."""
    caplog.set_level(logging.INFO, "sansmcp")
    async with world.serve() as serving:
        assert f"serving MCP at {serving.url}" in caplog.messages
