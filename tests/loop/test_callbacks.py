"""Functions of the application that a client calls: plain ones and async ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import sansmcp
from sansmcp.events import ProgressReceived
from sansmcp_local import Call, RequestHandler

from .conftest import ToolApp

ASKED: dict[str, Any] = {"capabilities": {"elicitation": {}, "roots": {}, "sampling": {}}}


@pytest.fixture(autouse=True)
def tools(world: ToolApp) -> None:
    @world.tool
    async def count(call: Call) -> Any:
        for number in range(call.params["arguments"]["to"]):
            await call.progress(number)
        return {"done": True}

    @world.tool
    async def ask(call: Call) -> Any:
        arguments = call.params["arguments"]
        return {"answer": await call.ask(arguments["method"], {"message": "?"})}


async def test_an_async_on_progress_is_awaited_in_order(world: ToolApp) -> None:
    """It was never awaited."""
    seen: list[float] = []

    async def report(progress: ProgressReceived) -> None:
        await anyio.sleep(0.01 if progress.progress % 2 else 0)
        seen.append(progress.progress)

    async with world.client() as client:
        assert await client.call_tool("count", {"to": 6}, on_progress=report) == {"done": True}
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_a_hundred_calls_report_to_async_functions(world: ToolApp) -> None:
    async with world.client() as client:

        async def call(length: int) -> None:
            seen: list[float] = []

            async def report(progress: ProgressReceived) -> None:
                await anyio.lowlevel.checkpoint()
                seen.append(progress.progress)

            await client.call_tool("count", {"to": length}, on_progress=report)
            assert seen == list(range(length))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(call, number % 7)


async def test_what_an_async_on_progress_raises_ends_the_call(world: ToolApp) -> None:
    cancelled = anyio.Event()

    @world.tool
    async def work(call: Call) -> Any:
        try:
            for number in range(3):
                await call.progress(number)
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def report(_: ProgressReceived) -> None:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError

    async with world.client() as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("work", on_progress=report)
        await cancelled.wait()
        assert await client.call_tool("echo") == {"echo": {}}


async def test_cancelling_a_call_while_on_progress_waits(world: ToolApp) -> None:
    begun, ended, cancelled = anyio.Event(), anyio.Event(), anyio.Event()

    @world.tool
    async def work(call: Call) -> Any:
        try:
            for number in range(3):
                await call.progress(number)
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def report(_: ProgressReceived) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with world.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.call_tool, "work", on_progress=report))
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert ended.is_set()
        await cancelled.wait()
        assert await client.call_tool("echo") == {"echo": {}}


async def test_reports_that_wait_for_their_function_are_bounded(world: ToolApp) -> None:
    """Reading stops until the function keeps up."""
    begun, go_on = anyio.Event(), anyio.Event()
    seen: list[float] = []

    async def report(progress: ProgressReceived) -> None:
        begun.set()
        await go_on.wait()
        seen.append(progress.progress)

    limits = sansmcp.Limits(max_queued_events=4)
    async with world.client(limits=limits) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(client.call_tool, "count", {"to": 500}, on_progress=report))
        await begun.wait()
        driver = client._driver  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
        while not driver.is_paused:
            await anyio.sleep(0.01)
        go_on.set()
    assert seen == list(range(500))


async def test_on_progress_may_use_the_client(world: ToolApp) -> None:
    echoed: list[Any] = []

    async with world.client() as client:

        async def report(progress: ProgressReceived) -> None:
            echoed.append(await client.call_tool("echo", {"n": progress.progress}))

        await client.call_tool("count", {"to": 3}, on_progress=report)
    assert echoed == [{"echo": {"n": number}} for number in range(3)]


async def test_functions_that_answer_may_be_plain_or_async(world: ToolApp) -> None:
    """A plain one sent -32603 to the server."""

    def plain(request: sansmcp.ServerRequest) -> dict[str, Any]:
        assert request.call is not None
        return {"plain": request.call.params["name"]}

    async def waits(request: sansmcp.ServerRequest) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return {"async": request.params["message"]}

    def refuses(request: sansmcp.ServerRequest) -> dict[str, Any]:
        raise sansmcp.JsonRpcError(-9, "not now")

    answers: dict[str, RequestHandler] = {
        "elicitation/create": plain,
        "roots/list": waits,
        "sampling/createMessage": refuses,
    }
    async with world.client(request_handlers=answers, **ASKED) as client:
        ask = partial(client.call_tool, "ask")
        assert await ask({"method": "elicitation/create"}) == {"answer": {"plain": "ask"}}
        assert await ask({"method": "roots/list"}) == {"answer": {"async": "?"}}
        with pytest.raises(sansmcp.JsonRpcError, match="not now"):
            await ask({"method": "sampling/createMessage"})
