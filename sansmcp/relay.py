"""A relay: what the clients of a server ask is asked of one upstream server, and answered.

A :class:`Relay` stands between a :class:`~sansmcp.Server` and a :class:`~sansmcp.Client`, of any
revisions and transports. It takes the events of both machines and gives commands to both; it has no
I/O and no clock. docs/decisions/relay.md says what is relayed, and what is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import attrs

from .app import App
from .client.client import Client
from .codecs import json, jsonrpc
from .errors import (
    CallError,
    JsonRpcError,
    LocalProtocolError,
)
from .events import (
    CallCancelled,
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientEvent,
    ClientNotified,
    ClientResponseReceived,
    Connected,
    ProgressReceived,
    ServerEvent,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    SessionClosed,
)
from .input_required import ROUND_PARAMS, InputRequest, InputRequired
from .messages import Notification, Params, Request, RequestId
from .meta_keys import (
    ACKNOWLEDGED,
    CLIENT_CAPABILITIES,
    LISTEN,
    LOG_LEVEL,
    OWN_META,
    SUBSCRIPTION_ID,
    UPDATED,
    meta_of,
)
from .revisions import REVISIONS, Revision
from .server.server import Server
from .server_call import ServerCall
from .states import ClientState
from .tasks import EXTENSION

_LISTS = {
    "notifications/tools/list_changed": ("tools", "toolsListChanged"),
    "notifications/prompts/list_changed": ("prompts", "promptsListChanged"),
    "notifications/resources/list_changed": ("resources", "resourcesListChanged"),
}
"""By notification of a changed list: the capability, and the name in ``subscriptions/listen``."""

_SET_LEVEL = "logging/setLevel"
_SUBSCRIBE, _UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


def relay_app(connected: Connected) -> App:
    """Return the App of a server that relays: with the name and capabilities of the upstream.

    Args:
        connected: what the upstream client reported when it was connected.

    Returns:
        An App that takes every method. Its handler only raises: a :class:`Relay` takes the calls
        from the events of the server.
    """
    capabilities = dict(connected.capabilities)
    extensions = dict(json.as_object(capabilities.get("extensions")) or {})
    if extensions.pop(EXTENSION, None) is not None:  # the upstream client follows the tasks itself
        capabilities["extensions"] = extensions
    info = connected.server_info
    app = App(
        str(info.get("name", "")),
        str(info.get("version", "")),
        instructions=connected.instructions,
        capabilities=capabilities,
    )
    app.fallback(_relayed, inline=True)
    return app


def _relayed(call: object) -> None:
    raise LocalProtocolError("A Relay must take the calls of this App from the server's events")


@attrs.define(eq=False)
class _Pairing:
    """A call of a client, and the upstream call that was made for it."""

    call: ServerCall
    """At 2026-07-28 each round of input is a call of its own: the latest."""
    handle: int
    progress: float | None = None
    """The last progress that was reported."""
    asked: dict[RequestId, int] = attrs.field(factory=lambda: {})
    """The server requests that the client has got: upstream id, and what ``ask()`` returned."""
    wanted: deque[Request] = attrs.field(factory=lambda: deque[Request]())
    """The server requests for input at 2026-07-28, which are asked one after the other."""
    parked_until: float | None = None
    """Until when the client may come back with its input; None if its call is running."""
    ended: CallCompleted | CallFailed | None = None
    """The end of the upstream call, if the client has yet to come back for it."""


class Relay:
    """Relays the calls of the clients of a server to one upstream server.

    Feed it with every event of both machines; then drive both, since it gives commands to both.
    All clients of the server share the upstream session, so let one relay serve one user.

    Not thread-safe.
    """

    def __init__(self, server: Server, upstream: Client) -> None:
        """Create a relay.

        Args:
            server: the machine that the clients talk to; its app is that of :func:`relay_app`.
            upstream: the connected machine. Its capabilities are those that the clients of
                ``server`` have, and its timeouts hold for each relayed call.
        """
        self._server = server
        self._upstream = upstream
        self._revision: Revision | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._by_call: dict[ServerCall, _Pairing] = {}
        self._by_handle: dict[int, _Pairing] = {}
        self._questions: dict[RequestId, _Pairing] = {}
        """The open server requests of the upstream server."""
        self._listeners: dict[str, int] = {}
        """At 2026-07-28: calls that listen, by URI of a resource; lists have the name ``""``."""
        self._level: str | None = None
        """The log level that the clients have set last."""

    def connected(self, event: Connected, *, now: float) -> None:
        """Take the upstream's Connected. Call this first, and again for each later one.

        Args:
            event: what the upstream client reported.
            now: the current time in seconds, on the clock of both machines.
        """
        self._revision = REVISIONS[event.version]
        self._capabilities = event.capabilities
        wanted = {
            name: True
            for capability, name in _LISTS.values()
            if (json.as_object(event.capabilities.get(capability)) or {}).get("listChanged") is True
        }
        is_open = self._upstream.state is ClientState.READY
        if self._revision.listen and wanted and is_open and "" not in self._listeners:
            self._listen("", wanted, now)

    @property
    def must_wait(self) -> bool:
        """True if a client is behind: leave the upstream's events until it is False."""
        return any(call.is_above_high_water for call in self._by_call)

    # The side of the clients

    def receive_server_event(self, event: ServerEvent, *, now: float) -> str | None:
        """Relay an event of the server.

        Args:
            event: the event. Those that do not concern the upstream server are ignored.
            now: the current time in seconds, on the clock of both machines.

        Returns:
            What could not be relayed, a text for a log; None if nothing is lost. The client of a
            call gets an error response in this case.
        """
        match event:
            case CallReceived(call):
                self._call_received(call, now)
            case CallCancelled(call, reason):
                pairing = self._by_call.pop(call, None)
                if pairing is not None:
                    self._forget(pairing)
                    self._upstream.cancel(pairing.handle, reason, now=now)
            case ClientNotified(_, notification):
                try:
                    self._upstream.notify(notification.method, _given(notification), now=now)
                except LocalProtocolError as error:
                    return f"{notification.method[:100]!r} of a client is lost: {error}"
            case SessionClosed():
                self._drop_listeners(now)
            case ClientResponseReceived():
                self._client_responded(event, now)
            case _:
                pass
        return None

    def _call_received(self, call: ServerCall, now: float) -> None:
        if call.handler_input.state is not None:
            self._came_back(call, now)
            return
        method, params = call.request.method, _given(call.request)
        meta = meta_of(call.request)
        try:
            if self._is_translated(call, method, params or {}, now):
                return
            self._follow_level(meta, now)
            params = _with_level(params, self._level) if self._needs_level(meta) else params
            handle = self._upstream.call(
                method, params, wants_progress="progressToken" in meta, now=now
            )
        except LocalProtocolError as error:
            text = f"The upstream server cannot be asked: {error}"
            call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)
            return
        pairing = _Pairing(call, handle)
        self._by_call[call] = self._by_handle[handle] = pairing

    def _is_translated(self, call: ServerCall, method: str, params: Params, now: float) -> bool:
        """Respond to a method of the handshake revisions that a modern upstream does not have."""
        if self._revision is None or not self._revision.listen:
            return False
        if method == _SET_LEVEL:
            self._level = str(params.get("level"))
        elif method == _SUBSCRIBE:
            uri = str(params.get("uri"))
            if uri not in self._listeners:
                self._listen(uri, {"resourceSubscriptions": [uri]}, now)
        elif method == _UNSUBSCRIBE:
            pass  # the server forgets it with the response
        else:
            return False
        call.respond({}, now=now)
        self._drop_listeners(now)
        return True

    def _listen(self, name: str, wanted: Mapping[str, Any], now: float) -> None:
        params = {"notifications": dict(wanted)}
        self._listeners[name] = self._upstream.call(LISTEN, params, now=now)

    def _drop_listeners(self, now: float) -> None:
        """Stop to listen for resources to which no client is subscribed any more."""
        used = {uri for session in self._server.sessions for uri in session.subscriptions}
        for name in [name for name in self._listeners if name and name not in used]:
            self._upstream.cancel(self._listeners.pop(name), "no client is subscribed", now=now)

    def _needs_level(self, meta: Mapping[str, Any]) -> bool:
        """True if a client set a level for all requests, and the upstream wants it in each."""
        is_modern = self._revision is not None and self._revision.listen
        return is_modern and self._level is not None and LOG_LEVEL not in meta

    def _follow_level(self, meta: Mapping[str, Any], now: float) -> None:
        """Set the level of a request at an upstream server that has one level for all."""
        level = meta.get(LOG_LEVEL)
        is_legacy = self._revision is not None and not self._revision.listen
        if level is None or level == self._level or not is_legacy:
            return
        if "logging" in self._capabilities:
            self._level = level
            self._upstream.call(_SET_LEVEL, {"level": level}, now=now)

    def _client_responded(self, event: ClientResponseReceived, now: float) -> None:
        pairing = self._by_call.get(event.call)
        ids = {} if pairing is None else {asked: id for id, asked in pairing.asked.items()}
        id = ids.get(event.request_id)
        if pairing is None or id is None:
            return
        del pairing.asked[id], self._questions[id]
        try:
            self._upstream.respond(id, event.result(), now=now)
        except JsonRpcError as error:
            self._upstream.respond_exception(id, error, now=now)
        except CallError as error:
            text = f"The client did not respond: {error}"
            refusal = JsonRpcError(jsonrpc.INTERNAL_ERROR, text)
            self._upstream.respond_exception(id, refusal, now=now)

    def _came_back(self, call: ServerCall, now: float) -> None:
        """Take the input of a client of 2026-07-28, and go on with its upstream call."""
        handle, id = call.handler_input.state
        pairing = self._by_handle.get(handle)
        if pairing is None or pairing.parked_until is None:
            text = "This input is for a call that has ended; send the request again without it"
            call.respond_error(jsonrpc.INVALID_PARAMS, text, now=now)
            return
        pairing.call, pairing.parked_until = call, None
        self._by_call[call] = pairing
        responses = call.handler_input.input_responses
        if id in self._questions:
            if "input" not in responses:  # ask again
                self._ask_next(pairing, now)
                return
            pairing.wanted.popleft()
            del self._questions[id]
            self._upstream.respond(id, responses["input"], now=now)
        if pairing.ended is not None:
            self._end(pairing, pairing.ended, now)
        elif pairing.wanted:
            self._ask_next(pairing, now)

    # The side of the upstream server

    def receive_client_event(self, event: ClientEvent, *, now: float) -> str | None:
        """Relay an event of the upstream client.

        Args:
            event: the event. Those that do not concern a client are ignored; the end of the
                upstream session (Closed) is left to the owner.
            now: the current time in seconds, on the clock of both machines.

        Returns:
            What could not be relayed, a text for a log; None if nothing is lost. The upstream
            server gets an error response to a request that no client can take.
        """
        match event:
            case Connected():
                self.connected(event, now=now)
            case CallCompleted(handle) | CallFailed(handle):
                self._upstream_ended(handle, event, now)
            case ProgressReceived(call=handle):
                self._progress(event, self._by_handle.get(handle), now)
            case ServerNotified(handle, notification):
                return self._notified(handle, notification, now)
            case ServerRequestReceived(handle, request):
                return self._asked(handle, request, now)
            case ServerRequestCancelled(id, reason):
                self._withdrawn(id, reason, now)
            case _:
                pass
        return None

    def _upstream_ended(self, handle: int, event: CallCompleted | CallFailed, now: float) -> None:
        pairing = self._by_handle.get(handle)
        if pairing is None:
            for name, listener in tuple(self._listeners.items()):
                if listener == handle:
                    del self._listeners[name]
        elif pairing.parked_until is None:
            self._end(pairing, event, now)
        else:
            pairing.ended = event

    def _end(self, pairing: _Pairing, event: CallCompleted | CallFailed, now: float) -> None:
        call = pairing.call
        del self._by_call[call]
        self._forget(pairing)
        if isinstance(event, CallCompleted):
            try:
                call.respond(_result_for(call.peer.revision, event.result), now=now)
            except LocalProtocolError as error:
                text = f"The result of the upstream server cannot be sent: {error}"
                call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)
        elif isinstance(event.error, JsonRpcError):
            failed = event.error
            call.respond_error(failed.code, failed.message, failed.data, now=now)
        else:
            text = f"The upstream server gave no result: {event.error}"
            call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)

    def _forget(self, pairing: _Pairing) -> None:
        del self._by_handle[pairing.handle]
        for id in [id for id, owner in self._questions.items() if owner is pairing]:
            del self._questions[id]

    def _progress(self, event: ProgressReceived, pairing: _Pairing | None, now: float) -> None:
        if pairing is None or pairing.parked_until is not None:
            return
        if pairing.progress is None or event.progress > pairing.progress:
            pairing.progress = event.progress
            pairing.call.progress(event.progress, event.total, event.message, now=now)

    def _notified(self, handle: int | None, message: Notification, now: float) -> str | None:
        method, params = message.method, _given(message)
        if method in _LISTS or method == UPDATED:
            self._server.publish(method, params, now=now)
            return None
        if method == ACKNOWLEDGED:
            return None
        pairing = None if handle is None else self._by_handle.get(handle)
        if pairing is None:
            sent = [each.notify(method, params, now=now) for each in self._server.sessions]
            if not any(sent):
                pairing = self._only_pairing()
                sent = [pairing is not None and pairing.call.notify(method, params, now=now)]
        else:
            sent = [pairing.call.notify(method, params, now=now)]
        return None if any(sent) else f"{method[:100]!r} of the upstream server reached no client"

    def _only_pairing(self) -> _Pairing | None:
        """Return a call of the one client with running calls; None if there are none, or more.

        At 2026-07-28 nothing says which calls are of one client, so there is one call only.
        """
        peers = {id(call.peer) for call in self._by_call}
        return next(iter(self._by_call.values())) if len(peers) == 1 else None

    def _asked(self, handle: int | None, request: Request, now: float) -> str | None:
        pairing = self._by_handle.get(handle) if handle is not None else self._only_pairing()
        why = "no call, or calls of several clients, are running"
        if pairing is not None:
            try:
                self._ask(pairing, request, now)
            except LocalProtocolError as error:
                why = str(error)
            else:
                return None
        self._upstream.refuse_unsupported(request.id, now=now)
        return f"{request.method[:100]!r} of the upstream server reached no client: {why}"

    def _ask(self, pairing: _Pairing, request: Request, now: float) -> None:
        call = pairing.call
        if call.peer.revision.server_requests:
            pairing.asked[request.id] = call.ask(
                request.method,
                request.params,
                timeout=self._server.limits.input_timeout,
                now=now,
            )
            self._questions[request.id] = pairing
            return
        capability = CLIENT_CAPABILITIES.get(request.method)
        if capability is not None and capability not in call.peer.client_capabilities:
            raise LocalProtocolError(f"the client has not declared {capability}")
        pairing.wanted.append(request)
        self._questions[request.id] = pairing
        if pairing.parked_until is None:
            try:
                self._ask_next(pairing, now)
            except LocalProtocolError:
                pairing.wanted.remove(request)
                del self._questions[request.id]
                raise

    def _ask_next(self, pairing: _Pairing, now: float) -> None:
        """Send the next request for input to a client of 2026-07-28, which ends its call."""
        request, call = pairing.wanted[0], pairing.call
        asked = InputRequest(request.method, request.params or {})
        call.respond(InputRequired({"input": asked}, [pairing.handle, request.id]), now=now)
        del self._by_call[call]
        pairing.parked_until = now + self._server.limits.input_timeout

    def _withdrawn(self, id: RequestId, reason: str, now: float) -> None:
        pairing = self._questions.pop(id, None)
        if pairing is None:
            return
        if id in pairing.asked:
            pairing.call.withdraw(pairing.asked.pop(id), reason, now=now)
        else:
            pairing.wanted = deque(each for each in pairing.wanted if each.id != id)

    # The time

    def next_deadline(self) -> float | None:
        """Return when to call :meth:`handle_timeout`, or None for never."""
        times = (pairing.parked_until for pairing in self._by_handle.values())
        return min((time for time in times if time is not None), default=None)

    def handle_timeout(self, *, now: float) -> None:
        """Cancel the upstream calls whose clients did not come back with their input in time.

        Early, late and repeated calls are safe. Drive both machines afterwards.
        """
        for pairing in tuple(self._by_handle.values()):
            if pairing.parked_until is not None and pairing.parked_until <= now:
                self._forget(pairing)
                self._upstream.cancel(pairing.handle, "the client sent no input", now=now)


def _given(message: Request | Notification) -> Params | None:
    """Return parameters without what belongs to the conversation that they came in."""
    params = message.params
    if params is None:
        return None
    given = {name: value for name, value in params.items() if name not in ROUND_PARAMS}
    meta = json.as_object(given.pop("_meta", None)) or {}
    kept = {name: value for name, value in meta.items() if name not in (*OWN_META, SUBSCRIPTION_ID)}
    return {**given, "_meta": kept} if kept else given


def _with_level(params: Params | None, level: str | None) -> Params:
    given = params or {}
    meta = json.as_object(given.get("_meta")) or {}
    return {**given, "_meta": {**meta, LOG_LEVEL: level}}


def _result_for(revision: Revision, result: Any) -> Any:
    """Return a result without ``resultType``, if the revision does not have that."""
    members = json.as_object(result)
    if members is None or revision.result_type or members.get("resultType") != "complete":
        return result
    return {name: value for name, value in members.items() if name != "resultType"}
