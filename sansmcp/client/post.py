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
from ..messages import ErrorResponse, Notification, Request, Response
from ..reclaim import CANCEL
from .http_heads import Refusal
from .options import ReconnectPolicy
from .outcomes import Delivered, PostDelayed, PostOutcome, Undelivered

INITIALIZED = Notification("notifications/initialized")
"""The notification that completes a handshake."""


@attrs.define(eq=False, repr=False)
class PendingPost:
    """One message that the server has not accepted yet."""

    number: int
    message: Request | Notification | Response | ErrorResponse
    exchange: int | None = attrs.field(default=None, init=False)
    """The exchange that carries it; None while it waits."""
    deadline: float = attrs.field(default=0.0, init=False)
    """Time when it times out, or is sent again, in seconds on the machine's clock."""
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
    """The pending messages of one client."""

    _limits: Limits
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
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

    def get(self, number: int) -> PendingPost:
        """Return the pending message with this number."""
        return self._all[number]

    def add(
        self, message: Request | Notification | Response | ErrorResponse, now: float
    ) -> PendingPost:
        """Queue a message. Call this only if there is room; pull :meth:`next_post` afterwards."""
        post = PendingPost(next(self._numbers), message)
        self._all[post.number] = post
        self._queue(post, now)
        return post

    def next_post(self) -> PendingPost | None:
        """Return the next message to send now; None if there is none."""
        if not self._waiting or self._open >= self._limits.max_open_posts:
            return None
        number, _ = self._waiting.popitem(last=False)
        self._open += 1
        return self._all[number]

    def ended(
        self, post: PendingPost, reason: str | None, now: float, unsent: Unsent | None = None
    ) -> PostOutcome:
        """Return the outcome of an HTTP response that ended, or broke off for a ``reason``."""
        if reason is None and isinstance(post.message, Request):
            reason = "the server closed the stream before the response"
        if reason is not None:
            is_retryable, was_sent = unsent is not Unsent.PERMANENT, unsent is None
            return self._failed(post, reason, now, is_retryable=is_retryable, was_sent=was_sent)
        return self._delivered(post)

    def answered(
        self, post: PendingPost, answer: Response | ErrorResponse, now: float
    ) -> PostOutcome:
        """Return the outcome of the response to a request."""
        if isinstance(answer, Response):
            return self._delivered(post)
        is_retryable = answer.code == INTERNAL_ERROR
        return self._failed(post, answer.message, now, is_retryable=is_retryable)

    def refused(self, post: PendingPost, refusal: Refusal, now: float) -> PostOutcome:
        """Return the outcome of a refusal."""
        is_retryable, wait = refusal.is_retryable, refusal.retry_after
        return self._failed(post, refusal.message, now, is_retryable=is_retryable, wait=wait)

    def given_up(self, post: PendingPost, reason: str, now: float) -> PostOutcome:
        """Return the outcome of a message that must not be sent again."""
        return self._failed(post, reason, now, is_retryable=False)

    def restart(self, post: PendingPost, now: float) -> None:
        """Give a message its full time again, after it has waited for authorization."""
        post.deadline = now + self._limits.post_timeout

    def due(self, number: int, now: float) -> PostOutcome | None:
        """Return the outcome of a deadline; None if the message was queued for another attempt."""
        post = self._all[number]
        if post.is_delayed:
            self._queue(post, now)
            return None
        reason = f"no response within {self._limits.post_timeout:g} s (post_timeout)"
        return self._failed(post, reason, now, is_retryable=True)

    def clear(self) -> tuple[PendingPost, ...]:
        """Discard all messages, and return them."""
        posts = tuple(self._all.values())
        self._all.clear()
        self._waiting.clear()
        self._open = 0
        return posts

    def _queue(self, post: PendingPost, now: float) -> None:
        post.is_delayed, post.deadline = False, now + self._limits.post_timeout
        self._waiting[post.number] = None

    def _leave(self, post: PendingPost) -> None:
        """End an attempt that is open or queued."""
        if post.number in self._waiting:
            del self._waiting[post.number]
        else:
            self._open -= 1
        post.exchange = None

    def _delivered(self, post: PendingPost) -> Delivered:
        self._leave(post)
        del self._all[post.number]
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
        self._leave(post)
        outcome = post.failed(
            reason,
            self._policy,
            self._jitter,
            is_retryable=is_retryable,
            wait=wait,
            was_sent=was_sent,
        )
        if isinstance(outcome, PostDelayed):
            post.is_delayed, post.deadline = True, now + outcome.delay
        else:
            del self._all[post.number]
        return outcome
