"""Calls that outlive their connections, because their clients gave them keys.

A client that has lost the connection of a call asks for the rest with ``sansmcp/reclaim`` and the
key. That runs nothing: it attaches a new connection to the call, and gets the reports that the
client has missed, and the response. So does a copy of the ``tools/call`` itself, which a proxy may
send.

The server keeps the response until the client confirms it with a later call, or for
``Limits.reclaim_timeout`` seconds. It keeps the key after that, so that a late copy runs nothing.
When a key is forgotten, ``_forgotten`` remembers its number, by principal. A call that names an
older place may be a copy of one whose key was forgotten, and is refused.

All this takes ``Limits.max_reclaim_bytes`` at most, with the requests of the calls that run without
a connection. Beyond it the principals that use most lose their oldest responses and keys, half of
each first, and then their calls without a connection. A call for which there is no room has no key.

If instances share the keys of their calls (``SharedKeys``), a call starts when the store has its
key, and an instance that does not know a key looks in the store.

A key is valid for the principal that has sent it, and with the scopes that its call needs. It is a
secret: no handler or trace gets it.

Source: docs/reclaim.md. The counts follow the sequence numbers of NFSv4.1 slots (RFC 8881,
2.10.6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import attrs

from ..codecs import json
from ..codecs.sse import encode_event
from ..errors import RemoteProtocolError
from ..messages import Request, RequestId
from ..reclaim import EXTENSION, KEY, PLACE, RECEIVED, WAIT
from ..states import REFUSING
from ..timers import Timer
from . import refusals
from .core import ServerCore
from .exchange import ServerExchange
from .scope_checks import require_scopes, scopes_of

_KEY_BYTES = 512
"""Memory of one key, rounded up, without the id of its request and the name of its tool."""

_SHARE_BYTES = 2048
"""Memory of the share of one principal, rounded up."""

MAX_REPORTS, MAX_REPORT_BYTES = 32, 16 * 1024
"""Messages before the response that are kept for one call, and their bytes."""

_MAX_MARKS = 1024
"""Principals whose numbers are remembered apart from those of all others."""

_TOO_MANY = "too many calls run without a connection"

Key: TypeAlias = "tuple[str, ...]"
"""The groups of ``reclaim.KEY``."""


class Reconnectable(Protocol):
    """Sends the response to a call that has a key."""

    exchange: ServerExchange
    call: KeyedCall | None
    """None if there was no room for the key."""

    def peer_gone(self) -> None:
        """Handle the loss of the connection that carried the POST."""

    def complete_without_response(self) -> None:
        """End without a response, because the call has been cancelled."""

    def reconnect(self, exchange: ServerExchange, received: int) -> None:
        """Go on with another connection, and send first what was missed.

        ``received``: the number of messages before the response that the client has received.
        """

    def cancel_calls(self, reason: str) -> None:
        """Cancel the call."""


class KeptResponse(ABC):
    """The response to a call in a store that instances share."""

    __slots__ = ()

    @abstractmethod
    def on_due(self) -> None:
        """Show that the call still runs."""

    @abstractmethod
    def look_for_client(self, then: Callable[[bool], None]) -> None:
        """Call ``then(True)`` if the client has waited at another instance since the last time."""

    @abstractmethod
    def end(self, response: bytes | None, http_status: int, *, is_sent: bool) -> None:
        """Store the response; None if the call was cancelled.

        ``is_sent``: True if it is sent to the client now.
        """

    @abstractmethod
    def drop(self) -> None:
        """Delete the response, if it is stored."""


@attrs.define(eq=False, repr=False)
class Reports:
    """The newest messages before the response to one call."""

    messages: list[bytes] = attrs.field(factory=lambda: [], init=False)
    size: int = attrs.field(default=0, init=False)
    """Their bytes."""
    _dropped: int = attrs.field(default=0, init=False)
    """The number of older ones, which are no longer kept."""
    _unseen: int = attrs.field(default=0, init=False)
    """The number of those that the client can no longer get, and does not count as received."""

    def keep(self, message: bytes) -> int:
        """Keep a message. Returns how many bytes more are kept."""
        before = self.size
        self.messages.append(message)
        self.size += len(message)
        while self.size > MAX_REPORT_BYTES or len(self.messages) > MAX_REPORTS:
            self.size -= len(self.messages.pop(0))
            self._dropped += 1
        return self.size - before

    def split(self, received: int) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Return the messages that the client has received, and those that it has missed."""
        start = received + self._unseen
        if start < self._dropped:
            self._unseen += self._dropped - start
            start = self._dropped
        place = start - self._dropped
        return self.messages[:place], self.messages[place:]


