"""Send the messages of a client that get no response: notifications, and its responses.

Each is one POST, and every success will do, whatever it looks like. A notification is sent once. A
response is sent again when its POST fails in a way that may pass: the server waits for it, and
ignores one that comes twice. So is the notification that completes the handshake.

Each POST must end within ``Limits.post_timeout`` seconds, its wait for its turn included. At most
``Limits.max_open_posts`` are open at a time; the others wait in order, and with them at most
``Limits.max_pending_calls`` are under way. A server that takes no notifications thus costs neither
connections nor memory without end.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator

import attrs

from ..limits import Limits
from ..messages import ErrorResponse, Notification, Response
from .http_heads import Refusal
from .options import ReconnectPolicy
from .outcomes import Delivered, PostDelayed, PostOutcome, Undelivered

INITIALIZED = Notification("notifications/initialized")
"""What completes a handshake."""


@attrs.define(eq=False, repr=False)
class PendingPost:
    """One message under way."""

    number: int
    message: Notification | Response | ErrorResponse
    exchange: int | None = attrs.field(default=None, init=False)
    """The one that carries it; None while it waits."""
    deadline: float = attrs.field(default=0.0, init=False)
    """When it must have arrived, or is to be sent again: seconds on the machine's clock."""
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
    ) -> PostOutcome:
        """Conclude what follows an attempt that failed.

        Args:
            reason: why.
            policy: how often to try, and when.
            jitter: gives a random number from 0 to 1.
            is_retryable: False if another attempt would fail the same way.
            wait: seconds to wait at least.
        """
        self._attempts += 1
        is_once = isinstance(self.message, Notification) and self.message is not INITIALIZED
        if is_once or not is_retryable or self._attempts > policy.max_attempts:
            return Undelivered(self.message, reason)
        delay = policy.delay(self._attempts, wait, jitter())
        return PostDelayed(self.message, delay, reason)


@attrs.define(eq=False, repr=False)
class Posts:
    """The messages of one client that are under way."""

    _limits: Limits
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _all: dict[int, PendingPost] = attrs.field(factory=dict[int, PendingPost], init=False)
    """Those that are open, wait for their turn, or wait for their next attempt."""
    _open: int = attrs.field(default=0, init=False)
    _waiting: OrderedDict[int, None] = attrs.field(factory=OrderedDict[int, None], init=False)
    """Those that wait for their turn, first come first."""

    @property
    def is_full(self) -> bool:
        """True if no further message can be taken."""
        return len(self._all) >= self._limits.max_pending_calls

    @property
    def why_full(self) -> str:
        """Why no further message can be taken, for an error or event."""
        most = self._limits.max_pending_calls
        return f"{most} messages wait for the server to take them already (max_pending_calls)"

    def get(self, number: int) -> PendingPost:
        """Return the message of that number, which must be under way."""
        return self._all[number]

    def add(self, message: Notification | Response | ErrorResponse, now: float) -> PendingPost:
        """Take a message, which must have room. Pull :meth:`next_post` afterwards."""
        post = PendingPost(next(self._numbers), message)
        self._all[post.number] = post
        self._queue(post, now)
        return post

    def next_post(self) -> PendingPost | None:
        """Return a message whose turn has come; None if there is none. Send it."""
        if not self._waiting or self._open >= self._limits.max_open_posts:
            return None
        number, _ = self._waiting.popitem(last=False)
        self._open += 1
        return self._all[number]

    def ended(self, post: PendingPost, reason: str | None, now: float) -> PostOutcome:
        """Conclude what follows the end of a response; ``reason``: why it broke off."""
        if reason is not None:
            return self._failed(post, reason, now, is_retryable=True)
        self._leave(post)
        del self._all[post.number]
        return Delivered(post.message)

    def refused(self, post: PendingPost, refusal: Refusal, now: float) -> PostOutcome:
        """Conclude what follows a refusal."""
        is_retryable, wait = refusal.is_retryable, refusal.retry_after
        return self._failed(post, refusal.message, now, is_retryable=is_retryable, wait=wait)

    def due(self, number: int, now: float) -> PostOutcome | None:
        """Conclude what follows a deadline: None if the message is queued for another attempt."""
        post = self._all[number]
        if post.is_delayed:
            self._queue(post, now)
            return None
        reason = f"no response within {self._limits.post_timeout:g} s (post_timeout)"
        return self._failed(post, reason, now, is_retryable=True)

    def clear(self) -> tuple[int, ...]:
        """Forget all messages, and return their numbers."""
        numbers = tuple(self._all)
        self._all.clear()
        self._waiting.clear()
        self._open = 0
        return numbers

    def _queue(self, post: PendingPost, now: float) -> None:
        post.is_delayed, post.deadline = False, now + self._limits.post_timeout
        self._waiting[post.number] = None

    def _leave(self, post: PendingPost) -> None:
        """End an attempt, whether it was open or waited for its turn."""
        if post.number in self._waiting:
            del self._waiting[post.number]
        else:
            self._open -= 1
        post.exchange = None

    def _failed(
        self, post: PendingPost, reason: str, now: float, *, is_retryable: bool, wait: float = 0.0
    ) -> PostOutcome:
        self._leave(post)
        outcome = post.failed(
            reason, self._policy, self._jitter, is_retryable=is_retryable, wait=wait
        )
        if isinstance(outcome, PostDelayed):
            post.is_delayed, post.deadline = True, now + outcome.delay
        else:
            del self._all[post.number]
        return outcome
