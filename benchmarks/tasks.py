"""Measure what tasks cost calls that never become one: ``python -m benchmarks.tasks [rounds]``.

Two servers on asyncio in one process, with a SqliteStore each, get the same small call of
2026-07-28 from 32 connections. At one of them no call may become a task; at the other each does
after a second. Requests declare the extension, or do not. Each round has all of them in turn, every
other one backwards, and each figure is compared with that of the first row in the same round: so
other work on the machine changes the times more than the ratios.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import sansmcp
import sansmcp_asyncio
from sansmcp.app import TaskRule
from sansmcp.meta_keys import CAPABILITIES
from sansmcp.tasks import EXTENSION
from sansmcp_stores import SqliteStore

from .measuring import line_from, started
from .requests import message, post
from .servers import press

SECONDS = 0.25
NEVER: TaskRule = "never"
DEFAULT: TaskRule = None
RULES = (NEVER, DEFAULT)
ROWS = {
    "no call may become a task": (NEVER, True),
    "the same, once more": (NEVER, True),
    "calls become tasks after 1 s": (DEFAULT, True),
    "the same, clients without the extension": (DEFAULT, False),
}
"""For each row the rule of the server, and whether requests declare the extension."""


async def serve(directory: Path) -> None:
    """Serve a small call at two ports, one for each rule, until this process is ended."""
    async with AsyncExitStack() as stack:
        for rule in RULES:
            app = sansmcp.App("tasks", "1")

            @app.handler("tools/call", task=rule)
            async def echo(call: sansmcp_asyncio.Call) -> dict[str, Any]:
                return {"content": [{"type": "text", "text": "hello"}]}

            serving = sansmcp_asyncio.serve(
                app,
                http=("127.0.0.1", 0),
                store=SqliteStore(directory / f"{rule}.db"),
                stream_after=5.0,  # a busy machine may let a call wait for longer than the default
            )
            server = await stack.enter_async_context(serving)
            print(urlsplit(server.url).port, flush=True)
        await asyncio.Event().wait()


def call(port: int, declares: bool) -> bytes:
    """A small call."""
    asked = message("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
    if declares:
        asked["params"]["_meta"][CAPABILITIES] = {"extensions": {EXTENSION: {}}}
    return post(asked, port)


def main(rounds: int = 60) -> None:
    """Measure all, and print a table."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        process = stack.enter_context(started("tasks", "serve", directory))
        ports = {rule: int(line_from(process)) for rule in RULES}
        measures = {
            name: partial(press, process, ports[rule], call(ports[rule], declares), SECONDS)
            for name, (rule, declares) in ROWS.items()
        }
        for measure in measures.values():  # to warm up
            measure()
        costs: dict[str, list[Any]] = {name: [] for name in ROWS}
        for number in range(rounds):
            for name in tuple(ROWS)[:: 1 if number % 2 else -1]:
                costs[name].append(measures[name]())
    print("| server | calls/s | for a call, µs: median | relative: median | quartiles |")
    print("|---|---|---|---|---|")
    first = next(iter(costs.values()))
    for name, found in costs.items():
        micros = statistics.median(cost.cpu_seconds for cost in found) * 1e6
        ratios = [
            cost.cpu_seconds / base.cpu_seconds for cost, base in zip(found, first, strict=True)
        ]
        low, median, high = statistics.quantiles(ratios, n=4)
        rate = statistics.median(1 / cost.seconds for cost in found)
        print(f"| {name} | {rate:,.0f} | {micros:.1f} | {median:.3f} | {low:.3f} to {high:.3f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main(*map(int, sys.argv[1:]))