@attrs.define(eq=False, repr=False)
class KeyedCall:
    """One call with a key."""

    share: Share
    """All calls of its principal."""
    secret: str
    number: int
    """The number of keys that had been noted, with this one."""
    request_id: RequestId
    tool: Any
    """The name of the tool."""
    responder: Reconnectable | None
    """None after the response."""
    size: int
    """Bytes that the key takes, beside its response."""
    request_size: int
    """Bytes of its request, which a call without a connection takes beside its key."""
    scopes: tuple[str, ...]
    """What the credentials of a request for the rest must have."""
    response: bytes | None = attrs.field(default=None, init=False)
    """The response; None before it, and when it is no longer kept."""
    http_status: int = attrs.field(default=200, init=False)
    ended_at: float = attrs.field(default=0.0, init=False)
    reports: Reports | None = attrs.field(default=None, init=False)
    """The messages before the response; None before the first, and when they are no longer kept."""
    is_starting: bool = attrs.field(default=False, init=False)
    """True while the store is asked for its key, before its handler starts."""
    kept: KeptResponse | None = attrs.field(default=None, init=False)
    """None if no other instance can give the response."""

    def keep(self, message: bytes) -> int:
        """Keep a message before the response. Returns how many bytes more are kept."""
        if self.reports is None:
            self.reports = Reports()
        return self.reports.keep(message)

    def missed(self, received: int) -> Sequence[bytes]:
        """Return the messages that are kept, without those that the client has received."""
        return () if self.reports is None else self.reports.split(received)[1]

    def on_due(self) -> None:
        """Show other instances that the call still runs."""
        assert self.kept is not None, "only then a timer is set"
        self.kept.on_due()

    def is_for(self, request: Request) -> bool:
        """Return True if a request is a copy of the call, or asks for it."""
        params = request.params or {}
        is_same_tool = request.method != "tools/call" or params.get("name") == self.tool
        return request.id == self.request_id and is_same_tool


@attrs.define(eq=False, repr=False)
class Share:
    """The calls of one principal."""

    principal: str
    calls: dict[str, KeyedCall] = attrs.field(factory=lambda: {}, init=False)
    """Its calls by the secrets of their keys."""
    size: int = attrs.field(default=0, init=False)
    """Bytes that its keys, reports and responses take, beside ``_SHARE_BYTES``, and the requests of
    its calls that run without a connection.
    """
    answered: deque[KeyedCall] = attrs.field(factory=deque[KeyedCall], init=False)
    """Those whose responses are kept, or were confirmed, oldest first."""
    spent: deque[KeyedCall] = attrs.field(factory=deque[KeyedCall], init=False)
    """Those whose responses are no longer kept, oldest first."""
    has_timer: bool = attrs.field(default=False, init=False)
    """True if a timer drops the oldest response."""
    cut: dict[KeyedCall, None] = attrs.field(factory=dict[KeyedCall, None], init=False)
    """Those that run without a connection, the one cut longest ago first."""


@attrs.define(eq=False, repr=False)
class _Marks:
    """The highest number that each principal has got.

    Beyond ``_MAX_MARKS`` the principal that got one longest ago shares it with all that have none
    of their own. So the many keys of one principal raise no number of another one.
    """

    _numbers: OrderedDict[str, int] = attrs.field(factory=OrderedDict[str, int], init=False)
    """By principal, the one that got a number longest ago first."""
    _shared: int = attrs.field(default=0, init=False)

    def note(self, principal: str, number: int) -> None:
        """Give a principal a number, unless it has a higher one."""
        self._numbers[principal] = max(number, self._numbers.pop(principal, 0))
        if len(self._numbers) > _MAX_MARKS:
            _, oldest = self._numbers.popitem(last=False)
            self._shared = max(self._shared, oldest)

    def of(self, principal: str) -> int:
        """Return the number of a principal."""
        return max(self._shared, self._numbers.get(principal, 0))


