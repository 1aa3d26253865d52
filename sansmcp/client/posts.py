"""Messages of a client that want no answer: notifications, and answers to the server's requests.

Each is one POST, and any success will do, whatever it looks like. A notification is sent once. An
answer is sent again when its POST fails in a way that may pass: the server waits for it, and
ignores one that comes twice.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..events import NotDelivered
from ..messages import ErrorResponse, Notification, Response
from ..timers import Timer
from .core import ClientCore
from .detection import is_temporary
from .exchange import Nobody, Refusal

if TYPE_CHECKING:
    from .conversation import Conversation


@attrs.define(eq=False, repr=False)
class Post(Nobody):
    """One message under way."""

    _core: ClientCore
    _conversation: Conversation
    _message: Notification | Response | ErrorResponse
    _attempts: int = attrs.field(default=0, init=False)
    expects_messages: bool = attrs.field(default=False, init=False)

    def send(self) -> None:
        """Send it, for the first time or again."""
        self._core.posts.add(self)
        self._core.post(self, self._message)

    def ended(self, reason: str | None) -> None:
        """The server has it, or the connection broke."""
        if reason is None:
            self._core.posts.discard(self)
            self._conversation.delivered(self._message)
        else:
            self._failed(reason, may_pass=True)

    def refused(self, refusal: Refusal) -> None:
        """The server does not want it."""
        if refusal.status == 404 and refusal.session_id is not None:
            self._conversation.expire(refusal)
        else:
            may_pass = is_temporary(refusal.status)
            self._failed(refusal.message, may_pass=may_pass, wait=refusal.retry_after)

    def _failed(self, reason: str, *, may_pass: bool, wait: float = 0.0) -> None:
        policy = self._core.reconnect
        self._attempts += 1
        is_notification = isinstance(self._message, Notification)
        if is_notification or not may_pass or self._attempts > policy.attempts:
            self._core.posts.discard(self)
            self._core.events.append(NotDelivered(self._message, reason))
            self._conversation.undelivered(self._message, reason)
        else:
            delay = policy.delay(self._attempts, wait, self._core.jitter())
            self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
