"""Whatever is cancelled, timed out, interrupted or closed, wherever: it ends, and nothing is left.

One error is one plain exception, too: none comes out in a group.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pytest
import trio

import sansmcp_trio
from sansmcp import CallError, LocalProtocolError, ReconnectPolicy
from sansmcp_trio import Call, RunningServer, connect

from ..leak_check import freeze_what_is_there, no_leaks
from ..stdio import standard_streams
from ..stepping import in_shares, run_with_steps, wherever
from ..tool_app import ToolApp
from .conftest import Start
from .programs import PATIENCE, foreign
from .test_stdio_server import HELLO, call

LOCAL = ("127.0.0.1", 0)

ENDS = (CallError, LocalProtocolError)
"""What calls raise when their client has been closed, or the server is gone."""

OUTCOMES: dict[str, tuple[type, ...]] = {
    "cancel": (trio.TooSlowError,),
    "time out": (trio.TooSlowError,),
    "interrupt": (KeyboardInterrupt,),
    "interrupt twice": (KeyboardInterrupt,),
    "close": (*ENDS, type(None)),
}
"""What can be done, and what comes of it."""


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    freeze_what_is_there()


class Disturbance(trio.abc.Instrument):
    """Does something when a task waits for the n-th time; or when any task does."""

    def __init__(self, at: int, kind: str, *, by_any: bool) -> None:
        self.close: Callable[[], object] = bool
        """What closing is; nothing, until there is something to be closed."""
        self.has_happened = False
        self._at = at
        self._kind = kind
        self._by_any = by_any
        self._steps = -math.inf
        self._scope = trio.CancelScope()

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Await it, in the main task."""
        try:
            self._steps = 0 if self._by_any else -math.inf
            with trio.fail_after(math.inf) as self._scope:
                await run_with_steps(_to_the_end(work), self._wait)
        finally:
            self._steps = -math.inf

    def _wait(self, number: int, _: object) -> None:
        if number == self._at and not self._by_any:
            self._disturb()
        elif number == self._at + 1 and self._kind == "interrupt twice":
            press_ctrl_c()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        if self._steps == self._at:
            self._disturb()

    def _disturb(self) -> None:
        self.has_happened = True
        match self._kind:
            case "cancel":
                self._scope.cancel()
            case "time out":
                self._scope.deadline = -math.inf
            case "interrupt" | "interrupt twice":
                press_ctrl_c()
            case _:
                self.close()


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    await work
    for _ in range(3):  # what was done at the last step is noticed now
        await trio.lowlevel.checkpoint()


@trio.lowlevel.enable_ki_protection
def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


async def caught(work: Awaitable[None]) -> BaseException | None:
    """Await it; returns what it raises. In a nursery it would come out in a group."""
    try:
        await work
    except (*ENDS, trio.TooSlowError, KeyboardInterrupt) as error:
        return error
    return None


Scenario: TypeAlias = Callable[[Disturbance], Coroutine[Any, Any, BaseException | None]]
"""Does something and has it disturbed; returns what that has raised."""


