"""Real clients, a bridge and real servers, on asyncio."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp import CallError, JsonRpcError, LocalProtocolError
from sansmcp.events import ProgressReceived, ServerNotified
from sansmcp.relay import ToolFilter
from sansmcp.skills import EXTENSION
from sansmcp.types import HTTP_SSE
from sansmcp_asyncio import Call
from sansmcp_bridge import Bridge, Upstream, open_bridge
from sansmcp_cli.example import app as example

from ..asyncio.loops import run
from ..cli.conftest import command

LOCAL = ("127.0.0.1", 0)
OLD, NEW = "2025-11-25", "2026-07-28"
EXAMPLE = [sys.executable, "-m", "sansmcp_cli", "serve", "--stdio"]
PATIENCE = 30.0

ASKED: Mapping[str, Any] = {"elicitation": {}, "sampling": {}}


def elicit(request: sansmcp.ServerRequest) -> dict[str, Any]:
    return {"action": "accept", "content": {"topic": "sea"}}


def sample(request: sansmcp.ServerRequest) -> dict[str, Any]:
    text = {"type": "text", "text": "waves"}
    return {"role": "assistant", "model": "m", "content": text}


ANSWERS = {"elicitation/create": elicit, "sampling/createMessage": sample}


async def until(is_done: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not is_done():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), PATIENCE)


def named(name: str, *tools: str, **settings: Any) -> sansmcp.App:
    """A server whose tools, prompts and resources tell its name."""
    app = sansmcp.App(name, instructions=f"Ask {name}.", **settings)

    @app.handler("tools/list")
    def list_tools(call: Call) -> Any:
        if "cursor" in (call.params or {}):
            return {"tools": [{"name": tools[-1], "inputSchema": {"type": "object"}}]}
        first = [{"name": tool, "inputSchema": {"type": "object"}} for tool in tools[:-1]]
        return {"tools": first, "nextCursor": "2"}

    @app.handler("tools/call")
    async def call_tool(call: Call) -> Any:
        if call.params["name"] == "headers":
            return {"content": [], "structuredContent": dict(call.headers)}
        text = f"{name}: {call.params['name']}"
        return {"content": [{"type": "text", "text": text}]}

    @app.handler("prompts/list")
    def list_prompts(call: Call) -> Any:
        return {"prompts": [{"name": f"{name}-prompt", "description": "x"}]}

    @app.handler("prompts/get")
    def get_prompt(call: Call) -> Any:
        return {"messages": [], "description": name}

    @app.handler("resources/list")
    def list_resources(call: Call) -> Any:
        return {"resources": [{"uri": f"{name}://a", "name": "a"}]}

    @app.handler("resources/templates/list")
    def list_templates(call: Call) -> Any:
        return {"resourceTemplates": [{"uriTemplate": f"{name}://by/{{id}}", "name": "t"}]}

    @app.handler("resources/read")
    def read(call: Call) -> Any:
        return {"contents": [{"uri": call.params["uri"], "text": name}]}

    @app.handler("completion/complete")
    def complete(call: Call) -> Any:
        return {"completion": {"values": [name]}}

    return app


async def text_of(client: sansmcp_asyncio.Client, tool: str) -> str:
    result = await client.call_tool(tool)
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("up", ["http", "http+sse", "stdio", "modern"])
@pytest.mark.parametrize("down", ["2024-11-05", OLD, NEW, "http+sse", "stdio"])
def test_pairs_of_transports_and_revisions(down: str, up: str) -> None:
    """A call with progress, one that asks twice, a large one and one that fails."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            target: Any = EXAMPLE
            settings: Any = {}
            if up != "stdio":
                versions = (NEW,) if up == "modern" else (OLD, "2024-11-05")
                sse = "/sse" if up == "http+sse" else None
                serving = sansmcp_asyncio.serve(
                    example, http=LOCAL, versions=versions, http_sse=sse
                )
                target = (await stack.enter_async_context(serving)).url
            if up == "http+sse":
                target = target.replace("/mcp", "/sse")
                settings = {"transports": (HTTP_SSE,)}
            options: Any = {"versions": (down,)}
            place: Any
            if down == "stdio":
                options = {"versions": (OLD,)}
                words = [target] if isinstance(target, str) else ["--", *target]
                place = command("bridge", "--to", "stdio", *words)
            else:
                upstreams = [Upstream("x", target, settings)]
                opening = open_bridge(upstreams, http=LOCAL, http_sse="/sse")
                place = (await stack.enter_async_context(opening)).url
            if down == "http+sse":
                options = {"versions": ("2024-11-05",), "transports": (HTTP_SSE,)}
                place = place.replace("/mcp", "/sse")
            connecting = sansmcp_asyncio.connect(
                place, request_handlers=ANSWERS, capabilities=ASKED, **options
            )
            client = await stack.enter_async_context(connecting)
            assert client.connected.server_info["name"] == "sansmcp-example"
            reports: list[ProgressReceived] = []
            done = await client.call_tool(
                "slow", {"steps": 3, "delay": 0.01}, on_progress=reports.append
            )
            assert done["content"][0]["text"] == "3 steps done"
            assert [each.progress for each in reports] == [1, 2, 3]
            asked = await client.call_tool("ask")
            assert asked["content"][0]["text"] == "sea: waves"
            big = await client.call_tool("big", {"bytes": 1_000_000})
            assert len(big["content"][0]["text"]) == 1_000_000
            assert (await client.call_tool("fail"))["isError"]
            with pytest.raises(JsonRpcError, match="There is no tool"):
                await client.call_tool("nothing")

    run(main())


