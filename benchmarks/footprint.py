"""What it takes to be there: ``python -m benchmarks.footprint``.

Processor time and modules of an import, in a process of its own; memory that a server takes for
each client that only listens, beyond what the kernel keeps for its socket. Linux only.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from .contestants import SERVERS
from .requests import message, post
from .servers import running

IMPORTS = ("sansmcp", "sansmcp_blocking", "sansmcp_trio", "sansmcp_asyncio", "httpx", "mcp")
ROUNDS = 5
LISTENERS = 400

_MEASURE = """if True:
    import sys, time
    before, start = len(sys.modules), time.process_time()
    import {name}
    print((time.process_time() - start) * 1000, len(sys.modules) - before)
"""


def imported(name: str) -> tuple[float, int]:
    """Milliseconds and modules of an import: the quickest of some."""
    command = [sys.executable, "-c", _MEASURE.format(name=name)]
    found: list[tuple[float, int]] = []
    for _ in range(ROUNDS):
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        milliseconds, modules = printed.split()
        found.append((float(milliseconds), int(modules)))
    return min(found)


def listening(port: int) -> bytes:
    """A request for an event stream that stays open."""
    wanted = {"notifications": {"toolsListChanged": True}}
    return post(message("subscriptions/listen", wanted), port)


def memory_per_listener(server: str) -> float:
    """KiB that one more listening client takes."""
    with running(server) as (port, process), ExitStack() as stack:
        sizes = [0.0, 0.0]
        for number in range(2 * LISTENERS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(listening(port))
            received = connection.recv(65536)
            if not received.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"Not a stream: {received.decode()}")
            if number + 1 in (LISTENERS, 2 * LISTENERS):
                sizes[number // LISTENERS] = resident(process.pid)
    return (sizes[1] - sizes[0]) / LISTENERS


def resident(pid: int) -> float:
    """KiB of memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def main() -> None:
    """Measure, and print two tables."""
    print("| import | processor time, ms | modules |\n|---|---|---|")
    for name in IMPORTS:
        milliseconds, modules = imported(name)
        print(f"| {name} | {milliseconds:.0f} | {modules} |")
    print("\n| server | memory for a listener, KiB |\n|---|---|")
    for name in SERVERS:
        if name.startswith("sansmcp"):
            print(f"| {name} | {memory_per_listener(name):.1f} |")


if __name__ == "__main__":
    main()
