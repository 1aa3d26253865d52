"""What fails or is cancelled at one end is told at the other, and the conversation goes on."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import (
    Disconnected,
    JsonRpcError,
    NegotiationFailed,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)
from sansmcp.events import Connected, SessionExpired
from sansmcp_trio import Call

from ..tool_app import ToolApp
from .conftest import Start

requirement = pytest.mark.requirement


# Calls that fail


async def test_a_tool_that_raises(
    start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    @world.tool
    async def fail(call: Call) -> Any:
        raise ValueError("the password is hunter2")

    @world.tool
    async def no_json(call: Call) -> Any:
        return object()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        for name in ("fail", "no_json", "unknown"):
            with pytest.raises(JsonRpcError) as caught:
                await client.call_tool(name)
            assert (caught.value.code, caught.value.message) == (-32603, "Internal error")
    assert "hunter2" in caplog.text


@requirement("LIFECYCLE-B-006")
async def test_a_call_that_takes_too_long(start: Start, world: ToolApp) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving, timeout = await start(), 0.05
    async with sansmcp_trio.connect(serving.url) as client:
        while not begun.is_set():  # on a busy machine that takes longer
            with pytest.raises(RequestTimeout):
                await client.call_tool("hang", timeout=timeout)
            timeout *= 2
        await cancelled.wait()
        assert (await client.call_tool("echo"))["echo"] == {}


@requirement("SHTTP-C-008", "CANCEL-B-003")
async def test_cancelling_the_caller_cancels_the_handler(start: Start, world: ToolApp) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hang")
            await begun.wait()
            nursery.cancel_scope.cancel()
        await cancelled.wait()
        assert (await client.call_tool("echo"))["echo"] == {}


# Sessions and connections that fail


async def test_a_session_that_the_server_ends(start: Start) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        assert (await client.call_tool("echo"))["echo"] == {}
        first = client.connected
        (session,) = serving.core.sessions
        serving.core.end_session(session, "test", now=trio.current_time())
        serving.pump()
        events = client.events()
        with pytest.raises(SessionLost):
            await client.call_tool("echo")
        assert (await client.call_tool("echo"))["echo"] == {}
        seen: list[type] = []
        while Connected not in seen:
            seen.append(type(await events.__anext__()))
        assert SessionExpired in seen
        assert client.connected is first
        assert [tool["name"] for tool in (await client.list_tools())["tools"]] == ["echo"]
        await events.aclose()
    assert serving.core.sessions == ()


async def test_nobody_is_there() -> None:
    with pytest.raises(Disconnected, match="refused"):
        async with sansmcp_trio.connect("http://127.0.0.1:1/mcp", connect_timeout=1.0):
            raise AssertionError("connected")


async def test_another_server_is_there(nursery: trio.Nursery) -> None:
    async def web_server(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        head = b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"
        await stream.send_all(head + b"hello")
        await stream.aclose()

    serve = partial(trio.serve_tcp, web_server, 0, host="127.0.0.1")
    listeners = await nursery.start(serve)
    port = listeners[0].socket.getsockname()[1]
    with pytest.raises(NegotiationFailed, match="HTTP 404: hello") as refused:
        async with sansmcp_trio.connect(f"http://127.0.0.1:{port}/"):
            raise AssertionError("connected")
    assert all(isinstance(attempt, RequestRefused) for attempt in refused.value.attempts)
    nursery.cancel_scope.cancel()


async def test_what_is_raised_inside_comes_out_as_it_is(start: Start) -> None:
    serving = await start()

    class Mine(Exception):
        pass

    mine = Mine("x")
    with pytest.raises(Mine) as caught:
        async with sansmcp_trio.connect(serving.url):
            raise mine
    assert caught.value is mine
    assert caught.value.__context__ is None
    assert serving.core.sessions == ()


async def test_a_call_times_out_though_nobody_takes_the_events(
    start: Start, world: ToolApp
) -> None:
    @world.tool
    async def chatty(call: Call) -> None:
        while True:
            await call.notify("notifications/chat", {"text": "x" * 1000})

    serving = await start()
    limits = sansmcp.Limits(max_queued_events=8)
    heard, timeout = trio.Event(), 1.0
    async with sansmcp_trio.connect(serving.url, limits=limits) as client:
        events = client.events()

        async def hear_one() -> None:
            await anext(events)
            heard.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_one)
            while not heard.is_set():  # on a busy machine that takes longer
                with pytest.raises(RequestTimeout):
                    await client.call_tool("chatty", timeout=timeout)
                timeout *= 2
        await events.aclose()  # looks no more, so what comes is read again
        assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}
