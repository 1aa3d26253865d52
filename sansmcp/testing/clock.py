"""A clock whose time advances only from one scheduled action to the next."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import attrs


@attrs.define(eq=False)
class VirtualClock:
    """A clock with scheduled actions. ``now`` is in seconds."""

    now: float = 0.0
    _later: list[tuple[float, int, Callable[[], None]]] = attrs.field(
        factory=list[tuple[float, int, Callable[[], None]]], init=False
    )
    _serial: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Schedule ``action`` for a time. A time in the past means now."""
        heapq.heappush(self._later, (max(when, self.now), next(self._serial), action))

    def call_later(self, delay: float, action: Callable[[], None]) -> None:
        """Schedule ``action`` for ``delay`` seconds from now."""
        self.call_at(self.now + delay, action)

    @property
    def next_time(self) -> float | None:
        """The time of the next action; None if there is none."""
        return self._later[0][0] if self._later else None

    def run_next(self) -> None:
        """Advance to the time of the next action, and run it."""
        self.now, _, action = heapq.heappop(self._later)
        action()
