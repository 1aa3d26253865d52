"""Compare the parsers in one run: ``python -m benchmarks.parsers [--quick]``.

A parser that does not find every message is shown as wrong, and is not timed. ``--quick`` gives a
table in some seconds. Without it pyperf measures, with processes of its own and all its options
(``--fast``, ``-o FILE``, ``--affinity``): slower, and steadier.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import attrs

from . import plot
from .measuring import has_time, skip, spread
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
    measured: dict[str, dict[str, Times]] = {}
    wrong: dict[str, dict[str, str]] = {}
    for workload in workloads():
        if not has_time():
            skip(workload.name, "no time left")
            continue
        right, wrong[workload.name] = compared(workload)
        measured[workload.name] = time_of(right)
    if not IS_WORKER:
        for name, title in PLOTTED.items():
            if title in measured:
                micros = {parser: times.least * 1e6 for parser, times in measured[title].items()}
                plot.write(name, title, "µs for each message", micros, OURS)
        print(table(measured, wrong))


@attrs.frozen
class Times:
    """Seconds that a parser takes for a message, in all rounds."""

    rounds: tuple[float, ...]

    @property
    def least(self) -> float:
        """In the best round."""
        return min(self.rounds)

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return f"{self.least * 1e6:.2f} / {self.median * 1e6:.2f} / {spread(self.rounds):.0f} %"


def compared(workload: Workload) -> tuple[Workload, dict[str, str]]:
    """The parsers that find every message of a workload, and what is wrong with the others."""
    right: dict[str, Parser] = {}
    wrong: dict[str, str] = {}
    for name, parse in workload.parsers.items():
        try:
            found = parse()
        except Exception as error:  # whatever others raise
            wrong[name] = f"wrong: {type(error).__name__}"
        else:
            if found == workload.count:
                right[name] = parse
            else:
                wrong[name] = f"wrong: found {found} of {workload.count}"
    return attrs.evolve(workload, parsers=right), wrong


def quickly(workload: Workload) -> dict[str, Times]:
    """Seconds that each parser takes, in some rounds."""
    times: dict[str, list[float]] = {name: [] for name in workload.parsers}
    for _ in range(ROUNDS):
        for name, parse in workload.parsers.items():
            if times[name] and not has_time():
                continue
            times[name].append(seconds(1, parse) / workload.count)
    return {name: Times(tuple(each)) for name, each in times.items()}


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

    def get_values(self) -> tuple[float, ...]:
        """Seconds."""
        ...


class Runner(Protocol):
    """What is used of pyperf, which has no types."""

    def bench_time_func(
        self, name: str, seconds: Callable[..., float], *arguments: Any, inner_loops: int
    ) -> Benchmark | None:
        """Measure with a function that is told how often; None in processes that do another one."""
        ...


def with_pyperf() -> Callable[[Workload], dict[str, Times]]:
    """Measure with pyperf."""
    pyperf = importlib.import_module("pyperf")
    runner: Runner = pyperf.Runner(processes=3, values=5, program_args=("-m", "benchmarks.parsers"))

    def time_of(workload: Workload) -> dict[str, Times]:
        found = {
            name: runner.bench_time_func(
                f"{workload.name}: {name}", seconds, parse, inner_loops=workload.count
            )
            for name, parse in workload.parsers.items()
        }
        if IS_WORKER:
            return {}
        known = {name: each for name, each in found.items() if each is not None}
        return {name: Times(each.get_values()) for name, each in known.items()}

    return time_of


def table(measured: dict[str, dict[str, Times]], wrong: dict[str, dict[str, str]]) -> str:
    """The times of each workload: ours in microseconds a message, the others as multiples of it."""
    rows = [
        "| workload | sansmcp, µs: least / median / spread | others, times as long (spread) |",
        "|---|---|---|",
    ]
    for workload, times in measured.items():
        ours = times.get(OURS)
        unit = 0.0 if ours is None else ours.least
        cells = [_compared_with(unit, name, each) for name, each in times.items() if name != OURS]
        cells += [f"{name} {what}" for name, what in wrong.get(workload, {}).items()]
        rows.append(f"| {workload} | {ours or '-'} | {', '.join(cells)} |")
    return "\n".join(rows)


def _compared_with(unit: float, name: str, times: Times) -> str:
    how_long = f"{times.least / unit:.1f}" if unit else f"{times.least * 1e6:.2f} µs"
    return f"{name} {how_long} ({spread(times.rounds):.0f} %)"


if __name__ == "__main__":
    main()
