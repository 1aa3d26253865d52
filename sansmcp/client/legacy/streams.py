"""What a session adds to Streamable HTTP: streams that outlive a response, and an end by DELETE.

Source: 2025-03-26 to 2025-11-25, basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...errors import CallError
from ...timers import Timer
from ..core import ClientCore
from ..exchange import Nobody, Refusal
from ..transport import RequestOwner
from .cursor import Cursor
from .listener import Listener
from .turns import Turns

if TYPE_CHECKING:
    from ..conversation import Conversation


@attrs.define(eq=False, repr=False)
class Farewell(Nobody):
    """The DELETE that ends the session. Whatever comes of it, the session is not used any more."""

    _conversation: Conversation
    expects_messages: bool = attrs.field(default=False, init=False)

    def ended(self, reason: str | None) -> None:
        """Ended, or not reached."""
        self._conversation.closed()

    def refused(self, refusal: Refusal) -> None:
        """405: the server does not let clients end sessions; 404: it is gone already."""
        self._conversation.closed()


@attrs.define(eq=False, repr=False)
class SessionStreams:
    """The streams of the session that is open."""

    _core: ClientCore
    _conversation: Conversation
    turns: Turns = attrs.field(factory=Turns, init=False)
    """The answers that are kept back."""
    _listener: Listener | None = attrs.field(default=None, init=False)

    def carrier(self, owner: RequestOwner, call: int | None) -> Cursor:
        """A request opens a stream."""
        return Cursor(self._core, owner, call, self.turns if self._core.has_turns else None)

    def listen(self) -> None:
        """Ask for the standalone stream."""
        if self._core.listens:
            self._listener = Listener(self._core, self._conversation)
            self._listener.start()

    def leave(self) -> None:
        """The session is over."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self._core.timers.stop(Timer.CLOSE, self)

    def farewell(self, error: CallError | None) -> bool:
        """End the session by DELETE, unless it is lost; False if there is nothing to end."""
        if error is not None or self._core.session_id is None:
            return False
        self._core.open(Farewell(self._conversation), b"DELETE")
        self._core.timers.set(Timer.CLOSE, self, self._core.now + self._core.close_timeout)
        return True

    def close_timed_out(self) -> None:
        """The server took too long to answer the DELETE."""
        self._conversation.closed()