def bridged(
    apps: Mapping[str, sansmcp.App],
    use: Callable[[Bridge, list[sansmcp_asyncio.RunningServer]], Coroutine[Any, Any, None]],
    **settings: Any,
) -> None:
    """Serve some applications, and use a bridge in front of them."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            serving = [
                await stack.enter_async_context(sansmcp_asyncio.serve(app, http=LOCAL))
                for app in apps.values()
            ]
            upstreams = [Upstream(name, each.url) for name, each in zip(apps, serving, strict=True)]
            opening = open_bridge(upstreams, http=LOCAL, **settings)
            await use(await stack.enter_async_context(opening), serving)

    run(main())


@pytest.mark.parametrize("version", [OLD, NEW])
def test_several_servers_become_one(version: str) -> None:
    """Only names that two servers have are prefixed."""

    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url, versions=(version,)) as client:
            assert client.connected.instructions == "one: Ask one.\n\ntwo: Ask two."
            listed = [tool["name"] for tool in (await client.list_tools())["tools"]]
            assert listed == ["a", "one_same", "b", "two_same"]
            for tool, text in (("a", "one: a"), ("two_same", "two: same"), ("b", "two: b")):
                assert await text_of(client, tool) == text
            with pytest.raises(JsonRpcError, match="Unknown tool: same"):
                await client.call_tool("same")
            prompts = (await client.list_prompts())["prompts"]
            assert [each["name"] for each in prompts] == ["one-prompt", "two-prompt"]
            assert (await client.get_prompt("two-prompt")).get("description") == "two"
            for uri in ("two://a", "two://by/7"):
                assert (await client.read_resource(uri))["contents"][0].get("text") == "two"
            with pytest.raises(JsonRpcError, match="Unknown uri"):
                await client.read_resource("three://a")
            for reference in (
                {"type": "ref/prompt", "name": "two-prompt"},
                {"type": "ref/resource", "uri": "two://by/{id}"},
            ):
                argument = {"name": "id", "value": "1"}
                params = {"ref": reference, "argument": argument}
                completed = await client.call("completion/complete", params)
                assert completed["completion"]["values"] == ["two"]
            with pytest.raises(JsonRpcError, match="name to complete"):
                await client.call(
                    "completion/complete",
                    {"ref": {"type": "ref/prompt", "name": 1}, "argument": argument},
                )
            with pytest.raises(JsonRpcError, match="Method not found"):
                await client.call("com.example/odd")

    bridged({"one": named("one", "a", "same"), "two": named("two", "b", "same")}, use)


def shown(name: str, tool: str, page: str) -> sansmcp.App:
    """A server with a tool that a page shows, which is in no list (SEP-1865)."""
    app = sansmcp.App(name)

    @app.handler("tools/list")
    def list_tools(call: Call) -> Any:
        meta = {"ui": {"resourceUri": page}}
        return {"tools": [{"name": tool, "inputSchema": {"type": "object"}, "_meta": meta}]}

    @app.handler("resources/read")
    def read(call: Call) -> Any:
        meta = {"ui": {"prefersBorder": True}}
        return {"contents": [{"uri": call.params["uri"], "text": name, "_meta": meta, "new": 1}]}

    return app


def test_the_page_of_a_tool_is_read_from_the_server_of_the_tool() -> None:
    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url) as client:
            tools = (await client.list_tools())["tools"]
            pages = [tool.get("_meta", {})["ui"]["resourceUri"] for tool in tools]
            assert pages == ["ui://one/view", "ui://both/view", "ui://both/view"]
            found = (await client.read_resource("ui://one/view"))["contents"]
            meta = {"ui": {"prefersBorder": True}}
            assert found == [{"uri": "ui://one/view", "text": "one", "_meta": meta, "new": 1}]
            with pytest.raises(JsonRpcError, match="not clear"):
                await client.read_resource("ui://both/view")
            with pytest.raises(JsonRpcError, match="Unknown uri"):
                await client.read_resource("ui://none/view")

    apps = {
        "one": shown("one", "a", "ui://one/view"),
        "two": shown("two", "b", "ui://both/view"),
        "three": shown("three", "c", "ui://both/view"),
    }
    bridged(apps, use)


def _claims(listed: dict[str, Any], call: Call) -> dict[str, Any]:
    return listed


def claiming(**claims: Any) -> sansmcp.App:
    """A server that says that pages of others are its own: in lists, by method."""
    app = sansmcp.App("claiming", capabilities={"extensions": {EXTENSION: {}}})
    for method, member in (
        ("skills/list", "skills"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        app.handler(method)(partial(_claims, {member: claims.get(member, [])}))

    @app.handler("resources/read")
    def read(call: Call) -> Any:
        return {"contents": [{"uri": call.params["uri"], "text": "claimed"}]}

    return app


@pytest.mark.parametrize(
    "claims",
    [
        {"resourceTemplates": [{"uriTemplate": "ui://one/{+all}", "name": "all"}]},
        {"resources": [{"uri": "ui://one/view", "name": "view"}]},
        {"skills": [{"uri": "ui://one/SKILL.md"}]},
    ],
    ids=str,
)
def test_no_server_has_the_page_of_a_tool_of_another(claims: Any) -> None:
    """Nothing that a server lists puts its page in place of the one of another server's tool."""

    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url) as client:
            await client.list_tools()
            assert (await client.list_resources())["resources"] == []
            found = await client.read_resource("ui://one/view")
            assert found["contents"][0].get("text") == "one"

    bridged({"one": shown("one", "a", "ui://one/view"), "claiming": claiming(**claims)}, use)


