"""Whole conversations under accidents: nothing lost, nothing twice, and checkers that see it."""

# The planted bugs have to reach into the machines.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from sansmcp import EventId, ReconnectPolicy, SseEvent, StreamKey
from sansmcp.client.legacy.cursor import Cursor
from sansmcp.effects import StoreRead
from sansmcp.events import CallFailed
from sansmcp.server.legacy.streams import Stream
from sansmcp.store import Page

from ..server.bench import Bench
from ..thorough import in_seeds
from .world import World

requirement = pytest.mark.requirement


def problems(seeds: Iterable[int], **settings: Any) -> Iterator[str]:
    return (problem for seed in seeds for problem in World(seed, **settings).run().check())


@requirement("RESUME-C-001", "RESUME-C-002", "RESUME-S-005", "RESUME-S-007", "SHTTP-S-025")
@in_seeds(7, 25)
@pytest.mark.parametrize("mean_cut", [500, 800, 2000, 20_000])
def test_calls_survive_cuts_at_any_byte(mean_cut: int, seeds: range) -> None:
    worlds = [World(seed, mean_cut=mean_cut).run() for seed in seeds]
    assert [problem for world in worlds for problem in world.check()] == []
    assert sum(world.pair.cuts for world in worlds) > 1


@in_seeds(7, 25)
def test_a_narrow_network(seeds: range) -> None:
    assert list(problems(seeds, window=500, mean_cut=1500)) == []


@in_seeds(5, 15)
def test_a_network_without_accidents(seeds: range) -> None:
    assert list(problems(seeds, mean_cut=None, attempts=2)) == []


def test_the_same_seed_is_the_same_run() -> None:
    first, second = World(7).run(), World(7).run()
    assert first.pair.events == second.pair.events
    assert [r.head for r in first.pair.requests] == [r.head for r in second.pair.requests]
    assert first.pair.cuts == second.pair.cuts


@in_seeds(10, 40)
def test_calls_that_may_not_be_repeated_end_once_whatever_happens(seeds: range) -> None:
    """Without consent a call may fail, but only because nothing could be resumed."""
    failures = 0
    for seed in seeds:
        world = World(seed, mean_cut=400, idempotent=False).run()
        ends = [event for event in world.pair.events if isinstance(event, CallFailed)]
        failures += len(ends)
        others = [
            problem
            for problem in world.check()
            if not any(f"call {event.call} " in problem for event in ends)
        ]
        assert others == []
        assert all("is lost" in str(event.error) for event in ends)
    assert failures > 0


@in_seeds(10, 40)
def test_a_store_that_fails_loses_nothing_silently(seeds: range) -> None:
    """Calls may fail then, but each ends once, and what arrives is in order and never twice."""
    for seed in seeds:
        world = World(seed, store_fails=0.1, mean_cut=1500, idempotent=False).run()
        for problem in world.check():
            assert "ended 1" in problem or "failed" in problem or "reported" in problem
            if "reported" in problem:
                numbers = [
                    int(n) for n in problem.partition("[")[2].rstrip("]").split(",") if n.strip()
                ]
                assert numbers == sorted(set(numbers))


# Planted bugs: each breaks one thing, and the checkers have to see it.


def test_planted_bug_the_cursor_of_the_connection_before(monkeypatch: pytest.MonkeyPatch) -> None:
    get = Cursor.get
    previous: dict[Cursor, str] = {}

    def stale(self: Cursor) -> None:
        self._last_event_id, previous[self] = (
            previous.get(self, self._last_event_id),
            self._last_event_id,
        )
        get(self)

    def forget(self: Cursor, id: str | None) -> None:
        """Remember no ids, so that what comes twice is not dropped."""

    monkeypatch.setattr(Cursor, "get", stale)
    monkeypatch.setattr(Cursor, "_remember", forget)
    assert any("reported" in problem for problem in problems(range(20), mean_cut=800))


def test_planted_bug_a_gap_between_replay_and_live(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = Stream.replayed

    def skipping(self: Stream, effect: StoreRead, page: Page | None) -> None:
        replayed(self, effect, page)
        self._position = max(self._position, self._stored)

    monkeypatch.setattr(Stream, "replayed", skipping)
    found = problems(range(20), mean_cut=3000, steps=20)
    assert any("reported" in problem for problem in found)


def test_planted_bug_sent_before_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Stream.append

    def hasty(self: Stream, message: bytes, *, final: bool = False) -> bool:
        result = append(self, message, final=final)
        appending = self._appending
        if appending is not None:
            self._give(appending.entries)
        return result

    monkeypatch.setattr(Stream, "append", hasty)
    assert any(EventId.decode(problem) for problem in problems(range(20)))


def test_planted_bug_attempts_are_never_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    received = Cursor.received

    def counting(self: Cursor, event: SseEvent) -> None:
        attempts = self._attempts
        received(self, event)
        self._attempts = attempts

    monkeypatch.setattr(Cursor, "received", counting)
    assert any("given up" in problem for problem in problems(range(20), attempts=4, mean_cut=800))
    monkeypatch.undo()
    assert list(problems(range(5), attempts=20, mean_cut=2000)) == []


def crossings(bench: Bench) -> list[int]:
    """Try every cursor in every session of every principal; the statuses that foreign ones got."""
    people = ["alice", "alice", "bob", ""]
    sessions = [(person, bench.open_session(principal=person)) for person in people]
    cursors: list[tuple[str, str]] = []
    for person, session in sessions:
        talk = bench.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, session, principal=person
        )
        bench.do(bench.last_call().notify, "secret")
        cursors += [(session, str(event.id)) for event in talk.events]
    statuses: list[int] = []
    for owner, cursor in cursors:
        for person, session in sessions:
            talk = bench.get(session, cursor, principal=person)
            if session == owner:
                assert talk.status == 200
            else:
                statuses.append(talk.status or 0)
            talk.gone()
    return statuses


@requirement("RESUME-S-006", "SESSION-S-011")
def test_no_cursor_opens_the_stream_of_another_session() -> None:
    assert set(crossings(Bench())) == {400}


def test_planted_bug_a_stream_key_without_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(principal: str, session: str, stream: str) -> StreamKey:
        return StreamKey("", "", stream)

    monkeypatch.setattr("sansmcp.server.legacy.logs.StreamKey", careless)
    monkeypatch.setattr("sansmcp.server.legacy.sessions.StreamKey", careless)
    assert 200 in crossings(Bench())


def test_the_client_of_a_dead_server_does_not_hammer_it() -> None:
    """One client in the first hour: a bounded number of connections, then silence."""
    world = World(3, mean_cut=None, attempts=10, steps=100)
    world.pair.run(6.0)
    world.pair.link.up = False
    world.pair.break_connections()
    world.pair.requests.clear()
    world.run()
    assert 0 < len(world.pair.requests) <= 45
    assert world.client.next_deadline() is None


def test_reconnections_spread_out() -> None:
    """The clients of a server that comes back do not come at once."""
    policy = ReconnectPolicy(initial=1.0, cap=30.0)
    for attempt in (1, 3, 9):
        window = policy.delay(attempt, 0.0, 1.0)
        delays = [policy.delay(attempt, 0.0, chance / 1000) for chance in range(1000)]
        assert max(delays) - min(delays) >= 0.8 * window