class SharedKeys(ABC):
    """The keys of the calls of all instances that share a store."""

    __slots__ = ()

    @property
    @abstractmethod
    def place(self) -> str:
        """The place that clients are to name."""

    @abstractmethod
    def is_valid(self, instance: str, count: str) -> bool:
        """Return True if a place is that of these instances, and of about the present time."""

    @abstractmethod
    def check_room(self, principal: str, request: Request) -> None:
        """Count a claim. Raises RemoteProtocolError if there were too many in a short time."""

    @abstractmethod
    def claim(
        self,
        key: Key,
        principal: str,
        request: Request,
        scopes: tuple[str, ...],
        starting: StartingCall,
    ) -> None:
        """Start a call when the store has the claim of this instance, unless another one has it."""

    @abstractmethod
    def look(self, key: Key, principal: str, request: Request, exchange: ServerExchange) -> None:
        """Respond to a request for the rest of a call that this instance does not know."""

    @abstractmethod
    def drain(self) -> None:
        """Store the responses that are in the memory of this instance alone."""


@attrs.define(eq=False, repr=False)
class StartingCall:
    """A call that starts when the store has its key."""

    _calls: KeyedCalls
    _request: Request
    _responder: Reconnectable
    _start: Callable[[], None]
    """Starts it. Raises RemoteProtocolError for a refusal."""

    @property
    def call(self) -> KeyedCall | None:
        """The call; None if there was no room for its key."""
        return self._responder.call

    def is_wanted(self) -> bool:
        """Return True if the client waits."""
        return not self._responder.exchange.is_done

    def start(self) -> RemoteProtocolError | None:
        """Start the handler, unless the call was cancelled. Returns the refusal, if it is refused.

        Without a key, a client that has left has cancelled the call.
        """
        call = self.call
        if call is None:
            if not self.is_wanted():
                return None
        elif call.responder is None:
            return None
        else:
            call.is_starting = False
        if self._calls.is_draining:
            return refusals.SHUTTING_DOWN(self._request.id)
        try:
            self._start()
        except RemoteProtocolError as refusal:
            return refusal
        return None

    def withdraw(self) -> ServerExchange | None:
        """Forget the call, which does not run here. Returns its exchange, if the client waits."""
        call, exchange = self.call, self._responder.exchange
        if call is not None and call.responder is not None:
            self._calls.withdraw(call)
        exchange.responder = None
        return None if exchange.is_done else exchange

    def refuse(self, refusal: RemoteProtocolError) -> None:
        """Refuse the call, which does not run."""
        exchange = self.withdraw()
        if exchange is not None:
            exchange.refuse(refusal)


