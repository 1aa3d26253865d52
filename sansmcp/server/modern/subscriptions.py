"""Change notifications for who has asked for them: ``subscriptions/listen``.

Such a request is answered by a stream that stays open. Its first message says what will be told,
which may be less than what was asked for; every message names the request. When the server ends it,
the result comes last; a client ends it by going away.

Source: 2026-07-28 basic/utilities/subscriptions; SEP-2575.
"""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from ...codecs import json, jsonrpc
from ...messages import Notification, Params, Request, RequestId, Response
from ...meta import SUBSCRIPTION_ID
from .. import refusals
from ..core import ServerCore

_KINDS = {
    "notifications/tools/list_changed": ("toolsListChanged", "tools"),
    "notifications/prompts/list_changed": ("promptsListChanged", "prompts"),
    "notifications/resources/list_changed": ("resourcesListChanged", "resources"),
}
"""By notification: its name in the filter, and the capability whose ``listChanged`` it needs."""

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_UPDATED = "notifications/resources/updated"
_URIS = "resourceSubscriptions"


class ListenerStream(Protocol):
    """Where the messages of a subscription go."""

    @property
    def congested(self) -> bool:
        """Whether the client does not take what is sent."""
        ...

    def send(self, message: bytes) -> None:
        """Send a message."""

    def finish(self, message: bytes, request_id: RequestId) -> None:
        """Send the last message, and end."""

    def fail(self, message: bytes, request_id: RequestId) -> None:
        """Break off, in a way that looks like no regular end where there is such a way."""


@attrs.define(eq=False)
class Subscription:
    """One client that listens."""

    request_id: RequestId
    wanted: dict[str, Any]
    """The part of its filter that is honoured."""
    stream: ListenerStream

    def wants(self, method: str, params: Params) -> bool:
        """Whether it has asked for this notification."""
        if method in _KINDS:
            return self.wanted.get(_KINDS[method][0]) is True
        uri = params.get("uri")
        uris = self.wanted.get(_URIS, ())
        return isinstance(uri, str) and any(
            uri == each or uri.startswith(each.rstrip("/") + "/") for each in uris
        )

    def tell(self, method: str, params: Params) -> None:
        """Tell it."""
        meta = {**(json.as_object(params.get("_meta")) or {}), SUBSCRIPTION_ID: self.request_id}
        self.stream.send(jsonrpc.encode(Notification(method, {**params, "_meta": meta})))

    @property
    def result(self) -> bytes:
        """What comes last."""
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: self.request_id}}
        return jsonrpc.encode(Response(self.request_id, result))


@attrs.define(eq=False)
class Subscriptions:
    """All that listen."""

    _core: ServerCore
    _open: dict[ListenerStream, Subscription] = attrs.field(
        factory=dict[ListenerStream, Subscription], init=False
    )

    def filter_of(self, request: Request) -> dict[str, Any]:
        """The part of a filter that will be honoured. Raises RemoteProtocolError for none."""
        wanted = json.as_object((request.params or {}).get("notifications"))
        if wanted is None:
            what = "notifications must be an object that names what to listen for"
            raise refusals.invalid_request_params(what, "invalid_params", request.id)
        if len(self._open) >= self._core.limits.max_subscriptions:
            raise refusals.too_many_subscriptions(self._core.limits.max_subscriptions, request.id)
        capabilities = self._core.app.declared_capabilities()
        honoured: dict[str, Any] = {
            name: True
            for name, capability in _KINDS.values()
            if wanted.get(name) is True and capabilities.get(capability, {}).get("listChanged")
        }
        uris = wanted.get(_URIS)
        if json.is_array(uris) and capabilities.get("resources", {}).get("subscribe"):
            honoured[_URIS] = [uri for uri in uris if isinstance(uri, str)]
        return honoured

    def open(self, request: Request, honoured: dict[str, Any], stream: ListenerStream) -> None:
        """Begin to tell, with the acknowledgement."""
        subscription = self._open[stream] = Subscription(request.id, honoured, stream)
        subscription.tell(_ACKNOWLEDGED, {"notifications": honoured})

    def publish(self, method: str, params: Params) -> None:
        """Tell all that want to know; let those go who do not keep up, and have to look again."""
        for stream, subscription in tuple(self._open.items()):
            if not subscription.wants(method, params):
                continue
            if stream.congested:
                self.gone(stream)
                stream.fail(subscription.result, subscription.request_id)
            else:
                subscription.tell(method, params)

    def gone(self, stream: ListenerStream) -> None:
        """A client has gone away."""
        self._open.pop(stream, None)

    def end_all(self) -> None:
        """End them all, properly."""
        while self._open:
            stream, subscription = self._open.popitem()
            stream.finish(subscription.result, subscription.request_id)


def is_known(method: str) -> bool:
    """Whether a notification is one that can be listened for."""
    return method in _KINDS or method == _UPDATED
