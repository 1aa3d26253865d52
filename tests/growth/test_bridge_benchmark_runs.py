"""The benchmark of bridges works; nothing is timed here, and bridges of others take no part."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import bridge, bridge_contestants, bridge_losses

OURS = "sansmcp bridge --shared"
BOTH = ("sansmcp bridge", OURS)


def cells(table: str) -> list[list[str]]:
    """The rows of a table, without its head."""
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]


def figure(cell: str) -> float:
    return float(cell.replace(",", "").split()[0])


@pytest.mark.parametrize(("way", "server"), bridge.WAYS.items())
def test_calls_are_measured_with_and_without_a_bridge(way: str, server: str) -> None:
    rows = cells(asyncio.run(bridge.compare_calls(way, server, 1, BOTH[:1], seconds=0.1)))
    assert [row[0] for row in rows] == ["none", "sansmcp bridge"]
    assert all(figure(cell) > 0 for cell in rows[1][1:])


def test_what_a_relayed_call_takes() -> None:
    rows = cells(asyncio.run(bridge.compare_cost(1, {"small": (0, 1.0)}, seconds=0.1)))
    assert len(rows) == 8  # both ways, two revisions, one caller and many
    assert all(figure(row[6]) > 0 for row in rows)


def test_memory_is_that_of_all_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    rows = cells(asyncio.run(bridge.compare_memory(3, BOTH)))
    assert [[cell != "-" for cell in row[1:]] for row in rows] == [
        [False, False, False, True],
        [True, True, True, False],
    ]
    reason = "skipped: sansmcp bridge, 3 sessions: at most 100 servers at a time"
    assert reason in capsys.readouterr().out


def test_cuts_are_counted() -> None:
    rows = cells(asyncio.run(bridge_losses.compare_cuts(2, BOTH[:1], limit=60)))
    assert [row[0] for row in rows] == list(bridge.WAYS)
    assert all(figure(row[2]) >= 2 for row in rows)
    assert all(figure(row[5]) <= figure(row[4]) for row in rows)


def test_nothing_is_lost_with_a_server_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_losses, "DIES_AFTER", 0.5)
    ((_, calls, answered, lost, *_),) = cells(asyncio.run(bridge_losses.count_deaths(2, (OURS,))))
    assert (figure(calls), figure(lost)) == (200, 0)
    assert figure(answered) > 0


def test_a_bridge_that_does_not_start_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object) -> list[str]:
        return ["false"]

    monkeypatch.setitem(
        bridge_contestants.BRIDGES, "broken", bridge_contestants.Bridge(failing, failing)
    )
    asyncio.run(bridge.compare_calls("stdio to HTTP", "stdio", 1, ("broken",), seconds=0.1))
    assert "skipped: broken, stdio to HTTP: it ended with status 1" in capsys.readouterr().out
