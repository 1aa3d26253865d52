"""Time as data: which deadlines exist, and one table that holds them.

The core has no clock. Whoever drives it passes ``now`` (seconds of any monotonic clock, as a
float), asks for the next deadline, and calls ``handle_timeout(now)`` when that has come, or
earlier, or twice: only what is due happens. A clock that is put forward makes deadlines come early.
One that is put back, which a monotonic clock never is, makes those that are set come late, by as
many seconds; nothing raises, and no deadline is lost. The clocks of different instances need not
agree.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from collections.abc import Hashable, Iterator
from typing import TypeAlias

import attrs

from .types import FastEnum


class Timer(FastEnum):
    """Every deadline there is."""

    REQUEST = enum.auto()
    """Client: a request got no answer and no progress for its timeout, or no answer for its longest
    allowed time, whatever progress was reported.
    """

    OPENING = enum.auto()
    """Client: a step of the opening took too long, or the delay before its next attempt is over."""

    RECONNECT = enum.auto()
    """Client: the delay before a broken stream is resumed is over."""

    POST = enum.auto()
    """Client: the server did not take a notification or response of ours in time, or the delay
    before it is sent again is over.
    """

    STREAM_IDLE = enum.auto()
    """Client: an event stream that can be resumed was silent for its longest allowed time."""

    DISCARD_RESPONSE = enum.auto()
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

    CLIENT_RESPONSE = enum.auto()
    """Server: the client did not answer a request that the server made."""

    STORE_POLL = enum.auto()
    """Server: what another instance may have written is to be looked for again."""

    STORED = enum.auto()
    """Server: nothing was added to the log of a running stream for a while; an entry keeps the
    store from letting go of what is in use.
    """

    SESSION_IDLE = enum.auto()
    """Server: a session was not used for too long."""


_Key: TypeAlias = tuple[Timer, Hashable]


@attrs.define(eq=False, repr=False)
class _Entry:
    """A timer that is set."""

    deadline: float
    scheduled: float
    """When its place in the heap comes up: at the deadline, or earlier."""
    serial: int


@attrs.define(eq=False, repr=False)
class TimerTable:
    """Deadlines by timer and owner; setting, stopping and finding the next one cost O(log n).

    A deadline that is moved to a later time, as most are, costs nothing: its place in the heap is
    kept, and moved when it comes up. Nor does one that is stopped before anybody asks for the next
    deadline: it never gets a place. The heap knows numbers only, so that a timer that is stopped
    lets go of its owner at once.
    """

    _unplaced: dict[_Key, float] = attrs.field(factory=dict[_Key, float], init=False)
    """Deadlines that were set since somebody asked."""

    _entries: dict[_Key, _Entry] = attrs.field(factory=dict[_Key, _Entry], init=False)
    _keys: dict[int, _Key] = attrs.field(factory=dict[int, _Key], init=False)
    """The timers by serial number."""
    _heap: list[tuple[float, int]] = attrs.field(factory=list[tuple[float, int]], init=False)
    """Times and serial numbers; those of timers that are stopped stay until they come up."""
    _serials: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def set(self, timer: Timer, owner: Hashable, deadline: float) -> None:
        """Let a timer of this owner go off at ``deadline``; replaces the one it had.

        Infinity never comes.
        """
        if deadline == math.inf:
            self.stop(timer, owner)
            return
        self._unplaced[timer, owner] = deadline

    def stop(self, timer: Timer, owner: Hashable) -> None:
        """Forget a timer, if it is set."""
        key = (timer, owner)
        self._unplaced.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._keys[entry.serial]
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._keys):
                self._heap = [place for place in self._heap if place[1] in self._keys]
                heapq.heapify(self._heap)

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None."""
        self._place()
        while self._heap:
            when, serial = self._heap[0]
            key = self._keys.get(serial)
            if key is not None and self._entries[key].deadline == when:
                return when
            heapq.heappop(self._heap)
            if key is not None:
                entry = self._entries[key]
                entry.scheduled = entry.deadline
                heapq.heappush(self._heap, (entry.deadline, serial))
        return None

    def due(self, now: float) -> Iterator[tuple[Timer, Hashable]]:
        """The timers that are due, earliest first; each is stopped before it is given."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            key = self._keys.pop(heapq.heappop(self._heap)[1])
            del self._entries[key]
            yield key

    def __len__(self) -> int:
        self._place()
        return len(self._entries)

    def _place(self) -> None:
        """Give a place in the heap to what was set."""
        for key, deadline in self._unplaced.items():
            entry = self._entries.get(key)
            if entry is not None and entry.scheduled <= deadline:
                entry.deadline = deadline
                continue
            if entry is not None:
                del self._keys[entry.serial]
            serial = next(self._serials)
            self._entries[key] = _Entry(deadline, deadline, serial)
            self._keys[serial] = key
            heapq.heappush(self._heap, (deadline, serial))
        self._unplaced.clear()
