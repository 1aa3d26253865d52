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

from ...store import AppendResult, Entry, EntryKind, Page, StreamKey
from ..procedures import Changed, Pause, Procedure, StepFailedError, Steps, Waited, append, read
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


@attrs.frozen
class _Pending:
    """An entry that was added here and is not stored yet."""

    data: bytes
    on_stored: Callable[[bool], object] | None
    """Called when it is no longer pending."""


@attrs.frozen
class _Place:
    """How far a log is known here."""

    seq: int
    """The number of the last entry that was passed on."""
    last: bytes | None = None
    """The data of that entry, which is read again: a store that loses the end of the log may have
    another one of that number. None if it is not known.
    """


@attrs.define(eq=False, repr=False)
class SharedLog:
    """Adds entries to a log, and follows it if that is asked for.

    One procedure reads and appends in turn, so the log has at most one operation in flight. Others
    append at any time: what was read is known up to ``cursor``, and an append that succeeds right
    after it was found with it.
    """

    _table: StreamTable
    _key: StreamKey
    _on_entry: Callable[[int | None, bytes], None]
    """Called with the number and the data of each entry, in order, while the log is followed. The
    number is None if the store did not take an entry that was added here.
    """
    _on_end: Callable[[], None] | None = None
    """Called when all entries were read."""
    _place: _Place | None = attrs.field(default=None, init=False)
    """None if the end of the log is not known."""
    _must_read: bool = attrs.field(default=False, init=False)
    """True if others may have appended entries."""
    _pending: dict[int, _Pending] = attrs.field(factory=dict[int, _Pending], init=False)
    """The entries to append, by their numbers of this instance."""
    _appending: int = attrs.field(default=0, init=False)
    """How many of them are being appended, the oldest."""
    _newest: OrderedDict[str, int] = attrs.field(factory=OrderedDict[str, int], init=False)
    """The last number of each instance."""
    _procedure: Procedure = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # What fails is repeated: others wait for it, or something here.
        self._procedure = Procedure(self._table.logs, self._run(), lambda: True)
        self._procedure.start()

    @property
    def cursor(self) -> int | None:
        """The number of the last entry that was passed on; None if the end is not known."""
        return None if self._place is None else self._place.seq

    @property
    def is_followed(self) -> bool:
        """True if entries are passed on."""
        return self._procedure.is_watching

    def has_pending(self, prefix: bytes) -> bool:
        """Return True if data that begin with ``prefix`` were added here, and not passed on yet."""
        return any(each.data.startswith(prefix) for each in self._pending.values())

    @property
    def is_awaited(self) -> bool:
        """True if a response waits until a pending entry is stored."""
        return any(each.on_stored is not None for each in self._pending.values())

    def follow(self, after: int | None = None) -> None:
        """Pass on the entries after a number; None for those after the present end."""
        if not self.is_followed and not self._procedure.is_over:
            if after is not None:
                self._place = _Place(after)
                self._newest.clear()
            self._must_read = True
            self._procedure.watch(self._key)
            self._procedure.wake()

    def leave(self) -> None:
        """Follow the log no more."""
        self._procedure.unwatch()

    def close(self) -> None:
        """Neither follow nor append: the log is deleted."""
        self._procedure.close()
        for number in tuple(self._pending):
            self._settle(number, is_stored=True)  # with the session that it is about

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
        waiting = islice(self._pending.values(), self._appending, None)
        if coalesce and any(data == each.data for each in waiting):
            return True
        is_full = len(self._pending) >= self._table.limits.max_pending_entries
        if self._procedure.is_over or is_full:
            return False
        self._pending[self._table.logs.next_number()] = _Pending(data, on_stored)
        self._procedure.wake()
        return True

    def _run(self) -> Steps[None]:
        while True:
            if not self._pending and not (self.is_followed and self._must_read):
                yield from self._wait()
            try:
                if self._place is None:
                    yield from self._find_end()
                elif self._must_read:
                    yield from self._read(self._place)
                else:
                    yield from self._append(self._place.seq)
            except StepFailedError as failure:
                self._appending, self._must_read = 0, True
                failure.has_lost = self._give_up()
                yield from self._wait()
            else:
                if self.is_followed and not self._must_read and self._on_end is not None:
                    self._on_end()

    def _wait(self) -> Steps[None]:
        """Wait for changes by others, or until an entry is added here."""
        if self.is_followed and not self._table.core.has_stopped:
            if (yield Changed(self._key)) is Waited.CHANGED:
                self._must_read = True
        else:
            yield Pause()

    def _find_end(self) -> Steps[None]:
        """Read where the log ends."""
        self._must_read = False
        page = yield from read(self._key, 0, max_bytes=1)
        if self._place is None:  # else it is followed from some place now
            self._place = _Place(0 if page is None else page.last.seq)

    def _read(self, place: _Place) -> Steps[None]:
        """Read what others have appended, and the last entry that is known once more."""
        self._must_read = False
        limits, after = self._table.limits, place.seq - (place.last is not None)
        page = yield from read(
            self._key, after, limits.replay_page_entries + 1, max_bytes=limits.max_unsent_bytes
        )
        known = self._place
        if known is None or after > known.seq or page is None:
            return  # the log is empty, or is followed from another place now
        if not _is_continued_by(page, known):
            self._place, self._must_read = _Place(0), True
            return
        self._take(each for each in page.entries if each.seq > known.seq)
        if (self.cursor or 0) < page.last.seq:
            self._must_read = True
            if page.entries and page.entries[-1].seq == self.cursor == after + 1:
                # The next entry does not fit into one page with it.
                self._place = _Place(after + 1)

    def _append(self, cursor: int) -> Steps[None]:
        """Append what waits, after the last entry that is known."""
        name = self._table.core.instance
        first = cursor + 1 if cursor else _first_seq(name)
        batch = islice(self._pending.items(), self._table.limits.replay_page_entries)
        entries = tuple(
            Entry(seq, SharedEntry(name, number, pending.data).encode())
            for seq, (number, pending) in enumerate(batch, first)
        )
        self._appending = len(entries)
        result = yield from append(self._key, entries)
        self._appending = 0
        if result is AppendResult.STORED and self.cursor == cursor:
            self._take(entries)
        else:  # others were first, or the log has lost its end, or is followed from another place
            self._must_read = True

    def _take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._place = _Place(entry.seq, entry.data)
            if entry.kind is not EntryKind.UNKNOWN:  # a message that later versions deliver
                self._found(entry.seq, SharedEntry.decode(entry.data))

    def _give_up(self) -> bool:
        """Pass on what waits at this instance only; others do not get it.

        Returns False if nothing waits.
        """
        given_up = tuple(self._pending.items())
        for number, pending in given_up:
            self._found(None, SharedEntry(self._table.core.instance, number, pending.data))
        return bool(given_up)

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
        if self.is_followed:
            self._on_entry(seq, entry.data)

    def _settle(self, number: int, *, is_stored: bool) -> None:
        """Forget a pending entry, and tell who waits for it."""
        pending = self._pending.pop(number, None)
        if pending is not None and pending.on_stored is not None:
            pending.on_stored(is_stored)


def _is_continued_by(page: Page, place: _Place) -> bool:
    """Return False if a log was begun anew or has lost its end, and has grown again since."""
    if page.last.seq < place.seq:
        return False
    again = page.entries[0] if page.entries else None
    return again is None or again.seq != place.seq or again.data == place.last


def _first_seq(instance: str) -> int:
    """Return the first number of a log that an instance begins, far away from those of others."""
    return (int.from_bytes(hashlib.sha256(instance.encode()).digest()[:4], "big") << 20) + 1
