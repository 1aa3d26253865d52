"""The table of deadlines: the earliest is found, each goes off once, and it costs little."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

from sansmcp.timers import Timer, TimerTable

TIMERS = st.sampled_from(list(Timer))
OWNERS = st.integers(0, 5)
TIMES = st.integers(0, 100).map(float)


class TimersAgainstADict(RuleBasedStateMachine):
    """A dict of deadlines is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TimerTable()
        self.model: dict[tuple[Timer, int], float] = {}

    @rule(timer=TIMERS, owner=OWNERS, deadline=TIMES)
    def set(self, timer: Timer, owner: int, deadline: float) -> None:
        self.table.set(timer, owner, deadline)
        self.model[timer, owner] = deadline

    @rule(timer=TIMERS, owner=OWNERS, deadline=TIMES)
    def set_earlier(self, timer: Timer, owner: int, deadline: float) -> None:
        self.table.set_earlier(timer, owner, deadline)
        self.model[timer, owner] = min(deadline, self.model.get((timer, owner), deadline))

    @rule(timer=TIMERS, owner=OWNERS)
    def stop(self, timer: Timer, owner: int) -> None:
        self.table.stop(timer, owner)
        self.model.pop((timer, owner), None)

    @rule(now=TIMES)
    def go_off(self, now: float) -> None:
        due = list(self.table.due(now))
        expected = [key for key, deadline in self.model.items() if deadline <= now]
        assert sorted(due, key=repr) == sorted(expected, key=repr)
        times = [self.model.pop(key) for key in expected]
        assert [*sorted(times)] == sorted(times)
        assert (self.table.next_deadline() or now + 1) > now

    @rule()
    def knows_the_next(self) -> None:
        assert self.table.next_deadline() == min(self.model.values(), default=None)

    @rule()
    def knows_how_many(self) -> None:
        assert len(self.table) == len(self.model)


TestTimers = TimersAgainstADict.TestCase
TestTimers.settings = settings(stateful_step_count=40)


def test_they_go_off_in_order() -> None:
    table = TimerTable()
    for owner, deadline in enumerate((5.0, 1.0, 3.0)):
        table.set(Timer.REQUEST, owner, deadline)
    assert [owner for _, owner in table.due(10.0)] == [1, 2, 0]


def test_those_of_the_same_time_go_off_as_they_were_set() -> None:
    table = TimerTable()
    for owner in range(3):
        table.set(Timer.REQUEST, owner, 1.0)
    assert [owner for _, owner in table.due(1.0)] == [0, 1, 2]


def test_most_of_many_are_stopped() -> None:
    table = TimerTable()
    for owner in range(200):
        table.set(Timer.REQUEST, owner, 200.0 - owner)
    assert table.next_deadline() == 1.0
    for owner in range(10, 200):
        table.stop(Timer.REQUEST, owner)
    assert [owner for _, owner in table.due(200.0)] == list(reversed(range(10)))


def test_one_is_moved_to_and_fro() -> None:
    table = TimerTable()
    for deadline in (2.0, 3.0, 1.0):
        table.set(Timer.REQUEST, "a", deadline)
        assert table.next_deadline() == deadline
    assert len(table) == 1
    assert list(table.due(5.0)) == [(Timer.REQUEST, "a")]
    assert table.next_deadline() is None


def test_one_that_is_stopped_by_another_does_not_go_off() -> None:
    table = TimerTable()
    table.set(Timer.REQUEST, "a", 1.0)
    table.set(Timer.REQUEST, "b", 2.0)
    seen: list[object] = []
    for _, owner in table.due(5.0):
        seen.append(owner)
        table.stop(Timer.REQUEST, "b")
    assert seen == ["a"]


def test_what_is_stopped_does_not_pile_up() -> None:
    table = TimerTable()
    for number in range(10_000):
        table.set(Timer.REQUEST, number, float(number))
        table.stop(Timer.REQUEST, number)
    table.set(Timer.REQUEST, "last", 1.0)
    assert table.next_deadline() == 1.0
    assert len(table) == 1
