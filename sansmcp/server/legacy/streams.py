"""Streams and their readers: the heart of "nothing is lost, nothing comes twice".

A stream is a log. Its writer appends messages; each gets the next sequence number and goes to the
store, and only when the store has it may anybody see it (*append first, then send*). A reader is
nothing but a *position* in that log and the exchange it feeds. Whatever brought it there (the POST
that began the stream, a resumption after a broken connection, a newer reader that took over), a
reader moves in one way only: it takes the message after its position. There are two places to take
it from:

* the *tail*: a message that has just been stored goes straight to a reader that stands right before
  it;
* the *store*: a reader that stands anywhere else reads pages until it stands at the tail.

So there is no replay mode and no hand-over between replay and live: a message that is stored while
a page is being read is one more message after the reader's position, and one that comes both ways
is not after it any more. A reader whose peer is slow falls behind the tail by itself, holds nothing
in memory, and reads pages again when it has sent what it had. Disconnecting a reader (SEP-1699)
leaves the log as it is.

One writer at a time adds to a log, and it need not be the same for ever: a call that waits for the
client's answers goes on wherever these arrive (:mod:`.parked_calls`). Then its log is *written
elsewhere*, and its readers follow it in the store.

Where clients know of it (2025-11-25) each response begins with a *priming event*: an id and nothing
else, which names the reader's position. So a client that is cut off before the first message can
come back, too.

Without a store there are no event ids: messages go to the reader, if there is one, and are gone.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; SEP-1699.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from ...codecs.event_id import EventId
from ...codecs.sse import FORGET_ID, encode_event
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...limits import Limits
from ...states import LOG, ExchangeState, LogEvent, LogState, advance
from ...store import Entry, EntryKind, Page, StreamKey
from ...timers import Timer
from .. import refusals
from ..core import ServerCore
from ..exchange import ServerExchange
from ..store_completions import StoreOperation

_STORED = (LogState.WRITING, LogState.FINISHED, LogState.REMOTE)
_ENDED = (LogState.FINISHED, LogState.REMOTE, LogState.CLOSED)
"""The states in which nothing more is written here."""


class StreamOwner(Protocol):
    """The table that a stream is in, as the stream uses it."""

    @property
    def core(self) -> ServerCore:
        """What all parts of the server share."""
        ...

    @property
    def limits(self) -> Limits:
        """The bounds that were set."""
        ...

    def start_operation(self, effect: StoreAppend | StoreRead, operation: StoreOperation) -> None:
        """Queue a store effect; its outcome is passed to the operation."""

    def discard_settled(self, stream: ResumableStream) -> None:
        """Let go of a stream if it is settled."""


@attrs.define(eq=False, repr=False)
class ResumableStream:
    """A log and its one reader."""

    key: StreamKey | None
    """Where it is stored; None: nowhere."""
    polling: bool
    """Whether the client knows SEP-1699: events that have an id and nothing else, and early closes.
    """
    table: StreamOwner
    state: LogState = LogState.WRITING
    siblings: dict[ResumableStream, None] = attrs.field(factory=dict["ResumableStream", None])
    """The streams of the same session that are not settled."""

    reader: ServerExchange | None = attrs.field(default=None, init=False)
    next_seq: int = attrs.field(default=1, init=False)
    """The number of the next entry that is written here."""
    _stored: int = attrs.field(default=0, init=False)
    """The log is known to hold everything up to here."""
    _last_message_seq: int = attrs.field(default=0, init=False)
    """The number of the last entry written here that says something."""
    _stored_at: float = attrs.field(default=-math.inf, init=False)
    """When an entry that was written here was stored last."""
    _unstored: deque[Entry] = attrs.field(factory=deque[Entry], init=False)
    """What the store is to get next: it has one append of a stream at a time, so the order is safe.
    """
    _appending: StoreAppend | None = attrs.field(default=None, init=False)
    _position: int = attrs.field(default=0, init=False)
    """The reader was given everything up to here."""
    _is_fresh: bool = attrs.field(default=False, init=False)
    """The reader's client has no id of this stream yet, so it misses nothing that is no longer
    kept.
    """
    _retry: int | None = attrs.field(default=None, init=False)
    """Milliseconds that the reader's client is still to be told of."""
    _pending_disconnect: tuple[int | None] | None = attrs.field(default=None, init=False)
    """The reader is to be let go with this ``retry``, as soon as it has an id."""
    _reading: StoreRead | None = attrs.field(default=None, init=False)
    """What will bring the reader's next page."""
    _is_dropped: bool = attrs.field(default=False, init=False)
    """The store forgets the log: it gets nothing more of it."""
    _is_orphan: bool = attrs.field(init=False)
    """True if no session can report messages that the store failed to keep."""

    def __attrs_post_init__(self) -> None:
        self._is_orphan = self.key is not None and not self.key.session

    # The writer

    @property
    def is_stored(self) -> bool:
        """Whether messages are stored, and their events have ids."""
        return self.state in _STORED

    @property
    def is_above_high_water(self) -> bool:
        """Whether the writer should wait: the store, or without one the reader, is behind."""
        if self.is_stored:
            return len(self._unstored) >= self.table.limits.max_pending_entries
        return self.reader is not None and self.reader.is_slow

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do here: nothing follows, all is stored, and nobody reads."""
        return self.state in _ENDED and self._appending is None and self.reader is None

    @property
    def is_ending(self) -> bool:
        """Whether the last entry waits for the store: the reader is given it, and ends, then."""
        return self._appending is not None and (self._unstored or self._appending.entries)[-1].final

    def append_opened_entry(self) -> None:
        """Let the log of a call begin with an entry that tells all instances that there is one.

        Without it, the id of the priming event would mean nothing to another instance.
        """
        if self.is_stored and self.polling and self.table.core.options.shared_store:
            self._unstored.append(Entry(self.next_seq, b"", kind=EntryKind.OPENED))
            self.next_seq += 1
            self._append_next()

    def append(self, message: bytes, *, final: bool = False) -> bool:
        """Add a message. Returns False if it is lost: nothing stores it and nobody reads it.

        An empty message is only the end of the log: its request was cancelled.
        """
        if self.state in _ENDED:
            return False
        entry = Entry(self.next_seq, message, final)
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
        self._append_next()
        return True

    def hand_over(self, entries: Sequence[Entry]) -> None:
        """Add entries at once, after which somebody else goes on with the log."""
        self._unstored.extend(entries)
        self._advance(LogEvent.HAND_OVER)
        self._append_next()

    def take_over(self, seq: int) -> None:
        """Go on with the log after the entry of that number."""
        self._advance(LogEvent.TAKE_OVER)
        self.next_seq = seq + 1
        self._last_message_seq = seq
        self._stored = max(self._stored, seq)
        self._stored_at = self.table.core.now
        self.refresh()
        self.catch_up()

    def refresh(self) -> None:
        """Add an entry that no client sees if nothing was added for long.

        What a store keeps grows old by the time of its entries, and what still runs is not old. The
        instance that writes a stream knows it without the store; readers at others do not.
        """
        core = self.table.core
        if self.state is not LogState.WRITING or not core.options.shared_store:
            return
        due = self._stored_at + core.refresh_interval
        if core.now >= due and self._stored and self._appending is None:
            kept = Entry(self.next_seq, b"%d" % self._last_message_seq, kind=EntryKind.KEPT)
            self.next_seq += 1
            self._unstored.append(kept)
            self._append_next()
        if core.now >= due:
            due = core.now + core.refresh_interval
        core.timers.set(Timer.STORED, self, due)

    def on_append_done(self) -> None:
        """The store has what it was given."""
        assert self._appending is not None
        self._stored_at = self.table.core.now
        entries = self._appending.entries
        self._appending = None
        self._stored = entries[-1].seq
        if self._is_read_up_to(entries[0].seq - 1) and not self._is_slow():
            self._deliver_entries(entries)
        self._disconnect_if_pending()
        if self._is_dropped and self._unstored:
            self._continue_unstored(tuple(self._unstored))
            return
        self.catch_up()
        self._append_next()

    def _disconnect_if_pending(self) -> None:
        """Let the reader go, if it was to be let go before it had an id."""
        if self._pending_disconnect is not None:
            (retry,), self._pending_disconnect = self._pending_disconnect, None
            self.disconnect(retry)

    def on_append_conflict(self) -> None:
        """Somebody else writes this log: what they say counts."""
        self._appending = None
        self._unstored.clear()
        self._advance(LogEvent.HAND_OVER)

    def failed(self, effect: StoreEffect) -> bool:
        """The store could not do what it was asked. Returns False if messages are lost by that."""
        if self._appending is not None and effect is self._appending:
            is_delivered = self._continue_unstored((*self._appending.entries, *self._unstored))
            self._tidy_orphan()
            return is_delivered
        if effect is self._reading:
            self._reading = None
            self.drop_reader()
        return True

    def close(self, *, delete_stored: bool) -> None:
        """The session has ended: nothing follows.

        What was said before is still stored, unless the session has ended ``everywhere``, so that
        the store forgets it; a reader that waits for the last message gets it all the same.
        """
        self._is_orphan = True
        self._is_dropped = delete_stored
        if not self.is_ending:
            self._advance(LogEvent.END)
            if delete_stored:
                self._unstored.clear()
            self.detach_reader()

    # The reader

    def attach(
        self, exchange: ServerExchange, after: int | None, *, is_fresh: bool = False
    ) -> None:
        """Let an exchange read what follows ``after``, instead of whoever has been reading.

        ``after`` None: go on where the last reader stopped. ``is_fresh``: the client has no id of
        this stream yet.
        """
        self.detach_reader()
        self.reader = exchange
        if after is None:
            after = self._position
        self._position = after
        self._is_fresh = is_fresh
        self._retry = self.table.core.retry_ms
        is_remote = self.state is LogState.REMOTE
        if after > self._stored and not is_remote:
            self.drop_reader()
        elif after < self._stored or is_remote:
            self._read_page()
        else:
            self._open(exchange)

    def detach(self, exchange: ServerExchange) -> None:
        """An exchange reads no more; the log stays."""
        if self.reader is exchange:
            self.reader = None
            self._reading = None

    def detach_reader(self) -> None:
        """End the response of the reader, if there is one; the log stays."""
        if (reader := self.reader) is not None:
            self.detach(reader)
            reader.stop()

    def disconnect(self, retry: int | None) -> bool:
        """Close the reader's connection; it shall read on after ``retry`` milliseconds.

        Returns False, and does nothing, where the client could not come back. Among instances it
        has no id until the first entry is stored, and is let go then. Source: SEP-1699.
        """
        id = self._id(self._position)
        if not self.polling or (id is None and not self._is_opening):
            return False
        if id is None:
            self._pending_disconnect = (retry,)
            return True
        if self.reader is not None and self.reader.state is ExchangeState.STREAMING:
            self.reader.send(encode_event(b"", id=id, retry=retry))
        self.detach_reader()
        return True

    @property
    def _is_opening(self) -> bool:
        """Whether the store is getting the first entry, so that there will be an id."""
        return self.is_stored and self._stored == 0 and self._appending is not None

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """A page has come from the store."""
        if effect is not self._reading or self.reader is None:
            return  # it was for a reader that has gone
        self._reading = None
        if page is None or not _follows(page, self._position):
            if not self._is_fresh:
                self.drop_reader()
                return
            page = page or Page((), Entry(self._stored, b""))
            self._position = page.entries[0].seq - 1 if page.entries else page.last.seq
        self._stored = max(self._stored, page.last.seq)
        if self.reader.state is ExchangeState.DECIDING:
            self._open(self.reader)
        self._deliver_entries(page.entries)
        if self._position == self._stored and self._is_over(page):
            self.detach_reader()
        self.catch_up()

    def catch_up(self) -> None:
        """Read on in the store if the reader has sent all it had and the log goes on."""
        is_ready = self.reader is not None and self._reading is None and self.reader.unsent == 0
        if is_ready and self._position < self._stored:
            self._read_page()

    @property
    def is_waiting(self) -> bool:
        """Whether a reader waits for what another instance writes: look for it after a while."""
        if self.state is not LogState.REMOTE or self._appending is not None:
            return False
        return self.table.core.options.shared_store and self._is_read_up_to(self._stored)

    def poll_store(self) -> None:
        """See whether the log has gone on."""
        if self.is_waiting:
            self._read_page()

    def _is_over(self, page: Page) -> bool:
        """Whether nobody goes on with a log that is read up to its end."""
        if self.state is not LogState.REMOTE or self._appending is not None:
            return False
        return page.last.final or not (self.table.core.options.shared_store or page.last.waits)

    def _open(self, exchange: ServerExchange) -> None:
        exchange.open_stream()
        self._is_fresh = False
        if self.polling and (id := self._id(self._position)) is not None:
            exchange.send(encode_event(b"", id=id, retry=self._take_retry()))

    def _continue_unstored(self, entries: Sequence[Entry]) -> bool:
        """Go on without the store: the reader may still get what it would have got next.

        Its client is told to forget its last id. The append that failed may have been done, in
        whole or in part (the reply of a store can get lost), and another instance would replay it
        to a client that has been given the same messages here, without ids.

        Returns False if the reader gets nothing.
        """
        self._appending = None
        self._unstored.clear()
        is_read = self._is_read_up_to(entries[0].seq - 1) and self.state is not LogState.REMOTE
        if not is_read:
            self.drop_reader()
        elif self.reader is not None and self._id(self._position) is not None:
            self.reader.send(FORGET_ID)
        self._advance(LogEvent.FAIL)
        self._deliver_entries(entries)
        self._stored = self._position = entries[-1].seq
        return is_read

    def _advance(self, event: LogEvent) -> None:
        self.state = advance(LOG, self.state, event)

    def _tidy_orphan(self) -> None:
        """Let go of what is not stored, unless a session has to be told that it is lost."""
        if self._is_orphan:
            self.table.discard_settled(self)

    def _append_next(self) -> None:
        if self._appending is None and self._unstored and self.key is not None:
            self._appending = StoreAppend(stream=self.key, entries=tuple(self._unstored))
            self._unstored.clear()
            self.table.start_operation(self._appending, self)

    def _is_read_up_to(self, seq: int) -> bool:
        return self.reader is not None and self._reading is None and self._position == seq

    def _is_slow(self) -> bool:
        assert self.reader is not None
        return self.reader.is_slow

    def _read_page(self) -> None:
        if self.key is None or not self.is_stored:
            self.drop_reader()  # the store has failed meanwhile
        else:
            limits = self.table.limits
            self._reading = StoreRead(
                stream=self.key,
                after=self._position,
                limit=limits.replay_page_entries,
                max_bytes=limits.max_unsent_bytes,
            )
            self.table.start_operation(self._reading, self)

    def _deliver_entries(self, entries: Iterable[Entry]) -> None:
        """Hand to the reader what follows its position."""
        for entry in entries:
            if self.reader is not None and entry.seq > self._position:
                self._position = entry.seq
                event = self._event(entry)
                if event is not None:
                    self.reader.send(event)
                if entry.final or entry.kind is EntryKind.INPUT_REQUIRED:
                    self.detach_reader()

    def _event(self, entry: Entry) -> bytes | None:
        """What a reader is sent; None where an entry is not for clients."""
        id = self._id(entry.seq)
        match entry.kind:
            case EntryKind.MESSAGE if entry.data:
                retry = None if id is None else self._take_retry()
                return encode_event(entry.data, event="message", id=id, retry=retry)
            case EntryKind.OPENED if id is not None and self.polling:
                return encode_event(b"", id=id, retry=self._take_retry())
            case EntryKind.BUFFER_INPUT | EntryKind.INPUT_REQUIRED:
                return encode_event(None, event=entry.kind.value, id=id)
            case _:
                return None

    def _take_retry(self) -> int | None:
        """When the reader's client shall come back, if it has not been told so."""
        retry, self._retry = self._retry, None
        return retry

    def drop_reader(self) -> None:
        """What the reader should get next cannot be had: say so, as well as is still possible."""
        if (reader := self.reader) is not None:
            self.detach(reader)
            if reader.state is ExchangeState.DECIDING:
                reader.refuse(refusals.UNKNOWN_EVENT_ID())
            else:
                reader.abort()

    def _id(self, seq: int) -> str | None:
        """The id of a place; None where nothing is stored, or another instance would not know it.

        Before the first entry there is no log, and no other instance can know of one.
        """
        is_known = seq > 0 or not self.table.core.options.shared_store
        if self.key is None or not self.is_stored or not is_known:
            return None
        return EventId(self.key.stream, seq).encode()


def _follows(page: Page, position: int) -> bool:
    """Whether a page starts right after a position, so that nothing in between is missing.

    What is missing before an entry that only kept the log may have been entries of that kind.
    """
    if page.entries:
        first = page.entries[0]
        return first.seq == position + 1 or (
            first.kind is EntryKind.KEPT and int(first.data) <= position < first.seq
        )
    return page.last.seq == position
