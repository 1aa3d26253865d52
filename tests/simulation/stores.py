"""The store of a simulated world, and the way of each instance to it.

A store that works at once is used in place. One that waits is used as drivers use it: through a
``StoreQueue``, so that what belongs to one log is done in order, and all else at the same time, and
is completed in any order.

What may happen: an operation fails, or its reply is lost, or it is done after it was said to have
failed; a log loses its last entry; the store is out of reach for some seconds, for all instances or
for one; what it tells of changes comes late, or never.
"""

from __future__ import annotations

import copy
import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from sansmcp import AppendResult, Entry, EntryKind, MemoryStore, Page, StreamKey
from sansmcp.codecs.event_id import EventId
from sansmcp.drivers.store_queue import StoreQueue
from sansmcp.effects import (
    StoreAppend,
    StoreDrop,
    StoreEffect,
    StoreRead,
    StoreTake,
    StoreUnwatch,
    StoreWatch,
)
from sansmcp.server.leases import lease_key
from sansmcp.server.legacy.mailbox import cancellation_mailbox
from sansmcp.server.legacy.parked_calls import ParkedCall
from sansmcp.server.legacy.sessions import RECORD
from sansmcp.server.legacy.streams import WriterDeclaration

from . import remains
from .tasks import Tasks, is_log_of_task

if TYPE_CHECKING:
    from .peers import Instance
    from .simulator import World

LATEST = 1.0
"""Seconds after which a store that has done something says so at the latest."""
_SLOW = (0.0, 0.001, 0.05, 0.5)
"""Seconds that an operation of a store that waits takes."""
_LATE = (0.0, 0.0, 0.02, LATEST)
"""Seconds after which its reply comes."""
_HANGS = (0.0, 0.0, 1.0, 5.0)
"""Seconds after which an operation fails while the store is out of reach."""
_FAILURES = ("before", "done", "done", "late", "loses its end")
"""What a store that fails has done with an append: nothing; all, and the reply is lost; it does all
after it was said to have failed; or nothing, and the last entry of the log is lost, too.
"""
_DONE_LATE = (0.01, 0.1, 1.0)
_LOST = b'"instance_lost"'
"""In the error that ends the call of an instance that has died."""
_WOKEN = 2.5
"""Seconds within which a log is read of whose change the store has told. Less than
``store_check_interval``, after which it is read in any case.
"""

_Report: TypeAlias = Callable[[], None]
"""Tells the machine what has come of an operation."""


