"""How requests of the stateless revisions are answered: on HTTP, and on stdio.

Source: 2026-07-28 basic/transports: Sending Messages, Cancellation; stdio.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..codecs import jsonrpc
from ..codecs.jsonrpc import Batch
from ..codecs.sse import encode_event
from ..messages import ErrorResponse, Message, Notification, Request, RequestId, Response
from ..revisions import of_era
from ..states import ExchangeState
from ..timers import Timer
from ..types import Era
from . import refusals
from .calls import Call, Caller
from .channel import ChannelAnswer
from .core import ServerCore
from .dispatch import Asked
from .exchange import ServerExchange
from .modern import Modern, is_modern, may_say, shape_result
from .sessions import Outlet
from .subscriptions import LISTEN, Subscriptions


@attrs.define(eq=False)
class StatelessAnswer:
    """The answer to one POST: JSON, or an event stream once there is something to say before it."""

    _core: ServerCore
    session: Caller
    exchange: ServerExchange
    open_calls: int = attrs.field(default=1, init=False)
    is_batch: bool = attrs.field(default=False, init=False)
    _status: int = attrs.field(default=200, init=False)

    def start(self) -> None:
        """Begin to wait for the answer; it becomes a stream when that takes long."""
        self.exchange.answer = self
        self._core.stateless.add(self)
        if self._core.stream_after > 0:
            deadline = self._core.now + self._core.stream_after
            self._core.timers.set(Timer.STREAM_OPEN, self, deadline)
        else:
            self.open()

    def open(self) -> None:
        """Begin the event stream, if that has not happened."""
        if self.exchange.state is ExchangeState.DECIDING:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.exchange.open_stream()

    @property
    def congested(self) -> bool:
        """Whether the client does not take what is sent."""
        return self.exchange.unsent >= self._core.limits.max_unsent_bytes

    def shape(self, request: Request, result: Any) -> Response | ErrorResponse:
        """A result with what this revision wants in it."""
        shaped = shape_result(self._core, request, self.session, result)
        self._status = 400 if isinstance(shaped, ErrorResponse) else 200
        return shaped

    def may_say(self, request: Request, message: Message) -> bool:
        """Whether the client wants to hear this."""
        return may_say(request, message)

    def message(self, data: bytes) -> bool:
        """Something to say before the answer."""
        self.open()
        return self._send(data)

    def respond(self, data: bytes) -> bool:
        """The answer; returns False if the client has gone."""
        self._over()
        if self.exchange.state is ExchangeState.DECIDING:
            self.exchange.reply(self._status, data)
            return True
        is_sent = self._send(data)
        if is_sent:
            self.exchange.end()
        return is_sent

    def withdraw(self) -> None:
        """The call was cancelled, so nothing more may be said."""
        self._over()
        if self.exchange.state in (ExchangeState.DECIDING, ExchangeState.STREAMING):
            self.exchange.abort()

    def disconnect(self, retry: int | None) -> bool:
        """The request would be cancelled."""
        return False

    def peer_gone(self) -> None:
        """The client has gone: that is how it cancels."""
        self.cancel("the client has closed the response")

    def cancel(self, reason: str) -> None:
        """Stop working on it."""
        for call in tuple(self.session.calls.values()):
            call.cancel(reason)

    def _send(self, data: bytes) -> bool:
        if self.exchange.state is not ExchangeState.STREAMING:
            return False
        self.exchange.send(encode_event(data))
        return True

    def _over(self) -> None:
        self.open_calls = 0
        self._core.stateless.discard(self)
        self._core.timers.stop(Timer.STREAM_OPEN, self)


@attrs.define(eq=False)
class StatelessLine(ChannelAnswer):
    """The answer to one line of stdio."""

    _core: ServerCore = attrs.field(kw_only=True)

    def shape(self, request: Request, result: Any) -> Response | ErrorResponse:
        """A result with what this revision wants in it."""
        return shape_result(self._core, request, self.session, result)

    def may_say(self, request: Request, message: Message) -> bool:
        """Whether the client wants to hear this."""
        return may_say(request, message)


@attrs.define(eq=False)
class HttpListener:
    """A subscription's event stream."""

    _core: ServerCore
    _exchange: ServerExchange
    _subscriptions: Subscriptions

    @property
    def congested(self) -> bool:
        """Whether the client does not take what is sent."""
        return self._exchange.unsent >= self._core.limits.max_unsent_bytes

    def send(self, message: bytes) -> bool:
        """Send a message."""
        is_open = self._exchange.state is ExchangeState.STREAMING
        if is_open:
            self._exchange.send(encode_event(message))
        return is_open

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the last message, and end the stream."""
        if self.send(message):
            self._exchange.end()

    def fail(self) -> None:
        """Break the stream off."""
        self._subscriptions.gone(self)
        self._exchange.abort()

    def peer_gone(self) -> None:
        """The client has ended the subscription."""
        self._subscriptions.gone(self)


@attrs.define(eq=False)
class LineListener:
    """A subscription on stdio, among everything else there."""

    _outlet: Outlet

    @property
    def congested(self) -> bool:
        """Whether the client does not read."""
        return self._outlet.congested

    def send(self, message: bytes) -> bool:
        """Send a message."""
        return self._outlet.send(message)

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the result, and what has to follow it on stdio."""
        self._outlet.send(message)
        params = {"requestId": request_id, "reason": "the server ends the subscription"}
        self._outlet.send(jsonrpc.encode(Notification("notifications/cancelled", params)))

    def fail(self) -> None:
        """A client that does not read misses this change; there is only the one stream."""


