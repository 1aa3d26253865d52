"""One HTTP request and its response, as the server sees it.

An exchange collects the request and holds the part of the response that was not sent yet.
``validation`` checks the request, and the machine chooses the response. The driver of the exchange
(one task, one thread, one callback) pulls the effects one at a time and performs each before it
pulls the next, so the unsent bytes are those that a slow peer has not read.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

import attrs

from ..codecs import headers, jsonrpc
from ..codecs.delimited_buffer import message_too_large
from ..codecs.headers import Headers
from ..effects import Abort, ExchangeEffect, SendBody, SendEnd, SendHead, Wake
from ..errors import RemoteProtocolError
from ..events import AccessExpired, RefusalSent
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..states import EXCHANGE, ExchangeEvent, ExchangeState, advance
from ..timers import Timer
from .bursts import Burst
from .core import ServerCore

_DONE: Final = ExchangeState.DONE
_HEAD: Final = ExchangeEvent.HEAD
_COMPLETE: Final = ExchangeEvent.COMPLETE
_ANSWER: Final = ExchangeEvent.ANSWER

_END = SendEnd()

STREAM_HEADERS: Headers = (
    (b"content-type", headers.EVENT_STREAM),
    (b"cache-control", b"no-cache, no-transform"),
    # nginx buffers a proxied response by default and would deliver the events when the buffer is
    # full or the stream ends. It obeys this header, so no operator has to configure that.
    (b"x-accel-buffering", b"no"),
)


class PostResponder(Protocol):
    """The part that responds to a POST."""

    def peer_gone(self) -> None:
        """Handle the loss of the connection that carried the POST."""


class StreamSource(Protocol):
    """The log or channel whose messages an exchange sends as an event stream."""

    def catch_up(self) -> None:
        """Send more, if there is more: the exchange has sent everything so far."""

    def on_closed(self) -> None:
        """Detach the exchange, which has ended."""

    def end_expired(self) -> bool:
        """End the event stream so that the client can open it again, or resume it.

        Returns False, with nothing changed, if the client could not.
        """
        ...


@attrs.define(eq=False, repr=False)
class ServerExchange:
    """One HTTP request and its HTTP response.

    A driver gets it from ``Server.open_exchange()``, passes it to the methods of the server, and
    uses only these attributes. The others belong to the server.

    Attributes:
        id: the number of the exchange, for traces.
        driver: any object of the driver, to find its own data when a Wake effect names this
            exchange.
    """

    id: int
    _core: ServerCore
    driver: Any = None

    state: ExchangeState = attrs.field(default=ExchangeState.HEAD, init=False)
    head: RequestHead | None = attrs.field(default=None, init=False)
    has_checked_head: bool = attrs.field(default=False, init=False)
    """True if the head is for the MCP path, and has passed the checks that need no more than its
    bytes, but for that of its length. A connection sets it for a head that it has had before.
    """
    expires_at: float | None = attrs.field(default=None, init=False)
    """When the credentials of the request expire; None if they do not."""
    source: StreamSource | None = attrs.field(default=None, init=False)
    """Where the messages of its event stream come from."""
    responder: PostResponder | None = attrs.field(default=None, init=False)
    """The part that responds to this POST."""
    common_headers: Headers = attrs.field(default=(), init=False)
    """Headers of the response, of a result as of a refusal: those of CORS, and a DPoP nonce."""
    _body: bytearray = attrs.field(factory=bytearray, init=False)
    request_size: int = attrs.field(default=0, init=False)
    """Bytes of the request body, once it is complete."""
    _response: ResponseHead | None = attrs.field(default=None, init=False)
    _chunks: list[bytes] = attrs.field(factory=lambda: [], init=False)
    unsent: int = attrs.field(default=0, init=False)
    """Bytes of the response body that the driver has not pulled yet."""
    is_given_up: bool = attrs.field(default=False, init=False)
    """True if the response was aborted because the unsent bytes of all exchanges were too many."""
    _end: SendEnd | Abort | None = attrs.field(default=None, init=False)
    _idle: bool = attrs.field(default=False, init=False)
    _burst: Burst | None = attrs.field(default=None, init=False)
    """The events that come shortly one after the other; None before there is an event stream."""

    def __repr__(self) -> str:
        return f"<exchange {self.id}: {self.state.name.lower()}>"

    # The request

    def begin(self, head: RequestHead) -> None:
        """Record the request head."""
        self.advance(_HEAD)
        self.head = head

    def receive_body(self, part: BodyData | BodyEnd) -> bytes | None:
        """Add a piece of the request body.

        Returns:
            The whole body when it is complete, None before.

        Raises:
            RemoteProtocolError: the body is larger than ``Limits.request_bytes`` (status 413).
        """
        if isinstance(part, BodyEnd):
            body, self._body = bytes(self._body), bytearray()
            return self.receive_whole_body(body)
        self._check_size(len(self._body) + len(part.data))
        self._body += part.data
        return None

    def receive_whole_body(self, body: bytes) -> bytes:
        """Record that the request is complete, and return its body.

        Raises:
            RemoteProtocolError: the body is larger than ``Limits.request_bytes`` (status 413).
        """
        self._check_size(len(body))
        self.advance(_COMPLETE)
        self.request_size = len(body)
        return body

    def _check_size(self, size: int) -> None:
        if size > self._core.max_request_bytes:
            raise message_too_large(self._core.max_request_bytes)

    # The response

    @property
    def is_slow(self) -> bool:
        """True if too many bytes wait for this peer. Add nothing until they are sent.

        When half of ``Limits.max_total_unsent_bytes`` waits for all peers together, any unsent byte
        is too many.
        """
        limits = self._core.limits
        if self.unsent >= limits.max_unsent_bytes:
            return True
        return self.unsent > 0 and self._core.unsent.total >= limits.max_total_unsent_bytes / 2

    @property
    def is_done(self) -> bool:
        """True if nothing can be added to the response."""
        return self.state is _DONE

    def send_response(self, status: int, body: bytes = b"", extra: Headers = ()) -> None:
        """Send a complete response: a JSON document, or no body."""
        self.advance(_ANSWER)
        kind: Headers = ((b"content-type", headers.JSON),) if body else ()
        length = (b"content-length", b"%d" % len(body))
        every = (*kind, length, *extra, *self.common_headers)
        self._response = ResponseHead(status=status, headers=every)
        self._finish(body, _END)

    def refuse(self, error: RemoteProtocolError) -> None:
        """Send a refusal: the error's status and headers, with its JSON-RPC error as the body."""
        self.send_response(error.http_status, jsonrpc.encode(error.reply), error.headers)
        self._core.events.append(RefusalSent(error))

    def open_stream(self) -> None:
        """Begin a response that is an event stream."""
        self.advance(ExchangeEvent.STREAM)
        self._burst = Burst()
        self._response = ResponseHead(status=200, headers=STREAM_HEADERS + self.common_headers)
        if self.expires_at is not None:
            self._core.timers.set(Timer.ACCESS, self, self.expires_at)
        self.wake()

    def extend_access(self, expires_at: float | None) -> None:
        """Record that the client of the event stream has newer credentials.

        ``expires_at``: when these expire; None if they do not.
        """
        if self.expires_at is not None and (expires_at is None or expires_at > self.expires_at):
            self.expires_at = expires_at
            self._core.timers.set(
                Timer.ACCESS, self, math.inf if expires_at is None else expires_at
            )

    def end_expired(self) -> None:
        """End the event stream if the client can open it again, and report it."""
        assert self.head is not None
        if self.source is not None and self.source.end_expired():
            self._core.events.append(AccessExpired(self.head.principal))

    def add(self, data: bytes) -> None:
        """Add to the response body. It leaves after :meth:`wake`, if the driver waits for that."""
        if self.is_given_up:
            return
        self._chunks.append(data)
        self.unsent += len(data)
        self._core.unsent.change(self, len(data))
        while self._core.unsent.total > self._core.limits.max_total_unsent_bytes:
            self._core.unsent.largest().give_up()

    def send(self, data: bytes) -> None:
        """Add an event to the event stream. It leaves at once, or shortly with others."""
        self.add(data)
        assert self._burst is not None, "events are sent on event streams only"
        # Otherwise the driver pulls anyway, when the peer has read or what runs has returned.
        if self._idle and (self._burst.may_leave(self._core, self, len(data)) or self.is_slow):
            self.wake()

    def send_gathered(self) -> None:
        """Let the events that wait leave now."""
        self.wake()

    def end(self) -> None:
        """End the event stream properly."""
        self.advance(_ANSWER)
        self._finish(b"", _END)
        self._stop_timers()

    def stop(self) -> None:
        """End the event stream properly, whether it has begun or not."""
        if self.state is ExchangeState.DECIDING:
            self.open_stream()
        if self.state is ExchangeState.STREAMING:
            self.end()

    def abort(self) -> None:
        """Abort the connection, so that the incomplete stream does not look complete."""
        self.advance(_ANSWER)
        self._finish(b"", Abort())
        self._stop_timers()

    def peer_gone(self) -> None:
        """Drop everything that waits, because the peer has disconnected."""
        self.advance(ExchangeEvent.LOST)
        self._response, self._end = None, None
        self._take_chunks()
        self._body.clear()
        self._stop_timers()

    def give_up(self) -> None:
        """Abort the response and drop what waits."""
        self._take_chunks()
        self.is_given_up = True
        self._response, self._end = None, Abort()
        self._stop_timers()
        self.wake()

    def discard(self) -> None:
        """Drop what waits of a complete response, because the peer has disconnected."""
        self._take_chunks()

    def next_effect(self) -> ExchangeEffect | None:
        """Return what to send next, or None. Pieces of the body that wait are sent as one."""
        if self._response is not None:
            head, self._response = self._response, None
            return SendHead(head)
        if self._chunks:
            return SendBody(self._take_chunks())
        if self._end is not None:
            end, self._end = self._end, None
            return end
        return None

    def take_response(self) -> tuple[ResponseHead, bytes] | None:
        """Return head and body of a complete response of which nothing was pulled, or None."""
        if self._end is not _END or self._response is None:
            return None
        head, self._response, self._end = self._response, None, None
        return head, self._take_chunks() if self._chunks else b""

    @property
    def is_at_end(self) -> bool:
        """True if the next effect is SendEnd: the response is complete, and no piece waits."""
        return isinstance(self._end, SendEnd) and self._response is None and not self._chunks

    def mark_idle(self) -> None:
        """Record that the driver waits for a Wake effect."""
        self._idle = True

    def expect_pull(self) -> None:
        """Record that the driver is about to pull, so it needs no Wake effect."""
        self._idle = False

    def advance(self, event: ExchangeEvent) -> None:
        """Go to the next state. Raises LocalProtocolError if the event is not allowed."""
        self.state = advance(EXCHANGE, self.state, event)

    def _finish(self, body: bytes, end: SendEnd | Abort) -> None:
        # RFC 9110, 9.3.2: the response to HEAD has the content-length of a body, but no body.
        if body and (self.head is None or self.head.method != b"HEAD"):
            self.add(body)
        if not self.is_given_up:
            self._end = end
        self.wake()

    def _stop_timers(self) -> None:
        self._core.timers.stop(Timer.KEEP_ALIVE, self)
        self._core.timers.stop(Timer.ACCESS, self)
        if self._burst is not None:
            self._burst.left(self._core, self)

    def _take_chunks(self) -> bytes:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._core.unsent.change(self, -self.unsent)
        self.unsent = 0
        if self._burst is not None:
            self._burst.left(self._core, self)
        return data

    def wake(self) -> None:
        """Tell the driver to pull again, if it waits for a Wake effect."""
        if self._idle:
            self._idle = False
            self._core.effects.append(Wake(self))
