"""One HTTP request and its response, as the server sees it.

An exchange collects a request and holds what is still to be sent of its response. It decides
nothing: :mod:`.validation` says what a request is, and the machine says what to answer. Whoever
drives the exchange (one task, one thread, one callback) pulls the effects one at a time and
performs each before pulling the next, so what waits here is what a slow peer has not taken.
"""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from ..codecs import headers, jsonrpc
from ..codecs.delimited_buffer import message_too_large
from ..codecs.headers import Headers
from ..effects import Abort, ExchangeEffect, SendBody, SendEnd, SendHead, Wake
from ..errors import RemoteProtocolError
from ..events import RefusalSent
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..states import EXCHANGE, ExchangeEvent, ExchangeState, advance
from ..timers import Timer
from .core import ServerCore

_END = SendEnd()

STREAM_HEADERS: Headers = (
    (b"content-type", headers.EVENT_STREAM),
    (b"cache-control", b"no-cache, no-transform"),
    # Proxies of the nginx family collect responses before they pass them on, unless told not to.
    (b"x-accel-buffering", b"no"),
)


class PostResponder(Protocol):
    """What is to be given as the answer to a POST."""

    def peer_gone(self) -> None:
        """The connection of the POST broke."""


class StreamSource(Protocol):
    """What an event stream comes from, if that outlives the exchange."""

    def catch_up(self) -> None:
        """Everything was sent: go on, if there is more."""

    def on_closed(self) -> None:
        """The exchange is over."""


