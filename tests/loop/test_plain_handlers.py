"""Plain handlers run in threads, on every adapter, with the same methods of their calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp import CallError, JsonRpcError
from sansmcp.events import ServerNotified
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_local import ThreadCall

from ..asgi.conftest import Host as AsgiHost
from ..asgi.test_check_adapter import AsgiServers
from ..asyncio.adapter_under_test import AsyncioServers
from ..blocking.adapter_under_test import BlockingServers
from ..trio.adapter_under_test import TrioServers
from ..wsgi.conftest import Host as WsgiHost
from ..wsgi.test_check_adapter import WsgiServers

MANY = 100
SOME = 30
PATIENCE = 60.0

SUBJECTS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioServers("asyncio"),
    "uvloop": lambda: AsyncioServers("uvloop"),
    "trio": TrioServers,
    "blocking": BlockingServers,
    "asgi-asyncio": lambda: AsgiServers(AsgiHost("uvicorn")),
    "asgi-trio": lambda: AsgiServers(AsgiHost("hypercorn-trio")),
    "wsgi": lambda: WsgiServers(WsgiHost("werkzeug")),
}
LOOPS = [name for name in SUBJECTS if name not in ("blocking", "wsgi")]

Serve = Callable[..., Any]


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Serve an application by the adapter under test."""
    running: list[Any] = []

    def serve(app: sansmcp.App, **settings: Any) -> Any:
        options = {"resumable": True, "graceful_timeout": 1.0, "threads": MANY, **settings}
        running.append(SUBJECTS[request.param]().serve(app, **options))
        return running[0]

    yield serve
    for each in running:
        each.stop()


everywhere = pytest.mark.parametrize("serve", SUBJECTS, indirect=True)
in_loops = pytest.mark.parametrize("serve", LOOPS, indirect=True)


def many_calls(
    url: str,
    work: Callable[[sansmcp_asyncio.Client, int], Any],
    many: int = MANY,
    **options: Any,
) -> Any:
    """Make many calls at once, each from a coroutine; returns what they return or raise."""

    async def main() -> Any:
        async with sansmcp_asyncio.connect(url, **options) as client:
            calls = [work(client, number) for number in range(many)]
            gathered = asyncio.gather(*calls, return_exceptions=True)
            return await asyncio.wait_for(gathered, PATIENCE)

    return asyncio.run(main())


@everywhere
def test_many_threads_report_and_ask(serve: Serve) -> None:
    """All of them at the same time, and each gets its own answer."""
    app = sansmcp.App("threads", "1")
    all_here = threading.Barrier(MANY)
    seen: set[int] = set()

    @app.handler("tools/call")
    def work(call: ThreadCall) -> Any:
        number = call.params["arguments"]["number"]
        seen.add(threading.get_ident())
        all_here.wait(PATIENCE)
        for done in range(3):
            call.progress(done)
            call.notify("com.example/told", {"number": number})
        answer = call.ask("elicitation/create", {"message": str(number), "requestedSchema": {}})
        return {"number": number, "answer": answer["content"]["said"]}

    async def answer(request: Any) -> Any:
        return {"action": "accept", "content": {"said": request.params["message"]}}

    reports: dict[int, list[float]] = {number: [] for number in range(MANY)}
    results = many_calls(
        serve(app).url,
        lambda client, number: client.call_tool(
            "work", {"number": number}, on_progress=lambda p: reports[number].append(p.progress)
        ),
        request_handlers={"elicitation/create": answer},
        capabilities={"elicitation": {}},
        versions=HANDSHAKE_VERSIONS,
    )
    assert results == [{"number": number, "answer": str(number)} for number in range(MANY)]
    assert all(report == [0, 1, 2] for report in reports.values())
    assert len(seen) == MANY


@everywhere
def test_questions_are_answered_in_reverse_order(serve: Serve) -> None:
    """Of all handlers that wait the one goes on whose answer has come; the first is the last."""
    app = sansmcp.App("threads", "1")
    waiting = 20

    @app.handler("tools/call")
    def work(call: ThreadCall) -> Any:
        number = str(call.params["arguments"]["number"])
        return call.ask("elicitation/create", {"message": number, "requestedSchema": {}})

    async def main() -> list[int]:
        all_asked = asyncio.Event()
        asked: list[int] = []
        ended = [asyncio.Event() for _ in range(waiting)]
        order: list[int] = []

        async def answer(request: Any) -> Any:
            asked.append(int(request.params["message"]))
            if len(asked) == waiting:
                all_asked.set()
            await all_asked.wait()
            place = asked.index(int(request.params["message"]))
            if place + 1 < waiting:
                await ended[asked[place + 1]].wait()
            return {"action": "accept", "content": {}}

        async def call(client: sansmcp_asyncio.Client, number: int) -> None:
            await client.call_tool("work", {"number": number})
            order.append(number)
            ended[number].set()

        async with sansmcp_asyncio.connect(
            serve(app).url,
            request_handlers={"elicitation/create": answer},
            capabilities={"elicitation": {}},
            versions=HANDSHAKE_VERSIONS,
        ) as client:
            calls = [call(client, number) for number in range(waiting)]
            await asyncio.wait_for(asyncio.gather(*calls), PATIENCE)
        assert order == asked[::-1]
        return order

    assert len(asyncio.run(main())) == waiting


