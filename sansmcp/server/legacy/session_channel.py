"""The handshake revisions on a channel: stdio or HTTP+SSE.

The channel is the session: there are no session ids, and no stream can be resumed.

Source: 2024-11-05 to 2025-11-25, basic/transports: stdio; 2024-11-05 basic/transports: HTTP with
SSE.
"""

from __future__ import annotations

import attrs

from ...codecs import jsonrpc
from ...codecs.jsonrpc import Batch
from ...messages import Message, Notification, Request
from ...revisions import REVISIONS
from .. import refusals
from ..calls import CallOwner
from ..channel import ChannelResponder
from ..core import ServerCore, Sink
from ..keyed_calls import KeyedCalls
from .dispatcher import Dispatcher
from .results import LegacyResults
from .session_validation import check_batch
from .sessions import LegacySession, SessionTable


@attrs.define(eq=False, repr=False)
class SessionChannelResponder(LegacyResults, ChannelResponder):
    """Sends the response of one call, or the responses of a batch as one array."""

    session: CallOwner
    _sink: Sink
    open_calls: int
    _batch: list[bytes] | None
    """The responses so far, which are sent together; None for the call of one message."""

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send or collect the response of one call. Returns False if the channel has ended."""
        self.open_calls -= 1
        if self._batch is None:
            return self._sink.send(data)
        self._batch.append(data)
        return self._send_batch()

    def complete_without_response(self) -> None:
        self.open_calls -= 1
        self._send_batch()

    def _send_batch(self) -> bool:
        if self.open_calls or not self._batch:
            return True
        return self._sink.send(jsonrpc.encode_batch(self._batch))


@attrs.define(eq=False, repr=False)
class SessionChannelHandler:
    """Handles the messages of one channel, which is a session."""

    _core: ServerCore
    _table: SessionTable
    _dispatcher: Dispatcher
    _sink: Sink
    _principal: str
    _keyed_calls: KeyedCalls | None
    """None on stdio, and if the server takes no keys."""
    session: LegacySession = attrs.field(init=False)
    _is_open: bool = attrs.field(default=False, init=False)
    """True after ``initialize``."""

    def __attrs_post_init__(self) -> None:
        # The newest revision applies to messages before initialize.
        revision = REVISIONS[self._core.options.versions[-1]]
        self.session = self._table.new(None, self._principal, revision, sink=self._sink)

    @property
    def null_id(self) -> bool:
        """True if an error that belongs to no request has the member ``"id": null``."""
        return not self.session.revision.error_without_id

    @property
    def is_busy(self) -> bool:
        return bool(self.session.calls)

    def end(self, reason: str) -> None:
        """End the session, because the channel has ended."""
        if self.session in self._table:
            self._table.end(self.session, reason)

    def receive(self, message: Message | Batch) -> None:
        """Handle a message. Raises RemoteProtocolError for a refusal."""
        session = self.session
        if isinstance(message, Request) and message.method == "initialize":
            self._initialize(message)
        elif isinstance(message, Batch):
            check_batch(session.revision, message)
            self.check_open(None)
            self._dispatcher.batch(
                session,
                message,
                lambda count: SessionChannelResponder(session, self._sink, count, []),
            )
        elif isinstance(message, Request):
            if message.method != "ping":
                self.check_open(message)
            self._dispatcher.check_call(session, message)
            responder = SessionChannelResponder(session, self._sink, 1, None)
            self._dispatcher.start((message,), responder)
        elif self._is_open or not isinstance(message, Notification):
            self._dispatcher.dispatch(session, message)

    def _initialize(self, request: Request) -> None:
        if self._is_open:
            raise refusals.INITIALIZED_ALREADY(request.id)
        revision = self._dispatcher.choose_revision(request)
        negotiated = self._dispatcher.negotiate(request, revision, keyed_calls=self._keyed_calls)
        self._table.make_room(self._principal, request.id)
        session = self.session
        session.revision = negotiated.revision
        session.client_info = negotiated.client_info
        session.client_capabilities = negotiated.client_capabilities
        self._is_open = True
        self._table.add(session)
        self._sink.send(negotiated.reply)

    def check_open(self, request: Request | None) -> None:
        """Raise RemoteProtocolError before ``initialize``, when only pings are allowed.

        Source: basic/lifecycle: Initialization.
        """
        if not self._is_open:
            id = None if request is None else request.id
            raise refusals.not_initialized(self._core.options.versions, id)
