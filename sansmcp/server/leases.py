"""Leases: how an instance notices that another one, which runs a call, has died.

Each instance that shares a store and writes logs keeps a *lease*: a log to which it appends an
entry every third of ``Limits.lease_timeout``. The log of a call or task names the instance that
writes it. An instance that needs what another one writes follows the lease of that one. If the
lease gets no entry for ``lease_timeout`` seconds, on the clock of the instance that follows it, the
writer counts as dead, and the follower goes on with the log: it appends under the next number. If
several followers try, one succeeds; and if the writer was only slow, its next append conflicts, and
its handler is cancelled. So no lock is needed.

An instance keeps no lease while it writes no logs. So the time begins anew for each log that the
writer begins or changes.

While the store fails, no lease can be kept. So an instance that could not read a lease begins to
count anew. Reads can also work while writes fail: on a full disk, or in a Redis at its memory
limit. All leases then stand still, and only an append shows why. So an instance that follows a
lease also keeps its own, and ``Lease.troubled_at`` is when it last could not. A trouble shorter
than the time between two entries goes unnoticed, and costs each instance one entry of three at
most.

An entry has the time of day at which it was written. The read that finds it, and the one before
that did not, bound that time, so an entry outside these bounds shows that clocks differ. An entry
can also be older because its append was repeated, but hardly two in a row.

Example with the default of 10 s: writes fail from second 0 to 40. The follower's own append is due
at 3.3 and overdue at 6.7, 10 and so on until 40, and it counts from then. The entry of the writer,
which is repeated, is stored within a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Protocol

import attrs

from ..codecs import json
from ..effects import StoreEffect
from ..errors import RemoteProtocolError
from ..events import ClocksDiffer
from ..store import Entry, Page, StreamKey
from ..timers import Timer
from .core import ServerCore
from .logs import Logs, StoreOperation
from .procedures import Procedure, StepFailedError, Steps, Until, read
from .records import RecordTooNewError, read_members, record_in, write_members

_LOG = ".lease"

_BEATS = 3
"""Entries per ``lease_timeout``."""

_MAX_DEPTH = 8
"""Nesting of an entry that is read."""

_TOLERANCE = 5.0
"""Seconds by which clocks may differ without a report."""


def lease_key(instance: str) -> StreamKey:
    """Return the key of the lease of an instance."""
    return StreamKey("", instance, _LOG)


class LeaseUser(Hashable, Protocol):
    """A part of this instance that writes logs, or follows the lease of another instance."""

    @property
    def needs_lease(self) -> bool:
        """True if it does so at present."""
        ...


@attrs.define(eq=False, repr=False)
class Lease(StoreOperation):
    """The lease of this instance. It is kept while this instance writes logs or follows others."""

    _core: ServerCore
    _logs: Logs
    _users: dict[LeaseUser, None] = attrs.field(factory=dict[LeaseUser, None], init=False)
    """The parts that need the lease, as far as is known."""
    _seq: int = attrs.field(default=1, init=False)
    """The number of the next entry."""
    _is_appending: bool = attrs.field(default=False, init=False)
    _renewed_at: float = attrs.field(default=math.inf, init=False)
    """When the last entry was due, if it is kept."""
    _troubled_at: float = attrs.field(default=-math.inf, init=False)

    def keep(self, user: LeaseUser) -> None:
        """Keep the lease from now on, for as long as ``user`` needs it."""
        is_kept = bool(self._users)
        self._users[user] = None
        if not is_kept:
            self.renew()

    def renew(self) -> None:
        """Append an entry, unless no part needs the lease any more."""
        core = self._core
        self._note_delay()
        self._renewed_at = math.inf
        for user in tuple(self._users):
            if core.has_stopped or not user.needs_lease:
                del self._users[user]
        if self._users:
            if self._is_appending:
                self._troubled_at = core.now  # the entry before is overdue
            self._append(is_last=False)
            self._renewed_at = core.now
            core.timers.set(Timer.LEASE, self, core.now + core.limits.lease_timeout / _BEATS)

    @property
    def troubled_at(self) -> float:
        """Time at which this instance last could not renew its lease; ``-math.inf`` for never.

        Either an entry was not stored before the next was due, or the instance itself stood still.
        The other instances may have been in the same trouble: their leases count from then.
        """
        self._note_delay()
        return self._troubled_at

    def _note_delay(self) -> None:
        """Notice if an entry comes so late that the one after it would be due."""
        core = self._core
        if core.now >= self._renewed_at + 2 * core.limits.lease_timeout / _BEATS:
            self._troubled_at = core.now

    def end(self) -> None:
        """Append the last entry, because this instance stops: others need not wait."""
        self._core.timers.stop(Timer.LEASE, self)
        if self._seq > 1:
            self._append(is_last=True)

    def _append(self, *, is_last: bool) -> None:
        if not self._is_appending:
            self._is_appending = True
            key = lease_key(self._core.instance)
            clock = self._core.options.wall_clock
            data = b"" if clock is None else write_members({"time": clock()})
            self._logs.append(key, (Entry(self._seq, data, is_last),), self)

    def on_append_done(self) -> None:
        self._is_appending = False
        self._seq += 1

    def on_append_conflict(self) -> None:
        """An append that seemed to have failed was done."""
        self.on_append_done()

    def on_append_behind(self) -> None:
        """The store has lost the lease: begin it anew, at once, since others still count."""
        self._is_appending = False
        self._logs.drop("", self._core.instance)
        self._seq = 1
        self.renew()

    def may_repeat(self, effect: StoreEffect) -> bool:
        """The next entry may be too late, and one that is stored soon shows that writes work."""
        return True

    def failed(self, effect: StoreEffect) -> bool:
        """Nothing of a client is lost."""
        self._is_appending = False
        return True


def _time_of(entry: Entry) -> float | None:
    """Return when an entry was written; None if it does not say so, or only to a later version."""
    try:
        time = read_members(record_in(entry), _MAX_DEPTH).get("time")
    except (RemoteProtocolError, RecordTooNewError):  # empty if it is of an earlier version
        return None
    return time if json.is_finite(time) else None


@attrs.frozen
class _Follower:
    """A part of this instance that needs what another instance writes."""

    on_death: Callable[[], None]
    """Is called if that instance dies."""
    until: float
    """When it follows no more."""
    state: Hashable
    """What it has seen last of what the instance writes."""
    since: float
    """When it saw that first."""
    is_patient: bool
    """True if the end of the lease is no death before ``lease_timeout`` seconds have passed."""


@attrs.define(eq=False, repr=False)
class OtherInstance:
    """Another instance, whose lease is followed here."""

    _peers: Peers
    instance: str
    followers: dict[Hashable, _Follower] = attrs.field(
        factory=dict[Hashable, _Follower], init=False
    )
    reading: Procedure = attrs.field(init=False)
    """Reads the lease from time to time, until all followers have left."""

    def __attrs_post_init__(self) -> None:
        self.reading = Procedure(self._peers.logs, self._read())

    @property
    def needs_lease(self) -> bool:
        """True while it is followed: only an instance that keeps its own lease judges another."""
        return bool(self.followers)

    def _read(self) -> Steps[None]:
        core = self._peers.core
        clock, lease = core.options.wall_clock, core.limits.lease_timeout
        seq, alive_at = 0, core.now  # the last entry that was seen, and when
        # Time of day at which the latest read began that was done: later entries are newer.
        known_at, was_behind = -math.inf, False
        while self._leave_late():
            read_at, asked_at = core.now, -math.inf if clock is None else clock()
            try:
                page = yield from read(lease_key(self.instance), seq)
            except StepFailedError:
                # The store cannot be read, so perhaps the lease could not be written, either.
                alive_at = core.now
            else:
                has_ended = False
                if page is None:
                    seq = 0  # lost; its writer begins anew, and may soon be at the same number
                elif page.last.seq != seq:
                    seq, alive_at, has_ended = page.last.seq, core.now, page.last.final
                    was_behind = self._compare_clocks(page, known_at, was_behind=was_behind)
                known_at = asked_at
                alive_at = max(alive_at, self._peers.troubled_at)
                # An entry that the page does not have may be stored since the read began.
                self._report(alive_at, read_at, has_ended=has_ended)
            if self.followers:
                seen_at = max(alive_at, min(each.since for each in self.followers.values()))
                yield Until(Timer.LEASE, min(core.now + lease / _BEATS, seen_at + lease))

    def _leave_late(self) -> bool:
        """Let the followers leave whose time is over. Returns False if there are no others."""
        for name, follower in tuple(self.followers.items()):
            if self._peers.core.now > follower.until:
                self._peers.leave(self.instance, name)
        return bool(self.followers)

    def _report(self, alive_at: float, read_at: float, *, has_ended: bool) -> None:
        """Tell the followers for which the instance has died; they follow it no more."""
        for name, follower in tuple(self.followers.items()):
            is_dead = has_ended and not follower.is_patient
            seen_at = max(alive_at, follower.since)
            if is_dead or read_at >= seen_at + self._peers.core.limits.lease_timeout:
                self._peers.leave(self.instance, name)
                follower.on_death()

    def _compare_clocks(self, page: Page, known_at: float, *, was_behind: bool) -> bool:
        """Report if the first new entry was written at a time at which it cannot have been.

        Returns True if it is older than ``known_at``, which is reported for the second one.
        """
        clock = self._peers.core.options.wall_clock
        time = _time_of(page.entries[0]) if page.entries else None
        if clock is None or time is None:
            return was_behind
        ahead, behind = time - clock(), time - known_at
        if ahead > _TOLERANCE:
            self._peers.clocks_differ(ahead)
        elif behind < -_TOLERANCE and was_behind:
            self._peers.clocks_differ(behind)
        return behind < -_TOLERANCE


@attrs.define(eq=False, repr=False)
class Peers:
    """The other instances whose leases are followed here."""

    core: ServerCore
    logs: Logs
    _lease: Lease | None
    """The lease of this instance; None if its store is not shared."""
    _peers: dict[str, OtherInstance] = attrs.field(factory=dict[str, OtherInstance], init=False)
    _has_reported_clocks: bool = attrs.field(default=False, init=False)

    def follow(
        self,
        instance: str,
        follower: Hashable,
        on_death: Callable[[], None],
        until: float = math.inf,
        state: Hashable = None,
        *,
        is_patient: bool = False,
    ) -> None:
        """Call ``on_death()`` once if an instance dies, unless ``follower`` leaves it before.

        ``until``: the time at which the follower leaves it of its own accord. ``state``: what the
        instance has written last; a new one shows that it was alive. ``is_patient``: True if its
        death is known, and is to be reported once more after ``Limits.lease_timeout``.
        """
        peer, since = self._peers.get(instance), self.core.now
        is_new = peer is None
        if peer is None:
            peer = self._peers[instance] = OtherInstance(self, instance)
        known = peer.followers.get(follower)
        if known is not None and known.state == state:
            since = known.since
        peer.followers[follower] = _Follower(on_death, until, state, since, is_patient)
        if is_new:
            if self._lease is not None:
                self._lease.keep(peer)
            peer.reading.start()

    @property
    def troubled_at(self) -> float:
        """Time at which this instance last could not renew its own lease."""
        return -math.inf if self._lease is None else self._lease.troubled_at

    def clocks_differ(self, seconds: float) -> None:
        """Report that the clock of an instance is ahead by that much, unless one was reported."""
        if not self._has_reported_clocks:
            self._has_reported_clocks = True
            self.core.events.append(ClocksDiffer(seconds))

    def leave(self, instance: str, follower: Hashable) -> None:
        """Follow the lease of an instance no more, unless others follow it."""
        peer = self._peers.get(instance)
        if peer is not None:
            peer.followers.pop(follower, None)
            if not peer.followers:
                self._forget(peer)

    def leave_all(self) -> None:
        """Follow no instance any more, because this one stops."""
        for peer in tuple(self._peers.values()):
            peer.followers.clear()
            self._forget(peer)

    def _forget(self, peer: OtherInstance) -> None:
        del self._peers[peer.instance]
        peer.reading.close()
