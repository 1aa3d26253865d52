"""Change notifications for who has asked for them: ``subscriptions/listen``.

Such a request is answered by a stream that stays open. Its first message says what will be told,
which may be less than what was asked for; every message names the request. When the server ends it,
the result comes last; a client ends it by going away.

Source: 2026-07-28 basic/utilities/subscriptions; SEP-2575.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import attrs

from ...codecs import json, jsonrpc
from ...messages import Notification, Params, Request, RequestId, Response
from ...meta_keys import SUBSCRIPTION_ID, UPDATED
from .. import refusals
from ..core import ServerCore

_KINDS = {
    "notifications/tools/list_changed": ("toolsListChanged", "tools"),
    "notifications/prompts/list_changed": ("promptsListChanged", "prompts"),
    "notifications/resources/list_changed": ("resourcesListChanged", "resources"),
}
"""By notification: its name in the filter, and the capability whose ``listChanged`` it needs."""

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_URIS = "resourceSubscriptions"

Topic: TypeAlias = tuple[str, str]
"""A name in the filter, and for resources a URI: of one, or with a slash at its end of a folder."""


class ListenerStream(Protocol):
    """Where the messages of a subscription go."""

    @property
    def is_above_high_water(self) -> bool:
        """Whether the client does not take what is sent."""
        ...

    def send(self, message: bytes) -> None:
        """Send a message."""

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the last message, and end."""

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """Break off, in a way that looks like no regular end where there is such a way."""


@attrs.define(eq=False, repr=False)
class Subscription:
    """One client that listens."""

    request_id: RequestId
    wanted: dict[str, Any]
    """The part of its filter that is honoured."""
    stream: ListenerStream

    @property
    def topics(self) -> set[Topic]:
        """What it wants to know: of a resource also what is below it."""
        uris = self.wanted.get(_URIS, ())
        kinds = {(name, "") for name in self.wanted if name != _URIS}
        return kinds | {(_URIS, each) for uri in uris for each in (uri, uri.rstrip("/") + "/")}

    def tell(self, method: str, params: Params) -> None:
        meta = {**(json.as_object(params.get("_meta")) or {}), SUBSCRIPTION_ID: self.request_id}
        self.stream.send(jsonrpc.encode(Notification(method, {**params, "_meta": meta})))

    @property
    def result(self) -> bytes:
        """What comes last."""
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: self.request_id}}
        return jsonrpc.encode(Response(self.request_id, result))


@attrs.define(eq=False, repr=False)
class Subscriptions:
    """All that listen."""

    _core: ServerCore
    _open: dict[ListenerStream, Subscription] = attrs.field(
        factory=dict[ListenerStream, Subscription], init=False
    )
    _by_topic: dict[Topic, dict[ListenerStream, Subscription]] = attrs.field(
        factory=dict[Topic, dict[ListenerStream, Subscription]], init=False
    )
    """Whom to tell, so that nobody else has to be asked."""

    def filter_of(self, request: Request) -> dict[str, Any]:
        """The part of a filter that will be honoured. Raises RemoteProtocolError for none."""
        wanted = json.as_object((request.params or {}).get("notifications"))
        if wanted is None:
            what = "notifications must be an object that names what to listen for"
            raise refusals.INVALID_MODERN_PARAMS(request.id, what=what)
        if len(self._open) >= self._core.limits.max_subscriptions:
            raise refusals.TOO_MANY_SUBSCRIPTIONS(
                request.id, limit=self._core.limits.max_subscriptions
            )
        capabilities = self._core.app.declared_capabilities()
        honoured: dict[str, Any] = {
            name: True
            for name, capability in _KINDS.values()
            if wanted.get(name) is True and capabilities.get(capability, {}).get("listChanged")
        }
        uris = wanted.get(_URIS)
        if json.is_array(uris) and capabilities.get("resources", {}).get("subscribe"):
            most = self._core.limits.max_resources_per_subscription
            honoured[_URIS] = [uri for uri in uris if isinstance(uri, str)][:most]
        return honoured

    def open(self, request: Request, honoured: dict[str, Any], stream: ListenerStream) -> None:
        """Begin to tell, with the acknowledgement."""
        subscription = self._open[stream] = Subscription(request.id, honoured, stream)
        for topic in subscription.topics:
            self._by_topic.setdefault(topic, {})[stream] = subscription
        subscription.tell(_ACKNOWLEDGED, {"notifications": honoured})

    def publish(self, method: str, params: Params) -> None:
        """Tell all that want to know; let those go who do not keep up, and have to look again."""
        listening: dict[ListenerStream, Subscription] = {}
        for topic in _topics_of(method, params):
            listening |= self._by_topic.get(topic, {})
        for stream, subscription in listening.items():
            if stream.is_above_high_water:
                self.gone(stream)
                stream.fail(subscription.result, subscription.request_id)
            else:
                subscription.tell(method, params)

    def gone(self, stream: ListenerStream) -> None:
        """A client has gone away."""
        subscription = self._open.pop(stream, None)
        for topic in subscription.topics if subscription is not None else ():
            listening = self._by_topic[topic]
            del listening[stream]
            if not listening:
                del self._by_topic[topic]

    def end_all(self) -> None:
        """End them all, properly."""
        while self._open:
            stream, subscription = next(reversed(self._open.items()))
            self.gone(stream)
            stream.finish(subscription.result, subscription.request_id)


def _topics_of(method: str, params: Params) -> Iterator[Topic]:
    """What a notification is about: the resource, and all folders that it is in."""
    uri = params.get("uri")
    if method in _KINDS:
        yield _KINDS[method][0], ""
    elif isinstance(uri, str):
        yield _URIS, uri
        for slash in re.finditer("/", uri):
            yield _URIS, uri[: slash.end()]


def is_known(method: str) -> bool:
    """Whether a notification is one that can be listened for."""
    return method in _KINDS or method == UPDATED
