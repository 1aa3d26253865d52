"""Conversations with the application under several servers, on asyncio and on trio."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_trio
from sansmcp import InputRequest, InputRequired, JsonRpcError, RequestRefused
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS, REVISIONS
from sansmcp_asgi import Call, asgi_app
from sansmcp_local import current_loop

from ..tool_app import ToolApp
from .conftest import Host
from .loops import PATIENCE


async def test_calls_at_every_revision(host: Host, world: ToolApp) -> None:
    with host.serve(asgi_app(world.app)) as url, trio.fail_after(PATIENCE):
        for version in REVISIONS:
            async with sansmcp_trio.connect(f"{url}/mcp", versions=(version,)) as client:
                assert client.connected.version == version
                result = await client.call_tool("echo", {"a": "ä\u2028"})
                assert result["echo"] == {"a": "ä\u2028"}
                assert [tool["name"] for tool in (await client.list_tools())["tools"]] == ["echo"]
                with pytest.raises(JsonRpcError) as caught:
                    await client.call("nope/nope")
                assert caught.value.code == -32601


async def test_http_sse(host: Host, world: ToolApp) -> None:
    app = asgi_app(world.app, http_sse="/sse")
    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/sse", transports=("http+sse",)) as client:
            assert await client.call_tool("echo", {"a": 1}) == {"echo": {"a": 1}}


async def test_many_large_messages_at_once(host: Host, world: ToolApp) -> None:
    text = "ö" * 500_000
    with host.serve(asgi_app(world.app)) as url, trio.fail_after(PATIENCE):
        async with (
            sansmcp_trio.connect(f"{url}/mcp") as client,
            trio.open_nursery() as nursery,
        ):

            async def caller(number: int) -> None:
                result = await client.call_tool("echo", {"text": f"{number}{text}"})
                assert result["echo"] == {"text": f"{number}{text}"}

            for number in range(10):
                nursery.start_soon(caller, number)


async def test_a_message_beyond_the_limit_is_refused(host: Host, world: ToolApp) -> None:
    app = asgi_app(world.app, limits=sansmcp.Limits(max_message_bytes=100_000))
    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/mcp") as client:
            with pytest.raises(RequestRefused) as caught:
                await client.call_tool("echo", {"text": "x" * 5_000_000})
            assert (caught.value.status, caught.value.reason) == (413, "message_too_large")
            assert (await client.call_tool("echo"))["echo"] == {}


async def test_a_client_that_is_let_go_comes_back(host: Host, world: ToolApp) -> None:
    """The handler goes on while no request is there."""
    reports: list[float] = []

    @world.tool
    async def work(call: Call) -> Any:
        await call.progress(1)
        await call.disconnect(retry=0.01)
        await call.progress(2)
        await current_loop().within(0.05, current_loop().event().wait)
        await call.progress(3)
        return {"done": True}

    app = asgi_app(world.app, versions=HANDSHAKE_VERSIONS)
    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/mcp") as client:
            result = await client.call_tool(
                "work", on_progress=lambda report: reports.append(report.progress)
            )
    assert result == {"done": True}
    assert reports == [1, 2, 3]


@pytest.mark.parametrize("versions", [HANDSHAKE_VERSIONS, MODERN_VERSIONS])
async def test_a_client_that_gives_up_cancels_the_tool(
    host: Host, world: ToolApp, versions: tuple[str, ...]
) -> None:
    cancelled = trio.Event()
    token = trio.lowlevel.current_trio_token()

    @world.tool
    async def hang(call: Call) -> Any:
        try:
            await call.progress(1)
            await current_loop().event().wait()
        finally:
            token.run_sync_soon(cancelled.set)

    with host.serve(asgi_app(world.app, versions=versions)) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/mcp") as client:
            with trio.CancelScope() as scope:
                await client.call_tool("hang", on_progress=lambda _: scope.cancel())
            await cancelled.wait()
            assert (await client.call_tool("echo"))["echo"] == {}


async def test_a_tool_asks_the_user(host: Host, world: ToolApp) -> None:
    @world.tool
    async def ask(call: Call) -> Any:
        return {"said": await call.ask("elicitation/create", {"message": "name?"})}

    @world.tool
    async def rounds(call: Call) -> Any:
        if not call.input_responses:
            return InputRequired({"who": InputRequest("elicitation/create", {})}, 1)
        return {"said": call.input_responses["who"], "saved": call.saved_state}

    async def elicit(request: sansmcp.ServerRequest) -> Any:
        return {"action": "decline"}

    settings: dict[str, Any] = {
        "request_handlers": {"elicitation/create": elicit},
        "capabilities": {"elicitation": {}},
    }
    with host.serve(asgi_app(world.app)) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(
            f"{url}/mcp", versions=HANDSHAKE_VERSIONS, **settings
        ) as client:
            assert await client.call_tool("ask") == {"said": {"action": "decline"}}
        async with sansmcp_trio.connect(
            f"{url}/mcp", versions=MODERN_VERSIONS, **settings
        ) as client:
            result = await client.call_tool("rounds")
            assert (result["said"], result["saved"]) == ({"action": "decline"}, 1)


async def test_what_is_published_reaches_those_who_listen(host: Host, world: ToolApp) -> None:
    app = asgi_app(world.app, versions=HANDSHAKE_VERSIONS)

    @world.tool
    async def change(call: Call) -> Any:
        app.publish("notifications/tools/list_changed")
        return {}

    with host.serve(app) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/mcp") as client:
            events = client.events()
            await client.call_tool("change")
            event: Any = await anext(events)
            assert event.notification.method == "notifications/tools/list_changed"
            await events.aclose()


async def test_a_tool_that_raises(
    host: Host, world: ToolApp, caplog: pytest.LogCaptureFixture
) -> None:
    @world.tool
    async def fail(call: Call) -> Any:
        raise ValueError("the password is hunter2")

    with host.serve(asgi_app(world.app)) as url, trio.fail_after(PATIENCE):
        async with sansmcp_trio.connect(f"{url}/mcp") as client:
            with pytest.raises(JsonRpcError, match="Internal error"):
                await client.call_tool("fail")
    assert "hunter2" in caplog.text
