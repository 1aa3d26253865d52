"""The standalone stream: what the server says when nobody has asked.

It is a service on the side. Many servers do not offer it, and whatever happens to it, the session
and its calls go on: when it is refused or given up, the application is told once, and that is all.

Source: 2025-03-26 to 2025-11-25, basic/transports: Listening for Messages from the Server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...errors import RemoteProtocolError
from ...events import ListenerStopped, Violation
from ...messages import Message
from ..core import ClientCore
from ..exchange import Refusal
from .cursor import Cursor

if TYPE_CHECKING:
    from ..conversation import Conversation


@attrs.define(eq=False, repr=False)
class Listener:
    """Reads the standalone stream of one session."""

    _core: ClientCore
    _conversation: Conversation
    _cursor: Cursor = attrs.field(init=False)

    def start(self) -> None:
        """Ask for the stream."""
        self._cursor = Cursor(self._core, self, None, is_standalone=True)
        self._cursor.get()

    def stop(self) -> None:
        """Read no more."""
        self._cursor.close()

    @property
    def restarts(self) -> bool:
        """A new standalone stream is as good as the old one."""
        return True

    def restart(self) -> None:
        """Ask for a new stream."""
        self._cursor.get()

    def message(self, message: Message) -> None:
        """The server says something."""
        self._conversation.inbox.route(message, None)

    def violated(self, error: RemoteProtocolError) -> None:
        """The server says something that is no message."""
        self._core.events.append(Violation(error))

    def lost(self, reason: str, *, complete: bool = False) -> None:
        """The stream could not be held."""
        self._core.events.append(ListenerStopped(reason))

    def refused(self, refusal: Refusal) -> None:
        """405 is the regular way to say that there is none; others are seen in the field.

        404 is one of these, too, unless there was a stream before: then the session is gone.
        """
        is_gone = refusal.status == 404 and refusal.session_id is not None
        if is_gone and self._cursor.was_opened:
            self._conversation.expire(refusal)
            return
        self._core.events.append(ListenerStopped(refusal.message))

    def garbled(self, error: RemoteProtocolError) -> None:
        """The stream cannot be read."""
        self._core.events.append(ListenerStopped(error.message))
