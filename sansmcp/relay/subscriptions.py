"""The subscriptions of clients to lists and resources, and those at the upstream server.

There is one subscription at the upstream server for all clients of a resource. A client gets the
confirmation of its own one when the upstream server has agreed, which it does per resource.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import attrs

from ..codecs import json
from ..errors import JsonRpcError, LocalProtocolError
from ..events import CallCompleted, CallFailed
from ..messages import Params
from ..meta_keys import LISTEN, UPDATED
from .ends import Audience, Upstream

RESOURCES_CHANGED = "notifications/resources/list_changed"
LISTS = {
    "notifications/tools/list_changed": ("tools", "toolsListChanged"),
    "notifications/prompts/list_changed": ("prompts", "promptsListChanged"),
    RESOURCES_CHANGED: ("resources", "resourcesListChanged"),
}
"""By notification of a changed list: the capability, and the name in ``subscriptions/listen``."""

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"

_CONFIRM_TIMEOUT = 5.0
"""Seconds that the subscription of a client waits for the upstream server to agree to it."""

_LISTEN_AGAIN = 5.0
"""Seconds after the upstream server has ended a subscription until the relay subscribes again."""

_ASK_AGAIN = 60.0
"""Seconds after which the upstream server may be asked again for a resource that it has refused."""

_MOST_ASKED = 100
"""Requests that subscribe or unsubscribe and run at one time, before 2026-07-28; others wait. The
resources of clients are many, and must leave the connection room for calls.
"""

_ASK_TIMEOUT = 30.0
"""Seconds in which the upstream server must answer one of them."""

_FEW = 1000
_PAUSE = 0.02
"""How often what the clients use is compared with what they have subscribed to: at once if it is
few resources, else with this pause for each thousand, in seconds. The comparison takes 1 ms for a
thousand, so it takes a twentieth of the time at most, however many clients come and go.
"""

_QUEUED = -1

Confirm = Callable[[Collection[str], float], object]
"""Takes the resources to which the upstream server has agreed, and the time."""


@attrs.define(eq=False)
class _Unconfirmed:
    """A subscription of a client that waits for the response of the upstream server."""

    uris: set[str]
    waiting: set[str]
    """Those of which the upstream server has said nothing yet."""
    confirm: Confirm
    due: float
    """Until when to wait; then the upstream server is taken to agree."""


@attrs.define(eq=False)
class Subscriptions:
    """Keeps the subscriptions at the upstream server as the clients need them."""

    _upstream: Upstream
    _audience: Audience
    _listeners: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    """At 2026-07-28: calls that listen, by URI of a resource; lists have the name ``""``."""
    _calls: dict[int, set[str]] = attrs.field(factory=dict[int, set[str]], init=False)
    """By upstream call that subscribes or listens: its names that are still needed."""
    _listens_again: float = attrs.field(default=math.inf, init=False)
    """When to replace the listeners that the upstream server has ended."""
    _unanswered: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    """By resource whose subscription has had no response yet: the upstream call; ``_QUEUED`` if it
    waits for others.
    """
    _queue: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """Before 2026-07-28: the resources to subscribe to, or to unsubscribe from, by the method."""
    _asking: set[int] = attrs.field(factory=set[int], init=False)
    """The calls that do so."""
    _unconfirmed: dict[_Unconfirmed, None] = attrs.field(
        factory=dict[_Unconfirmed, None], init=False
    )
    """In the order in which they are due."""
    _waiting: dict[str, dict[_Unconfirmed, None]] = attrs.field(
        factory=dict[str, dict[_Unconfirmed, None]], init=False
    )
    """By resource: those that wait for the response about it."""
    _acknowledged: dict[int, bool] = attrs.field(factory=dict[int, bool], init=False)
    """The listeners of which the upstream server has said what they get, and if that is any."""
    _declined: set[str] = attrs.field(factory=set[str], init=False)
    """``""`` if the upstream server has completed a listener for lists that gets nothing."""
    _refused: dict[str, float] = attrs.field(factory=dict[str, float], init=False)
    """The resources to which the upstream server did not agree, and until when it is not asked for
    them again. Else each change of other subscriptions would ask for all of them.
    """
    _missed: set[str] = attrs.field(factory=set[str], init=False)
    """What may have changed while it was not subscribed to: names as in ``_listeners``."""
    _subscribed: set[str] = attrs.field(factory=set[str], init=False)
    """Before 2026-07-28: the resources to which the upstream session is subscribed."""
    _rests_until: float = attrs.field(default=-math.inf, init=False)
    """Until when what the clients use is not compared again."""
    _compares_at: float = attrs.field(default=math.inf, init=False)
    """When to compare it, since it has changed."""

    def connected(self, now: float, *, is_first: bool) -> None:
        """Subscribe in a new upstream session; tell of what may have changed before."""
        self._declined.clear()
        self._lose()
        self._follow(self._resources, now)
        if not is_first and "" not in self._listeners:
            self._tell_changed("", now)

    def upstream_closed(self) -> None:
        """Forget what the calls of the closed client listened to: another one follows."""
        self._missed.update(self._listeners)
        self._listeners.clear()
        self._acknowledged.clear()
        self._lose()

    def _lose(self) -> None:
        """Forget the subscriptions that have ended with the upstream session."""
        self._missed |= self._subscribed
        self._subscribed.clear()
        self._refused.clear()
        self._queue.clear()
        self._asking.clear()
        listening = set(self._listeners.values())
        self._calls = {call: names for call, names in self._calls.items() if call in listening}
        self._unanswered = {
            uri: call for uri, call in self._unanswered.items() if call in listening
        }

    @property
    def _resources(self) -> set[str]:
        """The resources to which the clients are subscribed, or will be once it is confirmed."""
        begun = (uri for each in self._unconfirmed for uri in each.uris)
        return {*self._audience.resources, *begun}

    # The clients

    def confirm_later(self, uris: Collection[str], confirm: Confirm, now: float) -> None:
        """Subscribe to resources, and confirm it when the upstream server has agreed to them.

        Raises LocalProtocolError if it cannot be asked.
        """
        for uri in uris:  # it may have them by now
            self._refused.pop(uri, None)
        self._subscribe(uris, now)
        waiting = {uri for uri in uris if uri in self._unanswered}
        unconfirmed = _Unconfirmed(set(uris), waiting, confirm, now + _CONFIRM_TIMEOUT)
        self._unconfirmed[unconfirmed] = None
        for uri in waiting:
            self._waiting.setdefault(uri, {})[unconfirmed] = None
        self._confirm(() if waiting else (unconfirmed,), now)

    def _confirm(self, ready: Collection[_Unconfirmed], now: float) -> None:
        """Confirm the subscriptions that wait for nothing else."""
        for each in ready:
            del self._unconfirmed[each]
            each.confirm(each.uris, now)
        if ready:
            self.changed(now)  # of clients that have left meanwhile

    def _confirm_overdue(self, now: float) -> None:
        """Confirm the subscriptions that have waited for too long."""
        while (first := next(iter(self._unconfirmed), None)) is not None and first.due <= now:
            for uri in first.waiting:
                others = self._waiting[uri]
                del others[first]
                if not others:
                    del self._waiting[uri]
            self._confirm((first,), now)

    def changed(self, now: float) -> None:
        """Record that clients have subscribed, or that subscriptions of theirs have ended."""
        if now < self._rests_until:
            self._compares_at = self._rests_until
        else:
            self._compare(now)

    def _compare(self, now: float) -> None:
        """Subscribe to what the clients use, and end the subscriptions that no client uses."""
        used = self._resources
        self._compares_at = math.inf
        self._rests_until = now + len(used) // _FEW * _PAUSE
        self._follow(used, now)
        self._drop_unused(used, now)

    def _follow(self, used: Collection[str], now: float) -> None:
        """Subscribe to the lists, and to the resources of the clients, where that is missing."""
        self._listens_again = math.inf
        if not (self._upstream.is_known and self._upstream.is_ready):
            return  # connected() is called, or there is another client
        lists = {
            name: True
            for capability, name in LISTS.values()
            if self._upstream.offers(capability, "listChanged")
        }
        try:
            is_missing = "" not in self._listeners and "" not in self._declined
            if self._upstream.listens and lists and is_missing:
                self._listen({""}, lists, now)
            if self._upstream.offers("resources", "subscribe"):
                self._subscribe(used, now)
        except LocalProtocolError:  # too many calls are running
            self._listens_again = now + _LISTEN_AGAIN

    def _drop_unused(self, used: Collection[str], now: float) -> None:
        """End the subscriptions to the resources to which no client is subscribed."""
        self._missed &= {"", *used}
        for uri in self._refused.keys() - used:
            del self._refused[uri]
        for name in [name for name in self._listeners if name and name not in used]:
            call = self._listeners.pop(name)
            self._unanswered.pop(name, None)
            self._calls[call].discard(name)
            if not self._calls[call]:
                del self._calls[call]
                self._acknowledged.pop(call, None)
                self._upstream.client.cancel(call, "no client is subscribed", now=now)
        for uri in self._subscribed.difference(used) if self._upstream.is_ready else ():
            self._subscribed.discard(uri)
            if self._queue.pop(uri, None) == SUBSCRIBE:
                self._unanswered.pop(uri, None)
            else:
                self._queue[uri] = UNSUBSCRIBE
        with suppress(LocalProtocolError):  # too many calls are running; it is tried again
            self._ask(now)

    def _tell_changed(self, name: str, now: float) -> None:
        """Tell the clients that a resource, or lists, may have changed meanwhile."""
        if name:
            self._audience.tell(UPDATED, {"uri": name}, now)
            return
        self._missed.discard("")
        for method, (capability, _) in LISTS.items():
            if self._upstream.offers(capability, "listChanged"):
                self._audience.tell(method, None, now)

    # The upstream server

    def _subscribe(self, uris: Iterable[str], now: float) -> None:
        """Make the upstream server report changes of resources."""
        refused = {uri for uri, until in self._refused.items() if until > now}
        new = sorted({*uris} - self._listeners.keys() - self._subscribed - refused)
        if self._upstream.listens:
            if new:
                handle = self._listen(new, {"resourceSubscriptions": new}, now)
                self._unanswered.update(dict.fromkeys(new, handle))
            return
        for uri in new:
            self._subscribed.add(uri)
            if self._queue.pop(uri, None) is None:
                self._queue[uri] = SUBSCRIBE
                self._unanswered[uri] = _QUEUED
            # else it was still to be unsubscribed from
        self._ask(now)

    def _ask(self, now: float) -> None:
        """Send the requests that wait, as many as may run. Raises LocalProtocolError."""
        while self._queue and len(self._asking) < _MOST_ASKED and self._upstream.is_ready:
            uri, method = next(iter(self._queue.items()))
            try:
                handle = self._upstream.client.call(
                    method, {"uri": uri}, timeout=_ASK_TIMEOUT, now=now
                )
            except LocalProtocolError:
                self._listens_again = min(self._listens_again, now + _LISTEN_AGAIN)
                raise
            del self._queue[uri]
            self._asking.add(handle)
            if method == SUBSCRIBE:
                self._calls[handle] = {uri}
                self._unanswered[uri] = handle

    def _listen(self, names: Collection[str], wanted: Mapping[str, Any], now: float) -> int:
        handle = self._upstream.client.call(LISTEN, {"notifications": dict(wanted)}, now=now)
        self._calls[handle] = set(names)
        self._listeners.update(dict.fromkeys(names, handle))
        return handle

    def keep(self, uri: str) -> None:
        """Do not unsubscribe from a resource: a client subscribes to it, before 2026-07-28."""
        if self._queue.get(uri) == UNSUBSCRIBE:
            del self._queue[uri]
            self._subscribed.add(uri)

    def subscribed(self, uri: str) -> None:
        """Record that the call of a client has subscribed to a resource, before 2026-07-28."""
        self._subscribed.add(uri)

    def listening(self, handle: int, params: Params, now: float) -> None:
        """Take the acknowledgement of a listener: what it gets."""
        names = self._calls.get(handle, set())
        if handle in self._acknowledged:  # the client has sent it again
            self._missed |= names
            self._unanswered.update(dict.fromkeys(names - {""}, handle))
        honoured = json.as_object(params.get("notifications")) or {}
        self._acknowledged[handle] = any(honoured.values())
        agreed = honoured.get("resourceSubscriptions")
        named = agreed if json.is_array(agreed) else []
        uris = {uri for uri in named if isinstance(uri, str)}
        self._answered(handle, names, uris, now)
        if "" in self._missed and self._listeners.get("") == handle:
            self._tell_changed("", now)
        if not names and self._calls.pop(handle, None) is not None:
            # _drop_unused() ends a call with its last resource, and this one has none.
            self._acknowledged.pop(handle, None)
            self._upstream.client.cancel(handle, "no resource was agreed to", now=now)

    def list_changed(self) -> None:
        """Record that the upstream server may have resources by now which it has refused."""
        self._refused.clear()

    def ended(self, handle: int, event: CallCompleted | CallFailed, now: float) -> None:
        """Take the end of a call that subscribed or listened; other calls have no effect."""
        self._asking.discard(handle)
        gets_any = self._acknowledged.pop(handle, True)
        names = self._calls.pop(handle, set())
        heard = {name for name in names if self._listeners.get(name) == handle}
        for name in heard:
            del self._listeners[name]
        is_refused = isinstance(event, CallFailed) and isinstance(event.error, JsonRpcError)
        self._answered(handle, names, () if is_refused else names, now)
        if not gets_any and isinstance(event, CallCompleted):
            # Again it would get nothing. Of resources the same server may agree to others.
            self._declined |= {""} & heard
        elif heard and not is_refused:
            self._missed.update(heard)
            self._listens_again = min(self._listens_again, now + _LISTEN_AGAIN)
        with suppress(LocalProtocolError):  # too many calls are running; it is tried again
            self._ask(now)

    def _answered(self, handle: int, names: set[str], agreed: Collection[str], now: float) -> None:
        """Take the response of the upstream server to the subscription of a call.

        ``names`` are those of the call; those that were refused are removed.
        """
        uris = {name for name in names if self._unanswered.get(name) == handle}
        refused = uris.difference(agreed)
        ready: dict[_Unconfirmed, None] = {}
        for uri in uris:
            del self._unanswered[uri]
            for each in self._waiting.pop(uri, ()):
                each.waiting.discard(uri)
                if uri in refused:
                    each.uris.discard(uri)
                if not each.waiting:
                    ready[each] = None
        names -= refused
        self._refused.update(dict.fromkeys(refused, now + _ASK_AGAIN))
        for uri in refused:
            self._listeners.pop(uri, None)
            self._subscribed.discard(uri)
        self._confirm(ready, now)
        for uri in sorted(self._missed & uris):
            self._missed.discard(uri)
            if uri not in refused:
                self._tell_changed(uri, now)

    # The time

    def next_deadline(self) -> float:
        """Return when to call :meth:`handle_timeout`; math.inf for never."""
        first = next(iter(self._unconfirmed), None)
        due = math.inf if first is None else first.due
        return min(self._listens_again, self._compares_at, due)

    def handle_timeout(self, now: float) -> None:
        """Confirm what has waited for too long, and subscribe again."""
        self._confirm_overdue(now)
        if self._compares_at <= now:
            self._compare(now)
        if self._listens_again <= now:
            self._follow(self._resources, now)
