"""The transports of 2026-07-28: requests and their responses on HTTP, and on stdio.

Source: 2026-07-28 basic/transports: Sending Messages, Cancellation; stdio.
"""

from __future__ import annotations

import math
from typing import Any

import attrs

from ...codecs import jsonrpc
from ...codecs.sse import encode_event
from ...errors import RemoteProtocolError
from ...http import RequestHead
from ...messages import Message, Notification, Request, RequestId
from ...meta_keys import LISTEN, LOG_LEVEL, meta_of
from ...reclaim import CANCEL, EXTENSION
from ...tasks import PROGRESS_UNSHOWN
from .. import refusals
from ..admission import known_client_of
from ..calls import CallOwner, RunningCall
from ..channel import ChannelResponder
from ..core import ServerCore, Sink
from ..exchange import ServerExchange
from ..keyed_calls import Key, KeyedCalls
from ..unstored_responder import KeyedResponder, UnstoredResponder
from .era import ModernServer, check_notification
from .results import ModernResults
from .subscriptions import Subscriptions


@attrs.define(eq=False, repr=False)
class ModernHttpResponder(ModernResults, UnstoredResponder):
    """Sends the response to one POST."""


@attrs.define(eq=False, repr=False)
class KeyedModernResponder(ModernResults, KeyedResponder):
    """The same for a call that has a key."""


@attrs.define(eq=False, repr=False)
class ModernStdioResponder(ModernResults, ChannelResponder):
    """Sends the response to one request on stdio."""

    _core: ServerCore
    session: CallOwner
    _sink: Sink
    open_calls: int = attrs.field(default=1, init=False)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response. Returns False if the output is closed."""
        self.open_calls = 0
        return self._sink.send(data)

    def complete_without_response(self) -> None:
        """End without a response, because the client cancelled the call."""
        self.open_calls = 0


@attrs.define(eq=False, repr=False)
class HttpListener:
    """Sends the messages of a subscription on its event stream, and is its source."""

    _core: ServerCore
    _exchange: ServerExchange
    _subscriptions: Subscriptions

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client."""
        return self._exchange.is_slow

    @property
    def is_gone(self) -> bool:
        """True if the client has left."""
        return self._exchange.is_done

    def expect(self) -> None:
        """Do nothing: the exchange is there."""

    def open(self) -> None:
        """Begin the event stream."""
        self._exchange.open_stream()

    def refuse(self, error: RemoteProtocolError) -> None:
        """Respond with an error, before the stream has begun."""
        self._exchange.refuse(error)

    def send(self, message: bytes) -> None:
        self._exchange.send(encode_event(message))

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the last message, and end the stream."""
        self.send(message)
        self._exchange.end()

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """Abort the stream, so that the client sees a lost connection and subscribes again."""
        self._exchange.abort()

    def catch_up(self) -> None:
        """Do nothing: there is no store behind the stream."""

    def on_closed(self) -> None:
        self._subscriptions.remove(self)

    def end_expired(self) -> bool:
        """End the subscription with its result, after which clients subscribe again."""
        self._subscriptions.end(self)
        return True


@attrs.define(eq=False, repr=False)
class LineListener:
    """Sends the messages of a subscription on stdio, among all other messages."""

    _sink: Sink
    _listeners: dict[RequestId, LineListener]
    """The open subscriptions of the channel; this is one of them."""
    _request_id: RequestId

    @property
    def is_above_high_water(self) -> bool:
        return self._sink.is_above_high_water

    @property
    def is_gone(self) -> bool:
        """True if the client has ended the subscription."""
        return self._listeners.get(self._request_id) is not self

    def expect(self) -> None:
        """Be one of the open subscriptions."""
        self._listeners[self._request_id] = self

    def open(self) -> None:
        """Do nothing: the channel is open."""

    def refuse(self, error: RemoteProtocolError) -> None:
        """Respond with an error."""
        del self._listeners[self._request_id]
        self._sink.send(jsonrpc.encode(error.reply))

    def send(self, message: bytes) -> None:
        self._sink.send(message)

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the result, then the cancellation that has to follow it on stdio."""
        del self._listeners[request_id]
        self._sink.send(message)
        params = {"requestId": request_id, "reason": "the server ends the subscription"}
        self._sink.send(jsonrpc.encode(Notification("notifications/cancelled", params)))

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """End the subscription, so that the client knows that it may have missed messages."""
        self.finish(message, request_id)


