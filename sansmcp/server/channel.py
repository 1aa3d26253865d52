"""A conversation with one stream of messages in each direction: stdio, and HTTP+SSE.

What the client says comes in one after the other; everything for it goes to one outlet. What a
message means is the business of its era; which that is, is decided here.

Source: 2024-11-05 to 2026-07-28, basic/transports: stdio; 2024-11-05 basic/transports: HTTP with
SSE.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeGuard

import attrs

from ..codecs import jsonrpc
from ..codecs.jsonrpc import Batch
from ..effects import Wake
from ..errors import RemoteProtocolError
from ..events import InvalidLine, RefusalSent
from ..messages import Message, Notification, Request
from ..types import Drivable
from . import refusals
from .core import ServerCore, Sink
from .era_choice import is_modern


class ChannelHandler(Protocol):
    """What the messages of one era mean in a conversation."""

    @property
    def is_busy(self) -> bool:
        """Whether calls run."""
        ...

    def end(self, reason: str) -> None:
        """The conversation is over."""


class LegacyLines(ChannelHandler, Protocol):
    """The same of the handshake revisions."""

    @property
    def null_id(self) -> bool:
        """Whether an error that answers no request has an id, null."""
        ...

    def receive(self, message: Message | Batch) -> None:
        """Do what a message asks for. Raises RemoteProtocolError: the refusal."""


class ModernLines(ChannelHandler, Protocol):
    """The same of 2026-07-28."""

    open_requests: Collection[object]
    """The ids of all requests that have no answer yet."""

    def receive(self, message: Message) -> None:
        """Do what a message asks for. Raises RemoteProtocolError: the refusal."""


@attrs.define(eq=False, repr=False)
class Channel:
    """The server's end of such a conversation."""

    _core: ServerCore
    _sink: Sink
    _modern: ModernLines | None
    """None on HTTP+SSE, which only 2024-11-05 has."""
    _legacy: LegacyLines | None
    """None where no handshake revision is served."""

    def __attrs_post_init__(self) -> None:
        self._core.sinks[self._sink] = None

    @property
    def is_full(self) -> bool:
        """Whether the application must take events before more is received."""
        return self._core.is_full

    @property
    def is_busy(self) -> bool:
        """Whether calls run."""
        return any(lines.is_busy for lines in self._lines)

    def must_wait(self, driven: Drivable) -> bool:
        """Whether that is so; whoever drives the channel is woken when it is no more."""
        if self._core.is_full:
            self._core.paused[driven] = None
        return self._core.is_full

    def wake(self, driven: Drivable) -> None:
        """There is something to send."""
        self._core.effects.append(Wake(driven))

    def receive(self, data: bytes, *, now: float) -> None:
        """The bytes of one message, or of one batch.

        What is not allowed is answered with an error. Raises RemoteProtocolError if they are no
        message, or ask for answers while too many wait to be read.
        """
        self._core.now = now
        decoded = jsonrpc.decode(data, self._core.limits)
        if self._sink.is_above_high_water and isinstance(decoded, Request | Batch):
            raise refusals.NOT_READING(decoded.id if isinstance(decoded, Request) else None)
        try:
            self._dispatch(decoded)
        except RemoteProtocolError as error:
            self.refuse(error, RefusalSent(error))

    def refuse(self, error: RemoteProtocolError, event: RefusalSent | InvalidLine) -> None:
        """Answer with an error, and tell the application."""
        null_id = error.request_id is None and self._legacy is not None and self._legacy.null_id
        self._sink.send(jsonrpc.encode(error.reply, null_id=null_id))
        self._core.events.append(event)

    def end(self, reason: str, *, now: float) -> None:
        """The channel is gone, and what was said on it with it."""
        self._core.now = now
        self._core.sinks.pop(self._sink, None)
        for lines in self._lines:
            lines.end(reason)

    @property
    def _lines(self) -> tuple[ChannelHandler, ...]:
        return tuple(lines for lines in (self._modern, self._legacy) if lines is not None)

    def _dispatch(self, message: Message | Batch) -> None:
        """Give a message to its era. Raises RemoteProtocolError: the refusal."""
        modern, legacy = self._modern, self._legacy
        if modern is not None and (
            is_modern(message, self._core) or _cancels(message, modern.open_requests)
        ):
            modern.receive(message)
        else:
            assert legacy is not None, "is_modern refuses what no revision that is served has"
            legacy.receive(message)


def _cancels(message: Message | Batch, open_requests: Collection[object]) -> TypeGuard[Message]:
    """True for the cancellation of one of the requests; on stdio it says no version."""
    if not isinstance(message, Notification) or message.method != "notifications/cancelled":
        return False
    id = (message.params or {}).get("requestId")
    return jsonrpc.is_request_id(id) and id in open_requests
