"""Event streams that are not MCP, read over connections that end and break."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import aclosing, closing
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

from sansmcp import Disconnected, LocalProtocolError, ReconnectPolicy, RequestRefused, encode_event
from sansmcp_httpx import events, events_blocking

from ..asgi.conftest import Host
from ..asgi.loops import Run

POLICY = ReconnectPolicy(initial_delay=0.01, max_delay=0.01, max_attempts=3)
MOST = 6
libraries = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


async def _counter(scope: Any, receive: Any, send: Any) -> None:
    """Two numbers for each connection, after the last event id; the third connection breaks."""
    if scope["type"] != "http":
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    last = int(headers.get("last-event-id", "0"))
    path = scope["path"]
    kind = "text/html" if path == "/page" else "text/event-stream"
    status = 204 if last >= MOST else 500 if path == "/broken" else 200
    head = {"status": status, "headers": [(b"content-type", kind.encode())]}
    await send({"type": "http.response.start", **head})
    body = b""
    if status == 200:
        body = encode_event(None, comment="hello", retry=1)
        body += b"".join(
            encode_event(b"%d" % number, id=str(number)) for number in (last + 1, last + 2)
        )
        await send({"type": "http.response.body", "body": body + b"data: cut", "more_body": True})
        if last == 2:
            raise ConnectionError("the application breaks the connection")
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def server() -> Generator[str, None, None]:
    with Host("hypercorn-asyncio").serve(_counter) as url:
        yield url


@libraries
def test_over_several_connections(run: Run, server: str, library: ModuleType) -> None:
    found: list[tuple[str | None, str]] = []

    async def main() -> None:
        async with library.AsyncClient() as http:
            async for event in events(f"{server}/", http, policy=POLICY):
                found.append((event.data, event.last_event_id))

    run(main)
    assert found == [(str(number), str(number)) for number in range(1, MOST + 1)]


@libraries
def test_blocking_over_several_connections(server: str, library: ModuleType) -> None:
    with library.Client() as http:
        found = [event.data for event in events_blocking(f"{server}/", http, policy=POLICY)]
        assert found == ["1", "2", "3", "4", "5", "6"]
        found = [
            event.data
            for event in events_blocking(f"{server}/", http, policy=POLICY, last_event_id="3")
        ]
        assert found == ["4", "5", "6", "7"]


def test_a_reader_that_leaves_closes_the_connection(run: Run, server: str) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1)) as http:
            for _ in range(3):
                async with aclosing(events(f"{server}/", http, policy=POLICY)) as stream:
                    async for event in stream:
                        assert event.data == "1"
                        break

    run(main)
    with httpx.Client(limits=httpx.Limits(max_connections=1)) as http:
        for _ in range(3):
            with closing(events_blocking(f"{server}/", http, policy=POLICY)) as stream:
                assert next(stream).data == "1"


def test_refusals(run: Run, server: str) -> None:
    async def main() -> None:
        async with httpx.AsyncClient() as http:
            with pytest.raises(RequestRefused, match="it is no text/event-stream"):
                await anext(events(f"{server}/page", http, policy=POLICY))
            with pytest.raises(Disconnected, match="HTTP 500"):
                await anext(events(f"{server}/broken", http, policy=POLICY))
            with pytest.raises(Disconnected, match="Connect"):
                await anext(events("http://127.0.0.1:1/", http, policy=POLICY))

    run(main)
    with httpx.Client() as http:
        with pytest.raises(Disconnected, match="HTTP 500"):
            next(events_blocking(f"{server}/broken", http, policy=POLICY))
        with pytest.raises(LocalProtocolError, match=r"httpx.Client or httpx2.Client, got 1"):
            wrong: Any = 1
            next(events_blocking(f"{server}/broken", wrong))
