"""The events of both machines, and what a relay does about each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from ..client.client import Client
from ..codecs import json, jsonrpc
from ..errors import JsonRpcError, LocalProtocolError, SessionLost
from ..events import (
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
from ..input_required import INPUT_RESPONSES, REQUEST_STATE, HandlerInput
from ..messages import Notification, Params
from ..meta_keys import ACKNOWLEDGED, LEVELS, NOTIFICATIONS, UPDATED, meta_of
from ..reclaim import CANCEL as CANCEL_BY_KEY
from ..reclaim import EXTENSION as KEYS
from ..server.server import Server
from ..server_call import ListenRequest, Peer, ServerCall, Session
from .ends import SET_LEVEL, Audience, Upstream
from .pairings import Pairing, Pairings, client_of
from .questions import Questions, Report
from .subscriptions import LISTS, RESOURCES_CHANGED, SUBSCRIBE, UNSUBSCRIBE, Subscriptions
from .tool_filter import ToolFilter, learn_schemas
from .translation import PARKED, PROGRESS_TOKEN, SERVER, given, respond, with_level, without_tasks

_LOG_MESSAGE, _PROGRESS = "notifications/message", "notifications/progress"


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
        self._name = name
        self._tools = tools
        self._limits = server.limits
        self._upstream = Upstream(upstream)
        self._audience = Audience(server, session)
        self._subscriptions = Subscriptions(self._upstream, self._audience)
        self._pairings = Pairings()
        self._questions = Questions(
            self._upstream, self._pairings, server.limits, name, server.new_token()
        )
        self._schemas: dict[str, Mapping[str, Any]] = {}
        """Of tools whose arguments HTTP headers repeat, by name."""
        if session is None:
            server.app.input_schema = self._schemas.get

    def connected(self, event: Connected, *, now: float) -> None:
        """Take the upstream's Connected. Call this first, and again for each later one.

        A new upstream session gets the subscriptions and the log level of the old one.

        Args:
            event: what the upstream client reported.
            now: the current time in seconds, on the clock of both machines.
        """
        is_first = not self._upstream.is_known
        self._upstream.connected(event)
        self._pairings.forget_left()
        self._subscriptions.connected(now, is_first=is_first)
        self._upstream.renew_level(now)

    def replace_upstream(self, upstream: Client) -> None:
        """Go on with another client, because the upstream one is closed.

        Feed the relay with all events of the closed client first, its Closed included, and call
        :meth:`connected` next.

        Args:
            upstream: the connected machine, with the same capabilities.
        """
        self._upstream.client = upstream
        self._subscriptions.upstream_closed()

    @property
    def must_wait(self) -> bool:
        """True if the only client is behind with its running calls: leave the upstream's events.

        If there are others that have calls or may be told of changes, or the events are taken all
        the same, progress and notifications of a call whose client is behind are lost instead. For
        one that is asked for input at 2026-07-28, ``Limits.max_unsent_bytes`` of them are kept
        until it comes back.
        """
        call = self._pairings.only_behind
        return call is not None and self._audience.is_alone(client_of(call))

    @property
    def running(self) -> int:
        """How many calls the upstream server is working on for clients."""
        return self._pairings.running

    def call_of(self, handle: int) -> ServerCall | None:
        """Return the call of a client for which an upstream call is running; None if none waits."""
        pairing = self._pairings.of_handle(handle)
        return None if pairing is None else pairing.call

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
                pairing = self._pairings.leave(call)
                if pairing is not None:
                    self._forget(pairing, now)
                    self._give_up(pairing, reason, now)
            case ClientNotified(peer, notification):
                return self._client_notified(peer, notification, now)
            case ListenersChanged() if self._audience.is_shared:
                self._subscriptions.changed(now)
            case ListenReceived(request):
                try:
                    acknowledge = partial(_acknowledge, request)
                    self._subscriptions.confirm_later(request.uris, acknowledge, now)
                except LocalProtocolError:  # too many calls are running; it is tried again
                    request.acknowledge(request.uris, now=now)
            case SessionClosed():
                self._subscriptions.changed(now)
            case ClientResponseReceived():
                self._questions.responded(event, now)
            case _:
                pass
        return None

    def _client_notified(self, peer: Peer, notification: Notification, now: float) -> str | None:
        """Pass on a notification of a client. Returns a text for a log if it is lost.

        A request without an id is not passed on: a server that looks at the method alone would run
        it, also a tool that is left out. The method of a notification begins with
        ``notifications/``, or, if it is not of the protocol, with a domain.

        A key is valid at one server only. Progress belongs to a question, and comes from the client
        that was asked: that of another one would keep the question open, and mislead the server.
        """
        method, params = notification.method, notification.params
        if method == _PROGRESS:
            params = self._questions.reported(peer, params or {})
        if method == CANCEL_BY_KEY or (method == _PROGRESS and params is None):
            return None
        if not method.startswith(NOTIFICATIONS) and "." not in method.partition("/")[0]:
            return f"{method[:100]!r} of a client is lost: it has no id, and is no notification"
        try:
            self._upstream.client.notify(method, given(params), now=now)
        except LocalProtocolError as error:
            return f"{method[:100]!r} of a client is lost: {error}"
        return None

    def relay_call(self, call: ServerCall, params: Params | None, *, now: float) -> None:
        """Relay a call of a client that was received, with other parameters if need be.

        :meth:`receive_server_event` does this for CallReceived.

        Args:
            call: the call.
            params: the parameters for the upstream server.
            now: the current time in seconds, on the clock of both machines.
        """
        method, params, returned = call.request.method, given(params), call.handler_input
        if method == KEYS:  # a key is valid at one server only
            text = f"{KEYS} is not served at this revision and transport"
            call.respond_error(jsonrpc.METHOD_NOT_FOUND, text, now=now)
            return
        if returned.state is not None:
            state = json.as_object(returned.state) or {}
            if PARKED in state or state.get(SERVER) != self._name:
                self._came_back(call, state, now)
                return
        params = _with_input(params, returned)
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
            self._upstream.follow_level(meta, now)
        except LocalProtocolError as error:
            self._cannot_be_asked(call, error, now)
            return
        if self._upstream.needs_level(meta):
            params = with_level(params, self._upstream.level)
        self._begin(call, params, now)

    def _takes_too_much(self, call: ServerCall) -> bool:
        """True if a client has as many running calls as may still begin.

        So one client can have half of all, two can have a third each, and a further one finds room.
        """
        free = self._upstream.client.limits.max_pending_calls - self._pairings.running
        return self._audience.is_shared and self._pairings.share_of(call) >= free

    def _begin(
        self, call: ServerCall, params: Params | None, now: float, *, is_repeated: bool = False
    ) -> None:
        try:
            handle = self._upstream.client.call(
                call.request.method,
                params,
                any_result=call.peer.revision.result_type,
                wants_progress=PROGRESS_TOKEN in meta_of(call.request),
                capabilities=without_tasks(call.peer.client_capabilities),
                now=now,
            )
        except LocalProtocolError as error:
            self._cannot_be_asked(call, error, now)
            return
        self._pairings.pair(call, handle, params, is_repeated=is_repeated)

    def _cannot_be_asked(self, call: ServerCall, error: LocalProtocolError, now: float) -> None:
        # The text for a client that is closed has what the process printed.
        why = error if self._upstream.is_ready else "it is not connected"
        text = f"The upstream server cannot be asked: {why}"
        call.respond_error(jsonrpc.INTERNAL_ERROR, text, now=now)

    def _is_translated(self, call: ServerCall, method: str, params: Params, now: float) -> bool:
        """Respond to a method that the upstream does not have, or need not be asked again."""
        is_modern = self._upstream.listens
        if method == SET_LEVEL:
            level = params.get("level")
            if level in LEVELS:
                self._upstream.level = level
            elif is_modern:  # where it would fail the calls of all clients, since each brings it
                what = f"level is one of {', '.join(LEVELS)}"
                call.respond_error(jsonrpc.INVALID_PARAMS, what, now=now)
                return True
            if not is_modern:
                return False
        elif method == SUBSCRIBE:
            uri = str(params.get("uri"))
            if not is_modern:
                self._subscriptions.keep(uri)
                return False
            self._subscriptions.confirm_later({uri}, partial(_respond_to_subscribe, call), now)
            return True
        elif method != UNSUBSCRIBE:
            return False
        call.respond({}, now=now)  # with the response the server forgets a subscription
        self._subscriptions.changed(now)
        return True

    def _came_back(self, call: ServerCall, state: Mapping[str, Any], now: float) -> None:
        """Take the input of a client of 2026-07-28, and continue its upstream call."""
        parked = self._questions.came_back(call, state, now)
        if parked is None:
            text = "This input is for a call that has ended; send the request again without it"
            call.respond_error(jsonrpc.INVALID_PARAMS, text, now=now)
            return
        for report in parked.reports:
            self._report(parked.pairing, report, now)
        if parked.ended is not None:
            self._end(parked.pairing, parked.ended, now)

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
                pairing = self._pairings.of_handle(handle)
                if pairing is not None:
                    self._report(pairing, event, now)
            case TaskUpdated(call=handle):
                self._became_task(self._pairings.of_handle(handle), now)
            case ServerNotified(handle, notification):
                return self._notified(handle, notification, now)
            case ServerRequestReceived(handle, request):
                return self._questions.received(handle, request, now)
            case ServerRequestCancelled(id, reason):
                self._questions.withdrawn(id, reason, now)
            case _:
                pass
        return None

    def _upstream_ended(
        self, handle: int, event: CallCompleted | CallFailed, now: float
    ) -> str | None:
        pairing = self._pairings.of_handle(handle)
        if pairing is None:
            self._subscriptions.ended(handle, event, now)
            return None
        error = event.error if isinstance(event, CallFailed) else None
        if isinstance(error, SessionLost) and error.was_not_run and not pairing.is_repeated:
            # The client's own session goes on, so it need not know.
            self._forget(pairing, now)
            self._begin(pairing.call, pairing.params, now, is_repeated=True)
            return None
        if error is not None and not isinstance(error, JsonRpcError):
            self._note_left(pairing, now)  # the server has not said that it has ended
        if self._questions.ended(pairing, event):
            self._pairings.stop(pairing)
            return None
        return self._end(pairing, event, now)

    def _end(self, pairing: Pairing, event: CallCompleted | CallFailed, now: float) -> str | None:
        """End the call of a client. Returns what of its result could not be relayed."""
        call = pairing.call
        self._pairings.leave(call)
        self._forget(pairing, now)
        if isinstance(event, CallCompleted):
            if call.request.method == "tools/list":
                if self._tools is not None:
                    event = CallCompleted(event.call, self._tools.apply(event.result))
                learn_schemas(self._schemas, event.result)
            if call.request.method == SUBSCRIBE:
                self._subscriptions.subscribed(str((call.request.params or {}).get("uri")))
        return respond(call, event, self._name, now)

    def _forget(self, pairing: Pairing, now: float) -> None:
        """Forget the call of a client. The questions that it has not answered get no answer."""
        self._pairings.stop(pairing)
        self._questions.refuse(pairing, now)

    def _give_up(self, pairing: Pairing, reason: str, now: float) -> None:
        """Cancel an upstream call. The server may go on with it, and even ask something for it."""
        self._upstream.client.cancel(pairing.handle, reason, now=now)
        self._note_left(pairing, now)

    def _note_left(self, pairing: Pairing, now: float) -> None:
        self._pairings.note_left(pairing, now + self._limits.input_timeout)

    def _report(self, pairing: Pairing, report: Report, now: float) -> bool:
        """Report something to the client of a call. Returns False if it cannot be told."""
        call = pairing.call
        if self._questions.keep(pairing, report) or call.is_above_high_water:
            return True  # its client has not come back, or does not read; a later one may have room
        is_told = True
        if isinstance(report, Notification):
            is_told = call.notify(report.method, given(report.params), now=now)
        elif pairing.progress is None or report.progress > pairing.progress:
            pairing.progress = report.progress
            call.progress(report.progress, report.total, report.message, now=now)
        self._pairings.note_full(call)
        return is_told

    def _became_task(self, pairing: Pairing | None, now: float) -> None:
        """Make the call of a client a task, if its client can follow tasks."""
        if pairing is not None and pairing.call.become_task(now=now):
            self._pairings.note_full(pairing.call)

    def _notified(self, handle: int | None, message: Notification, now: float) -> str | None:
        try:
            return self._pass_on(handle, message, now)
        except LocalProtocolError as error:  # NaN, for example
            return f"{message.method[:100]!r} of the upstream server is lost: {error}"

    def _pass_on(self, handle: int | None, message: Notification, now: float) -> str | None:
        method, params = message.method, given(message.params)
        if method == RESOURCES_CHANGED:
            self._subscriptions.list_changed()
        if method in LISTS or method == UPDATED:
            self._audience.tell(method, params, now)
            return None
        if method == ACKNOWLEDGED and handle is not None:
            self._subscriptions.listening(handle, params or {}, now)
            return None
        pairing = None if handle is None else self._pairings.of_handle(handle)
        if pairing is None:
            sent = [each.notify(method, params, now=now) for each in self._audience.sessions]
            if not any(sent):
                possible = self._pairings.of_only_client(now)
                sent = [any(self._report(each, message, now) for each in possible)]
        else:
            sent = [self._report(pairing, message, now)]
        is_told = any(sent) or method == _LOG_MESSAGE  # it may be below the level of the client
        return None if is_told else f"{method[:100]!r} of the upstream server reached no client"

    # The time

    def next_deadline(self) -> float | None:
        """Return when to call :meth:`handle_timeout`, or None for never."""
        due = min(self._questions.next_deadline(), self._subscriptions.next_deadline())
        return None if due == math.inf else due

    def handle_timeout(self, *, now: float) -> None:
        """Ask clients for input, and cancel the calls of those that did not send it in time.

        Early, late and repeated calls are safe. Drive both machines afterwards.
        """
        self._questions.ask_now(now)
        while (late := self._questions.next_late(now)) is not None:
            self._forget(late.pairing, now)
            if late.ended is None:
                self._give_up(late.pairing, "the client sent no input", now)
        self._subscriptions.handle_timeout(now)


def _acknowledge(request: ListenRequest, uris: Collection[str], now: float) -> None:
    request.acknowledge(uris, now=now)


def _respond_to_subscribe(call: ServerCall, uris: Collection[str], now: float) -> None:
    if uris:
        call.respond({}, now=now)
    else:
        text = "The upstream server does not tell of changes of this resource"
        call.respond_error(jsonrpc.INVALID_PARAMS, text, now=now)


def _with_input(params: Params | None, returned: HandlerInput) -> Params | None:
    """Return parameters with the input responses of a client, and the state of the upstream server.

    A client may know what will be asked, and send its responses at once, without a state.
    """
    if returned.state is None and not returned.input_responses:
        return params
    state = json.as_object(returned.state) or {}
    kept = {REQUEST_STATE: state[REQUEST_STATE]} if REQUEST_STATE in state else {}
    return {**(params or {}), INPUT_RESPONSES: dict(returned.input_responses), **kept}
