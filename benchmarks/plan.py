"""The goals of the parsers beside what a run has measured: ``python -m benchmarks.plan [FILE]``.

Prints the table of ``runs.md``, from ``build/bench/ratios.json`` or another file of that form, and
then the rows of all workloads in which a Python peer is ahead. What is not met is bold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from . import plot
from .workloads import FLOORS

SPLIT, BY_JSON, ORJSON = "bytes.split", "httpx-sse + json", "orjson, JSON only"
BESIDE_FLOORS = ("sansmcp, payloads unopened", "eventsource-parser (Node)")
OFFICIAL = ("mcp", "httpx2 (for mcp)")
PEERS = "every Python peer"

Ratios: TypeAlias = Mapping[str, float]
"""How many times as long as ours others take with a workload."""


@attrs.frozen
class Goal:
    """How ours compares with another parser, or with all that do the same work."""

    other: str
    at_most: float | None = None
    """Times the time of the other."""
    ahead_by: float | None = None
    """How many times as long the other takes at least."""

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g} x {self.other}"
        by = "" if self.ahead_by == 1 else f" by {self.ahead_by:g}"
        return f"ahead of {self.other}{by}"

    def reached(self, ratios: Ratios) -> str:
        """What was measured, bold if the goal is not met."""
        ratio = best(ratios) if self.other == PEERS else ratios.get(self.other)
        if not ratio:
            return "-"
        value = ratio if self.at_most is None else 1 / ratio
        is_met = ratio >= (self.ahead_by or 0) and value <= (self.at_most or value)
        return f"{value:.2f}" if is_met else f"**{value:.2f}**"


AHEAD = Goal(PEERS, ahead_by=1)
LARGE = (Goal(SPLIT, at_most=1.2), AHEAD)
TOGETHER_SMALL = (Goal(BY_JSON, ahead_by=1.3), Goal("mcp", ahead_by=3))
TOGETHER = (Goal(BY_JSON, ahead_by=1.3), Goal("mcp", ahead_by=2))


def both(workload: str) -> tuple[str, str]:
    """A workload with either line ending."""
    return workload.format("LF"), workload.format("CRLF")


ROWS: Mapping[str, tuple[tuple[str, ...], tuple[Goal, ...]]] = {
    "SSE, small, 64 KiB, LF / CRLF": (
        both("SSE, small, 140 B, {}, 64 KiB"),
        (Goal(SPLIT, at_most=2), AHEAD),
    ),
    "SSE, small, one event per chunk, LF / CRLF": (
        both("SSE, small, 140 B, {}, one event"),
        (AHEAD,),
    ),
    "SSE, small, 1460 B, LF / CRLF": (both("SSE, small, 140 B, {}, 1460 B"), (AHEAD,)),
    "SSE, table of 11 KB, 64 KiB, LF / CRLF": (both("SSE, table, 11 KB, {}, 64 KiB"), LARGE),
    "SSE, table of 11 KB, one event per chunk, LF / CRLF": (
        both("SSE, table, 11 KB, {}, one event"),
        LARGE,
    ),
    "SSE, image of 40 KB, 64 KiB, LF / CRLF": (both("SSE, image, 40 KB, {}, 64 KiB"), LARGE),
    "SSE, Chinese, 6 KB, 64 KiB, LF / CRLF": (both("SSE, Chinese, 6 KB, {}, 64 KiB"), (AHEAD,)),
    "SSE, search results, 4 KB, 1460 B, LF / CRLF": (
        both("SSE, search, 4 KB, {}, 1460 B"),
        (AHEAD,),
    ),
    "SSE, JSON with line breaks, 64 KiB, LF / CRLF": (
        both("SSE, pretty, 11 KB, {}, 64 KiB"),
        LARGE,
    ),
    "SSE, table of 2.8 MB, 64 KiB, LF / CRLF": (both("SSE, table, 2.8 MB, {}, 64 KiB"), (AHEAD,)),
    "SSE, recordings, 64 KiB: everything over HTTP, over SSE, Python SDK": (
        (
            "SSE, everything over HTTP, 64 KiB",
            "SSE, everything over SSE, 64 KiB",
            "SSE, Python SDK over HTTP, 64 KiB",
        ),
        (AHEAD,),
    ),
    "SSE, these recordings, one event per chunk": (
        (
            "SSE, everything over HTTP, one event",
            "SSE, everything over SSE, one event",
            "SSE, Python SDK over HTTP, one event",
        ),
        (AHEAD,),
    ),
    "JSON-RPC decode, 140 B": (
        ("JSON-RPC, small, 140 B",),
        (Goal("json.loads", at_most=0.45),),
    ),
    "JSON-RPC decode, table of 11 KB": (
        ("JSON-RPC, table, 11 KB",),
        (Goal("json.loads", at_most=0.7),),
    ),
    "JSON-RPC decode, table of 2.8 MB": (
        ("JSON-RPC, table, 2.8 MB",),
        (Goal("json.loads", at_most=0.55),),
    ),
    "JSON-RPC decode, file / image / Chinese": (
        ("JSON-RPC, file, 11 KB", "JSON-RPC, image, 40 KB", "JSON-RPC, Chinese, 6 KB"),
        (Goal("json.loads", at_most=0.7),),
    ),
    "SSE + JSON-RPC, small, 64 KiB, LF / CRLF": (
        both("SSE + JSON-RPC, small, 140 B, {}, 64 KiB"),
        TOGETHER_SMALL,
    ),
    "SSE + JSON-RPC, small, one event per chunk, LF / CRLF": (
        both("SSE + JSON-RPC, small, 140 B, {}, one event"),
        TOGETHER_SMALL,
    ),
    "SSE + JSON-RPC, table of 11 KB, 64 KiB, LF / CRLF": (
        both("SSE + JSON-RPC, table, 11 KB, {}, 64 KiB"),
        TOGETHER,
    ),
    "SSE + JSON-RPC, table of 2.8 MB, 64 KiB, LF / CRLF": (
        both("SSE + JSON-RPC, table, 2.8 MB, {}, 64 KiB"),
        TOGETHER,
    ),
    "encode, 140 B / file / image": (
        ("encode, small, 140 B", "encode, file, 11 KB", "encode, image, 40 KB"),
        (Goal(ORJSON, at_most=1.5),),
    ),
    "encode, table of 11 KB / of 2.8 MB": (
        ("encode, table, 11 KB", "encode, table, 2.8 MB"),
        (Goal(ORJSON, at_most=2.5),),
    ),
}
"""For each row its workloads, in the order in which their figures are printed, and its goals."""


def best(ratios: Ratios) -> float | None:
    """The least ratio of those that do the same work."""
    return min((each for name, each in ratios.items() if name not in FLOORS), default=None)


def least(micros: float, ratios: Ratios, *, named: bool = False) -> str:
    """The least time of some parsers, and its name."""
    if not ratios:
        return "-"
    name = min(ratios, key=ratios.__getitem__)
    return f"{number(micros * ratios[name])}{f' {name}' if named else ''}"


def number(micros: float) -> str:
    """Three digits of a time, or more."""
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.3g}"


def table(found: Mapping[str, Any]) -> str:
    """The rows, with what a run has measured."""
    micros: Mapping[str, float] = found["micros"]
    lines = [
        "| µs | sansmcp | floor | best Python peer | official SDK | goals, and what was reached |",
        "|---|---|---|---|---|---|",
    ]
    for title, (workloads, goals) in ROWS.items():
        cells: list[list[str]] = [[], [], [], []]
        reached: dict[str, list[str]] = {str(goal): [] for goal in goals}
        for workload in workloads:
            ratios: Ratios = found["ratios"].get(workload, {})
            ours = micros.get(workload, 0.0)
            groups: list[dict[str, float]] = [{}, {}, {}]
            for name, ratio in ratios.items():
                group = 0 if name in FLOORS else 2 if name in OFFICIAL else 1
                if name not in BESIDE_FLOORS:
                    groups[group][name] = ratio
            cells[0].append(number(ours) if ours else "-")
            for cell, group_ratios in zip(cells[1:], groups, strict=True):
                cell.append(least(ours, group_ratios, named=cell is cells[2]))
            for goal in goals:
                reached[str(goal)].append(goal.reached(ratios))
        told = "; ".join(f"{goal}: {' / '.join(values)}" for goal, values in reached.items())
        lines.append(f"| {title} | {' | '.join(' / '.join(cell) for cell in cells)} | {told} |")
    return "\n".join(lines)


def lost(ratios: Mapping[str, Ratios]) -> str:
    """The workloads in which a peer is ahead, and how many there are of all."""
    behind = {name: best(each) for name, each in ratios.items()}
    lines = [f"- {name}: {ratio}" for name, ratio in behind.items() if ratio and ratio < 1]
    return "\n".join([f"A Python peer is ahead in {len(lines)} of {len(ratios)} rows.", *lines])


def main(path: Path = plot.BUILD / plot.RATIOS.name) -> None:
    """Print what the file has."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    print(f"{table(found)}\n\n{lost(found['ratios'])}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
