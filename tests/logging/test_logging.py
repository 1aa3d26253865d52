"""Log records of handlers reach the clients whose calls they belong to."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_trio
from sansmcp.events import ServerNotified
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp.trace import Tracer
from sansmcp_telemetry import RequestFilter, send_logs

LOGGER = logging.getLogger("tests.sansmcp_telemetry")


def thread_of_its_own(text: str) -> None:
    """A thread that knows of no call."""
    thread = threading.Thread(target=LOGGER.error, args=(text,))
    thread.start()
    thread.join()


def work() -> None:
    LOGGER.debug("debug %d", 1)
    LOGGER.info("info")
    LOGGER.error("error")
    logging.getLogger("tests.other").error("of another logger")
    thread_of_its_own("of no call")


async def tool(call: Any) -> Any:
    work()
    await asyncio.to_thread(LOGGER.warning, "from a thread")
    return {"content": []}


def plain_tool(call: Any) -> Any:
    work()
    LOGGER.warning("from a thread")
    return {"content": []}


@pytest.fixture
def app() -> Generator[sansmcp.App, None, None]:
    """An App without handlers, whose logs are sent."""
    app = sansmcp.App("logs")
    LOGGER.setLevel(logging.DEBUG)
    added = send_logs(app, LOGGER)
    yield app
    LOGGER.removeHandler(added)


def texts(events: list[Any]) -> list[str]:
    told = [event.notification for event in events if isinstance(event, ServerNotified)]
    given = [notification.params or {} for notification in told]
    return [f"{each['level']}: {each['data']}" for each in given if each["logger"] == LOGGER.name]


def meta_for(version: str, level: str) -> dict[str, Any]:
    """What asks for messages with a request."""
    is_modern = version not in HANDSHAKE_VERSIONS
    return {"io.modelcontextprotocol/logLevel": level} if is_modern else {}


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize("handler", [tool, plain_tool])
def test_asyncio(app: sansmcp.App, version: str, handler: Any) -> None:
    app.handler("tools/call")(handler)
    found: list[Any] = []

    async def main() -> None:
        serving = sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), http_sse="/sse")
        async with serving as server:
            path = "/sse" if version == "2024-11-05" else "/mcp"
            url = server.url.replace("/mcp", path)
            async with sansmcp_asyncio.connect(url, versions=(version,)) as client:
                assert "logging" in client.connected.capabilities

                async def listen() -> None:
                    async for event in client.events():
                        found.append(event)

                listening = asyncio.create_task(listen())
                await client.call_tool("x", meta=meta_for(version, "info"))
                while len(texts(found)) < 3:
                    await asyncio.sleep(0.001)
                if version in HANDSHAKE_VERSIONS:
                    await client.call("logging/setLevel", {"level": "debug"})
                await client.call_tool("x", meta=meta_for(version, "debug"))
                while len(texts(found)) < 7:
                    await asyncio.sleep(0.001)
                listening.cancel()

    asyncio.run(asyncio.wait_for(main(), 30))
    first = ["info: info", "error: error", "warning: from a thread"]
    assert texts(found) == [*first, "debug: debug 1", *first]


def test_blocking(app: sansmcp.App) -> None:
    app.handler("tools/call")(plain_tool)
    with (
        sansmcp_blocking.serve(app, http=("127.0.0.1", 0)) as server,
        sansmcp_blocking.connect(server.url, versions=HANDSHAKE_VERSIONS) as client,
    ):
        client.events(timeout=0)  # keeps the events from now on
        client.call("logging/setLevel", {"level": "alert"})
        client.call_tool("x")
        client.call("logging/setLevel", {"level": "error"})
        client.call_tool("x")
        assert texts(list(client.events(timeout=0))) == ["error: error"]
        with pytest.raises(sansmcp.JsonRpcError, match="level must be one of debug, info"):
            client.call("logging/setLevel", {"level": "loud"})


@pytest.mark.parametrize("version", REVISIONS)
def test_inline_handlers_of_a_blocking_server(
    app: sansmcp.App, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They must not wait, and their records are sent when they have returned."""
    app.handler("tools/call", inline=True)(plain_tool)
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0), http_sse="/sse") as server:
        url = server.url.replace("/mcp", "/sse") if version == "2024-11-05" else server.url
        with sansmcp_blocking.connect(url, versions=(version,)) as client:
            client.events(timeout=0)  # keeps the events from now on
            assert client.call_tool("x", meta=meta_for(version, "info"))["content"] == []
            assert texts(list(client.events(timeout=0))) == [
                "info: info",
                "error: error",
                "warning: from a thread",
            ]
    assert "--- Logging error ---" not in capsys.readouterr().err