def test_a_skill_of_another_server_does_not_have_what_a_server_lists() -> None:
    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url) as client:
            with pytest.raises(JsonRpcError, match="listed by: claiming, one"):
                await client.read_resource("one://a")

    skills = [{"uri": "one://a/SKILL.md"}]
    bridged({"one": named("one", "a"), "claiming": claiming(skills=skills)}, use)


def test_a_server_that_is_away_is_left_out() -> None:
    lines: list[str] = []

    async def main() -> None:
        async with sansmcp_asyncio.serve(named("one", "a"), http=LOCAL) as serving:
            upstreams = [Upstream("one", serving.url), Upstream("gone", ["false"])]
            async with (
                open_bridge(upstreams, http=LOCAL, log=lines.append) as bridge,
                sansmcp_asyncio.connect(bridge.url) as client,
            ):
                assert await text_of(client, "a") == "one: a"
        with pytest.raises(CallError):
            async with open_bridge([Upstream("gone", ["false"])], http=LOCAL):
                pass

    run(main())
    assert [line for line in lines if line.startswith("gone is left out: ")]


def test_a_list_without_an_end_is_cut() -> None:
    lines: list[str] = []
    endless, circle = sansmcp.App("endless"), sansmcp.App("circle")

    @endless.handler("tools/list")
    def list_more_and_more(call: Call) -> Any:
        number = int((call.params or {}).get("cursor", "0")) + 1
        tool = {"name": "again", "inputSchema": {"type": "object"}}
        return {"tools": [tool], "nextCursor": str(number)}

    @circle.handler("tools/list")
    def list_in_circles(call: Call) -> Any:
        tool = {"name": "round", "inputSchema": {"type": "object"}}
        return {"tools": [tool], "nextCursor": "round"}

    async def use(bridge: Bridge, serving: list[sansmcp_asyncio.RunningServer]) -> None:
        async with sansmcp_asyncio.connect(bridge.url) as client:
            listed = await client.list_tools()
            assert [tool["name"] for tool in listed["tools"]] == ["a", "again", "round"]

    apps = {"one": named("one", "a"), "endless": endless, "circle": circle}
    bridged(apps, use, log=lines.append)
    assert "circle: tools/list repeats a cursor; the rest is left out" in lines
    assert "endless: tools/list has more than 100 pages; the rest is left out" in lines


