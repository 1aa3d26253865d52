"""Compare the parsers in one run: ``python -m benchmarks.parsers [ROUNDS]``.

A parser that does not find every message is shown as wrong, and is not timed. In each table the
rows where another one is ahead come first. The ratios are written to ``build/bench/ratios.json``.
Each round measures all rows before the next one begins, so that a run that has not much time has
every row, too.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from . import plot
from .measuring import about_machine, has_time, skip, spread
from .readers import InNode
from .workloads import FLOORS, OURS, Parser, Workload, workloads

ROUNDS = 7
"""Every parser has its turn in each round, so that a busy moment hits all of them."""

LEAST_SECONDS = 0.002
"""What takes less is repeated within a round."""

PLOTTED = {
    "sse": "SSE, small, 140 B, LF, 1460 B",
    "sse-and-messages": "SSE + JSON-RPC, small, 140 B, LF, 64 KiB",
}


def main() -> None:
    """Measure, print what came out, and plot some of it."""
    rounds = int(sys.argv[1]) if sys.argv[1:] else ROUNDS
    results = measured(workloads(), rounds)
    for name, title in PLOTTED.items():
        for result in results:
            if result.name == title:
                micros = {parser: times.least * 1e6 for parser, times in result.times.items()}
                plot.write(name, title, "µs for each message", micros, OURS)
    plot.write_ratios(
        about_machine(),
        {result.name: result.ratios for result in results},
        {
            result.name: round(result.times[OURS].least * 1e6, 3)
            for result in results
            if result.ratios
        },
    )
    for name in dict.fromkeys(result.table for result in results):
        print(table(name, [result for result in results if result.table == name]), end="\n\n")


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


@attrs.frozen
class Result:
    """What came of a workload."""

    name: str
    times: Mapping[str, Times]
    wrong: Mapping[str, str]
    """Of parsers that were not timed, why."""

    @property
    def table(self) -> str:
        """The table that it is in."""
        return self.name.partition(",")[0]

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as long as ours others take, by their least times."""
        ours = self.times.get(OURS)
        if ours is None:
            return {}
        return {
            name: round(times.least / ours.least, 2)
            for name, times in self.times.items()
            if name != OURS
        }

    @property
    def lead(self) -> float:
        """The least ratio of those that do the same work; below 1 ours is behind."""
        return min((ratio for name, ratio in self.ratios.items() if name not in FLOORS), default=1)


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


def measured(workloads: Sequence[Workload], rounds: int) -> list[Result]:
    """What each parser takes for a message in some rounds, or in those that there is time for."""
    right: dict[str, Workload] = {}
    wrong: dict[str, dict[str, str]] = {}
    times: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for workload in workloads:
            name = workload.name
            if not has_time():
                if not number:
                    skip(name, "no time left")
                continue
            if not number:
                right[name], wrong[name] = compared(workload)
                times[name] = {parser: [] for parser in right[name].parsers}
            for parser, parse in right[name].parsers.items() if name in right else ():
                times[name][parser].append(seconds(parse) / workload.count)
    return [
        Result(name, {parser: Times(tuple(each)) for parser, each in found.items()}, wrong[name])
        for name, found in times.items()
    ]


def seconds(parse: Parser) -> float:
    """Processor time of a run, after one that finds the caches as others have left them."""
    if isinstance(parse, InNode):
        return parse.seconds(1)
    once = timed(parse, 1)
    return timed(parse, max(1, int(LEAST_SECONDS / max(once, 1e-6))))


def timed(parse: Parser, loops: int) -> float:
    """Processor time of a run, the mean of so many."""
    start = time.process_time()
    for _ in range(loops):
        parse()
    return (time.process_time() - start) / loops


def table(name: str, results: list[Result]) -> str:
    """Ours in microseconds a message, the others as multiples of it; lost rows first."""
    rows = [
        f"| {name} | sansmcp, µs: least / median / spread | others, times as long (spread) |",
        "|---|---|---|",
    ]
    for result in sorted(results, key=lambda result: result.lead >= 1):
        ratios = result.ratios
        cells = [
            f"{parser} {ratios.get(parser, '-')} ({spread(times.rounds):.0f} %)"
            for parser, times in result.times.items()
            if parser != OURS
        ]
        cells += [f"{parser} {what}" for parser, what in result.wrong.items()]
        ours: Any = result.times.get(OURS, "-")
        mark = "behind: " if result.lead < 1 else ""
        row = result.name.removeprefix(f"{name}, ")
        rows.append(f"| {mark}{row} | {ours} | {', '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
