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
count anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Protocol

import attrs

from ..effects import StoreEffect, StoreRead
from ..store import Entry, Page, StreamKey
from ..timers import Timer
from .core import ServerCore
from .logs import Logs, StoreOperation

_LOG = ".lease"

_BEATS = 3
"""Entries per ``lease_timeout``."""


def lease_key(instance: str) -> StreamKey:
    """Return the key of the lease of an instance."""
    return StreamKey("", instance, _LOG)


class Writer(Hashable, Protocol):
    """A part of this instance that writes logs."""

    @property
    def writes_logs(self) -> bool:
        """True if it writes logs at present."""
        ...


@attrs.define(eq=False, repr=False)
class Lease(StoreOperation):
    """The lease of this instance. It is kept while this instance writes logs."""

    _core: ServerCore
    _logs: Logs
    _writers: dict[Writer, None] = attrs.field(factory=dict[Writer, None], init=False)
    """The parts that write logs, as far as is known."""
    _seq: int = attrs.field(default=1, init=False)
    """The number of the next entry."""
    _is_appending: bool = attrs.field(default=False, init=False)

    def keep(self, writer: Writer) -> None:
        """Keep the lease from now on, for as long as ``writer`` writes logs."""
        is_kept = bool(self._writers)
        self._writers[writer] = None
        if not is_kept:
            self.renew()

    def renew(self) -> None:
        """Append an entry, unless no log is written here any more."""
        core = self._core
        for writer in tuple(self._writers):
            if core.has_stopped or not writer.writes_logs:
                del self._writers[writer]
        if self._writers:
            self._append(is_last=False)
            core.timers.set(Timer.LEASE, self, core.now + core.limits.lease_timeout / _BEATS)

    def end(self) -> None:
        """Append the last entry, because this instance stops: others need not wait."""
        if self._seq > 1:
            self._append(is_last=True)

    def _append(self, *, is_last: bool) -> None:
        if not self._is_appending:
            self._is_appending = True
            key = lease_key(self._core.instance)
            self._logs.append(key, (Entry(self._seq, b"", is_last),), self)

    def on_append_done(self) -> None:
        self._is_appending = False
        self._seq += 1

    def on_append_conflict(self) -> None:
        """An append that seemed to have failed was done."""
        self.on_append_done()

    def on_append_behind(self) -> None:
        """The store has lost the lease: begin it anew."""
        self._is_appending = False
        self._logs.drop("", self._core.instance)
        self._seq = 1

    def failed(self, effect: StoreEffect) -> bool:
        """Nothing of a client is lost."""
        self._is_appending = False
        return True


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


@attrs.define(eq=False, repr=False)
class Peer(StoreOperation):
    """Another instance, whose lease is followed here."""

    _peers: Peers
    instance: str
    followers: dict[Hashable, _Follower] = attrs.field(
        factory=dict[Hashable, _Follower], init=False
    )
    _seq: int = attrs.field(default=0, init=False)
    """The number of the last entry of its lease that was seen."""
    _alive_at: float = attrs.field(init=False)
    """When that entry was seen, or the store could not be read."""

    def __attrs_post_init__(self) -> None:
        self._alive_at = self._peers.core.now

    def check(self) -> None:
        """Read the lease, unless all followers have left."""
        now = self._peers.core.now
        for name, follower in tuple(self.followers.items()):
            if now > follower.until:
                self._peers.leave(self.instance, name)
        if self.followers:
            self._read()

    def _read(self) -> None:
        most = self._peers.core.limits.max_stored_bytes
        key = lease_key(self.instance)
        self._peers.logs.read(key, self._seq, self, limit=1, max_bytes=most)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if not self.followers:
            return  # the last follower has left while the lease was read
        core = self._peers.core
        has_ended = False
        if page is not None and page.last.seq != self._seq:
            self._seq, self._alive_at = page.last.seq, core.now
            has_ended = page.last.final
        for name, follower in tuple(self.followers.items()):
            seen_at = max(self._alive_at, follower.since)
            if has_ended or core.now >= seen_at + core.limits.lease_timeout:
                self._peers.leave(self.instance, name)
                follower.on_death()
        if self.followers:
            self._check_later()

    def failed(self, effect: StoreEffect) -> bool:
        """The store cannot be read, so perhaps the lease could not be written, either."""
        if self.followers:
            self._alive_at = self._peers.core.now
            self._check_later()
        return True

    def _check_later(self) -> None:
        core = self._peers.core
        lease = core.limits.lease_timeout
        seen_at = max(self._alive_at, min(each.since for each in self.followers.values()))
        core.timers.set(Timer.LEASE, self, min(core.now + lease / _BEATS, seen_at + lease))


@attrs.define(eq=False, repr=False)
class Peers:
    """The other instances whose leases are followed here."""

    core: ServerCore
    logs: Logs
    _peers: dict[str, Peer] = attrs.field(factory=dict[str, "Peer"], init=False)

    def follow(
        self,
        instance: str,
        follower: Hashable,
        on_death: Callable[[], None],
        until: float = math.inf,
        state: Hashable = None,
    ) -> None:
        """Call ``on_death()`` once if an instance dies, unless ``follower`` leaves it before.

        ``until``: the time at which the follower leaves it of its own accord. ``state``: what the
        instance has written last; a new one shows that it was alive.
        """
        peer, since = self._peers.get(instance), self.core.now
        is_new = peer is None
        if peer is None:
            peer = self._peers[instance] = Peer(self, instance)
        known = peer.followers.get(follower)
        if known is not None and known.state == state:
            since = known.since
        peer.followers[follower] = _Follower(on_death, until, state, since)
        if is_new:
            peer.check()

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

    def _forget(self, peer: Peer) -> None:
        del self._peers[peer.instance]
        self.core.timers.stop(Timer.LEASE, peer)