def test_names_of_servers_must_differ() -> None:
    for upstreams in ([], [Upstream("a", "http://a/"), Upstream("a", "http://b/")]):
        with pytest.raises(LocalProtocolError, match="different names"):
            open_bridge(upstreams, http=LOCAL)


def test_tools_that_are_left_out() -> None:
    tools = ToolFilter(deny=("*same",))

    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url) as client:
            listed = [tool["name"] for tool in (await client.list_tools())["tools"]]
            assert "a" in listed
            assert not [name for name in listed if "same" in name]
            for name in ("same", "one_same"):
                with pytest.raises(JsonRpcError, match="Unknown tool"):
                    await client.call_tool(name)

    bridged({"one": named("one", "a", "same")}, use, tools=tools)
    apps = {"one": named("one", "a", "same"), "two": named("two", "same")}
    bridged(apps, use, tools=tools)


def test_headers_of_clients_stay_here() -> None:
    """Above all the token of a client, which is for the bridge."""

    async def use(bridge: Bridge, _: Any) -> None:
        headers = {"Authorization": "Bearer secret", "X-Mine": "1"}
        async with sansmcp_asyncio.connect(bridge.url, headers=headers) as client:
            seen = (await client.call_tool("headers"))["structuredContent"]
            assert seen
            assert not {name.lower() for name in seen} & {"authorization", "x-mine"}

    bridged({"one": named("one", "headers")}, use)


@pytest.mark.parametrize("shared", [True, False])
def test_sessions_of_their_own_or_a_shared_one(shared: bool) -> None:
    async def use(bridge: Bridge, serving: list[sansmcp_asyncio.RunningServer]) -> None:
        core = serving[0].core
        assert bridge.core.limits.max_sessions == (10_000 if shared else 100)
        before = len(core.sessions)
        async with (
            sansmcp_asyncio.connect(bridge.url, versions=(OLD,), name="me") as first,
            sansmcp_asyncio.connect(bridge.url, versions=(OLD,), capabilities=ASKED) as second,
        ):
            for client in (first, second):
                assert await text_of(client, "a") == "one: a"
            sessions = core.sessions[before:]
            assert len(sessions) == (0 if shared else 2)
            if not shared:
                assert sessions[0].client_info["name"] == "me (via sansmcp)"
                assert [dict(each.client_capabilities) for each in sessions] == [{}, ASKED]
        await until(lambda: len(core.sessions) == before)

    async def main() -> None:
        versions = (OLD,)
        async with (
            sansmcp_asyncio.serve(named("one", "a"), http=LOCAL, versions=versions) as serving,
            open_bridge([Upstream("one", serving.url)], shared=shared, http=LOCAL) as bridge,
        ):
            await use(bridge, [serving])

    run(main())


