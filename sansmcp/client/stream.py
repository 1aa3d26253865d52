"""A client's end of one stream, over any number of connections.

A stream is what a server says about one request, or about none. It outlives the connections that
carry it where the server gives its events ids: the client keeps a cursor and asks with GET for what
follows. Why a connection ended decides how long it waits:

* The server ended an event stream as it should: it lets its clients poll (SEP-1699). That is no
  failure, whatever the stream brought. The next GET comes after the server's ``retry``, or after
  ``ReconnectPolicy.initial`` where the server names none, for as long as the request waits.
* The connection failed, its body broke off, or the server refused it: that is an *attempt*. The
  server's ``retry`` is a minimum for the delay, and the random part on top grows with each attempt.
  Attempts are counted until there is progress, a new event id or a message, or until the stream
  lasts for longer than ``ReconnectPolicy.cap``, polls included.
* The connection was silent for ``Limits.stream_idle_timeout``: the peer may be gone without a
  word. The client asks again at once. That is an attempt only if the server has not answered the
  GET at all.

Without an event id nothing can be resumed: then the stream is lost, unless it may begin again. At
2026-07-28 no stream has a cursor: what comes on it is no progress, for the next one begins from the
beginning.

Source: 2025-11-25 basic/transports: Resumability and Redelivery; SEP-1699; WHATWG HTML, 9.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from ..states import STREAM, StreamEvent, StreamState, advance
from .http_heads import Refusal
from .options import ReconnectPolicy
from .outcomes import Continue, Lost, NextAttempt, Restart, Resume, Retry, StreamOutcome

if TYPE_CHECKING:
    from .legacy.cursor import Cursor

_MAX_RETRY = 86_400.0
"""Seconds; a server may ask for any time, and selectors raise for one that is too long for them."""


@attrs.define(eq=False, repr=False)
class Stream:
    """Decides when to connect again, and how."""

    number: int
    """Of its request; 0: it is the standalone stream."""
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
    cursor: Cursor | None
    """None where event ids mean nothing."""
    can_restart: bool
    """True if the request may be made again."""
    is_standalone: bool = False
    """True if any new stream of the session is as good as this one."""
    state: StreamState = attrs.field(default=StreamState.OPENING, init=False)
    was_opened: bool = attrs.field(default=False, init=False)
    """True if the server has answered by an event stream at least once."""
    _retry: float | None = attrs.field(default=None, init=False)
    """Seconds that the server wants us to wait, as it last said; None if it never did."""
    _attempts: int = attrs.field(default=0, init=False)
    """Connections that failed since the last progress."""
    _polls: int = attrs.field(default=0, init=False)
    """Connections that ended as they should since the last progress."""
    _up_since: float | None = attrs.field(default=None, init=False)
    """When the first event stream after the latest failure was opened, in seconds on the machine's
    clock; None if there was none yet.
    """
    _body: bytes = attrs.field(default=b"", init=False)
    """The answers of a turn that were sent, until the response to them has brought something."""

    @property
    def last_event_id(self) -> str:
        """The event id to go on from; "" if there is none."""
        return "" if self.cursor is None else self.cursor.last_event_id

    @property
    def can_resume(self) -> bool:
        """True if a GET can go on with the stream."""
        cursor = self.cursor
        return self.is_standalone or (cursor is not None and cursor.last_event_id != "")

    def opened(self, now: float) -> None:
        """Record that the response is an event stream."""
        self._advance(StreamEvent.OPENED)
        self.was_opened = True
        if self._up_since is None:
            self._up_since = now

    def ended(self, reason: str | None, retry_ms: int | None, now: float) -> StreamOutcome:
        """Conclude what follows the end of a connection; the stream may go on.

        Args:
            reason: why the connection broke; None if the response is complete.
            retry_ms: the reconnection time that the response has named last; None if none.
            now: seconds on the machine's clock.
        """
        self._record_progress(retry_ms)
        why = reason or "the server closed the stream before the answer"
        is_poll = reason is None and self.state is StreamState.READING
        if is_poll and self.can_resume and not self._body:
            return self._poll()
        if self.last_event_id or self.can_restart:
            return self._fail(why, now)
        return self._lose(why, was_complete=reason is None)

    def silent(self, reason: str, retry_ms: int | None, now: float) -> StreamOutcome:
        """Conclude what follows a connection that was silent for too long, and was aborted."""
        self._record_progress(retry_ms)
        if self.state is StreamState.OPENING:
            return self._fail(reason, now)
        return self._wait(0.0, 0, reason)

    def refused(self, refusal: Refusal, now: float) -> StreamOutcome | None:
        """Conclude what follows a refusal; None: it is final.

        What may pass is tried again, but never a request that may have been executed.
        """
        self._record_progress(None)
        if self.cursor is None:
            is_retry = self._attempts > 0 and refusal.error is None and refusal.is_retryable
            may_retry = is_retry and self.can_restart and self._attempts < self._policy.max_attempts
        else:
            may_repeat = refusal.request.method == b"GET" or self._body != b""
            # 409: the server has one standalone stream, and has not noticed that its connection
            # broke.
            is_taken = refusal.status == 409 and self.is_standalone and self.was_opened
            may_retry = is_taken or (may_repeat and refusal.is_retryable)
        if may_retry:
            return self._fail(refusal.message, now, refusal.retry_after)
        if self.last_event_id and refusal.status != 404:
            assert self.cursor is not None
            self.cursor.last_event_id, self._body = "", b""
            return self.ended(f"it cannot be resumed: {refusal.message}", None, now)
        self._advance(StreamEvent.CLOSE)
        return None

    def due(self) -> NextAttempt:
        """Return how to connect: the delay before the next attempt is over."""
        self._advance(StreamEvent.RETRY)
        if self._body:
            return Continue(self._body, self.last_event_id)
        return Resume(self.last_event_id) if self.can_resume else Restart()

    def restarted(self) -> None:
        """Record that the request is made again, from the beginning."""
        self._body = b""

    def parked(self, retry_ms: int | None) -> None:
        """Record that the server has ended the connection until it has the answers of a turn."""
        self._record_progress(retry_ms)
        self._advance(StreamEvent.PARKED)

    def continued(self, body: bytes) -> NextAttempt:
        """Return how to go on: all answers of a turn are there."""
        self._body = body
        return self.due()

    def _poll(self) -> Retry:
        """Ask again when the server wants us to."""
        polls = self._polls if self.is_standalone else 0  # a call waits: it is told without delay
        self._polls += 1
        delay = self._policy.poll_delay(polls, self._retry, self._jitter())
        return self._wait(delay, 0, "the server ended the connection, and more is to follow")

    def _fail(self, reason: str, now: float, wait: float = 0.0) -> StreamOutcome:
        """Try again after a while, ``wait`` at least, unless that was tried often enough."""
        if self._up_since is not None and now - self._up_since > self._policy.max_delay:
            self._attempts = 0
        self._up_since = None
        self._attempts += 1
        if self._attempts > self._policy.max_attempts:
            tried = f"given up after {self._policy.max_attempts} attempts without progress: "
            return self._lose(tried + reason)
        wait = max(self._retry or 0.0, wait)
        delay = self._policy.delay(self._attempts, wait, self._jitter())
        return self._wait(delay, self._attempts, reason)

    def _wait(self, delay: float, attempt: int, reason: str) -> Retry:
        self._advance(StreamEvent.BROKEN)
        return Retry(delay, attempt, reason)

    def _lose(self, reason: str, *, was_complete: bool = False) -> Lost:
        self._advance(StreamEvent.CLOSE)
        return Lost(reason, was_complete)

    def _record_progress(self, retry_ms: int | None) -> None:
        """Take into account what the connection has brought."""
        if self.cursor is not None and self.cursor.has_progress:
            self.cursor.has_progress = False
            self._attempts, self._polls, self._body = 0, 0, b""
        if retry_ms is not None and self.cursor is not None:
            self._retry = min(retry_ms / 1000, _MAX_RETRY)

    def _advance(self, event: StreamEvent) -> None:
        self.state = advance(STREAM, self.state, event)
