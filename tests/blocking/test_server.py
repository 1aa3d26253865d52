"""The threaded server, as its users see it: handlers in threads, sockets, and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking
import sansmcp_tools
from sansmcp import Disconnected, JsonRpcError, Limits, LocalProtocolError, RequestCancelled
from sansmcp.events import Reconnecting
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_blocking import Call, RunningServer
from sansmcp_local import read_state

from ..tls import ONCE, contexts
from .conftest import PATIENCE, Start, ToolApp, wait_for_event

# Handlers


def test_handlers_that_fail(start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture) -> None:
    @world.tool
    def fail(call: Call) -> Any:
        raise ValueError("the password is hunter2")

    @world.tool
    def leave(call: Call) -> Any:
        raise SystemExit(3)

    @world.tool
    def give_up(call: Call) -> Any:
        raise asyncio.CancelledError

    @world.tool
    async def wait(call: Call) -> Any:
        return {}

    @world.tool
    def no_json(call: Call) -> Any:
        return object()

    @world.tool
    def refuse(call: Call) -> Any:
        raise JsonRpcError(-7, "no")

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        for name in ("fail", "leave", "give_up", "wait", "no_json", "unknown"):
            with pytest.raises(JsonRpcError) as caught:
                client.call_tool(name)
            assert (caught.value.code, caught.value.message) == (-32603, "Internal error")
        with pytest.raises(JsonRpcError, match="no"):
            client.call_tool("refuse")
        assert client.call_tool("echo")["echo"] == {}
    assert "hunter2" in caplog.text
    assert "plain functions" in caplog.text


def test_async_handlers_are_refused_when_the_server_is_made() -> None:
    """With their names, instead of at the first call."""
    app = sansmcp.App("async")

    @app.handler("tools/call")
    async def call_tool(call: Call) -> Any:
        return {}

    @app.fallback
    async def forward(call: Call) -> Any:
        return {}

    with pytest.raises(LocalProtocolError, match=r"'tools/call', the fallback\. Write def"):
        sansmcp_blocking.serve(app, http=("127.0.0.1", 0))
    tools = sansmcp_tools.Tools("async")

    @tools.tool
    def plain() -> None:
        """Do nothing."""

    @tools.resource("a://{b}")
    async def read(b: str) -> str:
        return b

    for number in range(6):

        @tools.tool(name=f"tool{number}")
        async def work() -> None:
            """Do nothing."""

    with pytest.raises(LocalProtocolError, match=r"the tool 'tool0', .* and others\. Write def"):
        sansmcp_blocking.serve(tools, http=("127.0.0.1", 0))


def notify_much(call: Call) -> None:
    for _ in range(10_000):
        call.notify("n", {"text": "x" * 10_000})


def test_inline_handlers_run_in_the_thread_that_serves(
    start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    homes: dict[str, int] = {}

    @world.app.handler("resources/templates/list", inline=True)
    def list_templates(call: Call) -> Any:
        homes["inline"] = threading.get_ident()
        return {"resourceTemplates": []}

    @world.app.handler("prompts/list", inline=True)
    def leave(call: Call) -> Any:
        raise SystemExit(3)

    @world.app.handler("resources/list", inline=True)
    def wait(call: Call) -> Any:
        for act in (
            lambda: call.progress(1),
            lambda: notify_much(call),
            lambda: call.disconnect(),
            lambda: call.ask("elicitation/create"),
            lambda: call.sleep(1),
        ):
            with pytest.raises(LocalProtocolError, match="'resources/list' runs in place"):
                act()
        call.become_task()

    @world.tool
    def plain(call: Call) -> Any:
        homes["plain"] = threading.get_ident()
        return {}

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        for method in ("prompts/list", "resources/list"):
            with pytest.raises(JsonRpcError, match="Internal error"):
                client.call(method)
        client.call("resources/templates/list")
        client.call_tool("plain")
    assert homes["inline"] != homes["plain"]
    assert "SystemExit" in caplog.text
    assert "without inline=True" in caplog.text


def test_a_cancelled_handler_is_told_by_every_method(start: Start, world: ToolApp) -> None:
    begun = threading.Event()
    ended: list[BaseException] = []
    all_ended = threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        wait_for_event(call.cancelled)
        for act in (
            lambda: call.progress(1),
            lambda: call.notify("n"),
            lambda: call.disconnect(),
            lambda: call.ask("elicitation/create"),
        ):
            with pytest.raises(RequestCancelled) as caught:
                act()
            ended.append(caught.value)
        all_ended.set()
        call.progress(2)

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        pending = client.start_call("tools/call", {"name": "hang"})
        wait_for_event(begun)
        pending.cancel()
        wait_for_event(all_ended)
    assert len(ended) == 4


def test_a_question_ends_when_its_call_is_cancelled(start: Start, world: ToolApp) -> None:
    ended = threading.Event()

    @world.tool
    def ask(call: Call) -> Any:
        try:
            call.ask("elicitation/create", {})
        except RequestCancelled:
            ended.set()
            raise

    def answer(request: sansmcp.ServerRequest) -> Any:
        pending.cancel()
        return {}

    serving = start()
    with sansmcp_blocking.connect(
        serving.url,
        versions=HANDSHAKE_VERSIONS,
        capabilities={"elicitation": {}},
        request_handlers={"elicitation/create": answer},
    ) as client:
        pending = client.start_call("tools/call", {"name": "ask"})
        with pytest.raises(RequestCancelled):
            pending.result()
        wait_for_event(ended)


def test_a_question_that_is_not_answered_in_time(start: Start, world: ToolApp) -> None:
    gave_up = threading.Event()

    @world.tool
    def ask(call: Call) -> Any:
        with pytest.raises(sansmcp.RequestTimeout):
            call.ask("elicitation/create", {}, timeout=0.05)
        gave_up.set()
        return {"gave": "up"}

    def late(request: sansmcp.ServerRequest) -> dict[str, Any]:
        return {"gave up": gave_up.wait(PATIENCE)}

    serving = start()
    with sansmcp_blocking.connect(
        serving.url,
        versions=HANDSHAKE_VERSIONS,
        capabilities={"elicitation": {}},
        request_handlers={"elicitation/create": late},
    ) as client:
        assert client.call_tool("ask")["gave"] == "up"


def test_a_client_that_is_let_go_comes_back_for_the_rest(start: Start, world: ToolApp) -> None:
    @world.tool
    def work(call: Call) -> Any:
        call.progress(1)
        call.disconnect(retry=0.01)
        call.progress(2)
        return {"done": True}

    serving = start()
    with sansmcp_blocking.connect(serving.url, versions=("2025-11-25",)) as client:
        seen: list[float] = []
        events = client.events(0)
        result = client.call_tool("work", on_progress=lambda report: seen.append(report.progress))
        assert (result, seen) == ({"done": True}, [1, 2])
        assert any(isinstance(event, Reconnecting) for event in events)


# Sockets


def test_over_tls(start: Start) -> None:
    server_context, client_context = contexts()
    serving = start(ssl_context=server_context)
    assert serving.url.startswith("https://127.0.0.1:")
    large = {"text": "x" * 1_000_000}
    with sansmcp_blocking.connect(serving.url, ssl_context=client_context) as client:
        for _ in range(3):
            assert client.call_tool("echo", large)["echo"] == large
    with pytest.raises(Disconnected, match="certificate verify failed"):
        sansmcp_blocking.connect(serving.url, reconnect=ONCE)


def test_a_signal_that_interrupts_another_thread_is_noticed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with SIGTERM: the main thread waited on, until a second one came."""
    serving, is_waiting, join = start(), threading.Event(), threading.Thread.join

    def joining(thread: threading.Thread, timeout: float | None = None) -> None:
        is_waiting.set()
        join(thread, timeout)

    def interrupt() -> None:
        is_waiting.wait(PATIENCE)
        signal.raise_signal(signal.SIGUSR1)  # in this thread

    before = signal.signal(signal.SIGUSR1, lambda number, frame: serving.stop())
    try:
        other = threading.Thread(target=interrupt)
        other.start()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "join", joining)
            assert serving.wait(PATIENCE)
        other.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def raw(serving: RunningServer) -> socket.socket:
    place = ("127.0.0.1", sansmcp.Url.parse(serving.url).port)
    return socket.create_connection(place, timeout=PATIENCE)