REVISION_SERVER = """
import asyncio, sys, sansmcp, sansmcp_asyncio
app = sansmcp.App("one")
@app.handler("tools/call")
async def call_tool(call):
    return {"content": [{"type": "text", "text": call.peer.revision.name}]}
asyncio.run(sansmcp_asyncio.serve(app, stdio=True, versions=sys.argv[1:]))
"""


@pytest.mark.parametrize("served", [(OLD,), (OLD, NEW), (NEW,)])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("has_url", [True, False])
def test_a_session_has_its_handshake_with_the_server_if_that_has_one(
    served: Any, shared: bool, has_url: bool
) -> None:
    server = [sys.executable, "-c", REVISION_SERVER, *served]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            target: Any = server
            if has_url:
                running = sansmcp_asyncio.serve(revision_app(), http=LOCAL, versions=served)
                target = (await stack.enter_async_context(running)).url
            async with (
                open_bridge([Upstream("one", target)], http=LOCAL, shared=shared) as bridge,
                sansmcp_asyncio.connect(bridge.url, versions=(OLD,)) as client,
            ):
                assert await text_of(client, "a") == served[-1 if shared else 0]

    run(main())


def revision_app() -> sansmcp.App:
    app = sansmcp.App("one")

    @app.handler("tools/call")
    async def call_tool(call: Call) -> Any:
        text = {"type": "text", "text": call.peer.revision.name}
        if call.params["name"] == "ask":
            await call.ask("elicitation/create", FORM)
        return {"content": [text]}

    return app


FORM: Any = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("down", ["http", "stdio"])
def test_a_server_that_asks_in_the_old_way_reaches_old_clients(down: str) -> None:
    """It cannot ask so at 2026-07-28, which it also serves."""

    async def main() -> None:
        async with (
            sansmcp_asyncio.serve(revision_app(), http=LOCAL) as serving,
            open_bridge([Upstream("one", serving.url)], http=LOCAL) as bridge,
        ):
            target = bridge.url if down == "http" else command("bridge", serving.url)
            for version, can_be_asked in ((OLD, True), (NEW, False)):
                async with sansmcp_asyncio.connect(
                    target, versions=(version,), capabilities=ASKED, request_handlers=ANSWERS
                ) as client:
                    assert await text_of(client, "a") == version
                    try:
                        assert await text_of(client, "ask") == version
                    except JsonRpcError:
                        assert not can_be_asked

    run(main())


