"""Change notifications for the clients that subscribed to them: ``subscriptions/listen``.

The response to such a request is a stream that stays open. Its first message names the
notifications that will be sent, which may be fewer than requested; every message names the request.
If the server ends the subscription, the result comes last. A client ends it by closing the
connection, or on stdio with a cancellation.

Source: 2026-07-28 basic/utilities/subscriptions; SEP-2575.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Protocol, TypeAlias

import attrs

from ...codecs import json, jsonrpc
from ...errors import RemoteProtocolError
from ...events import ListenersChanged, ListenReceived
from ...messages import Notification, Params, Request, RequestId, Response
from ...meta_keys import ACKNOWLEDGED, SUBSCRIPTION_ID, UPDATED
from ...server_call import ListenRequest
from ...shares import Shares
from ...tasks import TASK_IDS
from .. import refusals
from ..core import ServerCore

_KINDS = {
    "notifications/tools/list_changed": ("toolsListChanged", "tools"),
    "notifications/prompts/list_changed": ("promptsListChanged", "prompts"),
    "notifications/resources/list_changed": ("resourcesListChanged", "resources"),
}
"""By notification: its name in the filter, and the capability whose ``listChanged`` it needs."""


_URIS = "resourceSubscriptions"

Topic: TypeAlias = tuple[str, str]
"""A name in the filter, and for resources a URI: of one, or of a folder with a slash at its end."""


class Watch(Protocol):
    """Something that is done for one subscription."""

    def stop(self) -> None:
        """Stop, because the subscription has ended."""


class ListenerStream(Protocol):
    """Sends the messages of a subscription."""

    @property
    def is_above_high_water(self) -> bool:
        """True if too many bytes wait for the client."""
        ...

    @property
    def is_gone(self) -> bool:
        """True if the client has left, or ended the subscription."""
        ...

    def expect(self) -> None:
        """Keep the request until the subscription is opened or refused."""

    def open(self) -> None:
        """Begin the stream."""

    def refuse(self, error: RemoteProtocolError) -> None:
        """Respond with an error instead."""

    def send(self, message: bytes) -> None:
        """Send a message."""

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the last message and end the subscription."""

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """End the subscription with an error, if the transport can show one."""


@attrs.define(eq=False, repr=False)
class Subscription:
    """One subscription of a client."""

    request_id: RequestId
    wanted: dict[str, Any]
    """The part of the client's filter that is honoured."""
    stream: ListenerStream
    client: str
    """The principal or address of the client; empty if neither is known."""
    watches: list[Watch] = attrs.field(factory=lambda: [])
    """What ends with the subscription."""
    _encoded_id: bytes = attrs.field(
        default=attrs.Factory(lambda self: json.encode(self.request_id), takes_self=True),
        init=False,
    )

    @property
    def topics(self) -> set[Topic]:
        """The topics of the filter; a resource includes the resources below it."""
        uris = self.wanted.get(_URIS, ())
        kinds = {(name, "") for name in self.wanted if name not in (_URIS, TASK_IDS)}
        return kinds | {(_URIS, each) for uri in uris for each in (uri, uri.rstrip("/") + "/")}

    def notify(self, method: str, params: Params) -> None:
        self.send(_encode_for_all(method, params))

    def send(self, notification: bytes) -> None:
        """Complete a notification that is encoded for all subscriptions, and send it."""
        self.stream.send(b"%b%b}}}" % (notification, self._encoded_id))

    @property
    def result(self) -> bytes:
        """The result, which is the last message."""
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: self.request_id}}
        return jsonrpc.encode(Response(self.request_id, result))


@attrs.define(eq=False, repr=False)
class UnconfirmedListener(ListenRequest):
    """A subscription that the application has yet to acknowledge."""

    _subscriptions: Subscriptions
    request: Request
    _honoured: dict[str, Any]
    stream: ListenerStream
    client: str
    uris: tuple[str, ...]

    def acknowledge(self, uris: Collection[str], *, now: float) -> bool:
        return self._subscriptions.confirm(self, {**self._honoured, _URIS: uris}, now)


