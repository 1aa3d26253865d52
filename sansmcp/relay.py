"""A relay: what the clients of a server ask is asked of one upstream server, and answered.

A :class:`Relay` stands between a :class:`~sansmcp.Server` and a :class:`~sansmcp.Client`, of any
revisions and transports. It takes the events of both machines and gives commands to both; it has no
I/O and no clock. docs/decisions/relay.md says what is relayed, and what is not.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, TypeGuard

import attrs

from .app import App
from .client.client import Client
from .codecs import json, jsonrpc, mirrored
from .errors import (
    CallError,
    JsonRpcError,
    LocalProtocolError,
    SessionLost,
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
    ListenersChanged,
    ListenReceived,
    ProgressReceived,
    ServerEvent,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    SessionClosed,
    TaskUpdated,
)
from .input_required import (
    INPUT_RESPONSES,
    REQUEST_STATE,
    ROUND_PARAMS,
    InputRequest,
    InputRequired,
)
from .messages import Notification, Params, Request, RequestId
from .meta_keys import (
    ACKNOWLEDGED,
    LEVELS,
    LISTEN,
    LOG_LEVEL,
    OWN_META,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    UPDATED,
    meta_of,
)
from .reclaim import CANCEL as CANCEL_BY_KEY
from .reclaim import EXTENSION as KEYS
from .revisions import REVISIONS, Revision
from .server.input_checks import check_asking, missing_capabilities
from .server.server import Server
from .server_call import ListenRequest, Peer, ServerCall, Session
from .shares import Shares
from .states import ClientState
from .tasks import EXTENSION

_LISTS = {
    "notifications/tools/list_changed": ("tools", "toolsListChanged"),
    "notifications/prompts/list_changed": ("prompts", "promptsListChanged"),
    "notifications/resources/list_changed": ("resources", "resourcesListChanged"),
}
"""By notification of a changed list: the capability, and the name in ``subscriptions/listen``."""

_ITEMS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""By method: the member of its result that is a list."""

_LOG_MESSAGE = "notifications/message"
_PROGRESS, _PROGRESS_TOKEN = "notifications/progress", "progressToken"
_SET_LEVEL = "logging/setLevel"
_SUBSCRIBE, _UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"

_SERVER, _RELAY, _PARKED = "server", "relay", "parked"
"""Members of the signed state of a client: the upstream server that needs the input, and if the
upstream call is still open, which relay has it, and which pairing there. Relays of several
processes may have the same key, and one that was started again has that of the earlier one.
"""

_MAX_NAME = 1000
"""Characters of a tool's name. The specification says that names should have at most 128."""

_MAX_SCHEMAS = 1000
"""Tools with arguments in HTTP headers of which the schemas are kept, the newest."""

_CONFIRM_TIMEOUT = 5.0
"""Seconds that the subscription of a client waits for the upstream server to agree to it."""

_LISTEN_AGAIN = 5.0
"""Seconds after the upstream server has ended a subscription until the relay subscribes again."""


def relay_app(connected: Connected) -> App:
    """Return the App of a server that relays: with the name and capabilities of the upstream.

    Args:
        connected: what the upstream client reported when it was connected.

    Returns:
        An App that takes every method, and says of itself what the upstream server does. Its
        handler only raises: a :class:`Relay` takes the calls from the events of the server. If the
        upstream has tasks at 2026-07-28, so has the App, and the server needs a store and a clock
        for them.
    """
    capabilities = dict(connected.capabilities)
    extensions = dict(json.as_object(capabilities.get("extensions")) or {})
    has_tasks = extensions.pop(EXTENSION, None) is not None
    has_keys = extensions.pop(KEYS, None) is not None
    if has_tasks or has_keys:  # the server declares those of its own
        capabilities["extensions"] = extensions
    info = connected.server_info
    app = _RelayApp(
        str(info.get("name", "")),
        str(info.get("version", "")),
        instructions=connected.instructions,
        capabilities=capabilities,
        upstream_info=info,
    )
    app.confirms_listeners = True
    app.fallback(_relayed, inline=True)
    if has_tasks:
        app.handler("tools/call", inline=True, task="optional")(_relayed)
    return app


@attrs.define(eq=False)
class _RelayApp(App):
    upstream_info: Mapping[str, Any] = attrs.field(kw_only=True)

    @property
    def server_info(self) -> dict[str, Any]:
        """What the upstream server says about itself, with all that it adds."""
        return {**self.upstream_info, **self.identity}


def _relayed(call: object) -> None:
    raise LocalProtocolError("A Relay must take the calls of this App from the server's events")


