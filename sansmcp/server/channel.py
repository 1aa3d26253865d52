"""A channel: one stream of messages in each direction, on stdio or HTTP+SSE.

Messages of the client arrive one after the other; all messages to it go to one sink. The channel
finds the era of each message and passes it to the handler of that era.

Source: 2024-11-05 to 2026-07-28, basic/transports: stdio; 2024-11-05 basic/transports: HTTP with
SSE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeGuard

import attrs

from ..codecs import jsonrpc
from ..codecs.jsonrpc import Batch
from ..codecs.tolerant import mend_from_client
from ..effects import Wake
from ..errors import RemoteProtocolError
from ..events import InvalidLine, RefusalSent
from ..http import RequestHead
from ..messages import Message, Notification, Request, RequestId
from ..revisions import REVISIONS
from ..types import Drivable
from . import refusals
from .core import ServerCore, Sink
from .era_choice import is_modern


class ChannelHandler(Protocol):
    """Handles the messages of one era on a channel."""

    @property
    def is_busy(self) -> bool:
        """True if calls run."""
        ...

    def end(self, reason: str) -> None:
        """Cancel the calls of this era, because the channel has ended."""


class LegacyHandler(ChannelHandler, Protocol):
    """Handles the messages of the handshake revisions."""

    @property
    def null_id(self) -> bool:
        """True if an error that belongs to no request has the member ``"id": null``."""
        ...

    def receive(self, message: Message | Batch) -> None:
        """Handle a message. Raises RemoteProtocolError for a refusal."""


class ModernHandler(ChannelHandler, Protocol):
    """Handles the messages of 2026-07-28."""

    @property
    def calls(self) -> Mapping[RequestId, object]:
        """The running calls by request id."""
        ...

    @property
    def listeners(self) -> Mapping[RequestId, object]:
        """The open subscriptions by request id."""
        ...

    def receive(self, message: Message) -> None:
        """Handle a message. Raises RemoteProtocolError for a refusal."""


class ChannelResponder:
    """Sends what a call has to send to the sink of its channel."""

    __slots__ = ()
    _sink: Sink

    def start(self) -> None:
        """Do nothing: the channel is open."""

    @property
    def head(self) -> RequestHead | None:
        """The head of the HTTP request that opened the channel; None on stdio."""
        return self._sink.head

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client."""
        return self._sink.is_above_high_water

    @property
    def is_connected(self) -> bool:
        """True: the calls end with the channel."""
        return True

    def message(self, data: bytes) -> bool:
        """Send a message before the response. Returns False if the channel has ended."""
        return self._sink.send(data)

    def disconnect(self, retry: int | None) -> bool:
        """Return False: the calls would end with the connection."""
        return False


@attrs.define(eq=False, repr=False)
class Channel:
    """The server's end of a channel."""

    _core: ServerCore
    _sink: Sink
    _modern: ModernHandler | None
    """None on HTTP+SSE, which 2026-07-28 does not have."""
    _legacy: LegacyHandler | None
    """None if no handshake revision is served."""

    def __attrs_post_init__(self) -> None:
        self._core.sinks[self._sink] = None

    @property
    def is_full(self) -> bool:
        """True if the application must take events before the channel receives more."""
        return self._core.is_full

    @property
    def is_busy(self) -> bool:
        """True if calls run."""
        return any(handler.is_busy for handler in self._handlers)

    def must_wait(self, driven: Drivable) -> bool:
        """Return ``is_full``. If it is True, a Wake effect for ``driven`` follows when it ends."""
        if self._core.is_full:
            self._core.paused[driven] = None
        return self._core.is_full

    def wake(self, driven: Drivable) -> None:
        """Wake the driver, because there is something to send."""
        self._core.effects.append(Wake(driven))

    def receive(self, data: bytes, *, now: float) -> None:
        """Receive the bytes of one message, or of one batch.

        A message that is refused gets an error on the sink. Raises RemoteProtocolError if the bytes
        are no message, or a request while the client does not read its responses.
        """
        self._core.now = now
        self.receive_message(self.decode(data))

    def decode(self, data: bytes) -> Message | Batch:
        """Return the message or batch of which these are the bytes. Raises as ``receive()``."""
        decoded = jsonrpc.decode(data, self._core.limits, mend_from_client)
        if self._sink.is_above_high_water and isinstance(decoded, Request | Batch):
            raise refusals.NOT_READING(decoded.id if isinstance(decoded, Request) else None)
        return decoded

    def receive_message(self, decoded: Message | Batch) -> None:
        """Receive a message or batch. If it is refused, the sink gets an error."""
        try:
            self._dispatch(decoded)
        except RemoteProtocolError as error:
            self.refuse(error, RefusalSent(error))

    def refuse(self, error: RemoteProtocolError, event: RefusalSent | InvalidLine) -> None:
        """Send an error to the client, and report it to the application."""
        null_id = error.request_id is None and self._null_id
        self._sink.send(jsonrpc.encode(error.reply, null_id=null_id))
        self._core.events.append(event)

    def end(self, reason: str, *, now: float) -> None:
        """End the channel, and cancel its calls."""
        self._core.now = now
        self._core.sinks.pop(self._sink, None)
        for handler in self._handlers:
            handler.end(reason)

    @property
    def _null_id(self) -> bool:
        """True if an error that belongs to no request has the member ``"id": null``."""
        if self._legacy is not None:
            return self._legacy.null_id
        return not REVISIONS[self._core.options.versions[-1]].error_without_id

    @property
    def _handlers(self) -> tuple[ChannelHandler, ...]:
        return tuple(each for each in (self._modern, self._legacy) if each is not None)

    def _dispatch(self, message: Message | Batch) -> None:
        """Pass a message to its era. Raises RemoteProtocolError for a refusal."""
        modern, legacy = self._modern, self._legacy
        if modern is not None and (is_modern(message, self._core) or _cancels(message, modern)):
            modern.receive(message)
        else:
            assert legacy is not None, (
                "is_modern() refuses messages of revisions that are not served"
            )
            legacy.receive(message)


def _cancels(message: Message | Batch, modern: ModernHandler) -> TypeGuard[Message]:
    """True for the cancellation of an open request, which names no version on stdio."""
    if not isinstance(message, Notification) or message.method != "notifications/cancelled":
        return False
    id = (message.params or {}).get("requestId")
    return jsonrpc.is_request_id(id) and (id in modern.calls or id in modern.listeners)