@pytest.mark.parametrize(("delay", "kind"), [(0, "application/json"), (0.2, "text/event-stream")])
def test_a_result_that_comes_soon_is_json(
    delay: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not delay:  # a busy machine may take longer than the default
        monkeypatch.setattr("sansmcp_bridge._bridge._STREAM_AFTER", 30.0)
    app = sansmcp.App("one")

    @app.handler("tools/call")
    async def call_tool(call: Call) -> Any:
        await asyncio.sleep(delay)
        return {"content": []}

    async def use(bridge: Bridge, _: Any) -> None:
        info = {"name": "c", "version": "1"}
        headers = {"accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:

            async def post(method: str, params: Mapping[str, Any]) -> httpx.Response:
                message: Any = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                return await client.post(bridge.url, json=message)

            params = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": info}
            session = (await post("initialize", params)).headers["mcp-session-id"]
            client.headers["mcp-session-id"] = session
            got = await post("tools/call", {"name": "a", "arguments": {}})
        assert got.headers["content-type"] == kind
        assert '"content":[]' in got.text

    bridged({"one": app}, use)


def test_the_upstream_connection_of_an_idle_session_ends() -> None:
    """So do processes. The client, which opens a new session then, sees nothing of it."""

    async def main() -> None:
        limits = sansmcp.Limits(session_idle_timeout=0.2)
        app = named("one", "a")
        async with (
            sansmcp_asyncio.serve(app, http=LOCAL, versions=(OLD,)) as serving,
            open_bridge([Upstream("one", serving.url)], http=LOCAL, limits=limits) as bridge,
        ):
            core = serving.core
            before = len(core.sessions)
            quiet: Any = {"versions": (OLD,), "standalone_stream": False}
            async with sansmcp_asyncio.connect(bridge.url, **quiet) as client:
                await until(lambda: len(core.sessions) == before)
                await client.list_tools()

    run(main())


@pytest.mark.parametrize("down", [OLD, NEW])
@pytest.mark.parametrize("up", [OLD, NEW])
def test_a_changed_list(down: str, up: str) -> None:
    changes = {"tools": {"listChanged": True}}

    async def main() -> None:
        app = named("one", "a", capabilities=changes)
        async with (
            sansmcp_asyncio.serve(app, http=LOCAL, versions=(up,)) as serving,
            open_bridge([Upstream("one", serving.url)], http=LOCAL) as bridge,
            sansmcp_asyncio.connect(bridge.url, versions=(down,)) as client,
        ):
            events = client.events()
            listening = None
            if down == NEW:
                wanted = {"notifications": {"toolsListChanged": True}}
                listening = asyncio.ensure_future(client.call("subscriptions/listen", wanted))
            await client.list_tools()

            async def publish() -> None:
                while True:  # the listeners need a moment
                    serving.publish("notifications/tools/list_changed")
                    await asyncio.sleep(0.05)

            publishing = asyncio.create_task(publish())
            async for event in events:
                if isinstance(event, ServerNotified):
                    break
            publishing.cancel()
            await events.aclose()
            if listening is not None:
                listening.cancel()
            await asyncio.wait([publishing, *([listening] if listening else [])])

    run(main())


@pytest.mark.parametrize("version", [OLD, NEW])
def test_tasks(version: str) -> None:
    """The task of the upstream server is one of the bridge for a client that can follow it."""
    app = sansmcp.App("one")

    @app.handler("tools/call", task=0.01)
    async def call_tool(call: Call) -> Any:
        await asyncio.sleep(0.1)
        return {"content": [{"type": "text", "text": "done"}]}

    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url, versions=(version,)) as client:
            assert await text_of(client, "x") == "done"
            if version == NEW:
                task = await client.start_task("x")
                assert task.id is not None
                assert (await task.result())["content"][0]["text"] == "done"

    bridged({"one": app}, use)


def test_a_cancelled_call_is_cancelled_upstream() -> None:
    app = sansmcp.App("one")
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.handler("tools/call")
    async def call_tool(call: Call) -> Any:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.set()

    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url) as client:
            calling = asyncio.ensure_future(client.call_tool("x"))
            await begun.wait()
            calling.cancel()
            await asyncio.wait_for(ended.wait(), PATIENCE)
            await asyncio.wait([calling])

    bridged({"one": app}, use)


