"""The JSON-RPC requests of a client that have not ended: by number, and by the id in flight.

A request has one number: that of a call is positive, its handle; one of the client's own has a
negative one. Whenever it is sent it gets a new id, which no other request of the client has had.
Only the request for the rest of a call with a key has the id of the call.

The id of a call that was cancelled on a shared stream is kept for a while: its response may be the
handle of a task, which the cancellation does not end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs

from ..codecs import json
from ..codecs.jsonrpc import is_request_id
from ..messages import Notification, Params, RequestId
from ..meta_keys import SUBSCRIPTION_ID
from .outcomes import Kind
from .request import PendingRequest

_MAX_GIVEN_UP = 1000
"""Cancelled calls of which the client remembers that a late response may be the handle of a task.
"""


@attrs.define(eq=False, repr=False)
class RequestTable:
    """The requests of one client."""

    handles: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    """The numbers of further calls."""
    calls: dict[int, PendingRequest] = attrs.field(factory=dict[int, PendingRequest], init=False)
    own: dict[int, PendingRequest] = attrs.field(factory=dict[int, PendingRequest], init=False)
    by_id: dict[RequestId | None, PendingRequest] = attrs.field(
        factory=dict[RequestId | None, PendingRequest], init=False
    )
    """Those in flight."""
    _own_numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(-1, -1), init=False)
    _last_id: int = attrs.field(default=-1, init=False)
    _given_up: dict[RequestId, None] = attrs.field(factory=dict[RequestId, None], init=False)
    """The ids of cancelled calls that may have become tasks meanwhile."""

    def add_own(
        self, kind: Kind, method: str, params: Params | None, parent: int | None = None
    ) -> PendingRequest:
        """Add a request of the client's own; ``parent``: the call for which it is made."""
        request = PendingRequest(next(self._own_numbers), kind, method, params, parent=parent)
        self.own[request.number] = request
        return request

    def get(self, number: int) -> PendingRequest:
        """Return the request with a number."""
        return self.calls[number] if number > 0 else self.own[number]

    def parent_of(self, request: PendingRequest) -> PendingRequest:
        """Return the call for which the client has made a request of its own."""
        assert request.parent is not None
        return self.calls[request.parent]

    def call_of(self, number: int) -> PendingRequest | None:
        """Return the call for which a request is made; None if it is one of the opening."""
        parent = self.own[number].parent if number < 0 else number
        return None if parent is None else self.calls[parent]

    def new_id(self) -> int:
        """Return an id that no request has had."""
        self._last_id += 1
        return self._last_id

    def renew_id(self, request: PendingRequest) -> None:
        """Give a request a new id: it is about to be sent."""
        self.by_id.pop(request.id, None)
        request.id = self._last_id = self._last_id + 1
        self.by_id[request.id] = request

    def remove_own(self, request: PendingRequest) -> None:
        """Remove a request of the client's own."""
        self.by_id.pop(request.id, None)
        request.id = None
        del self.own[request.number]

    def had_id(self, id: RequestId | None) -> bool:
        """Return True if a request may have had an id."""
        return type(id) is int and id <= self._last_id

    def subscription_of(self, notification: Notification) -> PendingRequest | None:
        """Return the subscription that a notification on a shared stream names; None if none."""
        meta = json.as_object((notification.params or {}).get("_meta")) or {}
        id = meta.get(SUBSCRIPTION_ID)
        return self.by_id.get(id) if is_request_id(id) else None

    def take_place(self, call: PendingRequest, renewal: PendingRequest) -> None:
        """Let a call go on as a request of the client's own that is in flight, which ends."""
        self.by_id.pop(call.id, None)
        del self.own[renewal.number]
        call.id, call.exchange, call.stream = renewal.id, renewal.exchange, renewal.stream
        self.by_id[call.id] = call

    def give_up(self, id: RequestId) -> None:
        """Remember a call that is cancelled, and may have become a task."""
        self._given_up[id] = None
        if len(self._given_up) > _MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    def was_given_up(self, id: RequestId | None) -> bool:
        """Return True, once, for the id of such a call."""
        if id not in self._given_up:
            return False
        del self._given_up[id]
        return True
