"""Streamable HTTP: every message is a POST, every answer comes on its own response.

Source: 2025-03-26 to 2026-07-28, basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..errors import CallError
from ..messages import ErrorResponse, Notification, Response
from ..types import STREAMABLE_HTTP
from .core import ClientCore
from .modern.requests import StatelessCarrier
from .posts import Post
from .transport import Carrier, RequestOwner

if TYPE_CHECKING:
    from .conversation import Conversation
    from .legacy.streams import SessionStreams


@attrs.define(eq=False, repr=False)
class StreamableHttp:
    """The transport of one MCP endpoint."""

    _core: ClientCore
    _conversation: Conversation
    _streams: SessionStreams | None
    """What there is in a session; None: there are none."""
    name: str = attrs.field(default=STREAMABLE_HTTP, init=False)
    speaks_modern: bool = attrs.field(default=True, init=False)
    printed: tuple[str, ...] = attrs.field(default=(), init=False)
    is_one_stream: bool = attrs.field(default=False, init=False)

    def connect(self) -> None:
        """Nothing has to be opened."""
        self._conversation.reachable()

    def carrier(self, owner: RequestOwner, call: int | None) -> Carrier:
        """A request opens a stream, which in a session may outlive its response."""
        if self._core.is_modern:
            return StatelessCarrier(self._core, owner, call)
        assert self._streams is not None
        return self._streams.carrier(owner, call)

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """A POST of its own, unless the server has asked to keep it back."""
        if self._streams is None or not self._streams.turns.keeps(message):
            Post(self._core, self._conversation, message).send()

    def listen(self) -> None:
        """Ask for the standalone stream, where there is one."""
        if self._streams is not None and not self._core.is_modern:
            self._streams.listen()

    def leave(self) -> None:
        """Break off all requests."""
        if self._streams is not None:
            self._streams.leave()
        self._core.give_up()

    def farewell(self, error: CallError | None) -> bool:
        """End the session, if there is one."""
        return self._streams is not None and self._streams.farewell(error)
