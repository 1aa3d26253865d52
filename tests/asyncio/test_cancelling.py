"""Whatever is cancelled or closed, wherever: it ends, the other side is told, nothing is left."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pytest

from sansmcp import CallError, LocalProtocolError, ReconnectPolicy
from sansmcp_asyncio import Call, Client, RunningServer, connect

from ..stdio import standard_streams
from ..stepping import in_shares, run_with_steps, wherever
from ..trio.programs import foreign
from ..trio.test_stdio_server import HELLO, call
from .conftest import ToolApp
from .loops import run

requirement = pytest.mark.requirement

_Waited: TypeAlias = asyncio.Future[Any] | None

AT_ONCE = ReconnectPolicy(initial_delay=0.001)


class Disturbance:
    """Does something to a task when it waits for the n-th time, or in the n-th turn of the loop."""

    def __init__(self, at: int, kind: str) -> None:
        self.at = at
        self.kind = kind
        self.clients: list[Client] = []
        self.servers: list[RunningServer] = []
        self.has_happened = False
        self._turns = 0
        self._others: list[asyncio.Task[None]] = []

    async def run(self, scenario: Scenario) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.kind == "cancel in a turn":
            self._turn(task)
        if self.kind == "time out" and sys.version_info >= (3, 11):
            async with asyncio.timeout(None) as timeout:
                await run_with_steps(
                    scenario(self), partial(self._step, partial(timeout.reschedule, 0))
                )
            return
        await run_with_steps(scenario(self), partial(self._step, task.cancel))
        for other in self._others:
            await other

    def _step(self, end: Callable[[], object], number: int, future: _Waited) -> None:
        if number == self.at + 1 and self.kind == "cancel twice":
            end()
        if number != self.at or self.kind == "cancel in a turn":
            return
        self.has_happened = True
        match self.kind:
            case "close":
                self._others = [asyncio.ensure_future(client.aclose()) for client in self.clients]
            case "stop":
                for serving in self.servers:
                    serving.stop()
            case "cancel when ready" if future is not None:
                future.add_done_callback(lambda _: end())
            case _:
                end()

    def _turn(self, task: asyncio.Task[Any]) -> None:
        self._turns += 1
        if self._turns < self.at and not task.done():
            task.get_loop().call_soon(self._turn, task)
        else:
            self.has_happened = task.cancel()


Scenario = Callable[[Disturbance], Coroutine[Any, Any, None]]


async def converse(
    version: str, disturbance: Disturbance, *, is_brief: bool = False, **settings: Any
) -> None:
    """A client and a server, and much of what they can have to do with each other."""
    world, running = ToolApp(), 0

    @world.tool
    async def work(call: Call) -> Any:
        nonlocal running
        running += 1
        try:
            await call.progress(1)
            if not is_brief:
                await call.disconnect(retry=0.001)
                await asyncio.sleep(0.001)
            return {}
        finally:
            running -= 1

    async def watch(client: Client) -> None:
        async for _ in client.events():
            pass

    try:
        async with (
            world.serve(versions=(version,), graceful_timeout=0.1, **settings) as serving,
            connect(serving.url, versions=(version,), reconnect=AT_ONCE) as client,
        ):
            disturbance.servers.append(serving)
            disturbance.clients.append(client)
            watching = asyncio.create_task(watch(client))
            try:
                await client.call_tool("work")
                await client.notify("notifications/x")
                await asyncio.gather(*(client.call_tool("work") for _ in range(3)))
            finally:
                watching.cancel()
                await asyncio.wait([watching])
    finally:
        assert running == 0


async def converse_with_a_process(disturbance: Disturbance) -> None:
    async with connect(foreign(), versions=("2025-11-25",), close_timeout=0.5) as client:
        disturbance.clients.append(client)
        await client.ping()
        await client.call("log", {"lines": ["x"] * 10})


async def converse_with_a_deaf_process(disturbance: Disturbance) -> None:
    async with connect(foreign("stubborn"), versions=("2025-11-25",), close_timeout=0.1) as client:
        disturbance.clients.append(client)
        await client.ping()


async def serve_on_stdio(disturbance: Disturbance) -> None:
    world = ToolApp()
    with standard_streams() as (input, output):
        os.write(input, HELLO + call(1, "echo") + call(2, "echo"))
        os.close(input)
        try:
            async with world.serve(http=None, stdio=True, graceful_timeout=0.1) as serving:
                disturbance.servers.append(serving)
                await serving.stopped.wait()
        finally:
            os.close(output)


SCENARIOS: dict[str, Scenario] = {
    "sessions": partial(converse, "2025-11-25"),
    "no sessions": partial(converse, "2026-07-28"),
    "brief": partial(converse, "2025-11-25", is_brief=True),
    "brief, no sessions": partial(converse, "2026-07-28", is_brief=True),
    "HTTP+SSE": partial(converse, "2024-11-05", http_sse="/mcp", path="/none"),
    "stdio server": serve_on_stdio,
    "process": converse_with_a_process,
    "deaf process": converse_with_a_deaf_process,
}


OUTCOMES: dict[str, Any] = {
    "time out": asyncio.TimeoutError,
    "close": (CallError, LocalProtocolError),
    "stop": (CallError, LocalProtocolError),
}
"""What comes out, if it is not the cancellation."""

KINDS = ["cancel", "cancel twice", "cancel when ready", "close"]
CASES = [
    *product(["sessions", "no sessions", "process"], KINDS),
    ("no sessions", "time out"),
    ("no sessions", "stop"),
    ("sessions", "stop"),
    ("HTTP+SSE", "cancel"),
    ("stdio server", "cancel"),
    ("stdio server", "stop"),
    ("process", "time out"),
    ("deaf process", "cancel twice"),
    ("brief", "cancel in a turn"),
    ("brief, no sessions", "cancel in a turn"),
]


MOST = 60
"""With a timer in it, a conversation has as many turns as the loop is fast."""


@in_shares
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_wherever_it_happens(loop: str, name: str, kind: str, share: int) -> None:
    def once(at: int) -> bool:
        disturbance, outcome = Disturbance(at, kind), None
        try:
            run(disturbance.run(SCENARIOS[name]), loop)
        except OUTCOMES.get(kind, asyncio.CancelledError) as error:
            outcome = error
        happened = disturbance.has_happened
        assert kind in ("close", "stop") or (outcome is not None) is happened, (at, outcome)
        return happened and at < MOST

    if kind == "time out" and sys.version_info < (3, 11):
        pytest.skip("asyncio.timeout is there since Python 3.11")
    assert wherever(once, share) > 0 or share
