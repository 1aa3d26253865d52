"""Client and server on trio, over real sockets."""

from __future__ import annotations

import json
import ssl
from typing import Any

import pytest
import trio
import trustme

import sansmcp
import sansmcp_trio
from sansmcp import (
    Disconnected,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)
from sansmcp.events import (
    ClientEvent,
    Closed,
    Connected,
    ProgressReceived,
    Reconnecting,
    ServerNotified,
    SessionExpired,
)
from sansmcp_trio import Call

from .conftest import Start, World

requirement = pytest.mark.requirement
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_calls_at_every_revision(start: Start, version: str) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url, versions=(version,)) as client:
        assert client.connected.version == version
        assert client.connected.server_info == {"name": "trio-tests", "version": "1"}
        assert await client.call_tool("echo", {"a": "ä\u2028"}) == {"echo": {"a": "ä\u2028"}}
        assert await client.list_tools() == {"tools": [{"name": "echo"}]}
        assert await client.ping() == {}
        with pytest.raises(JsonRpcError) as caught:
            await client.call("nope/nope")
        assert caught.value.code == -32601
    assert serving.core.sessions == ()


async def test_many_callers_at_once(start: Start, world: World) -> None:
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
    text = "ö" * 5_000_000
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


async def test_progress_arrives_while_the_tool_works(start: Start, world: World) -> None:
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


@requirement("POLL-C-002", "POLL-S-003", "POLL-C-003")
async def test_the_server_lets_go_and_the_client_comes_back(start: Start, world: World) -> None:
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
    policy = sansmcp.ReconnectPolicy(initial=0.01)
    async with sansmcp_trio.connect(serving.url, reconnect=policy) as client:

        async def watch() -> None:
            async for event in client.events():
                events.append(event)
                if isinstance(event, Reconnecting):
                    back.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            result = await client.call_tool(
                "work", on_progress=lambda report: reports.append(report.progress)
            )
            nursery.cancel_scope.cancel()
    assert result == {"done": True}
    assert reports == [1, 2]
    assert any(isinstance(event, Reconnecting) for event in events)


