"""Clients as processes that call as often as they are told to.

    python -m benchmarks.callers NAME VERSION URL

It connects to all of :mod:`.peers` that it can, and prints a line. For each line "PEER CALLERS
SECONDS" that it reads it calls, and prints the seconds and the processor time that a call has taken
and how many connections were opened meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import attrs
import httpx
import trio

import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_trio

from . import bare_clients
from .bare_clients import Call, Target
from .measuring import LEGACY, MODERN

HTTP = ("json", "sse", "events")
STDIO = ("stdio",)
PEERS = (*HTTP, *STDIO)

_ARGUMENTS = ("echo", {"text": "hello"})


@asynccontextmanager
async def ours_on_asyncio(target: Target, version: str) -> AsyncGenerator[Call]:
    """The adapter for asyncio."""
    async with sansmcp_asyncio.connect(target, versions=(version,)) as client:
        yield partial(client.call_tool, *_ARGUMENTS)


@asynccontextmanager
async def ours_on_trio(target: Target, version: str) -> AsyncGenerator[Call]:
    """The adapter for trio."""
    async with sansmcp_trio.connect(target, versions=(version,)) as client:
        yield partial(client.call_tool, *_ARGUMENTS)


@asynccontextmanager
async def ours_on_httpx(url: str, version: str) -> AsyncGenerator[Call]:
    """The adapter for httpx."""
    kept = httpx.Limits(max_keepalive_connections=None, keepalive_expiry=None)
    async with (
        httpx.AsyncClient(limits=kept) as http,
        sansmcp_httpx.connect(url, http, versions=(version,)) as client,
    ):
        yield partial(client.call_tool, *_ARGUMENTS)


@asynccontextmanager
async def ours_blocking(target: Target, version: str) -> AsyncGenerator[Call]:
    """The adapter for blocking I/O; the event loop around it has nothing to do."""
    with sansmcp_blocking.connect(target, versions=(version,)) as client:

        async def call() -> object:
            return client.call_tool(*_ARGUMENTS)

        yield call


@asynccontextmanager
async def official(target: Target, version: str) -> AsyncGenerator[Call]:
    """The official SDK."""
    import mcp
    from mcp.client.stdio import StdioServerParameters, stdio_client

    where: Any = target
    if not isinstance(target, str):
        where = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with mcp.Client(where, mode="legacy" if version == LEGACY else version) as client:
        yield partial(client.call_tool, *_ARGUMENTS)


def bare_on_asyncio(target: Target, version: str) -> AbstractAsyncContextManager[Call]:
    """h11 or lines on asyncio."""
    if isinstance(target, str):
        return bare_clients.http_on_asyncio(target)
    return bare_clients.lines_on_asyncio(target)


def bare_on_trio(target: Target, version: str) -> AbstractAsyncContextManager[Call]:
    """h11 or lines on trio."""
    if isinstance(target, str):
        return bare_clients.http_on_trio(target)
    return bare_clients.lines_on_trio(target)


def bare_blocking(command: list[str], version: str) -> AbstractAsyncContextManager[Call]:
    """Lines without an event loop."""
    return bare_clients.lines_blocking(command)


# Event loops


async def together_on_asyncio(callers: int, work: Callable[[], Awaitable[None]]) -> None:
    """Run an async function several times at once, on asyncio."""
    await asyncio.gather(*[work() for _ in range(callers)])


async def together_on_trio(callers: int, work: Callable[[], Awaitable[None]]) -> None:
    """The same on trio."""
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(work)


def run_on_asyncio(work: Callable[..., Any]) -> None:
    """Run a program, which is given what runs functions at once."""
    asyncio.run(work(together_on_asyncio))


def run_on_trio(work: Callable[..., Any]) -> None:
    """The same on trio."""
    trio.run(work, together_on_trio)


@attrs.frozen
class Contestant:
    """A client, and what it can do."""

    connect: Callable[[Any, str], AbstractAsyncContextManager[Call]]
    run: Callable[[Callable[..., Any]], None] = run_on_asyncio
    peers: tuple[str, ...] = PEERS
    versions: tuple[str, ...] = (MODERN, LEGACY)
    is_blocking: bool = False
    """It makes one call at a time."""


_BARE = (MODERN,)  # it knows no versions

CLIENTS: dict[str, Contestant] = {
    "sansmcp, asyncio": Contestant(ours_on_asyncio),
    "sansmcp, trio": Contestant(ours_on_trio, run_on_trio),
    "sansmcp, blocking": Contestant(ours_blocking, is_blocking=True),
    "sansmcp, httpx": Contestant(ours_on_httpx, peers=HTTP),
    "bare asyncio": Contestant(bare_on_asyncio, versions=_BARE),
    "bare trio": Contestant(bare_on_trio, run_on_trio, versions=_BARE),
    "bare blocking": Contestant(bare_blocking, peers=STDIO, versions=_BARE, is_blocking=True),
    "mcp": Contestant(official),
}


# Calling


async def obey(
    contestant: Contestant, version: str, url: str, together: Callable[..., Awaitable[None]]
) -> None:
    """Connect to all peers, and call when told to."""
    targets: dict[str, Target] = {name: f"{url}/{name}" for name in HTTP}
    targets["stdio"] = [sys.executable, "-m", "benchmarks.peers", "stdio"]
    async with AsyncExitStack() as stack:
        calls: dict[str, Call] = {}
        for peer in contestant.peers:
            connected = contestant.connect(targets[peer], version)
            calls[peer] = await stack.enter_async_context(connected)
        print("ready", flush=True)
        for line in sys.stdin:
            peer, callers, seconds = line.split()
            work = partial(_call_for, float(seconds), calls[peer])
            await together(int(callers), partial(_call_for, 0.01, calls[peer], [0]))  # to warm up
            count, accepted = [0], accepted_by(url)
            start, cpu = time.perf_counter(), time.process_time()
            await together(int(callers), partial(work, count))
            took, cpu_took = time.perf_counter() - start, time.process_time() - cpu
            opened = accepted_by(url) - accepted - 1  # to ask takes one, too
            print(took / count[0], cpu_took / count[0], opened, flush=True)


async def _call_for(seconds: float, call: Call, count: list[int]) -> None:
    end = time.perf_counter() + seconds
    while True:  # once at least, so that each has its connection
        await call()
        count[0] += 1
        if time.perf_counter() >= end:
            return


def accepted_by(url: str) -> int:
    """Connections that the server has accepted."""
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError as error:
        return int(error.read())
    raise AssertionError("it tells so by an error")


def main(name: str, version: str, url: str) -> None:
    """Be one of the clients."""
    contestant = CLIENTS[name]
    contestant.run(partial(obey, contestant, version, url))


if __name__ == "__main__":
    main(*sys.argv[1:])
