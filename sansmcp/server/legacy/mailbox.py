"""Deliver responses and cancellations to the instance that waits for them.

A handler runs on one instance. The client's response to its server request, or the cancellation of
its call, is a separate POST, which a load balancer may send to any other instance. That instance
appends the message to a mailbox: a log in the store, named after the JSON-RPC id. The instance that
runs the handler reads the mailbox when the store tells of a change, or from time to time.

A message is only left in a mailbox that the waiting instance has opened, by a first entry. The
mailbox of a server request is opened together with the request; that of a call after its first
``store_poll_interval``, since most calls end sooner, or when the call is parked. A cancellation
or a response that finds no mailbox looks for it for some time, because the store may have failed at
that one append, or be slow. So a peer that makes up ids writes nothing to the store.

Clients repeat a POST that failed, so two instances may get the same message. Both append it under
the same sequence number; the second append conflicts and is ignored.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server, basic/utilities:
cancellation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import attrs

from ...codecs import json, jsonrpc
from ...effects import StoreEffect, StoreRead
from ...messages import ErrorResponse, Notification, RequestId, Response
from ...store import Entry, Page, StreamKey
from .. import refusals
from ..exchange import ServerExchange
from ..logs import LogReader, StoreOperation
from .stream_table import StreamTable

_MAX_REASON_CHARS = 1000
"""Characters that are kept of the reason of a cancellation."""

_LOOKS = 5.0
"""Seconds for which a message looks for a mailbox that may be opened late."""


def cancellation_mailbox(id: RequestId) -> str:
    """Return the name of the log for the cancellation of a request.

    No stream has such a name, because tokens contain no point.
    """
    return f".cancelled.{hashlib.sha256(json.encode(id)).hexdigest()}"


def response_mailbox(id: int) -> str:
    """Return the name of the log for the response to a server request."""
    return f".answer.{id}"


def reason_of(cancellation: Notification) -> str:
    """Return the reason of a cancellation, cut to a fixed length."""
    reason = (cancellation.params or {}).get("reason")
    return reason[:_MAX_REASON_CHARS] if isinstance(reason, str) else "cancelled by the client"


@attrs.define(eq=False, repr=False)
class MailboxPost(LogReader):
    """Appends one message to a mailbox, if it is not there already."""

    _table: StreamTable
    _key: StreamKey
    _data: bytes
    _exchange: ServerExchange | None = None
    """The exchange of the POST that brought the message; it is responded to at the end."""
    looks_again: bool = attrs.field(default=False, kw_only=True)
    """True to look for some time for a mailbox that may be opened late."""
    holds_exchange: bool = attrs.field(default=False, kw_only=True)
    """True to respond to the POST after that time, not before: the client sends the message again
    if this instance dies meanwhile.
    """
    _looks_until: float | None = attrs.field(default=None, init=False)
    """Until when it looks for the mailbox; None if it has looked only once."""

    def append(self, seq: int = 1) -> None:
        """Append the message under this sequence number."""
        self._table.logs.append(self._key, (Entry(seq, self._data),), self)

    def append_if_expected(self) -> None:
        """Append the message if an instance has opened the mailbox."""
        _read(self._table, self._key, 0, self)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if page is None and self.looks_again:
            self._look_again()
            return
        self._stop_looking()
        if page is not None and page.last.seq == 1:
            self.append(2)
        else:
            self.on_append_done()

    def poll_store(self) -> None:
        """Look for the mailbox again."""
        self.append_if_expected()

    def _look_again(self) -> None:
        """Look again later, unless as many messages of the session wait as it may have calls."""
        core, late = self._table.core, self._table.late
        if self._looks_until is None:
            is_over_limit = late.of(self._session) >= core.limits.max_calls_per_session
            if is_over_limit or not self.holds_exchange:
                self.on_append_done()
            if is_over_limit:
                return
            late.change(self._session, 1)
            self._looks_until = core.now + _LOOKS
            self._table.logs.watch(self._key, self)
        if core.now < self._looks_until:
            self._table.logs.poll_later(self._key, self)
        else:
            self._stop_looking()
            self.on_append_done()

    def _stop_looking(self) -> None:
        if self._looks_until is not None:
            self._looks_until = None
            self._table.late.change(self._session, -1)
            self._table.logs.unwatch(self._key, self)

    @property
    def _session(self) -> tuple[str, str]:
        return self._key.principal, self._key.session

    def on_append_done(self) -> None:
        """Respond to the POST: the message is stored, or nothing waits for it."""
        if self._exchange is not None and not self._exchange.is_done:
            self._exchange.send_response(202)

    def on_append_conflict(self) -> None:
        """Treat the message as delivered: another instance has appended it."""
        self.on_append_done()

    def on_append_behind(self) -> None:
        """The store has lost the mailbox, and the call that opened it cannot be reached."""
        self.on_append_done()

    def may_repeat(self, effect: StoreEffect) -> bool:
        """What was accepted, or runs here, waits for the store."""
        return True

    def failed(self, effect: StoreEffect) -> bool:
        """Refuse the POST, so that the client may send the message again."""
        self._stop_looking()
        if self._exchange is not None and not self._exchange.is_done:
            self._exchange.refuse(refusals.store_failed())
        return True


@attrs.define(eq=False, repr=False)
class MailboxPoll(LogReader):
    """Polls a mailbox for a message, for as long as ``is_active()``."""

    _table: StreamTable
    _key: StreamKey
    after: int = attrs.field(default=0, kw_only=True)
    """The sequence number after which the message comes."""
    opens_mailbox: bool = attrs.field(default=False, kw_only=True)
    """True to open the mailbox with a first entry at the first poll."""
    is_active: Callable[[], bool] = attrs.field(kw_only=True)
    on_message: Callable[[bytes], None] = attrs.field(kw_only=True)
    """Called with the data of the message."""
    on_gone: Callable[[], None] = attrs.field(kw_only=True)
    """Called if the mailbox is no longer in the store: it was evicted, or the session has ended at
    another instance. The mailbox is opened again.
    """

    def wait(self) -> None:
        """Poll later, as long as the message is needed."""
        if not self.is_active():
            self._table.logs.unwatch(self._key, self)
            return
        if not self.opens_mailbox:
            self._table.logs.watch(self._key, self)
        self._table.logs.poll_later(self._key, self)

    def poll_store(self) -> None:
        """Read the mailbox."""
        if not self.is_active():
            self._table.logs.unwatch(self._key, self)
            return
        if self.opens_mailbox:
            self.opens_mailbox = False
            MailboxPost(self._table, self._key, b"").append()
        _read(self._table, self._key, self.after, self)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if page is None:
            self.opens_mailbox = True
            self.on_gone()
        if page is None or not page.entries:
            self.wait()
            return
        self._table.logs.unwatch(self._key, self)
        if self.is_active():
            self.on_message(page.entries[0].data)

    def failed(self, effect: StoreEffect) -> bool:
        """Poll again later."""
        self.wait()
        return True


def _read(table: StreamTable, key: StreamKey, after: int, user: StoreOperation) -> None:
    table.logs.read(key, after, user, limit=1, max_bytes=table.limits.max_stored_bytes)


def decode_response(table: StreamTable, data: bytes) -> Response | ErrorResponse:
    """Return the response in an entry of a mailbox."""
    response = jsonrpc.decode(data, table.limits)
    assert isinstance(response, Response | ErrorResponse)
    return response