@pytest.mark.parametrize("up", [OLD, NEW])
def test_a_client_that_reads_nothing_stops_a_server_that_sends_much(up: str) -> None:
    """Without a store, nothing between them collects what the client leaves unread."""
    app = sansmcp.App("one")
    sent = 0
    text = "x" * 100_000

    @app.handler("tools/call")
    async def call_tool(call: Call) -> Any:
        nonlocal sent
        while True:
            await call.notify("notifications/message", {"level": "info", "data": text})
            sent += 1

    async def is_stopped() -> None:
        before = -1
        while sent == 0 or sent != before:
            before = sent
            await asyncio.sleep(1)

    async def main() -> None:
        async with (
            sansmcp_asyncio.serve(app, http=LOCAL, versions=(up,), resumable=False) as serving,
            open_bridge([Upstream("one", serving.url)], http=LOCAL) as bridge,
        ):
            where = sansmcp.Url.parse(bridge.url)
            _, writer = await asyncio.open_connection(where.host, where.port, limit=1000)
            prefix = "io.modelcontextprotocol/"
            meta: dict[str, Any] = {f"{prefix}protocolVersion": NEW, f"{prefix}logLevel": "info"}
            meta[f"{prefix}clientCapabilities"] = {}
            request = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "x", "_meta": meta},
            }
            body = json.dumps(request).encode()
            head = (
                f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {NEW}\r\n"
                f"Mcp-Method: tools/call\r\nMcp-Name: x\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await asyncio.wait_for(is_stopped(), PATIENCE)
            writer.transport.abort()
            await asyncio.sleep(0)  # it closes in the next step of the loop

    run(main())
    print(f"{sent} messages of {len(text)} bytes were sent")
    assert sent * len(text) < 50_000_000


DYING = """
import os, sys
import sansmcp, sansmcp_asyncio, asyncio
app = sansmcp.App("dying")

@app.handler("tools/call")
async def call_tool(call):
    print("called", file=sys.stderr, flush=True)
    if call.params["name"] == "end":
        os._exit(1)
    return {"content": [{"type": "text", "text": str(os.getpid())}]}

asyncio.run(sansmcp_asyncio.serve(app, stdio=True))
"""


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_process_that_dies_is_started_again(version: str, shared: bool) -> None:
    """The client keeps its session, and its next call waits for the new process."""
    lines: list[str] = []

    async def main() -> None:
        upstream = Upstream("dying", [sys.executable, "-c", DYING])
        async with (
            open_bridge([upstream], shared=shared, http=LOCAL, log=lines.append) as bridge,
            sansmcp_asyncio.connect(bridge.url, versions=(version,)) as client,
        ):
            seen = {await text_of(client, "pid")}
            for _ in range(2):
                with pytest.raises(JsonRpcError, match="gave no result"):
                    await client.call_tool("end")
                seen.add(await text_of(client, "pid"))
            assert len(seen) == 3

    run(main())
    assert "dying: called" in lines
    assert [line for line in lines if "the connection is lost" in line]


SILENT = """
import os, sys
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
if os.path.getsize(sys.argv[1]) > 8:  # not the first
    sys.stdin.read()
else:
    import asyncio, sansmcp, sansmcp_asyncio
    asyncio.run(sansmcp_asyncio.serve(sansmcp.App("silent"), stdio=True))
"""
INITIALIZE = {
    "protocolVersion": OLD,
    "capabilities": {},
    "clientInfo": {"name": "many", "version": "1"},
}


def test_many_sessions_start_few_processes(tmp_path: Path) -> None:
    """Each ``initialize`` replaces a session whose process has not responded yet."""
    file, most = tmp_path / "pids", 0

    def living() -> int:
        return sum(Path(f"/proc/{pid}").exists() for pid in file.read_text().split())

    async def initialize(url: str) -> None:
        nonlocal most
        async with httpx.AsyncClient() as client:
            body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
            headers = {"Accept": "application/json, text/event-stream"}
            response = await client.post(url, json=body, headers=headers)
        assert response.status_code == 200
        most = max(most, living())

    async def main() -> None:
        upstream = Upstream("silent", [sys.executable, "-c", SILENT, str(file)])
        limits = sansmcp.Limits(max_sessions=4)
        async with open_bridge([upstream], http=LOCAL, limits=limits) as bridge:
            for _ in range(30):
                await initialize(bridge.url)
            await until(lambda: living() == 1 + 4)

    run(main())
    assert most <= 1 + 4 + 1
    assert living() == 0