@everywhere
@pytest.mark.parametrize("act", ["progress", "notify", "ask", "sleep"])
def test_many_threads_are_cancelled(serve: Serve, act: str) -> None:
    """Each of their methods raises once the client has cancelled the call."""
    app = sansmcp.App("threads", "1")
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    @app.handler("tools/call")
    def work(call: ThreadCall) -> Any:
        begun.release()
        try:
            number = 0
            while True:
                number += 1
                if act == "progress":
                    call.progress(number)
                    time.sleep(0.01)
                elif act == "notify":
                    call.notify("com.example/told")
                    time.sleep(0.01)
                elif act == "sleep":
                    call.sleep(1000)
                else:
                    call.ask("elicitation/create", {"message": "", "requestedSchema": {}})
        except sansmcp.RequestCancelled:
            assert call.cancelled.is_set()
            ended.release()
            raise

    async def cancelled(client: sansmcp_asyncio.Client, number: int) -> None:
        calling = asyncio.ensure_future(client.call_tool("work", on_progress=lambda _: None))
        for _ in range(1 if number else SOME):  # the first one waits until all have begun
            if not number:
                await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
        all_begun.set() if not number else await all_begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    async def never(request: Any) -> Any:
        await asyncio.sleep(1000)

    all_begun = asyncio.Event()
    results = many_calls(
        serve(app).url,
        cancelled,
        SOME,
        request_handlers={"elicitation/create": never},
        capabilities={"elicitation": {}},
        versions=HANDSHAKE_VERSIONS,
    )
    assert results == [None] * SOME
    for _ in range(SOME):
        assert ended.acquire(timeout=PATIENCE)


@in_loops
def test_a_handler_that_blocks_holds_up_nobody(serve: Serve) -> None:
    """One ``time.sleep(1)`` stopped all connections."""
    app = sansmcp.App("threads", "1")
    go_on = threading.Event()

    @app.handler("tools/call")
    def block(call: ThreadCall) -> Any:
        return {"went on": go_on.wait(PATIENCE)}

    @app.handler("tools/list")
    async def free_them(call: Any) -> Any:
        go_on.set()
        return {"tools": []}

    async def both(client: sansmcp_asyncio.Client, number: int) -> Any:
        return await (client.call_tool("block") if number else client.list_tools())

    results = many_calls(serve(app, threads=1).url, both)
    assert [result["went on"] for result in results[1:]] == [True] * (MANY - 1)


@in_loops
def test_what_runs_where(serve: Serve) -> None:
    """An async function and an inline one run in the loop, others do not; all see the context."""
    app = sansmcp.App("threads", "1")
    homes: dict[str, int] = {}

    class Callable:
        async def __call__(self, call: Any) -> Any:
            homes["object"] = threading.get_ident()
            return {"prompts": []}

    @app.handler("tools/call")
    def plain(call: ThreadCall) -> Any:
        homes["plain"] = threading.get_ident()
        assert isinstance(contextvars.copy_context(), contextvars.Context)
        return {}

    @app.handler("tools/list", inline=True)
    def inline(call: Any) -> Any:
        homes["inline"] = threading.get_ident()
        return {"tools": []}

    @app.handler("resources/list")
    async def coroutine(call: Any) -> Any:
        homes["async"] = threading.get_ident()
        return {"resources": []}

    app.handler("prompts/list")(Callable())

    async def main(url: str) -> None:
        async with sansmcp_asyncio.connect(url) as client:
            await client.call_tool("plain")
            await client.list_tools()
            await client.list_resources()
            await client.list_prompts()

    asyncio.run(main(serve(app).url))
    assert homes["inline"] == homes["async"] == homes["object"] != homes["plain"]


