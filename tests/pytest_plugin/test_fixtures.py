"""The fixtures: handlers as users write them, on the simulated network, in virtual time."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest

import sansmcp
import sansmcp_tools
from sansmcp.events import ServerNotified
from sansmcp_pytest import Client, Connect, Network, Serve
from sansmcp_pytest._client import connect
from sansmcp_pytest._network import Fault, draw_faults

from ..http11.harness import post
from ..server.modern.harness import mirrored, modern

ONE = "2025-11-25"

app = sansmcp.App("slow", "1.0")


@app.handler("tools/call")
async def count(call: Any) -> Any:
    for number in range(1, 6):
        await asyncio.sleep(call.params["arguments"]["seconds"])
        await call.progress(number, 5)
    return {"content": []}


@app.handler("prompts/get")
def plain(call: Any) -> Any:
    call.progress(1, 2)
    time.sleep(0.05)
    call.progress(2, 2)
    return {"messages": []}


@app.handler("resources/read")
async def read(call: Any) -> Any:
    answer = await call.ask("elicitation/create", {"message": "Who?", "requestedSchema": {}})
    return {"contents": [answer]}


@app.handler("completion/complete")
def ask(call: Any) -> Any:
    return call.ask("elicitation/create", {"message": "Who?", "requestedSchema": {}})


@pytest.mark.parametrize("version", sansmcp.REVISIONS)
def test_hours_pass_at_once(mcp_client: Connect, mcp_network: Network, version: str) -> None:
    client = mcp_client(app, versions=(version,))
    seen: list[Any] = []
    client.call_tool("count", {"seconds": 600}, timeout=1000, on_progress=seen.append)
    assert len(seen) == 5
    assert 3000 < mcp_network.now < 3002


def test_results_become_types(mcp_client: Connect) -> None:
    typed = sansmcp.App("typed", "1.0")

    @typed.handler("tools/call")
    def add(call: Any) -> Any:
        if call.params["name"] == "fails":
            return {"content": [{"type": "text", "text": "no such city"}], "isError": True}
        return {"content": [], "structuredContent": {"sum": 3}}

    class Sum(msgspec.Struct):
        sum: int

    client = mcp_client(typed)
    assert client.call_tool("add", result_type=Sum) == Sum(3)
    found = client.call("tools/call", {"name": "add"}, result_type=dict[str, Any])
    assert found["structuredContent"] == {"sum": 3}
    with pytest.raises(sansmcp.ToolFailed, match="no such city"):
        client.call_tool("fails", result_type=Sum)
    with pytest.raises(sansmcp.InvalidResponse, match="sum"):
        client.call("tools/call", {"name": "add"}, result_type=Sum)


def test_lists_are_read_page_by_page(mcp_client: Connect) -> None:
    def noted(place: str) -> str:
        return place

    tools = sansmcp_tools.Tools("many", page_size=1)
    for name in ("one", "two"):
        tools.tool(name=name)(lambda: "")
        tools.prompt(name=name)(lambda: "")
        tools.resource(f"note://{name}", name=name)(lambda: "")
        tools.resource(f"{name}://{{place}}", name=name)(noted)
    client = mcp_client(tools)
    lists = (client.tools(), client.prompts(), client.resources(), client.resource_templates())
    for items in lists:
        assert [item["name"] for item in items] == ["one", "two"]


def test_a_timeout_of_the_client(mcp_client: Connect, mcp_network: Network) -> None:
    client = mcp_client(app)
    with pytest.raises(sansmcp.RequestTimeout):
        client.call_tool("count", {"seconds": 100}, timeout=30)
    assert 30 < mcp_network.now < 31


def test_time_stands_still_while_a_plain_handler_works(
    mcp_client: Connect, mcp_network: Network
) -> None:
    mcp_client(app).get_prompt("x")
    assert mcp_network.now < 0.2


@pytest.mark.parametrize("method", ["resources/read", "completion/complete"])
def test_time_passes_while_a_handler_waits_for_an_answer(
    mcp_client: Connect, mcp_network: Network, method: str
) -> None:
    async def answer(request: sansmcp.ServerRequest) -> Any:
        await asyncio.sleep(40)
        return {"action": "decline"}

    client = mcp_client(
        app,
        versions=(ONE,),
        capabilities={"elicitation": {}},
        request_handlers={"elicitation/create": answer},
    )
    begun = time.monotonic()
    assert "decline" in str(client.call(method, {"uri": "x"}))
    assert mcp_network.now > 40
    assert time.monotonic() - begun < 30


def test_handlers_may_use_threads_and_sockets(mcp_client: Connect, mcp_network: Network) -> None:
    own = sansmcp.App("own", "1.0")

    @own.handler("tools/call")
    async def work(call: Any) -> Any:
        await asyncio.to_thread(time.sleep, 0.05)
        one, other = socket.socketpair()
        one.setblocking(False)
        timer = threading.Timer(0.05, other.send, [b"x"])
        timer.start()
        with one, other:
            received = await asyncio.get_running_loop().sock_recv(one, 1)
            timer.join()
        return {"content": [received.decode()]}

    assert mcp_client(own).call_tool("x")["content"] == ["x"]
    assert mcp_network.now < 0.2


def test_two_calls_at_once(mcp_client: Connect, mcp_network: Network) -> None:
    client = mcp_client(app, versions=(ONE,))
    params = {"name": "count", "arguments": {"seconds": 10}}
    calls = [client.start("tools/call", params) for _ in range(2)]
    assert [call.result() for call in calls] == [{"content": []}] * 2
    assert mcp_network.now < 52


def test_a_task_that_is_done_at_once(mcp_client: Connect) -> None:
    started = mcp_client(app).start_task("count", {"seconds": 0})
    assert started.id is None
    assert started.result() == started.value == started.cancel()
    assert started.value["content"] == []


def test_a_call_that_is_cancelled(mcp_client: Connect, mcp_network: Network) -> None:
    stopped: list[bool] = []
    waiting = sansmcp.App("waiting", "1.0")

    @waiting.handler("tools/call")
    async def wait(call: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    call = mcp_client(waiting).start("tools/call", {"name": "x"})
    mcp_network.sleep(5)
    assert not call.is_done
    call.cancel()
    mcp_network.sleep(1)
    assert call.is_done
    assert stopped == [True]


def test_what_waits_for_ever_is_ended(mcp_client: Connect, mcp_network: Network) -> None:
    with pytest.raises(AssertionError, match="a day of virtual time"):
        mcp_network.sleep(100_000)


def test_two_clients_of_one_server(mcp_client: Connect, mcp_server: Serve) -> None:
    server = mcp_server(app, sessions=True)
    clients = [mcp_client(server, versions=(ONE,)) for _ in range(2)]
    clients[0].close()
    clients[0].close()
    clients[1].notify("notifications/roots/list_changed")
    assert clients[1].call_tool("count", {"seconds": 1}) == {"content": []}


def test_what_belongs_to_no_call_is_kept(
    mcp_client: Connect, mcp_server: Serve, mcp_network: Network
) -> None:
    server = mcp_server(app)
    client = mcp_client(server, versions=(ONE,))
    mcp_network.sleep(1)
    server.publish("notifications/tools/list_changed")
    mcp_network.sleep(1)
    assert "notifications/tools/list_changed" in [
        event.notification.method for event in client.events if isinstance(event, ServerNotified)
    ]


@pytest.mark.parametrize("authenticator", ["plain", "async"])
def test_authentication(mcp_client: Connect, mcp_server: Serve, authenticator: str) -> None:
    seen: list[Any] = []

    def authenticate(head: Any, connection: sansmcp.ConnectionInfo) -> str:
        seen.append(connection.peer)
        return "ada"

    async def authenticate_later(head: Any, connection: sansmcp.ConnectionInfo) -> str:
        await asyncio.sleep(1)
        return authenticate(head, connection)

    function: Any = authenticate if authenticator == "plain" else authenticate_later
    client = mcp_client(mcp_server(app, authenticate=function))
    client.call_tool("count", {"seconds": 1})
    assert seen
    assert {each[0] for each in seen} == {"127.0.0.1"}


# The network


def resumed(client: Client, network: Network, act: Any) -> Any:
    """The result of a call during which something happens."""
    call = client.start(
        "tools/call", {"name": "count", "arguments": {"seconds": 20}}, on_progress=lambda _: None
    )
    network.sleep(50)
    act()
    return call.result()


def test_connections_that_break(mcp_client: Connect, mcp_network: Network) -> None:
    client = mcp_client(app, versions=(ONE,))
    assert resumed(client, mcp_network, mcp_network.cut) == {"content": []}


def test_connections_that_fall_silent(mcp_client: Connect, mcp_network: Network) -> None:
    client = mcp_client(app, versions=(ONE,), timeout=1000)
    assert resumed(client, mcp_network, mcp_network.silence) == {"content": []}


def test_a_network_that_is_down(mcp_client: Connect, mcp_network: Network) -> None:
    mcp_network.is_up = False
    with pytest.raises(sansmcp.CallError, match="refused"):
        mcp_client(app, connect_timeout=3)
    mcp_network.is_up = True
    mcp_client(app)


def test_a_server_that_is_killed(
    mcp_client: Connect, mcp_server: Serve, mcp_network: Network
) -> None:
    server = mcp_server(app)
    client = mcp_client(server, versions=(ONE,))
    with pytest.raises(sansmcp.CallError):
        resumed(client, mcp_network, server.kill)


def test_a_server_that_stops(mcp_client: Connect, mcp_server: Serve, mcp_network: Network) -> None:
    server = mcp_server(app, graceful_timeout=1000)
    client = mcp_client(server, versions=(ONE,))
    assert resumed(client, mcp_network, server.stop) == {"content": []}


def test_large_messages_wait_for_room(mcp_client: Connect, mcp_network: Network) -> None:
    large = sansmcp.App("large", "1.0")

    @large.handler("tools/call")
    async def echo(call: Any) -> Any:
        return {"content": [call.params["arguments"]["text"]]}

    client = mcp_client(large)
    text = "x" * 1_000_000
    assert client.call_tool("echo", {"text": text})["content"] == [text]


class Deaf:
    """A client that has sent a request and reads nothing."""

    def read(self, data: bytes) -> None:
        raise AssertionError("it does not read")

    def read_end(self) -> None:
        """The server has closed its end."""

    def lose(self, reason: str) -> None:
        """The connection is lost."""

    def wake(self) -> None:
        """There is room to send more."""


def test_a_server_waits_for_a_client_that_stops_reading(
    mcp_server: Serve, mcp_network: Network
) -> None:
    talkative = sansmcp.App("talkative", "1.0")
    said: list[int] = []

    @talkative.handler("tools/call")
    async def talk(call: Any) -> Any:
        for number in range(10_000):
            await call.notify("com.example/told", {"text": "x" * 10_000})
            said.append(number)

    server = mcp_server(talkative, limits=sansmcp.Limits(send_timeout=1e6))
    wire = server.accept()
    assert wire is not None
    wire.client = Deaf()
    wire.to_client.hold(True)
    message = modern(1)
    headers = "".join(f"{name}: {value}\r\n" for name, value in mirrored(message).items())
    wire.send_to_server(post(json.dumps(message).encode(), headers.encode()))
    mcp_network.loop.run(asyncio.sleep(100))
    assert 0 < len(said) < 1000, "the handler waits"
    assert wire.to_client.size < 2_000_000


def test_latency(mcp_client: Connect, mcp_network: Network) -> None:
    client = mcp_client(app)
    mcp_network.latency = 3.0
    before = mcp_network.now
    client.ping()
    assert 6 <= mcp_network.now - before <= 12


@pytest.mark.parametrize("kind", ["refuse", "cut", "silence", "delay"])
def test_each_kind_of_fault_happens_and_every_call_ends(kind: str) -> None:
    happened, results = 0, 0
    for seed in range(10):
        network = Network(seed=seed, faults=draw_faults(seed, 3, [kind]))
        try:
            with suppress(sansmcp.CallError):
                params = {"arguments": {"seconds": 1}}
                connected(network).call("tools/call", params, idempotent=True, timeout=1000)
                results += 1
        finally:
            network.close()
        happened += len(network.faults)
        assert {fault.kind for fault in network.faults} <= {kind}
        assert network.now < 3000
    assert happened > 5
    assert results > 5


def connected(network: Network) -> Client:
    return connect(network, app, versions=(ONE,), connect_timeout=1000)


def test_the_same_seed_gives_the_same_run() -> None:
    runs: list[Any] = []
    for seed in (7, 7, 8):
        network = Network(seed=seed, faults=draw_faults(seed, 4, ["cut", "delay"]))
        try:
            client = connected(network)
            client.call("tools/call", {"arguments": {"seconds": 9}}, idempotent=True, timeout=1000)
        finally:
            network.close()
        runs.append((network.faults, network.now))
    assert runs[0] == runs[1] != runs[2]


def test_a_kind_of_fault_that_is_none() -> None:
    with pytest.raises(ValueError, match="kinds must name some of refuse, cut"):
        draw_faults(0, 1, ["cat"])


@pytest.mark.parametrize("text", ["refuse@0", "cut@120", "delay@7+30s"])
def test_faults_are_written_as_they_are_read(text: str) -> None:
    assert str(Fault.parse(text)) == text


@pytest.mark.parametrize("text", ["", "cut", "cat@7", "cut@-7"])
def test_what_is_no_fault(text: str) -> None:
    with pytest.raises(ValueError, match="A fault must be like cut@120"):
        Fault.parse(text)