@attrs.define(eq=False, repr=False)
class Subscriptions:
    """The open subscriptions of all clients."""

    _core: ServerCore
    _open: dict[ListenerStream, Subscription] = attrs.field(
        factory=dict[ListenerStream, Subscription], init=False
    )
    _by_topic: dict[Topic, dict[ListenerStream, Subscription]] = attrs.field(
        factory=dict[Topic, dict[ListenerStream, Subscription]], init=False
    )
    """The subscriptions of each topic, so that ``publish()`` need not look at all of them."""
    _held: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of open subscriptions by client."""

    def check_room(self, request: Request, client: str) -> None:
        """Raise RemoteProtocolError if too many subscriptions are open.

        ``client``: its principal or address; empty if neither is known.
        """
        limits = self._core.limits
        if client and self._held.of(client) >= limits.max_subscriptions_per_client:
            limit = limits.max_subscriptions_per_client
        elif len(self._open) + len(self._unconfirmed) >= limits.max_subscriptions:
            limit = limits.max_subscriptions
        else:
            return
        raise refusals.TOO_MANY_SUBSCRIPTIONS(request.id, limit=limit)

    _unconfirmed: dict[UnconfirmedListener, None] = attrs.field(
        factory=dict["UnconfirmedListener", None], init=False
    )
    """The subscriptions that the application has yet to acknowledge."""

    def filter_of(self, request: Request) -> dict[str, Any]:
        """Return the part of a filter that is honoured.

        Raises RemoteProtocolError if there is no filter.
        """
        wanted = json.as_object((request.params or {}).get("notifications"))
        if wanted is None:
            what = "notifications must be an object that names what to listen for"
            raise refusals.INVALID_MODERN_PARAMS(request.id, what=what)
        capabilities = self._core.app.declared_capabilities()
        honoured: dict[str, Any] = {
            name: True
            for name, capability in _KINDS.values()
            if wanted.get(name) is True and capabilities.get(capability, {}).get("listChanged")
        }
        uris = wanted.get(_URIS)
        if json.is_array(uris) and capabilities.get("resources", {}).get("subscribe"):
            limits = self._core.limits
            kept = [
                uri for uri in uris if isinstance(uri, str) and len(uri) <= limits.max_uri_length
            ][: limits.max_resources_per_subscription]
            if kept:
                honoured[_URIS] = kept
        return honoured

    def open(
        self, request: Request, honoured: dict[str, Any], stream: ListenerStream, client: str
    ) -> Subscription:
        """Open a subscription for which there is room, and send its acknowledgement.

        If nothing of its filter is honoured, it is completed at once: it would tell nothing.
        Source: the working group on transports, guidance on the lifecycle of subscriptions.
        """
        stream.expect()
        stream.open()
        subscription = self._open[stream] = Subscription(request.id, honoured, stream, client)
        self._held.change(client, 1)
        for topic in subscription.topics:
            self._by_topic.setdefault(topic, {})[stream] = subscription
        self._report(subscription)
        subscription.notify(ACKNOWLEDGED, {"notifications": honoured})
        if not honoured:
            self.end(stream)
        return subscription

    def begin(
        self, request: Request, honoured: dict[str, Any], stream: ListenerStream, client: str
    ) -> None:
        """Open a subscription, or let the application acknowledge it if it wants to."""
        uris = honoured.get(_URIS)
        if not uris or not self._core.app.confirms_listeners:
            self.open(request, honoured, stream, client)
            return
        stream.expect()
        waiting = UnconfirmedListener(self, request, honoured, stream, client, tuple(uris))
        self._unconfirmed[waiting] = None
        self._core.events.append(ListenReceived(waiting))

    def confirm(self, waiting: UnconfirmedListener, honoured: dict[str, Any], now: float) -> bool:
        """Open a subscription that the application has acknowledged, unless it has ended."""
        self._core.now = now
        is_waiting = waiting in self._unconfirmed
        self._unconfirmed.pop(waiting, None)
        if not is_waiting or waiting.stream.is_gone:
            return False
        uris = [uri for uri in waiting.uris if uri in honoured[_URIS]]
        others = {name: value for name, value in honoured.items() if name != _URIS}
        agreed = {**others, _URIS: uris} if uris else others
        self.open(waiting.request, agreed, waiting.stream, waiting.client)
        return True

    def _report(self, subscription: Subscription) -> None:
        """Report that a subscription was opened or has ended, if it is one to resources."""
        if subscription.wanted.get(_URIS):
            self._core.events.append(ListenersChanged())

    @property
    def has_any(self) -> bool:
        """True if a client is subscribed to anything."""
        return bool(self._open)

    @property
    def resources(self) -> frozenset[str]:
        """The URIs of the resources to which clients are subscribed."""
        return frozenset(uri for each in self._open.values() for uri in each.wanted.get(_URIS, ()))

    def publish(self, method: str, params: Params) -> None:
        """Notify the subscribers of a topic, and end the subscriptions that are too far behind.

        Their clients subscribe again and read the lists or resources anew.
        """
        listening: dict[ListenerStream, Subscription] = {}
        for topic in _topics_of(method, params):
            listening |= self._by_topic.get(topic, {})
        notification = _encode_for_all(method, params) if listening else b""
        for stream, subscription in listening.items():
            if stream.is_above_high_water:
                self.remove(stream)
                stream.fail(subscription.result, subscription.request_id)
            else:
                subscription.send(notification)

    def remove(self, stream: ListenerStream) -> None:
        """Forget a subscription that has ended."""
        subscription = self._open.pop(stream, None)
        if subscription is None:
            return
        self._held.change(subscription.client, -1)
        for topic in subscription.topics:
            listening = self._by_topic[topic]
            del listening[stream]
            if not listening:
                del self._by_topic[topic]
        for watch in subscription.watches:
            watch.stop()
        self._report(subscription)

    def end(self, stream: ListenerStream) -> None:
        """End an open subscription with its result."""
        subscription = self._open[stream]
        self.remove(stream)
        stream.finish(subscription.result, subscription.request_id)

    def end_all(self) -> None:
        """End all subscriptions with their results, the newest first."""
        for waiting in self._unconfirmed:
            if not waiting.stream.is_gone:
                waiting.stream.refuse(refusals.SHUTTING_DOWN(waiting.request.id))
        self._unconfirmed.clear()
        while self._open:
            self.end(next(reversed(self._open)))


def _encode_for_all(method: str, params: Params) -> bytes:
    """Encode a notification up to the request id, which is all that differs by subscription."""
    meta = dict(json.as_object(params.get("_meta")) or {})
    meta.pop(SUBSCRIPTION_ID, None)
    members = {name: value for name, value in params.items() if name != "_meta"}
    members["_meta"] = {**meta, SUBSCRIPTION_ID: 0}
    return jsonrpc.encode(Notification(method, members)).removesuffix(b"0}}}")


def _topics_of(method: str, params: Params) -> Iterator[Topic]:
    """Yield the topics of a notification: the resource, and all folders that contain it."""
    uri = params.get("uri")
    if method in _KINDS:
        yield _KINDS[method][0], ""
    elif isinstance(uri, str):
        yield _URIS, uri
        for slash in re.finditer("/", uri):
            yield _URIS, uri[: slash.end()]


def is_known(method: str) -> bool:
    """Return True if clients can subscribe to this notification."""
    return method in _KINDS or method == UPDATED
