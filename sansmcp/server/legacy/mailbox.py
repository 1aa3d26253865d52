"""What comes to one instance of a server and is meant for another.

A handler that runs is at one instance, and so is what it asks and waits for. The client's answer,
or its cancellation, may come to any. The instance to which it comes does not know who waits for it,
so it leaves it in the store, in a log that is named after what it is about. Whoever may be waiting
looks there every ``store_poll_interval``.

Only what somebody waits for is left: the log begins with an entry of the instance that waits. For
a question that is written together with the question; for a call after its first
``store_poll_interval``, since most calls end sooner, or when it is parked. A cancellation that
finds no such entry is looked at once more, after the call has had the time to write it. So a peer
that makes up ids writes nothing.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server, basic/utilities:
cancellation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import attrs

from ...codecs import json, jsonrpc
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...messages import ErrorResponse, Notification, RequestId, Response
from ...store import Entry, Page, StreamKey
from ...timers import Timer
from ..exchange import ServerExchange
from .stream_table import StreamTable, store_failed

_LONGEST_REASON = 1000
"""Characters."""


def cancellation_mailbox(id: RequestId) -> str:
    """Where the cancellation of a request is left. No stream has such a name: it has points."""
    return f".cancelled.{hashlib.sha256(json.encode(id)).hexdigest()}"


def response_mailbox(id: int) -> str:
    """Where the answer to a question is left, after an entry that says that it was asked."""
    return f".answer.{id}"


def reason_of(cancellation: Notification) -> str:
    """Why a request is cancelled, as the client says."""
    reason = (cancellation.params or {}).get("reason")
    return reason[:_LONGEST_REASON] if isinstance(reason, str) else "cancelled by the client"


@attrs.define(eq=False, repr=False)
class MailboxPost:
    """Something is left in a log. Where it is already, nothing is to be done."""

    _table: StreamTable
    _key: StreamKey
    _data: bytes
    _exchange: ServerExchange | None = None
    """That which has brought it, and is answered then; None: nothing waits."""
    looks_again: bool = attrs.field(default=False, kw_only=True)
    """Whether somebody may begin to wait only now: then look a second time."""

    def append(self, seq: int = 1) -> None:
        """Leave it under this number."""
        entries = (Entry(seq, self._data),)
        self._table.start_operation(StoreAppend(stream=self._key, entries=entries), self)

    def append_if_expected(self) -> None:
        """Leave it if there is somebody who waits for it."""
        self._table.start_operation(_read(self._table, self._key, 0), self)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if page is not None and page.last.seq == 1:
            self.append(2)
            return
        if page is None and self.looks_again:
            self._wait()
        self.on_append_done()

    def poll_store(self) -> None:
        """See once more whether there is somebody who waits."""
        self._table.late.change(self._session, -1)
        self.append_if_expected()

    def _wait(self) -> None:
        """Look again, unless the session has as many that wait as it may have calls."""
        self.looks_again = False
        core, late = self._table.core, self._table.late
        if late.of(self._session) < core.limits.max_calls_per_session:
            late.change(self._session, 1)
            core.timers.set(Timer.STORE_POLL, self, core.now + 2 * core.limits.store_poll_interval)

    @property
    def _session(self) -> tuple[str, str]:
        return self._key.principal, self._key.session

    def on_append_done(self) -> None:
        """It can be found."""
        if self._exchange is not None and not self._exchange.is_done:
            self._exchange.send_response(202)

    def on_append_conflict(self) -> None:
        """Others have left it."""
        self.on_append_done()

    def failed(self, effect: StoreEffect) -> bool:
        """The client may send it again."""
        if self._exchange is not None and not self._exchange.is_done:
            self._exchange.refuse(store_failed())
        return True


@attrs.define(eq=False, repr=False)
class MailboxPoll:
    """Looks for what may be left in a log, for as long as it is wanted."""

    _table: StreamTable
    _key: StreamKey
    after: int = attrs.field(default=0, kw_only=True)
    """Behind which entry it will be."""
    announces: bool = attrs.field(default=False, kw_only=True)
    """Whether to write first that somebody waits; see above."""
    is_active: Callable[[], bool] = attrs.field(kw_only=True)
    on_message: Callable[[bytes], None] = attrs.field(kw_only=True)
    """Is given the data."""

    def wait(self) -> None:
        """Look after a while."""
        if self.is_active():
            core = self._table.core
            core.timers.set(Timer.STORE_POLL, self, core.now + core.limits.store_poll_interval)

    def poll_store(self) -> None:
        """See whether it is there."""
        if self.is_active():
            if self.announces:
                self.announces = False
                MailboxPost(self._table, self._key, b"").append()
            self._table.start_operation(_read(self._table, self._key, self.after), self)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if page is None or not page.entries:
            self.wait()
        elif self.is_active():
            self.on_message(page.entries[0].data)

    def on_append_done(self) -> None:
        """Nothing is written."""

    def on_append_conflict(self) -> None:
        """Nothing is written."""

    def failed(self, effect: StoreEffect) -> bool:
        """Perhaps the next time."""
        self.wait()
        return True


def _read(table: StreamTable, key: StreamKey, after: int) -> StoreRead:
    return StoreRead(stream=key, after=after, limit=1, max_bytes=table.limits.max_stored_bytes)


def decode_response(table: StreamTable, data: bytes) -> Response | ErrorResponse:
    """An answer that was left."""
    answer = jsonrpc.decode(data, table.limits)
    assert isinstance(answer, Response | ErrorResponse)
    return answer
