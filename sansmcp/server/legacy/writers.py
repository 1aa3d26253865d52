"""Go on with the streams of an instance that has died.

The log of a call names the instance that writes it, and the requests that it answers. An instance
whose readers follow such a log follows the lease of its writer (``..leases``). If the writer dies,
the follower takes over:

* The log of a call gets an error as its last message. It is unknown how far the handler has come.
* The log of a standalone stream is continued by the follower.

Both are appends under the next number.

A call that is parked is run by no instance, and is not watched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs

from ...codecs import jsonrpc
from ...effects import StoreEffect, StoreRead
from ...messages import ErrorResponse, RequestId, Response
from ...states import LogState
from ...store import Entry, EntryKind, Page
from .. import refusals
from ..core import ServerCore
from ..leases import Peers
from ..logs import StoreOperation
from ..records import RecordTooNewError
from .mailbox import MailboxPost, cancellation_mailbox
from .stream_table import StreamTable
from .streams import ResumableStream, WriterDeclaration, place_of


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
class _Scan(StoreOperation):
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
        self._writers.table.logs.read(
            key, after, self, limit=limits.replay_page_entries, max_bytes=limits.max_unsent_bytes
        )

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        try:
            for entry in page.entries if page is not None else ():
                self._take(entry)
        except RecordTooNewError:  # its readers are refused when they read the entry
            self._writers.on_scan_failed(self)
            return
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


@attrs.define(eq=False, repr=False)
class _Ending(StoreOperation):
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
        self._writers.table.logs.append(self._stream.key, entries, self)

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

    def may_repeat(self, effect: StoreEffect) -> bool:
        """The readers wait for it."""
        return True


@attrs.define(eq=False, repr=False)
class Writers:
    """The instances whose streams have readers here."""

    core: ServerCore
    table: StreamTable
    _sessions: SessionFinder
    _peers: Peers
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
            on_death = partial(self._on_death, stream, stream.writer)
            self._peers.follow(stream.writer, stream, on_death)

    def leave(self, stream: ResumableStream) -> None:
        """Follow the writer of a stream no more."""
        self._scans.pop(stream, None)
        instance = self._following.pop(stream, None)
        if instance is not None:
            self._peers.leave(instance, stream)

    def _on_death(self, stream: ResumableStream, instance: str) -> None:
        """Go on with a log of an instance that has died."""
        self.leave(stream)
        self._scan(stream, instance)

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
            assert stream.key is not None, "what another instance writes is stored"
            self.table.logs.poll(stream.key, stream)

    def _scan(self, stream: ResumableStream, dead: str | None) -> None:
        self._scans[stream] = scan = _Scan(self, stream, dead)
        scan.read(0)
