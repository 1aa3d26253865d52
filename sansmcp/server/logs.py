"""The logs of one instance in the store: operations in flight, and logs that others write.

A store can fail for some seconds. What runs then waits: its operations are repeated, each time
after a longer delay, until the store works again or ``Limits.store_retry_timeout`` has passed.

A log that another instance may write is *watched*: its reader reads it when the store tells of a
change, or from time to time if the store cannot.
"""

from __future__ import annotations

import enum
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from ..effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreUnwatch, StoreWatch
from ..store import Entry, Page, StreamKey
from ..timers import Timer
from ..types import FastEnum
from .core import ServerCore

_FIRST_DELAY = 0.05
_LONGEST_DELAY = 1.0
"""Seconds before a failed store operation is repeated, at most."""


class StoreOperation:
    """The part that started a store operation and gets its outcome.

    A subclass overrides what can happen to its operations.
    """

    __slots__ = ()

    def on_append_done(self) -> None:
        """Handle an append that is done: the store has the entries."""

    def on_append_conflict(self) -> None:
        """Handle an append that conflicted: the log has an entry of that number."""

    def on_append_behind(self) -> None:
        """Handle an append to a log of which the store has lost the end."""

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """Handle the page that was read; None if the log does not exist."""

    def on_settled(self) -> None:
        """Tidy up after an operation that was completed, and whose outcome was handled."""

    def may_repeat(self, effect: StoreEffect) -> bool:
        """Return True if a failed operation is worth repeating, False if it is given up at once."""
        return False

    @abstractmethod
    def failed(self, effect: StoreEffect) -> bool:
        """Handle an operation that failed and is given up. Returns False if messages are lost."""


@attrs.define(eq=False)
class PendingOperation:
    """A store operation that is in flight, or waits to be repeated."""

    user: StoreOperation | None
    """The part that gets the outcome; None if no part needs it."""
    give_up_at: float | None = None
    """Time at which it is given up; None if it has not failed."""
    delay: float = _FIRST_DELAY
    """Seconds to wait before it is repeated, at most."""


class LogReader(StoreOperation, ABC):
    """A part that reads what another instance appends to a log."""

    __slots__ = ()

    @abstractmethod
    def poll_store(self) -> None:
        """Read what follows the entries that are known, unless there is no more need."""


class ReaderState(FastEnum):
    """What the reader of a watched log does."""

    BUSY = enum.auto()
    """It reads the log, or does something else."""
    BEHIND = enum.auto()
    """The same, and the store has told of a change meanwhile: it polls as soon as it waits."""
    WAITING = enum.auto()
    """It knows all entries, and polls when the store tells of a change, or after some time."""
    LISTENING = enum.auto()
    """It polls when the store tells of a change, and not otherwise."""


