"""Send the messages of a client that get no response: notifications, and its responses.

Each is one POST, and any HTTP success completes it. A notification is sent once, unless no byte of
it has left. A response is sent again after a temporary failure, because the server waits for it and
ignores a second one. The same holds for the notification that completes the handshake, and for
``tasks/cancel``. That is a request: its response completes it, and an error response, such as that
of a store that fails, is a refusal.

Each POST must end within ``Limits.post_timeout`` seconds, including its wait in the queue. At most
``Limits.max_open_posts`` are open at a time, and at most ``Limits.max_pending_calls`` are pending
altogether. This bounds the connections and memory for a server that accepts no messages.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator

import attrs

from ..codecs.jsonrpc import INTERNAL_ERROR
from ..http import Unsent
from ..limits import Limits
from ..messages import ErrorResponse, Message, Notification, Request, Response
from ..reclaim import CANCEL
from ..timers import Timer, TimerTable
from .exchange import ForPost
from .message_encoder import MessageEncoder
from .options import ReconnectPolicy
from .outcomes import (
    Delivered,
    Ended,
    Invalid,
    PostDelayed,
    PostOutcome,
    ReaderOutcome,
    Refused,
    SessionOver,
    Undelivered,
)
from .transports.http import HttpExchanges

INITIALIZED = Notification("notifications/initialized")
"""The notification that completes a handshake."""


@attrs.define(eq=False, repr=False)
class PendingPost:
    """One message that the server has not accepted yet."""

    number: int
    message: Request | Notification | Response | ErrorResponse
    exchange: int | None = attrs.field(default=None, init=False)
    """The exchange that carries it; None while it waits."""
    is_delayed: bool = attrs.field(default=False, init=False)
    """True while it waits for its next attempt."""
    _attempts: int = attrs.field(default=0, init=False)

    def failed(
        self,
        reason: str,
        policy: ReconnectPolicy,
        jitter: Callable[[], float],
        *,
        is_retryable: bool,
        wait: float = 0.0,
        was_sent: bool = True,
    ) -> PostOutcome:
        """Return whether to send the message again after a failed attempt.

        Args:
            reason: why the attempt failed.
            policy: the number of attempts and the delays.
            jitter: returns a random number from 0 to 1.
            is_retryable: False if another attempt would fail in the same way.
            wait: the seconds to wait at least.
            was_sent: False if no byte of it was sent, so that it may be sent again.
        """
        self._attempts += 1
        message = self.message
        is_once = (
            was_sent
            and isinstance(message, Notification)
            and message is not INITIALIZED
            and message.method != CANCEL
        )
        if is_once or not is_retryable or self._attempts > policy.max_attempts:
            return Undelivered(self.message, reason)
        delay = policy.delay(self._attempts, wait, jitter())
        return PostDelayed(self.message, delay, reason)


@attrs.define(eq=False, repr=False)
class Posts:
    """Sends the messages of one client, each in an exchange of its own."""

    _limits: Limits
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
    _http: HttpExchanges
    _encoder: MessageEncoder
    _timers: TimerTable
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _all: dict[int, PendingPost] = attrs.field(factory=dict[int, PendingPost], init=False)
    """The messages that are open, queued, or wait for their next attempt."""
    _open: int = attrs.field(default=0, init=False)
    _waiting: OrderedDict[int, None] = attrs.field(factory=OrderedDict[int, None], init=False)
    """The queued messages, in the order in which to send them."""

    @property
    def is_full(self) -> bool:
        """True if no further message can be added."""
        return len(self._all) >= self._limits.max_pending_calls

    @property
    def is_empty(self) -> bool:
        """True if no message is pending."""
        return not self._all

    @property
    def why_full(self) -> str:
        """The reason why no further message can be added, as text for an error or event."""
        most = self._limits.max_pending_calls
        return f"{most} messages wait for the server to accept them already (max_pending_calls)"

    def add(
        self, message: Request | Notification | Response | ErrorResponse, now: float
    ) -> Undelivered | None:
        """Send a message, now or when fewer are open; return Undelivered if there is no room."""
        if self.is_full:
            return Undelivered(message, self.why_full)
        post = PendingPost(next(self._numbers), message)
        self._all[post.number] = post
        self._queue(post, now)
        return None

    def responded(
        self, number: int, outcome: ReaderOutcome, now: float
    ) -> PostOutcome | SessionOver | None:
        """Return what an outcome of the HTTP response means.

        It is None before the response to a request: what comes until then is about a call that was
        given up.
        """
        post = self._all[number]
        match outcome:
            case Ended(None) if not isinstance(post.message, Request):
                return self._delivered(post, now)
            case Ended(reason, unsent):
                why = reason or "the server closed the stream before the response"
                is_retryable, was_sent = unsent is not Unsent.PERMANENT, unsent is None
                return self._failed(post, why, now, is_retryable=is_retryable, was_sent=was_sent)
            case Refused(refusal):
                if refusal.ends_session:
                    return SessionOver(refusal)
                is_retryable, wait = refusal.is_retryable, refusal.retry_after
                return self._failed(
                    post, refusal.message, now, is_retryable=is_retryable, wait=wait
                )
            case Response() | ErrorResponse():
                assert post.exchange is not None
                self._http.discard_response(post.exchange, now)
                if isinstance(outcome, Response):
                    return self._delivered(post, now)
                is_retryable = outcome.code == INTERNAL_ERROR
                return self._failed(post, outcome.message, now, is_retryable=is_retryable)
            case Invalid(error, is_fatal=True):
                return self.given_up(number, error.message, now)
            case _:
                return None

    def given_up(self, number: int, reason: str, now: float) -> PostOutcome:
        """Return the outcome of a message that must not be sent again."""
        return self._failed(self._all[number], reason, now, is_retryable=False)

    def due(self, number: int, now: float) -> PostOutcome | None:
        """Return the outcome of a deadline; None if the message is sent again."""
        post = self._all[number]
        if post.is_delayed:
            self._queue(post, now)
            return None
        if post.exchange is not None:
            self._http.abort(post.exchange)
        reason = f"no response within {self._limits.post_timeout:g} s (post_timeout)"
        return self._failed(post, reason, now, is_retryable=True)

    def reopened(self, number: int, exchange: int) -> None:
        """Note that another exchange carries a message: after a redirect, or with a token."""
        self._all[number].exchange = exchange

    def pause(self, number: int) -> None:
        """Stop the time of a message that waits for authorization."""
        self._timers.stop(Timer.POST, number)

    def restart(self, number: int, now: float) -> None:
        """Give a message its full time again, after it has waited for authorization."""
        self._timers.set(Timer.POST, number, now + self._limits.post_timeout)

    def clear(self) -> tuple[Message, ...]:
        """Discard all messages, and return them. Their exchanges end with the session."""
        posts = tuple(self._all.values())
        self._all.clear()
        self._waiting.clear()
        self._open = 0
        for post in posts:
            self._timers.stop(Timer.POST, post.number)
        return tuple(post.message for post in posts)

    def _queue(self, post: PendingPost, now: float) -> None:
        post.is_delayed = False
        self._waiting[post.number] = None
        self._timers.set(Timer.POST, post.number, now + self._limits.post_timeout)
        self._send_next(now)

    def _send_next(self, now: float) -> None:
        """Send the next queued messages, as many as may be open."""
        while self._waiting and self._open < self._limits.max_open_posts:
            number, _ = self._waiting.popitem(last=False)
            self._open += 1
            post = self._all[number]
            body = self._encoder.message(post.message)
            mirrored = self._encoder.message_headers(post.message)
            purpose = ForPost(number, isinstance(post.message, Request))
            post.exchange = self._http.open(purpose, b"POST", body, mirrored=mirrored, now=now)

    def _ended(self, post: PendingPost, now: float) -> None:
        """End an attempt that is open or queued, and send the next message."""
        self._timers.stop(Timer.POST, post.number)
        if post.number in self._waiting:
            del self._waiting[post.number]
        else:
            self._open -= 1
        post.exchange = None
        self._send_next(now)

    def _delivered(self, post: PendingPost, now: float) -> Delivered:
        del self._all[post.number]
        self._ended(post, now)
        return Delivered(post.message)

    def _failed(
        self,
        post: PendingPost,
        reason: str,
        now: float,
        *,
        is_retryable: bool,
        wait: float = 0.0,
        was_sent: bool = True,
    ) -> PostOutcome:
        outcome = post.failed(
            reason,
            self._policy,
            self._jitter,
            is_retryable=is_retryable,
            wait=wait,
            was_sent=was_sent,
        )
        if not isinstance(outcome, PostDelayed):
            del self._all[post.number]
        self._ended(post, now)
        if isinstance(outcome, PostDelayed):
            post.is_delayed = True
            self._timers.set(Timer.POST, post.number, now + outcome.delay)
        return outcome
