"""The simulator itself: it repeats what it has done, and its checkers see what is planted."""

# The planted bugs have to reach into the machines.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from sansmcp import AppendResult, Entry, MemoryStore, StreamKey
from sansmcp.client.outcomes import StreamOutcome
from sansmcp.client.request import PendingRequest
from sansmcp.client.transports.http_requests import HttpRequests
from sansmcp.server.exchange import ServerExchange
from sansmcp.server.legacy.streams import ResumableStream
from sansmcp.server.modern.running_task import RunningTask
from sansmcp.timers import Timer

from . import simulator
from .__main__ import main
from .fates import Fates
from .kinds import KINDS, OFF, draw
from .shrinking import kind_of, shrink
from .simulator import World


def test_no_world_fails() -> None:
    """A few seeds of always; `make simulate` takes fresh ones."""
    worlds = [World(seed).run() for seed in range(60)]
    assert [world.problem for world in worlds if world.problem] == []
    assert len({world.schedule for world in worlds}) > 50
    assert len(set[str]().union(*(world.reached for world in worlds))) > 30


def test_the_same_seed_is_the_same_run() -> None:
    for seed in range(1000, 1010):
        first, second = World(seed, story=True).run(), World(seed, story=True).run()
        assert first.story == second.story
        assert (first.steps, first.schedule) == (second.steps, second.schedule)


def test_what_is_left_out_leaves_all_other_choices_as_they_are() -> None:
    fates, others = Fates(7), Fates(7, frozenset(["b"]))
    assert [fates.strikes(name, 1.0) for name in "abc"] == [True, True, True]
    assert [others.strikes(name, 1.0) for name in "abc"] == [True, False, True]
    assert others.struck == ["a", "c"]
    assert fates.number("d") == others.number("d")


def first_failure(seeds: range = range(150)) -> World:
    for seed in seeds:
        world = World(seed).run()
        if world.problem is not None:
            return world
    raise AssertionError("no world has failed")


def plant_hasty_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    append = ResumableStream.append

    def hasty(self: ResumableStream, message: bytes, *, final: bool = False) -> bool:
        result = append(self, message, final=final)
        if self._appending is not None:
            self._deliver_entries(self._appending.entries)
        return result

    monkeypatch.setattr(ResumableStream, "append", hasty)


def plant_a_store_that_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    append = MemoryStore.append

    def losing(
        self: MemoryStore, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        if entries[0].seq == 1:
            return AppendResult.STORED
        return append(self, key, entries[:1], token=token, now=now)

    monkeypatch.setattr(MemoryStore, "append", losing)


def plant_readers_that_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: ResumableStream) -> None:
        """Does not read on."""

    monkeypatch.setattr(ResumableStream, "catch_up", blind)


def plant_responses_that_break_unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(
        self: HttpRequests, request: PendingRequest, outcome: StreamOutcome, now: float
    ) -> None:
        """Neither try again nor end the request."""
        self._timers.stop(Timer.STREAM_IDLE, request.number)

    monkeypatch.setattr(HttpRequests, "_go_on", careless)


def plant_hasty_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = RunningTask.begin

    def hasty(self: RunningTask) -> None:
        begin(self)
        if self.origin is not None:
            self._tell(self.record)

    monkeypatch.setattr(RunningTask, "begin", hasty)


def plant_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ServerExchange) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(ServerExchange, "end", broken)


def plant_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(self: ServerExchange) -> None:
        while True:
            pass

    monkeypatch.setattr(simulator, "_CPU", 0.5)
    monkeypatch.setattr(ServerExchange, "end", endless)


@pytest.mark.parametrize(
    ("plant", "checkers"),
    [
        (plant_hasty_streams, ["stored first"]),
        (plant_a_store_that_loses, ["stored first", "gaps", "causes", "end in time", "stores"]),
        (plant_readers_that_stop, ["readers"]),
        (plant_responses_that_break_unheard, ["causes", "end in time"]),
        (plant_hasty_handles, ["stored first"]),
        (plant_an_exception, ["no exceptions"]),
        (plant_a_circle, ["quiet"]),
    ],
)
def test_planted_bugs(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    checkers: list[str],
) -> None:
    plant(monkeypatch)
    assert first_failure().checker in checkers


def test_a_world_that_is_never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "_STEPS", 20)
    assert first_failure().checker == "quiet"


def test_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_hasty_streams(monkeypatch)
    world = first_failure()
    assert world.problem is not None
    smallest = shrink(world.fates.seed, seconds=60.0)
    assert smallest.problem is not None
    assert kind_of(smallest.problem) == kind_of(world.problem)
    assert len(smallest.fates.struck) < len(world.fates.struck)
    assert smallest.story is not None
    assert "FAILED" in smallest.story[-1]


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["simulation", "--processes", "1", *arguments])
    return main()


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(monkeypatch, "--seconds", "0.01", "--from", "0") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("simulation: 20 runs, ")
    assert last.endswith("0 failures (seeds 0-19)")
    assert run_command(monkeypatch, "--seed", "5") == 0
    assert capsys.readouterr().out == "seed 5: no failure\n"


def test_the_command_shows_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant_hasty_streams(monkeypatch)
    seed = first_failure().fates.seed
    assert run_command(monkeypatch, "--seconds", "20", "--from", str(seed), "--shrink", "1") == 1
    shown = capsys.readouterr().out
    assert f"seed {seed} fails after" in shown
    assert "checker: stored first" in shown
    assert "what happens:" in shown
    assert run_command(monkeypatch, "--seed", str(seed), "--shrink", "1") == 1
    assert "checker: stored first" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OFF])
def test_worlds_of_each_kind(kind: str) -> None:
    worlds = [World(seed, kind=kind).run() for seed in range(2)]
    assert [world.problem for world in worlds if world.problem] == []
    assert all(kind in world.features for world in worlds)


def test_a_world_without_a_kind_makes_its_choices_as_if_there_were_none() -> None:
    seeds = [seed for seed in range(100) if not draw(Fates(seed))][:3]
    for seed in seeds:
        drawn, without = World(seed, story=True).run(), World(seed, kind="", story=True).run()
        assert drawn.story == without.story


def test_a_kind_is_drawn_for_a_good_part_of_all_worlds() -> None:
    drawn = [draw(Fates(seed)) for seed in range(1000)]
    assert {*drawn} == {"", *KINDS.keys() - OFF.keys()}
    assert drawn.count("") > 400
