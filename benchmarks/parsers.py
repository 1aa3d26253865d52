"""Compare the parsers in one run: ``python -m benchmarks.parsers [--quick]``.

``--quick`` gives a table in some seconds. Without it pyperf measures, with processes of its own and
all its options (``--fast``, ``-o FILE``, ``--affinity``): slower, and steadier.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from . import plot
from .readers import InNode
from .workloads import OURS, Parser, Workload, workloads

ROUNDS = 5
"""Every parser has its turn in each round, so that a busy moment hits all of them."""

PLOTTED = {
    "sse": "SSE, small events, 1460 B",
    "sse-and-messages": "SSE and JSON-RPC, small, 64 KiB",
}

IS_WORKER = "--worker" in sys.argv
"""Whether pyperf has started this process to take one measurement."""


def main() -> None:
    """Measure, print what came out, and plot some of it."""
    time_of = quickly if "--quick" in sys.argv else with_pyperf()
    measured = {workload.name: time_of(workload) for workload in workloads()}
    if not IS_WORKER:
        for name, workload in PLOTTED.items():
            micros = {parser: seconds * 1e6 for parser, seconds in measured[workload].items()}
            plot.write(name, workload, "µs for each message", micros, OURS)
        print(table(measured))


def quickly(workload: Workload) -> dict[str, float]:
    """Seconds that each parser takes: the shortest of some rounds."""
    times = dict.fromkeys(workload.parsers, float("inf"))
    for _ in range(ROUNDS):
        for name, parse in workload.parsers.items():
            times[name] = min(times[name], seconds(1, parse))
    return {name: least / workload.count for name, least in times.items()}


def seconds(loops: int, parse: Parser) -> float:
    """Processor time of so many runs, after one that finds the caches as others have left them."""
    if isinstance(parse, InNode):
        return parse.seconds(loops)
    parse()
    start = time.process_time()
    for _ in range(loops):
        parse()
    return time.process_time() - start


class Benchmark(Protocol):
    """What pyperf has measured."""

    def mean(self) -> float:
        """Seconds."""
        ...


class Runner(Protocol):
    """What is used of pyperf, which has no types."""

    def bench_time_func(
        self, name: str, seconds: Callable[..., float], *arguments: Any, inner_loops: int
    ) -> Benchmark | None:
        """Measure with a function that is told how often; None in processes that do another one."""
        ...


def with_pyperf() -> Callable[[Workload], dict[str, float]]:
    """Measure with pyperf."""
    pyperf = importlib.import_module("pyperf")
    runner: Runner = pyperf.Runner(processes=3, values=5, program_args=("-m", "benchmarks.parsers"))

    def time_of(workload: Workload) -> dict[str, float]:
        found = {
            name: runner.bench_time_func(
                f"{workload.name}: {name}", seconds, parse, inner_loops=workload.count
            )
            for name, parse in workload.parsers.items()
        }
        if IS_WORKER:
            return {}
        return {name: each.mean() for name, each in found.items() if each is not None}

    return time_of


def table(measured: dict[str, dict[str, float]]) -> str:
    """The times of each workload: ours in microseconds a message, the others as multiples of it."""
    rows = ["| workload | sansmcp, µs | others, times as long |", "|---|---|---|"]
    for workload, times in measured.items():
        ours = times.pop(OURS)
        others = ", ".join(f"{name} {seconds / ours:.1f}" for name, seconds in times.items())
        rows.append(f"| {workload} | {ours * 1e6:.2f} | {others} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