@attrs.define(eq=False, repr=False)
class Logs:
    """The store operations of this instance, and the logs that it watches."""

    core: ServerCore
    _pending: dict[StoreEffect, PendingOperation] = attrs.field(
        factory=dict[StoreEffect, PendingOperation], init=False
    )
    """The operations in flight."""
    _failed: dict[StoreEffect, PendingOperation] = attrs.field(
        factory=dict[StoreEffect, PendingOperation], init=False
    )
    """Those that have failed, and are repeated later."""
    _watches: dict[StreamKey, dict[LogReader, ReaderState]] = attrs.field(
        factory=dict[StreamKey, dict["LogReader", ReaderState]], init=False
    )
    """The watched logs, each with its readers here."""
    _told: set[StreamKey] = attrs.field(factory=set[StreamKey], init=False)
    """Those of them of whose changes the store tells."""
    _appends: int = attrs.field(default=0, init=False)
    """How many appends have begun; numbers their tokens."""
    _numbers: int = attrs.field(default=0, init=False)
    """How many entries of shared logs this instance has added."""
    _failures: int = attrs.field(default=0, init=False)
    """How many operations have failed; spreads their delays."""

    def next_number(self) -> int:
        """Return the number of the next entry that this instance adds to any shared log."""
        self._numbers += 1
        return self._numbers

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
        readers = self._watches.get(key, {})
        if isinstance(user, LogReader) and user in readers:
            readers[user] = ReaderState.BUSY  # this read sees what was told of before
        effect = StoreRead(stream=key, after=after, limit=limit, max_bytes=max_bytes)
        self._start(effect, PendingOperation(user))
        return effect

    def drop(self, principal: str, session: str) -> None:
        """Delete all logs of a session."""
        self._start(StoreDrop(principal=principal, session=session), PendingOperation(None))

    # A repeated effect is the same object with the same token: the append before it may have been
    # done, and the store recognises it by the token. Its user hears of the outcome only once, since
    # pop_user() forgets the effect. Compare a kept effect with `is`.
    def _start(self, effect: StoreEffect, operation: PendingOperation) -> None:
        self._pending[effect] = operation
        self.core.effects.append(effect)

    def pop_user(self, effect: StoreEffect) -> StoreOperation | None:
        """Return the part that gets the outcome of an effect, if there is one; only once."""
        operation = self._pending.pop(effect, None)
        return None if operation is None else operation.user

    def on_failed(self, effect: StoreEffect) -> bool:
        """Repeat a failed operation later, or give it up. Returns False if messages are lost."""
        operation = self._pending.pop(effect, None)
        if operation is None:
            return True
        user = operation.user
        if (user is None or user.may_repeat(effect)) and self._repeat_later(effect, operation):
            return True
        return user is None or user.failed(effect)

    def forget(self, effect: StoreEffect) -> None:
        """Repeat an operation no more; its outcome, which may still be reported, has no effect."""
        self._pending.pop(effect, None)
        if self._failed.pop(effect, None) is not None:
            self.core.timers.stop(Timer.STORE_REPEAT, effect)

    def _repeat_later(self, effect: StoreEffect, operation: PendingOperation) -> bool:
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
            self._watches[key] = {}
            self.core.effects.append(StoreWatch(key))
        # Those who watched already were told of what changed since this reader has read.
        state = ReaderState.BEHIND if key in self._told else ReaderState.BUSY
        self._watches[key].setdefault(reader, state)

    def watch_only(self, key: StreamKey, reader: LogReader) -> None:
        """Let the reader poll a log once if the store tells of a change, and not otherwise."""
        self.watch(key, reader)
        self._watches[key][reader] = ReaderState.LISTENING

    def unwatch(self, key: StreamKey, reader: LogReader) -> None:
        """Poll a log no more."""
        self.core.timers.stop(Timer.STORE_POLL, (key, reader))
        readers = self._watches.get(key, {})
        if readers.pop(reader, None) is not None and not readers:
            del self._watches[key]
            self._told.discard(key)
            self.core.effects.append(StoreUnwatch(key))

    def poll_later(self, key: StreamKey, reader: LogReader) -> None:
        """Poll a log that the reader watches: when the store tells of a change, or later.

        The intervals of different logs differ, so that not all are read at once.
        """
        readers, limits = self._watches[key], self.core.limits
        interval = limits.store_poll_interval
        if readers[reader] is ReaderState.BEHIND:
            readers[reader] = ReaderState.BUSY
            reader.poll_store()
            return
        readers[reader] = ReaderState.WAITING
        if key in self._told:
            share = 0.75 + _fraction(key.stream) / 2
            interval = max(interval, share * limits.store_check_interval)
        self.core.timers.set(Timer.STORE_POLL, (key, reader), self.core.now + interval)

    def stop_polling(self, key: StreamKey, reader: LogReader) -> None:
        """Let a reader wait no more, though the log is still watched: it does something else."""
        self.core.timers.stop(Timer.STORE_POLL, (key, reader))
        self._watches[key][reader] = ReaderState.BUSY

    def poll_soon(self, key: StreamKey, reader: LogReader) -> None:
        """Poll a log after an interval, or when the store tells of a change, if it is watched."""
        if reader in (readers := self._watches.get(key, {})):
            readers[reader] = ReaderState.WAITING
        due = self.core.now + self.core.limits.store_poll_interval
        self.core.timers.set(Timer.STORE_POLL, (key, reader), due)

    def on_watched(self, stream: StreamKey) -> None:
        """The store tells of changes of a log from now on."""
        if stream in self._watches:
            self._told.add(stream)
            for reader, watch in tuple(self._watches[stream].items()):
                if watch is ReaderState.WAITING:
                    self.poll_later(stream, reader)

    def on_changed(self, stream: StreamKey) -> None:
        """A log may have changed: let its readers poll it, at once or when they wait again."""
        readers = self._watches.get(stream, {})
        idle = (ReaderState.WAITING, ReaderState.LISTENING)
        waiting = [reader for reader, state in readers.items() if state in idle]
        for reader in readers.keys() - waiting:
            readers[reader] = ReaderState.BEHIND
        for reader in waiting:
            self.poll(stream, reader)

    def poll(self, key: StreamKey, reader: LogReader) -> None:
        """Let a reader poll a log now."""
        readers = self._watches.get(key, {})
        if readers.get(reader) in (ReaderState.WAITING, ReaderState.LISTENING):
            readers[reader] = ReaderState.BUSY
        self.core.timers.stop(Timer.STORE_POLL, (key, reader))
        reader.poll_store()


def _fraction(name: str) -> float:
    """Return a number from 0 to 1 that is always the same for a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
