"""What idle streams of a fleet cost: ``python -m benchmarks.fleet [streams]``.

Four processes share a store: Redis, or a file. Each opens a quarter of the sessions, and each
session has a standalone stream that waits. Then one process publishes a change, and we count when
the streams of all four have it. Linux only.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sansmcp
import sansmcp_asyncio

from .footprint import resident
from .measuring import Process, Skipped, cpu_seconds, line_from, skip, started
from .requests import get, handshake, post
from .stores import open_store, places

PROCESSES = 4
STREAMS = 10_000
QUIET = 20.0
"""Seconds in which nothing happens."""
CHANGED = "notifications/tools/list_changed"
LIMITS = sansmcp.Limits(max_stored_bytes=1 << 30, max_stored_entries=10**7, max_sessions=100_000)


async def serve(place: str) -> None:
    """Serve until stdin ends; publish a change for each line of it."""
    app = sansmcp.App("fleet", "1", capabilities={"tools": {"listChanged": True}})

    @app.handler("tools/list")
    def list_tools(call: sansmcp_asyncio.Call) -> dict[str, Any]:
        return {"tools": []}

    store = open_store(place)
    loop = asyncio.get_running_loop()
    http = ("127.0.0.1", 0)
    async with sansmcp_asyncio.serve(app, http=http, store=store, limits=LIMITS) as serving:
        print(serving.url.rpartition(":")[2].partition("/")[0], flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            serving.publish(CHANGED)
    store.close()


class Stream:
    """A session with a standalone stream."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.told_at: list[float] = []

    async def open(self) -> None:
        """Open the session, on a connection of its own, and then the stream."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        initialize, initialized = handshake()
        writer.write(post(initialize, self._port, "2025-11-25"))
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        await reader.readexactly(int(_field(head, "content-length")))
        session = _field(head, "mcp-session-id")
        writer.write(post(initialized, self._port, "2025-11-25", session))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(get(self._port, session))
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer:
            raise Skipped(f"no stream: {answer[:60]!r}")
        self._reader, self._writer = reader, writer

    async def listen(self) -> None:
        """Note when each change is told."""
        while line := await self._reader.readline():
            if CHANGED.encode() in line:
                self.told_at.append(time.perf_counter())


def _field(head: str, name: str) -> str:
    """The value of a header field."""
    place = head.lower().index(f"\n{name}:")
    return head[place:].splitlines()[1].partition(":")[2].strip()


async def measure(processes: list[Process], count: int) -> str:
    """Open the streams, wait, and publish. Gives a row."""
    ports = [int(line_from(process)) for process in processes]
    before = [resident(process.pid) for process in processes]
    streams = [Stream(port) for _, port in zip(range(count), itertools.cycle(ports))]
    start = time.perf_counter()
    for batch in range(0, count, 100):
        await asyncio.gather(*(stream.open() for stream in streams[batch : batch + 100]))
    opened = time.perf_counter() - start
    tasks = [asyncio.create_task(stream.listen()) for stream in streams]
    memory = sum(resident(process.pid) for process in processes) - sum(before)
    cpu = sum(map(cpu_seconds, processes))
    await asyncio.sleep(QUIET)
    cpu = sum(map(cpu_seconds, processes)) - cpu
    start = time.perf_counter()
    stdin = processes[0].stdin
    assert stdin is not None
    stdin.write(b"publish\n")
    stdin.flush()
    while any(not stream.told_at for stream in streams):
        if time.perf_counter() > start + 60:
            told = sum(1 for stream in streams if stream.told_at)
            raise Skipped(f"only {told:,} of {count:,} streams were told")
        await asyncio.sleep(0.05)
    delays = sorted(1e3 * (stream.told_at[0] - start) for stream in streams)
    for task in tasks:
        task.cancel()
    late = statistics.quantiles(delays, n=20)
    return (
        f"{count / opened:,.0f}/s | {memory / count:.1f} | {100 * cpu / QUIET:.1f} % | "
        f"{late[9]:.0f} | {late[18]:.0f} | {delays[-1]:.0f}"
    )


def main(count: int = STREAMS) -> None:
    """Measure with each store that processes can share, and print a table."""
    print(
        f"| {count:,} streams | opened | KiB for each | one processor, idle | told after p50, ms | "
        "p95 | last |\n|---|---|---|---|---|---|---|"
    )
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, place in places(stack, directory):
            if not place:
                continue
            with ExitStack() as fleet:
                processes = [
                    fleet.enter_context(started("fleet", "serve", place)) for _ in range(PROCESSES)
                ]
                try:
                    print(f"| {name} | {asyncio.run(measure(processes, count))} |", flush=True)
                except Skipped as reason:
                    skip(name, reason)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
