"""A client's end of one stream, over any number of connections.

A stream carries the messages of one request, or the standalone ones. If the server gives its events
ids, the stream outlives its connections: the client keeps a cursor, and resumes with a GET. The
delay before it depends on how the connection ended:

* The server ended the event stream properly, so that the client polls (SEP-1699). That is no
  failure, even if the stream carried no message. The next GET follows after the server's ``retry``,
  or after ``ReconnectPolicy.initial_delay`` if the server sent none, for as long as the request
  waits.
* The connection failed, its body broke off, or the server refused it. That is an *attempt*. The
  delay is the server's ``retry`` and a random part, which grows with each attempt.
  The count starts again after progress (a new event id or a message), or if the stream lasts longer
  than ``ReconnectPolicy.max_delay``, polls included.
* The connection was silent for ``idle_limit``, so it may be dead. The client
  reconnects at once. That is an attempt only if the server had not responded to the request.

Without an event id a stream cannot be resumed: it is lost, unless its request may be repeated. At
2026-07-28 no stream has a cursor. Messages on it are no progress there, because the next stream
starts from the beginning. Its silence counts only for a subscription, which is made again, and for
a call with a key (``sansmcp/reclaim``), from the time when it was sent.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; SEP-1699; WHATWG HTML, 9.2.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import attrs

from ..states import STREAM, StreamEvent, StreamState, advance
from .connections import Connections
from .http_heads import Refusal
from .outcomes import Continue, Lost, NextAttempt, Restart, Resume, Retry, StreamOutcome

if TYPE_CHECKING:
    from .legacy.cursor import Cursor

SHARED = 0
"""The number of a stream that belongs to no request."""


class StreamKind(enum.Enum):
    """What a stream carries, on which depends what its silence and its end mean."""

    REQUEST = enum.auto()
    """The messages of one request. Unless it can be resumed, only the timeouts of its call count.
    """
    KEYED = enum.auto()
    """Those of a call whose response can be had by a key (``sansmcp/reclaim``)."""
    SUBSCRIPTION = enum.auto()
    """Those of ``subscriptions/listen``, which any new subscription can replace."""
    STANDALONE = enum.auto()
    """Those that belong to no request. Any new stream of the session can replace it."""
    SESSION = enum.auto()
    """All messages: the event stream of HTTP+SSE, which ends with its connection."""


_REQUEST: Final = StreamKind.REQUEST


@attrs.define(eq=False, repr=False)
class Stream:
    """Decides when and how to reconnect."""

    number: int
    """The number of its request; SHARED if it belongs to none."""
    connections: Connections
    cursor: Cursor | None
    """None if the stream cannot be resumed at this revision."""
    can_restart: bool
    """True if the request may be repeated."""
    idle_limit: float
    """Seconds without a byte after which the connection may be dead."""
    kind: StreamKind = StreamKind.REQUEST
    heard_at: float | None = None
    """Time of the last part of a response that is no event stream, in seconds on the machine's
    clock; -inf before the first. None if its silence never has to be noticed.
    """
    state: StreamState = attrs.field(default=StreamState.OPENING, init=False)
    _body: bytes = attrs.field(default=b"", init=False)
    """The POST body with the responses of a turn, until there is progress after it."""

    @property
    def last_event_id(self) -> str:
        """The event id to resume from; "" if there is none."""
        return "" if self.cursor is None else self.cursor.last_event_id

    @property
    def can_resume(self) -> bool:
        """True if a GET can resume the stream."""
        cursor = self.cursor
        is_resumed = cursor is not None and cursor.last_event_id != ""
        return is_resumed or self.kind is StreamKind.STANDALONE

    @property
    def notices_silence(self) -> bool:
        """True if the client acts on the silence of the connection."""
        return self.kind is not _REQUEST or self.can_resume

    def opened(self, now: float) -> None:
        """Record that the server has responded with an event stream."""
        self._advance(StreamEvent.OPENED)
        self.connections.opened(now)

    def ended(
        self, reason: str | None, retry_ms: int | None, now: float, came: str = ""
    ) -> StreamOutcome:
        """Return whether to reconnect after the end of a connection.

        Args:
            reason: why the connection broke; None if the response is complete.
            retry_ms: the last reconnection time of the response, in milliseconds; None if none.
            now: the current time in seconds, on the machine's clock.
            came: what the server has sent instead of a response, as text; "" if nothing.
        """
        self._record_progress(retry_ms)
        why = reason or "the server closed the stream before the response"
        if came:
            why += f"; it has sent, instead of a JSON-RPC message: {came}"
        is_poll = reason is None and self.state is StreamState.READING
        if is_poll and self.can_resume and not self._body:
            return self._poll()
        if self.last_event_id or self.can_restart:
            return self._fail(why, now)
        return self._lose(why, was_complete=reason is None)

    def silent(self, reason: str, retry_ms: int | None, now: float) -> StreamOutcome:
        """Return whether to reconnect after a connection was aborted as silent."""
        self._record_progress(retry_ms)
        if self.state is StreamState.OPENING:
            return self._fail(reason, now)
        return self._wait(0.0, 0, reason)

    def refused(self, refusal: Refusal, now: float) -> StreamOutcome | None:
        """Return whether to reconnect after a refusal; None if it is final.

        Temporary refusals are retried, but never a request that the server may have run.
        """
        self._record_progress(None)
        if self.cursor is None:
            failures, most = self.connections.failures, self.connections.policy.max_attempts
            is_retry = failures > 0 and refusal.error is None and refusal.is_retryable
            may_retry = is_retry and self.can_restart and failures < most
        else:
            may_repeat = refusal.request.method == b"GET" or self._body != b""
            # 409: the server allows one standalone stream, and has not yet noticed that the
            # connection of ours broke.
            is_standalone = self.kind is StreamKind.STANDALONE
            is_taken = refusal.status == 409 and is_standalone and self.connections.was_opened
            # A page in place of a stream that was never opened: there may be none at this URL.
            is_stranger = refusal.is_page and not self.connections.was_opened
            may_retry = is_taken or (may_repeat and refusal.is_retryable and not is_stranger)
        if may_retry:
            return self._fail(refusal.message, now, refusal.retry_after)
        if self.last_event_id and refusal.status != 404:
            assert self.cursor is not None
            self.cursor.last_event_id, self._body = "", b""
            return self.ended(f"it cannot be resumed: {refusal.message}", None, now)
        self._advance(StreamEvent.CLOSE)
        return None

    def due(self) -> NextAttempt:
        """Return how to reconnect, after the delay."""
        self._advance(StreamEvent.RETRY)
        if self._body:
            return Continue(self._body, self.last_event_id)
        return Resume(self.last_event_id) if self.can_resume else Restart()

    def restarted(self) -> None:
        """Record that the request is sent again, from the beginning."""
        self._body = b""

    def parked(self, retry_ms: int | None) -> None:
        """Record that the server waits for the responses of a turn, without a connection."""
        self._record_progress(retry_ms)
        self._advance(StreamEvent.PARKED)

    def continued(self, body: bytes) -> NextAttempt:
        """Return how to send ``body``, the complete responses of a turn."""
        self._body = body
        return self.due()

    def _poll(self) -> Retry:
        """Reconnect after the server's ``retry``."""
        delay = self.connections.polled(grows=self.kind is StreamKind.STANDALONE)
        return self._wait(
            delay, 0, "the server closed the connection, and the client polls for the rest"
        )

    def _fail(self, reason: str, now: float, wait: float = 0.0) -> StreamOutcome:
        """Reconnect after at least ``wait`` seconds, unless all attempts have been used."""
        delay = self.connections.failed(now, wait)
        if delay is None:
            most = self.connections.policy.max_attempts
            return self._lose(f"given up after {most} attempts without progress: {reason}")
        return self._wait(delay, self.connections.failures, reason)

    def _wait(self, delay: float, attempt: int, reason: str) -> Retry:
        self._advance(StreamEvent.BROKEN)
        return Retry(delay, attempt, reason)

    def _lose(self, reason: str, *, was_complete: bool = False) -> Lost:
        self._advance(StreamEvent.CLOSE)
        return Lost(reason, was_complete)

    def _record_progress(self, retry_ms: int | None) -> None:
        """Reset the counts after progress, and record the reconnection time."""
        if self.cursor is not None and self.cursor.has_progress:
            self.cursor.has_progress = False
            self._body = b""
            self.connections.progressed()
        if self.cursor is not None:
            self.connections.set_retry(retry_ms)

    def _advance(self, event: StreamEvent) -> None:
        self.state = advance(STREAM, self.state, event)
