"""A store in memory: the default one, and the model for tests of other stores.

It does no I/O and reads no clock: the time is an argument. Count, bytes and age of the entries are
bounded, over all logs together. The bytes include Python's overhead for an entry, a log and a
session. If there are too many, entries of the principal that uses most are evicted: the oldest ones
of its session that uses most. So one principal can fill the store as long as no other needs it, and
cannot evict entries of principals that use less than half as much. A log loses entries at its start
only, so a reader sees by the first sequence number that older entries are missing.

Nothing survives the process.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TypeAlias

import attrs

from .limits import Limits
from .rates import RateLimit, TokenBuckets
from .shares import Shares
from .store import AppendResult, Entry, Page, StreamKey, aged

_ENTRY_COST = 280
_LOG_COST = 550
_SESSION_COST = 1200
"""Bytes that CPython needs for each, beside data and names; a test measures them."""

_Name: TypeAlias = tuple[str, str]
"""Principal and session."""

_Arrival: TypeAlias = tuple[float, StreamKey, int]


@attrs.define(eq=False)
class _Log:
    """The entries of one log, and its last append."""

    entries: dict[int, Entry] = attrs.field(factory=lambda: {}, init=False)
    """By number, in order and without gaps: any place is found at once."""
    first_seq: int = attrs.field(default=0, init=False)
    """The number of the first entry of the last append."""
    token: str = attrs.field(default="", init=False)

    @property
    def last(self) -> Entry:
        """The last entry."""
        return self.entries[next(reversed(self.entries))]

    def refusal_of(self, first_seq: int, token: str) -> AppendResult | None:
        """Return the result of an append that the log cannot take; None if it can."""
        last_seq = next(reversed(self.entries))
        if first_seq == last_seq + 1:
            return None
        if first_seq > last_seq:
            return AppendResult.BEHIND
        is_repeated = (first_seq, token) == (self.first_seq, self.token)
        return AppendResult.STORED if is_repeated else AppendResult.CONFLICT


@attrs.define(eq=False)
class _Session:
    """The logs of one session."""

    logs: set[StreamKey] = attrs.field(factory=lambda: set())
    arrivals: deque[_Arrival] = attrs.field(factory=lambda: deque())
    """Its entries, oldest first."""


@attrs.define(eq=False)
class MemoryStore:
    """Keeps logs in memory, within the limits ``max_stored_...``."""

    limits: Limits = attrs.field(factory=Limits)
    is_durable = False
    count: int = attrs.field(default=0, init=False)
    """The number of stored entries."""
    _logs: dict[StreamKey, _Log] = attrs.field(factory=dict[StreamKey, _Log], init=False)
    _sessions: dict[_Name, _Session] = attrs.field(factory=dict[_Name, _Session], init=False)
    _principals: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """Bytes by principal."""
    _shares: dict[str, Shares[_Name]] = attrs.field(factory=dict[str, "Shares[_Name]"], init=False)
    """Bytes by session, for each principal."""
    _arrivals: deque[_Arrival] = attrs.field(factory=deque[_Arrival], init=False)
    """The entries of all sessions, oldest first, and some that were deleted."""
    _age: float = attrs.field(default=0.0, init=False)
    """Seconds that have passed, as :func:`~sansmcp.store.aged` counts them."""
    _now: float | None = attrs.field(default=None, init=False)
    """The latest time that was passed in."""
    _buckets: dict[RateLimit, TokenBuckets] = attrs.field(
        factory=dict[RateLimit, TokenBuckets], init=False
    )
    """The buckets of each limit of the servers."""

    @property
    def size(self) -> int:
        """Bytes of memory in use, with the overhead of Python objects."""
        return self._principals.total

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Append entries to a log, all or none of them. Create the log if it does not exist.

        See :meth:`sansmcp.Store.append`.
        """
        log = self._logs.get(key)
        if log is not None and (refusal := log.refusal_of(entries[0].seq, token)) is not None:
            return refusal
        self._age += aged(self._now, now, self.limits.max_stored_age)
        self._now = now
        session, size = self._session(key)
        if log is None:
            log = self._logs[key] = _Log()
            session.logs.add(key)
            size += _log_cost(key)
        log.first_seq, log.token = entries[0].seq, token
        for entry in entries:
            log.entries[entry.seq] = entry
            size += _ENTRY_COST + len(entry.data)
            arrival = (self._age, key, entry.seq)
            self._arrivals.append(arrival)
            session.arrivals.append(arrival)
        self.count += len(entries)
        self._use(key, size)
        self._evict()
        return AppendResult.STORED

    def read(self, key: StreamKey, after: int, *, limit: int, max_bytes: int) -> Page | None:
        """Return the entries that follow number ``after``, or None if the log does not exist.

        The page has at most ``limit`` entries and ``max_bytes`` bytes; the first may be larger.
        """
        log = self._logs.get(key)
        if log is None:
            return None
        last = log.last
        first = last.seq - len(log.entries) + 1
        found: list[Entry] = []
        size = 0
        for seq in range(max(first, after + 1), last.seq + 1):
            entry = log.entries[seq]
            size += len(entry.data)
            if len(found) == limit or (found and size > max_bytes):
                break
            found.append(entry)
        return Page(tuple(found), last)

    def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        name = (principal, session)
        if name in self._sessions:
            for key in self._sessions.pop(name).logs:
                self.count -= len(self._logs.pop(key).entries)
            shares = self._shares[principal]
            self._use(StreamKey(principal, session, ""), -shares.of(name))

    def take(self, bucket: str, count: int, limit: RateLimit, *, now: float) -> float:
        """Take tokens from a bucket, all of them or none; see :meth:`sansmcp.RateStore.take`."""
        buckets = self._buckets.get(limit)
        if buckets is None:
            buckets = self._buckets[limit] = TokenBuckets(limit, self.limits.max_rate_buckets)
        return buckets.take(bucket, count, now)

    def _session(self, key: StreamKey) -> tuple[_Session, int]:
        """Return the session of a log, and the bytes that it adds if it is new."""
        name = (key.principal, key.session)
        session = self._sessions.get(name)
        if session is not None:
            return session, 0
        session = self._sessions[name] = _Session()
        return session, _SESSION_COST

    def _use(self, key: StreamKey, size: int) -> None:
        """Add ``size`` bytes to a session; a negative number subtracts them."""
        shares = self._shares.get(key.principal)
        if shares is None:
            shares = self._shares[key.principal] = Shares()
        shares.change((key.principal, key.session), size)
        self._principals.change(key.principal, size)
        if not shares.total:
            del self._shares[key.principal]

    def _evict(self) -> None:
        limits = self.limits
        while self._arrivals and self._arrivals[0][0] < self._age - limits.max_stored_age:
            arrival = self._arrivals.popleft()
            session = self._sessions.get((arrival[1].principal, arrival[1].session))
            if session is not None and session.arrivals[0] is arrival:
                self._remove_first(session)
        while self.count > limits.max_stored_entries or self.size > limits.max_stored_bytes:
            name = self._shares[self._principals.largest()].largest()
            self._remove_first(self._sessions[name])
        if len(self._arrivals) > self.count + self.count // 4 + 64:
            kept = chain.from_iterable(each.arrivals for each in self._sessions.values())
            self._arrivals = deque(sorted(kept, key=_time_of))

    def _remove_first(self, session: _Session) -> None:
        """Delete the oldest entry of a session, which is the first one of its log."""
        _, key, seq = session.arrivals.popleft()
        log = self._logs[key]
        size = _ENTRY_COST + len(log.entries.pop(seq).data)
        self.count -= 1
        if not log.entries:
            del self._logs[key]
            session.logs.discard(key)
            size += _log_cost(key)
        if not session.logs:
            del self._sessions[key.principal, key.session]
            size += _SESSION_COST
        self._use(key, -size)


def _time_of(arrival: _Arrival) -> float:
    return arrival[0]


def _log_cost(key: StreamKey) -> int:
    return _LOG_COST + len(key.principal) + len(key.session) + len(key.stream)
