"""Streamable HTTP of the handshake revisions.

A POST of ``initialize`` opens a session, other POSTs carry messages, GET reads streams, and DELETE
ends the session. The validators are in ``session_validation``, and ``dispatcher`` handles the
messages. If instances share a store, the session of a request is looked up there first.

Source: 2025-03-26 to 2025-11-25, basic/transports: Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from ...codecs.jsonrpc import Batch
from ...errors import RemoteProtocolError
from ...http import RequestHead
from ...messages import Message, Notification, Request
from ...meta_keys import meta_of
from ...reclaim import EXTENSION
from ...states import REFUSING, ExchangeState
from .. import refusals
from ..core import ServerCore
from ..era_choice import SESSION_ID
from ..exchange import ServerExchange
from ..keyed_calls import KeyedCalls
from ..procedures import Steps, run
from ..validation import Endpoint
from .dispatcher import Dispatcher
from .parked_calls import continue_call
from .session_records import load_record, save_record
from .session_responder import KeyedSessionResponder, SessionResponder
from .session_validation import (
    SessionRequestContext,
    check_head,
    check_message,
    parse_last_event_id,
    validate_session_exists,
)
from .sessions import LegacySession, SessionTable


@attrs.define(eq=False, repr=False)
class StreamableHttp:
    """Handles the requests to the MCP endpoint."""

    _core: ServerCore
    _endpoint: Endpoint
    _table: SessionTable
    _dispatcher: Dispatcher
    _keyed_calls: KeyedCalls | None

    def check_head(self, exchange: ServerExchange, head: RequestHead) -> None:
        """Run the validators that need no body. Raises RemoteProtocolError for a refusal.

        For a POST this is only the check of its session. If instances share a store, a session that
        this instance does not have is looked up there: for a POST at once, for other methods when
        the request is complete.
        """
        context = self._context(head)
        if head.method != b"POST":
            if not self._core.options.shared_store:
                check_head(context)
        elif not self._core.options.shared_store:
            validate_session_exists(context)
        elif (
            self._core.options.sessions
            and context.session_id is not None
            and context.session is None
        ):
            run(self._table.streams.logs, self._look_up(exchange, context, context.session_id))

    def complete(self, exchange: ServerExchange) -> None:
        """Handle a complete GET or DELETE. Raises RemoteProtocolError for a refusal."""
        self._find_session(exchange, partial(self._read_or_end, exchange))

    def post(self, exchange: ServerExchange, messages: Message | Batch) -> None:
        """Handle a complete POST. Raises RemoteProtocolError for a refusal."""
        self._find_session(exchange, partial(self._post, exchange, messages), messages)

    def _find_session(
        self,
        exchange: ServerExchange,
        then: Callable[[SessionRequestContext], None],
        messages: Message | Batch | None = None,
    ) -> None:
        """Call ``then``, after looking the session up in the store if instances share one.

        It is not looked up for ``messages`` that have the key of a call of this instance: if that
        failed, the refusal would say that nothing was run.
        """
        assert exchange.head is not None
        context = self._context(exchange.head)
        id = context.session_id
        if not self._core.options.shared_store:
            then(context)
        elif id is None or not self._core.options.sessions or self._is_known(context, messages):
            check_head(context)
            then(context)
        else:
            run(self._table.streams.logs, self._load_session(exchange, context, id, then))

    def _is_known(self, context: SessionRequestContext, messages: Message | Batch | None) -> bool:
        """Return True if a request has the key of a call of this instance, in an open session."""
        calls = self._keyed_calls
        if calls is None or context.session is None or not isinstance(messages, Request):
            return False
        return calls.has(meta_of(messages).get(EXTENSION), context.head.principal)

    def _look_up(
        self, exchange: ServerExchange, context: SessionRequestContext, id: str
    ) -> Steps[None]:
        """Refuse a POST of an unknown session, if its body is still incomplete.

        A complete POST looks the session up again, and so does one whose lookup failed.
        """
        try:
            yield from load_record(self._core, self._table, context.head.principal, id)
        except RemoteProtocolError:
            return
        if context.session is None and exchange.state is ExchangeState.BODY:
            exchange.refuse(refusals.session_not_found(is_shared=True))

    def _load_session(
        self,
        exchange: ServerExchange,
        context: SessionRequestContext,
        id: str,
        then: Callable[[SessionRequestContext], None],
    ) -> Steps[None]:
        """Load the session of a request, run the validators, and call ``then``."""
        try:
            yield from load_record(self._core, self._table, context.head.principal, id)
            if not exchange.is_done:
                check_head(context)
                then(context)
        except RemoteProtocolError as error:
            if not exchange.is_done:
                exchange.refuse(error)

    def _read_or_end(self, exchange: ServerExchange, context: SessionRequestContext) -> None:
        validate_session_exists(context)  # it may have ended since the head arrived
        session = context.session or self._temporary_session(context)
        session.touch()
        self._table.use(session)
        if context.head.method == b"DELETE":
            self._table.end(session, "ended by the client")
            exchange.send_response(200)
        elif (cursor := parse_last_event_id(context)) is not None:
            session.resume(exchange, cursor)
        elif self._core.state in REFUSING:
            raise refusals.SHUTTING_DOWN()
        else:
            session.check_store()
            session.listen(exchange)

    def _post(
        self, exchange: ServerExchange, messages: Message | Batch, context: SessionRequestContext
    ) -> None:
        check_message(context, messages)
        if isinstance(messages, Request) and messages.method == "initialize":
            self._initialize(exchange, context, messages)
            return
        session = context.session or self._temporary_session(context)
        session.touch()
        if not isinstance(messages, Notification):
            self._table.use(session)
        if isinstance(messages, Batch) and session.multi_turn:
            continue_call(self._core, session, parse_last_event_id(context), messages, exchange)
        elif isinstance(messages, Batch):
            stream_after = self._core.options.stream_after
            ids = tuple(each.id for each in messages.items if isinstance(each, Request))
            new_responder = partial(
                SessionResponder, self._core, session, exchange, stream_after, ids, is_batch=True
            )
            if not self._dispatcher.batch(session, messages, new_responder):
                exchange.send_response(202)
        elif isinstance(messages, Request):
            has_meta = "_meta" in (messages.params or ())
            text = meta_of(messages).pop(EXTENSION, None) if has_meta else None
            if text is not None and self._keyed_calls is not None:
                self._keyed_request(self._keyed_calls, exchange, session, messages, text, context)
                return
            self._dispatcher.check_call(session, messages)
            stream_after = self._core.stream_after_of(messages.method)
            responder = SessionResponder(
                self._core, session, exchange, stream_after, (messages.id,), 1, is_batch=False
            )
            self._dispatcher.start((messages,), responder)
        elif not self._dispatcher.dispatch(session, messages, exchange):
            exchange.send_response(202)

    def _keyed_request(
        self,
        calls: KeyedCalls,
        exchange: ServerExchange,
        session: LegacySession,
        request: Request,
        text: Any,
        context: SessionRequestContext,
    ) -> None:
        """Start a call with a key, or send the rest of one that has been started."""
        key, found = calls.read(text, session.principal, request)
        if found is not None:
            calls.reclaim(found, key, request, exchange)
            return
        if request.method != "tools/call":
            calls.look(key, session.principal, request, exchange)
            return
        self._dispatcher.check_call(session, request)
        stream_after, ids = self._core.stream_after_of(request.method), (request.id,)
        responder = KeyedSessionResponder(
            self._core, session, exchange, stream_after, ids, 1, is_batch=False, calls=calls
        )

        def start() -> None:
            if calls.are_shared:  # time has passed
                validate_session_exists(context)
                self._dispatcher.check_call(session, request)
            self._dispatcher.start((request,), responder)

        calls.start(key, session.principal, request, responder, start)

    def _context(self, head: RequestHead) -> SessionRequestContext:
        return SessionRequestContext(self._endpoint, head, self._table)

    def _initialize(
        self, exchange: ServerExchange, context: SessionRequestContext, request: Request
    ) -> None:
        """Open a session and send its id. Source: basic/transports: Session Management."""
        revision = self._dispatcher.choose_revision(request)
        has_session = self._core.options.sessions and revision.sessions
        multi_turn = self._core.options.offers_multi_turn and has_session
        negotiated = self._dispatcher.negotiate(
            request,
            revision,
            multi_turn=multi_turn,
            has_session=has_session,
            keyed_calls=self._keyed_calls,
        )
        if not has_session:
            exchange.send_response(200, negotiated.reply)
            return
        is_stored = self._core.options.resumable and negotiated.revision.resumption
        if is_stored and self._core.store_health.is_down(self._core.now):
            raise refusals.store_failed(request.id)
        self._table.make_room(context.head.principal, request.id)
        session = self._table.open(
            context.head.principal,
            negotiated.revision,
            negotiated.client_info,
            negotiated.client_capabilities,
        )
        session.multi_turn = negotiated.multi_turn
        run(self._table.streams.logs, self._open(exchange, session, negotiated.reply))

    def _open(self, exchange: ServerExchange, session: LegacySession, reply: bytes) -> Steps[None]:
        """Respond to ``initialize``, or end the session because it could not be stored."""
        assert session.id is not None
        is_stored = True
        if self._core.options.shared_store:
            is_stored = yield from save_record(self._core, session)
        if not is_stored and session in self._table:
            self._table.end(session, "it could not be stored")
        if exchange.is_done:
            return
        if is_stored:
            exchange.send_response(200, reply, ((SESSION_ID, session.id.reveal().encode()),))
        else:
            exchange.refuse(refusals.store_failed())

    def _temporary_session(self, context: SessionRequestContext) -> LegacySession:
        """Return a session object for one request, because the server has no sessions."""
        return self._table.new(None, context.head.principal, context.revision)
