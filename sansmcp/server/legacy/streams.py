"""Resumable streams: messages are stored before they are sent, and readers resume at any entry.

A stream is a log. Its writer appends messages; each gets the next sequence number and goes to the
store. A message is sent to the client only after the store has it. A reader is a position in the
log and the exchange that sends the event stream. It may be the POST that began the stream, a GET
that resumes it, or a newer connection that replaced the last one. In each case the reader gets the
messages after its position, from one of two sources:

* the *tail*: a message that has just been stored is sent to a reader whose position is directly
  before it;
* the *store*: any other reader gets pages from the store until it has reached the tail.

So there is no replay mode that could miss or repeat messages at the change to live messages. A
message stored while a page is read is one more message after the reader's position; a message that
arrives from both sources is skipped the second time, because it is not after the position. A reader
with a slow peer falls behind the tail, holds nothing in memory, and reads pages when it has sent
all it had. Disconnecting a reader (SEP-1699) does not change the log.

A log has one writer at a time, but the writer can change: a parked call is continued by the
instance that receives the last input response (``parked_calls``). At the other instances the log is
``LogState.REMOTE``, and their readers poll the store.

At 2025-11-25 each response begins with a *priming event*: an id without data, which names the
reader's position. So a client that is cut off before the first message can resume, too.

Without a store there are no event ids: messages are sent to the reader if there is one, and lost
otherwise.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; SEP-1699.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from ...codecs.event_id import EventId
from ...codecs.sse import FORGET_ID, encode_event
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...errors import RemoteProtocolError
from ...limits import Limits
from ...messages import RequestId
from ...states import LOG, ExchangeState, LogEvent, LogState, advance
from ...store import Entry, EntryKind, Page, StreamKey
from ...timers import Timer
from ...types import FastEnum
from .. import refusals
from ..bursts import Burst
from ..core import ServerCore
from ..era_choice import LAST_EVENT_ID
from ..exchange import ServerExchange
from ..logs import LogReader, Logs
from ..records import (
    NOTHING,
    RecordTooNewError,
    read_head,
    read_record,
    record_in,
    write_head,
    write_record,
)

_FINISHED: Final = LogState.FINISHED
_REMOTE: Final = LogState.REMOTE
_MESSAGE: Final = EntryKind.MESSAGE
_INPUT_REQUIRED: Final = EntryKind.INPUT_REQUIRED

_STORED = (LogState.WRITING, LogState.FINISHED, LogState.REMOTE)
_ENDED = (LogState.FINISHED, LogState.REMOTE, LogState.CLOSED)
"""The states in which this instance writes nothing more."""


@attrs.frozen
class WriterDeclaration:
    """The data of the entry that names the instance that writes a log from there on."""

    instance: str
    requests: Sequence[RequestId] | None
    """The ids of the requests that the log answers; None for a standalone stream."""
    places: dict[str, int] = attrs.field(factory=lambda: {})
    """By log: the number of the last entry whose message was forwarded, if it is for the client."""
    unknown: Mapping[str, Any] = NOTHING
    """The members that only a later version knows."""

    def encode(self) -> bytes:
        """Return the data."""
        return write_record(self, self.unknown)

    @classmethod
    def of(cls, entry: Entry) -> WriterDeclaration | None:
        """Return the declaration that an entry holds; None if it holds none.

        Raises RecordTooNewError, also for an entry of a kind that only a later version knows.
        """
        data = record_in(entry)
        if entry.kind is EntryKind.KEPT:
            data = data.partition(b" ")[2]
        elif entry.kind not in (EntryKind.OPENED, EntryKind.WRITER):
            return None
        return read_record(cls, data, max_depth=16) if data else None


def place_of(entry: Entry) -> tuple[str, int]:
    """Return the log that the message of an entry FORWARDED was found in, and its number there."""
    log, seq, _ = read_head(entry.data)
    return log, seq


class _Owner(FastEnum):
    """What keeps a log."""

    SESSION = enum.auto()
    """A session, which can still report messages that the store failed to keep."""
    NONE = enum.auto()
    """Its session has ended at this instance, or never was: what waits is stored all the same."""
    DROPPED = enum.auto()
    """The log is deleted from the store with its session: append nothing more."""


_SESSION: Final = _Owner.SESSION
_DROPPED: Final = _Owner.DROPPED


@attrs.frozen
class _PageRead:
    """The read of a page for a reader."""

    effect: StoreRead
    stored: int
    """The last sequence number that the store was known to have when the page was asked for."""


class StreamOwner(Protocol):
    """The table of a stream, as far as the stream uses it."""

    @property
    def core(self) -> ServerCore:
        """The state that the parts of the server share."""
        ...

    @property
    def limits(self) -> Limits:
        """The bounds of bytes, seconds and counts."""
        ...

    @property
    def logs(self) -> Logs:
        """The store operations."""
        ...

    def settle(self, stream: ResumableStream) -> None:
        """Tidy up after an effect of a stream."""

    def discard_settled(self, stream: ResumableStream) -> None:
        """Forget a stream if it is settled."""

    def note_writer(self, stream: ResumableStream, instance: str) -> None:
        """Note the instance that writes a log, as an entry of it has told."""

    def keep_lease(self) -> None:
        """Show the other instances that this one is alive."""


class StreamWriter(Protocol):
    """The call that writes a stream, if it is counted while it has no connection."""

    def on_reader_attached(self) -> None:
        """Record that the stream has a reader."""

    def on_reader_lost(self) -> None:
        """Record that the connection of the reader was lost, or its response broken off."""


@attrs.define(eq=False, repr=False)
class ResumableStream(LogReader):
    """A log and its reader, of which there is at most one."""

    key: StreamKey | None
    """The key of the log in the store; None if it is not stored."""
    polling: bool
    """True if the revision has SEP-1699: priming events, and connections that are closed early."""
    table: StreamOwner
    state: LogState = LogState.WRITING

    reader: ServerExchange | None = attrs.field(default=None, init=False)
    writer: StreamWriter | None = attrs.field(default=None, init=False)
    _declared: WriterDeclaration | None = attrs.field(default=None, init=False)
    """The last declaration of this instance, with the places of what has been forwarded since."""
    # The positions of a log that is written and stored here (WRITING), from left to right:
    #
    #     _position <= _stored < _appending < _unstored < next_seq
    #
    # Each entry between _stored and next_seq is either in the append in flight or in _unstored, so
    # the numbers have no gap. An event leaves only when the store has its entry: else a client
    # could name an id, after a crash, that no instance finds. If the store fails, the entries of
    # both go to a reader that stands directly before them, without ids.
    #
    # A log that is not stored has no entry under way: _position == _stored == next_seq - 1. Of a
    # log that another instance writes (REMOTE), _stored is what the pages read so far have told,
    # and next_seq means nothing before take_over(). A page can have more than is known here, such
    # as an append whose outcome was not reported yet; so a page only ever raises _stored.
    #
    # Entries of the kinds OPENED, WRITER and KEPT raise next_seq, but not _last_message_seq.
    next_seq: int = attrs.field(default=1, init=False)
    """The sequence number of the next entry of this instance."""
    _stored: int = attrs.field(default=0, init=False)
    """The last sequence number that the store is known to have."""
    _last_message_seq: int = attrs.field(default=0, init=False)
    """The sequence number of the last entry of this instance that has a message."""
    _stored_at: float = attrs.field(default=-math.inf, init=False)
    """When an entry of this instance was last stored; ``-math.inf`` before the first."""
    _unstored: deque[Entry] = attrs.field(factory=lambda: deque(), init=False)
    """The entries to append next. A log has at most one append in flight, which keeps the order."""
    _burst: Burst = attrs.field(factory=Burst, init=False)
    """The messages that are appended together."""
    _appending: StoreAppend | None = attrs.field(default=None, init=False)
    _position: int = attrs.field(default=0, init=False)
    """The sequence number of the last entry that the reader got."""
    _skipped: int = attrs.field(default=0, init=False)
    """The number of messages that the reader's client has received already."""
    _retry: int | None = attrs.field(default=None, init=False)
    """The ``retry`` field in milliseconds, until it has been sent to the reader."""
    _pending_disconnect: tuple[int | None] | None = attrs.field(default=None, init=False)
    """The ``retry`` of a ``disconnect()`` that waits until the reader has an event id."""
    _reading: _PageRead | None = attrs.field(default=None, init=False)
    """The read of the reader's next page, while it is in flight."""
    _owner: _Owner = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        has_session = self.key is None or self.key.session
        self._owner = _SESSION if has_session else _Owner.NONE

    # The writer

    @property
    def is_stored(self) -> bool:
        """True if messages are stored, and their events have ids."""
        return self.state in _STORED

    @property
    def is_written(self) -> bool:
        """True if messages can be added here."""
        return self.state not in _ENDED

    @property
    def is_free(self) -> bool:
        """True if it is written here, and nobody reads it."""
        return self.is_written and self.reader is None

    @property
    def is_above_high_water(self) -> bool:
        """True if the writer should wait, because the store is behind; without one, the reader."""
        if self.is_stored:
            return len(self._unstored) >= self.table.limits.max_pending_entries
        return self.reader is not None and self.reader.is_slow

    @property
    def has_stored_all(self) -> bool:
        """True if nothing waits for the store."""
        return self._appending is None and not self._unstored

    @property
    def is_settled(self) -> bool:
        """True if the log has ended here, all its entries are stored, and there is no reader."""
        return self.state in _ENDED and self._appending is None and self.reader is None

    @property
    def is_ending(self) -> bool:
        """True if the last entry is being stored; the reader gets it afterwards, and ends."""
        return self._appending is not None and (self._unstored or self._appending.entries)[-1].final

    def declare_writer(
        self, requests: Sequence[RequestId] | None, places: Mapping[str, int] = NOTHING
    ) -> None:
        """Tell the other instances that this one writes the log.

        Without that entry at the beginning of a log, the id of its priming event would mean nothing
        to another instance. That of a call waits for its first message, for a millisecond at most,
        so that both are one append.

        ``requests``: the ids of the requests that the log answers; None for a standalone stream.
        ``places``: those to note, as ``note_place()`` does.
        """
        core = self.table.core
        if self.is_stored and core.options.shared_store:
            is_new = self.next_seq == 1
            kind = EntryKind.OPENED if is_new and self.polling else EntryKind.WRITER
            known = NOTHING if self._declared is None else self._declared.places
            self._declared = WriterDeclaration(core.instance, requests, {**known, **places})
            self._unstored.append(Entry(self.next_seq, self._declared.encode(), kind=kind))
            self.next_seq += 1
            self.table.keep_lease()
            if is_new and requests is not None:
                self._burst.hold(core, self)
            else:
                self._append_next()

    def note_place(self, log: str, seq: int) -> None:
        """Note the last entry of a log that was forwarded here, or is not for the client."""
        assert self._declared is not None, "with a shared store, each stream is declared"
        self._declared.places[log] = seq

    def forward(self, message: bytes, log: str, seq: int) -> bool:
        """Append a message that was found in another log, under that number.

        Both are stored together. So if another instance continues this log, it knows what has been
        forwarded.
        """
        self.note_place(log, seq)
        if not self.is_stored:
            return self.append(message)
        return self.append(write_head(log, seq, message), kind=EntryKind.FORWARDED)

    def append(self, message: bytes, *, final: bool = False, kind: EntryKind = _MESSAGE) -> bool:
        """Append a message. Returns False if it is lost, because there is no store and no reader.

        ``final`` marks the last message. An empty one only ends the log, after a cancellation.
        """
        if self.state in _ENDED:
            return False
        entry = Entry(self.next_seq, message, final, kind)
        self._last_message_seq = self.next_seq
        self.next_seq += 1
        is_stored = self.is_stored
        if final:
            self._advance(LogEvent.END)
        if not is_stored:
            is_read = self.reader is not None
            self._deliver_entries((entry,))
            self._stored = self._position = entry.seq
            self._tidy_orphan()
            return is_read
        self._unstored.append(entry)
        if final or self._may_append(entry):
            self._append_next()
        return True

    def _may_append(self, entry: Entry) -> bool:
        """Return True unless a new message waits for others, with which it is appended.

        While an append is in flight, messages wait for its end in any case.
        """
        if self._appending is not None:
            return False
        core = self.table.core
        return self._burst.may_leave(core, self, len(entry.data)) or self.is_above_high_water

    def send_gathered(self) -> None:
        """Append the messages that wait for others now."""
        self._append_next()

    def hand_over(self, entries: Sequence[Entry]) -> None:
        """Append entries together, after which any instance may continue the log."""
        self._unstored.extend(entries)
        self._advance(LogEvent.HAND_OVER)
        self._append_next()

    def take_over(self, seq: int) -> None:
        """Continue the log after the entry of this sequence number."""
        if self._appending is not None:
            # It has parked the call, and its reply is lost: the store has the turn, and more since.
            # A repetition would conflict with that, which says that another instance writes here.
            self.table.logs.forget(self._appending)
            self._appending = None
        self._advance(LogEvent.TAKE_OVER)
        self.next_seq = seq + 1
        self._last_message_seq = seq
        self._stored = max(self._stored, seq)
        self._stored_at = self.table.core.now
        self.refresh()
        self.catch_up()

    def refresh(self) -> None:
        """Append an entry without a message if no entry was appended for ``refresh_interval``.

        The store evicts a log by the age of its entries, also if its call still runs. This instance
        knows the stream without the store, but the readers at other instances would lose it.
        """
        core = self.table.core
        if self.state is not LogState.WRITING or not core.options.shared_store:
            return
        due = self._stored_at + core.refresh_interval
        if core.now >= due and self._stored and self._appending is None:
            data = b"%d" % self._last_message_seq
            if self._declared is not None:  # the first declaration may be evicted
                data += b" " + self._declared.encode()
            kept = Entry(self.next_seq, data, kind=EntryKind.KEPT)
            self.next_seq += 1
            self._unstored.append(kept)
            self._append_next()
        if core.now >= due:
            due = core.now + core.refresh_interval
        core.timers.set(Timer.STORED, self, due)

    def on_append_done(self) -> None:
        """Send the stored entries to a reader directly before them, and append the next ones.

        A reader that becomes slow gets the rest by :meth:`catch_up`: more may have been stored at
        once than may wait for one reader.
        """
        assert self._appending is not None
        self._stored_at = self.table.core.now
        entries = self._appending.entries
        self._appending = None
        self._stored = entries[-1].seq
        for entry in entries:
            if not self._is_read_up_to(entry.seq - 1) or self._is_slow():
                break
            self._deliver_entries((entry,))
        self._wake_reader()
        self._disconnect_if_pending()
        if self._owner is _DROPPED and self._unstored:
            self._continue_unstored(tuple(self._unstored))
            return
        self.catch_up()
        self._append_next()

    def _disconnect_if_pending(self) -> None:
        """Disconnect the reader if that was requested before it had an event id."""
        if self._pending_disconnect is not None:
            (retry,), self._pending_disconnect = self._pending_disconnect, None
            self.disconnect(retry)

    def on_append_conflict(self) -> None:
        """Stop writing: another instance writes this log, and its entries count."""
        self._appending = None
        self._drop_unstored()
        self._advance(LogEvent.HAND_OVER)

    def on_append_behind(self) -> None:
        """The store has lost the end of the log: go on without it, and without event ids."""
        assert self._appending is not None
        self._continue_unstored((*self._appending.entries, *self._unstored))
        self._tidy_orphan()

    def on_settled(self) -> None:
        self.table.settle(self)

    def may_repeat(self, effect: StoreEffect) -> bool:
        """Whether to repeat what failed: an append, or the next page of an open event stream."""
        if effect is self._appending:
            return self._owner is not _DROPPED
        reader = self.reader if self._is_reading(effect) else None
        return reader is not None and reader.state is ExchangeState.STREAMING

    def _is_reading(self, effect: StoreEffect) -> bool:
        return self._reading is not None and effect is self._reading.effect

    def failed(self, effect: StoreEffect) -> bool:
        """Handle a store effect that failed. Returns False if messages are lost by it."""
        if self._appending is not None and effect is self._appending:
            is_delivered = self._continue_unstored((*self._appending.entries, *self._unstored))
            self._tidy_orphan()
            return is_delivered or self._owner is _DROPPED
        if self._is_reading(effect):
            self._reading = None
            self._refuse_reader(refusals.store_failed())  # the client can come back
        return True

    def close(self, *, delete_stored: bool) -> None:
        """End the log, because its session has ended.

        Entries that wait are still stored, unless ``delete_stored`` is True. A reader that waits
        for the last message gets it in both cases.
        """
        self._owner = _DROPPED if delete_stored else _Owner.NONE
        if not self.is_ending:
            self._advance(LogEvent.END)
            if delete_stored:
                self._drop_unstored()
            self._append_next()
            self.detach_reader()

    # The reader

    def attach(self, exchange: ServerExchange, after: int | None, *, skipped: int = 0) -> None:
        """Send the messages after ``after`` to an exchange, which replaces the last reader.

        ``after`` None continues where the last reader stopped. The client has received
        ``skipped`` messages after it, which are not sent.
        """
        self.detach_reader()
        self.reader = exchange
        if after is None:
            after = self._position
        self._position = after
        self._skipped = skipped
        self._retry = self.table.core.retry_ms
        if self.writer is not None:
            self.writer.on_reader_attached()
        is_remote = self.state is _REMOTE
        if after > self._stored and not is_remote:
            self.drop_reader()
        elif after < self._stored or is_remote:
            self._read_page()
        else:
            self._open(exchange)

    def detach(self, exchange: ServerExchange) -> None:
        """Forget an exchange that was lost, or is broken off; the log stays."""
        if self.reader is exchange:
            self.reader = None
            self._reading = None
            if self.writer is not None:
                self.writer.on_reader_lost()

    def detach_reader(self) -> None:
        """End the response of the reader, if there is one; the log stays."""
        if (reader := self.reader) is not None:
            self.reader = None
            self._reading = None
            reader.stop()

    def disconnect(self, retry: int | None) -> bool:
        """Close the reader's connection; the client may resume after ``retry`` milliseconds.

        If instances share the store, the client has no event id until the first entry is stored;
        its connection is closed then. The same is done if messages wait for others: the client gets
        them first. Returns False, with nothing changed, if the client could not resume.
        Source: SEP-1699.
        """
        id = self._id(self._position)
        if not self.polling or (id is None and not self._is_opening):
            return False
        has_gathered = self in self.table.core.gathering
        if id is None or has_gathered:
            self._pending_disconnect = (retry,)
            self._append_next()
            return True
        if self.reader is not None and self.reader.state is ExchangeState.STREAMING:
            self.reader.send(encode_event(b"", id=id, retry=retry))
        self.detach_reader()
        return True

    @property
    def _is_opening(self) -> bool:
        """True if the first entry is to be stored, after which there is an event id."""
        return self.is_stored and self._stored == 0 and not self.has_stored_all

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """Send a page of the store to the reader. Break it off if the store has lost what follows.

        A page that was read before the latest append is no reason: the next one has that.
        """
        reading = self._reading
        if reading is None or effect is not reading.effect or self.reader is None:
            return  # the reader that waited for this page has disconnected
        self._reading = None
        if page is None or not self._continues(page, reading.stored):
            if not _is_fresh(self.reader):
                self.drop_reader()
                return
            page = page or Page((), Entry(self._stored, b""))
            self._position = page.entries[0].seq - 1 if page.entries else page.last.seq
        self._stored = max(self._stored, page.last.seq)
        try:
            for entry in page.entries:
                declared = WriterDeclaration.of(entry)
                if declared is not None and self.table.core.options.shared_store:
                    self.table.note_writer(self, declared.instance)
        except RecordTooNewError:  # the client can resume at an instance of the later version
            self._refuse_reader(refusals.RECORD_TOO_NEW())
            return
        if self.reader.state is ExchangeState.DECIDING:
            self._open(self.reader)
        self._deliver_entries(page.entries)
        self._wake_reader()
        if self._position == self._stored and self._is_over(page):
            self.detach_reader()
        self.catch_up()

    def _continues(self, page: Page, expected: int) -> bool:
        """Return True if a page has what comes next, and False if the store has lost it.

        ``expected``: the last number that the store was known to have when it was asked.
        """
        has_lost = page.last.seq < expected and not page.entries
        return not has_lost and _follows(page, self._position)

    def catch_up(self) -> None:
        """Read the next page if the reader has sent all it had, and the store has more.

        End the response if there is no more. The last entry does that, too, but a session can end
        while another one is being stored.
        """
        is_ready = self.reader is not None and self._reading is None and self.reader.unsent == 0
        if is_ready and self._position < self._stored:
            self._read_page()
        elif is_ready and self.state is _FINISHED and self.has_stored_all:
            self.detach_reader()

    @property
    def is_waiting(self) -> bool:
        """True if the reader has all entries known here, and another instance may append."""
        if self.state is not _REMOTE or self._appending is not None:
            return False
        return self.table.core.options.shared_store and self._is_read_up_to(self._stored)

    def poll_store(self) -> None:
        """Read what another instance may have appended."""
        if self.is_waiting:
            self._read_page()

    def _is_over(self, page: Page) -> bool:
        """True if no instance continues a log that has been read to its end."""
        if self.state is not _REMOTE or self._appending is not None:
            return False
        return page.last.final or not (self.table.core.options.shared_store or page.last.waits)

    def _open(self, exchange: ServerExchange) -> None:
        exchange.open_stream()
        if self.polling and (id := self._id(self._position)) is not None:
            exchange.send(encode_event(b"", id=id, retry=self._take_retry()))

    def _continue_unstored(self, entries: Sequence[Entry]) -> bool:
        """Send entries that were not stored to the reader, if they follow its position.

        An event with an empty id makes the client forget its last event id. The append that failed
        may have been done, in whole or in part, if the reply of the store was lost. Another
        instance would then replay messages that the client has got from this one without ids.

        Returns False if the entries are lost.
        """
        self._appending = None
        self._drop_unstored()
        is_read = self._is_read_up_to(entries[0].seq - 1) and self.state is not _REMOTE
        has_id = self._id(self._position) is not None
        # First, since the loss of its reader may end the call, and this log with it.
        self._advance(LogEvent.FAIL)
        if not is_read:
            self.drop_reader()
        elif self.reader is not None and has_id:
            self.reader.send(FORGET_ID)
        self._deliver_entries(entries)
        self._stored = self._position = entries[-1].seq
        return is_read

    def _advance(self, event: LogEvent) -> None:
        self.state = advance(LOG, self.state, event)
        if self.state is not LogState.WRITING:
            self.table.core.timers.stop(Timer.STORED, self)  # nothing is to be refreshed

    def _tidy_orphan(self) -> None:
        """Forget a stream that is no longer stored and belongs to no session."""
        if self._owner is not _SESSION:
            self.table.discard_settled(self)

    def _append_next(self) -> None:
        if self._appending is None and self._unstored and self.key is not None:
            self._appending = self.table.logs.append(self.key, self._unstored, self)
            self._drop_unstored()

    def _drop_unstored(self) -> None:
        """Let no entry wait: they are being appended, or are lost."""
        self._unstored.clear()
        self._burst.left(self.table.core, self)

    def _is_read_up_to(self, seq: int) -> bool:
        return self.reader is not None and self._reading is None and self._position == seq

    def _is_slow(self) -> bool:
        assert self.reader is not None
        return self.reader.is_slow

    def _read_page(self) -> None:
        if self.key is None or not self.is_stored:
            self.drop_reader()  # the store has failed since
        else:
            limits = self.table.limits
            effect = self.table.logs.read(
                self.key,
                self._position,
                self,
                limit=limits.replay_page_entries,
                max_bytes=limits.max_unsent_bytes,
            )
            self._reading = _PageRead(effect, self._stored)

    def _deliver_entries(self, entries: Iterable[Entry]) -> None:
        """Send the entries after the reader's position to it.

        Stored ones have waited for each other already: wake the reader afterwards.
        """
        is_stored = self.state in _STORED
        for entry in entries:
            if self.reader is not None and entry.seq > self._position:
                self._position = entry.seq
                is_sent = not (self._skipped and self._skips(entry))
                event = self._event(entry) if is_sent else None
                if event is not None and is_stored:
                    self.reader.add(event)
                elif event is not None:
                    self.reader.send(event)
                if entry.final or entry.kind is _INPUT_REQUIRED:
                    self.detach_reader()

    def _skips(self, entry: Entry) -> bool:
        """Return True, and count it, if an entry is one of the messages that are not sent."""
        skips = entry.kind is _MESSAGE and not entry.final
        self._skipped -= skips
        return skips

    def _wake_reader(self) -> None:
        if self.reader is not None and self.reader.unsent:
            self.reader.wake()

    def _event(self, entry: Entry) -> bytes | None:
        """Return the event of an entry; None if the entry is not for clients."""
        id = self._id(entry.seq)
        match entry.kind:
            case EntryKind.MESSAGE if entry.data:
                retry = None if id is None else self._take_retry()
                return encode_event(entry.data, event="message", id=id, retry=retry)
            case EntryKind.FORWARDED:
                retry = None if id is None else self._take_retry()
                message = entry.data.partition(b"\n")[2]
                return encode_event(message, event="message", id=id, retry=retry)
            case EntryKind.OPENED if id is not None and self.polling:
                return encode_event(b"", id=id, retry=self._take_retry())
            case EntryKind.BUFFER_INPUT | EntryKind.INPUT_REQUIRED:
                return encode_event(None, event=entry.kind.value, id=id)
            case _:
                return None

    def _take_retry(self) -> int | None:
        """Return the ``retry`` field to send to the reader, once; None afterwards."""
        retry, self._retry = self._retry, None
        return retry

    def drop_reader(self) -> None:
        """End the reader, whose next entries cannot be read: refuse it, or abort its response."""
        self._refuse_reader(refusals.UNKNOWN_EVENT_ID())

    def _refuse_reader(self, refusal: RemoteProtocolError) -> None:
        if (reader := self.reader) is not None:
            self.detach(reader)
            assert reader.head is not None
            # A POST that reads from the beginning is of a call that runs, and has a key. A refusal
            # would say that nothing was run.
            is_of_call = _is_fresh(reader) and reader.head.method == b"POST"
            if reader.state is ExchangeState.DECIDING and not is_of_call:
                reader.refuse(refusal)
            else:
                reader.abort()

    def _id(self, seq: int) -> str | None:
        """Return the event id of a position, or None if no client could resume there.

        That is so if nothing is stored, and before the first entry if instances share the store:
        other instances do not know the log before.
        """
        is_known = seq > 0 or not self.table.core.options.shared_store
        if self.key is None or not self.is_stored or not is_known:
            return None
        return EventId(self.key.stream, seq).encode()


def _is_fresh(reader: ServerExchange) -> bool:
    """Return True if a client has no event id of the stream that it reads.

    Entries that the store has evicted are then skipped, not reported as lost.
    """
    assert reader.head is not None
    return reader.state is ExchangeState.DECIDING and not reader.head.values(LAST_EVENT_ID)


def _follows(page: Page, position: int) -> bool:
    """Return True if a page begins directly after a position, so that no message is missing.

    An entry that only refreshes the log has the number of the last message as its data: entries
    after that number may be missing before it, because they were of the same kind.
    """
    if page.entries:
        first = page.entries[0]
        return first.seq == position + 1 or (
            first.kind is EntryKind.KEPT
            and int(first.data.partition(b" ")[0]) <= position < first.seq
        )
    return page.last.seq == position