def test_records_name_their_request(app: sansmcp.App) -> None:
    stream = io.StringIO()
    shown = logging.StreamHandler(stream)
    shown.addFilter(RequestFilter())
    shown.setFormatter(logging.Formatter("%(mcp_method)s %(mcp_request_id)s %(message)s"))
    LOGGER.addHandler(shown)
    app.handler("tools/call")(tool)

    async def main() -> None:
        async with (
            sansmcp_asyncio.serve(app, http=("127.0.0.1", 0)) as server,
            sansmcp_asyncio.connect(server.url) as client,
        ):
            await client.call_tool("x")

    try:
        asyncio.run(asyncio.wait_for(main(), 30))
        LOGGER.info("later")
    finally:
        LOGGER.removeHandler(shown)
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "- - later"
    assert "- - of no call" in lines
    name, id, text = lines[0].split(" ", 2)
    assert (name, text) == ("tools/call", "debug 1")
    assert id.isdecimal()


def test_a_handler_that_logs_more_than_the_client_reads(app: sansmcp.App) -> None:
    """The messages that wait are bounded, and the call gets its result."""

    @app.handler("tools/call")
    async def flood(call: Any) -> Any:
        for _ in range(5000):
            LOGGER.info("x" * 100)
        return {"content": []}

    async def main() -> None:
        async with sansmcp_asyncio.serve(app, http=("127.0.0.1", 0)) as server:
            url = server.url
            async with sansmcp_asyncio.connect(url, versions=HANDSHAKE_VERSIONS) as client:
                await client.call_tool("x")

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_cannot_be_sent_does_not_end_the_call(
    app: sansmcp.App, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.handler("tools/call")
    async def wrong(call: Any) -> Any:
        record = logging.LogRecord(LOGGER.name, logging.INFO, "", 0, "%d", ("text",), None)
        LOGGER.handlers[0].handle(record)  # pytest raises what its own handler cannot format
        return {"content": []}

    async def main() -> None:
        async with (
            sansmcp_asyncio.serve(app, http=("127.0.0.1", 0)) as server,
            sansmcp_asyncio.connect(server.url) as client,
        ):
            await client.call_tool("x", meta=meta_for("2026-07-28", "debug"))

    asyncio.run(asyncio.wait_for(main(), 30))
    assert "--- Logging error ---" in capsys.readouterr().err


async def _async_logs(call: Any) -> Any:
    for number in range(20):
        LOGGER.debug("record %d", number)
        await asyncio.sleep(0)
    return {"content": []}


def _plain_logs(call: Any) -> Any:
    for number in range(20):
        LOGGER.debug("record %d", number)
    return {"content": []}


async def _thread_logs(call: Any) -> Any:
    await asyncio.to_thread(_plain_logs, call)
    return {"content": []}


def _count_in_asyncio(app: sansmcp.App, version: str, **settings: Any) -> int:
    async def main() -> int:
        async with sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), **settings) as server:
            return await asyncio.to_thread(_count, server.url, version)

    return asyncio.run(asyncio.wait_for(main(), 60))


def _count_in_trio(app: sansmcp.App, version: str, **settings: Any) -> int:
    async def main() -> int:
        async with trio.open_nursery() as nursery:
            serve = partial(sansmcp_trio.serve, app, http=("127.0.0.1", 0), **settings)
            server = await nursery.start(serve)
            count = await trio.to_thread.run_sync(_count, server.url, version)
            nursery.cancel_scope.cancel()
        return count

    return trio.run(main)


def _count_in_threads(app: sansmcp.App, version: str, **settings: Any) -> int:
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0), **settings) as server:
        return _count(server.url, version)


def _count(url: str, version: str) -> int:
    """Make one call at the level debug, and return the number of messages."""
    with sansmcp_blocking.connect(url, versions=(version,)) as client:
        client.events(timeout=0)  # keeps the events from now on
        if version in HANDSHAKE_VERSIONS:
            client.call("logging/setLevel", {"level": "debug"})
        client.call_tool("x", meta=meta_for(version, "debug"))
        return len(texts(list(client.events(timeout=0))))


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("count", "handler"),
    [
        (_count_in_asyncio, _async_logs),
        (_count_in_asyncio, _plain_logs),
        (_count_in_asyncio, _thread_logs),
        (_count_in_trio, _plain_logs),
        (_count_in_threads, _plain_logs),
    ],
)
def test_what_is_logged_while_a_record_is_sent_is_not_sent(
    app: sansmcp.App, version: str, count: Any, handler: Any
) -> None:
    """A server that logs what it sends would send that, too, and so on.

    The loop logs while a plain handler waits until it has sent a record, so no lock may be held.
    """
    app.handler("tools/call")(handler)
    traced: list[str] = []

    def log(line: str) -> None:
        traced.append(line)
        if len(traced) < 3000:  # so that it ends
            LOGGER.debug("traced %s", line)

    assert count(app, version, trace=Tracer("server", log)) == 20
    assert len(traced) < 3000
