"""How requests of the stateless revisions are answered: on HTTP, and on stdio.

Source: 2026-07-28 basic/transports: Sending Messages, Cancellation; stdio.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection
from typing import Any

import attrs

from ...codecs import jsonrpc
from ...codecs.sse import encode_event
from ...http import RequestHead
from ...messages import Message, Notification, Request, RequestId
from ...meta_keys import LISTEN
from ...states import ExchangeState
from ...timers import Timer
from .. import refusals
from ..calls import RunningCall
from ..core import ServerCore, Sink
from ..exchange import ServerExchange
from ..responder import HttpResponder
from .era import ModernServer, check_notification
from .results import ModernResults
from .subscriptions import Subscriptions


@attrs.define(eq=False, repr=False)
class ModernHttpResponder(ModernResults, HttpResponder):
    """The answer to one POST: JSON, or an event stream once there is something to say before it."""

    exchange: ServerExchange
    stream_after: float | None
    open_calls: int = attrs.field(default=1, init=False)
    is_batch: bool = attrs.field(default=False, init=False)

    @property
    def is_resumable(self) -> bool:
        """Nothing is at this revision."""
        return False

    def open(self) -> None:
        """Begin the event stream, if that has not happened."""
        if self.exchange.state is ExchangeState.DECIDING:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.exchange.open_stream()

    @property
    def is_above_high_water(self) -> bool:
        """Whether the client does not take what is sent."""
        return self.exchange.is_slow

    def message(self, data: bytes) -> bool:
        self.open()
        self.exchange.send(encode_event(data))
        return True

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        self._over()
        if self.exchange.state is ExchangeState.DECIDING:
            self.exchange.send_response(http_status, data)
        else:
            self.exchange.send(encode_event(data))
            self.exchange.end()
        return True

    def complete_without_response(self) -> None:
        """The client has cancelled by going away, so there is nobody to say anything to."""
        self._over()

    def disconnect(self, retry: int | None) -> bool:
        """The request would be cancelled."""
        return False

    def peer_gone(self) -> None:
        """The client has gone: that is how it cancels."""
        for call in tuple(self.session.calls.values()):
            call.cancel("the client has closed the response")

    def _over(self) -> None:
        self.open_calls = 0
        self._core.timers.stop(Timer.STREAM_OPEN, self)


@attrs.define(eq=False, repr=False)
class ModernStdioResponder(ModernResults):
    """The answer to one line of stdio."""

    _sink: Sink
    open_calls: int = attrs.field(default=1, init=False)
    is_batch: bool = attrs.field(default=False, init=False)

    def start(self) -> None:
        """Nothing has to be opened."""

    @property
    def head(self) -> RequestHead | None:
        """The HTTP request that opened the stream; None on stdio."""
        return self._sink.head

    @property
    def is_above_high_water(self) -> bool:
        return self._sink.is_above_high_water

    def message(self, data: bytes) -> bool:
        """Something to say before the answer; returns False if nobody is there any more."""
        return self._sink.send(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """The answer; returns False if nobody is there any more."""
        self.open_calls = 0
        return self._sink.send(data)

    def complete_without_response(self) -> None:
        """The call was cancelled, so nothing more may be said."""
        self.open_calls = 0

    def disconnect(self, retry: int | None) -> bool:
        """There is nothing to come back to."""
        return False


@attrs.define(eq=False, repr=False)
class HttpListener:
    """A subscription's event stream."""

    _core: ServerCore
    _exchange: ServerExchange
    _subscriptions: Subscriptions

    @property
    def is_above_high_water(self) -> bool:
        """Whether the client does not take what is sent."""
        return self._exchange.is_slow

    def send(self, message: bytes) -> None:
        self._exchange.send(encode_event(message))

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the last message, and end the stream."""
        self.send(message)
        self._exchange.end()

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """Break the stream off: to the client that is lost, and it listens again."""
        self._exchange.abort()

    def peer_gone(self) -> None:
        self._subscriptions.gone(self)


@attrs.define(eq=False, repr=False)
class LineListener:
    """A subscription on stdio, among everything else there."""

    _sink: Sink
    _listeners: dict[RequestId, LineListener]
    """Those that are open; this is one of them."""

    @property
    def is_above_high_water(self) -> bool:
        return self._sink.is_above_high_water

    def send(self, message: bytes) -> None:
        self._sink.send(message)

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the result, and what has to follow it on stdio."""
        del self._listeners[request_id]
        self._sink.send(message)
        params = {"requestId": request_id, "reason": "the server ends the subscription"}
        self._sink.send(jsonrpc.encode(Notification("notifications/cancelled", params)))

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """End it: the client learns that it has missed something."""
        self.finish(message, request_id)


