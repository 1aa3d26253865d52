"""The cost of calls over stdio, stdio-v2 and HTTP/1.1, in one run: ``-m benchmarks.stdio_v2``.

A server process on asyncio, and a client on asyncio in this one, with a subscription that stays
open. Each round measures every transport, one after the other; the best of the rounds counts. A
number is the CPU time of both processes for a call, which other programs hardly change. Memory is
the most that the server process has used until then; it needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import sansmcp
import sansmcp_asyncio

TRANSPORTS = ("stdio", "stdio-v2", "http")
_CALLS = 2000
"""Calls for each number."""


async def add(call: Any) -> dict[str, Any]:
    if call.params["name"] == "used":
        # That of getrusage() would begin with what the parent has used.
        (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        found = {"seconds": time.process_time(), "mebibytes": int(peak) / 1024}
        return {"content": [], "structuredContent": found}
    return {"content": [{"type": "text", "text": str(sum(call.params["arguments"].values()))}]}


def served(transport: str) -> None:
    """Serve until the input ends."""
    app = sansmcp.App("measured", "1", capabilities={"tools": {"listChanged": True}})
    app.handler("tools/call")(add)
    settings: dict[str, Any] = {"stdio": "v2" if transport == "stdio-v2" else True}
    if transport == "http":
        settings = {"http": ("127.0.0.1", 0)}
    settings["limits"] = sansmcp.Limits(max_calls_per_session=2000)
    asyncio.run(_serve(app, settings))


async def _serve(app: sansmcp.App, settings: dict[str, Any]) -> None:
    async with sansmcp_asyncio.serve(app, **settings) as server:
        if server.url:
            print(server.url, flush=True)
        await server.stopped.wait()


@asynccontextmanager
async def connected(transport: str) -> AsyncGenerator[sansmcp_asyncio.Client, None]:
    command = [sys.executable, "-m", __spec__.name, "--serve", transport]
    settings: dict[str, Any] = {"inherit_env": True, "known_servers": sansmcp.KnownServers()}
    if transport != "http":
        if transport == "stdio-v2":
            settings["transport"] = transport
        async with sansmcp_asyncio.connect(command, **settings) as client:
            yield client
        return
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    try:
        async with sansmcp_asyncio.connect(url) as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


async def used(client: sansmcp_asyncio.Client) -> float:
    """Return the CPU time of both processes, in seconds."""
    theirs: dict[str, Any] = await client.call_tool("used", {})
    seconds: float = theirs["structuredContent"]["seconds"]
    return seconds + time.process_time()


async def memory(client: sansmcp_asyncio.Client) -> float:
    """Return the most MiB that the server process has used."""
    theirs: dict[str, Any] = await client.call_tool("used", {})
    mebibytes: float = theirs["structuredContent"]["mebibytes"]
    return mebibytes


async def cost(client: sansmcp_asyncio.Client, at_once: int) -> float:
    """Return the microseconds of a call with so many callers."""

    async def calls() -> None:
        for _ in range(_CALLS // at_once):
            await client.call_tool("add", {"a": 1, "b": 2})

    before = await used(client)
    await asyncio.gather(*(calls() for _ in range(at_once)))
    return (await used(client) - before) / (_CALLS // at_once * at_once) * 1e6


async def measured(transport: str) -> dict[str, float]:
    """Return the numbers of one transport."""
    found: dict[str, float] = {}
    started = time.process_time()
    async with connected(transport) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        found["ms of CPU to the first result"] = (await used(client) - started) * 1000
        found["MiB of the server at first"] = await memory(client)
        filter = {"notifications": {"toolsListChanged": True}}
        listening = asyncio.ensure_future(client.call("subscriptions/listen", filter))
        for at_once in (1, 32, 1000):
            found[f"us of CPU a call, {at_once} at once"] = await cost(client, at_once)
        found["MiB of the server at the end"] = await memory(client)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stdio_v2")
    parser.add_argument("--serve", choices=TRANSPORTS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.serve:
        served(options.serve)
        return
    best: dict[str, dict[str, float]] = {transport: {} for transport in TRANSPORTS}
    for _ in range(options.rounds):
        for transport, numbers in best.items():
            for name, value in asyncio.run(measured(transport)).items():
                numbers[name] = min(numbers.get(name, value), value)
    print(f"{'':32}" + "".join(f"{transport:>12}" for transport in TRANSPORTS))
    for name in best["stdio"]:
        print(f"{name:32}" + "".join(f"{best[each][name]:12.0f}" for each in TRANSPORTS))


if __name__ == "__main__":
    main()