@pytest.mark.parametrize("data", [b"", b"GET", b"\x16\x03\x01", b"POST /mcp HTTP/1.1\r\nhost: a"])
def test_peers_that_leave_leave_nothing(start: Start, data: bytes) -> None:
    serving = start()
    for _ in range(20):
        with raw(serving) as peer:
            peer.sendall(data)
    with sansmcp_blocking.connect(serving.url, standalone_stream=False) as client:
        assert client.call_tool("echo")["echo"] == {}
    serving.wait_until(lambda: not serving.connections)


def test_a_peer_that_takes_nothing_is_dropped(start: Start, world: ToolApp) -> None:
    @world.tool
    def chatter(call: Call) -> Any:
        for _ in range(100):
            call.notify("n", {"text": "x" * 100_000})
        return {}

    serving = start(limits=Limits(send_timeout=0.1), resumable=False)
    with raw(serving) as peer:
        request = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chatter","_meta":'
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
        )
        peer.sendall(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
            b"mcp-method: tools/call\r\nmcp-name: chatter\r\ncontent-length: %d\r\n\r\n%s"
            % (len(request), request)
        )
        assert peer.recv(12) == b"HTTP/1.1 200"
        serving.wait_until(lambda: not serving.connections)


def test_ports(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            start(http=("127.0.0.1", port))
        serving = start(http=("127.0.0.1", range(port, port + 20)))
        assert port < sansmcp.Url.parse(serving.url).port < port + 20
    with pytest.raises(LocalProtocolError, match="range"):
        start(http=("127.0.0.1", range(0)))
    with pytest.raises(LocalProtocolError, match="Nothing to serve on"):
        start(http=None)


def test_a_host_with_several_addresses(start: Start) -> None:
    serving = start(http=("localhost", 0))
    with sansmcp_blocking.connect(serving.url) as client:
        assert client.call_tool("echo")["echo"] == {}


def test_a_state_file_lasts_as_long_as_the_server(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    serving = start(state_file=path, http_sse="/sse")
    state = read_state(path)
    assert state is not None
    assert (state.url, state.transports) == (serving.url, ("streamable-http", "http+sse"))
    serving.close()
    serving.close()
    assert not path.exists()


# The end


def test_calls_that_run_get_a_moment_when_the_server_stops(start: Start, world: ToolApp) -> None:
    @world.tool
    def work(call: Call) -> Any:
        serving.stop()
        assert not serving.wait(0.05)
        return {"done": True}

    serving = start()
    with sansmcp_blocking.connect(serving.url) as client:
        assert client.call_tool("work")["done"]
    assert serving.wait(PATIENCE)


def test_the_server_stops_as_soon_as_a_call_ends_that_nobody_reads(
    start: Start, world: ToolApp
) -> None:
    away, go_on = threading.Event(), threading.Event()

    @world.tool
    def work(call: Call) -> Any:
        call.progress(1)
        call.disconnect(retry=PATIENCE)
        away.set()
        wait_for_event(go_on)
        return {}

    serving = start(graceful_timeout=10 * PATIENCE, versions=("2025-11-25",))
    client = sansmcp_blocking.connect(serving.url, standalone_stream=False, close_timeout=0.1)
    client.start_call("tools/call", {"name": "work"}, on_progress=print)
    wait_for_event(away)
    serving.stop()
    assert not serving.wait(0.05)
    go_on.set()
    assert serving.wait(PATIENCE)
    client.close()


def test_calls_that_run_for_longer_are_cancelled(start: Start, world: ToolApp) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        wait_for_event(call.cancelled)
        cancelled.set()

    serving = start(graceful_timeout=0.05)
    with sansmcp_blocking.connect(serving.url) as client:
        pending = client.start_call("tools/call", {"name": "hang"})
        wait_for_event(begun)
        serving.close()
        assert cancelled.is_set()
        with pytest.raises(sansmcp.CallError):
            pending.result()


def test_a_handler_that_does_not_look_is_left_behind(
    start: Start, world: ToolApp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_blocking._server._FINAL_FLUSH_TIMEOUT", 0.01)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    @world.tool
    def hang(call: Call) -> Any:
        begun.set()
        wait_for_event(go_on)
        ended.set()

    serving = start(graceful_timeout=0.01)
    client = sansmcp_blocking.connect(serving.url, standalone_stream=False, close_timeout=0.1)
    client.start_call("tools/call", {"name": "hang"})
    wait_for_event(begun)
    serving.close()
    assert "a handler still runs" in caplog.text
    client.close()
    go_on.set()
    wait_for_event(ended)
    serving.join(PATIENCE)
