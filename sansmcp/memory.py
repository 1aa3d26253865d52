"""A store in memory: the default one, and the model that other stores are tested against.

It is as pure as the machines: time is passed in. What it keeps is bounded by count, bytes and age,
over all logs together; when there is too much, the oldest entries go first, whosever they are.
A reader that comes back for an entry that has gone is told so; it is never given a log with a
hole.

What it promises: nothing survives the process.
"""

from __future__ import annotations

from collections import deque

import attrs

from .limits import Limits
from .store import Entry, Page, StreamKey


@attrs.define(eq=False)
class MemoryStore:
    """Keeps logs in memory, as many as the limits ``stored_...`` allow."""

    limits: Limits = attrs.field(factory=Limits)
    size: int = attrs.field(default=0, init=False)
    """Bytes of entries that are kept."""
    _logs: dict[StreamKey, dict[int, Entry]] = attrs.field(
        factory=dict[StreamKey, dict[int, Entry]], init=False
    )
    """By number, in order and without gaps: any place in a log is found at once."""
    _sessions: dict[tuple[str, str], set[StreamKey]] = attrs.field(
        factory=dict[tuple[str, str], set[StreamKey]], init=False
    )
    _arrivals: deque[tuple[float, StreamKey, int]] = attrs.field(
        factory=deque[tuple[float, StreamKey, int]], init=False
    )
    """When which entry of which log came, oldest first; some may have gone with their session."""

    @property
    def count(self) -> int:
        """Entries that are kept."""
        return sum(len(log) for log in self._logs.values())

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> bool:
        """Add entries to the end of a log, all or none of them, and create it if need be.

        Returns False, and adds nothing, where the first of them is not the next of a log that there
        is: somebody else was faster.
        """
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = {}
            self._sessions.setdefault((key.principal, key.session), set()).add(key)
        elif entries[0].seq != next(reversed(log)) + 1:
            return False
        for entry in entries:
            log[entry.seq] = entry
            self.size += len(entry.data)
            self._arrivals.append((now, key, entry.seq))
        self._evict(now)
        return True

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """What follows ``after``, or None where there is no such log.

        At most ``limit`` entries, and ``max_bytes`` unless the first alone has more.
        """
        log = self._logs.get(key)
        if log is None:
            return None
        last = log[next(reversed(log))]
        first = last.seq - len(log) + 1
        found: list[Entry] = []
        size = 0
        for seq in range(max(first, after + 1), last.seq + 1):
            entry = log[seq]
            size += len(entry.data)
            if len(found) == limit or (found and size > max_bytes):
                break
            found.append(entry)
        return Page(tuple(found), last)

    def drop(self, principal: str, session: str) -> None:
        """Forget all logs of a session."""
        for key in self._sessions.pop((principal, session), set()):
            self.size -= sum(len(entry.data) for entry in self._logs.pop(key).values())

    def _evict(self, now: float) -> None:
        limits = self.limits
        while self._arrivals and (
            self.size > limits.stored_bytes
            or len(self._arrivals) > limits.stored_entries
            or self._arrivals[0][0] < now - limits.stored_age
        ):
            _, key, seq = self._arrivals.popleft()
            log = self._logs.get(key)
            if log is not None and seq in log and seq - 1 not in log:
                self.size -= len(log.pop(seq).data)
                if not log:
                    self._forget(key)

    def _forget(self, key: StreamKey) -> None:
        del self._logs[key]
        keys = self._sessions[key.principal, key.session]
        keys.discard(key)
        if not keys:
            del self._sessions[key.principal, key.session]
