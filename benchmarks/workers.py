"""How much more two processes serve than one: ``python -m benchmarks.workers [seconds]``.

``sansmcp serve --workers`` with one process and with two, which share a SqliteStore; 32 callers
make a small call of 2026-07-28. Both have their turn in each round. The callers are a process of
their own, which takes its share of the processors: on two cores, two processes cannot serve twice
as much.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from .contestants import application
from .measuring import MODERN, Cost, Costs, Skipped, in_rounds, line_from, skip, started_command
from .servers import call, press

app = application()
COUNTS = (1, 2)


def command(count: int, store: Path) -> list[str]:
    """The command that serves with so many processes."""
    serve = [sys.executable, "-m", "sansmcp_cli", "serve", "--http", "127.0.0.1:0"]
    return [*serve, "--workers", str(count), "--store", str(store), "benchmarks.workers"]


def measure(seconds: float) -> dict[str, Costs]:
    """What a call takes, by the number of processes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        measures: dict[str, Callable[[], Cost]] = {}
        for count in COUNTS:
            process = stack.enter_context(started_command(command(count, folder / str(count))))
            try:
                port = urlsplit(line_from(process)).port or 0
            except Skipped as reason:
                skip(str(count), reason)
                continue
            measures[str(count)] = partial(press, process, port, call(MODERN, port), seconds)
        return in_rounds(measures)


def table(costs: dict[str, Costs]) -> str:
    """The best rates, and how many times that of one process."""
    rows = ["| processes | calls/s | times that of one |", "|---|---|---|"]
    one = costs.get("1")
    for count, cost in costs.items():
        times = "-" if one is None else f"{cost.rate / one.rate:.2f}"
        rows.append(f"| {count} | {cost.rate:,.0f} | {times} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)))
