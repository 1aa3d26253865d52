"""Whatever is interrupted or closed, wherever it waits: it ends, and nothing is left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pytest

import sansmcp_local
from sansmcp import (
    CallError,
    InputRequest,
    InputRequired,
    LocalProtocolError,
    ReconnectPolicy,
    RequestCancelled,
    ServerRequest,
)
from sansmcp.events import ServerNotified
from sansmcp_blocking import Call, Client, RunningServer, connect, serve
from sansmcp_blocking._loop import Loop, Ready

from ..leak_check import freeze_what_is_there, no_leaks
from ..stdio import standard_streams
from ..stepping import in_shares, wherever
from ..trio.programs import foreign
from ..trio.test_stdio_server import HELLO, call
from .conftest import Start, ToolApp, wait_for_event

LOCAL = ("127.0.0.1", 0)

ENDS = (CallError, LocalProtocolError)
"""What calls raise when their client has been closed, or the server is gone."""


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    freeze_what_is_there()


class AlarmError(Exception):
    """What a handler of SIGALRM may raise."""


class Disturbance:
    """Does something when this thread, or another one, waits for the n-th time."""

    def __init__(self, at: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_happened = False
        self.stop: Callable[[], object] = bool
        """Stops the server, once there is one."""
        self._at = at
        self._kind = kind
        self._waits = 0
        self._wait = Loop.wait

        def wait(loop: Loop, until: float) -> Ready:
            return self._disturbed(loop, until)

        monkeypatch.setattr(Loop, "wait", wait)

    def _disturbed(self, loop: Loop, until: float) -> Ready:
        is_here = threading.current_thread() is threading.main_thread()
        self._waits += is_here is not (self._kind == "stop")
        if self._waits != self._at or self.has_happened:
            return self._wait(loop, until)
        self.has_happened = True
        match self._kind:
            case "interrupt":
                signal.raise_signal(signal.SIGINT)
            case "interrupt late":
                self._wait(loop, until)
                signal.raise_signal(signal.SIGINT)
            case "alarm":
                raise AlarmError
            case _:
                self.stop()
        return self._wait(loop, until)


Scenario: TypeAlias = Callable[[Disturbance], None]


class Conversation:
    """A client and a server, and much of what they can have to do with each other."""

    def __init__(self, version: str, **settings: Any) -> None:
        self._versions = (version,)
        self._settings: dict[str, Any] = {**settings, "versions": self._versions}
        self._running: set[Call] = set()

    def __call__(self, disturbance: Disturbance) -> None:
        world = ToolApp()
        world.tool(self.work)
        with serve(world.app, http=LOCAL, graceful_timeout=0.1, **self._settings) as serving:
            disturbance.stop = serving.stop
            try:
                self.talk(serving)
            finally:
                if not serving.wait(0):
                    serving.wait_until(lambda: not serving.core.is_busy)
        assert not self._running

    def work(self, call: Call) -> Any:
        self._running.add(call)
        try:
            call.progress(1)
            call.disconnect(retry=0.001)
            call.sleep(0.001)
            return {}
        finally:
            self._running.remove(call)

    def talk(self, serving: RunningServer) -> None:
        policy = ReconnectPolicy(initial_delay=0.001, max_attempts=3)
        with connect(serving.url, versions=self._versions, reconnect=policy) as client:
            go_through(
                client,
                partial(client.call_tool, "work"),
                partial(client.notify, "notifications/x"),
                lambda: list(client.events(0)),
                partial(several, client),
            )


def several(client: Client) -> None:
    for pending in [client.start_call("tools/call", {"name": "work"}) for _ in range(3)]:
        pending.result()


def go_through(client: sansmcp_local.BlockingClient, *steps: Callable[[], object]) -> None:
    """Do all, whatever disturbs one of them, and close the client."""
    disturbed: BaseException | None = None
    for step in (*steps, client.ping):
        try:
            step()
        except (KeyboardInterrupt, AlarmError) as error:
            disturbed = error
            client.ping()
    client.close()
    if disturbed is not None:
        raise disturbed


def talk_to_a_process(manner: str, close_timeout: float, disturbance: Disturbance) -> None:
    versions = ("2025-11-25",)
    with connect(foreign(manner), versions=versions, close_timeout=close_timeout) as client:
        go_through(client, partial(client.call, "log", {"lines": ["x"] * 10}))


def serve_on_stdio(disturbance: Disturbance) -> None:
    world = ToolApp()
    world.tool(Conversation("2025-11-25").work)
    with standard_streams() as (input, output):
        os.write(input, HELLO + call(1, "work") + call(2, "work"))
        os.close(input)
        with serve(world.app, stdio=True, graceful_timeout=1) as serving:
            disturbance.stop = serving.stop
            serving.wait()
    os.close(output)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "sessions": partial(Conversation, "2025-11-25"),
    "no sessions": partial(Conversation, "2026-07-28"),
    "HTTP+SSE": partial(Conversation, "2024-11-05", http_sse="/mcp", path="/none"),
    "stdio server": lambda: serve_on_stdio,
    "process": lambda: partial(talk_to_a_process, "", 5.0),
    "deaf process": lambda: partial(talk_to_a_process, "stubborn", 0.02),
}

OUTCOMES: dict[str, tuple[type, ...]] = {
    "interrupt": (KeyboardInterrupt,),
    "interrupt late": (KeyboardInterrupt,),
    "alarm": (AlarmError,),
    "stop": (*ENDS, type(None)),
}


@in_shares
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *product(["interrupt", "interrupt late", "stop"], ["sessions", "no sessions", "HTTP+SSE"]),
        *product(["interrupt", "interrupt late"], ["process", "deaf process"]),
        *product(["alarm"], ["sessions", "process"]),
        ("stop", "stdio server"),
    ],
)
def test_wherever_it_happens(kind: str, name: str, share: int) -> None:
    def once(at: int) -> bool:
        outcome: BaseException | None = None
        with pytest.MonkeyPatch.context() as monkeypatch, no_leaks():
            disturbance = Disturbance(at, kind, monkeypatch)
            try:
                SCENARIOS[name]()(disturbance)
            except (*ENDS, KeyboardInterrupt, AlarmError) as error:
                outcome = error
        happened = disturbance.has_happened
        assert isinstance(outcome, OUTCOMES[kind]) if happened else outcome is None, (at, outcome)
        return happened

    assert wherever(once, share) > 1 or share


# Closed from within


def close_in_a_report(client: Client) -> None:
    client.call_tool("talk", on_progress=lambda _: client.close())


def close_in_an_answer(client: Client) -> None:
    client.call_tool("ask")


def close_in_the_loop_of_events(client: Client) -> None:
    events = client.events()
    client.start_call("tools/call", {"name": "talk"})
    for event in events:
        if isinstance(event, ServerNotified):
            client.close()
    raise RequestCancelled("The events have ended")


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "close_in", [close_in_a_report, close_in_an_answer, close_in_the_loop_of_events]
)
def test_a_client_is_closed_from_within(
    start: Start, world: ToolApp, version: str, close_in: Callable[[Client], None]
) -> None:
    @world.tool
    def talk(call: Call) -> Any:
        call.notify("notifications/x")
        call.progress(1)
        call.sleep(60)

    @world.tool
    def ask(call: Call) -> Any:
        return InputRequired({"why": InputRequest("elicitation/create", {"message": "?"})})

    def answer(request: ServerRequest) -> Any:
        client.close()
        return {"action": "accept"}

    serving = start(versions=(version,), graceful_timeout=0.1)
    with no_leaks():
        with connect(
            serving.url,
            versions=(version,),
            request_handlers={"elicitation/create": answer},
            capabilities={"elicitation": {}},
        ) as client:
            with pytest.raises(RequestCancelled):
                close_in(client)
            with pytest.raises(LocalProtocolError, match="closed"):
                client.ping()
            assert list(client.events()) == []
        serving.wait_until(lambda: not serving.connections)


# Servers


def test_a_server_that_is_interrupted_twice_gives_no_more_time(
    world: ToolApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        call.cancelled.wait(60)
        cancelled.set()

    with (
        no_leaks(),
        serve(world.app, http=LOCAL, graceful_timeout=60) as serving,
        connect(serving.url) as client,
    ):
        client.start_call("tools/call", {"name": "hang"})
        wait_for_event(begun)
        with monkeypatch.context() as interrupting:
            interrupting.setattr(serving, "wait", interrupted_once(serving.wait))
            with pytest.raises(KeyboardInterrupt):
                serving.close()
        assert cancelled.is_set()


def interrupted_once(wait: Callable[[], bool]) -> Callable[[], bool]:
    interrupts = [KeyboardInterrupt]

    def interrupted_wait() -> bool:
        if interrupts:
            raise interrupts.pop()
        return wait()

    return interrupted_wait