@requirement("LIFECYCLE-C-008", "SHTTP-S-012")
async def test_a_tool_asks_the_user(start: Start, world: World) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        first = await call.ask("elicitation/create", {"message": "name?"})
        try:
            await call.ask("elicitation/create", {"message": "fail"})
        except JsonRpcError as error:
            return {"first": first, "second": error.message}
        raise AssertionError("no error")

    async def elicit(params: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if params["message"] == "fail":
            raise JsonRpcError(-1, "declined")
        return {"action": "accept", "content": {"name": "Ada"}}

    serving = await start()
    async with sansmcp_trio.connect(
        serving.url, answers={"elicitation/create": elicit}, capabilities={"elicitation": {}}
    ) as client:
        result = await client.call_tool("ask")
    assert result == {
        "first": {"action": "accept", "content": {"name": "Ada"}},
        "second": "declined",
    }


async def test_what_nobody_answers_is_declined(
    start: Start, world: World, caplog: pytest.LogCaptureFixture
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
        return codes

    async def broken(params: Any) -> Any:
        raise RuntimeError("secret")

    serving = await start()
    async with sansmcp_trio.connect(
        serving.url, answers={"elicitation/create": broken}, capabilities={"elicitation": {}}
    ) as client:
        assert await client.call_tool("ask") == [-32601, -32603]
    assert "answering elicitation/create failed" in caplog.text


async def test_a_question_that_is_withdrawn_stops_its_answerer(start: Start, world: World) -> None:
    stopped = trio.Event()

    @world.tool
    async def ask(call: Call) -> Any:
        try:
            await call.ask("elicitation/create", timeout=0.01)
        except RequestTimeout:
            await stopped.wait()
            return {"late": True}
        raise AssertionError("no timeout")

    async def slow(params: Any) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()

    serving = await start()
    async with sansmcp_trio.connect(
        serving.url, answers={"elicitation/create": slow}, capabilities={"elicitation": {}}
    ) as client:
        assert await client.call_tool("ask") == {"late": True}


async def test_notifications_reach_the_client(start: Start, world: World) -> None:
    @world.tool
    async def notify(call: Call) -> dict[str, Any]:
        await call.notify("notifications/message", {"level": "info", "data": "x"})
        call.session.notify("notifications/tools/list_changed", now=trio.current_time())
        return {}

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        names: list[str] = []
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for event in client.events():
                    assert isinstance(event, ServerNotified)
                    names.append(event.notification.method)
                    if len(names) == 2:
                        nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await client.call_tool("notify")
            await client.notify("notifications/roots/list_changed")
        assert sorted(names) == ["notifications/message", "notifications/tools/list_changed"]


# Failures


async def test_a_tool_that_raises(
    start: Start, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    @world.tool
    async def fail(call: Call) -> Any:
        raise ValueError("the password is hunter2")

    @world.tool
    async def no_json(call: Call) -> Any:
        return object()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        for name in ("fail", "no_json", "unknown"):
            with pytest.raises(JsonRpcError) as caught:
                await client.call_tool(name)
            assert (caught.value.code, caught.value.message) == (-32603, "Internal error")
    assert "hunter2" in caplog.text


@requirement("LIFECYCLE-B-006")
async def test_a_call_that_takes_too_long(start: Start, world: World) -> None:
    cancelled = trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("hang", timeout=0.05)
        await cancelled.wait()
        assert await client.call_tool("echo") == {"echo": {}}


@requirement("SHTTP-C-008", "CANCEL-B-003")
async def test_cancelling_the_caller_cancels_the_handler(start: Start, world: World) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hang")
            await begun.wait()
            nursery.cancel_scope.cancel()
        await cancelled.wait()
        assert await client.call_tool("echo") == {"echo": {}}


async def test_a_session_that_the_server_ends(start: Start) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        assert await client.call_tool("echo") == {"echo": {}}
        first = client.connected
        (session,) = serving.core.sessions
        serving.core.end_session(session, "test", now=trio.current_time())
        serving.settle()
        events = client.events()
        with pytest.raises(SessionLost):
            await client.call_tool("echo")
        assert await client.call_tool("echo") == {"echo": {}}
        seen: list[type] = []
        while Connected not in seen:
            seen.append(type(await events.__anext__()))
        assert SessionExpired in seen
        assert client.connected is first
        assert await client.list_tools() == {"tools": [{"name": "echo"}]}
        await events.aclose()
    assert serving.core.sessions == ()


async def test_nobody_is_there() -> None:
    with pytest.raises(Disconnected, match="refused"):
        async with sansmcp_trio.connect("http://127.0.0.1:1/mcp"):
            raise AssertionError("connected")


async def test_another_server_is_there(nursery: trio.Nursery) -> None:
    async def web_server(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello")
        await stream.aclose()

    listeners = await nursery.start(trio.serve_tcp, web_server, 0)
    port = listeners[0].socket.getsockname()[1]
    with pytest.raises(RequestRefused, match="HTTP 404: hello"):
        async with sansmcp_trio.connect(f"http://127.0.0.1:{port}/"):
            raise AssertionError("connected")
    nursery.cancel_scope.cancel()


async def test_what_is_raised_inside_comes_out_as_it_is(start: Start) -> None:
    serving = await start()

    class Mine(Exception):
        pass

    mine = Mine("x")
    with pytest.raises(Mine) as caught:
        async with sansmcp_trio.connect(serving.url):
            raise mine
    assert caught.value is mine
    assert caught.value.__context__ is None
    assert serving.core.sessions == ()


async def test_closing_from_another_task(start: Start, world: World) -> None:
    begun = trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        begun.set()
        await trio.sleep_forever()

    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:

        async def close() -> None:
            await begun.wait()
            await client.aclose()
            await client.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with pytest.raises(RequestCancelled, match="closed"):
                await client.call_tool("hang")
        with pytest.raises(LocalProtocolError, match="closed"):
            await client.call_tool("echo")
        assert [type(event) async for event in client.events()] == []


async def test_events_end_with_the_client(start: Start) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url) as client:
        events = client.events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.aclose)
            seen = [event async for event in events]
        assert isinstance(seen[-1], Closed)


async def test_events_that_nobody_takes_stop_the_reading(start: Start, world: World) -> None:
    """The server is held up, and goes on when somebody takes them; nothing is lost."""

    @world.tool
    async def chatter(call: Call) -> dict[str, Any]:
        for number in range(200):
            await call.notify("n", {"number": number, "text": "x" * 2000})
        return {}

    serving = await start(resumable=False, limits=Limits(max_unsent_bytes=10_000))
    async with sansmcp_trio.connect(serving.url, limits=Limits(max_queued_events=5)) as client:
        events = client.events()
        numbers: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "chatter")
            async for event in events:
                assert isinstance(event, ServerNotified)
                assert event.notification.params is not None
                numbers.append(event.notification.params["number"])
                await trio.lowlevel.checkpoint()
                if len(numbers) == 200:
                    break
        await events.aclose()
    assert numbers == list(range(200))


# The network


async def test_a_server_over_tls(start: Start) -> None:
    authority = trustme.CA()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)
    client_context = ssl.create_default_context()
    authority.configure_trust(client_context)
    serving = await start(ssl_context=server_context)
    assert serving.url.startswith("https://127.0.0.1:")
    async with sansmcp_trio.connect(serving.url, ssl_context=client_context) as client:
        for _ in range(3):
            assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}
    with pytest.raises(Disconnected, match="certificate verify failed"):
        async with sansmcp_trio.connect(serving.url):
            raise AssertionError("connected")


