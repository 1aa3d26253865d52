"""Compare bridges: ``python -m benchmarks.bridge [rounds] [part ...]``.

The parts are ``calls``, ``memory``, ``cuts``, ``deaths`` and ``cost``; all of them by default. The
output is that which stands in ``runs.md``.
Linux only. The servers behind the bridges and the client before them are the same for all; the
client speaks 2025-11-25, the latest revision that all bridges know.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version as version_of
from pathlib import Path

import attrs

import sansmcp
import sansmcp_asyncio
from sansmcp.httptools_parser import HTTP11

from . import bridge_losses
from .bridge_contestants import (
    BRIDGES,
    children,
    cpu_of,
    memory_of,
    prepare_environment,
    serving_http,
    tree_of,
)
from .measuring import LEGACY, MODERN, Skipped, line_from, skip, spread, started

CALLERS = 32
SECONDS = 0.5
"""Of each round, for each number of callers. Many short rounds suffer least on a busy machine."""
SESSIONS = 200
PARTS = ("calls", "memory", "cuts", "deaths", "cost")
PEER = [sys.executable, "-m", "benchmarks.bridge_peers"]
WAYS = {"stdio to HTTP": "stdio", "HTTP to stdio": "http"}
"""By way: the server behind the bridge."""
SIZES = {"small": (0, 1.0), "11 KB": (11_000, 1.0), "1 MB": (1_000_000, 2.0)}
"""Of results: bytes, and how many times as long a round lasts."""


@attrs.frozen
class Figures:
    """What a round of calls has shown."""

    rate: float
    """Calls in a second."""
    p50: float
    """Milliseconds."""
    p99: float
    cpu: float
    """Microseconds of processor time for a call."""


@attrs.frozen
class Connected:
    """A client, and the processes between it and the server."""

    client: sansmcp_asyncio.Client
    pids: Sequence[int]

    async def calls(self, callers: int, seconds: float, size: int = 0) -> Figures:
        """Call for so long, so many at once."""
        took: list[float] = []
        begun, cpu = time.perf_counter(), cpu_of(self.pids)
        end = begun + seconds

        async def work() -> None:
            while True:
                start = time.perf_counter()
                await self.client.call_tool("echo", {"text": "hello", "size": size})
                took.append(time.perf_counter() - start)
                if time.perf_counter() >= end:
                    return

        await asyncio.gather(*[work() for _ in range(callers)])
        lasted, cpu = time.perf_counter() - begun, cpu_of(self.pids) - cpu
        took.sort()
        return Figures(
            len(took) / lasted,
            1e3 * statistics.median(took),
            1e3 * took[int(0.99 * (len(took) - 1))],
            1e6 * cpu / len(took),
        )


@asynccontextmanager
async def connected(
    target: str | Sequence[str], version: str, pid: int | None = None
) -> AsyncGenerator[Connected]:
    """Connect to a URL that a process serves, or to a command. Raises Skipped."""
    before = set(children().get(os.getpid(), ()))
    try:
        client = await sansmcp_asyncio.connect(target, versions=(version,), http11=HTTP11)
    except sansmcp.CallError as error:
        raise Skipped(str(error)) from error
    if pid is None:
        (pid,) = set(children()[os.getpid()]) - before
    try:
        yield Connected(client, tree_of(pid) or [pid])
    finally:
        with suppress(sansmcp.CallError):
            await client.aclose()


async def through(stack: AsyncExitStack, name: str, way: str, server: str, url: str) -> Connected:
    """Connect through a bridge. Raises Skipped."""
    bridge = BRIDGES[name]
    if way == "stdio to HTTP":
        if isinstance(bridge.to_http, str):
            raise Skipped(bridge.to_http)
        pid, served = stack.enter_context(serving_http(bridge.to_http, [*PEER, server]))
        return await stack.enter_async_context(connected(served, LEGACY, pid))
    if isinstance(bridge.to_stdio, str):
        raise Skipped(bridge.to_stdio)
    return await stack.enter_async_context(connected(bridge.to_stdio(url), LEGACY))


# The parts


async def compare_calls(
    way: str, server: str, rounds: int, names: Iterable[str] = BRIDGES, seconds: float = SECONDS
) -> str:
    """Calls a second, latency and processor time of each bridge, and without one."""
    async with AsyncExitStack() as stack:
        url = ""
        if server.endswith("http"):
            url = line_from(stack.enter_context(started("bridge_peers", server)))
            direct = connected(url, LEGACY, os.getpid())
        else:
            direct = connected([*PEER, server], LEGACY)
        found: dict[str, Connected] = {"none": await stack.enter_async_context(direct)}
        for name in names:
            try:
                found[name] = await through(stack, name, way, server, url)
            except Skipped as reason:
                skip(f"{name}, {way}", reason)
        figures: dict[str, dict[int, list[Figures]]] = {
            name: {1: [], CALLERS: []} for name in found
        }
        for number in range(rounds + 1):  # the first one warms up
            for name in tuple(found):
                for callers, of_name in figures[name].items():
                    try:
                        limit = seconds if number else seconds / 4
                        round = await asyncio.wait_for(
                            found[name].calls(callers, limit), 30 + seconds
                        )
                    except (sansmcp.CallError, asyncio.TimeoutError) as reason:
                        skip(f"{name}, {way}", f"{type(reason).__name__} {reason}")
                        del found[name]
                        break
                    if number:
                        of_name.append(round)
        lines = [
            f"| {way}, server: {server} | calls/s, 1 | p50, ms | p99 | µs | "
            f"calls/s, {CALLERS} | p50 | p99 | µs |",
            "|" + "---|" * 9,
        ]
        for name in found:
            cells = [cell for each in figures[name].values() for cell in _cells(each)]
            if name == "none":  # what has been measured is the client or the server
                cells[3] = cells[7] = "-"
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines)


def _cells(rounds: Sequence[Figures]) -> list[str]:
    rates = [each.rate for each in rounds]
    return [
        f"{statistics.median(rates):,.0f} ({spread(rates):.0f} %)",
        f"{statistics.median(each.p50 for each in rounds):.2f}",
        f"{statistics.median(each.p99 for each in rounds):.2f}",
        f"{statistics.median(each.cpu for each in rounds):.0f}",
    ]


async def compare_cost(
    rounds: int, sizes: Mapping[str, tuple[int, float]] = SIZES, seconds: float = SECONDS / 2
) -> str:
    """What a relayed call takes, beside a call of our client and of our echo server alone."""
    lines = [
        "| processor time of a call, µs | results | at once | echo server | client | bridge | "
        "ratio | spread |",
        "|" + "---|" * 8,
    ]
    for way in WAYS:
        for version in (MODERN, LEGACY):
            async with AsyncExitStack() as stack:
                parts = await _cost_parts(stack, way, version)
                for title, (size, longer) in sizes.items():
                    for callers in (1, CALLERS if size < 1e6 else 4):
                        costs = await _costs(parts, callers, size, rounds, seconds * longer)
                        lines.append(f"| {way}, {version} | {title} | {callers} | {costs} |")
    return "\n".join(lines)


async def _cost_parts(stack: AsyncExitStack, way: str, version: str) -> list[Connected]:
    """Our echo server, our client, and our bridge."""

    async def enter(target: str | Sequence[str], pid: int | None = None) -> Connected:
        return await stack.enter_async_context(connected(target, version, pid))

    if way == "stdio to HTTP":
        ours = stack.enter_context(started("bridge_peers", "ours-http"))
        echo = await enter(line_from(ours), ours.pid)
        client = await enter([*PEER, "stdio"])
        to_http = BRIDGES["sansmcp bridge"].to_http
        assert not isinstance(to_http, str)
        pid, url = stack.enter_context(serving_http(to_http, [*PEER, "stdio"]))
        bridge = await enter(url, pid)
    else:
        url = line_from(stack.enter_context(started("bridge_peers", "http")))
        echo = await enter([*PEER, "ours-stdio"])
        client = await enter(url, os.getpid())
        to_stdio = BRIDGES["sansmcp bridge"].to_stdio
        assert not isinstance(to_stdio, str)
        bridge = await enter(to_stdio(url))
    return [echo, attrs.evolve(client, pids=[os.getpid()]), bridge]


async def _costs(
    parts: Sequence[Connected], callers: int, size: int, rounds: int, seconds: float
) -> str:
    for each in parts:
        await each.calls(callers, seconds / 4, size)  # to warm up
    found: list[list[float]] = []
    for _ in range(rounds):
        found.append([(await each.calls(callers, seconds, size)).cpu for each in parts])
    ratios = [bridge / (echo + client) for echo, client, bridge in found]
    echo, client, bridge = (statistics.median(each) for each in zip(*found, strict=True))
    return (
        f"{echo:.0f} | {client:.0f} | {bridge:.0f} | {statistics.median(ratios):.2f} | "
        f"{min(ratios):.2f} to {max(ratios):.2f}"
    )


async def compare_memory(sessions: int = SESSIONS, names: Iterable[str] = BRIDGES) -> str:
    """Memory for sessions over HTTP, and of a bridge on stdio, which has one."""
    lines = [
        f"| MiB | one session | {sessions} sessions | with the servers | on stdio, one client |",
        "|" + "---|" * 5,
    ]
    for name in names:
        bridge, cells = BRIDGES[name], list[str]()
        try:
            cells += await _memory_of_sessions(name, sessions)
        except (Skipped, sansmcp.CallError, OSError) as reason:
            skip(f"{name}, {sessions} sessions", reason)
            cells += ["-"] * 3
        async with AsyncExitStack() as stack:
            if isinstance(bridge.to_stdio, str):
                cells.append("-")
            else:
                url = line_from(stack.enter_context(started("bridge_peers", "http")))
                client = connected(bridge.to_stdio(url), LEGACY)
                pids = (await stack.enter_async_context(client)).pids
                cells.append(f"{memory_of(pids):.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def _memory_of_sessions(name: str, sessions: int) -> list[str]:
    bridge = BRIDGES[name]
    if isinstance(bridge.to_http, str):
        raise Skipped(bridge.to_http)
    if bridge.sessions:
        raise Skipped(bridge.sessions)
    async with AsyncExitStack() as stack:
        pid, url = stack.enter_context(serving_http(bridge.to_http, [*PEER, "stdio"]))

        async def open_sessions(count: int) -> None:
            for _ in range(count):
                client = connected(url, LEGACY, pid)
                await (await stack.enter_async_context(client)).calls(1, 0)

        await open_sessions(1)
        one = memory_of(tree_of(pid))
        await open_sessions(sessions - 1)
        return [
            f"{one:.0f}",
            f"{memory_of(tree_of(pid)):.0f}",
            f"{memory_of(tree_of(pid, with_servers=True)):.0f}",
        ]


def about() -> str:
    """The machine and the versions."""
    packages = ", ".join(f"{name} {version_of(name)}" for name in ("sansmcp", "mcp"))
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} processors, {platform.system()} {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}, {packages}; "
        f"load {load:.1f}"
    )


async def measure(rounds: int, parts: Sequence[str]) -> None:
    """Measure, and print the tables of ``runs.md``, each as it stands there."""
    print(about(), flush=True)
    for part in parts:
        match part:
            case "calls":
                for way, server in WAYS.items():
                    for kind in (server, f"sdk-{server}"):
                        print(f"\n{await compare_calls(way, kind, rounds)}", flush=True)
            case "cost":
                print(f"\n{await compare_cost(rounds)}", flush=True)
            case "memory":
                print(f"\n{await compare_memory()}", flush=True)
            case "cuts":
                print(f"\n{await bridge_losses.compare_cuts()}", flush=True)
            case "deaths":
                print(f"\n{await bridge_losses.count_deaths()}", flush=True)
            case _:
                raise SystemExit(f"no part is called {part!r}: {__doc__}")


def main(rounds: str = "9", *parts: str) -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as directory:
        prepare_environment(Path(directory))
        asyncio.run(measure(int(rounds), parts or PARTS))


if __name__ == "__main__":
    main(*sys.argv[1:])
