"""Compare servers: ``python -m benchmarks.servers [seconds]``.

Each server is a process. 32 connections send it the same small call, each the next one when it has
its answer; all servers have their turn in each round. What counts is the processor time that the
server takes for a request, which other work on the machine changes less than it does the rate.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import attrs

from . import plot
from .contestants import SERVERS

CALLERS = 32
ROUNDS = 3
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
_META = "io.modelcontextprotocol/"


def call(version: str, port: int) -> bytes:
    """A small call."""
    return post("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, port, version)


def post(method: str, params: dict[str, object], port: int, version: str = MODERN) -> bytes:
    """A request with its head, for a server that keeps no sessions."""
    lines = [
        "POST /mcp HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"mcp-protocol-version: {version}",
    ]
    if version == MODERN:
        nothing: dict[str, object] = {}
        about = {f"{_META}protocolVersion": version, f"{_META}clientCapabilities": nothing}
        params = {**params, "_meta": about}
        lines.append(f"mcp-method: {method}")
        lines += [f"mcp-name: {params['name']}"] if "name" in params else []
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", body]).encode()


@attrs.define
class Load:
    """What a server has done."""

    requests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@contextmanager
def running(name: str) -> Generator[tuple[int, int]]:
    """A server; gives its port and process id."""
    command = [sys.executable, "-m", "benchmarks.contestants", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline()
            yield int(url.rpartition(":")[2].partition("/")[0]), process.pid
        finally:
            process.terminate()


def press(port: int, pid: int, request: bytes, seconds: float) -> Load:
    """Let all callers call for a while."""
    load = Load()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(CALLERS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, (connection, bytearray()))
        start, cpu = time.perf_counter(), cpu_seconds(pid)
        while time.perf_counter() < start + seconds:
            for key, _ in selector.select(1):
                connection, received = key.data
                received += connection.recv(65536)
                if is_complete(received):
                    received.clear()
                    load.requests += 1
                    connection.sendall(request)
        load.seconds, load.cpu_seconds = time.perf_counter() - start, cpu_seconds(pid) - cpu
    return load


def is_complete(response: bytearray) -> bool:
    """Whether a response is there; one that is none, or an error, ends the benchmark."""
    head, blank, body = response.partition(b"\r\n\r\n")
    if not blank:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"Not an answer: {response.decode()}")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return len(body) == int(length)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, on Linux."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float) -> dict[str, Load]:
    """The best round of each server."""
    best: dict[str, Load] = {}
    for _ in range(ROUNDS):
        for name in SERVERS:
            for version in (MODERN, LEGACY) if "mcp" in name else (MODERN,):
                with running(name) as (port, pid):
                    press(port, pid, call(version, port), 0.3)  # to warm up
                    load = press(port, pid, call(version, port), seconds)
                title = f"{name}, {version}" if "mcp" in name else name
                if title not in best or per_request(load) < per_request(best[title]):
                    best[title] = load
    return best


def per_request(load: Load) -> float:
    """Processor time of the server for a request, in seconds."""
    return load.cpu_seconds / load.requests


def table(best: dict[str, Load]) -> str:
    """The results, the quickest first."""
    rows = ["| server | requests/s | processor time for a request, µs |", "|---|---|---|"]
    for name, load in sorted(best.items(), key=lambda item: per_request(item[1])):
        rate, micros = load.requests / load.seconds, per_request(load) * 1e6
        rows.append(f"| {name} | {rate:,.0f} | {micros:.0f} |")
    return "\n".join(rows)


def main(seconds: float) -> None:
    """Measure, print what came out, and plot it."""
    best = measure(seconds)
    micros = {name: per_request(load) * 1e6 for name, load in best.items()}
    plot.write(
        "servers", "A small call over HTTP", "µs of the server's processor", micros, "sansmcp"
    )
    print(table(best))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