@attrs.define(eq=False, repr=False)
class ModernHttp:
    """Handles the POSTs of 2026-07-28."""

    _core: ServerCore
    _modern: ModernServer
    _keyed_calls: KeyedCalls | None

    def receive(self, exchange: ServerExchange, head: RequestHead, message: Message) -> None:
        """Handle a message. Raises RemoteProtocolError for a refusal."""
        match message:
            case Request():
                self._request(exchange, head, message)
            case Notification():
                check_notification(message, head, self._core.options.versions)
                if message.method != CANCEL:
                    self._modern.receive_notification(message, head.principal)
                elif self._keyed_calls is not None:
                    self._keyed_calls.cancel(meta_of(message).get(EXTENSION), head.principal)
                exchange.send_response(202)
            case _:
                raise refusals.UNEXPECTED_RESPONSE()

    def _request(self, exchange: ServerExchange, head: RequestHead, request: Request) -> None:
        meta = meta_of(request)
        text = meta.pop(EXTENSION, None)
        if text is not None and self._keyed_calls is not None:
            self._keyed_request(self._keyed_calls, exchange, head, request, meta, text)
            return
        self._modern.check(request, head, meta)
        if request.method != LISTEN:
            self._start(exchange, head, request, meta)
            return
        listener = HttpListener(self._core, exchange, self._modern.subscriptions)
        exchange.source = listener
        self._modern.listen(
            request, meta, head.principal, listener, known_client_of(self._core, exchange)
        )

    def _keyed_request(
        self,
        calls: KeyedCalls,
        exchange: ServerExchange,
        head: RequestHead,
        request: Request,
        meta: dict[str, Any],
        text: Any,
    ) -> None:
        """Start a call with a key, or send the rest of one that has been started."""
        key, found = calls.read(text, head.principal, request)
        self._modern.check(request, head, meta, has_key=True, is_known=found is not None)
        if found is not None:
            calls.reclaim(found, key, request, exchange)
        elif request.method == "tools/call":
            self._start(exchange, head, request, meta, key)
        else:
            calls.look(key, head.principal, request, exchange)

    def _start(
        self,
        exchange: ServerExchange,
        head: RequestHead,
        request: Request,
        meta: dict[str, Any],
        key: Key | None = None,
    ) -> None:
        caller = CallOwner.of_meta(meta, head.principal, self._core.modern_versions[-1])
        is_about_task = self._modern.is_about_task(request)
        stream_after = math.inf if is_about_task else self._core.stream_after_of(request.method)
        is_shown = "progressToken" in meta and meta.get(PROGRESS_UNSHOWN) is not True
        if stream_after is None and not is_shown and LOG_LEVEL not in meta:
            # Nothing precedes the result, and nothing can be resumed. Until a comment is due, a
            # stream would be of no use, and some clients cap events, but not JSON, at 1 MiB.
            stream_after = self._core.limits.stream_comment_interval
        if key is None:
            responder = ModernHttpResponder(self._core, caller, exchange, stream_after)
            self._modern.start(request, caller, responder)
            return
        calls = self._keyed_calls
        assert calls is not None, "else keys are not read"
        keyed = KeyedModernResponder(self._core, caller, exchange, stream_after, calls)
        start = self._modern.start
        calls.start(key, head.principal, request, keyed, start, request, caller, keyed)


@attrs.define(eq=False, repr=False)
class ModernChannelHandler:
    """Handles the messages of 2026-07-28 on one channel of stdio."""

    _core: ServerCore
    _modern: ModernServer
    _sink: Sink
    calls: dict[RequestId, RunningCall] = attrs.field(
        factory=dict[RequestId, RunningCall], init=False
    )
    """The running calls by request id."""
    listeners: dict[RequestId, LineListener] = attrs.field(
        factory=dict[RequestId, LineListener], init=False
    )
    """The open subscriptions by request id."""

    @property
    def is_busy(self) -> bool:
        return bool(self.calls)

    def receive(self, message: Message) -> None:
        """Handle a message. Raises RemoteProtocolError for a refusal."""
        if isinstance(message, Request):
            self._request(message)
        elif not isinstance(message, Notification):
            return  # a response, but at this revision there are no server requests
        elif message.method == "notifications/cancelled":
            self._cancel(message)
        elif self._modern.serves(message):
            self._modern.receive_notification(message, "")

    def end(self, reason: str) -> None:
        for call in tuple(self.calls.values()):
            call.cancel(reason)
        for listener in self.listeners.values():
            self._modern.subscriptions.remove(listener)
        self.listeners.clear()

    def _request(self, request: Request) -> None:
        meta = meta_of(request)
        meta.pop(EXTENSION, None)
        self._modern.check(request, None, meta)
        limit = self._core.limits.max_calls_per_session
        if request.id in self.calls or request.id in self.listeners:
            raise refusals.DUPLICATE_REQUEST_ID(request.id)
        if len(self.calls) + len(self.listeners) >= limit:
            raise refusals.TOO_MANY_CALLS(request.id, limit=limit)
        if request.method != LISTEN:
            caller = CallOwner.of_meta(meta, "", self._core.modern_versions[-1])
            caller.calls = self.calls
            self._modern.start(
                request, caller, ModernStdioResponder(self._core, caller, self._sink)
            )
            return
        listener = LineListener(self._sink, self.listeners, request.id)
        self._modern.listen(request, meta, "", listener)

    def _cancel(self, notification: Notification) -> None:
        """Cancel a call, or end a subscription; an unknown id is ignored."""
        params = notification.params or {}
        id, reason = params.get("requestId"), params.get("reason")
        if not jsonrpc.is_request_id(id):
            return
        if (listener := self.listeners.pop(id, None)) is not None:
            self._modern.subscriptions.remove(listener)
        elif (call := self.calls.get(id)) is not None:
            call.cancel(reason if isinstance(reason, str) else "cancelled by the client")
