"""The handshake revisions on the server: what a complete request means, and what it starts.

Here the messages of 2024-11-05 to 2025-11-25 get their meaning: ``initialize`` opens a session,
other requests become calls, notifications and answers are taken in, GET reads streams and DELETE
ends the session. What may not be asked has been refused before by :mod:`.dispatch`.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle, basic/transports, basic/utilities: ping,
cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import Batch
from ..errors import RemoteProtocolError
from ..events import BadRequest, CallReceived, ClientNotified
from ..http import RequestHead
from ..messages import ErrorResponse, Message, Notification, Params, Request, Response
from ..revisions import REVISIONS
from . import refusals
from .calls import Answer, Call
from .core import ServerCore
from .dispatch import SESSION_ID, Asked, Endpoint, check_body, resumption_point
from .exchange import ServerExchange
from .sessions import Session, SessionTable


@attrs.define(eq=False)
class Legacy:
    """What requests of the handshake revisions mean."""

    _core: ServerCore
    _endpoint: Endpoint
    _table: SessionTable

    def asked(self, head: RequestHead) -> Asked:
        """A request, ready for the ladder."""
        return Asked(self._endpoint, self._table, head)

    def complete(self, exchange: ServerExchange, body: bytes) -> None:
        """A request is complete. Raises RemoteProtocolError: the refusal."""
        assert exchange.head is not None
        asked = self.asked(exchange.head)
        if asked.head.method == b"POST":
            self._post(exchange, asked, body)
            return
        session = asked.session or self._lone_session(asked)
        session.touch()
        if asked.head.method == b"DELETE":
            self._table.end(session, "ended by the client")
            exchange.reply(200)
        elif (cursor := resumption_point(asked)) is not None:
            session.resume(exchange, cursor)
        else:
            session.listen(exchange)

    def _post(self, exchange: ServerExchange, asked: Asked, body: bytes) -> None:
        messages = check_body(asked, body)
        if isinstance(messages, Request) and messages.method == "initialize":
            self._initialize(exchange, asked, messages)
            return
        session = asked.session or self._lone_session(asked)
        session.touch()
        if isinstance(messages, Batch):
            self._batch(exchange, session, messages)
        elif isinstance(messages, Request):
            self._check_call(session, messages)
            self._start((messages,), Answer(self._core, session, exchange, 1, is_batch=False))
        else:
            self._take(session, messages)
            exchange.reply(202)

    def _batch(self, exchange: ServerExchange, session: Session, batch: Batch) -> None:
        """One answer for each request, and for each element that is no message.

        Source: 2025-03-26 basic: Batching.
        """
        wants = [item for item in batch.items if isinstance(item, Request | RemoteProtocolError)]
        for item in batch.items:
            if not isinstance(item, Request | RemoteProtocolError):
                self._take(session, item)
        if wants:
            self._start(wants, Answer(self._core, session, exchange, len(wants), is_batch=True))
        else:
            exchange.reply(202)

    def _initialize(self, exchange: ServerExchange, asked: Asked, request: Request) -> None:
        """Open a session; an unknown version is answered with our newest.

        Source: basic/lifecycle: Version Negotiation.
        """
        params = request.params or {}
        version = params.get("protocolVersion")
        if not isinstance(version, str):
            raise refusals.invalid_params("protocolVersion must be a string", request.id)
        # Some clients leave these out.
        info = json.as_object(params.get("clientInfo")) or {}
        capabilities = json.as_object(params.get("capabilities")) or {}
        if version not in self._endpoint.versions:
            version = self._endpoint.versions[-1]
        result = self._core.app.initialize_result(version)
        body = jsonrpc.encode(Response(request.id, result))
        if not self._endpoint.sessions:
            exchange.reply(200, body)
            return
        if len(self._table) >= self._core.limits.max_sessions:
            raise refusals.too_many_sessions(self._core.limits.max_sessions, request.id)
        principal = asked.head.principal
        session = self._table.open(principal, REVISIONS[version], info, capabilities)
        assert session.id is not None
        exchange.reply(200, body, ((SESSION_ID, session.id.reveal().encode()),))

    def _start(self, items: Sequence[Request | RemoteProtocolError], answer: Answer) -> None:
        """Start the calls of one POST, and answer at once what needs no application."""
        for item in items:
            try:
                if isinstance(item, RemoteProtocolError):
                    raise item
                if answer.is_batch:
                    self._check_call(answer.session, item)
            except RemoteProtocolError as error:
                answer.respond(jsonrpc.encode(error.reply))
                self._core.events.append(BadRequest(error))
                continue
            call = Call(self._core, answer.session, item, answer)
            answer.session.calls[item.id] = call
            if item.method == "ping":
                call.respond({}, now=self._core.now)
            else:
                self._core.events.append(CallReceived(call))
        if answer.open_calls:
            answer.start()

    def _check_call(self, session: Session, request: Request) -> None:
        """Raises RemoteProtocolError for a request that must not run."""
        if request.id in session.calls:
            raise refusals.duplicate_request_id(request.id)
        if len(session.calls) >= self._core.limits.max_calls_per_session:
            raise refusals.too_many_calls(self._core.limits.max_calls_per_session, request.id)
        if request.method != "ping" and request.method not in self._core.app.handlers:
            raise refusals.unknown_method(request.method, request.id)

    def _take(self, session: Session, message: Message) -> None:
        """A notification, or the client's answer to a request of ours.

        Late and unknown answers are ignored.
        """
        match message:
            case Notification("notifications/initialized"):
                session.initialized()
            case Notification("notifications/cancelled", params):
                self._cancel(session, params or {})
            case Notification():
                self._core.events.append(ClientNotified(session, message))
            case Response(id) | ErrorResponse(id) if type(id) is int and id in session.asked:
                session.asked[id].answered(id, message)
            case _:
                pass

    def _cancel(self, session: Session, params: Params) -> None:
        """A call is not wanted any more; unknown, finished and malformed ones are ignored.

        Source: basic/utilities/cancellation.
        """
        id = params.get("requestId")
        call = session.calls.get(id) if jsonrpc.is_request_id(id) else None
        if call is not None:
            reason = params.get("reason")
            call.cancel(reason if isinstance(reason, str) else "cancelled by the client")

    def _lone_session(self, asked: Asked) -> Session:
        """Stands in for a session where there are none, for the length of one request."""
        return Session(self._core, None, asked.head.principal, asked.revision)
