"""The loop of the blocking adapter: what a turn costs, and that deadlines come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from sansmcp_blocking import _loop
from sansmcp_blocking._loop import Loop, Steps, Wait


def idle(deadline: float, ended: list[float]) -> Steps[None]:
    yield Wait(deadline=deadline)
    ended.append(deadline)


def talking(turns: int) -> Steps[None]:
    for _ in range(turns):
        yield Wait(None, _loop.READ, time.monotonic() + 60)


def work_of_a_turn(tasks: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a deadline is looked at in a hundred turns, beside so many idle tasks."""
    loop = Loop()
    for number in range(tasks):
        loop.start(idle(time.monotonic() + 1000 + number, []))
    loop.go_on(loop.wait(math.inf))
    loop.start(talking(100))
    looks = [0]
    look: Callable[[Any], float] = vars(_loop)["_deadline"]

    def count(task: Any) -> float:
        looks[0] += 1
        return look(task)

    with monkeypatch.context() as patch:
        patch.setattr(_loop, "_deadline", count)
        for _ in range(100):
            loop.go_on(loop.wait(math.inf))
    loop.close()
    return looks[0]


def test_a_turn_costs_the_same_however_many_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn looked at all connections."""
    few, many = (work_of_a_turn(tasks, monkeypatch) for tasks in (4, 4000))
    assert many <= few + 10


def test_deadlines_come_in_their_order_and_move() -> None:
    ended: list[float] = []
    loop = Loop()
    now = time.monotonic()
    for after in (0.03, 0.01, 0.02):
        loop.start(idle(now + after, ended))
    for _ in range(1000):
        loop.start(talking(1))
    while len(ended) < 3:
        loop.go_on(loop.wait(math.inf))
    assert ended == [now + 0.01, now + 0.02, now + 0.03]
    loop.close()
