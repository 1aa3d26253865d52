"""Deadlines as data: the kinds of timers, and a table that holds them.

The machines have no clock. A driver passes ``now`` (seconds of any monotonic clock, as a float),
gets the next deadline from ``next_deadline()``, and calls ``handle_timeout(now=...)`` at that time.
Calls that are early or repeated are safe, because only deadlines that have passed are handled.

If the clock is put forward, deadlines come early. If it is put back, which a monotonic clock never
is, they come late by as many seconds; nothing raises, and no deadline is lost. The clocks of
different instances need not agree.
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
    """The kinds of deadlines."""

    REQUEST = enum.auto()
    """Client: a request got no response and no progress for its timeout, or no response for its
    total timeout.
    """

    OPENING = enum.auto()
    """Client: a step of the opening took too long, or the backoff before the next attempt is over.
    """

    RECONNECT = enum.auto()
    """Client: the delay before the resumption of a broken stream is over."""

    REPEAT = enum.auto()
    """Client: the delay before a refused request is sent again is over."""

    TASK_POLL = enum.auto()
    """Client: the state of a task is to be polled, or the server did not respond to a poll in time.
    """

    POST = enum.auto()
    """Client: the server did not accept a notification or response in time, or the delay before it
    is sent again is over.
    """

    STREAM_IDLE = enum.auto()
    """Client: no byte arrived for too long on an event stream that can be resumed or replaced."""

    DISCARD_RESPONSE = enum.auto()
    """Client: an HTTP response whose rest is discarded took too long to end."""

    CLOSE = enum.auto()
    """Client: the server took too long to respond to the DELETE that ends the session, or to the
    cancellation of tasks.
    """

    AUTHORIZATION = enum.auto()
    """Client: a request of the authorization got no response in time, or a person has not logged
    in, or another process has held the lock of the credentials for a while.
    """

    PROCESS = enum.auto()
    """Client: the server process took too long for a step of its shutdown."""

    STREAM_OPEN = enum.auto()
    """Server: a call has no response yet, so its HTTP response becomes an event stream."""

    TASK = enum.auto()
    """Server: a call has no response yet, so it becomes a task."""

    RECLAIM = enum.auto()
    """Server: a call has run without a connection for too long."""

    KEPT = enum.auto()
    """Server: the oldest response to a call with a key was kept for long enough."""

    KEEP_ALIVE = enum.auto()
    """Server: nothing was sent on an event stream for a while; a comment keeps the connection
    alive.
    """

    GATHERED = enum.auto()
    """Server: events have waited long enough for others, with which they leave together."""

    ACCESS = enum.auto()
    """Server: the credentials of a request have expired, so its event stream ends."""

    CLIENT_RESPONSE = enum.auto()
    """Server: the client did not respond to a server request in time."""

    STORE_POLL = enum.auto()
    """Server: read again what another instance may have written to the store."""

    STORE_REPEAT = enum.auto()
    """Server: repeat an operation of the store that failed."""

    STORE_TAKE = enum.auto()
    """Server: the store took too long to count the requests of a client."""

    LEASE = enum.auto()
    """Server: renew the lease of this instance, or read that of another one."""

    STORED = enum.auto()
    """Server: nothing was added to the log of a running stream or task for a while; a new entry
    keeps the store from evicting a log in use. Or the state of a task has changed.
    """

    SESSION_IDLE = enum.auto()
    """Server: a session was not used for too long."""


_Key: TypeAlias = tuple[Timer, Hashable]


@attrs.define(eq=False, repr=False)
class _Entry:
    """A timer that is set."""

    deadline: float
    scheduled: float
    """The time under which it stands in the heap: the deadline, or earlier."""
    serial: int


@attrs.define(eq=False, repr=False)
class TimerTable:
    """Deadlines by timer and owner; setting, stopping and finding the next one cost O(log n).

    Moving a deadline to a later time, which is the usual case, does not touch the heap: the old
    place is kept, and corrected when it is first. A timer that is stopped before the next
    ``next_deadline()`` never enters the heap. The heap holds serial numbers only, so that a stopped
    timer keeps no reference to its owner.
    """

    _unplaced: dict[_Key, float] = attrs.field(factory=dict[_Key, float], init=False)
    """Deadlines that were set since the last ``next_deadline()``."""

    _entries: dict[_Key, _Entry] = attrs.field(factory=dict[_Key, _Entry], init=False)
    _keys: dict[int, _Key] = attrs.field(factory=dict[int, _Key], init=False)
    """The timers by serial number."""
    _heap: list[tuple[float, int]] = attrs.field(factory=list[tuple[float, int]], init=False)
    """Times and serial numbers; those of stopped timers stay until they are first or swept out."""
    _serials: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def set(self, timer: Timer, owner: Hashable, deadline: float) -> None:
        """Set a timer of an owner; it replaces the deadline that was set before.

        Args:
            timer: the kind of the timer.
            owner: what the timer belongs to; ``due()`` returns it.
            deadline: seconds on the machine's clock; ``math.inf`` stops the timer.
        """
        if deadline == math.inf:
            self.stop(timer, owner)
            return
        self._unplaced[timer, owner] = deadline

    def set_earlier(self, timer: Timer, owner: Hashable, deadline: float) -> None:
        """Set a timer of an owner, unless it is set and due before ``deadline``."""
        entry = self._entries.get((timer, owner))
        current = math.inf if entry is None else entry.deadline
        if deadline < self._unplaced.get((timer, owner), current):
            self._unplaced[timer, owner] = deadline

    def stop(self, timer: Timer, owner: Hashable) -> None:
        """Stop a timer, if it is set."""
        key = (timer, owner)
        self._unplaced.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._keys[entry.serial]
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._keys):
                self._heap = [place for place in self._heap if place[1] in self._keys]
                heapq.heapify(self._heap)

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, or None if no timer is set."""
        if self._unplaced:
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
        """Yield the timers that are due, earliest first. Each is stopped before it is yielded."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            key = self._keys.pop(heapq.heappop(self._heap)[1])
            del self._entries[key]
            yield key

    def __len__(self) -> int:
        self._place()
        return len(self._entries)

    def _place(self) -> None:
        """Enter the new deadlines into the heap."""
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
