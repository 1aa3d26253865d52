"""The streams of one instance, and their store operations in flight.

A store can fail for some seconds. What runs then waits: its operations are repeated, each time
after a longer delay, until the store works again or ``Limits.store_retry_timeout`` has passed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Protocol

import attrs

from ...effects import (
    StoreAppend,
    StoreDrop,
    StoreEffect,
    StoreRead,
    StoreUnwatch,
    StoreWatch,
)
from ...limits import Limits
from ...shares import Shares
from ...states import LogState
from ...store import Entry, StreamKey
from ...timers import Timer
from ...types import Secret
from ..core import ServerCore
from ..store_completions import PendingOperation, StoreOperation
from .streams import ResumableStream

_LONGEST_DELAY = 1.0
"""Seconds before a failed store operation is repeated, at most."""


class Lease(Protocol):
    """The lease of this instance."""

    def keep(self) -> None:
        """Keep the lease from now on."""

    def end(self) -> None:
        """Tell the other instances that this one stops."""


class Writers(Protocol):
    """The other instances whose streams have readers here."""

    def follow(self, stream: ResumableStream) -> None:
        """Notice if the instance that writes a stream dies."""

    def leave(self, stream: ResumableStream) -> None:
        """Follow the writer of a stream no more."""


class Publications(Protocol):
    """The log of publications, which this instance follows."""

    @property
    def cursor(self) -> int | None:
        """The number of the last publication that was passed on; None if it is not known."""
        ...

    def catch_up(self, key: StreamKey, place: int) -> None:
        """Pass the publications after a number on to the session of a stream."""


class LogReader(Hashable, Protocol):
    """A part that reads what another instance appends to a log."""

    def poll_store(self) -> None:
        """Read what follows the entries that are known, unless there is no more need."""


@attrs.define(eq=False)
class _Watch:
    """A log that another instance writes, and its reader here."""

    reader: LogReader
    works: bool = False
    """True if the store tells of changes."""
    is_waiting: bool = False
    """True if the reader knows all entries, and waits for the next."""
    is_polled: bool = True
    """True if the log is also read from time to time."""
    has_changed: bool = False
    """True if the store told of a change while the reader was not waiting."""

    def is_of(self, user: object) -> bool:
        """Return True for the reader itself."""
        return self.reader is user


@attrs.define(eq=False, repr=False)
class StreamTable:
    """The streams that this instance writes or reads, and the store operations in flight."""

    core: ServerCore
    _streams: dict[StreamKey, ResumableStream] = attrs.field(
        factory=dict[StreamKey, "ResumableStream"], init=False
    )
    """The streams with a log that are not settled."""
    _pending: dict[StoreEffect, PendingOperation] = attrs.field(
        factory=dict[StoreEffect, PendingOperation], init=False
    )
    """The operations in flight."""
    _failed: dict[StoreEffect, PendingOperation] = attrs.field(
        factory=dict[StoreEffect, PendingOperation], init=False
    )
    """Those that have failed, and are repeated later."""
    _watches: dict[StreamKey, _Watch] = attrs.field(factory=dict[StreamKey, _Watch], init=False)
    _appends: int = attrs.field(default=0, init=False)
    """How many appends have begun; numbers their tokens."""
    _numbers: int = attrs.field(default=0, init=False)
    """How many entries of shared logs this instance has added."""
    _failures: int = attrs.field(default=0, init=False)
    """How many operations have failed; spreads their delays."""

    late: Shares[tuple[str, str]] = attrs.field(factory=Shares[tuple[str, str]], init=False)
    """The number of messages of each session that wait to look for a mailbox again."""

    lease: Lease | None = attrs.field(default=None, init=False)
    """The lease of this instance; None if no other shares the store."""
    writers: Writers | None = attrs.field(default=None, init=False)
    """The other instances whose streams have readers here; None if there are none."""

    publications: Publications | None = attrs.field(default=None, init=False)
    """The log of publications; None if there are no other instances."""

    @property
    def limits(self) -> Limits:
        return self.core.limits

    @property
    def writes_logs(self) -> bool:
        """True if this instance writes logs."""
        return any(stream.state is LogState.WRITING for stream in self._streams.values())

    def next_number(self) -> int:
        """Return the number of the next entry that this instance adds to any shared log."""
        self._numbers += 1
        return self._numbers

    @property
    def are_ending(self) -> bool:
        """True if the last entry of any stream is being stored. Its reader gets it afterwards."""
        return any(stream.is_ending for stream in self._streams.values())

    def keep_lease(self) -> None:
        """Show the other instances that this one is alive."""
        if self.lease is not None:
            self.lease.keep()

    def new(
        self,
        principal: str,
        session: Secret | None,
        siblings: dict[ResumableStream, None],
        *,
        polling: bool,
    ) -> ResumableStream:
        """Return a new stream, with a log if there is a store.

        It is added to ``siblings`` until it is settled.
        """
        if not self.core.options.resumable:
            return self.new_unstored()
        key = StreamKey(principal, session.reveal() if session else "", self.core.token())
        stream = self._streams[key] = ResumableStream(key, polling, self, siblings=siblings)
        siblings[stream] = None
        stream.refresh()
        return stream

    def new_unstored(self) -> ResumableStream:
        """Return a new stream that no client can resume."""
        return ResumableStream(key=None, polling=False, table=self, state=LogState.UNSTORED)

    def find(
        self, key: StreamKey, siblings: dict[ResumableStream, None], *, polling: bool
    ) -> ResumableStream:
        """Return the stream of a key. If this instance does not have it, it may be in the store."""
        stream = self._streams.get(key)
        if stream is None:
            stream = ResumableStream(key, polling, self, LogState.REMOTE, siblings)
            self._streams[key] = stream
            siblings[stream] = None
        return stream

    def take_over(
        self, key: StreamKey, seq: int, siblings: dict[ResumableStream, None], *, polling: bool
    ) -> ResumableStream:
        """Continue the log of a parked call after the entry of this sequence number."""
        stream = self.find(key, siblings, polling=polling)
        # The append that parked the call was reported as failed, but the store has done it.
        if stream.state is LogState.CLOSED:
            self.discard_settled(stream)
            stream = self.find(key, siblings, polling=polling)
        self.stop_following(stream)
        stream.take_over(seq)
        self.keep_lease()
        return stream

    def lose(self, key: StreamKey) -> None:
        """End the reader of a log that the store has evicted."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.drop_reader()

    def release_followers(self) -> None:
        """End the responses that follow logs of other instances; their clients resume there."""
        for stream in tuple(self._streams.values()):
            if stream.state is LogState.REMOTE:
                stream.detach_reader()

    def settle(self, user: StoreOperation) -> None:
        """Tidy up after an effect of a stream: it may be settled, or wait for another instance."""
        if isinstance(user, ResumableStream):
            self.discard_settled(user)
            if user.is_waiting and user.key is not None:
                self.watch(user.key, user)
                self.poll_later(user.key, user)
                assert self.writers is not None, "a stream waits only if instances share the store"
                self.writers.follow(user)

    def discard_settled(self, stream: ResumableStream) -> None:
        """Forget a stream that is settled: everything about it is in the store.

        A page can come after that, for a reader that has gone. A new reader of the log then has
        another object, which stays.
        """
        if stream.is_settled and stream.key is not None and self._streams.get(stream.key) is stream:
            self.stop_following(stream)
            del self._streams[stream.key]
            stream.siblings.pop(stream, None)

    def stop_following(self, stream: ResumableStream) -> None:
        """Watch a stream no more: it has no reader, or this instance writes it."""
        assert stream.key is not None, "only streams with a log are followed"
        self.unwatch(stream.key, stream)
        if self.writers is not None:
            self.writers.leave(stream)

    # The store operations

    def append(self, key: StreamKey, entries: Sequence[Entry], user: StoreOperation) -> StoreAppend:
        """Append entries to a log; ``user`` gets the outcome."""
        self._appends += 1
        token = f"{self.core.instance}.{self._appends}"
        effect = StoreAppend(stream=key, entries=tuple(entries), token=token)
        self._start(effect, PendingOperation(user))
        return effect

    def read(
        self, key: StreamKey, after: int, user: StoreOperation, *, limit: int, max_bytes: int
    ) -> StoreRead:
        """Read the entries that follow number ``after``; ``user`` gets the outcome."""
        watch = self._watches.get(key)
        if watch is not None and watch.is_of(user):
            watch.is_waiting = watch.has_changed = False  # this read sees what was told of before
        effect = StoreRead(stream=key, after=after, limit=limit, max_bytes=max_bytes)
        self._start(effect, PendingOperation(user))
        return effect

    def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        self._start(StoreDrop(principal=principal, session=session), PendingOperation(None))

    def _start(self, effect: StoreEffect, operation: PendingOperation) -> None:
        self._pending[effect] = operation
        self.core.effects.append(effect)

    def pop_operation(self, effect: StoreEffect) -> PendingOperation | None:
        """Return the operation of an effect; None if its outcome was reported before."""
        return self._pending.pop(effect, None)

    def repeat_later(self, effect: StoreEffect, operation: PendingOperation) -> bool:
        """Repeat a failed operation after a delay. Returns False if it has failed for too long.

        The delays of operations that fail together differ, so that they do not all come back at
        once.
        """
        core = self.core
        if operation.give_up_at is None:
            operation.give_up_at = core.now + core.limits.store_retry_timeout
        if core.has_stopped or core.now >= operation.give_up_at:
            return False
        self._failed[effect] = operation
        self._failures += 1
        share = 0.5 + _fraction(str(self._failures)) / 2
        due = min(core.now + share * operation.delay, operation.give_up_at)
        operation.delay = min(2 * operation.delay, _LONGEST_DELAY)
        core.timers.set(Timer.STORE_REPEAT, effect, due)
        return True

    def repeat(self, effect: StoreEffect) -> None:
        """Repeat a failed operation now."""
        self._start(effect, self._failed.pop(effect))

    def give_up_failed(self) -> None:
        """Repeat no operation any more, because the server has stopped."""
        failed, self._failed = self._failed, {}
        for effect, operation in failed.items():
            self.core.timers.stop(Timer.STORE_REPEAT, effect)
            if operation.user is not None:
                operation.user.failed(effect)

    # The logs that other instances write

    def watch(self, key: StreamKey, reader: LogReader) -> None:
        """Let the store tell of changes of a log, if it can; the reader reads them."""
        if key not in self._watches:
            self._watches[key] = _Watch(reader)
            self.core.effects.append(StoreWatch(key))

    def watch_only(self, key: StreamKey, reader: LogReader) -> None:
        """Let the reader poll a log once if the store tells of a change, and not otherwise."""
        self.watch(key, reader)
        watch = self._watches[key]
        watch.is_waiting, watch.is_polled = True, False

    def unwatch(self, key: StreamKey, reader: LogReader) -> None:
        """Poll a log no more."""
        self.core.timers.stop(Timer.STORE_POLL, reader)
        if key in self._watches:
            del self._watches[key]
            self.core.effects.append(StoreUnwatch(key))

    def poll_later(self, key: StreamKey, reader: LogReader) -> None:
        """Poll a log when the store tells of a change, or else after an interval.

        The intervals of different logs differ, so that not all are read at once.
        """
        watch, limits = self._watches.get(key), self.core.limits
        interval = limits.store_poll_interval
        if watch is not None:
            if watch.has_changed:
                watch.has_changed = False
                reader.poll_store()
                return
            watch.is_waiting = True
            if watch.works:
                share = 0.75 + _fraction(key.stream) / 2
                interval = max(interval, share * limits.store_check_interval)
        self.core.timers.set(Timer.STORE_POLL, reader, self.core.now + interval)

    def on_watched(self, stream: StreamKey) -> None:
        """The store tells of changes of a log from now on."""
        if (watch := self._watches.get(stream)) is not None:
            watch.works = True
            if watch.is_waiting and watch.is_polled:
                self.poll_later(stream, watch.reader)

    def on_changed(self, stream: StreamKey) -> None:
        """A log may have changed: let its reader poll it, at once or when it waits again."""
        watch = self._watches.get(stream)
        if watch is None:
            return
        if watch.is_waiting:
            self.poll(watch.reader)
        else:
            watch.has_changed = True

    def poll(self, reader: LogReader) -> None:
        """Let a reader poll its log now."""
        self.core.timers.stop(Timer.STORE_POLL, reader)
        reader.poll_store()


def _fraction(name: str) -> float:
    """Return a number from 0 to 1 that is always the same for a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
