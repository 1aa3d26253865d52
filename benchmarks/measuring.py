"""Processes that are measured: how they are started, and what each thing they do has cost."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress

import attrs

ROUNDS = 3
_QUICK = re.compile(r"(sansmcp|bare),? asyncio( \+ h11)?$|mcp")
MODERN = "2026-07-28"
LEGACY = "2025-11-25"

Process = subprocess.Popen[bytes]


class Skipped(Exception):
    """A contestant that takes no part: it is not installed, or does not do what it is asked."""


@attrs.frozen
class Cost:
    """What one call, or one event, has taken in one round, in seconds."""

    seconds: float
    cpu_seconds: float
    """Of the process under test."""


@attrs.frozen
class Costs:
    """The costs of all rounds."""

    rounds: tuple[Cost, ...]

    @property
    def rate(self) -> float:
        """How many a second, in the best round."""
        return 1 / max(min(cost.seconds for cost in self.rounds), 1e-9)

    @property
    def micros(self) -> float:
        """The least processor time of one, in microseconds."""
        return self._sorted[0]

    @property
    def median(self) -> float:
        """The median of the rounds, in microseconds."""
        return statistics.median(self._sorted)

    @property
    def spread(self) -> float:
        """How much more the worst round took than the best one, in percent."""
        return spread(self._sorted)

    @property
    def _sorted(self) -> list[float]:
        return sorted(cost.cpu_seconds * 1e6 for cost in self.rounds)

    def __str__(self) -> str:
        return f"{self.micros:.1f} / {self.median:.1f} / {self.spread:.0f} % ({self.rate:,.0f}/s)"


def spread(values: Sequence[float]) -> float:
    """How much larger the largest value is than the least, in percent; 0 where that is 0."""
    least = min(values)
    return 100 * (max(values) / least - 1) if least else 0.0


@contextmanager
def started(module: str, *arguments: str) -> Generator[Process]:
    """A module of this package as a process with pipes to it; it is terminated at the end."""
    with started_command([sys.executable, "-m", f"benchmarks.{module}", *arguments]) as process:
        yield process


@contextmanager
def started_command(command: Sequence[str]) -> Generator[Process]:
    """A process with pipes to it; it is terminated at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.terminate()


def line_from(process: Process) -> str:
    """The next line that a process prints. Raises Skipped for one that has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise Skipped(last_words(process))
    return line.decode().strip()


def last_words(process: Process) -> str:
    """The last line of the standard error of a process that has ended."""
    assert process.stderr is not None
    lines = process.stderr.read().decode("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it has ended")


def cpu_seconds(process: Process) -> float:
    """Processor time of a process so far, that of all its threads, on Linux."""
    return time.clock_gettime(~process.pid << 3 | 2)  # as clock_getcpuclockid() has it


@contextmanager
def clocks(process: Process) -> Generator[Callable[[int], Cost]]:
    """Starts the clocks of a process; gives what tells what each of so many things has taken."""
    start, cpu = time.perf_counter(), cpu_seconds(process)

    def cost(count: int) -> Cost:
        if not count:
            raise Skipped("nothing was answered in time")
        return Cost((time.perf_counter() - start) / count, (cpu_seconds(process) - cpu) / count)

    yield cost


def wanted(names: Iterable[str]) -> list[str]:
    """The contestants that take part: in the quick way ours and bare ones on asyncio, and mcp."""
    quick = "BENCHMARK_QUICK" in os.environ
    return [name for name in names if not quick or _QUICK.match(name)]


def has_time() -> bool:
    """Whether there is time for more: ``BENCHMARK_END`` is a time of the monotonic clock."""
    return time.monotonic() < float(os.environ.get("BENCHMARK_END", "inf"))


def check_time() -> None:
    """Raises Skipped if there is no time for one more contestant."""
    if not has_time():
        raise Skipped("no time left")


def in_rounds(measures: Mapping[str, Callable[[], Cost]]) -> dict[str, Costs]:
    """The costs of each; in each round all have their turn.

    One that fails is shown with its reason, and has no costs.
    """
    found: dict[str, list[Cost]] = {name: [] for name in measures}
    for _ in range(ROUNDS):
        for name in tuple(found):
            try:
                if not found[name]:
                    check_time()
                elif not has_time():
                    continue
                found[name].append(measures[name]())
            except (Skipped, OSError) as reason:
                skip(name, reason)
                del found[name]
    return {name: Costs(tuple(costs)) for name, costs in found.items()}


def skip(name: str, reason: object) -> None:
    """Show that a contestant is left out, and why."""
    print(f"skipped: {name}: {reason}", flush=True)


def table(what: str, costs: Mapping[str, Costs], columns: Sequence[str]) -> str:
    """A table of costs by ``"row: column"``.

    Of each: the least and the median processor time in microseconds, the spread of the rounds, and
    how many a second.
    """
    lines = [f"| {' | '.join([what, *columns])} |", "|" + "---|" * (len(columns) + 1)]
    for row in dict.fromkeys(name.rpartition(": ")[0] for name in costs):
        found = [costs.get(f"{row}: {column}") for column in columns]
        cells = ["-" if cost is None else str(cost) for cost in found]
        lines.append(f"| {' | '.join([row, *cells])} |")
    return "\n".join(lines)


def about_machine() -> dict[str, str]:
    """The machine, and the versions of what is measured."""
    names = (
        "sansmcp",
        "mcp",
        "httpx",
        "httpx-sse",
        "httpx2",
        "sseclient-py",
        "openai",
        "anthropic",
        "msgspec",
        "orjson",
        "h11",
        "httptools",
        "trio",
    )
    found = {
        "time": time.strftime("%Y-%m-%d"),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def column_of(costs: Mapping[str, Costs], column: str) -> dict[str, float]:
    """The processor times of one column, in microseconds, by row."""
    names = [name for name in costs if name.endswith(f": {column}")]
    return {name.removesuffix(f": {column}"): costs[name].micros for name in names}