@attrs.define(eq=False)
class NotingStore:
    """A store that notes what it has had."""

    store: MemoryStore
    tasks: Tasks
    ids: set[str] = attrs.field(factory=set[str])
    """The ids of all events."""
    logs: defaultdict[tuple[str, str], set[StreamKey]] = attrs.field(
        factory=lambda: defaultdict(set)
    )
    """All logs that were appended to, by principal and session."""
    writers: dict[StreamKey, str] = attrs.field(factory=dict[StreamKey, str])
    """The instance that has last declared that it writes a log."""
    latest: dict[StreamKey, tuple[int, str]] = attrs.field(factory=dict[StreamKey, tuple[int, str]])
    """Of each log, the number of the first entry of the last append, and its token."""
    lost_ends: set[StreamKey] = attrs.field(factory=set[StreamKey])
    """The logs that have lost entries."""
    renewals: defaultdict[str, list[tuple[float, int]]] = attrs.field(
        factory=lambda: defaultdict(list)
    )
    """When leases got their entries, and the numbers of these, by the names of instances."""

    def append(
        self, key: StreamKey, entries: tuple[Entry, ...], *, token: str, now: float
    ) -> AppendResult:
        """Add entries, and note their ids."""
        page = self.store.read(key, 0, limit=1, max_bytes=1)
        result = self.store.append(key, entries, token=token, now=now)
        if result is AppendResult.STORED:
            if page is None or entries[0].seq > page.last.seq:
                self.tasks.appended(key, entries, token.rpartition(".")[0])
            self.ids.update(f"{key.stream}-{entry.seq}" for entry in entries)
            self.latest[key] = entries[0].seq, token
            if key == lease_key(key.session):
                self.renewals[key.session].append((now, entries[0].seq))
            self.logs[key.principal, key.session].add(key)
            for declared in map(declaration_in, entries):
                if declared is not None:
                    self.writers[key] = declared.instance
        return result

    def lose_all(self) -> None:
        """Lose everything, as a store in memory does that is started again."""
        self.lost_ends.update(*self.logs.values())
        self.logs.clear()
        self.writers.clear()
        self.latest.clear()
        self.renewals.clear()
        self.store = MemoryStore(self.store.limits)

    def lose_since(self) -> Callable[[], None]:
        """Return what makes it as it is now, as it is when a copy of it takes its place."""
        then = copy.deepcopy(self.store)
        logs = copy.deepcopy(self.logs)
        writers, latest = dict(self.writers), dict(self.latest)
        renewals = copy.deepcopy(self.renewals)

        def go_back() -> None:
            self.lost_ends.update(*self.logs.values())
            self.store, self.logs, self.writers, self.latest = then, logs, writers, latest
            self.renewals = renewals

        return go_back

    def lose_end(self, key: StreamKey) -> None:
        """Lose the last entry of a log, as a machine does that loses its disk."""
        name = (key.principal, key.session)
        logs = {log: self._entries_of(log) for log in self.logs[name]}
        if len(logs.get(key, ())) > 1:
            self.lost_ends.add(key)
            self.store.drop(*name)
            logs[key] = logs[key][:-1]
            for log, entries in logs.items():
                first_seq, token = self.latest[log]
                since = tuple(entry for entry in entries if entry.seq >= first_seq)
                before = entries[: len(entries) - len(since)]
                for part, made_by in ((before, ""), (since, "" if log == key else token)):
                    if part:
                        self.store.append(log, part, token=made_by, now=0.0)

    def _entries_of(self, key: StreamKey) -> tuple[Entry, ...]:
        page = self.store.read(key, 0, limit=10**9, max_bytes=10**9)
        return () if page is None else page.entries


def _of_a_newer_version(key: StreamKey, entry: Entry) -> Entry:
    """Return an entry as a later version may write it: its record has a member that is new."""
    number, space, record = b"", b"", entry.data
    if entry.kind is EntryKind.KEPT:
        number, space, record = entry.data.partition(b" ")
    is_record = entry.waits or is_log_of_task(key) or key.stream == RECORD
    is_record = is_record or entry.kind in (EntryKind.OPENED, EntryKind.WRITER, EntryKind.KEPT)
    if not (is_record and record.startswith(b"{")) or b'"com.example/new"' in record:
        return entry
    data = number + space + record[:-1] + b',"com.example/new":{"a":1}}'
    return attrs.evolve(entry, data=data)


def declaration_in(entry: Entry) -> WriterDeclaration | None:
    """Return what an entry of the log of a stream says about its writer."""
    if entry.kind in (EntryKind.OPENED, EntryKind.WRITER, EntryKind.KEPT):
        return WriterDeclaration.of(entry)
    return None


@attrs.frozen(kw_only=True)
class Outage:
    """A time in which the store is out of reach."""

    begins: float
    ends: float
    instance: int | None
    """The index of the instance that cannot reach it; None: all."""
    is_full: bool = False
    """Whether it only takes nothing more: what it has can be read."""

    def concerns(self, index: int, now: float, *, appends: bool) -> bool:
        """Whether an instance cannot reach the store at that time, or cannot append to it."""
        is_concerned = self.instance in (None, index) and (appends or not self.is_full)
        return self.begins <= now < self.ends and is_concerned


@attrs.define
class _LeaseReads:
    """How the reads of the lease of another instance went."""

    failed_at: float = -math.inf
    """When the last one failed."""
    failed_before: float = -math.inf
    """When one failed last before the last that worked."""
    worked_at: float = -math.inf
    is_outdated: bool = False
    """Whether the store had had another entry for a while when the last one was reported, which the
    instance would have to notice.
    """
    awake_since: float = -math.inf
    """When the instance had last stood still before it asked for the last one."""


@attrs.define(eq=False)
class _Watch:
    """A log of whose changes the store tells."""

    works: bool = False


