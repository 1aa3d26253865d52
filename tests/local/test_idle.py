"""Connections between two exchanges: which are used again, and which are closed."""

from __future__ import annotations

import pytest

from sansmcp import Limits
from sansmcp_local import IdleConnections


class Kept:
    """Idle connections, by their names."""

    def __init__(self, limits: Limits) -> None:
        self.broken: set[str] = set()
        self.closed: list[str] = []
        self.idle: IdleConnections[str] = IdleConnections(
            limits, lambda name: name not in self.broken, self.closed.append
        )


@pytest.fixture
def kept() -> Kept:
    return Kept(Limits(max_idle_connections=2, idle_connection_timeout=4.0))


def test_the_one_that_was_used_last_is_used_first(kept: Kept) -> None:
    kept.idle.put("a", now=0)
    kept.idle.put("b", now=1)
    assert [kept.idle.take(now=2) for _ in range(3)] == ["b", "a", None]
    assert kept.closed == []


def test_one_too_many_pushes_the_oldest_out(kept: Kept) -> None:
    for name in "abc":
        kept.idle.put(name, now=0)
    assert kept.closed == ["a"]


def test_what_was_idle_for_too_long_is_closed_when_another_comes_back(kept: Kept) -> None:
    kept.idle.put("a", now=0)
    kept.idle.put("b", now=4)
    assert kept.closed == ["a"]


def test_what_was_idle_for_too_long_is_not_used(kept: Kept) -> None:
    kept.idle.put("a", now=0)
    assert kept.idle.take(now=4) is None
    assert kept.closed == ["a"]


def test_a_broken_one_is_not_used(kept: Kept) -> None:
    kept.idle.put("a", now=0)
    kept.idle.put("b", now=0)
    kept.broken.add("b")
    assert kept.idle.take(now=1) == "a"
    assert kept.closed == ["b"]


def test_all_are_closed_in_the_end(kept: Kept) -> None:
    kept.idle.put("a", now=0)
    kept.idle.put("b", now=0)
    kept.idle.close()
    assert sorted(kept.closed) == ["a", "b"]
    assert kept.idle.take(now=0) is None
