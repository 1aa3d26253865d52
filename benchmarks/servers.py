"""Compare servers: ``python -m benchmarks.servers [seconds]``.

Each server is a process. 32 connections send it the same small call, each the next one when it has
its answer; all servers have their turn in each round. What counts is the processor time that the
server takes for a request, which other work on the machine changes less than it does the rate.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from urllib.parse import urlsplit

from . import plot
from .contestants import SERVERS
from .measuring import (
    LEGACY,
    MODERN,
    Cost,
    Costs,
    Process,
    Skipped,
    check_time,
    clocks,
    in_rounds,
    line_from,
    skip,
    started,
    wanted,
)
from .requests import message, post

CALLERS = 32
PATIENCE = 10.0
"""Seconds that a server has for its first answers, on a machine that has other work."""


def call(version: str, port: int) -> bytes:
    """A small call."""
    params = {"name": "echo", "arguments": {"text": "hello"}}
    return post(message("tools/call", params, version), port, version)


def press(process: Process, port: int, request: bytes, seconds: float) -> Cost:
    """Let all callers call for a while."""
    requests = 0
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(CALLERS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, (connection, bytearray()))
        end = time.perf_counter() + seconds
        with clocks(process) as cost:
            while time.perf_counter() < (end if requests else end + PATIENCE):
                for key, _ in selector.select(1):
                    connection, received = key.data
                    received += connection.recv(65536)
                    if is_complete(received):
                        received.clear()
                        requests += 1
                        connection.sendall(request)
            return cost(requests)


def is_complete(response: bytearray) -> bool:
    """Whether a response is there. Raises Skipped for one that is none, or an error."""
    head, blank, body = response.partition(b"\r\n\r\n")
    if not blank:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise Skipped(f"wrong: {response[:100]!r}")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    if not length:
        raise Skipped(f"wrong: no answer in JSON, but {head[:100]!r}")
    return len(body) == int(length)


@contextmanager
def running(name: str) -> Generator[tuple[int, Process]]:
    """A server; gives its port, too."""
    with started("contestants", name) as process:
        yield urlsplit(line_from(process)).port or 0, process


def measure(seconds: float) -> dict[str, Costs]:
    """The costs of each server."""
    with ExitStack() as stack:
        measures: dict[str, Callable[[], Cost]] = {}
        for name in wanted(SERVERS):
            try:
                check_time()
                port, process = stack.enter_context(running(name))
            except Skipped as reason:
                skip(name, reason)
                continue
            for version in (MODERN, LEGACY) if "mcp" in name else (MODERN,):
                title = f"{name}, {version}" if "mcp" in name else name
                request = call(version, port)
                try:
                    press(process, port, request, 0.3)  # to warm up, and to see that it answers
                except (Skipped, OSError) as reason:
                    skip(title, reason)
                    continue
                measures[title] = partial(press, process, port, request, seconds)
        return in_rounds(measures)


def table(best: dict[str, Costs]) -> str:
    """The results, the quickest first."""
    rows = [
        "| server | requests/s | processor time for a request, µs: least | median | spread |",
        "|---|---|---|---|---|",
    ]
    for name, cost in sorted(best.items(), key=lambda item: item[1].micros):
        figures = f"{cost.rate:,.0f} | {cost.micros:.0f} | {cost.median:.0f} | {cost.spread:.0f} %"
        rows.append(f"| {name} | {figures} |")
    return "\n".join(rows)


def main(seconds: float) -> None:
    """Measure, print what came out, and plot it."""
    best = measure(seconds)
    micros = {name: cost.micros for name, cost in best.items()}
    plot.write(
        "servers", "A small call over HTTP", "µs of the server's processor", micros, "sansmcp"
    )
    print(table(best))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
