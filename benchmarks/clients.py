"""Compare clients: ``python -m benchmarks.clients [seconds]``.

Each client is a process. It calls a server without MCP (:mod:`.peers`), one call at a time and 32
at once: answered in JSON, by an event stream, by one with a thousand events before the answer, and
on stdio. What counts is the processor time that the client takes for a call, or for each event. A
client of ours that opens connections where there are enough ends the benchmark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from . import plot
from .callers import CLIENTS
from .measuring import (
    Cost,
    Costs,
    Process,
    Skipped,
    check_time,
    column_of,
    in_rounds,
    line_from,
    skip,
    started,
    table,
    wanted,
)
from .peers import EVENTS

CALLERS = 32
COLUMNS = {
    "JSON, 1": ("json", 1),
    f"JSON, {CALLERS}": ("json", CALLERS),
    "SSE, 1": ("sse", 1),
    f"SSE, {CALLERS}": ("sse", CALLERS),
    "one event": ("events", 1),
    "stdio, 1": ("stdio", 1),
    f"stdio, {CALLERS}": ("stdio", CALLERS),
}


def measured(process: Process, row: str, peer: str, callers: int, seconds: float) -> Cost:
    """What a client takes for a call."""
    assert process.stdin is not None
    process.stdin.write(f"{peer} {callers} {seconds}\n".encode())
    process.stdin.flush()
    took, cpu_took, opened = map(float, line_from(process).split())
    if opened and row.startswith("sansmcp") and "httpx" not in row:  # which has its own mind
        raise SystemExit(f"{row} has opened {opened:.0f} connections to {peer}, {callers} callers")
    events = EVENTS + 1 if peer == "events" else 1
    return Cost(took / events, cpu_took / events)


def measure(seconds: float) -> dict[str, Costs]:
    """The costs of each client, by ``"row: column"``."""
    with ExitStack() as stack:
        server = stack.enter_context(started("peers", "http"))
        url = line_from(server)
        measures: dict[str, Callable[[], Cost]] = {}
        for name, version in ((n, v) for n in wanted(CLIENTS) for v in CLIENTS[n].versions):
            client = CLIENTS[name]
            row = name if len(client.versions) == 1 else f"{name}, {version}"
            try:
                check_time()
                process = stack.enter_context(started("callers", name, version, url))
                line_from(process)  # it is ready
            except Skipped as reason:
                skip(row, reason)
                continue
            for column, (peer, callers) in COLUMNS.items():
                if peer in client.peers and not (client.is_blocking and callers > 1):
                    measures[f"{row}: {column}"] = partial(
                        measured, process, row, peer, callers, seconds
                    )
        return in_rounds(measures)


def main(seconds: float) -> None:
    """Measure, print what came out, and plot some of it."""
    costs = measure(seconds)
    print(table("client: µs, least / median / spread (rate)", costs, tuple(COLUMNS)))
    unit = "µs of the client's processor"
    plot.write("clients", "A call over HTTP", unit, column_of(costs, "JSON, 1"), "sansmcp")
    plot.write("reading", "Reading an event", unit, column_of(costs, "one event"), "sansmcp")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
