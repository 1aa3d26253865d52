"""What a client needs for servers of the handshake revisions.

Source: 2024-11-05 to 2025-11-25.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs

from ...timers import Timer
from ..core import ClientCore
from .cursor import Cursor
from .handshake import Handshake
from .http_sse import HttpSse
from .streams import SessionStreams

if TYPE_CHECKING:
    from ..conversation import Conversation


@attrs.frozen(eq=False)
class Legacy:
    """The part of a client that knows handshakes and sessions."""

    _core: ClientCore
    _conversation: Conversation

    def handshake(self, version: str | None, *, is_last: bool) -> Handshake:
        """A handshake; see there."""
        return Handshake(self._core, self._conversation, version, is_last)

    def http_sse(self) -> HttpSse:
        """The transport of 2024-11-05."""
        return HttpSse(self._core, self._conversation)

    def streams(self) -> SessionStreams:
        """What Streamable HTTP has in a session."""
        return SessionStreams(self._core, self._conversation)

    def timed_out(self, timer: Timer, owner: Hashable) -> None:
        """A timer of this era is due."""
        match timer, owner:
            case Timer.REQUEST, Handshake():
                owner.time_out()
            case Timer.RECONNECT, Cursor():
                owner.retry_due()
            case Timer.STREAM_IDLE, Cursor():
                owner.idle_due()
            case Timer.CLOSE, SessionStreams():
                owner.close_timed_out()
            case Timer.REQUEST, HttpSse():
                owner.timed_out()
            case Timer.RECONNECT, HttpSse():
                owner.open()
            case _:  # pragma: no cover - no other timers are set
                raise AssertionError(timer)
