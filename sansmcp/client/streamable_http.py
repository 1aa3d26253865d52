"""Streamable HTTP: every message is a POST, every answer comes on its own response.

Source: 2025-03-26 to 2025-11-25, basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..errors import CallError
from ..messages import ErrorResponse, Notification, Response
from ..timers import Timer
from ..types import STREAMABLE_HTTP
from .core import ClientCore
from .cursor import Cursor
from .listener import Listener
from .modern import StatelessCarrier
from .posts import Farewell, Post
from .transport import RequestOwner

if TYPE_CHECKING:
    from .conversation import Conversation


@attrs.define(eq=False)
class StreamableHttp:
    """The transport of one MCP endpoint."""

    _core: ClientCore
    _conversation: Conversation
    name: str = attrs.field(default=STREAMABLE_HTTP, init=False)
    speaks_modern: bool = attrs.field(default=True, init=False)
    is_one_stream: bool = attrs.field(default=False, init=False)
    _listener: Listener | None = attrs.field(default=None, init=False)

    def connect(self) -> None:
        """Nothing has to be opened."""
        self._conversation.reachable()

    def carrier(self, owner: RequestOwner, call: int | None) -> Cursor | StatelessCarrier:
        """A request opens a stream, which at the handshake revisions may outlive its response."""
        if self._core.is_modern:
            return StatelessCarrier(self._core, owner, call)
        return Cursor(self._core, owner, call)

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """A POST of its own."""
        Post(self._core, self._conversation, message).send()

    def listen(self) -> None:
        """Ask for the standalone stream."""
        if self._core.listens and not self._core.is_modern:
            self._listener = Listener(self._core, self._conversation)
            self._listener.start()

    def leave(self) -> None:
        """Break off all requests."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        self._core.timers.stop(Timer.CLOSE, self)
        self._core.give_up()

    def farewell(self, error: CallError | None) -> bool:
        """End the session by DELETE, unless it is lost."""
        if error is not None or self._core.session_id is None:
            return False
        self._core.open(Farewell(self._conversation), b"DELETE")
        self._core.timers.set(Timer.CLOSE, self, self._core.now + self._core.close_timeout)
        return True

    def close_timed_out(self) -> None:
        """The server took too long to answer the DELETE."""
        self._conversation.closed()
