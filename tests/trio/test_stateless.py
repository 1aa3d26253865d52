"""Requests that stand alone, over real sockets: rounds of questions, and cancellation."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio

import sansmcp_trio
from sansmcp import InputRequest, InputRequired, JsonRpcError, ServerRequest, StateSigner
from sansmcp.revisions import MODERN_VERSIONS
from sansmcp_trio import Call

from ..tool_app import ToolApp
from .conftest import Start

requirement = pytest.mark.requirement
SEAL = StateSigner(keys=(b"a key for these tests",), clock=time.time)


@requirement("MRTR-S-011", "MRTR-S-025")
async def test_a_tool_that_asks_in_rounds(start: Start, world: ToolApp) -> None:
    @world.tool
    async def greet(call: Call) -> Any:
        names: list[Any] = list(call.saved_state or ())
        names += [each["name"] for each in call.input_responses.values()]
        if len(names) < 2:
            return InputRequired({"who": InputRequest("roots/list")}, names)
        return {"names": names}

    async def answer(request: ServerRequest) -> dict[str, Any]:
        return {"name": f"n{next(numbers)}"}

    numbers = iter(range(10))
    serving = await start(versions=MODERN_VERSIONS, state_signer=SEAL)
    async with sansmcp_trio.connect(
        serving.url, request_handlers={"roots/list": answer}, capabilities={"roots": {}}
    ) as client:
        result = await client.call_tool("greet")
    assert result["names"] == ["n0", "n1"]


@requirement("CANCEL-S-001", "CANCEL-S-004")
async def test_a_client_that_gives_up_cancels_the_tool(start: Start, world: ToolApp) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving = await start(versions=MODERN_VERSIONS)
    async with sansmcp_trio.connect(serving.url) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hang")
            await begun.wait()
            nursery.cancel_scope.cancel()
        await cancelled.wait()
        result = await client.call_tool("echo", {"a": 1})
        assert result["echo"] == {"a": 1}


async def test_what_runs_when_the_server_stops_is_told_so(start: Start, world: ToolApp) -> None:
    begun = trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        await trio.sleep_forever()

    serving = await start(versions=MODERN_VERSIONS, graceful_timeout=0.01)
    async with (
        sansmcp_trio.connect(serving.url) as client,
        trio.open_nursery() as nursery,
    ):

        async def stop() -> None:
            await begun.wait()
            serving.stop()

        nursery.start_soon(stop)
        with pytest.raises(JsonRpcError, match="shutting down: connect again later"):
            await client.call_tool("hang")
