"""A server and a client in steps: nothing waits, no thread is started, handlers run in place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp.events import ServerNotified
from sansmcp_blocking import Call, PendingCall, SteppedClient, SteppedServer
from sansmcp_blocking._loop import Loop
from sansmcp_stores import SqliteStore

from .conftest import PATIENCE, ToolApp

Begin = Callable[..., SteppedServer]


@pytest.fixture(autouse=True)
def no_thread() -> Iterator[None]:
    """No test of this module starts a thread."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def begin(world: ToolApp) -> Iterator[Begin]:
    with ExitStack() as stack:

        def begin(**settings: Any) -> SteppedServer:
            options: dict[str, Any] = {"http": ("127.0.0.1", 0), **settings}
            serving = sansmcp_blocking.serve_in_steps(world.app, **options)
            return stack.enter_context(serving)

        yield begin


@pytest.fixture
def connected(begin: Begin) -> Iterator[tuple[SteppedServer, SteppedClient]]:
    server = begin()
    client = sansmcp_blocking.connect_in_steps(server.url, close_timeout=0.1)
    yield server, client
    client.close()


def step_until(is_done: Callable[[], bool], *stepped: SteppedServer | SteppedClient) -> None:
    """What the timer of a program does."""
    end = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < end
        for each in stepped:
            each.step(0.01)


def test_a_call_between_a_server_and_a_client_of_one_thread(
    connected: tuple[SteppedServer, SteppedClient], world: ToolApp
) -> None:
    threads: list[threading.Thread] = []

    @world.tool
    def who(call: Call) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {"content": []}

    server, client = connected
    pending = client.start_call("tools/call", {"name": "who"})
    assert not pending.is_done
    step_until(lambda: pending.is_done, server, client)
    assert pending.result()["content"] == []
    assert threads == [threading.current_thread()]
    assert client.connected.server_info["name"] == "blocking-tests"


def test_a_step_does_not_wait(
    connected: tuple[SteppedServer, SteppedClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing to do it asks for what is ready, and is told to wait for nothing."""
    server, client = connected
    waits: list[float] = []
    wait = Loop.wait

    def noted(loop: Loop, until: float) -> Any:
        waits.append(until - time.monotonic())
        return wait(loop, until)

    monkeypatch.setattr(Loop, "wait", noted)
    for _ in range(10):
        assert server.step()
        assert client.step()
    assert len(waits) >= 20
    assert max(waits) <= 0


def test_a_few_steps_are_enough_for_a_call(
    connected: tuple[SteppedServer, SteppedClient],
) -> None:
    """So a timer of a tenth of a second does not make a call last for seconds."""
    server, client = connected
    step_until(lambda: hasattr(client, "connected"), server, client)
    pending = client.start_call("tools/call", {"name": "echo", "arguments": {}})
    steps = 0
    while not pending.is_done:
        steps += 1
        server.step()
        client.step()
    assert steps <= 3


def test_handlers_run_one_after_the_other(
    connected: tuple[SteppedServer, SteppedClient], world: ToolApp
) -> None:
    """While one sleeps, the server reads and sends, and no other begins."""
    log: list[str] = []

    @world.tool
    def slow(call: Call) -> dict[str, Any]:
        log.append("begin")
        call.progress(1)
        call.sleep(0.05)
        log.append("end")
        return {"content": []}

    server, client = connected
    calls = [client.start_call("tools/call", {"name": "slow"}) for _ in range(3)]
    step_until(lambda: all(call.is_done for call in calls), server, client)
    assert log == ["begin", "end"] * 3


def test_a_step_in_a_handler_is_refused(
    connected: tuple[SteppedServer, SteppedClient], world: ToolApp
) -> None:
    @world.tool
    def nested(call: Call) -> dict[str, Any]:
        with pytest.raises(sansmcp.LocalProtocolError, match="is running already"):
            server.step()
        return {"content": []}

    server, client = connected
    pending = client.start_call("tools/call", {"name": "nested"})
    step_until(lambda: pending.is_done, server, client)
    assert pending.result()["content"] == []


def test_a_handler_asks_the_client(begin: Begin, world: ToolApp) -> None:
    """It waits, and the loop goes on; here the client is a process of its own."""

    @world.tool
    def asks(call: Call) -> dict[str, Any]:
        answered = call.ask("roots/list")
        return {"content": [], "structuredContent": {"roots": answered["roots"]}}

    server = begin(versions=("2025-11-25",))
    program = f"""
import sansmcp_blocking
answer = {{"roots": [{{"uri": "file:///a"}}]}}
handlers = {{"roots/list": lambda request: answer}}
with sansmcp_blocking.connect({server.url!r}, request_handlers=handlers,
        capabilities={{"roots": {{}}}}) as client:
    assert client.call_tool("asks")["structuredContent"] == answer
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as child:
        step_until(lambda: child.poll() is not None, server)
    assert child.returncode == 0


def test_a_call_that_is_cancelled_while_its_handler_waits(
    connected: tuple[SteppedServer, SteppedClient], world: ToolApp
) -> None:
    ended: list[type[BaseException]] = []

    @world.tool
    def waits(call: Call) -> None:
        pending.cancel()
        client.step()
        try:
            call.sleep(PATIENCE)
        except BaseException as error:
            ended.append(type(error))
            raise

    server, client = connected
    pending = client.start_call("tools/call", {"name": "waits"})
    step_until(lambda: bool(ended), server, client)
    assert ended == [sansmcp.RequestCancelled]
    with pytest.raises(sansmcp.RequestCancelled):
        pending.result()


def test_the_client_takes_notifications(
    connected: tuple[SteppedServer, SteppedClient], world: ToolApp
) -> None:
    @world.tool
    def tells(call: Call) -> dict[str, Any]:
        call.notify("notifications/custom", {"data": "x"})
        return {"content": []}

    server, client = connected
    assert list(client.events(timeout=0)) == []  # they are kept from now on
    pending = client.start_call("tools/call", {"name": "tells"})
    step_until(lambda: pending.is_done, server, client)
    events = list(client.events(timeout=0))
    assert [event for event in events if isinstance(event, ServerNotified)]


def test_a_handshake_that_fails_is_raised_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = sansmcp_blocking.connect_in_steps(f"http://127.0.0.1:{port}/mcp", connect_timeout=0.05)
    pending = client.start_call("tools/list")
    with pytest.raises(sansmcp.CallError):
        step_until(lambda: False, client)
    assert client.step() is False
    assert pending.is_done
    with pytest.raises(sansmcp.CallError):
        pending.result()
    client.close()


def test_a_server_process_in_steps() -> None:
    script = str(Path(__file__).with_name("stdio_server.py"))
    with sansmcp_blocking.connect_in_steps([sys.executable, script, "{}"]) as client:
        pending = client.start_call("tools/call", {"name": "any", "arguments": {"a": 1}})
        step_until(lambda: pending.is_done, client)
        assert pending.result()["echo"] == {"a": 1}


@pytest.mark.parametrize("works", [False, True])
def test_a_server_that_is_stopped_ends_in_steps(works: bool, begin: Begin, world: ToolApp) -> None:
    """Also in the middle of a handler, which then has the graceful timeout."""
    log: list[str] = []

    @world.tool
    def stops(call: Call) -> dict[str, Any]:
        server.stop()
        try:
            call.sleep(PATIENCE)
        finally:
            log.append("end")
        return {}

    server = begin(graceful_timeout=0.05)
    client = sansmcp_blocking.connect_in_steps(server.url, close_timeout=0.1)
    pending = client.start_call("tools/call", {"name": "stops" if works else "echo"})
    if not works:
        step_until(lambda: pending.is_done, server, client)
        server.stop()
    end = time.monotonic() + PATIENCE
    while server.step(0.01):
        client.step()
        assert time.monotonic() < end
    assert server.step(PATIENCE) is False
    assert log == ["end"] * works
    client.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(server.url.split(":")[2].split("/")[0])))


