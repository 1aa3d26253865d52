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

from collections.abc import Sequence
from functools import partial

import attrs

from ...codecs import jsonrpc
from ...limits import Limits
from ...messages import ErrorResponse, RequestId, Response
from ...states import LogState
from ...store import AppendResult, Entry, EntryKind, StreamKey
from .. import refusals
from ..core import ServerCore
from ..leases import Peers
from ..procedures import Procedure, StepFailedError, Steps, append, read
from ..records import RecordTooNewError
from .mailbox import cancellation_mailbox, post_message
from .sessions import SessionTable
from .stream_table import StreamTable
from .streams import ResumableStream, WriterDeclaration, place_of


@attrs.define(eq=False, repr=False)
class _Scan:
    """What the entries of a log say: who writes it, and which requests are not answered."""

    _limits: Limits
    declared: WriterDeclaration | None = attrs.field(default=None, init=False)
    """The last declaration of a writer; None if it is no longer stored."""
    requests: dict[RequestId, None] = attrs.field(factory=lambda: {}, init=False)
    """The requests that are not answered; empty for a standalone stream."""
    places: dict[str, int] = attrs.field(factory=lambda: {}, init=False)
    """By log: the number of the last entry that was forwarded to this one."""

    @property
    def writer(self) -> str:
        """The instance that writes the log; empty if it is not known."""
        return "" if self.declared is None else self.declared.instance

    @property
    def is_standalone(self) -> bool:
        """True for a standalone stream, which answers no requests."""
        return self.declared is None or self.declared.requests is None

    def take(self, entry: Entry) -> None:
        """Look at the next entry. Raises RecordTooNewError."""
        declared = WriterDeclaration.of(entry)
        if entry.kind is EntryKind.FORWARDED:
            log, seq = place_of(entry)
            self.places[log] = seq
        if declared is not None:
            self.places.update(declared.places)
            if entry.kind is not EntryKind.KEPT or self.declared is None:
                self.declared = declared
                self.requests = dict.fromkeys(declared.requests or ())
            # else repeated only so that it is not evicted: its requests may have been answered
        elif self._is_batch and entry.kind is EntryKind.MESSAGE and self.requests:
            message = jsonrpc.decode(entry.data, self._limits)
            if isinstance(message, Response | ErrorResponse) and message.id is not None:
                self.requests.pop(message.id, None)

    @property
    def _is_batch(self) -> bool:
        """True if a response need not be the end of the log."""
        return self.declared is not None and len(self.declared.requests or ()) > 1


@attrs.define(eq=False, repr=False)
class Writers:
    """The instances whose streams have readers here."""

    core: ServerCore
    table: StreamTable
    _sessions: SessionTable
    _peers: Peers
    _known: dict[ResumableStream, str] = attrs.field(factory=dict[ResumableStream, str], init=False)
    """The other instance that writes each stream, if it is known; empty if the call is parked, so
    that none does, or if its name is no longer stored.
    """
    _following: dict[ResumableStream, str] = attrs.field(
        factory=dict[ResumableStream, str], init=False
    )
    """The instance that writes each stream that is followed."""
    _scans: dict[ResumableStream, Procedure] = attrs.field(
        factory=dict[ResumableStream, Procedure], init=False
    )
    """The streams whose logs are read from the beginning, for a reader that waits."""

    def follow(self, stream: ResumableStream) -> None:
        """Notice if the instance that writes a stream dies, as long as a reader waits for it."""
        if stream in self._scans:
            return
        writer = self._known.get(stream)
        if writer is None:
            self._scan(stream, None)
        elif self._following.get(stream, "") != writer:
            self._stop_following(stream)
            self._following[stream] = writer
            self._peers.follow(writer, stream, partial(self._on_death, stream, writer))

    def note(self, stream: ResumableStream, instance: str) -> None:
        """Note the instance that writes a stream."""
        self._known[stream] = instance

    def leave(self, stream: ResumableStream) -> None:
        """Follow the writer of a stream no more, and forget it."""
        self._known.pop(stream, None)
        self._stop_following(stream)

    def _stop_following(self, stream: ResumableStream) -> None:
        scan = self._scans.pop(stream, None)
        if scan is not None:
            scan.close()
        instance = self._following.pop(stream, None)
        if instance is not None:
            self._peers.leave(instance, stream)

    def _on_death(self, stream: ResumableStream, instance: str) -> None:
        """Go on with a log of an instance that has died."""
        self._stop_following(stream)
        self._scan(stream, instance)

    def _scan(self, stream: ResumableStream, dead: str | None) -> None:
        """Read a log from its beginning.

        ``dead``: the instance that has died; None to find out who writes the log.
        """
        steps = self._go_on(stream, dead)
        self._scans[stream] = scan = Procedure(self.table.logs, steps, lambda: True)
        scan.start()

    def _go_on(self, stream: ResumableStream, dead: str | None) -> Steps[None]:
        scan = _Scan(self.core.limits)
        key = stream.key
        assert key is not None, "what another instance writes is stored"
        try:
            last = yield from self._read(key, scan)
        except (StepFailedError, RecordTooNewError):
            return  # the readers go on waiting: they see that themselves
        finally:
            self._scans.pop(stream, None)
        assert stream.state is LogState.REMOTE, "a stream that ends or is continued here is left"
        is_parked = last is not None and last.waits
        self._known[stream] = "" if is_parked else scan.writer
        if last is None or last.final or is_parked:
            self._read_on(stream)
        elif dead is None or scan.writer != dead:
            if scan.writer:
                self.follow(stream)
        elif not scan.is_standalone:
            yield from self._end(stream, key, tuple(scan.requests), last.seq + 1)
        else:
            session = self._sessions.find(key.principal, key.session)
            assert session is not None, "a session that ends leaves its streams"
            session.continue_standalone(stream, last.seq, scan.places)

    def _read(self, key: StreamKey, scan: _Scan) -> Steps[Entry | None]:
        """Read a log to its end. Returns the last entry; None if the store has no such log."""
        limits, after = self.core.limits, 0
        while True:
            page = yield from read(key, after, limits.replay_page_entries, limits.max_unsent_bytes)
            for entry in page.entries if page is not None else ():
                scan.take(entry)
            if page is None or not page.entries or page.entries[-1].seq >= page.last.seq:
                return None if page is None else page.last
            after = page.entries[-1].seq

    def _end(
        self, stream: ResumableStream, key: StreamKey, requests: Sequence[RequestId], seq: int
    ) -> Steps[None]:
        """Append an error for each request, the first under number ``seq``; let the reader read."""
        last = seq + len(requests) - 1
        entries = tuple(
            Entry(number, jsonrpc.encode(refusals.INSTANCE_LOST(id).reply), number == last)
            for number, id in enumerate(requests, seq)
        )
        try:
            result = yield from append(key, entries)
        except StepFailedError:
            return
        if result is AppendResult.STORED:
            # Cancel the handlers, in case their instance was only slow.
            for id in requests:
                mailbox = attrs.evolve(key, stream=cancellation_mailbox(id))
                post_message(self.table, mailbox, b"another instance has ended the call")
        # After a conflict the writer lives, or another follower was first. If the store has lost
        # the end of the log, its reader is told when it reads.
        self._read_on(stream)

    def _read_on(self, stream: ResumableStream) -> None:
        """Let the reader of a stream read what has been appended."""
        if stream.is_waiting:
            assert stream.key is not None, "what another instance writes is stored"
            self.table.logs.poll(stream.key, stream)
