"""Client and server on trio, over real sockets: calls, progress, questions, notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import JsonRpcError, Limits, LocalProtocolError, RequestRefused, RequestTimeout
from sansmcp.events import ClientEvent, ProgressReceived, Reconnecting, ServerNotified
from sansmcp_trio import Call

from .conftest import Start, ToolApp

requirement = pytest.mark.requirement
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


# Calls


@pytest.mark.parametrize("version", VERSIONS)
async def test_calls_at_every_revision(start: Start, version: str) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url, versions=(version,)) as client:
        assert client.connected.version == version
        assert client.connected.server_info == {"name": "trio-tests", "version": "1"}
        assert await client.call_tool("echo", {"a": "ä\u2028"}) == {"echo": {"a": "ä\u2028"}}
        assert [tool["name"] for tool in (await client.list_tools())["tools"]] == ["echo"]
        assert await client.ping() == {}
        with pytest.raises(JsonRpcError) as caught:
            await client.call("nope/nope")
        assert caught.value.code == -32601
    assert serving.core.sessions == ()


async def test_many_callers_at_once(start: Start, world: ToolApp) -> None:
    @world.tool
    async def number(call: Call) -> Any:
        await trio.lowlevel.checkpoint()
        return call.params["arguments"]

    serving = await start()
    results: list[int] = []
    async with sansmcp_trio.connect(serving.url) as client:

        async def caller(value: int) -> None:
            result = await client.call_tool("number", {"value": value})
            assert result == {"value": value}
            results.append(value)

        async with trio.open_nursery() as nursery:
            for value in range(100):
                nursery.start_soon(caller, value)
    assert sorted(results) == list(range(100))


async def test_large_messages_both_ways(start: Start) -> None:
    serving = await start()
    text = "ö" * 2_000_000
    async with sansmcp_trio.connect(serving.url) as client:
        result = await client.call_tool("echo", {"text": text})
    assert result == {"echo": {"text": text}}


async def test_a_message_beyond_the_limit_is_refused_and_the_client_told(start: Start) -> None:
    serving = await start(limits=Limits(max_message_bytes=100_000))
    async with sansmcp_trio.connect(serving.url) as client:
        with pytest.raises(RequestRefused) as caught:
            await client.call_tool("echo", {"text": "x" * 5_000_000})
        assert (caught.value.status, caught.value.reason) == (413, "message_too_large")
        assert await client.call_tool("echo") == {"echo": {}}


async def test_progress_arrives_while_the_tool_works(start: Start, world: ToolApp) -> None:
    reports: list[ProgressReceived] = []
    moved = trio.Event()

    @world.tool
    async def work(call: Call) -> dict[str, Any]:
        await call.progress(1, 2, "half")
        await moved.wait()
        await call.progress(2, 2)
        return {}

    def on_progress(report: ProgressReceived) -> None:
        reports.append(report)
        moved.set()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        await client.call_tool("work", on_progress=on_progress)
    assert [(report.progress, report.total, report.message) for report in reports] == [
        (1, 2, "half"),
        (2, 2, None),
    ]


@requirement("POLL-C-002", "POLL-S-003")
async def test_the_server_lets_go_and_the_client_comes_back(start: Start, world: ToolApp) -> None:
    back = trio.Event()

    @world.tool
    async def work(call: Call) -> dict[str, Any]:
        await call.progress(1)
        await call.disconnect(retry=0.01)
        await back.wait()
        await call.progress(2)
        return {"done": True}

    serving = await start()
    events: list[ClientEvent] = []
    reports: list[float] = []
    policy = sansmcp.ReconnectPolicy(initial_delay=0.01)
    async with sansmcp_trio.connect(serving.url, reconnect=policy) as client:

        async def watch(coming: AsyncIterator[ClientEvent]) -> None:
            async for event in coming:
                events.append(event)
                if isinstance(event, Reconnecting):
                    back.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, client.events())
            result = await client.call_tool(
                "work", on_progress=lambda report: reports.append(report.progress)
            )
            nursery.cancel_scope.cancel()
    assert result == {"done": True}
    assert reports == [1, 2]
    assert any(isinstance(event, Reconnecting) for event in events)


# Questions


@requirement("LIFECYCLE-C-008", "SHTTP-S-012")
async def test_a_tool_asks_the_user(start: Start, world: ToolApp) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        first = await call.ask("elicitation/create", {"message": "name?"})
        try:
            await call.ask("elicitation/create", {"message": "fail"})
        except JsonRpcError as error:
            return {"first": first, "second": error.message}
        raise AssertionError("no error")

    async def elicit(request: sansmcp.ServerRequest) -> Any:
        await trio.lowlevel.checkpoint()
        if request.params["message"] == "fail":
            raise JsonRpcError(-1, "declined")
        return {"action": "accept", "content": {"name": "Ada"}}

    serving = await start()
    async with sansmcp_trio.connect(
        serving.url,
        request_handlers={"elicitation/create": elicit},
        capabilities={"elicitation": {}},
    ) as client:
        result = await client.call_tool("ask")
    assert result == {
        "first": {"action": "accept", "content": {"name": "Ada"}},
        "second": "declined",
    }


async def test_what_nobody_answers_is_declined(
    start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        codes: list[int] = []
        for method in ("custom/method", "elicitation/create"):
            try:
                await call.ask(method)
            except JsonRpcError as error:
                codes.append(error.code)
        with pytest.raises(LocalProtocolError):
            await call.ask("sampling/createMessage")
        return {"codes": codes}

    async def broken(request: sansmcp.ServerRequest) -> Any:
        raise RuntimeError("secret")

    serving = await start()
    async with sansmcp_trio.connect(
        serving.url,
        request_handlers={"elicitation/create": broken},
        capabilities={"elicitation": {}},
    ) as client:
        assert (await client.call_tool("ask"))["codes"] == [-32601, -32603]
    assert "the handler of elicitation/create failed" in caplog.text


async def test_a_question_that_is_withdrawn_stops_its_answerer(
    start: Start, world: ToolApp
) -> None:
    begun, stopped = trio.Event(), trio.Event()

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
            await trio.sleep_forever()
        finally:
            stopped.set()

    serving = await start()
    async with sansmcp_trio.connect(
        serving.url, request_handlers={"elicitation/create": slow}, capabilities={"elicitation": {}}
    ) as client:
        assert await client.call_tool("ask") == {"late": True}


# Notifications


async def test_notifications_reach_the_client(start: Start, world: ToolApp) -> None:
    @world.tool
    async def notify(call: Call) -> dict[str, Any]:
        await call.notify("notifications/message", {"level": "info", "data": "x"})
        await call.peer.notify("notifications/tools/list_changed")
        return {}

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        names: list[str] = []
        async with trio.open_nursery() as nursery:

            async def watch(events: AsyncIterator[ClientEvent]) -> None:
                async for event in events:
                    assert isinstance(event, ServerNotified)
                    names.append(event.notification.method)
                    if len(names) == 2:
                        nursery.cancel_scope.cancel()

            nursery.start_soon(watch, client.events())
            await client.call_tool("notify")
            await client.notify("notifications/roots/list_changed")
        assert sorted(names) == ["notifications/message", "notifications/tools/list_changed"]
