"""Tasks: who may call and close what, how calls are cancelled, and what is raised where."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import sansmcp_asyncio
from sansmcp import (
    App,
    Disconnected,
    JsonRpcError,
    LocalProtocolError,
    NegotiationFailed,
    ReconnectPolicy,
    RequestCancelled,
    ServerRequest,
    SessionLost,
)
from sansmcp.events import Closed, Connected, ProgressReceived
from sansmcp_asyncio import Call, connect

from .conftest import ToolApp
from .loops import run

requirement = pytest.mark.requirement

Means = Callable[[Awaitable[Any], asyncio.Event], Awaitable[None]]


class Hanging:
    """A tool that does not come back, and tells how far it is."""

    def __init__(self, world: ToolApp) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        world.tool(self.hang)

    async def hang(self, call: Call) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


# Clients


async def test_a_client_belongs_to_its_loop(world: ToolApp) -> None:
    async with world.serve() as serving, connect(serving.url) as client:

        async def refused(work: Callable[[], Awaitable[None]]) -> None:
            with pytest.raises(LocalProtocolError, match="another event loop"):
                await work()

        for work in (client.ping, partial(client.notify, "x"), client.aclose):
            await asyncio.to_thread(asyncio.run, refused(work))
        assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}


async def test_a_client_is_awaited_and_closed_in_other_tasks(world: ToolApp) -> None:
    async with world.serve() as serving:

        async def begin() -> Any:
            return await connect(serving.url)

        client = await asyncio.create_task(begin())
        calling = asyncio.ensure_future(client.call_tool("echo", {"a": 1}))
        assert await calling == {"echo": {"a": 1}}
        assert await client is client
        await asyncio.gather(*(asyncio.create_task(client.aclose()) for _ in range(3)))
        with pytest.raises(LocalProtocolError, match="closed"):
            await client.ping()
        assert [event async for event in client.events()] == []
        assert serving.core.sessions == ()


async def test_closing_ends_calls_and_events(world: ToolApp) -> None:
    tool = Hanging(world)
    async with world.serve() as serving, connect(serving.url) as client:
        events = client.events()
        calling = asyncio.ensure_future(client.call_tool("hang"))
        await tool.begun.wait()
        await client.aclose()
        with pytest.raises(RequestCancelled, match="closed"):
            await calling
        assert isinstance([event async for event in events][-1], Closed)


async def test_who_answers_may_close_the_client(world: ToolApp) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        return await call.ask("elicitation/create", {"message": "?"})

    async def close(request: ServerRequest) -> Any:
        await client.aclose()

    answers = {"elicitation/create": close}
    async with (
        world.serve(graceful_timeout=0) as serving,
        connect(serving.url, request_handlers=answers, capabilities={"elicitation": {}}) as client,
    ):
        outcomes = await asyncio.gather(*2 * [client.call_tool("ask")], return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {RequestCancelled}


async def test_a_client_that_nobody_awaits() -> None:
    client = connect("http://127.0.0.1:1/mcp")
    await client.aclose()
    connect(["no-such-command"])


def test_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="No event loop is running here"):
        connect("http://127.0.0.1:1/mcp")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/mcp", "Connection refused"),
        ("https://127.0.0.1:1/mcp", "Connection refused"),
        ("http://no-such-host.invalid/mcp", "(?i)name|address"),
        ("http://a..b/mcp", "label"),
    ],
)
async def test_nobody_is_there(url: str, reason: str) -> None:
    with pytest.raises(Disconnected, match=reason):
        await connect(url, reconnect=ReconnectPolicy(initial_delay=0.01, max_attempts=2))


async def test_another_server_is_there() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.0 404 Not Found\r\n\r\nhello")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NegotiationFailed, match="HTTP 404: hello"):
            await connect(f"http://127.0.0.1:{port}/")


async def test_what_is_raised_inside_comes_out_as_it_is(world: ToolApp) -> None:
    mine = ZeroDivisionError()
    async with world.serve() as serving:
        with pytest.raises(ZeroDivisionError) as caught:
            async with connect(serving.url):
                raise mine
        assert caught.value is mine
        assert caught.value.__context__ is None
        assert serving.core.sessions == ()


async def test_a_session_that_the_server_ends(world: ToolApp) -> None:
    async with world.serve() as serving, connect(serving.url) as client:
        await client.call_tool("echo")
        (session,) = serving.core.sessions
        serving.core.end_session(session, "test", now=serving.loop.now())
        serving.pump()
        events = client.events()
        with pytest.raises(SessionLost):
            await client.call_tool("echo")
        assert await client.call_tool("echo") == {"echo": {}}
        while not isinstance(await anext(events), Connected):
            pass
        await events.aclose()


# Calls


async def by_cancelling(call: Awaitable[Any], begun: asyncio.Event) -> None:
    calling = asyncio.ensure_future(call)
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def by_waiting_for_it(call: Awaitable[Any], begun: asyncio.Event) -> None:
    calling = asyncio.ensure_future(call)
    await begun.wait()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(calling, 0.05)


async def by_a_timeout(call: Awaitable[Any], begun: asyncio.Event) -> None:
    if sys.version_info < (3, 11):
        await by_waiting_for_it(call, begun)
        return
    timeout = asyncio.timeout(None)

    async def expire() -> None:
        await begun.wait()
        timeout.reschedule(0)

    expiring = asyncio.ensure_future(expire())
    with pytest.raises(TimeoutError):
        async with timeout:
            await call
    await expiring
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def by_a_group(call: Awaitable[Any], begun: asyncio.Event) -> None:
    async def fail() -> None:
        await begun.wait()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        calling = asyncio.ensure_future(call)
        try:
            await asyncio.gather(calling, fail())
        finally:
            calling.cancel()


@requirement("SHTTP-C-008", "CANCEL-B-003", "CANCEL-S-001")
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("means", [by_cancelling, by_waiting_for_it, by_a_timeout, by_a_group])
async def test_cancelling_a_call_cancels_its_handler(
    world: ToolApp, version: str, means: Means
) -> None:
    tool = Hanging(world)
    async with world.serve(versions=(version,)) as serving, connect(serving.url) as client:
        await means(client.call_tool("hang"), tool.begun)
        await tool.cancelled.wait()
        assert (await client.call_tool("echo"))["echo"] == {}


async def test_a_shielded_call_goes_on(world: ToolApp) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @world.tool
    async def work(call: Call) -> Any:
        begun.set()
        await go_on.wait()
        return {"done": True}

    async with world.serve() as serving, connect(serving.url) as client:
        calling = asyncio.ensure_future(client.call_tool("work"))
        await by_cancelling(asyncio.shield(calling), begun)
        go_on.set()
        assert await calling == {"done": True}


async def test_what_on_progress_raises_ends_the_call(world: ToolApp) -> None:
    cancelled = asyncio.Event()

    @world.tool
    async def work(call: Call) -> Any:
        try:
            await call.progress(1)
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def report(_: ProgressReceived) -> None:
        raise ZeroDivisionError

    async with world.serve() as serving, connect(serving.url) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("work", on_progress=report)
        await cancelled.wait()
        assert await client.call_tool("echo") == {"echo": {}}


# Handlers


@pytest.mark.parametrize("error", [ValueError("hunter2"), asyncio.CancelledError("hunter2")])
async def test_a_handler_that_raises(world: ToolApp, error: BaseException) -> None:
    @world.tool
    async def fail(call: Call) -> Any:
        raise error

    async with world.serve() as serving, connect(serving.url) as client:
        with pytest.raises(JsonRpcError) as caught:
            await client.call_tool("fail")
        assert (caught.value.code, caught.value.message) == (-32603, "Internal error")
        assert await client.call_tool("echo") == {"echo": {}}


async def test_a_handler_that_talks_lets_others_have_their_turn(world: ToolApp) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @world.tool
    async def chatter(call: Call) -> Any:
        begun.set()
        try:
            while True:
                await call.notify("notifications/chat")
        finally:
            cancelled.set()

    async with world.serve() as serving, connect(serving.url) as client:
        await by_waiting_for_it(client.call_tool("chatter"), begun)
        await cancelled.wait()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks can be eager since Python 3.12")
async def test_eager_tasks(world: ToolApp, loop: str) -> None:
    if loop == "uvloop":
        pytest.skip("uvloop does not know them")

    @world.tool
    async def work(call: Call) -> Any:
        await call.progress(1)
        return {"done": True}

    factory: Any = vars(asyncio)["eager_task_factory"]
    asyncio.get_running_loop().set_task_factory(factory)
    async with world.serve() as serving, connect(serving.url) as client:
        assert await client.call_tool("work") == {"done": True}
        calls = [client.call_tool("work") for _ in range(10)]
        assert await asyncio.gather(*calls) == 10 * [{"done": True}]


def test_work_that_has_not_ended_in_time_is_no_leak() -> None:
    """The helper of these tests: a busy machine must not look like what is left behind."""

    async def serve_for_long() -> None:
        async with (
            sansmcp_asyncio.serve(App("long"), http=("127.0.0.1", 0)) as serving,
            connect(serving.url) as client,
        ):
            await client.ping()
            await asyncio.sleep(1000)

    with pytest.raises(TimeoutError, match="the work had not ended"):
        run(serve_for_long(), patience=0.5)

    async def leave_a_task() -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(1000), name="the one that is left")

    with pytest.raises(AssertionError, match="the one that is left"):
        run(leave_a_task())


async def test_a_function_that_cancels_itself_gives_an_error_to_the_server(world: ToolApp) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        with pytest.raises(JsonRpcError) as caught:
            await call.ask("roots/list")
        return {"code": caught.value.code}

    async def gives_up(_: ServerRequest) -> Any:
        raise asyncio.CancelledError

    settings: dict[str, Any] = {"request_handlers": {"roots/list": gives_up}}
    async with (
        world.serve() as serving,
        connect(serving.url, capabilities={"roots": {}}, **settings) as client,
    ):
        assert await client.call_tool("ask") == {"code": -32603}
