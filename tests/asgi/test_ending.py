"""What leaves: clients, servers, event loops. Nothing goes on without them, and nothing hangs."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import trio

import sansmcp_trio
from sansmcp import (
    Disconnected,
    Limits,
    LocalProtocolError,
    ReconnectPolicy,
    RequestRefused,
    SessionLost,
)
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from sansmcp_asgi import AsgiApp, Call, asgi_app
from sansmcp_local import Loop, current_loop

from ..tool_app import ToolApp
from .conftest import Host
from .loops import PATIENCE, Run, until

POLICY = ReconnectPolicy(initial_delay=0.01, max_attempts=2)


class Peer:
    """Plays the ASGI server in one request."""

    def __init__(self, loop: Loop, message: Any, version: str, *, more_body: bool = False) -> None:
        self.loop = loop
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [
                (b"host", b"localhost"),
                (b"accept", b"application/json, text/event-stream"),
                (b"content-type", b"application/json"),
                (b"mcp-protocol-version", version.encode()),
                (b"mcp-method", message["method"].encode()),
                (b"mcp-name", message["params"].get("name", "").encode()),
            ],
        }
        body = json.dumps(message).encode()
        self.requests = [{"type": "http.request", "body": body, "more_body": more_body}]
        self.gone, self.began, self.ended = loop.event(), loop.event(), loop.event()
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if self.requests:
            return self.requests.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.loop.checkpoint()
        self.sent.append(message)
        self.began.set()

    async def ask(self, app: AsgiApp) -> None:
        await app(self.scope, self.receive, self.send)
        self.ended.set()

    @property
    def is_complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def modern(tool: str) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": {}, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


class Ward:
    """A tool that never ends by itself, and who watches it."""

    def __init__(self, world: ToolApp) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()
        world.tool(self.hang)

    async def hang(self, call: Call) -> Any:
        try:
            await call.notify("notifications/message", {"level": "info", "data": "begun"})
            self.begun.set()
            await current_loop().event().wait()
        finally:
            self.cancelled.set()


@pytest.fixture
def ward(world: ToolApp) -> Ward:
    return Ward(world)


def peer(tool: str, **options: Any) -> Peer:
    return Peer(current_loop(), modern(tool), "2026-07-28", **options)


# Clients


def test_a_client_that_leaves_cancels_the_tool(run: Run, world: ToolApp, ward: Ward) -> None:
    async def main() -> None:
        app = asgi_app(world.app)
        asking = peer("hang")
        current_loop().spawn(asking.ask, app)
        await until(ward.begun.is_set)
        asking.gone.set()
        await until(ward.cancelled.is_set)
        await asking.ended.wait()
        assert not asking.is_complete

    run(main)


def test_a_client_that_leaves_before_it_has_asked(run: Run, world: ToolApp) -> None:
    async def main() -> None:
        asking = peer("echo", more_body=True)
        asking.gone.set()
        await asking.ask(asgi_app(world.app))
        assert asking.sent == []

    run(main)


def test_a_complete_response_is_sent_with_its_end(run: Run, world: ToolApp) -> None:
    """The request is read once, its end included; the response is a head and a body."""

    async def main() -> None:
        app = asgi_app(world.app)
        asking = peer("echo")
        await asking.ask(app)
        start, body = asking.sent
        assert start["status"] == 200
        assert json.loads(body["body"])["id"] == 1
        assert asking.is_complete

    run(main)


def test_a_client_that_takes_nothing_is_given_up(run: Run, world: ToolApp, ward: Ward) -> None:
    async def main() -> None:
        app = asgi_app(world.app, limits=Limits(send_timeout=0.01), stream_after=0)
        asking = peer("hang")

        async def stuck(message: Any) -> None:
            await asking.gone.wait()

        await app(asking.scope, asking.receive, stuck)
        await until(ward.cancelled.is_set)

    run(main)


def test_a_server_that_says_so_when_sending(run: Run, world: ToolApp, ward: Ward) -> None:
    """ASGI 2.4: sending to a client that has gone raises OSError."""

    async def main() -> None:
        app = asgi_app(world.app, stream_after=0)
        asking = peer("hang")

        async def broken(message: Any) -> None:
            raise ConnectionResetError

        await app(asking.scope, asking.receive, broken)
        await until(ward.cancelled.is_set)

    run(main)


# Servers


def test_a_server_that_cancels_the_request(run: Run, world: ToolApp, ward: Ward) -> None:
    async def main() -> None:
        task = current_loop().spawn(peer("hang").ask, asgi_app(world.app))
        await until(ward.begun.is_set)
        task.cancel()
        await until(ward.cancelled.is_set)

    run(main)


def test_the_end_of_the_lifespan_ends_all(run: Run, world: ToolApp, ward: Ward) -> None:
    async def main() -> None:
        loop = current_loop()
        app = asgi_app(world.app, graceful_timeout=0.01, stream_after=0)
        stopping, said = loop.event(), list[str]()
        requests = ["lifespan.shutdown", "lifespan.startup"]

        async def receive() -> Any:
            if said:
                await stopping.wait()
            return {"type": requests.pop()}

        async def send(message: Any) -> None:
            said.append(message["type"])

        loop.spawn(app, {"type": "lifespan"}, receive, send)
        asking = peer("hang")
        loop.spawn(asking.ask, app)
        await until(ward.begun.is_set)
        assert said == ["lifespan.startup.complete"]
        stopping.set()
        await asking.ended.wait()
        await until(ward.cancelled.is_set)
        await until(lambda: len(said) == 2)
        assert said[1] == "lifespan.shutdown.complete"

    run(main)


def test_stopping_lets_calls_end(run: Run, world: ToolApp) -> None:
    go_on = threading.Event()

    @world.tool
    async def work(call: Call) -> Any:
        await until(go_on.is_set)
        return {"done": True}

    async def main() -> None:
        app = asgi_app(world.app)
        await app.stop()  # there is nothing to be stopped yet
        asking, late = peer("work"), peer("echo")
        current_loop().spawn(asking.ask, app)
        await until(lambda: not asking.requests)
        stopping = current_loop().event()

        async def stop() -> None:
            stopping.set()
            await app.stop()

        current_loop().spawn(stop)
        await stopping.wait()
        await late.ask(app)
        assert late.sent[0]["status"] == 503
        go_on.set()
        await asking.ended.wait()
        assert asking.is_complete
        assert b'"done":true' in b"".join(each.get("body", b"") for each in asking.sent)

    run(main)


def test_a_stop_waits_for_the_last_bytes(run: Run, world: ToolApp, ward: Ward) -> None:
    async def main() -> None:
        app = asgi_app(world.app, graceful_timeout=0.01)
        asking = peer("hang")
        current_loop().spawn(asking.ask, app)
        await until(ward.begun.is_set)
        await app.stop()
        assert asking.ended.is_set()

    run(main)


def test_after_a_stop_there_is_a_new_server(run: Run, world: ToolApp) -> None:
    async def main() -> None:
        app = asgi_app(world.app)
        for _ in range(2):
            asking = peer("echo")
            await asking.ask(app)
            assert asking.sent[0]["status"] == 200
            await app.stop()
            await current_loop().within(0.01, current_loop().event().wait)

    run(main)


def test_the_end_of_the_event_loop_cancels_the_tool(run: Run, world: ToolApp, ward: Ward) -> None:
    """One whose client has left, and would have come back."""

    async def main() -> None:
        app = asgi_app(world.app, versions=HANDSHAKE_VERSIONS, sessions=False, stream_after=0)
        call = {**modern("hang"), "params": {"name": "hang"}}
        asking = Peer(current_loop(), call, "2025-11-25")
        current_loop().spawn(asking.ask, app)
        await until(ward.begun.is_set)
        asking.gone.set()
        await asking.ended.wait()
        assert not ward.cancelled.is_set()

    run(main)
    assert ward.cancelled.is_set()


@pytest.mark.parametrize("versions", [HANDSHAKE_VERSIONS, MODERN_VERSIONS])
async def test_a_server_that_stops_while_tools_run(
    host: Host, world: ToolApp, ward: Ward, versions: tuple[str, ...]
) -> None:
    async def caller() -> None:
        with pytest.raises((Disconnected, SessionLost, RequestRefused)):
            await client.call_tool("hang")

    with trio.fail_after(PATIENCE):
        with host.serve(asgi_app(world.app, versions=versions, graceful_timeout=0.01)) as url:
            async with (
                sansmcp_trio.connect(f"{url}/mcp", close_timeout=0.1, reconnect=POLICY) as client,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(caller)
                await trio.to_thread.run_sync(ward.begun.wait)
                await trio.to_thread.run_sync(host.stop)
        assert ward.cancelled.is_set()


# What is no HTTP


def test_websockets_are_not_served(run: Run, world: ToolApp) -> None:
    async def main() -> None:
        asking = peer("echo")
        with pytest.raises(LocalProtocolError, match="websocket"):
            await asgi_app(world.app)({"type": "websocket"}, asking.receive, asking.send)

    run(main)


def test_settings_that_make_no_sense(world: ToolApp) -> None:
    with pytest.raises(LocalProtocolError):
        asgi_app(world.app, path="nowhere")
