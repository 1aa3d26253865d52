"""What messages of the handshake revisions mean in one conversation on stdio or HTTP+SSE.

There are no session ids and nothing can be resumed: the session is the channel.

Source: 2024-11-05 to 2025-11-25, basic/transports: stdio; 2024-11-05 basic/transports: HTTP with
SSE.
"""

from __future__ import annotations

from functools import partial

import attrs

from ...codecs import jsonrpc
from ...codecs.jsonrpc import Batch
from ...http import RequestHead
from ...messages import Message, Notification, Request
from ...revisions import REVISIONS
from .. import refusals
from ..calls import CallOwner
from ..core import ServerCore, Sink
from .dispatcher import Dispatcher
from .results import LegacyResults
from .session_validation import check_batch
from .sessions import LegacySession, SessionTable


@attrs.define(eq=False, repr=False)
class ChannelResponder(LegacyResults):
    """The answers of calls that came together: each is sent when it is there, a batch's as one."""

    session: CallOwner
    _sink: Sink
    open_calls: int
    is_batch: bool
    _collected: list[bytes] = attrs.field(factory=list[bytes], init=False)

    def start(self) -> None:
        """Nothing has to be opened."""

    @property
    def head(self) -> RequestHead | None:
        """The HTTP request that opened the stream; None on stdio."""
        return self._sink.head

    @property
    def is_above_high_water(self) -> bool:
        """Whether the client does not keep up."""
        return self._sink.is_above_high_water

    def message(self, data: bytes) -> bool:
        """Send it; returns False if nobody is there any more."""
        return self._sink.send(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """The answer of one call; returns False if nobody is there any more."""
        self.open_calls -= 1
        if not self.is_batch:
            return self._sink.send(data)
        self._collected.append(data)
        return self._send_batch()

    def complete_without_response(self) -> None:
        self.open_calls -= 1
        self._send_batch()

    def disconnect(self, retry: int | None) -> bool:
        """The session would be lost."""
        return False

    def _send_batch(self) -> bool:
        if self.open_calls or not self._collected:
            return True
        return self._sink.send(jsonrpc.encode_batch(self._collected))


@attrs.define(eq=False, repr=False)
class SessionChannelHandler:
    """A session that is opened, and used, and ended by one channel."""

    _core: ServerCore
    _table: SessionTable
    _dispatcher: Dispatcher
    _sink: Sink
    _principal: str
    session: LegacySession = attrs.field(init=False)
    _is_open: bool = attrs.field(default=False, init=False)
    """``initialize`` was answered."""

    def __attrs_post_init__(self) -> None:
        # What is said before initialize is judged by the newest revision.
        revision = REVISIONS[self._core.versions[-1]]
        self.session = self._table.new(None, self._principal, revision, sink=self._sink)

    @property
    def null_id(self) -> bool:
        """Whether an error that answers no request has an id, null."""
        return not self.session.revision.error_without_id

    @property
    def is_busy(self) -> bool:
        return bool(self.session.calls)

    def end(self, reason: str) -> None:
        """The channel is gone, and the session with it."""
        if self.session in self._table:
            self._table.end(self.session, reason)

    def receive(self, message: Message | Batch) -> None:
        """Do what a message asks for. Raises RemoteProtocolError: the refusal."""
        session = self.session
        if isinstance(message, Request) and message.method == "initialize":
            self._initialize(message)
        elif isinstance(message, Batch):
            check_batch(session.revision, message)
            self._check_open(None)
            new_responder = partial(ChannelResponder, session, self._sink, is_batch=True)
            self._dispatcher.batch(session, message, new_responder)
        elif isinstance(message, Request):
            if message.method != "ping":
                self._check_open(message)
            self._dispatcher.check_call(session, message)
            answer = ChannelResponder(session, self._sink, 1, is_batch=False)
            self._dispatcher.start((message,), answer)
        elif self._is_open or not isinstance(message, Notification):
            self._dispatcher.dispatch(session, message)

    def _initialize(self, request: Request) -> None:
        if self._is_open:
            raise refusals.INITIALIZED_ALREADY(request.id)
        negotiated = self._dispatcher.negotiate(request)
        self._table.make_room(self._principal, request.id)
        session = self.session
        session.revision = negotiated.revision
        session.client_info = negotiated.client_info
        session.client_capabilities = negotiated.client_capabilities
        self._is_open = True
        self._table.add(session)
        self._sink.send(negotiated.reply)

    def _check_open(self, request: Request | None) -> None:
        """Source: basic/lifecycle: Initialization: nothing but pings before ``initialize``."""
        if not self._is_open:
            id = None if request is None else request.id
            raise refusals.not_initialized(self._core.versions, id)