@attrs.frozen
class ToolFilter:
    """Which tools of the upstream server the clients may see and call.

    A tool whose name has more than 1,000 characters is always left out.

    Attributes:
        allow: patterns of names, in which ``*`` stands for any characters.
        deny: patterns of names that are left out, although ``allow`` has them. Upper and lower
            case, the forms of a character that Unicode has for compatibility, and blanks around a
            name make no difference: a server may take ``Delete_File`` for ``delete_file``.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    _folded: tuple[str, ...] = attrs.field(
        default=attrs.Factory(lambda self: tuple(map(_folded, self.deny)), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def allows(self, *names: object) -> bool:
        """Return True if the clients may call a tool.

        Args:
            names: its name at the server, and the one that clients use if it is another. One of
                them must be allowed, and none of them denied.
        """
        return not self.denies(*names) and any(_matches(self.allow, each) for each in names)

    def denies(self, *names: object) -> bool:
        """Return True if the clients may not call a tool, since one of its names is denied."""
        return not all(
            _is_name(each) and not _matches(self._folded, _folded(each)) for each in names
        )

    def apply(self, result: Any) -> Any:
        """Return the result of ``tools/list`` without the tools that are left out."""
        members = json.as_object(result) or {}
        tools = members.get("tools")
        if not json.is_array(tools):
            return result
        kept = [each for each in tools if self.allows((json.as_object(each) or {}).get("name"))]
        return {**members, "tools": kept}


def _folded(name: str) -> str:
    """Return a name in the form in which names are compared that a server may take for equal."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and len(name) <= _MAX_NAME


def _matches(patterns: Iterable[str], name: object) -> bool:
    return any(_is_match(each, str(name)) for each in patterns)


def _is_match(pattern: str, name: str) -> bool:
    """Return True if a pattern matches a whole name; each ``*`` takes as little as it can.

    A regular expression would take polynomial time, with the number of stars as exponent.
    """
    first, *middle = pattern.split("*")
    if not middle:
        return name == pattern
    last = middle.pop()
    start, end = len(first), len(name) - len(last)
    if start > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        start = name.find(part, start, end)
        if start < 0:
            return False
        start += len(part)
    return True


@attrs.define(eq=False)
class _Pairing:
    """A call of a client, and the upstream call that was made for it."""

    number: int
    """The name of the pairing in the signed state of a client."""
    call: ServerCall
    """At 2026-07-28 each round of input is a call of its own: the latest."""
    handle: int
    share: Hashable
    """The client that it counts for."""
    params: Params | None
    """Those of the upstream call."""
    is_repeated: bool = False
    """True if this is the second upstream call, because the first one was not run."""
    progress: float | None = None
    """The last progress that was reported."""
    asked: dict[RequestId, int] = attrs.field(factory=lambda: {})
    """The server requests that the client has got: upstream id, and what ``ask()`` returned."""
    tokens: dict[RequestId, Any] = attrs.field(factory=lambda: {})
    """By upstream id: the progress tokens of the server requests that the client has got."""
    wanted: dict[str, Request] = attrs.field(factory=lambda: {})
    """The open server requests, by the names of the input requests of 2026-07-28 for them."""
    due: float = math.inf
    """At 2026-07-28: when to send the input requests, or until when the client may come back with
    its input; math.inf if there are none.
    """
    ended: CallCompleted | CallFailed | None = None
    """The end of the upstream call, if the client has yet to come back for it."""


@attrs.define(eq=False)
class _Unconfirmed:
    """A subscription of a client that waits for the response of the upstream server."""

    uris: set[str]
    waiting: set[str]
    """Those of which the upstream server has said nothing yet."""
    confirm: Callable[[Collection[str], float], object]
    """Takes the resources to which the upstream server has agreed, and the time."""
    due: float
    """Until when to wait; then the upstream server is taken to agree."""


