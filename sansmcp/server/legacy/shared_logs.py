"""Logs to which several instances append, and which several follow.

The log of a call has one writer at a time. What belongs to no call is written by all instances, so
an append can conflict at any time. Then the instance reads what the others have appended, and
appends its own entries after it.

An instance passes on its own entries when it finds them in the log, in the order of the log, as all
others do. An append that directly follows the last known entry was found with that.

Each entry begins with the name of the instance that has added it, and a number that grows with each
entry of that instance. So nothing is passed on twice, although:

* the reply to an append can be lost, and others may append before it is repeated;
* an append that was given up may have been done;
* a store can lose the end of a log.

A log that does not exist begins with a number that depends on the instance. So if a log was evicted
and is begun anew, its numbers are far from those before.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice

import attrs

from ...effects import StoreEffect, StoreRead
from ...store import Entry, EntryKind, Page, StreamKey
from ..logs import LogReader
from ..records import read_head, write_head
from .stream_table import StreamTable

_MAX_INSTANCES = 256
"""Instances whose last number is remembered. An instance that is replaced has a new name."""


@attrs.frozen
class SharedEntry:
    """An entry of a shared log."""

    instance: str
    """The instance that has added it."""
    number: int
    """Its number among the entries of that instance."""
    data: bytes

    def encode(self) -> bytes:
        """Return the data of the entry in the store."""
        return write_head(self.instance, self.number, self.data)

    @classmethod
    def decode(cls, data: bytes) -> SharedEntry:
        """Return the entry that the data in the store stand for."""
        return cls(*read_head(data))


@attrs.define(eq=False, repr=False)
class SharedLog(LogReader):
    """Adds entries to a log, and follows it if that is asked for.

    It has at most one store operation in flight.
    """

    _table: StreamTable
    _key: StreamKey
    _on_entry: Callable[[int | None, bytes], None]
    """Called with the number and the data of each entry, in order, while the log is followed. The
    number is None if the store did not take an entry that was added here.
    """
    _on_end: Callable[[], None] | None = None
    """Called when all entries were read."""
    cursor: int | None = attrs.field(default=None, init=False)
    """The number of the last entry that was passed on; None if the end of the log is not known."""
    _last: bytes | None = attrs.field(default=None, init=False)
    """The data of that entry, which is read again: a store that loses the end of the log may have
    another one of that number. None if it is not known.
    """
    _is_followed: bool = attrs.field(default=False, init=False)
    _must_read: bool = attrs.field(default=False, init=False)
    """True if others may have appended entries."""
    _pending: dict[int, bytes] = attrs.field(factory=dict[int, bytes], init=False)
    """The entries to append, by their numbers of this instance."""
    _on_stored: dict[int, Callable[[bool], object]] = attrs.field(
        factory=dict[int, "Callable[[bool], object]"], init=False
    )
    """By the number of a pending entry: what is called when it is no longer pending."""
    _in_flight: tuple[Entry, ...] = attrs.field(default=(), init=False)
    """The entries that are being appended, the oldest of the pending ones."""
    _appended_after: int = attrs.field(default=0, init=False)
    """The cursor when that append began."""
    _is_reading: bool = attrs.field(default=False, init=False)
    _newest: OrderedDict[str, int] = attrs.field(factory=OrderedDict[str, int], init=False)
    """The last number of each instance."""
    is_closed: bool = attrs.field(default=False, init=False)
    """True if the log is deleted: append nothing more."""

    @property
    def is_followed(self) -> bool:
        return self._is_followed

    def has_pending(self, prefix: bytes) -> bool:
        """Return True if data that begin with ``prefix`` were added here, and not passed on yet."""
        return any(data.startswith(prefix) for data in self._pending.values())

    @property
    def is_awaited(self) -> bool:
        """True if a response waits until a pending entry is stored."""
        return bool(self._on_stored)

    def follow(self, after: int | None = None) -> None:
        """Pass on the entries after a number; None for those after the present end."""
        if not self._is_followed and not self.is_closed:
            self._is_followed = True
            if after is not None:
                self.cursor, self._last = after, None
                self._newest.clear()
            self._must_read = True
            self._table.logs.watch(self._key, self)
            self._go_on()

    def leave(self) -> None:
        """Follow the log no more."""
        if self._is_followed:
            self._is_followed = False
            self._table.logs.unwatch(self._key, self)

    def close(self) -> None:
        """Neither follow nor append: the log is deleted."""
        self.is_closed = True
        for number in tuple(self._pending):
            self._settle(number, is_stored=True)  # with the session that it is about
        self.leave()

    def add(
        self,
        data: bytes,
        *,
        coalesce: bool = False,
        on_stored: Callable[[bool], object] | None = None,
    ) -> bool:
        """Append an entry. Returns False if too many wait already.

        Args:
            data: the entry.
            coalesce: one entry is enough, if the same waits already.
            on_stored: called when the entry is stored, or the log is deleted; with False if the
                store has failed.
        """
        waiting = islice(self._pending.values(), len(self._in_flight), None)
        if coalesce and data in waiting:
            return True
        if self.is_closed or len(self._pending) >= self._table.limits.max_pending_entries:
            return False
        number = self._table.logs.next_number()
        self._pending[number] = data
        if on_stored is not None:
            self._on_stored[number] = on_stored
        self._go_on()
        return True

    def poll_store(self) -> None:
        """Read what other instances may have appended."""
        self._must_read = True
        self._go_on()

    def _go_on(self) -> None:
        """Begin the next operation, unless one is in flight."""
        if self._is_reading or self._in_flight or self.is_closed:
            return
        if self.cursor is None or (self._must_read and (self._is_followed or self._pending)):
            self._read()
        elif self._pending:
            self._append(self.cursor)
        elif self._is_followed and not self._table.core.has_stopped:
            self._table.logs.poll_later(self._key, self)

    def _read(self) -> None:
        self._is_reading, self._must_read = True, False
        limit, most = self._table.limits.replay_page_entries, self._table.limits.max_unsent_bytes
        if self.cursor is None:
            self._table.logs.read(self._key, 0, self, limit=1, max_bytes=1)
        else:
            after = self.cursor if self._last is None else self.cursor - 1
            self._table.logs.read(self._key, after, self, limit=limit + 1, max_bytes=most)

    def _append(self, cursor: int) -> None:
        name = self._table.core.instance
        self._appended_after = cursor
        first = cursor + 1 if cursor else _first_seq(name)
        batch = islice(self._pending.items(), self._table.limits.replay_page_entries)
        self._in_flight = tuple(
            Entry(seq, SharedEntry(name, number, data).encode())
            for seq, (number, data) in enumerate(batch, first)
        )
        self._table.logs.append(self._key, self._in_flight, self)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        self._is_reading = False
        if self.cursor is not None and effect.after > self.cursor:
            self._go_on()  # it is followed from another place now
            return
        if page is None:
            self.cursor = self.cursor or 0
        elif self.cursor is None:
            self.cursor = page.last.seq
        elif not self._is_continued_by(page):
            self.cursor, self._last, self._must_read = 0, None, True
        else:
            self._take(each for each in page.entries if each.seq > (self.cursor or 0))
            if self.cursor < page.last.seq:
                self._must_read = True
                if page.entries and page.entries[-1].seq == self.cursor == effect.after + 1:
                    self._last = None  # the next entry does not fit into one page with it
        self._end_turn()

    def _is_continued_by(self, page: Page) -> bool:
        """Return False if the log was begun anew or has lost its end, and has grown again since."""
        assert self.cursor is not None
        if page.last.seq < self.cursor:
            return False
        again = page.entries[0] if page.entries else None
        return again is None or again.seq != self.cursor or again.data == self._last

    def on_append_done(self) -> None:
        """Pass on the entries: they directly follow those that are known."""
        entries, self._in_flight = self._in_flight, ()
        if self.cursor == self._appended_after:
            self._take(entries)
        else:
            self._must_read = True  # it is followed from another place now
        self._end_turn()

    def _take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.cursor, self._last = entry.seq, entry.data
            if entry.kind is not EntryKind.UNKNOWN:  # a message that later versions deliver
                self._found(entry.seq, SharedEntry.decode(entry.data))

    def _end_turn(self) -> None:
        if self._is_followed and not self._must_read and self._on_end is not None:
            self._on_end()
        self._go_on()

    def on_append_conflict(self) -> None:
        """Read what others have appended, and append after it."""
        self._in_flight, self._must_read = (), True
        self._go_on()

    def on_append_behind(self) -> None:
        """The log was begun anew, or has lost its end: read it."""
        self.on_append_conflict()

    def may_repeat(self, effect: StoreEffect) -> bool:
        """Others wait for it, or somebody here."""
        return not self.is_closed

    def failed(self, effect: StoreEffect) -> bool:
        """Pass on what waits at this instance only; others do not get it."""
        given_up = tuple(self._pending)
        self._in_flight, self._is_reading, self._must_read = (), False, True
        for number in given_up:
            self._found(None, SharedEntry(self._table.core.instance, number, self._pending[number]))
        if self._is_followed and not self._table.core.has_stopped:
            self._table.logs.poll_later(self._key, self)
        return not given_up

    def _found(self, seq: int | None, entry: SharedEntry) -> None:
        """Pass on an entry, unless that was done before."""
        if entry.instance == self._table.core.instance:
            self._settle(entry.number, is_stored=seq is not None)
        if entry.number <= self._newest.get(entry.instance, 0):
            return
        self._newest[entry.instance] = entry.number
        self._newest.move_to_end(entry.instance)
        if len(self._newest) > _MAX_INSTANCES:
            self._newest.popitem(last=False)
        if self._is_followed:
            self._on_entry(seq, entry.data)

    def _settle(self, number: int, *, is_stored: bool) -> None:
        """Forget a pending entry, and tell who waits for it."""
        self._pending.pop(number, None)
        on_stored = self._on_stored.pop(number, None)
        if on_stored is not None:
            on_stored(is_stored)


def _first_seq(instance: str) -> int:
    """Return the first number of a log that an instance begins, far away from those of others."""
    return (int.from_bytes(hashlib.sha256(instance.encode()).digest()[:4], "big") << 20) + 1