@in_loops
def test_the_call_of_a_plain_handler_is_used_in_the_loop(serve: Serve) -> None:
    """What need not wait is done at once, and the rest raises: else the loop waits for itself."""
    app = sansmcp.App("threads", "1")
    calls: list[ThreadCall] = []
    refused: dict[str, str] = {}

    @app.handler("tools/call", restartable=True)
    def ask(call: ThreadCall) -> Any:
        calls.append(call)
        return call.ask("elicitation/create", {"message": "", "requestedSchema": {}})

    @app.handler("resources/list")
    async def use(call: Any) -> Any:
        kept = calls[0]
        kept.progress(1)
        kept.notify("com.example/told")
        kept.log("info", "told")
        kept.disconnect()
        waiting: dict[str, Callable[[], Any]] = {
            "ask": lambda: kept.ask("ping"),
            "become_task": kept.become_task,
            "save_progress": lambda: kept.save_progress(1),
        }
        for name, act in waiting.items():
            try:
                act()
            except sansmcp.LocalProtocolError as error:
                refused[name] = str(error)
        return {"resources": []}

    @app.handler("tools/list")
    async def use_later(call: Any) -> Any:
        calls[0].peer.notify("com.example/late")
        return {"tools": []}

    async def hear(client: sansmcp_asyncio.Client, told: list[str]) -> None:
        async for event in client.events():
            if isinstance(event, ServerNotified):
                told.append(event.notification.method)
            if "com.example/late" in told:
                return

    async def main(url: str) -> tuple[Any, list[str]]:
        told: list[str] = []

        async def answer(request: Any) -> Any:
            await client.list_resources()
            return {"action": "accept", "content": {"said": "yes"}}

        async with sansmcp_asyncio.connect(
            url,
            request_handlers={"elicitation/create": answer},
            capabilities={"elicitation": {}},
            versions=HANDSHAKE_VERSIONS,
        ) as client:
            hearing = asyncio.ensure_future(hear(client, told))
            result = await asyncio.wait_for(
                client.call_tool("ask", on_progress=lambda report: told.append("progress")),
                PATIENCE,
            )
            await asyncio.wait_for(client.list_tools(), PATIENCE)
            await asyncio.wait_for(hearing, PATIENCE)
        return result, told

    result, told = asyncio.run(main(serve(app).url))
    assert result["content"] == {"said": "yes"}
    assert sorted(told) == [
        "com.example/late",
        "com.example/told",
        "notifications/message",
        "progress",
    ]
    assert refused.keys() == {"ask", "become_task", "save_progress"}
    for name, message in refused.items():
        assert f"call.{name}()" in message
        assert f"asyncio.to_thread(call.{name}" in message


@in_loops
def test_what_goes_wrong_in_a_thread(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """It is the answer of that call, and no more."""
    app = sansmcp.App("threads", "1")

    async def later() -> Any:
        return {}

    def interrupted() -> Any:
        raise SystemExit

    def refuse() -> Any:
        raise JsonRpcError(-7, "mine")

    tools: dict[str, Callable[[], Any]] = {
        "awaitable": later,
        "interrupted": interrupted,
        "broken": lambda: 1 / 0,
        "unsayable": object,
        "refused": refuse,
        "good": dict,
    }

    @app.handler("tools/call")
    def work(call: ThreadCall) -> Any:
        return tools[call.params["name"]]()

    async def main(url: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with sansmcp_asyncio.connect(url) as client:
            for name in tools:
                try:
                    found[name] = bool(await client.call_tool(name))
                except CallError as error:
                    found[name] = getattr(error, "code", error)
        return found

    found = asyncio.run(main(serve(app).url))
    assert found == {**dict.fromkeys(tools, -32603), "refused": -7, "good": True}
    assert "inline=True" in caplog.text
    assert "SystemExit" in caplog.text


@in_loops
def test_a_server_stops_while_a_thread_does_not(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread can be stopped; what it says afterwards raises, and it holds up nothing."""
    app = sansmcp.App("threads", "1")
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    @app.handler("tools/call")
    def hang(call: ThreadCall) -> Any:
        begun.set()
        go_on.wait(PATIENCE)
        with pytest.raises(sansmcp.RequestCancelled):
            call.progress(1)
        ended.set()

    running = serve(app, graceful_timeout=0.0)

    async def main(url: str) -> None:
        async with sansmcp_asyncio.connect(url) as client:
            calling = asyncio.ensure_future(client.call_tool("hang"))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            await asyncio.to_thread(running.stop)
            with pytest.raises(CallError):
                await calling

    asyncio.run(main(running.url))
    assert "a handler still runs in its thread" in caplog.text
    go_on.set()
    assert ended.wait(PATIENCE)
