"""The benchmarks work, and everybody in them does the same work; nothing is timed here."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks import all as all_parts
from benchmarks import clients, measuring, parsers, plan, plot, stdio, stores, streams, workers
from benchmarks.measuring import Cost, Costs, Skipped, column_of, in_rounds, table
from benchmarks.parsers import Result, Times
from benchmarks.workloads import OURS, Workload, peer, workloads

WORKLOADS = workloads()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_parser_finds_every_message(workload: Workload) -> None:
    right, wrong = parsers.compared(workload)
    assert OURS in right.parsers
    is_large = "2.8 MB" in workload.name  # the official SDK has a limit for events
    assert wrong.keys() <= ({"httpx2 (for mcp)", "mcp"} if is_large else set()), wrong


def test_what_is_not_installed_is_left_out() -> None:
    assert peer("no_such_module") is None


def test_a_table_shows_how_many_times_as_long_others_take() -> None:
    """Least, median and spread, and what is wrong in its place."""
    times = {OURS: Times((2e-6, 3e-6)), "slow": Times((5e-6,)), "fast": Times((1e-6, 2e-6))}
    ahead = {OURS: Times((2e-6,)), "slow": Times((5e-6,)), "bytes.split": Times((1e-6,))}
    results = [
        Result("SSE, won", ahead, {}),
        Result("SSE, lost", times, {"blind": "wrong: found 0"}),
        Result("SSE, none", {}, {}),
    ]
    assert parsers.table("SSE", results).splitlines()[2:] == [
        "| behind: lost | 2.00 / 2.50 / 50 % "
        "| slow 2.5 (0 %), fast 0.5 (100 %), blind wrong: found 0 |",
        "| won | 2.00 / 2.00 / 0 % | slow 2.5 (0 %), bytes.split 0.5 (0 %) |",
        "| none | - |  |",
    ]


def test_a_parser_that_finds_nothing_is_not_timed() -> None:
    """It was the fastest in the table."""

    def failing() -> int:
        raise ValueError

    workload = Workload("any", 2, {OURS: lambda: 2, "blind": lambda: 0, "failing": failing})
    right, wrong = parsers.compared(workload)
    assert list(right.parsers) == [OURS]
    assert wrong == {"blind": "wrong: found 0 of 2", "failing": "wrong: ValueError"}


def test_plots_are_not_drawn_into_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A separate command puts them there."""
    assert plot.PLOTS.parts[-3:] == ("build", "bench", "plots")
    monkeypatch.setattr(plot, "BUILD", tmp_path / "build")
    monkeypatch.setattr(plot, "PLOTS", tmp_path / "build" / "plots")
    monkeypatch.setattr(plot, "COMMITTED", tmp_path)
    monkeypatch.setattr(plot, "RATIOS", tmp_path / "ratios.json")
    plot.write("empty", "a", "s", {}, OURS)
    plot.write("any", "a", "s", {OURS: 0.0}, OURS)
    plot.commit()
    assert [path.name for path in tmp_path.glob("*.svg")] == ["any.svg"]
    for version in ("1", "2"):
        plot.write_ratios({"sansmcp": version}, {"SSE": {"other": 2.0}}, {"SSE": 1.0})
        plot.commit()
    assert list(json.loads((tmp_path / "ratios.json").read_text())) == ["1", "2"]


def test_what_was_printed_becomes_a_page() -> None:
    printed = "skipped: <a>: no time left\n| what | µs |\n|---|---|\n| behind: b | 1 |\n\nend\n"
    page = all_parts.page({"Python": "3"}, {"parsers": printed})
    assert "<p>skipped: &lt;a&gt;: no time left</p>" in page
    assert '<tr class="behind"><td>behind: b</td><td>1</td></tr>\n</table>\n<p>end</p>' in page
    assert "<tr><td>Python</td><td>3</td></tr>" in page


def test_a_contestant_that_does_nothing_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """What was answered in time may be nothing."""
    with measuring.started_command(["sleep", "60"]) as process:

        def idle() -> Cost:
            with measuring.clocks(process) as cost:
                return cost(0)

        assert in_rounds({"idle": idle}) == {}
    assert capsys.readouterr().out == "skipped: idle: nothing was answered in time\n"


def test_what_cannot_be_started_is_left_out() -> None:
    command = [sys.executable, "-c", "import no_such_module"]
    with (
        measuring.started_command(command) as process,
        pytest.raises(Skipped, match="No module named 'no_such_module'"),
    ):
        measuring.line_from(process)


