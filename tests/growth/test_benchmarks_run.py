"""The benchmarks work, and everybody in them does the same work; nothing is timed here."""

from __future__ import annotations

import pytest

from benchmarks import parsers, plot
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
