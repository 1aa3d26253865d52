"""A store in memory: the default one, and the model that other stores are tested against.

It is as pure as the machines: time is passed in. What it keeps is bounded by count, bytes and age,
over all streams together; when there is too much, the oldest messages go first, whosever they are.
A reader that comes back for a message that has gone is told so; it is never given a log with a
hole.

What it promises: nothing survives the process.
"""

from __future__ import annotations

from collections import deque

import attrs

from .limits import Limits
from .store import Entry, Page, StreamKey


@attrs.define(eq=False)
class _Log:
    last_seq: int
    entries: deque[Entry] = attrs.field(factory=deque[Entry])


@attrs.define(eq=False)
class MemoryStore:
    """Keeps logs in memory, as many as the limits ``stored_...`` allow."""

    limits: Limits = attrs.field(factory=Limits)
    size: int = attrs.field(default=0, init=False)
    """Bytes of messages that are kept."""
    _logs: dict[StreamKey, _Log] = attrs.field(factory=dict[StreamKey, _Log], init=False)
    _sessions: dict[tuple[str, str], set[StreamKey]] = attrs.field(
        factory=dict[tuple[str, str], set[StreamKey]], init=False
    )
    _arrivals: deque[tuple[float, StreamKey, int]] = attrs.field(
        factory=deque[tuple[float, StreamKey, int]], init=False
    )
    """When which message of which log came, oldest first; some may have gone with their session."""

    @property
    def count(self) -> int:
        """Messages that are kept."""
        return sum(len(log.entries) for log in self._logs.values())

    def append(self, key: StreamKey, entries: tuple[Entry, ...], *, now: float) -> None:
        """Add messages to the end of a log, and create it if need be."""
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = _Log(0)
            self._sessions.setdefault((key.principal, key.session), set()).add(key)
        for entry in entries:
            log.entries.append(entry)
            log.last_seq = entry.seq
            self.size += len(entry.data)
            self._arrivals.append((now, key, entry.seq))
        self._evict(now)

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """What follows ``after``, or None where there is no such log.

        At most ``limit`` messages, and ``max_bytes`` unless the first alone has more.
        """
        log = self._logs.get(key)
        if log is None:
            return None
        first = log.entries[0].seq
        found: list[Entry] = []
        size = 0
        for index in range(max(0, after + 1 - first), len(log.entries)):
            entry = log.entries[index]
            size += len(entry.data)
            if len(found) == limit or (found and size > max_bytes):
                break
            found.append(entry)
        return Page(tuple(found), log.last_seq)

    def drop(self, principal: str, session: str) -> None:
        """Forget all logs of a session."""
        for key in self._sessions.pop((principal, session), set()):
            self.size -= sum(len(entry.data) for entry in self._logs.pop(key).entries)

    def _evict(self, now: float) -> None:
        limits = self.limits
        while self._arrivals and (
            self.size > limits.stored_bytes
            or len(self._arrivals) > limits.stored_entries
            or self._arrivals[0][0] < now - limits.stored_age
        ):
            _, key, seq = self._arrivals.popleft()
            log = self._logs.get(key)
            if log is not None and log.entries[0].seq == seq:
                self.size -= len(log.entries.popleft().data)
                if not log.entries:
                    self._forget(key)

    def _forget(self, key: StreamKey) -> None:
        del self._logs[key]
        keys = self._sessions[key.principal, key.session]
        keys.discard(key)
        if not keys:
            del self._sessions[key.principal, key.session]
