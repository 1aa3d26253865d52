"""A conversation with one stream of messages in each direction: stdio, and HTTP+SSE.

What the client says comes in one after the other; everything for it goes to one outlet. There are
no session ids and nothing can be resumed: the session is the channel.

Source: 2024-11-05 to 2025-11-25, basic/transports: stdio; 2024-11-05 basic/transports: HTTP with
SSE.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from ..codecs import jsonrpc
from ..codecs.jsonrpc import Batch
from ..effects import Wake
from ..errors import RemoteProtocolError
from ..events import BadRequest, Noise
from ..messages import Message, Notification, Request
from ..revisions import REVISIONS
from ..types import Driven
from . import refusals
from .calls import Caller, PlainResults
from .core import ServerCore
from .dispatch import check_batch
from .inbox import Inbox
from .sessions import Outlet, Session, SessionTable

if TYPE_CHECKING:
    from .stateless import StatelessLines


@attrs.define(eq=False)
class ChannelAnswer(PlainResults):
    """The answers of calls that came together: each is sent when it is there, a batch's as one."""

    session: Caller
    _outlet: Outlet
    open_calls: int
    is_batch: bool
    _collected: list[bytes] = attrs.field(factory=list[bytes], init=False)

    def start(self) -> None:
        """Nothing has to be opened."""

    @property
    def congested(self) -> bool:
        """Whether the client does not keep up."""
        return self._outlet.congested

    def message(self, data: bytes) -> bool:
        """Send it; returns False if nobody is there any more."""
        return self._outlet.send(data)

    def respond(self, data: bytes, error_code: int | None = None) -> bool:
        """The answer of one call; returns False if nobody is there any more."""
        self.open_calls -= 1
        if not self.is_batch:
            return self._outlet.send(data)
        self._collected.append(data)
        return self._send_batch()

    def withdraw(self) -> None:
        """One call ends without an answer."""
        self.open_calls -= 1
        self._send_batch()

    def disconnect(self, retry: int | None) -> bool:
        """The session would be lost."""
        return False

    def _send_batch(self) -> bool:
        if self.open_calls or not self._collected:
            return True
        return self._outlet.send(jsonrpc.encode_batch(self._collected))


@attrs.define(eq=False)
class Channel:
    """The server's end of such a conversation."""

    _core: ServerCore
    _table: SessionTable
    _inbox: Inbox
    _outlet: Outlet
    _principal: str
    _stateless: StatelessLines | None = None
    """What messages of the stateless revisions mean; None where they are not spoken."""
    session: Session = attrs.field(init=False)
    _is_open: bool = attrs.field(default=False, init=False)
    """``initialize`` was answered."""

    def __attrs_post_init__(self) -> None:
        # What is said before initialize is judged by the newest revision.
        revision = REVISIONS[self._core.versions[-1]]
        self.session = Session(
            core=self._core,
            id=None,
            principal=self._principal,
            revision=revision,
            outlet=self._outlet,
        )
        self._core.outlets.add(self._outlet)

    @property
    def is_full(self) -> bool:
        """Whether the application must take events before more is received."""
        return self._core.is_full

    def must_wait(self, driven: Driven) -> bool:
        """Whether that is so; whoever drives the channel is woken when it is no more."""
        if self._core.is_full:
            self._core.paused.add(driven)
        return self._core.is_full

    def wake(self, driven: Driven) -> None:
        """There is something to send."""
        self._core.effects.append(Wake(driven))

    def receive(self, data: bytes, *, now: float) -> None:
        """The bytes of one message, or of one batch.

        What is not allowed is answered with an error. Raises RemoteProtocolError if they are no
        message, or ask for answers while too many wait to be read.
        """
        self._core.now = now
        decoded = jsonrpc.decode(data, self._core.limits)
        if self._outlet.congested and isinstance(decoded, Request | Batch):
            raise refusals.not_reading(decoded.id if isinstance(decoded, Request) else None)
        try:
            self._take(decoded)
        except RemoteProtocolError as error:
            self.refuse(error, BadRequest(error))

    def refuse(self, error: RemoteProtocolError, event: BadRequest | Noise) -> None:
        """Answer with an error, and tell the application."""
        null_id = not self.session.revision.error_without_id
        self._outlet.send(jsonrpc.encode(error.reply, null_id=null_id))
        self._core.events.append(event)

    def end(self, reason: str, *, now: float) -> None:
        """The channel is gone, and the session with it."""
        self._core.now = now
        self._core.outlets.discard(self._outlet)
        if self._stateless is not None:
            self._stateless.end(reason)
        if self.session in self._table:
            self._table.end(self.session, reason)

    @property
    def is_busy(self) -> bool:
        """Whether calls run."""
        return bool(self.session.calls or (self._stateless is not None and self._stateless.calls))

    def _take(self, decoded: Message | Batch) -> None:
        session = self.session
        if self._stateless is not None and self._stateless.took(decoded):
            pass
        elif isinstance(decoded, Request) and decoded.method == "initialize":
            self._initialize(decoded)
        elif isinstance(decoded, Batch):
            check_batch(session.revision, decoded)
            self._check_open(None)
            self._inbox.batch(
                session, decoded, partial(ChannelAnswer, session, self._outlet, is_batch=True)
            )
        elif isinstance(decoded, Request):
            if decoded.method != "ping":
                self._check_open(decoded)
            self._inbox.check_call(session, decoded)
            answer = ChannelAnswer(session, self._outlet, 1, is_batch=False)
            self._inbox.start((decoded,), answer)
        elif self._is_open or not isinstance(decoded, Notification):
            self._inbox.take(session, decoded)

    def _initialize(self, request: Request) -> None:
        if self._is_open:
            raise refusals.initialized_already(request.id)
        negotiated = self._inbox.negotiate(request)
        self._table.check_room(request.id)
        session = self.session
        session.revision = negotiated.revision
        session.client_info = negotiated.client_info
        session.client_capabilities = negotiated.client_capabilities
        self._is_open = True
        self._core.outlets.discard(self._outlet)
        self._table.add(session)
        self._outlet.send(negotiated.reply)

    def _check_open(self, request: Request | None) -> None:
        """Source: basic/lifecycle: Initialization: nothing but pings before ``initialize``."""
        if not self._is_open:
            id = None if request is None else request.id
            raise refusals.not_initialized(self._core.versions, id)