@attrs.define(eq=False)
class StatelessHttp:
    """What POSTs of the stateless revisions mean."""

    _core: ServerCore
    _modern: Modern

    def took(self, exchange: ServerExchange, asked: Asked, message: Message | Batch) -> bool:
        """Do what a message asks for; False if it is of the handshake revisions.

        Raises RemoteProtocolError: the refusal.
        """
        if isinstance(message, Batch):
            return False
        if not is_modern(message, asked.version):
            if self._core.handshake_versions:
                return False
            self._refuse_handshake(message)
        caller = self._modern.caller(message, asked.head.principal)
        match message:
            case Request():
                self._request(exchange, asked, message, caller)
            case Notification():  # row 5.2
                if asked.version not in of_era(self._core.versions, Era.MODERN):
                    raise refusals.unsupported_version(asked.version or "", self._core.versions)
                self._modern.notified(message, caller)
                exchange.reply(202)
            case _:  # row 5.1
                raise refusals.no_answers_wanted()
        return True

    def _request(
        self, exchange: ServerExchange, asked: Asked, request: Request, caller: Caller
    ) -> None:
        self._modern.check(request, asked.head.headers)
        if request.method != LISTEN:
            self._modern.start(request, caller, StatelessAnswer(self._core, caller, exchange))
            return
        subscriptions = self._modern.subscriptions
        honoured = subscriptions.filter_of(request)
        listener = HttpListener(self._core, exchange, subscriptions)
        exchange.answer = listener
        exchange.open_stream()
        subscriptions.open(request, honoured, listener)

    def _refuse_handshake(self, message: Message) -> None:
        """Who offers an older version is told which are served. Source: 2026-07-28 versioning."""
        if isinstance(message, Request) and message.method == "initialize":
            offered = (message.params or {}).get("protocolVersion")
            raise refusals.unsupported_version(str(offered), self._core.versions, message.id)


@attrs.define(eq=False)
class StatelessLines:
    """What lines of the stateless revisions mean, in one conversation on stdio."""

    _core: ServerCore
    _modern: Modern
    _outlet: Outlet
    calls: dict[RequestId, Call] = attrs.field(factory=dict[RequestId, Call], init=False)
    """The calls that run."""
    _listeners: dict[RequestId, LineListener] = attrs.field(
        factory=dict[RequestId, LineListener], init=False
    )

    def took(self, message: Message | Batch) -> bool:
        """Do what a message asks for; False if it is of the handshake revisions.

        Raises RemoteProtocolError: the refusal.
        """
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            return self._cancelled((message.params or {}).get("requestId"))
        if isinstance(message, Batch) or not is_modern(message):
            return False
        caller = self._modern.caller(message, "", self.calls)
        if isinstance(message, Notification):
            self._modern.notified(message, caller)
        elif isinstance(message, Request):
            self._request(message, caller)
        return True

    def end(self, reason: str) -> None:
        """The conversation is over."""
        for call in tuple(self.calls.values()):
            call.cancel(reason)
        for listener in self._listeners.values():
            self._modern.subscriptions.gone(listener)
        self._listeners.clear()

    def _request(self, request: Request, caller: Caller) -> None:
        self._modern.check(request, None)
        limit = self._core.limits.max_calls_per_session
        if request.id in self.calls or request.id in self._listeners:
            raise refusals.duplicate_request_id(request.id)
        if len(self.calls) + len(self._listeners) >= limit:
            raise refusals.too_many_calls(limit, request.id)
        if request.method != LISTEN:
            answer = StatelessLine(caller, self._outlet, 1, is_batch=False, core=self._core)
            self._modern.start(request, caller, answer)
            return
        honoured = self._modern.subscriptions.filter_of(request)
        listener = self._listeners[request.id] = LineListener(self._outlet)
        self._modern.subscriptions.open(request, honoured, listener)

    def _cancelled(self, id: object) -> bool:
        """A call or a subscription is not wanted any more; False if it is none of these."""
        if not jsonrpc.is_request_id(id):
            return False
        listener = self._listeners.pop(id, None)
        if listener is not None:
            self._modern.subscriptions.gone(listener)
        call = self.calls.get(id)
        if call is not None:
            call.cancel("cancelled by the client")
        return listener is not None or call is not None
