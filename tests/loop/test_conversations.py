"""Client and server over real sockets: calls, progress, questions, notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import sansmcp
from sansmcp import (
    InputRequest,
    InputRequired,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    RequestRefused,
    RequestTimeout,
)
from sansmcp.events import ClientEvent, ProgressReceived, Reconnecting, ServerNotified
from sansmcp.revisions import REVISIONS
from sansmcp_local import Call

from .conftest import ToolApp

requirement = pytest.mark.requirement

ASKED: dict[str, Any] = {"capabilities": {"elicitation": {}, "roots": {}}}


# Calls


@pytest.mark.parametrize("version", REVISIONS)
async def test_calls_at_every_revision(world: ToolApp, version: str) -> None:
    async with world.serve(versions=tuple(REVISIONS)) as serving:
        async with world.connect(serving.url, versions=(version,)) as client:
            assert client.connected.version == version
            assert client.connected.server_info == {"name": "tests", "version": "1"}
            result = await client.call_tool("echo", {"a": "ä\u2028"})
            assert result["echo"] == {"a": "ä\u2028"}
            assert [tool["name"] for tool in (await client.list_tools())["tools"]] == ["echo"]
            await client.ping()
            with pytest.raises(JsonRpcError) as caught:
                await client.call("nope/nope")
            assert caught.value.code == -32601
        assert serving.core.sessions == ()


@pytest.mark.parametrize("transport", ["streamable-http", "http+sse"])
async def test_both_transports_on_one_port(world: ToolApp, transport: str) -> None:
    async with world.serve(http_sse="/sse") as serving:
        url = serving.url if transport == "streamable-http" else serving.url.replace("mcp", "sse")
        async with world.connect(url) as client:
            assert client.connected.transport == transport
            assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}


async def test_many_callers_at_once(world: ToolApp) -> None:
    @world.tool
    async def number(call: Call) -> Any:
        await anyio.lowlevel.checkpoint()
        return call.params["arguments"]

    results: list[int] = []
    async with world.client() as client:

        async def caller(value: int) -> None:
            assert await client.call_tool("number", {"value": value}) == {"value": value}
            results.append(value)

        async with anyio.create_task_group() as tasks:
            for value in range(100):
                tasks.start_soon(caller, value)
    assert sorted(results) == list(range(100))


async def test_large_messages_both_ways(world: ToolApp) -> None:
    text = "ö" * 2_000_000
    async with world.client() as client:
        assert await client.call_tool("echo", {"text": text}) == {"echo": {"text": text}}


async def test_a_message_beyond_the_limit_is_refused_and_the_client_told(world: ToolApp) -> None:
    limits = Limits(max_message_bytes=100_000)
    async with world.serve(limits=limits) as serving, world.connect(serving.url) as client:
        with pytest.raises(RequestRefused) as caught:
            await client.call_tool("echo", {"text": "x" * 5_000_000})
        assert (caught.value.status, caught.value.reason) == (413, "message_too_large")
        assert await client.call_tool("echo") == {"echo": {}}


async def test_a_handler_need_not_be_async(world: ToolApp) -> None:
    @world.app.handler("resources/read")
    def read(call: Call) -> Any:
        return {"contents": [{"uri": call.params["uri"]}]}

    @world.app.handler("resources/list")
    def broken(call: Call) -> Any:
        raise JsonRpcError(-7, "mine")

    async with world.client() as client:
        assert (await client.read_resource("a:b"))["contents"] == [{"uri": "a:b"}]
        with pytest.raises(JsonRpcError, match="mine"):
            await client.list_resources()


async def test_progress_arrives_while_the_tool_works(world: ToolApp) -> None:
    reports: list[ProgressReceived] = []
    moved = anyio.Event()

    @world.tool
    async def work(call: Call) -> dict[str, Any]:
        await call.progress(1, 2, "half")
        await moved.wait()
        await call.progress(2, 2)
        return {}

    def on_progress(report: ProgressReceived) -> None:
        reports.append(report)
        moved.set()

    async with world.client() as client:
        await client.call_tool("work", on_progress=on_progress)
    assert [(report.progress, report.total, report.message) for report in reports] == [
        (1, 2, "half"),
        (2, 2, None),
    ]


@requirement("POLL-C-002", "POLL-S-003")
async def test_the_server_lets_go_and_the_client_comes_back(world: ToolApp) -> None:
    back = anyio.Event()
    reports: list[float] = []

    @world.tool
    async def work(call: Call) -> dict[str, Any]:
        await call.progress(1)
        await call.disconnect(retry=0.01)
        await back.wait()
        await call.progress(2)
        return {"done": True}

    async def watch(events: AsyncIterator[ClientEvent]) -> None:
        async for event in events:
            if isinstance(event, Reconnecting):
                back.set()

    policy = sansmcp.ReconnectPolicy(initial_delay=0.01)
    async with world.client(reconnect=policy) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, client.events())
        result = await client.call_tool(
            "work", on_progress=lambda report: reports.append(report.progress)
        )
        assert (result, reports) == ({"done": True}, [1, 2])
        tasks.cancel_scope.cancel()


# Questions


async def elicit(request: sansmcp.ServerRequest) -> Any:
    await anyio.lowlevel.checkpoint()
    if request.params["message"] == "fail":
        raise JsonRpcError(-1, "declined")
    return {"action": "accept", "content": {"name": "Ada"}}


@requirement("LIFECYCLE-C-008", "SHTTP-S-012")
async def test_a_tool_asks_the_user(world: ToolApp) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        first = await call.ask("elicitation/create", {"message": "name?"})
        with pytest.raises(JsonRpcError) as caught:
            await call.ask("elicitation/create", {"message": "fail"})
        return {"first": first, "second": caught.value.message}

    answers = {"elicitation/create": elicit}
    async with world.client(request_handlers=answers, **ASKED) as client:
        assert await client.call_tool("ask") == {
            "first": {"action": "accept", "content": {"name": "Ada"}},
            "second": "declined",
        }


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_tool_that_is_entered_again_with_the_answers(world: ToolApp, version: str) -> None:
    @world.tool
    async def greet(call: Call) -> Any:
        names: list[Any] = [*(call.saved_state or ()), *call.input_responses.values()]
        if len(names) < 2:
            question = InputRequest("elicitation/create", {"message": "name?"})
            return InputRequired({"who": question}, names)
        return {"names": [name["content"]["name"] for name in names]}

    answers = {"elicitation/create": elicit}
    async with (
        world.serve(versions=(version,)) as serving,
        world.connect(serving.url, request_handlers=answers, **ASKED) as client,
    ):
        assert (await client.call_tool("greet"))["names"] == ["Ada", "Ada"]


async def test_what_has_no_handler_is_declined(
    world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        codes: list[int] = []
        for method in ("custom/method", "elicitation/create"):
            with pytest.raises(JsonRpcError) as caught:
                await call.ask(method)
            codes.append(caught.value.code)
        with pytest.raises(LocalProtocolError):
            await call.ask("sampling/createMessage")
        return {"codes": codes}

    async def broken(request: sansmcp.ServerRequest) -> Any:
        raise RuntimeError("secret")

    answers = {"elicitation/create": broken}
    async with world.client(request_handlers=answers, **ASKED) as client:
        assert (await client.call_tool("ask"))["codes"] == [-32601, -32603]
    assert "the handler of elicitation/create failed" in caplog.text


async def test_a_question_that_is_withdrawn_stops_its_answerer(world: ToolApp) -> None:
    begun, stopped = anyio.Event(), anyio.Event()

    @world.tool
    async def ask(call: Call) -> Any:
        timeout = 0.01
        while not begun.is_set():  # on a busy machine that takes longer
            with pytest.raises(RequestTimeout):
                await call.ask("elicitation/create", timeout=timeout)
            timeout *= 2
        await stopped.wait()
        return {"late": True}

    async def slow(request: sansmcp.ServerRequest) -> Any:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with world.client(request_handlers={"elicitation/create": slow}, **ASKED) as client:
        assert await client.call_tool("ask") == {"late": True}


# Notifications


async def test_notifications_reach_the_client(world: ToolApp) -> None:
    names: set[str] = set()

    @world.tool
    async def notify(call: Call) -> dict[str, Any]:
        await call.notify("notifications/message", {"level": "info", "data": "x"})
        await call.peer.notify("notifications/resources/list_changed")
        return {}

    async with (
        world.serve() as serving,
        world.connect(serving.url) as client,
        anyio.create_task_group() as tasks,
    ):

        async def watch(events: AsyncIterator[ClientEvent]) -> None:
            async for event in events:
                assert isinstance(event, ServerNotified)
                names.add(event.notification.method)
                if len(names) == 3:
                    tasks.cancel_scope.cancel()

        tasks.start_soon(watch, client.events())
        await client.call_tool("notify")
        await client.notify("notifications/roots/list_changed")
        serving.publish("notifications/tools/list_changed")
    assert names == {
        "notifications/message",
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
    }
