"""Time as data: which deadlines exist, and one table that holds them.

The core has no clock. Whoever drives it passes ``now`` (seconds of any monotonic clock, as a
float), asks for the next deadline, and calls ``handle_timeout(now)`` when that has come, or
earlier, or twice: only what is due happens.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from collections.abc import Hashable, Iterator

import attrs


class Timer(enum.Enum):
    """Every deadline there is."""

    REQUEST = enum.auto()
    """Client: a request got no answer and no progress for its timeout."""

    REQUEST_TOTAL = enum.auto()
    """Client: a request got no answer for its longest allowed time, whatever progress was reported.
    """

    RECONNECT = enum.auto()
    """Client: the delay before a broken stream is resumed is over."""

    DRAIN = enum.auto()
    """Client: a response of which nothing more is wanted took too long to end."""

    CLOSE = enum.auto()
    """Client: the server took too long to answer the DELETE that ends the session."""

    PROCESS = enum.auto()
    """Client: the server process took too long for a step of its end."""

    STREAM_OPEN = enum.auto()
    """Server: a request has not been answered quickly, so its answer becomes an event stream."""

    KEEP_ALIVE = enum.auto()
    """Server: nothing was sent on an event stream for a while; a comment keeps the connection
    alive.
    """

    CLIENT_ANSWER = enum.auto()
    """Server: the client did not answer a request that the server made."""

    SESSION_IDLE = enum.auto()
    """Server: a session was not used for too long."""


@attrs.define(eq=False)
class TimerTable:
    """Deadlines by timer and owner; setting, stopping and finding the next one cost O(log n).

    A deadline that is moved to a later time, as most are, costs nothing: the heap keeps the old
    entry, which is moved when it comes up.
    """

    _deadlines: dict[tuple[Timer, Hashable], float] = attrs.field(
        factory=dict[tuple[Timer, Hashable], float], init=False
    )
    _scheduled: dict[tuple[Timer, Hashable], float] = attrs.field(
        factory=dict[tuple[Timer, Hashable], float], init=False
    )
    _heap: list[tuple[float, int, tuple[Timer, Hashable]]] = attrs.field(
        factory=list[tuple[float, int, tuple[Timer, Hashable]]], init=False
    )
    _serial: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def set(self, timer: Timer, owner: Hashable, deadline: float) -> None:
        """Let a timer of this owner go off at ``deadline``; replaces the one it had."""
        key = (timer, owner)
        self._deadlines[key] = deadline
        if self._scheduled.get(key, math.inf) > deadline:
            self._push(key, deadline)

    def stop(self, timer: Timer, owner: Hashable) -> None:
        """Forget a timer, if it is set."""
        self._deadlines.pop((timer, owner), None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._deadlines):
            self._rebuild()

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[tuple[Timer, Hashable]]:
        """The timers that are due, earliest first; each is stopped before it is given."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            key = heapq.heappop(self._heap)[2]
            del self._deadlines[key], self._scheduled[key]
            yield key

    def __len__(self) -> int:
        return len(self._deadlines)

    def _push(self, key: tuple[Timer, Hashable], deadline: float) -> None:
        self._scheduled[key] = deadline
        heapq.heappush(self._heap, (deadline, next(self._serial), key))

    def _settle(self) -> None:
        """Make the top of the heap a deadline that is really set."""
        while self._heap:
            when, _, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if deadline == when:
                return
            heapq.heappop(self._heap)
            if self._scheduled.get(key) == when:
                del self._scheduled[key]
                if deadline is not None:
                    self._push(key, deadline)

    def _rebuild(self) -> None:
        self._heap = []
        self._scheduled = {}
        for key, deadline in self._deadlines.items():
            self._push(key, deadline)