class Conversation:
    """A client and a server, and much of what they can have to do with each other."""

    def __init__(self, version: str, **settings: Any) -> None:
        self.running = 0
        self.world = ToolApp()
        self.world.tool(self.work)
        self._settings: dict[str, Any] = {
            "http": LOCAL,
            "versions": (version,),
            "graceful_timeout": 0.1,
            **settings,
        }
        self._versions = (version,)

    async def serve(
        self, *, task_status: trio.TaskStatus[RunningServer] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await sansmcp_trio.serve(self.world.app, task_status=task_status, **self._settings)

    async def work(self, call: Call) -> Any:
        self.running += 1
        try:
            await call.progress(1)
            await call.disconnect(retry=0.001)
            await trio.sleep(0.001)
            return {}
        finally:
            self.running -= 1

    async def talk(self, url: str, disturbance: Disturbance, nursery: trio.Nursery) -> None:
        policy = ReconnectPolicy(initial_delay=0.001, max_attempts=3)
        async with connect(url, versions=self._versions, reconnect=policy) as client:
            disturbance.close = partial(nursery.start_soon, client.aclose)
            nursery.start_soon(watch, client)
            await client.call_tool("work")
            await client.notify("notifications/x")
            ended = [trio.Event() for _ in range(3)]
            for event in ended:
                nursery.start_soon(call_work, client, event)
            for event in ended:
                await event.wait()

    async def disturb_client(self, disturbance: Disturbance) -> BaseException | None:
        async with trio.open_nursery() as nursery:
            serving: RunningServer = await nursery.start(self.serve)
            outcome = await caught(disturbance.run(self.talk(serving.url, disturbance, nursery)))
            await serving.wait_until(lambda: not serving.core.is_busy)
            await self.talk(serving.url, disturbance, nursery)
            assert self.running == 0
            serving.stop()
        return outcome

    async def disturb_server(self, disturbance: Disturbance) -> BaseException | None:
        async with trio.open_nursery() as nursery:
            begin = Begin(partial(self._begin, disturbance, nursery))
            outcome = await caught(disturbance.run(self.serve(task_status=begin)))
        assert self.running == 0
        return outcome

    def _begin(
        self, disturbance: Disturbance, nursery: trio.Nursery, serving: RunningServer
    ) -> None:
        async def talk() -> None:
            await caught(self.talk(serving.url, disturbance, nursery))
            serving.stop()

        nursery.start_soon(talk)
        disturbance.close = serving.stop


class Begin(trio.TaskStatus[RunningServer]):
    """Is told that the server serves."""

    def __init__(self, begin: Callable[[RunningServer], None]) -> None:
        self._begin = begin

    def started(self, value: RunningServer | None = None) -> None:
        assert value is not None
        self._begin(value)


async def watch(client: sansmcp_trio.Client) -> None:
    async for _ in client.events():
        pass


async def call_work(client: sansmcp_trio.Client, ended: trio.Event) -> None:
    await caught(client.call_tool("work"))
    ended.set()


async def talk_to_a_process(
    manner: str, close_timeout: float, disturbance: Disturbance
) -> BaseException | None:
    async def talk() -> None:
        async with connect(
            foreign(manner), versions=("2025-11-25",), close_timeout=close_timeout
        ) as client:
            disturbance.close = partial(nursery.start_soon, client.aclose)
            await client.ping()
            await client.call("log", {"lines": ["x"] * 10})

    async with trio.open_nursery() as nursery:
        return await caught(disturbance.run(talk()))


async def serve_on_stdio(disturbance: Disturbance) -> BaseException | None:
    async def hear(stream: trio.lowlevel.FdStream) -> None:
        heard = b""
        while data := bytes(await stream.receive_some(65536)):
            heard += data
            if heard.count(b"result") == 3:
                nursery.start_soon(input.aclose)
        heard_all.set()

    world, heard_all = Conversation("2025-11-25").world, trio.Event()
    serve = partial(sansmcp_trio.serve, world.app, stdio=True, graceful_timeout=0.1)
    async with trio.open_nursery() as nursery:
        with standard_streams() as (far_input, far_output):
            input, output = trio.lowlevel.FdStream(far_input), trio.lowlevel.FdStream(far_output)
            await input.send_all(HELLO + call(1, "work") + call(2, "work"))
            nursery.start_soon(hear, output)
            outcome = await caught(disturbance.run(serve()))
        await heard_all.wait()
        await trio.aclose_forcefully(input)
        await trio.aclose_forcefully(output)
    return outcome


def conversations(side: str) -> dict[str, Scenario]:
    made = {
        "sessions": partial(Conversation, "2025-11-25"),
        "no sessions": partial(Conversation, "2026-07-28"),
        "HTTP+SSE": partial(Conversation, "2024-11-05", http_sse="/mcp", path="/none"),
    }

    def scenario(name: str) -> Scenario:
        return lambda disturbance: getattr(made[name](), f"disturb_{side}")(disturbance)

    return {f"{name}, {side}": scenario(name) for name in made}


SCENARIOS: dict[str, Scenario] = {
    **conversations("client"),
    **conversations("server"),
    "stdio server": serve_on_stdio,
    "process": partial(talk_to_a_process, "", 5.0),
    "deaf process": partial(talk_to_a_process, "stubborn", 0.02),
}


CLIENTS = ["sessions, client", "no sessions, client"]
SERVERS = ["sessions, server", "no sessions, server"]
SOME = 17
"""Not every step of every task is disturbed in each run: there are hundreds."""


@in_shares
@pytest.mark.parametrize(
    ("kind", "name", "every"),
    [
        *product(["cancel", "interrupt", "interrupt twice", "close"], CLIENTS, [1]),
        *product(["cancel", "interrupt", "close"], ["HTTP+SSE, client", "process"], [1]),
        *product(["cancel", "close"], ["deaf process"], [1]),
        *product(["cancel", "interrupt"], ["stdio server"], [1]),
        ("time out", "no sessions, client", 1),
        *product(["cancel", "close"], CLIENTS, [SOME]),
        *product(["cancel", "interrupt", "close"], SERVERS, [SOME]),
        *product(["cancel", "close"], ["stdio server"], [5]),
        *product(["cancel", "close"], ["HTTP+SSE, client", "HTTP+SSE, server"], [2 * SOME]),
    ],
)
def test_wherever_it_happens(kind: str, name: str, every: int, share: int) -> None:
    def once(at: int) -> bool:
        outcome, has_happened = disturbed(SCENARIOS[name], at, kind, by_any=every > 1)
        assert isinstance(outcome, OUTCOMES[kind]) if has_happened else outcome is None, at
        return has_happened

    assert wherever(once, share, every) > 1 or share


def disturbed(
    scenario: Scenario, at: int, kind: str, *, by_any: bool
) -> tuple[BaseException | None, bool]:
    """Run a scenario; returns what the disturbance has led to, and whether there was one."""
    disturbance = Disturbance(at, kind, by_any=by_any)

    async def main() -> BaseException | None:
        with trio.fail_after(PATIENCE):
            return await scenario(disturbance)

    with no_leaks():
        outcome = trio.run(main, instruments=[disturbance])
    return outcome, disturbance.has_happened


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), KeyboardInterrupt()])
async def test_what_is_raised_inside_comes_out_as_it_is(start: Start, error: BaseException) -> None:
    serving = await start()
    with pytest.raises(type(error)) as raised:
        async with connect(serving.url):
            raise error
    assert raised.value is error
    assert serving.core.sessions == ()