class Relay:
    """Relays the calls of the clients of a server to one upstream server.

    Feed it with every event of both machines; then drive both, since it gives commands to both.
    All clients that it serves share the upstream session, so let one relay serve one user.

    Not thread-safe.
    """

    def __init__(
        self,
        server: Server,
        upstream: Client,
        *,
        session: Session | None = None,
        tools: ToolFilter | None = None,
        name: str | None = None,
    ) -> None:
        """Create a relay.

        Args:
            server: the machine that the clients talk to; its app is that of :func:`relay_app`.
            upstream: the connected machine. Its capabilities are those that the clients of
                ``server`` have, and its timeouts hold for each relayed call.
            session: the session whose client the relay serves; feed it with the events of this
                session only. None if it serves all clients of ``server``.
            tools: which tools the clients may see and call; None for all.
            name: a name of the upstream server that no other relay for the same clients has. What
                a client brings for one upstream server then never goes to another one.
        """
        self._server = server
        self._name = name
        self._upstream = upstream
        self._session = session
        self._tools = tools
        self._token = server.new_token()
        self._numbers = count(1)
        self._revision: Revision | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._by_call: dict[ServerCall, _Pairing] = {}
        self._by_handle: dict[int, _Pairing] = {}
        """The pairings whose upstream call is running."""
        self._schemas: dict[str, Mapping[str, Any]] = {}
        """Of tools whose arguments HTTP headers repeat, by name."""
        if session is None:
            server.app.input_schema = self._schemas.get
        self._held = Shares[Hashable]()
        """How many of them each client has."""
        self._working = Shares[Peer | None]()
        """The same, but at 2026-07-28 each call counts as a client."""
        self._full: set[ServerCall] = set()
        """The running calls that were above high water."""
        self._parked: dict[int, _Pairing] = {}
        """By number: the pairings whose client may come back with its input."""
        self._left: dict[Peer | None, float] = {}
        """The clients of the two upstream calls that were given up last, and until when the
        upstream server may still be working on them.
        """
        self._questions: dict[RequestId, _Pairing] = {}
        """The open server requests of the upstream server."""
        self._asking: set[_Pairing] = set()
        """The pairings whose client gets input requests soon, all of them at once."""
        self._listeners: dict[str, int] = {}
        """At 2026-07-28: calls that listen, by URI of a resource; lists have the name ``""``."""
        self._listens_again = math.inf
        """When to replace the listeners that the upstream server has ended."""
        self._unanswered: dict[int, set[str]] = {}
        """By upstream call: the resources whose subscription has had no response yet."""
        self._unconfirmed: list[_Unconfirmed] = []
        self._acknowledged: dict[int, bool] = {}
        """The listeners of which the upstream server has said what they get, and if that is any."""
        self._tells_no_lists = False
        """True if the upstream server has completed a listener for lists that gets nothing."""
        self._missed: set[str] = set()
        """What may have changed while it was not subscribed to: names as in ``_listeners``."""
        self._subscribed: set[str] = set()
        """Before 2026-07-28: the resources to which the upstream session is subscribed."""
        self._level: str | None = None
        """The log level that the clients have set last."""

    def connected(self, event: Connected, *, now: float) -> None:
        """Take the upstream's Connected. Call this first, and again for each later one.

        A new upstream session gets the subscriptions and the log level of the old one.

        Args:
            event: what the upstream client reported.
            now: the current time in seconds, on the clock of both machines.
        """
        is_first = self._revision is None
        self._revision = REVISIONS[event.version]
        self._left.clear()
        self._tells_no_lists = False
        self._capabilities = event.capabilities
        self._lose_subscriptions()
        self._follow_changes(now)
        if not is_first and "" not in self._listeners:
            self._tell_changed("", now)
        if self._level is not None and not self._revision.listen and self._is_ready:
            self._upstream.call(_SET_LEVEL, {"level": self._level}, now=now)

    def replace_upstream(self, upstream: Client) -> None:
        """Go on with another client, because the upstream one is closed.

        Feed the relay with all events of the closed client first, its Closed included, and call
        :meth:`connected` next.

        Args:
            upstream: the connected machine, with the same capabilities.
        """
        self._upstream = upstream
        self._missed.update(self._listeners)
        self._listeners.clear()
        self._acknowledged.clear()
        self._lose_subscriptions()

    def _lose_subscriptions(self) -> None:
        """Forget the subscriptions that have ended with the upstream session."""
        self._missed |= self._subscribed
        self._subscribed.clear()
        self._unanswered = {
            handle: uris for handle, uris in self._unanswered.items() if handle in self._listening
        }

    @property
    def _listening(self) -> set[int]:
        """The calls that listen at 2026-07-28."""
        return set(self._listeners.values())

    @property
    def _sessions(self) -> Sequence[Session]:
        """The sessions whose clients the relay serves."""
        return self._server.sessions if self._session is None else (self._session,)

    @property
    def _is_ready(self) -> bool:
        return self._upstream.state is ClientState.READY

    @property
    def _resources(self) -> set[str]:
        """The resources to which the clients are subscribed."""
        listened = self._server.listened_resources if self._session is None else ()
        begun = (uri for each in self._unconfirmed for uri in each.uris)
        subscribed = (uri for each in self._sessions for uri in each.subscriptions)
        return {*listened, *begun, *subscribed}

    @property
    def must_wait(self) -> bool:
        """True if the only client that has running calls is behind: leave the upstream's events.

        If there are others, or the events are taken all the same, progress and notifications of a
        call whose client is behind are lost instead.
        """
        is_behind = any(call.is_above_high_water for call in self._full)
        return is_behind and self._working.owners <= 1

    @property
    def running(self) -> int:
        """How many calls the upstream server is working on for clients."""
        return len(self._by_handle)

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
                self.relay_call(call, call.request.params, now=now)
            case CallCancelled(call, reason):
                self._full.discard(call)
                pairing = self._by_call.pop(call, None)
                if pairing is not None:
                    self._forget(pairing, now)
                    self._give_up(pairing, reason, now)
            case ClientNotified(peer, notification) if self._may_pass(peer, notification):
                try:
                    self._upstream.notify(notification.method, _given(notification.params), now=now)
                except LocalProtocolError as error:
                    return f"{notification.method[:100]!r} of a client is lost: {error}"
            case ListenersChanged() if self._session is None:
                self._follow_changes(now)
                self._drop_subscriptions(now)
            case ListenReceived(request):
                try:
                    self._confirm_later(request.uris, partial(_acknowledge, request), now)
                except LocalProtocolError:  # too many calls are running; it is tried again
                    request.acknowledge(request.uris, now=now)
            case SessionClosed():
                self._drop_subscriptions(now)
            case ClientResponseReceived():
                self._client_responded(event, now)
            case _:
                pass
        return None

    def _may_pass(self, peer: Peer, notification: Notification) -> bool:
        """Return True if the upstream server may get a notification of a client.

        A key is valid at one server only. Progress belongs to a question, and comes from the client
        that was asked: that of another one would keep the question open, and mislead the server.
        """
        if notification.method != _PROGRESS:
            return notification.method != CANCEL_BY_KEY
        token = (notification.params or {}).get(_PROGRESS_TOKEN)
        tokens = (
            pairing.tokens[id]
            for id, pairing in self._questions.items()
            if pairing.call.peer is peer and id in pairing.tokens
        )
        return any(type(each) is type(token) and each == token for each in tokens)

    def relay_call(self, call: ServerCall, params: Params | None, *, now: float) -> None:
        """Relay a call of a client that was received, with other parameters if need be.

        :meth:`receive_server_event` does this for CallReceived.

        Args:
            call: the call.
            params: the parameters for the upstream server.
            now: the current time in seconds, on the clock of both machines.
        """
        method, params, returned = call.request.method, _given(params), call.handler_input
        if method == KEYS:  # a key is valid at one server only
            text = f"{KEYS} is not served at this revision and transport"
            call.respond_error(jsonrpc.METHOD_NOT_FOUND, text, now=now)
            return
        states: dict[str, Any] = {}
        if returned.state is not None:
            state = json.as_object(returned.state) or {}
            if _PARKED in state or state.get(_SERVER) != self._name:
                self._came_back(call, state, now)
                return
            states = {name: state[name] for name in (REQUEST_STATE,) if name in state}
        if returned.state is not None or returned.input_responses:
            # A client may know what will be asked, and send its responses at once.
            responses = {INPUT_RESPONSES: dict(returned.input_responses)}
            params = {**(params or {}), **responses, **states}
        meta = meta_of(call.request)
        name = (params or {}).get("name")
        if method == "tools/call" and self._tools is not None and not self._tools.allows(name):
            call.respond_error(jsonrpc.INVALID_PARAMS, f"Unknown tool: {str(name)[:100]}", now=now)
            return
        try:
            if self._is_translated(call, method, params or {}, now):
                return
            if self._takes_too_much(call):
                call.refuse_busy(now=now)
                return
            self._follow_level(meta, now)
            params = _with_level(params, self._level) if self._needs_level(meta) else params
        except LocalProtocolError as error:
            self._cannot_be_asked(call, error, now)
            return
        self._begin(call, params, now)

    def _takes_too_much(self, call: ServerCall) -> bool:
        """True if a client has as many running calls as may still begin.

        So one client can have half of all, two can have a third each, and a further one finds room.
        """
        free = self._upstream.limits.max_pending_calls - len(self._by_handle)
        return self._session is None and self._held.of(_share_of(call)) >= free

    def _begin(
        self, call: ServerCall, params: Params | None, now: float, *, is_repeated: bool = False
    ) -> None:
        try:
            handle = self._upstream.call(
                call.request.method,
                params,
                any_result=call.peer.revision.result_type,
                wants_progress=_PROGRESS_TOKEN in meta_of(call.request),
                capabilities=_without_tasks(call.peer.client_capabilities),
                now=now,
            )
        except LocalProtocolError as error:
            self._cannot_be_asked(call, error, now)
            return
        pairing = _Pairing(next(self._numbers), call, handle, _share_of(call), params, is_repeated)
        self._by_call[call] = self._by_handle[handle] = pairing
        self._held.change(pairing.share, 1)
        self._working.change(_client_of(call), 1)

    def _cannot_be_asked(self, call: ServerCall, error: LocalProtocolError, now: float) -> None:
        text = f"The upstream server cannot be asked: {error}"
        call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)

    def _is_translated(self, call: ServerCall, method: str, params: Params, now: float) -> bool:
        """Respond to a method that the upstream does not have, or need not be asked again."""
        is_modern = self._revision is not None and self._revision.listen
        if method == _SET_LEVEL:
            level = params.get("level")
            if level in LEVELS:
                self._level = level
            elif is_modern:  # where it would fail the calls of all clients, since each brings it
                what = f"level is one of {', '.join(LEVELS)}"
                call.respond_error(jsonrpc.INVALID_PARAMS, what, now=now)
                return True
            if not is_modern:
                return False
        elif method == _SUBSCRIBE and is_modern:
            uri = str(params.get("uri"))
            self._confirm_later({uri}, partial(_respond_to_subscribe, call), now)
            return True
        elif method != _UNSUBSCRIBE:
            return False
        call.respond({}, now=now)  # with the response the server forgets a subscription
        self._drop_subscriptions(now)
        return True

    def _confirm_later(
        self, uris: Collection[str], confirm: Callable[[Collection[str], float], object], now: float
    ) -> None:
        """Subscribe to resources, and confirm it when the upstream server has agreed to them.

        Raises LocalProtocolError if it cannot be asked.
        """
        waiting = _Unconfirmed(set(uris), set(), confirm, now + _CONFIRM_TIMEOUT)
        self._subscribe(uris, now)
        waiting.waiting = waiting.uris & set[str]().union(*self._unanswered.values())
        self._unconfirmed.append(waiting)
        self._confirm(now)

    def _confirm(self, now: float) -> None:
        """Confirm the subscriptions that have waited for nothing else, or for too long."""
        ready = [each for each in self._unconfirmed if not each.waiting or each.due <= now]
        for each in ready:
            self._unconfirmed.remove(each)
            each.confirm(each.uris, now)
        if ready:
            self._drop_subscriptions(now)  # of clients that have left meanwhile

    def _subscription_answered(self, handle: int, agreed: Collection[str], now: float) -> None:
        """Take the response of the upstream server to a subscription."""
        uris = self._unanswered.pop(handle, set())
        refused = uris.difference(agreed)
        for each in self._unconfirmed:
            each.waiting -= uris
            each.uris -= refused
        for uri in refused:
            self._listeners.pop(uri, None)
            self._subscribed.discard(uri)
        self._confirm(now)
        for uri in sorted(self._missed & uris):
            self._missed.discard(uri)
            if uri not in refused:
                self._tell_changed(uri, now)

    def _tell_changed(self, name: str, now: float) -> None:
        """Tell the clients that a resource, or lists, may have changed meanwhile."""
        if name:
            self._tell(UPDATED, {"uri": name}, now)
            return
        self._missed.discard("")
        for method, (capability, _) in _LISTS.items():
            if (json.as_object(self._capabilities.get(capability)) or {}).get("listChanged"):
                self._tell(method, None, now)

    def _follow_changes(self, now: float) -> None:
        """Subscribe to the lists, and to the resources of the clients, where that is missing."""
        assert self._revision is not None, "the owner calls connected() first"
        self._listens_again = math.inf
        if not self._is_ready:
            return  # connected() is called again, or there is another client
        offered = {name: json.as_object(each) or {} for name, each in self._capabilities.items()}
        lists = {
            name: True
            for capability, name in _LISTS.values()
            if offered.get(capability, {}).get("listChanged") is True
        }
        try:
            is_missing = "" not in self._listeners and not self._tells_no_lists
            if self._revision.listen and lists and is_missing:
                self._listen({""}, lists, now)
            if offered.get("resources", {}).get("subscribe") is True:
                self._subscribe(self._resources, now)
        except LocalProtocolError:  # too many calls are running
            self._listens_again = now + _LISTEN_AGAIN

    def _subscribe(self, uris: Iterable[str], now: float) -> None:
        """Make the upstream server report changes of resources."""
        assert self._revision is not None
        new = sorted({*uris} - self._listeners.keys() - self._subscribed)
        if self._revision.listen:
            if new:
                handle = self._listen(new, {"resourceSubscriptions": new}, now)
                self._unanswered[handle] = set(new)
            return
        for uri in new:
            handle = self._upstream.call(_SUBSCRIBE, {"uri": uri}, now=now)
            self._unanswered[handle] = {uri}
            self._subscribed.add(uri)

    def _listen(self, names: Iterable[str], wanted: Mapping[str, Any], now: float) -> int:
        handle = self._upstream.call(LISTEN, {"notifications": dict(wanted)}, now=now)
        self._listeners.update(dict.fromkeys(names, handle))
        return handle

    def _drop_subscriptions(self, now: float) -> None:
        """End the subscriptions to the resources to which no client is subscribed."""
        used = self._resources
        self._missed &= {"", *used}
        for name in [name for name in self._listeners if name and name not in used]:
            handle = self._listeners.pop(name)
            if handle not in self._listening:
                self._unanswered.pop(handle, None)
                self._acknowledged.pop(handle, None)
                self._upstream.cancel(handle, "no client is subscribed", now=now)
        for uri in self._subscribed - used if self._is_ready else ():
            try:
                self._upstream.call(_UNSUBSCRIBE, {"uri": uri}, now=now)
            except LocalProtocolError:  # too many calls are running; the next change tries again
                return
            self._subscribed.discard(uri)

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

    def _came_back(self, call: ServerCall, state: Mapping[str, Any], now: float) -> None:
        """Take the input of a client of 2026-07-28, and continue its upstream call."""
        is_ours = (state.get(_SERVER), state.get(_RELAY)) == (self._name, self._token)
        pairing = self._parked.pop(state.get(_PARKED, 0), None) if is_ours else None
        if pairing is None:
            text = "This input is for a call that has ended; send the request again without it"
            call.respond_error(jsonrpc.INVALID_PARAMS, text, now=now)
            return
        pairing.call, pairing.due = call, math.inf
        self._by_call[call] = pairing
        for name, response in call.handler_input.input_responses.items():
            request = pairing.wanted.pop(name, None)
            if request is not None:
                del self._questions[request.id]
                self._upstream.respond(request.id, response, now=now)
        if pairing.ended is not None:
            self._end(pairing, pairing.ended, now)
        elif pairing.wanted:  # it came without, or there is more by now
            self._ask_soon(pairing, now)

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
                return self._upstream_ended(handle, event, now)
            case ProgressReceived(call=handle):
                self._progress(event, self._by_handle.get(handle), now)
            case TaskUpdated(call=handle):
                self._became_task(self._by_handle.get(handle), now)
            case ServerNotified(handle, notification):
                return self._notified(handle, notification, now)
            case ServerRequestReceived(handle, request):
                return self._asked(handle, request, now)
            case ServerRequestCancelled(id, reason):
                self._withdrawn(id, reason, now)
            case _:
                pass
        return None

    def _upstream_ended(
        self, handle: int, event: CallCompleted | CallFailed, now: float
    ) -> str | None:
        pairing = self._by_handle.get(handle)
        if pairing is None:
            self._stopped_listening(handle, event, now)
            return None
        error = event.error if isinstance(event, CallFailed) else None
        if isinstance(error, SessionLost) and error.was_not_run and not pairing.is_repeated:
            # The client's own session goes on, so it need not know.
            self._forget(pairing, now)
            self._begin(pairing.call, pairing.params, now, is_repeated=True)
            return None
        if error is not None and not isinstance(error, JsonRpcError):
            self._note_left(pairing, now)  # the server has not said that it has ended
        if pairing.number not in self._parked:
            return self._end(pairing, event, now)
        self._remove(pairing)
        pairing.ended = event
        return None

    def _stopped_listening(
        self, handle: int, event: CallCompleted | CallFailed, now: float
    ) -> None:
        gets_any = self._acknowledged.pop(handle, True)
        names = [name for name, listener in self._listeners.items() if listener == handle]
        for name in names:
            del self._listeners[name]
        is_refused = isinstance(event, CallFailed) and isinstance(event.error, JsonRpcError)
        agreed = () if is_refused else self._unanswered.get(handle, ())
        self._subscription_answered(handle, agreed, now)
        if not gets_any and isinstance(event, CallCompleted):
            # Again it would get nothing. Of resources the same server may agree to others.
            self._tells_no_lists = self._tells_no_lists or "" in names
        elif names and not is_refused:
            self._missed.update(names)
            self._listens_again = min(self._listens_again, now + _LISTEN_AGAIN)

    def _end(self, pairing: _Pairing, event: CallCompleted | CallFailed, now: float) -> str | None:
        """End the call of a client. Returns what of its result could not be relayed."""
        call = pairing.call
        del self._by_call[call]
        self._full.discard(call)
        self._forget(pairing, now)
        if isinstance(event, CallCompleted):
            result = event.result
            if call.request.method == "tools/list":
                result = result if self._tools is None else self._tools.apply(result)
                self._learn_schemas(result)
            if call.request.method == _SUBSCRIBE:
                self._subscribed.add(str((call.request.params or {}).get("uri")))
            try:
                call.respond(_result_for(call.peer.revision, result, self._name), now=now)
            except LocalProtocolError as error:
                return self._respond_in_part(call, result, error, now)
        elif isinstance(event.error, JsonRpcError):
            failed = event.error
            try:
                call.respond_error(failed.code, failed.message, failed.data, now=now)
            except LocalProtocolError as error:
                call.respond_error(failed.code, failed.message, now=now)
                return f"The data of an error of the upstream server cannot be sent: {error}"
        else:
            text = f"The upstream server gave no result: {event.error}"
            call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)
        return None

    def _respond_in_part(
        self, call: ServerCall, result: Any, error: LocalProtocolError, now: float
    ) -> str:
        """Respond where the result is not JSON, such as NaN, and return what is missing.

        A list has its other items then; the result of a tool becomes an error of the tool.
        """
        text = f"The result of the upstream server cannot be sent: {error}"
        members = json.as_object(result) or {}
        name = _ITEMS.get(call.request.method)
        items = members.get(name) if name is not None else None
        if json.is_array(items) and name is not None:
            kept = [item for item in items if _is_json(item)]
            try:
                call.respond(
                    _result_for(call.peer.revision, {**members, name: kept}, self._name), now=now
                )
            except LocalProtocolError:  # the fault is beside the items
                pass
            else:
                return f"{len(items) - len(kept)} of {len(items)} {name} were left out: {error}"
        if call.request.method == "tools/call" and not _is_json(result):
            content = [{"type": "text", "text": text}]
            failed = {"content": content, "isError": True}
            kind = {"resultType": "complete"} if call.peer.revision.result_type else {}
            call.respond({**failed, **kind}, now=now)
        else:
            call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)
        return text

    def _learn_schemas(self, result: Any) -> None:
        """Note the tools whose arguments HTTP headers repeat, so that the server can check them."""
        tools = (json.as_object(result) or {}).get("tools")
        for each in tools if json.is_array(tools) else ():
            tool = json.as_object(each) or {}
            name, schema = tool.get("name"), json.as_object(tool.get("inputSchema"))
            try:
                is_mirrored = schema is not None and bool(mirrored.parameters(schema))
            except ValueError:  # clients leave such a tool out
                is_mirrored = False
            self._schemas.pop(str(name), None)
            if schema is not None and is_mirrored:
                self._schemas[str(name)] = schema
        while len(self._schemas) > _MAX_SCHEMAS:
            del self._schemas[next(iter(self._schemas))]

    def _remove(self, pairing: _Pairing) -> None:
        del self._by_handle[pairing.handle]
        self._held.change(pairing.share, -1)
        self._working.change(_client_of(pairing.call), -1)

    def _forget(self, pairing: _Pairing, now: float) -> None:
        """Forget the call of a client. The questions that it has not answered get no answer.

        Those that name no call may be of another one, which would wait for the answer.
        """
        if self._by_handle.get(pairing.handle) is pairing:  # another client has the same handles
            self._remove(pairing)
        self._asking.discard(pairing)
        gone = JsonRpcError(jsonrpc.INTERNAL_ERROR, "The client that was asked has left its call")
        for id in (*pairing.asked, *(each.id for each in pairing.wanted.values())):
            self._questions.pop(id, None)
            self._upstream.respond_exception(id, gone, now=now)

    def _progress(self, event: ProgressReceived, pairing: _Pairing | None, now: float) -> None:
        if pairing is None or pairing.number in self._parked:
            return
        if pairing.call.is_above_high_water:
            return  # a later report may have room
        if pairing.progress is None or event.progress > pairing.progress:
            pairing.progress = event.progress
            pairing.call.progress(event.progress, event.total, event.message, now=now)
            self._note_full(pairing.call)

    def _became_task(self, pairing: _Pairing | None, now: float) -> None:
        """Make the call of a client a task, if its client can follow tasks."""
        if pairing is not None and pairing.call.become_task(now=now):
            self._note_full(pairing.call)

    def _notified(self, handle: int | None, message: Notification, now: float) -> str | None:
        try:
            return self._pass_on(handle, message, now)
        except LocalProtocolError as error:  # NaN, for example
            return f"{message.method[:100]!r} of the upstream server is lost: {error}"

    def _pass_on(self, handle: int | None, message: Notification, now: float) -> str | None:
        method, params = message.method, _given(message.params)
        if method in _LISTS or method == UPDATED:
            self._tell(method, params, now)
            return None
        if method == ACKNOWLEDGED and handle is not None:
            self._listener_began(handle, params or {}, now)
            return None
        pairing = None if handle is None else self._by_handle.get(handle)
        if pairing is None:
            sent = [each.notify(method, params, now=now) for each in self._sessions]
            if not any(sent):
                pairing = self._only_pairing(now)
                sent = [pairing is not None and pairing.call.notify(method, params, now=now)]
        elif pairing.call.is_above_high_water:
            return None  # its client does not read
        else:
            sent = [pairing.call.notify(method, params, now=now)]
            self._note_full(pairing.call)
        is_told = any(sent) or method == _LOG_MESSAGE  # it may be below the level of the client
        return None if is_told else f"{method[:100]!r} of the upstream server reached no client"

    def _tell(self, method: str, params: Params | None, now: float) -> None:
        """Tell the clients that a list or a resource has changed."""
        if self._session is None:
            self._server.publish(method, params, now=now)
        elif method in _LISTS or _is_subscribed(self._session, str((params or {}).get("uri"))):
            self._session.notify(method, params, now=now)

    def _listener_began(self, handle: int, params: Params, now: float) -> None:
        if handle in self._acknowledged:  # the client has sent it again
            again = {name for name, listener in self._listeners.items() if listener == handle}
            self._missed |= again
            self._unanswered[handle] = again - {""}
        honoured = json.as_object(params.get("notifications")) or {}
        self._acknowledged[handle] = any(honoured.values())
        agreed = honoured.get("resourceSubscriptions")
        named = agreed if json.is_array(agreed) else []
        uris = {uri for uri in named if isinstance(uri, str)}
        self._subscription_answered(handle, uris, now)
        if "" in self._missed and self._listeners.get("") == handle:
            self._tell_changed("", now)

    def _note_full(self, call: ServerCall) -> None:
        if call.is_above_high_water:
            self._full.add(call)

    def _give_up(self, pairing: _Pairing, reason: str, now: float) -> None:
        """Cancel an upstream call. The server may go on with it, and even ask something for it."""
        self._upstream.cancel(pairing.handle, reason, now=now)
        self._note_left(pairing, now)

    def _note_left(self, pairing: _Pairing, now: float) -> None:
        client = _client_of(pairing.call)
        self._left.pop(client, None)
        if len(self._left) > 1:
            del self._left[next(iter(self._left))]
        self._left[client] = now + self._server.limits.input_timeout

    def _only_pairing(self, now: float) -> _Pairing | None:
        """Return a call of the only client that can have caused what names no call.

        Returns:
            None if no call is running, or the upstream server may also be working for another
            client, whose call it was told to stop.
        """
        clients = {_client_of(pairing.call) for pairing in self._by_handle.values()}
        clients.update(client for client, until in self._left.items() if until > now)
        pairings = iter(self._by_handle.values())
        return next(pairings, None) if len(clients) == 1 else None

    def _asked(self, handle: int | None, request: Request, now: float) -> str | None:
        pairing = self._by_handle.get(handle) if handle is not None else self._only_pairing(now)
        why = "which client has caused it is not clear"
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
            meta = meta_of(request)
            if _PROGRESS_TOKEN in meta:
                pairing.tokens[request.id] = meta[_PROGRESS_TOKEN]
            return
        name = str(next(self._numbers))
        asked = InputRequired({name: InputRequest(request.method, request.params or {})})
        check_asking(call.request, asked)
        missing = missing_capabilities(asked, call.peer.client_capabilities)
        if missing:
            raise LocalProtocolError(f"the client has not declared {' and '.join(missing)}")
        pairing.wanted[name] = request
        self._questions[request.id] = pairing
        if pairing.number not in self._parked:
            self._ask_soon(pairing, now)

    def _ask_soon(self, pairing: _Pairing, now: float) -> None:
        """Send the input requests when all events that are there by now were received."""
        if pairing not in self._asking:
            self._asking.add(pairing)
            pairing.due = now

    def _ask_now(self, pairing: _Pairing, now: float) -> None:
        """Send the open server requests to a client of 2026-07-28, which ends its call."""
        self._asking.discard(pairing)
        wanted = islice(pairing.wanted.items(), self._server.limits.max_batch_messages)
        asked = {name: InputRequest(each.method, each.params or {}) for name, each in wanted}
        call = pairing.call
        state = {_SERVER: self._name, _RELAY: self._token, _PARKED: pairing.number}
        call.respond(InputRequired(asked, state), now=now)
        del self._by_call[call]
        self._full.discard(call)
        self._parked[pairing.number] = pairing
        pairing.due = now + self._server.limits.input_timeout

    def _withdrawn(self, id: RequestId, reason: str, now: float) -> None:
        pairing = self._questions.pop(id, None)
        if pairing is None:
            return
        if id in pairing.asked:
            pairing.call.withdraw(pairing.asked.pop(id), reason, now=now)
        else:
            pairing.wanted = {name: each for name, each in pairing.wanted.items() if each.id != id}
            if not pairing.wanted:
                self._asking.discard(pairing)

    # The time

    def next_deadline(self) -> float | None:
        """Return when to call :meth:`handle_timeout`, or None for never."""
        waiting = (*self._asking, *self._parked.values())
        due = min((pairing.due for pairing in waiting), default=math.inf)
        due = min(due, self._listens_again, *(each.due for each in self._unconfirmed))
        return None if due == math.inf else due

    def handle_timeout(self, *, now: float) -> None:
        """Ask clients for input, and cancel the calls of those that did not send it in time.

        Early, late and repeated calls are safe. Drive both machines afterwards.
        """
        for pairing in tuple(self._asking):
            self._ask_now(pairing, now)
        for pairing in tuple(self._parked.values()):
            if pairing.due <= now:
                del self._parked[pairing.number]
                self._forget(pairing, now)
                if pairing.ended is None:
                    self._give_up(pairing, "the client sent no input", now)
        self._confirm(now)
        if self._listens_again <= now:
            self._follow_changes(now)


