"""The messages of the handshake revisions, on every transport.

``initialize`` negotiates a revision, other requests become calls, and notifications and responses
are passed to the application or the call they belong to. A refusal is raised as
RemoteProtocolError, and the transport sends it.

Source: 2024-11-05 to 2025-11-25, basic/lifecycle, basic/utilities: ping, cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ...codecs import json, jsonrpc
from ...codecs.jsonrpc import Batch
from ...errors import RemoteProtocolError
from ...events import CallReceived, ClientNotified, RefusalSent
from ...messages import ErrorResponse, Message, Notification, Request, Response
from ...meta_keys import names_multi_turn, with_multi_turn
from ...revisions import REVISIONS, Revision
from ...states import REFUSING
from .. import refusals
from ..calls import CallOwner, Responder, RunningCall
from ..core import ServerCore
from ..exchange import ServerExchange
from ..keyed_calls import KeyedCalls
from .mailbox import cancellation_mailbox, post_message, reason_of
from .parked_calls import deliver_responses
from .sessions import SUBSCRIBE, UNSUBSCRIBE, LegacySession


@attrs.frozen
class Negotiated:
    """The result of ``initialize``."""

    revision: Revision
    client_info: Mapping[str, Any]
    client_capabilities: Mapping[str, Any]
    reply: bytes
    """The response, encoded."""
    multi_turn: bool
    """True if SEP-1858 is used: both sides declared it, or ``assume_multi_turn`` is set."""


@attrs.define(eq=False, repr=False)
class Dispatcher:
    """Handles the messages of clients."""

    _core: ServerCore

    def choose_revision(self, request: Request) -> Revision:
        """Return the revision that ``initialize`` names, or the newest handshake one.

        The newest is chosen if the client's version is not served.

        Raises:
            RemoteProtocolError: the request names no version, or the server is draining.

        Source: basic/lifecycle: Version Negotiation.
        """
        self._check_serving(request)
        version = (request.params or {}).get("protocolVersion")
        if not isinstance(version, str):
            what = "protocolVersion must be a string"
            raise refusals.INVALID_SESSION_PARAMS(request.id, what=what)
        if version not in self._core.handshake_versions:
            version = self._core.handshake_versions[-1]
        return REVISIONS[version]

    def negotiate(
        self,
        request: Request,
        revision: Revision,
        *,
        multi_turn: bool = False,
        has_session: bool = True,
        keyed_calls: KeyedCalls | None = None,
    ) -> Negotiated:
        """Make the result of ``initialize`` at a revision.

        Args:
            request: the ``initialize`` request.
            revision: the one that ``choose_revision()`` returned.
            multi_turn: True if SEP-1858 is offered. The result declares it only to clients that
                declared it.
            has_session: False declares no subscriptions to resources, which need a session.
            keyed_calls: declares that calls may have keys; None if they may not.
        """
        params, result = request.params or {}, self._core.app.initialize_result(revision.name)
        if not has_session and "resources" in result["capabilities"]:
            result["capabilities"]["resources"] = {
                **result["capabilities"]["resources"],
                "subscribe": False,
            }
        # Some clients leave these out.
        client_info = json.as_object(params.get("clientInfo")) or {}
        capabilities = json.as_object(params.get("capabilities")) or {}
        is_named = names_multi_turn(capabilities)
        is_agreed = is_named or self._core.options.assume_multi_turn
        multi_turn = multi_turn and revision.multi_turn and is_agreed
        if multi_turn and is_named:
            result["capabilities"] = with_multi_turn(result["capabilities"])
        if keyed_calls is not None:
            keyed_calls.declare(result["capabilities"])
        reply = jsonrpc.encode(Response(request.id, result))
        return Negotiated(revision, client_info, capabilities, reply, multi_turn)

    def check_call(self, session: CallOwner, request: Request) -> None:
        """Raise the refusal (RemoteProtocolError) for a request that must not run."""
        assert isinstance(session, LegacySession), (
            "every client of these revisions has a session object"
        )
        self._check_serving(request)
        self.check_room(session, request)
        if request.method in (SUBSCRIBE, UNSUBSCRIBE):
            self._check_subscription(session, request)
        elif request.method != "ping":
            if self._core.app.handler_of(request.method) is None:
                raise refusals.UNKNOWN_METHOD(request.id, method=request.method[:100])
            session.check_store(request.id)

    def check_room(self, session: CallOwner, request: Request) -> None:
        """Raise RemoteProtocolError for an id that is in use, or one call too many."""
        if request.id in session.calls:
            raise refusals.DUPLICATE_REQUEST_ID(request.id)
        if len(session.calls) >= self._core.limits.max_calls_per_session:
            raise refusals.TOO_MANY_CALLS(request.id, limit=self._core.limits.max_calls_per_session)

    def batch(
        self, session: LegacySession, batch: Batch, new_responder: Callable[[int], Responder]
    ) -> bool:
        """Handle a batch. Returns False if it needs no response.

        Each request, and each element that is not a message, gets a response. All calls start at
        the place of the first one, so that later messages of the batch can cancel any of them.

        Args:
            session: the session of the client.
            batch: the messages.
            new_responder: called with the number of responses.

        Source: 2025-03-26 basic: Batching.
        """
        wants = [item for item in batch.items if isinstance(item, Request | RemoteProtocolError)]
        is_started = False
        for item in batch.items:
            if not isinstance(item, Request | RemoteProtocolError):
                self.dispatch(session, item)
            elif not is_started:
                is_started = True
                self.start(wants, new_responder(len(wants)), is_batch=True)
        return is_started

    def start(
        self,
        items: Sequence[Request | RemoteProtocolError],
        responder: Responder,
        *,
        is_batch: bool = False,
    ) -> None:
        """Start calls that arrived together; respond at once to pings and subscriptions.

        ``is_batch``: True if they were not checked yet.
        """
        for item in items:
            try:
                if isinstance(item, RemoteProtocolError):
                    raise item
                if is_batch:
                    self.check_call(responder.session, item)
            except RemoteProtocolError as error:
                null_id = not responder.session.revision.error_without_id
                responder.respond(jsonrpc.encode(error.reply, null_id=null_id))
                self._core.events.append(RefusalSent(error))
                continue
            call = RunningCall(self._core, responder.session, item, responder)
            responder.session.begin(call)
            if self._core.app.handler_of(item.method) is None:  # a ping, or a subscription
                call.respond({}, now=self._core.now)
            else:
                self._core.events.append(CallReceived(call))
        if responder.open_calls:
            responder.start()

    def dispatch(
        self, session: LegacySession, message: Message, exchange: ServerExchange | None = None
    ) -> bool:
        """Handle a notification, or a response to a server request.

        Late and unknown responses are ignored. Returns True if ``exchange`` gets its response
        later, when the message has been stored.
        """
        match message:
            case Notification("notifications/initialized"):
                session.initialized()
            case Notification("notifications/cancelled"):
                return self._cancel(session, message, exchange)
            case Notification():
                self._core.events.append(ClientNotified(session, message))
            case Response(id) | ErrorResponse(id) if (
                type(id) is int and id in session.pending_requests
            ):
                session.pending_requests[id].on_request_ended(id, message)
            case _:
                assert not isinstance(message, Request), "requests are passed to start()"
                return deliver_responses(self._core, session, message, exchange)
        return False

    def _check_subscription(self, session: LegacySession, request: Request) -> None:
        """Raise RemoteProtocolError for a subscription that could not be served.

        Source: server/resources: Subscriptions.
        """
        declared = self._core.app.declared_capabilities().get("resources", {})
        if not declared.get("subscribe") or not session.is_reachable:
            raise refusals.UNKNOWN_METHOD(request.id, method=request.method[:100])
        uri, limits = (request.params or {}).get("uri"), self._core.limits
        if not isinstance(uri, str) or len(uri) > limits.max_uri_length:
            what = f"uri must be a string of at most {limits.max_uri_length} characters"
            raise refusals.INVALID_SESSION_PARAMS(request.id, what=what)
        is_new = request.method == SUBSCRIBE and uri not in session.subscriptions
        if is_new and len(session.subscriptions) >= limits.max_resources_per_subscription:
            limit = limits.max_resources_per_subscription
            raise refusals.TOO_MANY_RESOURCES(request.id, limit=limit)

    def _check_serving(self, request: Request) -> None:
        if self._core.state in REFUSING:
            raise refusals.SHUTTING_DOWN(request.id)

    def _cancel(
        self, session: LegacySession, message: Notification, exchange: ServerExchange | None
    ) -> bool:
        """Cancel a call. An unknown or malformed id, and that of an ended call, are ignored.

        A call that this instance does not have may run at another one, or be parked in the store:
        the cancellation is put into its mailbox. Returns True if ``exchange`` gets its response
        later.

        Source: basic/utilities/cancellation.
        """
        id = (message.params or {}).get("requestId")
        if not jsonrpc.is_request_id(id):
            return False
        if (call := session.calls.get(id)) is not None:
            call.cancel(reason_of(message))
        elif session.can_park:
            log = session.log_key(cancellation_mailbox(id))
            reason = reason_of(message).encode()
            looks_again = session.is_shared
            post_message(session.table, log, reason, exchange, looks_again=looks_again)
            return True
        return False