def test_no_round_begins_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quick way ends in two minutes on a busy machine."""

    def slow() -> Cost:
        monkeypatch.setenv("BENCHMARK_END", "0")
        return Cost(1, 1)

    found = in_rounds({"slow": slow, "late": slow})
    assert list(found) == ["slow"]
    assert len(found["slow"].rounds) == 1
    assert capsys.readouterr().out == "skipped: late: no time left\n"


def test_the_quick_way_measures_every_parser() -> None:
    workload = Workload("any", 2, {OURS: lambda: 2, "other": lambda: 2})
    (result,) = parsers.measured([workload], 1)
    assert result.times.keys() == {OURS, "other"}


def test_each_round_has_all_rows_as_long_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows at the end were never measured on a busy machine."""
    runs: list[str] = []

    def parser(name: str) -> Callable[[], int]:
        def parse() -> int:
            runs.append(name)
            if len(runs) > 100:
                monkeypatch.setenv("BENCHMARK_END", "0")
            return 1

        return parse

    monkeypatch.setattr(parsers, "LEAST_SECONDS", 0)
    first, second = (Workload(name, 1, {OURS: parser(name)}) for name in "ab")
    found = parsers.measured([first, second], 1000)
    lengths = [len(result.times[OURS].rounds) for result in found]
    assert lengths[0] - lengths[1] in (0, 1)
    assert lengths[1] > 10
    assert parsers.measured([first], 1) == []
    assert capsys.readouterr().out == "skipped: a: no time left\n"


def test_the_plan_shows_what_is_met_and_what_is_not() -> None:
    assert {each for names, _ in plan.ROWS.values() for each in names} <= {
        workload.name for workload in WORKLOADS
    }
    name = "SSE, small, 140 B, LF, 64 KiB"
    ratios = {"bytes.split": 0.25, "httpx-sse": 3.0, "httpx2 (for mcp)": 5.0, "openai": 4.0}
    found = plan.table({"micros": {name: 2.0}, "ratios": {name: ratios}})
    assert (
        "| SSE, small, 64 KiB, LF / CRLF | 2 / - | 0.5 / - | 6 httpx-sse / - | 10 / - "
        "| at most 2 x bytes.split: **4.00** / -; ahead of every Python peer: 3.00 / - |"
    ) in found.splitlines()
    assert plan.lost({name: ratios, "b": {"json.loads": 0.9}, "c": {}}).splitlines() == [
        "A Python peer is ahead in 1 of 3 rows.",
        "- b: 0.9",
    ]


def test_a_plot_has_a_bar_for_each_and_the_lowest_first() -> None:
    drawn = plot.svg("a < b", "s", {"other": 2.0, OURS: 1.0}, OURS)
    assert "a &lt; b (s)" in drawn
    assert drawn.index(f">{OURS}<") < drawn.index(">other<")
    assert drawn.count("<rect x=") == 2


def test_what_is_plotted_is_measured() -> None:
    assert set(parsers.PLOTTED.values()) <= {workload.name for workload in WORKLOADS}


def test_all_rounds_count() -> None:
    costs = iter((Cost(3, 1), Cost(2, 5), Cost(4, 2)))
    found = in_rounds({"any": lambda: next(costs)})["any"]
    assert (found.micros, found.median, found.spread, found.rate) == (1e6, 2e6, 400, 0.5)


def test_a_server_that_closes_a_stream_ends_the_benchmark() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(Skipped, match="closed a connection"):
        streams.read_messages(ours, 1)


def test_what_was_not_measured_is_left_open() -> None:
    costs = {
        "a, b: first": Costs((Cost(0.5, 1e-6),)),
        "c: second": Costs((Cost(0.25, 2e-6), Cost(1, 3e-6))),
    }
    text = table("of", costs, ("first", "second"))
    assert text.splitlines()[2:] == [
        "| a, b | 1.0 / 1.0 / 0 % (2/s) | - |",
        "| c | - | 2.0 / 2.5 / 50 % (4/s) |",
    ]
    assert column_of(costs, "second") == {"c": 2.0}


FEW = {"sansmcp, asyncio", "sansmcp, trio", "bare trio"}


@pytest.mark.parametrize(
    ("benchmark", "contestants", "much"),
    [
        (clients, "CLIENTS", (0.05,)),
        (streams, "SPEAKERS", (40, dict[str, list[float]]())),
        (stdio, "SERVERS", (40,)),
    ],
)
def test_contestants_do_what_they_are_asked_for(
    benchmark: Any, contestants: str, much: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of ours that open connections where there are enough end it."""
    few = {name: each for name, each in getattr(benchmark, contestants).items() if name in FEW}
    monkeypatch.setattr(benchmark, contestants, few)
    monkeypatch.setattr(stdio, "with_node", dict)
    monkeypatch.setattr(measuring, "ROUNDS", 1)
    assert len(few) == 3
    assert all(cost.rate > 0 for cost in benchmark.measure(*much).values())


def test_one_process_and_two_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "ROUNDS", 1)
    assert workers.table(workers.measure(0.05)).count("\n") == 3


@pytest.mark.parametrize("place", ["", "store.db"], ids=["memory", "SQLite"])
def test_every_store_is_used_in_every_way(place: str, tmp_path: Path) -> None:
    """That of Redis is a server that may not be installed, used as the one of SQLite is."""
    with closing(stores.Contestant(place and str(tmp_path / place), 40)) as contestant:
        costs = in_rounds(contestant.measures())
        assert list(costs) == [stores.ALONE, stores.TOGETHER, stores.READ]
        if place:
            assert contestant.wake_up().count("|") == 2
