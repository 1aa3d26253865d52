"""The benchmarks work, and everybody in them does the same work; nothing is timed here."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from benchmarks import clients, measuring, parsers, plot, stdio, streams
from benchmarks.measuring import Cost, column_of, least, table
from benchmarks.workloads import OURS, Workload, peer, workloads

WORKLOADS = workloads()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_parser_finds_every_message(workload: Workload) -> None:
    assert workload.parsers[OURS]() == workload.count
    found = {name: parse() for name, parse in workload.parsers.items()}
    assert set(found.values()) == {workload.count}, found


def test_what_is_not_installed_is_left_out() -> None:
    assert peer("no_such_module") is None


def test_a_table_shows_how_many_times_as_long_others_take() -> None:
    text = parsers.table({"lines": {OURS: 2e-6, "slow": 5e-6, "fast": 1e-6}})
    assert text.splitlines()[-1] == "| lines | 2.00 | slow 2.5, fast 0.5 |"


def test_the_quick_way_measures_every_parser() -> None:
    workload = Workload("any", 2, {OURS: lambda: 2, "other": lambda: 2})
    assert parsers.quickly(workload).keys() == {OURS, "other"}


def test_a_plot_has_a_bar_for_each_and_the_lowest_first() -> None:
    drawn = plot.svg("a < b", "s", {"other": 2.0, OURS: 1.0}, OURS)
    assert "a &lt; b (s)" in drawn
    assert drawn.index(f">{OURS}<") < drawn.index(">other<")
    assert drawn.count("<rect x=") == 2


def test_what_is_plotted_is_measured() -> None:
    assert set(parsers.PLOTTED.values()) <= {workload.name for workload in WORKLOADS}


def test_the_least_of_all_rounds_counts() -> None:
    costs = iter((Cost(3, 1), Cost(2, 5), Cost(4, 2)))
    assert least({"any": lambda: next(costs)}) == {"any": Cost(2, 1)}


def test_a_server_that_closes_a_stream_ends_the_benchmark() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(SystemExit, match="closed a connection"):
        streams.read_messages(ours, 1)


def test_what_was_not_measured_is_left_open() -> None:
    costs = {"a, b: first": Cost(0.5, 1e-6), "c: second": Cost(0.25, 2e-6)}
    text = table("of", costs, ("first", "second"))
    assert text.splitlines()[2:] == ["| a, b | 1.0 (2/s) | - |", "| c | - | 2.0 (4/s) |"]
    assert column_of(costs, "second") == {"c": 2.0}


FEW = {"sansmcp, asyncio", "sansmcp, trio", "bare trio"}


@pytest.mark.parametrize(
    ("benchmark", "contestants", "much"),
    [(clients, "CLIENTS", 0.05), (streams, "SPEAKERS", 40), (stdio, "SERVERS", 40)],
)
def test_contestants_do_what_they_are_asked_for(
    benchmark: Any, contestants: str, much: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of ours that open connections where there are enough end it."""
    few = {name: each for name, each in getattr(benchmark, contestants).items() if name in FEW}
    monkeypatch.setattr(benchmark, contestants, few)
    monkeypatch.setattr(stdio, "with_node", dict)
    monkeypatch.setattr(measuring, "ROUNDS", 1)
    assert len(few) == 3
    assert all(cost.rate > 0 for cost in benchmark.measure(much).values())
