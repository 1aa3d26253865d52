"""Whatever is cancelled or closed, wherever: it ends, the other side is told, nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pytest

from sansmcp import CallError, LocalProtocolError, ReconnectPolicy
from sansmcp_asyncio import Call, Client, connect

from ..stepping import stepping, wherever
from ..trio.programs import foreign
from .conftest import World
from .loops import run

requirement = pytest.mark.requirement

_Waited: TypeAlias = asyncio.Future[Any] | None
Scenario = Callable[[list[Client]], Coroutine[Any, Any, None]]

AT_ONCE = ReconnectPolicy(initial=0.001)


class Disturbance:
    """Does something to a task when it waits for the n-th time, or in the n-th turn of the loop."""

    def __init__(self, at: int, kind: str) -> None:
        self.at = at
        self.kind = kind
        self.clients: list[Client] = []
        self.has_happened = False
        self._turns = 0
        self._others: list[asyncio.Task[None]] = []

    async def run(self, scenario: Scenario) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.kind == "cancel in a turn":
            self._turn(task)
        await stepping(scenario(self.clients), partial(self._step, task))
        for other in self._others:
            await other

    def _step(self, task: asyncio.Task[Any], number: int, future: _Waited) -> None:
        if number == self.at + 1 and self.kind == "cancel twice":
            task.cancel()
        if number != self.at or self.kind == "cancel in a turn":
            return
        self.has_happened = True
        if self.kind == "close":
            self._others = [asyncio.ensure_future(client.aclose()) for client in self.clients]
        elif self.kind == "cancel when ready" and future is not None:
            future.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()

    def _turn(self, task: asyncio.Task[Any]) -> None:
        self._turns += 1
        if self._turns < self.at and not task.done():
            task.get_loop().call_soon(self._turn, task)
        else:
            self.has_happened = task.cancel()


async def converse(version: str, clients: list[Client], *, is_brief: bool = False) -> None:
    """A client and a server, and much of what they can have to do with each other."""
    world, running = World(), 0

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
            world.serve(versions=(version,), grace=0.1) as serving,
            connect(serving.url, versions=(version,), reconnect=AT_ONCE) as client,
        ):
            clients.append(client)
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


async def converse_with_a_process(clients: list[Client]) -> None:
    async with connect(foreign(), versions=("2025-11-25",), close_timeout=0.5) as client:
        clients.append(client)
        await client.ping()
        await client.call("log", {"lines": ["x"] * 10})


async def converse_with_a_deaf_process(clients: list[Client]) -> None:
    async with connect(foreign("stubborn"), versions=("2025-11-25",), close_timeout=0.1) as client:
        clients.append(client)
        await client.ping()


SCENARIOS: dict[str, Scenario] = {
    "sessions": partial(converse, "2025-11-25"),
    "no sessions": partial(converse, "2026-07-28"),
    "brief": partial(converse, "2025-11-25", is_brief=True),
    "brief, no sessions": partial(converse, "2026-07-28", is_brief=True),
    "process": converse_with_a_process,
    "deaf process": converse_with_a_deaf_process,
}


KINDS = ["cancel", "cancel twice", "cancel when ready", "close"]
CASES = [
    *product(["sessions", "no sessions", "process"], KINDS),
    ("deaf process", "cancel twice"),
    ("brief", "cancel in a turn"),
    ("brief, no sessions", "cancel in a turn"),
]


MOST = 60
"""With a timer in it, a conversation has as many turns as the loop is fast."""


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_wherever_it_happens(loop: str, name: str, kind: str) -> None:
    def once(at: int) -> bool:
        disturbance, outcome = Disturbance(at, kind), None
        try:
            run(disturbance.run(SCENARIOS[name]), loop)
        except (asyncio.CancelledError, CallError, LocalProtocolError) as error:
            outcome = error
        happened = disturbance.has_happened
        is_right = kind == "close" or isinstance(outcome, asyncio.CancelledError) is happened
        assert is_right, (at, outcome)
        return happened and at < MOST

    assert wherever(once) > 3