def _acknowledge(request: ListenRequest, uris: Collection[str], now: float) -> None:
    request.acknowledge(uris, now=now)


def _respond_to_subscribe(call: ServerCall, uris: Collection[str], now: float) -> None:
    if uris:
        call.respond({}, now=now)
    else:
        text = "The upstream server does not tell of changes of this resource"
        call.respond_error(jsonrpc.INVALID_PARAMS, text, now=now)


def _client_of(call: ServerCall) -> Peer | None:
    """Return what stands for the client of a call: its session; None on stdio, where it is alone.

    At 2026-07-28 nothing says which calls over HTTP are of one client, so each counts as one.
    """
    return call.peer if call.headers or isinstance(call.peer, Session) else None


def _is_json(value: Any) -> bool:
    try:
        json.encode(value)
    except LocalProtocolError:
        return False
    return True


def _share_of(call: ServerCall) -> Hashable:
    """Return what stands for a client in the bound of running calls."""
    return call.client or _client_of(call)


def _without_tasks(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the capabilities of a client without those for tasks, which the relay follows."""
    extensions = json.as_object(capabilities.get("extensions")) or {}
    if "tasks" not in capabilities and EXTENSION not in extensions:
        return capabilities
    kept = {name: value for name, value in capabilities.items() if name != "tasks"}
    others = {name: value for name, value in extensions.items() if name != EXTENSION}
    return {**kept, "extensions": others}


def _given(params: Params | None) -> Params | None:
    """Return parameters without what belongs to the conversation that they came in."""
    if params is None:
        return None
    given = {name: value for name, value in params.items() if name not in ROUND_PARAMS}
    meta = json.as_object(given.pop("_meta", None)) or {}
    kept = {name: value for name, value in meta.items() if name not in (*OWN_META, SUBSCRIPTION_ID)}
    return {**given, "_meta": kept} if kept else given


def _is_subscribed(session: Session, uri: str) -> bool:
    """Return True if the client subscribed to a resource, or to a folder that contains it."""
    return any(
        uri == each or uri.startswith(f"{each.rstrip('/')}/") for each in session.subscriptions
    )


def _with_level(params: Params | None, level: str | None) -> Params:
    given = params or {}
    meta = json.as_object(given.get("_meta")) or {}
    return {**given, "_meta": {**meta, LOG_LEVEL: level}}


def _result_for(revision: Revision, result: Any, server: str | None) -> Any:
    """Return a result as a client of this revision gets it.

    Raises:
        LocalProtocolError: the result asks for input in a way that the revision does not have.
    """
    members = json.as_object(result) or {}
    kind = members.get("resultType")
    if kind == "complete" and not revision.result_type:
        return _without_server_info(members)
    if kind == "input_required" and revision.result_type:
        return _input_required(members, server)
    return result


def _without_server_info(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of 2026-07-28 without the members that older revisions do not have."""
    given = {name: value for name, value in members.items() if name != "resultType"}
    meta = json.as_object(given.get("_meta"))
    if meta is not None and SERVER_INFO in meta:
        given["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO}
        if not given["_meta"]:
            del given["_meta"]
    return given


def _input_required(members: Mapping[str, Any], server: str | None) -> InputRequired:
    """Return the input requests of the upstream server, with its state inside that of our own.

    The state has the name of the server, so that no other one gets it.
    """
    requests: dict[str, InputRequest] = {}
    for name, given in (json.as_object(members.get("inputRequests")) or {}).items():
        request = json.as_object(given) or {}
        requests[name] = InputRequest(request.get("method", ""), request.get("params", {}))
    states = {name: members[name] for name in (REQUEST_STATE,) if name in members}
    state = {_SERVER: server, **states}
    return InputRequired(requests, state)