async def raw(serving: sansmcp_trio.Serving) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", sansmcp.Url.parse(serving.url).port)


async def test_connections_are_used_again(start: Start) -> None:
    serving = await start()
    async with sansmcp_trio.connect(serving.url, listen=False) as client:
        for _ in range(10):
            await client.call_tool("echo")
        assert len(serving.drivers) == 1


async def test_a_connection_that_the_server_has_closed_is_not_used_again(start: Start) -> None:
    serving = await start(limits=Limits(keep_alive_timeout=0.01))
    async with sansmcp_trio.connect(serving.url, listen=False) as client:
        for _ in range(3):
            await client.call_tool("echo")
            while serving.drivers:
                await serving.clock.moved.wait()


@pytest.mark.parametrize("data", [b"", b"GET", b"\x16\x03\x01", b"POST /mcp HTTP/1.1\r\nhost: a"])
async def test_clients_that_leave_leave_nothing(start: Start, data: bytes) -> None:
    serving = await start()
    for _ in range(20):
        stream = await raw(serving)
        if data:
            await stream.send_all(data)
        await trio.aclose_forcefully(stream)
    async with sansmcp_trio.connect(serving.url) as client:
        assert await client.call_tool("echo") == {"echo": {}}
    while serving.drivers:
        await serving.clock.moved.wait()


async def test_a_peer_that_takes_nothing_is_dropped(start: Start, world: World) -> None:
    @world.tool
    async def chatter(call: Call) -> dict[str, Any]:
        for _ in range(100):
            await call.notify("n", {"text": "x" * 100_000})
        return {}

    serving = await start(limits=Limits(send_timeout=0.2))
    async with sansmcp_trio.connect(serving.url) as client:
        (session,) = serving.core.sessions
        assert session.id is not None
        body = json.dumps(
            {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "chatter"}}
        )
        stream = await raw(serving)
        await stream.send_all(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n"
            b"content-type: application/json\r\nmcp-session-id: "
            + session.id.reveal().encode()
            + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body.encode()
        )
        others = len(serving.drivers)
        while len(serving.drivers) == others:
            await serving.clock.moved.wait()
        assert await client.call_tool("echo") == {"echo": {}}
        await stream.aclose()


# Stopping


async def test_stopping_lets_calls_end_and_ends_streams(start: Start, world: World) -> None:
    begun, go_on = trio.Event(), trio.Event()

    @world.tool
    async def work(call: Call) -> dict[str, Any]:
        await call.progress(1)
        begun.set()
        await go_on.wait()
        return {"done": True}

    serving = await start()
    results: list[Any] = []
    async with sansmcp_trio.connect(serving.url) as client:

        async def caller() -> None:
            results.append(await client.call_tool("work"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller)
            await begun.wait()
            serving.stop()
            go_on.set()
        assert results == [{"done": True}]
        while serving.drivers:
            await serving.clock.moved.wait()
        with pytest.raises((Disconnected, RequestRefused, SessionLost)):
            await client.call_tool("echo", timeout=5)


async def test_stopping_does_not_wait_for_ever(start: Start, world: World) -> None:
    begun, cancelled = trio.Event(), trio.Event()

    @world.tool
    async def hang(call: Call) -> Any:
        await call.progress(1)
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    serving = await start(grace=0.05)
    policy = sansmcp.ReconnectPolicy(initial=0.01, attempts=2)
    async with sansmcp_trio.connect(serving.url, reconnect=policy) as client:
        async with trio.open_nursery() as nursery:

            async def caller() -> None:
                with pytest.raises((Disconnected, SessionLost)):
                    await client.call_tool("hang")

            nursery.start_soon(caller)
            await begun.wait()
            serving.stop()
        await cancelled.wait()


async def test_cancelling_the_server_stops_it_properly(world: World) -> None:
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[sansmcp_trio.Serving]) -> None:
            await sansmcp_trio.serve(
                world.app, http=("127.0.0.1", 0), grace=1, task_status=task_status
            )

        serving: sansmcp_trio.Serving = await nursery.start(serve)
        async with sansmcp_trio.connect(serving.url) as client:
            assert await client.call_tool("echo") == {"echo": {}}
        nursery.cancel_scope.cancel()
    assert serving.has_ended
    assert not serving.drivers


async def test_an_address_that_cannot_be_bound(start: Start, world: World) -> None:
    serving = await start()
    port = sansmcp.Url.parse(serving.url).port
    with pytest.raises(OSError, match="in use"):
        await sansmcp_trio.serve(world.app, http=("127.0.0.1", port))