@attrs.define(eq=False, repr=False)
class KeyedCalls:
    """The calls of one server that have keys."""

    _core: ServerCore
    _shared: SharedKeys | None
    """None if each instance has its own keys, in memory."""
    _instance: str = attrs.field(default="", init=False)
    """The name of this process; made at the first request, so that processes that were forked
    before it differ.
    """
    _shares: dict[str, Share] = attrs.field(factory=dict[str, Share], init=False)
    """The calls by principal."""
    _size: int = attrs.field(default=0, init=False)
    _noted: int = attrs.field(default=0, init=False)
    """The number of keys noted so far."""
    _forgotten: _Marks = attrs.field(factory=_Marks, init=False)
    """The number of the newest key that was forgotten."""
    _not_noted: _Marks = attrs.field(factory=_Marks, init=False)
    """The number of keys that had been noted when there was no room for another one, last."""

    @property
    def is_draining(self) -> bool:
        """True if the server starts no calls any more."""
        return self._core.state in REFUSING

    @property
    def are_shared(self) -> bool:
        """True if a call starts when the store has its key."""
        return self._shared is not None

    def drain(self) -> None:
        """Store what other instances will be asked for, because this one stops."""
        if self._shared is not None:
            self._shared.drain()

    @property
    def instance(self) -> str:
        """The name of this process."""
        if not self._instance:
            self._instance = self._core.token()
        return self._instance

    @property
    def declaration(self) -> dict[str, Any]:
        """The value of the extension among the capabilities of the server."""
        return {PLACE: self.place, WAIT: self._core.limits.reclaim_timeout}

    def declare(self, capabilities: dict[str, Any]) -> None:
        """Add the extension to the capabilities that the server declares, if it has tools."""
        if self._core.app.handler_of("tools/call") is not None:
            extensions = json.as_object(capabilities.get("extensions")) or {}
            capabilities["extensions"] = {**extensions, EXTENSION: self.declaration}

    @property
    def place(self) -> str:
        """The place that clients are to name."""
        return f"{self.instance}.{self._noted}" if self._shared is None else self._shared.place

    def read(self, text: Any, principal: str, request: Request) -> tuple[Key, KeyedCall | None]:
        """Return a key, and the call that has it, or None.

        Raises RemoteProtocolError if it is no key, or that of a call with another id or tool.
        """
        match = KEY.fullmatch(text) if type(text) is str else None
        if match is None:
            raise refusals.BAD_KEY(request.id)
        key, share = match.groups(), self._shares.get(principal)
        if share is None:
            return key, None
        if key[3]:
            for secret in key[3].split(","):  # the client has received their responses
                confirmed = share.calls.get(secret)
                if confirmed is not None and confirmed.responder is None:
                    self._drop_response(confirmed)
        call = share.calls.get(key[2])
        if call is not None and not call.is_for(request):
            raise refusals.KEY_IN_USE(request.id)
        return key, call

    def has(self, text: Any, principal: str) -> bool:
        """Return True if this is the key of a call that runs here, or has run."""
        match = KEY.fullmatch(text) if type(text) is str else None
        return match is not None and self._call_of(principal, match[3]) is not None

    def _call_of(self, principal: str, secret: str) -> KeyedCall | None:
        share = self._shares.get(principal)
        return None if share is None else share.calls.get(secret)

    def start(
        self,
        key: Key,
        principal: str,
        request: Request,
        responder: Reconnectable,
        start: Callable[..., None],
        *arguments: Any,
    ) -> None:
        """Note the key of a new call, and start the call with ``start(*arguments)``.

        Raises RemoteProtocolError if that does, or if the call is for another process, or may be a
        late copy.
        """
        shared, has_scopes = self._shared, self._core.app.options_of(request.method).scopes
        instance, count, secret, _ = key
        if instance and not (
            instance == self._instance and int(count or 0) >= self._forgotten.of(principal)
            if shared is None
            else shared.is_valid(instance, count)
        ):
            raise refusals.OTHER_PLACE(request.id, data={PLACE: self.place})
        scopes = scopes_of(self._core, request) if has_scopes else ()
        if shared is not None:
            shared.check_room(principal, request)
        call = responder.call = self._note(secret, principal, request, responder, scopes)
        if shared is not None:
            if call is not None:
                call.is_starting = True
            responder.exchange.responder = responder
            starting = StartingCall(self, request, responder, partial(start, *arguments))
            shared.claim(key, principal, request, scopes, starting)
            return
        try:
            start(*arguments)
        except RemoteProtocolError:
            if call is not None:
                self.withdraw(call)
            raise

    def _note(
        self,
        secret: str,
        principal: str,
        request: Request,
        responder: Reconnectable,
        scopes: tuple[str, ...],
    ) -> KeyedCall | None:
        """Note the key of a call before its handler starts. Returns None if there is no room."""
        self._noted += 1
        if self._size >= self._core.limits.max_reclaim_bytes and not self._make_room():
            self._not_noted.note(principal, self._noted)
            return None
        share = self._shares.get(principal)
        if share is None:
            share = self._shares[principal] = Share(principal)
            self._size += _SHARE_BYTES
        id, tool, size = request.id, (request.params or {}).get("name"), _KEY_BYTES
        if type(tool) is str:  # Python takes up to 4 bytes for a character
            size += 4 * len(tool)
        if type(id) is str:
            size += 4 * len(id)
        share.size += size
        self._size += size
        call = share.calls[secret] = KeyedCall(
            share,
            secret,
            self._noted,
            id,
            tool,
            responder,
            size,
            responder.exchange.request_size,
            scopes,
        )
        return call

    def withdraw(self, call: KeyedCall) -> None:
        """Forget a key that was noted, because its call does not run."""
        self.connected(call)
        self._forget(call)

    def look(self, key: Key, principal: str, request: Request, exchange: ServerExchange) -> None:
        """Respond to a request that has an unknown key and calls no tool.

        Raises RemoteProtocolError unless another instance may have the call.
        """
        if request.method != EXTENSION:
            raise refusals.BAD_KEY(request.id)
        if self._shared is None:
            raise self.unknown(key, principal, request, was_noted=False)
        self._shared.look(key, principal, request, exchange)

    def reclaim(
        self, call: KeyedCall, key: Key, request: Request, exchange: ServerExchange
    ) -> None:
        """Send the rest of a call on another connection, which replaces the one it has.

        Raises RemoteProtocolError if the response is no longer kept, or the credentials lack the
        scopes of the call.
        """
        assert exchange.head is not None
        require_scopes(self._core, exchange.head, request, call.scopes)
        received = (request.params or {}).get(RECEIVED, 0)
        if type(received) is not int or received < 0:
            raise refusals.BAD_KEY(request.id)
        if call.responder is not None:
            self.connected(call)
            call.responder.reconnect(exchange, received)
        elif call.response is None:
            raise self.unknown(key, call.share.principal, request, was_noted=True)
        elif missed := call.missed(received):
            exchange.open_stream()
            for message in (*missed, call.response):
                exchange.send(encode_event(message))
            exchange.end()
        else:
            exchange.send_response(call.http_status, call.response)

    def unknown(
        self, key: Key, principal: str, request: Request, *, was_noted: bool
    ) -> RemoteProtocolError:
        """Return the refusal of a request for a call that cannot be given.

        ``was_noted``: the key is known, but its response is not.
        """
        instance, count, _, _ = key
        lost = max(self._forgotten.of(principal), self._not_noted.of(principal))
        never_arrived = not was_noted and instance == self.instance and int(count or 0) >= lost
        return refusals.unknown_key(request, self.place, never_arrived=never_arrived)

    def report(self, call: KeyedCall, message: bytes) -> None:
        """Keep a message before the response to a call, which may be cancelled to make room."""
        self._grow(call, call.keep(message))
        if self._size > self._core.limits.max_reclaim_bytes:
            self._make_room()

    def cut(self, call: KeyedCall, *, expires: bool = True) -> None:
        """Let a call run on without a connection.

        ``expires``: True to cancel it after ``Limits.reclaim_timeout`` seconds.
        """
        limits, share = self._core.limits, call.share
        if call not in share.cut:
            share.cut[call] = None
            self._grow(call, call.request_size)
        if expires:
            self._core.timers.set(Timer.RECLAIM, call, self._core.now + limits.reclaim_timeout)
        if len(share.cut) > limits.max_cut_calls:
            self._cancel(next(iter(share.cut)), f"{_TOO_MANY} (max_cut_calls)")
        if self._size > limits.max_reclaim_bytes:
            self._make_room()

    def on_due(self, call: KeyedCall) -> None:
        """Cancel a call whose client has not come back, here or at another instance."""
        if call.kept is None:
            self._give_up(call, is_waited=False)
        else:
            call.kept.look_for_client(lambda is_waited: self._give_up(call, is_waited=is_waited))

    def _give_up(self, call: KeyedCall, *, is_waited: bool) -> None:
        seconds = self._core.limits.reclaim_timeout
        if call not in call.share.cut:
            return  # it has ended, or the client has come back, while the store was asked
        if is_waited:
            self._core.timers.set(Timer.RECLAIM, call, self._core.now + seconds)
            return
        self._cancel(call, f"the client did not come back within {seconds:g} s (reclaim_timeout)")

    def cancel(self, text: Any, principal: str) -> None:
        """Cancel the call with a key, if it is running.

        Raises RemoteProtocolError if another process may have it.
        """
        match = KEY.fullmatch(text) if type(text) is str else None
        if match is None:
            return
        call = self._call_of(principal, match[3])
        if call is None and match[1] != self.instance:
            raise refusals.CANCELLED_ELSEWHERE(data={PLACE: self.place})
        if call is not None and call.responder is not None:
            self._cancel(call, "cancelled by the client")

    def ended(self, call: KeyedCall, response: bytes | None, http_status: int = 200) -> None:
        """Keep the response of a call; None if it has been cancelled."""
        share = call.share
        is_cut = call in share.cut
        if is_cut:
            self.connected(call)
        call.responder, call.ended_at = None, self._core.now
        if call.kept is not None:
            is_sent = response is not None and not is_cut
            call.kept.end(response, http_status, is_sent=is_sent)
        if response is None:
            self._drop_response(call)
            share.spent.append(call)
            return
        call.response, call.http_status = response, http_status
        share.size += len(response)
        self._size += len(response)
        share.answered.append(call)
        if not share.has_timer:
            self._set_timer(share, call)
        if self._size > self._core.limits.max_reclaim_bytes:
            self._make_room()

    def connected(self, call: KeyedCall) -> None:
        """Record that a call has a connection again, or needs none."""
        cut = call.share.cut
        if call in cut:
            del cut[call]
            self._grow(call, -call.request_size)
            self._core.timers.stop(Timer.RECLAIM, call)

    def _cancel(self, call: KeyedCall, reason: str) -> None:
        self.connected(call)
        assert call.responder is not None
        if call.is_starting:
            call.responder.complete_without_response()
        else:
            call.responder.cancel_calls(reason)

    def _drop_response(self, call: KeyedCall) -> None:
        """Drop the response of a call that has ended, and its reports, if they are kept."""
        size = 0
        if call.reports is not None:
            size, call.reports = call.reports.size, None
        if call.response is not None:
            size += len(call.response)
            call.response = None
            if call.kept is not None:
                call.kept.drop()
        call.share.size -= size
        self._size -= size

    def _set_timer(self, share: Share, oldest: KeyedCall) -> None:
        share.has_timer = True
        deadline = oldest.ended_at + self._core.limits.reclaim_timeout
        self._core.timers.set(Timer.KEPT, share, deadline)

    def expire(self, share: Share) -> None:
        """Drop the responses that have been kept for long enough."""
        seconds, answered = self._core.limits.reclaim_timeout, share.answered
        while answered and (
            answered[0].response is None or answered[0].ended_at + seconds <= self._core.now
        ):
            call = answered.popleft()
            self._drop_response(call)
            share.spent.append(call)
        share.has_timer = False
        if answered:
            self._set_timer(share, answered[0])

    def _make_room(self) -> bool:
        """Drop responses, forget keys, cancel calls. Returns True if there is room for a key."""
        most = self._core.limits.max_reclaim_bytes
        for principal, share in sorted(
            self._shares.items(), key=lambda item: item[1].size, reverse=True
        ):
            self._shrink(share, share.size // 2)
            # The calls of one that uses a lot go before the responses of others.
            has_room = self._cancel_cut(share, most // 4)
            if not share.size:
                del self._shares[principal]
                self._size -= _SHARE_BYTES
                self._core.timers.stop(Timer.KEPT, share)
            if has_room or self._size <= most * 7 // 8:
                break
        for share in sorted(self._shares.values(), key=lambda share: share.size, reverse=True):
            self._cancel_cut(share, 0)
        return self._size < most

    def _cancel_cut(self, share: Share, size: int) -> bool:
        """Cancel calls without a connection while a share has more bytes, and there is no room.

        Returns True if that has made room.
        """
        most, before = self._core.limits.max_reclaim_bytes, self._size
        while self._size >= most and share.size > size and share.cut:
            self._cancel(next(iter(share.cut)), f"{_TOO_MANY} (max_reclaim_bytes)")
        return self._size < min(most, before)

    def _shrink(self, share: Share, size: int) -> None:
        """Forget old keys, then drop responses, then forget the other keys of ended calls."""
        old = self._core.now - self._core.limits.reclaim_timeout
        while share.size > size and (share.answered or share.spent):
            if share.spent and (share.spent[0].ended_at <= old or not share.answered):
                call = share.spent.popleft()
                self._forget(call)
                self._forgotten.note(share.principal, call.number)
            else:
                call = share.answered.popleft()
                self._drop_response(call)
                share.spent.append(call)

    def _forget(self, call: KeyedCall) -> None:
        self._grow(call, -call.size)
        del call.share.calls[call.secret]

    def _grow(self, call: KeyedCall, size: int) -> None:
        """Count bytes that a call takes, or no longer takes."""
        call.share.size += size
        self._size += size