def test_interrupts_end_the_handler_and_not_the_server(
    connected: tuple[SteppedServer, SteppedClient], world: ToolApp
) -> None:
    @world.tool
    def interrupted(call: Call) -> None:
        signal.raise_signal(signal.SIGINT)

    @world.tool
    def exits(call: Call) -> None:
        sys.exit(3)

    server, client = connected
    pending = client.start_call("tools/call", {"name": "interrupted"})
    with pytest.raises(KeyboardInterrupt):
        step_until(lambda: False, server, client)
    step_until(lambda: pending.is_done, server, client)
    with pytest.raises(sansmcp.JsonRpcError, match="Internal error"):
        pending.result()
    assert error_of(call_of("exits", server, client)) is sansmcp.JsonRpcError
    assert call_of("echo", server, client).result()["echo"] == {}


def call_of(name: str, server: SteppedServer, client: SteppedClient) -> PendingCall:
    pending = client.start_call("tools/call", {"name": name, "arguments": {}})
    step_until(lambda: pending.is_done, server, client)
    return pending


def error_of(pending: PendingCall) -> type[Exception]:
    with pytest.raises(sansmcp.CallError) as raised:
        pending.result()
    return raised.type


def test_authenticate_runs_in_the_step(begin: Begin) -> None:
    def authenticate(head: sansmcp.RequestHead, connection: sansmcp.ConnectionInfo) -> str:
        assert threading.current_thread() is threading.main_thread()
        return "ann"

    server = begin(authenticate=authenticate)
    client = sansmcp_blocking.connect_in_steps(server.url, close_timeout=0.1)
    pending = client.start_call("tools/call", {"name": "echo", "arguments": {}})
    step_until(lambda: pending.is_done, server, client)
    assert pending.result()["echo"] == {}
    client.close()


def test_a_store_that_needs_a_thread_is_refused(begin: Begin, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    try:
        with pytest.raises(sansmcp.LocalProtocolError, match="starts no thread"):
            begin(store=store)
    finally:
        store.close()


def test_a_step_is_bounded(
    connected: tuple[SteppedServer, SteppedClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is done by the next one."""
    monkeypatch.setattr("sansmcp_blocking._steps._ROUNDS", 2)
    server, client = connected
    pending = client.start_call("tools/call", {"name": "echo", "arguments": {}})
    step_until(lambda: pending.is_done, server, client)
    assert pending.result()["echo"] == {}