@attrs.define(eq=False, repr=False)
class ServerExchange:
    """One request and its response; opaque to hosts, except for :attr:`host`."""

    id: int
    _core: ServerCore
    driver: Any = None
    """For whoever drives the exchange, to find its own things when a ``Wake`` names this exchange.
    """

    state: ExchangeState = attrs.field(default=ExchangeState.HEAD, init=False)
    head: RequestHead | None = attrs.field(default=None, init=False)
    source: StreamSource | None = attrs.field(default=None, init=False)
    """What its event stream comes from."""
    responder: PostResponder | None = attrs.field(default=None, init=False)
    """What is to be given as the answer to this POST."""
    _body: bytearray = attrs.field(factory=bytearray, init=False)
    _response: ResponseHead | None = attrs.field(default=None, init=False)
    _chunks: list[bytes] = attrs.field(factory=lambda: [], init=False)
    unsent: int = attrs.field(default=0, init=False)
    """Bytes of body that wait for the peer."""
    is_given_up: bool = attrs.field(default=False, init=False)
    """Too much waited for too many peers: the response is broken off."""
    _end: SendEnd | Abort | None = attrs.field(default=None, init=False)
    _idle: bool = attrs.field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<exchange {self.id}: {self.state.name.lower()}>"

    # The request

    def begin(self, head: RequestHead) -> None:
        """The request head has arrived."""
        self.advance(ExchangeEvent.HEAD)
        self.head = head

    def receive_body(self, part: BodyData | BodyEnd) -> bytes | None:
        """Add a piece of body; returns the whole body once it is complete.

        Raises RemoteProtocolError (413) when it is too large.
        """
        if isinstance(part, BodyEnd):
            self.advance(ExchangeEvent.COMPLETE)
            body, self._body = bytes(self._body), bytearray()
            return body
        limit = self._core.limits.request_bytes
        if len(self._body) + len(part.data) > limit:
            raise message_too_large(limit)
        self._body += part.data
        return None

    # The response

    @property
    def is_slow(self) -> bool:
        """True if nothing more should be added: the peer takes too little of what waits for it.

        Where much waits for all peers together, anything that waits is too much.
        """
        limits = self._core.limits
        if self.unsent >= limits.max_unsent_bytes:
            return True
        return self.unsent > 0 and self._core.unsent.total >= limits.max_total_unsent_bytes / 2

    @property
    def is_done(self) -> bool:
        """Whether nothing can be added to the response."""
        return self.state is ExchangeState.DONE

    def send_response(self, status: int, body: bytes = b"", extra: Headers = ()) -> None:
        """Give a complete response: a JSON document, or no body at all."""
        self.advance(ExchangeEvent.ANSWER)
        kind: Headers = ((b"content-type", headers.JSON),) if body else ()
        length = (b"content-length", b"%d" % len(body))
        self._response = ResponseHead(status=status, headers=(*kind, length, *extra))
        self._finish(body, _END)

    def refuse(self, error: RemoteProtocolError) -> None:
        """Say no: the error's status and headers, and its JSON-RPC error as the body."""
        self.send_response(error.http_status, jsonrpc.encode(error.reply), error.headers)
        self._core.events.append(RefusalSent(error))

    def open_stream(self) -> None:
        """Begin a response that is an event stream."""
        self.advance(ExchangeEvent.STREAM)
        self._response = ResponseHead(status=200, headers=STREAM_HEADERS)
        self.wake()

    def send(self, data: bytes) -> None:
        """Add to the event stream."""
        self._add(data)
        self.wake()

    def end(self) -> None:
        """End the event stream properly."""
        self.advance(ExchangeEvent.ANSWER)
        self._finish(b"", _END)

    def stop(self) -> None:
        """End the event stream properly, whether it has begun or not."""
        if self.state is ExchangeState.DECIDING:
            self.open_stream()
        if self.state is ExchangeState.STREAMING:
            self.end()

    def abort(self) -> None:
        """Break off: the stream cannot go on and must not look complete."""
        self.advance(ExchangeEvent.ANSWER)
        self._finish(b"", Abort())

    def peer_gone(self) -> None:
        """Nobody is there any more: what waits is dropped."""
        self.advance(ExchangeEvent.LOST)
        self._response, self._end = None, None
        self._take_chunks()
        self._body.clear()
        self._core.timers.stop(Timer.KEEP_ALIVE, self)

    def give_up(self) -> None:
        """Break the response off, and drop what waits."""
        self._take_chunks()
        self.is_given_up = True
        self._response, self._end = None, Abort()
        self._core.timers.stop(Timer.KEEP_ALIVE, self)
        self.wake()

    def discard(self) -> None:
        """Drop what waits: the driver has lost the peer of a response that was complete."""
        self._take_chunks()

    def next_effect(self) -> ExchangeEffect | None:
        """What to send next; None when there is nothing. Waiting pieces of body come as one."""
        if self._response is not None:
            head, self._response = self._response, None
            return SendHead(head)
        if self._chunks:
            return SendBody(self._take_chunks())
        if self._end is not None:
            end, self._end = self._end, None
            return end
        return None

    def mark_idle(self) -> None:
        """The driver found nothing to do: from now on it has to be woken."""
        self._idle = True

    def expect_pull(self) -> None:
        """The driver will look by itself."""
        self._idle = False

    def advance(self, event: ExchangeEvent) -> None:
        """Go to the next state. Raises LocalProtocolError where the table has none."""
        self.state = advance(EXCHANGE, self.state, event)

    def _finish(self, body: bytes, end: SendEnd | Abort) -> None:
        # RFC 9110, 9.3.2: the answer to HEAD tells the length of a body, and has none.
        if body and (self.head is None or self.head.method != b"HEAD"):
            self._add(body)
        if not self.is_given_up:
            self._end = end
        self._core.timers.stop(Timer.KEEP_ALIVE, self)
        self.wake()

    def _add(self, data: bytes) -> None:
        if self.is_given_up:
            return
        self._chunks.append(data)
        self.unsent += len(data)
        self._core.unsent.change(self, len(data))
        while self._core.unsent.total > self._core.limits.max_total_unsent_bytes:
            self._core.unsent.largest().give_up()

    def _take_chunks(self) -> bytes:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._core.unsent.change(self, -self.unsent)
        self.unsent = 0
        return data

    def wake(self) -> None:
        """Let the driver pull again, if it has stopped."""
        if self._idle:
            self._idle = False
            self._core.effects.append(Wake(self))
