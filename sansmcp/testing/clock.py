"""Time that passes only when nothing is left to do."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import attrs


@attrs.define(eq=False)
class VirtualClock:
    """A clock and the things that are to happen later. ``now`` is in seconds."""

    now: float = 0.0
    _later: list[tuple[float, int, Callable[[], None]]] = attrs.field(
        factory=list[tuple[float, int, Callable[[], None]]], init=False
    )
    _serial: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Let something happen at a time; what is in the past happens next."""
        heapq.heappush(self._later, (max(when, self.now), next(self._serial), action))

    def call_later(self, delay: float, action: Callable[[], None]) -> None:
        """Let something happen after some seconds."""
        self.call_at(self.now + delay, action)

    @property
    def next_time(self) -> float | None:
        """When something will happen next."""
        return self._later[0][0] if self._later else None

    def run_next(self) -> None:
        """Go to the next thing that is to happen, and let it happen."""
        self.now, _, action = heapq.heappop(self._later)
        action()
