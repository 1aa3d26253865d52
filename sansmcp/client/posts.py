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

from collections import OrderedDict
from typing import TYPE_CHECKING

import attrs

from ..events import NotDelivered
from ..messages import ErrorResponse, Notification, Response
from ..timers import Timer
from .detection import is_temporary
from .exchange import ClientExchange, Nobody, Refusal

INITIALIZED = Notification("notifications/initialized")
"""What completes a handshake."""

if TYPE_CHECKING:
    from .conversation import Conversation
    from .core import ClientCore


@attrs.define(eq=False, repr=False)
class Posts:
    """The POSTs of one client that are under way."""

    _core: ClientCore
    _all: set[Post] = attrs.field(factory=set["Post"], init=False)
    """Those that are open, wait for their turn, or wait for their next attempt."""
    _open: set[Post] = attrs.field(factory=set["Post"], init=False)
    _waiting: OrderedDict[Post, None] = attrs.field(factory=OrderedDict["Post", None], init=False)
    """Those that wait for their turn, first come first."""

    @property
    def is_full(self) -> bool:
        """True if no further message can be taken."""
        return len(self._all) >= self._core.limits.max_pending_calls

    @property
    def why_full(self) -> str:
        """Why no further message can be taken, for an error or event."""
        most = self._core.limits.max_pending_calls
        return f"{most} messages wait for the server to take them already (max_pending_calls)"

    def add(self, post: Post) -> None:
        """Send a message when its turn comes, for the first time or again."""
        self._all.add(post)
        self._waiting[post] = None
        self._core.timers.set(Timer.POST, post, self._core.now + self._core.limits.post_timeout)
        self.go_on()

    def leave(self, post: Post) -> None:
        """End an attempt to send a message; :meth:`go_on` must follow."""
        self._core.timers.stop(Timer.POST, post)
        self._open.discard(post)
        self._waiting.pop(post, None)

    def remove(self, post: Post) -> None:
        """Forget a message, which has arrived or has been given up."""
        self._all.discard(post)

    def go_on(self) -> None:
        """Open the POSTs whose turn has come."""
        while self._waiting and len(self._open) < self._core.limits.max_open_posts:
            post, _ = self._waiting.popitem(last=False)
            self._open.add(post)
            post.open()

    def clear(self) -> None:
        """Forget all messages; the caller breaks their exchanges off."""
        for post in self._all:
            self._core.timers.stop(Timer.POST, post)
            self._core.timers.stop(Timer.RECONNECT, post)
        self._all.clear()
        self._open.clear()
        self._waiting.clear()


@attrs.define(eq=False, repr=False)
class Post(Nobody):
    """One message under way."""

    _core: ClientCore
    _conversation: Conversation
    _message: Notification | Response | ErrorResponse
    _attempts: int = attrs.field(default=0, init=False)
    _exchange: ClientExchange | None = attrs.field(default=None, init=False)
    expects_messages: bool = attrs.field(default=False, init=False)

    def send(self) -> None:
        """Send it when its turn comes, or report at once that there is no room for it."""
        if self._core.posts.is_full:
            self._lose(self._core.posts.why_full)
        else:
            self._core.posts.add(self)

    def retry(self) -> None:
        """Send it again: the delay before the next attempt is over."""
        self._core.posts.add(self)

    def open(self) -> None:
        """Open the exchange."""
        self._exchange = self._core.post(self, self._message)

    def time_out(self) -> None:
        """Break the exchange off: the server took too long."""
        self._core.abort(self._exchange)
        seconds = self._core.limits.post_timeout
        self._failed(f"no response within {seconds:g} s (post_timeout)", may_pass=True)

    def ended(self, reason: str | None) -> None:
        """Take the end of the response: the server has the message, or the connection broke."""
        if reason is not None:
            self._failed(reason, may_pass=True)
            return
        self._core.posts.leave(self)
        self._core.posts.remove(self)
        self._conversation.delivered(self._message)
        self._core.posts.go_on()

    def refused(self, refusal: Refusal) -> None:
        """Take a refusal; 404 means that the session is lost."""
        if refusal.status == 404 and refusal.session_id is not None:
            self._conversation.expire(refusal)
        else:
            may_pass = is_temporary(refusal.status)
            self._failed(refusal.message, may_pass=may_pass, wait=refusal.retry_after)

    def _failed(self, reason: str, *, may_pass: bool, wait: float = 0.0) -> None:
        policy = self._core.reconnect
        self._core.posts.leave(self)
        self._attempts += 1
        is_once = isinstance(self._message, Notification) and self._message is not INITIALIZED
        if is_once or not may_pass or self._attempts > policy.attempts:
            self._core.posts.remove(self)
            self._lose(reason)
        else:
            delay = policy.delay(self._attempts, wait, self._core.jitter())
            self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
            self._conversation.delayed(self._message, reason)
        self._core.posts.go_on()

    def _lose(self, reason: str) -> None:
        self._core.events.append(NotDelivered(self._message, reason))
        self._conversation.undelivered(self._message, reason)
