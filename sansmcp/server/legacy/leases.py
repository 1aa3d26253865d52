"""Leases: how an instance notices that another one, which runs a call, has died.

Each instance that shares a store and writes logs keeps a *lease*: a log to which it appends an
entry every third of ``Limits.lease_timeout``. The log of a call names the instance that writes it,
and the requests that it answers. An instance whose readers follow such a log watches the lease of
its writer. If the lease gets no entry for ``lease_timeout`` seconds, on the clock of the instance
that watches it, the writer counts as dead, and the follower takes over:

* The log of a call gets an error as its last message. It is unknown how far the handler has come.
* The log of a standalone stream is continued by the follower.

Both are appends under the next number. If several followers try, one succeeds; and if the writer
was only slow, its next append conflicts, and its handler is cancelled. So no lock is needed.

While the store fails, no lease can be kept. So an instance that could not read a lease begins to
count anew.

A call that is parked is run by no instance, and is not watched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from ...codecs import jsonrpc
from ...effects import StoreEffect, StoreRead
from ...messages import ErrorResponse, RequestId, Response
from ...states import LogState
from ...store import Entry, EntryKind, Page, StreamKey
from ...timers import Timer
from .. import refusals
from ..core import ServerCore
from .mailbox import MailboxPost, cancellation_mailbox
from .stream_table import StreamTable
from .streams import ResumableStream, WriterDeclaration, place_of

_LOG = ".lease"

_BEATS = 3
"""Entries per ``lease_timeout``."""


def lease_key(instance: str) -> StreamKey:
    """Return the key of the lease of an instance."""
    return StreamKey("", instance, _LOG)


@attrs.define(eq=False, repr=False)
class Lease:
    """The lease of this instance. It is kept while this instance writes logs."""

    _streams: StreamTable
    _seq: int = attrs.field(default=1, init=False)
    """The number of the next entry."""
    _is_kept: bool = attrs.field(default=False, init=False)
    _is_appending: bool = attrs.field(default=False, init=False)

    def keep(self) -> None:
        """Keep the lease from now on."""
        if not self._is_kept:
            self._is_kept = True
            self.renew()

    def renew(self) -> None:
        """Append an entry, unless no log is written here any more."""
        core = self._streams.core
        self._is_kept = self._streams.writes_logs and not core.has_stopped
        if self._is_kept:
            self._append(is_last=False)
            core.timers.set(Timer.LEASE, self, core.now + core.limits.lease_timeout / _BEATS)

    def end(self) -> None:
        """Append the last entry, because this instance stops: others need not wait."""
        if self._seq > 1:
            self._append(is_last=True)

    def _append(self, *, is_last: bool) -> None:
        if not self._is_appending:
            self._is_appending = True
            key = lease_key(self._streams.core.instance)
            self._streams.append(key, (Entry(self._seq, b"", is_last),), self)

    def on_append_done(self) -> None:
        self._is_appending = False
        self._seq += 1

    def on_append_conflict(self) -> None:
        """An append that seemed to have failed was done."""
        self.on_append_done()

    def on_append_behind(self) -> None:
        """The store has lost the lease: begin it anew."""
        self._is_appending = False
        self._streams.drop("", self._streams.core.instance)
        self._seq = 1

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """It reads nothing."""

    def may_repeat(self, effect: StoreEffect) -> bool:
        """The next entry is due soon."""
        return False

    def failed(self, effect: StoreEffect) -> bool:
        """Nothing of a client is lost."""
        self._is_appending = False
        return True


class WriterSession(Protocol):
    """A session, as the takeover of a standalone stream uses it."""

    def continue_standalone(
        self, stream: ResumableStream, seq: int, places: Mapping[str, int]
    ) -> None:
        """Write on in a standalone stream after the entry of that number.

        ``places``: by log, the number of the last entry that was forwarded.
        """


class SessionFinder(Protocol):
    """The sessions that this instance knows."""

    def find(self, principal: str, id: str | None) -> WriterSession | None:
        """Return the session of an id; None if it is unknown here."""
        ...


@attrs.define(eq=False, repr=False)
class Peer:
    """Another instance, and the streams of it that have readers here."""

    _writers: Writers
    instance: str
    streams: dict[ResumableStream, None] = attrs.field(
        factory=dict[ResumableStream, None], init=False
    )
    _seq: int = attrs.field(default=0, init=False)
    """The number of the last entry of its lease that was seen."""
    _alive_at: float = attrs.field(init=False)
    """When that entry was seen, or the store could not be read."""

    def __attrs_post_init__(self) -> None:
        self._alive_at = self._writers.core.now
        self.check()

    def check(self) -> None:
        """Read the lease."""
        most = self._writers.core.limits.max_stored_bytes
        key = lease_key(self.instance)
        self._writers.table.read(key, self._seq, self, limit=1, max_bytes=most)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if not self.streams:
            return  # the last reader has gone while the lease was read
        core = self._writers.core
        has_ended = False
        if page is not None and page.last.seq != self._seq:
            self._seq, self._alive_at = page.last.seq, core.now
            has_ended = page.last.final
        if has_ended or core.now >= self._alive_at + core.limits.lease_timeout:
            self._writers.on_death(self)
        else:
            self._check_later()

    def failed(self, effect: StoreEffect) -> bool:
        """The store cannot be read, so perhaps the lease could not be written, either."""
        if self.streams:
            self._alive_at = self._writers.core.now
            self._check_later()
        return True

    def _check_later(self) -> None:
        core = self._writers.core
        lease = core.limits.lease_timeout
        due = min(core.now + lease / _BEATS, self._alive_at + lease)
        core.timers.set(Timer.LEASE, self, due)

    def may_repeat(self, effect: StoreEffect) -> bool:
        """It reads again in any case."""
        return False

    def on_append_done(self) -> None:
        """It appends nothing."""

    def on_append_conflict(self) -> None:
        """It appends nothing."""

    def on_append_behind(self) -> None:
        """It appends nothing."""


@attrs.define(eq=False, repr=False)
class _Scan:
    """Reads a log from its beginning: who writes it, and which requests are not answered."""

    _writers: Writers
    stream: ResumableStream
    dead: str | None
    """The instance that has died; None to find out who writes the log."""
    writer: str = attrs.field(default="", init=False)
    """The instance that writes the log; empty if that entry is no longer stored."""
    requests: dict[RequestId, None] | None = attrs.field(default=None, init=False)
    """The requests that are not answered; None for a standalone stream."""
    last: Entry | None = attrs.field(default=None, init=False)
    """The last entry; None if the store has no such log."""
    places: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    """By log: the number of the last entry that was forwarded to this one."""
    _is_batch: bool = attrs.field(default=False, init=False)

    def read(self, after: int) -> None:
        """Read the page after a number."""
        limits, key = self._writers.core.limits, self.stream.key
        assert key is not None, "what another instance writes is stored"
        self._writers.table.read(
            key, after, self, limit=limits.replay_page_entries, max_bytes=limits.max_unsent_bytes
        )

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        for entry in page.entries if page is not None else ():
            self._take(entry)
        if page is not None and page.entries and page.entries[-1].seq < page.last.seq:
            self.read(page.entries[-1].seq)
        else:
            self.last = None if page is None else page.last
            self._writers.on_scanned(self)

    def _take(self, entry: Entry) -> None:
        declared = WriterDeclaration.of(entry)
        if entry.kind is EntryKind.FORWARDED:
            log, seq = place_of(entry)
            self.places[log] = seq
        if declared is None:
            pass
        elif entry.kind is EntryKind.KEPT and self.writer:
            self.places.update(declared.places)  # its requests may have been answered
        else:
            self.writer, ids = declared.instance, declared.requests
            self.places.update(declared.places)
            self.requests = None if ids is None else dict.fromkeys(ids)
            self._is_batch = ids is not None and len(ids) > 1
        if self._is_batch and entry.kind is EntryKind.MESSAGE and self.requests:
            message = jsonrpc.decode(entry.data, self._writers.core.limits)
            if isinstance(message, Response | ErrorResponse) and message.id is not None:
                self.requests.pop(message.id, None)

    def may_repeat(self, effect: StoreEffect) -> bool:
        """A reader waits for it, unless it has gone."""
        return self._writers.is_scanning(self)

    def failed(self, effect: StoreEffect) -> bool:
        """The readers go on waiting; they see the failure themselves."""
        self._writers.on_scan_failed(self)
        return True

    def on_append_done(self) -> None:
        """It appends nothing."""

    def on_append_conflict(self) -> None:
        """It appends nothing."""

    def on_append_behind(self) -> None:
        """It appends nothing."""


@attrs.define(eq=False, repr=False)
class _Ending:
    """Ends the log of a call whose instance has died."""

    _writers: Writers
    _stream: ResumableStream
    _requests: Sequence[RequestId]

    def start(self, seq: int) -> None:
        """Append an error for each request, the first under this number."""
        assert self._stream.key is not None, "what another instance writes is stored"
        last = seq + len(self._requests) - 1
        entries = tuple(
            Entry(number, jsonrpc.encode(refusals.INSTANCE_LOST(id).reply), number == last)
            for number, id in enumerate(self._requests, seq)
        )
        self._writers.table.append(self._stream.key, entries, self)

    def on_append_done(self) -> None:
        """Cancel the handlers, in case their instance was only slow; let the reader read."""
        assert self._stream.key is not None, "what another instance writes is stored"
        for id in self._requests:
            mailbox = attrs.evolve(self._stream.key, stream=cancellation_mailbox(id))
            reason = b"another instance has ended the call"
            MailboxPost(self._writers.table, mailbox, reason).append_if_expected()
        self._writers.read_on(self._stream)

    def on_append_conflict(self) -> None:
        """The writer lives, or another follower was first."""
        self._writers.read_on(self._stream)

    def on_append_behind(self) -> None:
        """The store has lost the end of the log: whoever reads it will be told."""
        self._writers.read_on(self._stream)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """It reads nothing."""

    def may_repeat(self, effect: StoreEffect) -> bool:
        """The readers wait for it."""
        return True

    def failed(self, effect: StoreEffect) -> bool:
        """The readers go on waiting."""
        return True


@attrs.define(eq=False, repr=False)
class Writers:
    """The instances whose streams have readers here."""

    core: ServerCore
    table: StreamTable
    _sessions: SessionFinder
    _peers: dict[str, Peer] = attrs.field(factory=dict[str, "Peer"], init=False)
    _following: dict[ResumableStream, str] = attrs.field(
        factory=dict[ResumableStream, str], init=False
    )
    """The instance that writes each stream that is followed."""
    _scans: dict[ResumableStream, _Scan] = attrs.field(
        factory=dict[ResumableStream, "_Scan"], init=False
    )

    def follow(self, stream: ResumableStream) -> None:
        """Notice if the instance that writes a stream dies, as long as a reader waits for it."""
        if stream in self._scans:
            return
        if stream.writer is None:
            self._scan(stream, None)
        elif self._following.get(stream, "") != stream.writer:
            self.leave(stream)
            self._following[stream] = stream.writer
            peer = self._peers.get(stream.writer)
            if peer is None:
                peer = self._peers[stream.writer] = Peer(self, stream.writer)
            peer.streams[stream] = None

    def leave(self, stream: ResumableStream) -> None:
        """Follow the writer of a stream no more."""
        self._scans.pop(stream, None)
        instance = self._following.pop(stream, None)
        if instance is not None:
            peer = self._peers[instance]
            del peer.streams[stream]
            if not peer.streams:
                del self._peers[instance]
                self.core.timers.stop(Timer.LEASE, peer)

    def on_death(self, peer: Peer) -> None:
        """Go on with the logs of an instance that has died."""
        for stream in tuple(peer.streams):
            self.leave(stream)
            self._scan(stream, peer.instance)

    def is_scanning(self, scan: _Scan) -> bool:
        """True if a reader waits for what a scan finds."""
        return self._scans.get(scan.stream) is scan

    def on_scanned(self, scan: _Scan) -> None:
        """A log was read to its end."""
        stream = scan.stream
        if not self.is_scanning(scan):
            return
        del self._scans[stream]
        assert stream.state is LogState.REMOTE, "a stream that ends or is continued here is left"
        last = scan.last
        is_parked = last is not None and last.waits
        stream.writer = "" if is_parked else scan.writer
        if last is None or last.final or is_parked:
            self.read_on(stream)
        elif scan.dead is None or scan.writer != scan.dead:
            if scan.writer:
                self.follow(stream)
        elif scan.requests is not None:
            _Ending(self, stream, tuple(scan.requests)).start(last.seq + 1)
        else:
            assert stream.key is not None, "what another instance writes is stored"
            session = self._sessions.find(stream.key.principal, stream.key.session)
            assert session is not None, "a session that ends leaves its streams"
            session.continue_standalone(stream, last.seq, scan.places)

    def on_scan_failed(self, scan: _Scan) -> None:
        """A log could not be read."""
        if self.is_scanning(scan):
            del self._scans[scan.stream]

    def read_on(self, stream: ResumableStream) -> None:
        """Let the reader of a stream read what has been appended."""
        if stream.is_waiting:
            self.table.poll(stream)

    def _scan(self, stream: ResumableStream, dead: str | None) -> None:
        self._scans[stream] = scan = _Scan(self, stream, dead)
        scan.read(0)