class StoreSeat:
    """An instance's way to its store."""

    def __init__(self, instance: Instance, store: NotingStore | None) -> None:
        self.store = store
        self.pending = 0
        """Operations that are not completed."""
        self.troubled_at = -math.inf
        """When an operation failed last."""
        self.excused_at = -math.inf
        """When one failed last at this instance alone, or the instance has stood still."""
        self.full_at = -math.inf
        """When the instance last had no room for another task."""
        self._instance = instance
        self._world: World = instance.world
        features, fates = self._world.features, self._world.fates
        self._waits = "slow store" in features
        self._tells = "store tells" in features
        tasks = fates.pick(f"{instance.name} store tasks", (2, 64, 64))
        self._queue = StoreQueue(tasks if self._waits else 10**9)
        is_in_order = fates.number(f"{instance.name} store in order") < 0.5
        self._completes_in_order = is_in_order and "eager readers" not in features
        """Whether the next operation on a log waits until the last one was reported, as drivers do;
        else until it was done.
        """
        self._held: dict[int, StoreEffect] = {}
        """What others may wait for."""
        self._in_order: defaultdict[StreamKey, list[StoreEffect]] = defaultdict(list)
        """What waits or is in flight of each log, in the order in which it was asked for."""
        self._uses = 0
        self._told = 0
        self._watches: dict[StreamKey, _Watch] = {}
        self._looked: defaultdict[StreamKey, list[float]] = defaultdict(list)
        """When logs were read."""
        self._asked: dict[StreamKey, float] = {}
        """When the machine last asked to read a log."""
        self._unreported: Counter[StreamKey] = Counter()
        """How many operations on each log the machine waits for."""
        self._leases: defaultdict[str, _LeaseReads] = defaultdict(_LeaseReads)

    def perform(self, effect: StoreEffect | StoreWatch | StoreUnwatch) -> None:
        """Perform an effect of the machine."""
        match effect:
            case StoreWatch(stream):
                if self._tells:
                    self._watch(stream)
                    self._instance.server.store_watched(effect, now=self._instance.now)
            case StoreUnwatch(stream):
                self._watches.pop(stream, None)
            case _:
                self._use(effect)

    def has_evicted(self, key: StreamKey) -> bool:
        """Whether the store no longer has a log that it had."""
        return (
            self.store is not None and self.store.store.read(key, 0, limit=1, max_bytes=1) is None
        )

    # What the store is asked for

    @property
    def _is_away(self) -> bool:
        return self._world.is_store_away(self._instance.index)

    def _refuses(self, effect: StoreEffect) -> bool:
        """Whether the store cannot do this at present."""
        is_append = isinstance(effect, StoreAppend)
        return self._world.is_store_away(self._instance.index, appends=is_append)

    def _use(self, effect: StoreEffect) -> None:
        assert self.store is not None, "nothing is stored"
        self.pending += 1
        if isinstance(effect, StoreAppend):
            self._check_wanted(effect)
            self._check_verdict(effect, self.store)
        if isinstance(effect, StoreRead):
            self._asked[effect.stream] = self._world.clock.now
            if effect.stream == lease_key(effect.stream.session):
                self._leases[effect.stream.session].awake_since = self._instance.awake_since
        if not isinstance(effect, StoreDrop | StoreTake):
            self._unreported[effect.stream] += 1
            self._in_order[effect.stream].append(effect)
        self._queue.add(effect)
        self._start()

    def _start(self) -> None:
        while (effect := self._queue.start_next()) is not None:
            if (
                not isinstance(effect, StoreDrop | StoreTake)
                and self._in_order[effect.stream][0] is not effect
            ):
                self._world.fail("stores", f"{self._instance.name} overtakes in {effect.stream}")
            self._held[id(effect)] = effect
            self._begin(effect)

    def _begin(self, effect: StoreEffect) -> None:
        world, fates = self._world, self._world.fates
        self._uses += 1
        name = f"{self._instance.name} store {self._uses}"
        takes, late = 0.0, 0.0
        if self._refuses(effect):
            world.reach("store out of reach" if self._is_away else "store full")
            late = fates.pick(f"{name} hangs", _HANGS) if self._waits else 0.0
            self._later(late, effect, self._failed(effect, "it is out of reach"))
            return
        if world.is_faulty and self._waits:
            takes = fates.pick(f"{name} slow", _SLOW)
            late = fates.pick(f"{name} late", _LATE)
            if "eager readers" in world.features and isinstance(effect, StoreAppend):
                late = LATEST  # others read meanwhile what it has done
        fails = world.strikes(name, self._rate_of_failing(effect))
        if isinstance(effect, StoreRead) and effect.stream == lease_key(effect.stream.session):
            late = self._may_stand_still(effect, name) or late

        def use() -> None:
            if not self._instance.is_alive:
                return
            report = self._fail(effect, name) if fails else self._do(effect)
            is_told_twice = fates.number(f"{name} twice") < 0.1 and not fails
            if not self._completes_in_order:
                self._release(effect)
            self._later(late, effect, functools.partial(self._reply, effect, report))
            if is_told_twice:
                when_awake = self._instance.when_awake
                world.clock.call_later(
                    late + 0.01, lambda: when_awake(lambda: self._report_again(report))
                )

        if takes:
            world.clock.call_later(takes, use)
        else:
            use()

    def _may_stand_still(self, effect: StoreRead, name: str) -> float:
        """Let the instance stand still while it reads a lease that has no new entry.

        Returns the seconds after which the reply comes; 0.0 if it does not.
        """
        world, lease = self._world, self._world.limits.lease_timeout
        if "standstill" not in world.features or self.store is None:
            return 0.0
        page = self.store.store.read(effect.stream, effect.after, limit=1, max_bytes=1)
        if page is None or page.entries or not world.strikes(f"{name} in a sleep", 0.8):
            return 0.0
        seconds = min(1.5 * lease, max(world.faulty_for - 0.1, 0.0))
        world.reach("instance stands still while it reads a lease")
        world.clock.call_later(0.005, lambda: self._instance.stand_still(seconds))
        return 0.01

    def _later(self, seconds: float, effect: StoreEffect, report: _Report) -> None:
        if seconds:
            when_awake = self._instance.when_awake
            finish = functools.partial(self._finish, effect, report)
            self._world.clock.call_later(seconds, lambda: when_awake(finish))
        else:
            self._instance.when_awake(lambda: self._finish(effect, report))

    def _finish(self, effect: StoreEffect, report: _Report) -> None:
        """Report what has come of an operation, and begin the next."""
        self.pending -= 1
        if self._instance.is_alive:
            if id(effect) in self._held:
                self._release(effect)
            if not isinstance(effect, StoreDrop | StoreTake):
                self._unreported[effect.stream] -= 1
            report()
            self._start()
            self._instance.touch()

    def _release(self, effect: StoreEffect) -> None:
        """Let what waits for an operation begin."""
        del self._held[id(effect)]
        self._queue.finish(effect)
        if not isinstance(effect, StoreDrop | StoreTake):
            self._in_order[effect.stream].remove(effect)

    def _reply(self, effect: StoreEffect, report: _Report) -> None:
        """Report what was done, unless the store has got out of reach meanwhile."""
        if self._refuses(effect):
            self._world.reach("store out of reach, and a reply is lost")
            report = self._failed(effect, "its reply is lost")
        report()

    def _report_again(self, report: _Report) -> None:
        if self._instance.is_alive:
            self._world.reach("store answers twice")
            report()
            self._instance.touch()

    def _rate_of_failing(self, effect: StoreEffect) -> float:
        """Failures are more frequent where a stream has a reader that is behind.

        One that has just failed works then, so that no lease ends by them alone.
        """
        world = self._world
        if isinstance(effect, StoreDrop | StoreTake) or "store fails" not in world.features:
            return 0.0
        if effect.stream.stream == lease_key("").stream and self.troubled_at >= world.clock.now - 5:
            return 0.0
        if remains.is_reader_behind(self._instance.server, effect.stream):
            return 0.4
        return world.rate * world.fates.pick("store rate", (0.05, 0.4))

    def _do(self, effect: StoreEffect) -> _Report:
        """Do it; returns what tells the machine."""
        store, instance, world = self.store, self._instance, self._world
        server = instance.server
        assert store is not None
        match effect:
            case StoreAppend():
                result = self._append(store, effect)
                return lambda: server.append_completed(effect, result, now=instance.now)
            case StoreRead(stream=key, after=after, limit=limit, max_bytes=most):
                page = store.store.read(key, after, limit=limit, max_bytes=most)
                self._looked[key].append(world.clock.now)
                count = world.tasks.count_states(key)
                is_kept = page is not None and page.last.final and key.session.startswith(".kept.")
                if is_kept:
                    world.reach("response of another instance given")
                if page is None or (page.entries and page.entries[0].seq > after + 1):
                    world.reach("entries have gone from the store")
                elif len(page.entries) == limit and page.last.seq > page.entries[-1].seq:
                    world.reach("replay in several pages")
                return functools.partial(self._has_read, effect, page, count)
            case StoreDrop(principal=principal, session=session):
                store.store.drop(principal, session)
                world.tell_drop(instance, principal, session)
                return lambda: server.drop_completed(effect, now=instance.now)
            case StoreTake(bucket=bucket, count=tokens, limit=limit):
                wait = store.store.take(bucket, tokens, limit, now=self._now)
                return lambda: server.take_completed(effect, wait, now=instance.now)

    def _has_read(self, effect: StoreRead, page: Page | None, states: int) -> None:
        if effect.stream == lease_key(effect.stream.session):
            reads = self._leases[effect.stream.session]
            reads.worked_at, reads.failed_before = self._world.clock.now, reads.failed_at
            assert self.store is not None
            seen, now = 0 if page is None else page.last.seq, self._world.clock.now
            lease = self._world.limits.lease_timeout
            since, until = now - lease, now - LATEST - 0.1
            renewals = self.store.renewals[effect.stream.session]
            is_outdated = any(seq > seen and since < at < until for at, seq in renewals)
            # A writer that added nothing for a whole lease, while this instance was awake, counts
            # as dead when the read is asked for. If it adds something before the reply comes, only
            # an instance that has stood still for two thirds of a lease notices that it is late.
            added_at = max((at for at, seq in renewals if seq <= seen), default=math.inf)
            asked_at = self._asked[effect.stream]
            was_dead = asked_at - max(added_at, reads.awake_since) >= lease - 0.001
            is_excused = was_dead and now - asked_at < 2 * lease / 3
            reads.is_outdated = is_outdated and not is_excused
        self._instance.server.read_completed(effect, page, now=self._instance.now)
        self._world.tasks.was_read(effect.stream, self._instance, states)

    def _append(self, store: NotingStore, effect: StoreAppend) -> AppendResult:
        world, key, entries = self._world, effect.stream, effect.entries
        if "two versions" in world.features and world.is_newer(self._instance.name):
            world.reach("record of a newer version stored")
            entries = tuple(_of_a_newer_version(key, entry) for entry in entries)
        page = store.store.read(key, 0, limit=1, max_bytes=1)
        count = store.store.count
        result = store.append(key, entries, token=effect.token, now=self._now)
        if result is AppendResult.STORED:
            is_new = store.store.count != count
            if is_new and page is not None and entries[0].seq != page.last.seq + 1:
                text = f"{key.stream} ends with {page.last.seq}, and takes {entries[0].seq}"
                world.fail("stores", text)
            if not is_new:
                world.reach("append recognised by its token")
            world.check_store(store.store)
            if key.stream.startswith(".cancelled.") and entries[0].seq == 2:
                world.stored_cancellations[key] = world.clock.now
            if entries[-1].waits:
                self._note_parked(key, entries[-1])
            world.tell_watchers(self._instance, key)
        elif result is AppendResult.BEHIND:
            world.reach("append behind")
        else:
            world.reach("append overtaken")
            if key.session == ".keys":
                world.reach("key claimed by another instance")
            if is_log_of_task(key):
                world.reach("task changed by two at once")
        return result

    @property
    def _now(self) -> float:
        """The clock of the store."""
        return self._world.clock.now if self._world.shared else self._instance.now

    def _note_parked(self, key: StreamKey, entry: Entry) -> None:
        """Note where the answers to a turn come, and its cancellation."""
        turn = f"{EventId(key.stream, entry.seq).encode()}."
        log = cancellation_mailbox(ParkedCall.decode(entry.data).request.id)
        answers, cancellation = (attrs.evolve(key, stream=name) for name in (turn, log))
        self._world.parked[answers] = cancellation

    def _fail(self, effect: StoreEffect, name: str) -> _Report:
        """It fails, or does it and its reply gets lost, or does it late, or loses entries."""
        world, store, how = self._world, self.store, "before"
        assert store is not None
        if isinstance(effect, StoreAppend):
            how = world.fates.pick(f"{name} fails", _FAILURES)
            world.reach(f"append fails: {how}")
            now = self._now

            def append() -> None:
                store.append(effect.stream, effect.entries, token=effect.token, now=now)

            if how == "done":
                append()
                world.tell_watchers(self._instance, effect.stream)
            elif how == "late":
                world.clock.call_later(world.fates.pick(f"{name} late", _DONE_LATE), append)
            elif how == "loses its end" and not (
                effect.stream.stream.startswith(".") or is_log_of_task(effect.stream)
            ):
                world.causes.add("store")
                store.lose_end(effect.stream)
        world.tell(f"{self._instance.name}: the store fails ({how}): {effect}")
        return self._failed(effect, "it was told to")

    def _failed(self, effect: StoreEffect, reason: str) -> _Report:
        """Return what tells the machine that an operation has failed."""
        instance, world = self._instance, self._world

        def report() -> None:
            world.causes.add("hiccup")
            self.troubled_at = world.clock.now
            if not world.is_store_full:
                self.excused_at = world.clock.now
            if isinstance(effect, StoreRead) and effect.stream == lease_key(effect.stream.session):
                self._leases[effect.stream.session].failed_at = world.clock.now
            instance.server.store_failed(effect, reason, now=instance.now)

        return report

    # What it tells

    def _watch(self, stream: StreamKey) -> None:
        """Let the store tell of changes. It does so once, when it begins to."""
        self._watches[stream] = watch = _Watch()
        self._told += 1
        name = f"{self._instance.name} watch {self._told}"

        def work() -> None:
            if self._watches.get(stream) is watch and not self._is_away:
                watch.works = True
                self._tell(stream, watch)

        delay = self._world.fates.pick(name, (0.0, 0.01, 0.3))
        self._world.clock.call_later(delay, lambda: self._instance.when_awake(work))

    def come_back(self) -> None:
        """The store is in reach again: it tells of all logs, which may have changed meanwhile."""
        self._instance.when_awake(self._comes_back)

    def _comes_back(self) -> None:
        if not self._instance.is_alive:
            return
        for stream, watch in tuple(self._watches.items()):
            self._world.reach("watch begun again")
            watch.works = True
            self._tell(stream, watch)

    def changed(self, stream: StreamKey) -> None:
        """A log has changed: the store tells of it, after a while; some of what it tells is lost.

        It tells nothing while it is out of reach.
        """
        watch = self._watches.get(stream)
        if watch is None or not watch.works:
            return
        if self._is_away:
            watch.works = False
            return
        self._told += 1
        name = f"{self._instance.name} told {self._told}"
        if self._world.is_faulty and self._world.fates.number(f"{name} lost") < 0.1:
            self._world.reach("wake-up lost")
            return
        delay = self._world.fates.pick(f"{name} after", (0.0, 0.001, 0.01, 0.3))
        tell = functools.partial(self._tell, stream, watch)
        self._world.clock.call_later(delay, lambda: self._instance.when_awake(tell))

    def dropped(self, principal: str, session: str) -> None:
        """A session was deleted: each of its logs has changed."""
        for stream in sorted(self._watches, key=lambda stream: stream.stream):
            if (stream.principal, stream.session) == (principal, session):
                self.changed(stream)

    def _tell(self, stream: StreamKey, watch: _Watch) -> None:
        instance, world = self._instance, self._world
        if instance.is_alive and self._watches.get(stream) is watch:
            world.reach("store tells of a change")
            told_at = world.clock.now
            instance.server.store_changed(stream, now=instance.now)
            instance.touch()
            world.clock.call_later(_WOKEN, lambda: self._check_woken(stream, watch, told_at))

    # What must not happen

    def _check_woken(
        self, stream: StreamKey, watch: _Watch, told_at: float, *, was_free: bool = True
    ) -> None:
        """Fail if a log was not read of whose change the store has told.

        ``was_free``: whether nothing has hindered the reader when this was checked before.
        """
        instance, world = self._instance, self._world
        is_over = not instance.is_alive or instance.stops or self._watches.get(stream) is not watch
        if "jump" in world.causes:
            return  # the clock was put back, and what fails is repeated that much later
        if is_over or self._asked.get(stream, -math.inf) >= told_at:
            return
        is_troubled = self._is_away or self.troubled_at >= world.clock.now - _WOKEN
        is_busy = self._unreported[stream]
        is_free = not (is_troubled or is_busy) and remains.waits(instance.server, stream)
        if not (is_free and was_free):
            again = functools.partial(self._check_woken, stream, watch, told_at, was_free=is_free)
            world.clock.call_later(1.0, again)
        else:
            world.fail("woken", f"{instance.name} does not look at {stream}, told at {told_at:.3f}")

    def _check_wanted(self, effect: StoreAppend) -> None:
        """Fail if answers are added to a turn although its call was seen to be cancelled.

        The instance that adds them has read the log of the cancellation shortly before.
        """
        log = self._world.parked.get(effect.stream)
        if log is None:
            return
        cancelled_at = self._world.stored_cancellations.get(log, math.inf)
        assert self.store is not None
        if self.store.store.read(log, 0, limit=1, max_bytes=1) is None:
            # The client has ended the session, and the store has deleted the cancellation with it,
            # before this instance read it. No handler goes on in a session that has ended.
            return
        since = self._world.clock.now - LATEST - 0.1
        if min((at for at in self._looked[log] if at >= since), default=-1.0) > cancelled_at:
            text = f"{self._instance.name} takes answers of a cancelled call: {log}"
            self._world.fail("executions", text)

    def _check_verdict(self, effect: StoreAppend, store: NotingStore) -> None:
        """Fail if this instance goes on with the log of another one that is not dead.

        It may only take one for dead whose lease it could read for the whole time of a lease. One
        that has worked with its store all the time is not dead.
        """
        writer = self._world.instance_of(store.writers.get(effect.stream, ""))
        if writer in (None, self._instance) or not _is_verdict(effect):
            return
        self.check_verdict(writer, effect.stream)

    def check_verdict(self, writer: Instance, stream: StreamKey) -> None:
        """Fail if this instance takes another one for dead that is not, and goes on with a log."""
        world, name = self._world, self._instance.name
        world.reach("log of a dead instance goes on")
        if {"jump"} & world.causes:
            return
        reads = self._leases[remains.name_in_logs(writer.server)]
        lease = world.limits.lease_timeout
        has_left = writer.has_ended or (not writer.is_alive and writer.stops)
        if not has_left and reads.worked_at - reads.failed_before < lease - 0.001:
            text = f"{name} takes {writer.name} for dead, whose lease it could not read long enough"
            world.fail("leases", text)
        if reads.is_outdated:
            text = f"{name} takes {writer.name} for dead by what it read before it stood still"
            world.fail("leases", text)
        has_worked = writer.seat.excused_at < world.clock.now - 2 * lease - 10.0
        is_alive = writer.is_alive and remains.writes(writer.server, stream)
        if is_alive and not writer.has_ended and has_worked:
            world.fail("leases", f"{name} takes {writer.name} for dead, which is alive")


def _is_verdict(effect: StoreAppend) -> bool:
    """Whether an append goes on with the log of an instance that counts as dead.

    It ends a call, or declares another writer of a standalone stream. (The call of another instance
    also goes on with answers to its questions.)
    """
    declared = declaration_in(effect.entries[0])
    takes_over = declared is not None and declared.requests is None
    return takes_over or any(_LOST in entry.data for entry in effect.entries)