@attrs.define(eq=False, repr=False)
class ModernHttp:
    """What POSTs of the stateless revisions mean."""

    _core: ServerCore
    _modern: ModernServer

    def receive(self, exchange: ServerExchange, head: RequestHead, message: Message) -> None:
        """Do what a message asks for. Raises RemoteProtocolError: the refusal."""
        match message:
            case Request():
                self._request(exchange, head, message)
            case Notification():
                check_notification(message, head, self._core.versions)
                self._modern.notified(message, head.principal)
                exchange.send_response(202)
            case _:
                raise refusals.NO_ANSWERS_WANTED()

    def _request(self, exchange: ServerExchange, head: RequestHead, request: Request) -> None:
        meta = self._modern.check(request, head)
        if request.method != LISTEN:
            caller = self._modern.caller(meta, head.principal)
            stream_after = self._core.stream_after_of(request.method)
            answer = ModernHttpResponder(self._core, caller, exchange, stream_after)
            self._modern.start(request, caller, answer)
            return
        subscriptions = self._modern.subscriptions
        honoured = subscriptions.filter_of(request)
        listener = HttpListener(self._core, exchange, subscriptions)
        exchange.responder = listener
        exchange.open_stream()
        subscriptions.open(request, honoured, listener)


@attrs.define(eq=False, repr=False)
class ModernChannelHandler:
    """What lines of the stateless revisions mean, in one conversation on stdio."""

    _core: ServerCore
    _modern: ModernServer
    _sink: Sink
    calls: dict[RequestId, RunningCall] = attrs.field(
        factory=dict[RequestId, RunningCall], init=False
    )
    """The calls that run."""
    _listeners: dict[RequestId, LineListener] = attrs.field(
        factory=dict[RequestId, LineListener], init=False
    )
    open_requests: Collection[object] = attrs.field(init=False)
    """The ids of all requests that have no answer yet: calls, and subscriptions."""

    def __attrs_post_init__(self) -> None:
        self.open_requests = ChainMap[RequestId, Any](self.calls, self._listeners)

    @property
    def is_busy(self) -> bool:
        return bool(self.calls)

    def receive(self, message: Message) -> None:
        """Do what a message asks for. Raises RemoteProtocolError: the refusal."""
        if isinstance(message, Request):
            self._request(message)
        elif not isinstance(message, Notification):
            return  # a response, and there are no requests of ours
        elif message.method == "notifications/cancelled":
            self._cancel(message)
        elif self._modern.serves(message):
            self._modern.notified(message, "")

    def end(self, reason: str) -> None:
        for call in tuple(self.calls.values()):
            call.cancel(reason)
        for listener in self._listeners.values():
            self._modern.subscriptions.gone(listener)
        self._listeners.clear()

    def _request(self, request: Request) -> None:
        meta = self._modern.check(request, None)
        limit = self._core.limits.max_calls_per_session
        if request.id in self.open_requests:
            raise refusals.DUPLICATE_REQUEST_ID(request.id)
        if len(self.calls) + len(self._listeners) >= limit:
            raise refusals.TOO_MANY_CALLS(request.id, limit=limit)
        if request.method != LISTEN:
            caller = self._modern.caller(meta, "", self.calls)
            self._modern.start(
                request, caller, ModernStdioResponder(self._core, caller, self._sink)
            )
            return
        honoured = self._modern.subscriptions.filter_of(request)
        listener = LineListener(self._sink, self._listeners)
        self._listeners[request.id] = listener
        self._modern.subscriptions.open(request, honoured, listener)

    def _cancel(self, notification: Notification) -> None:
        """Cancel a call, or end a subscription; an unknown id is ignored."""
        params = notification.params or {}
        id, reason = params.get("requestId"), params.get("reason")
        if not jsonrpc.is_request_id(id):
            return
        if (listener := self._listeners.pop(id, None)) is not None:
            self._modern.subscriptions.gone(listener)
        elif (call := self.calls.get(id)) is not None:
            call.cancel(reason if isinstance(reason, str) else "cancelled by the client")
