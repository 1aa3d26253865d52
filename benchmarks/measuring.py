"""Processes that are measured: how they are started, and what each thing they do has cost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import attrs

ROUNDS = 3
MODERN = "2026-07-28"
LEGACY = "2025-11-25"

Process = subprocess.Popen[bytes]


@attrs.frozen
class Cost:
    """What one call, or one event, has taken, in seconds: the least of some rounds."""

    seconds: float
    cpu_seconds: float
    """Of the process under test."""

    @property
    def rate(self) -> float:
        """How many a second."""
        return 1 / self.seconds

    @property
    def micros(self) -> float:
        """Processor time of one, in microseconds."""
        return self.cpu_seconds * 1e6

    def __str__(self) -> str:
        return f"{self.micros:.1f} ({self.rate:,.0f}/s)"

    def or_less(self, other: Cost) -> Cost:
        """The less of each."""
        cpu_seconds = min(self.cpu_seconds, other.cpu_seconds)
        return Cost(min(self.seconds, other.seconds), cpu_seconds)


@contextmanager
def started(module: str, *arguments: str) -> Generator[Process]:
    """A module of this package as a process with pipes to it; it is terminated at the end."""
    with started_command([sys.executable, "-m", f"benchmarks.{module}", *arguments]) as process:
        yield process


@contextmanager
def started_command(command: Sequence[str]) -> Generator[Process]:
    """A process with pipes to it; it is terminated at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            yield process
        finally:
            process.terminate()


def line_from(process: Process) -> str:
    """The next line that a process prints. One that prints none ends the benchmark."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"It has ended: {process.args!r}")
    return line.decode().strip()


def cpu_seconds(process: Process) -> float:
    """Processor time of a process so far, that of all its threads, on Linux."""
    return time.clock_gettime(~process.pid << 3 | 2)  # as clock_getcpuclockid() has it


@contextmanager
def clocks(process: Process) -> Generator[Callable[[int], Cost]]:
    """Starts the clocks of a process; gives what tells what each of so many things has taken."""
    start, cpu = time.perf_counter(), cpu_seconds(process)

    def cost(count: int) -> Cost:
        return Cost((time.perf_counter() - start) / count, (cpu_seconds(process) - cpu) / count)

    yield cost


def least(measures: Mapping[str, Callable[[], Cost]]) -> dict[str, Cost]:
    """The least costs of each; in each round all have their turn."""
    best: dict[str, Cost] = {}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            cost = measure()
            best[name] = cost.or_less(best.get(name, cost))
    return best


def table(what: str, costs: Mapping[str, Cost], columns: Sequence[str]) -> str:
    """Costs by ``"row: column"``: processor time in microseconds, and how many a second."""
    lines = [f"| {' | '.join([what, *columns])} |", "|" + "---|" * (len(columns) + 1)]
    for row in dict.fromkeys(name.rpartition(": ")[0] for name in costs):
        found = [costs.get(f"{row}: {column}") for column in columns]
        cells = ["-" if cost is None else str(cost) for cost in found]
        lines.append(f"| {' | '.join([row, *cells])} |")
    return "\n".join(lines)


def column_of(costs: Mapping[str, Cost], column: str) -> dict[str, float]:
    """The processor times of one column, in microseconds, by row."""
    names = [name for name in costs if name.endswith(f": {column}")]
    return {name.removesuffix(f": {column}"): costs[name].micros for name in names}
