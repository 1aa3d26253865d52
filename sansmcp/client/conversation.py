"""What is under way between a client and a server: session, calls, the server's own questions.

This is where messages find their way: an answer to the call that waits for it, progress to the call
whose token it has, a request of the server to the application. And it is where a session that the
server has forgotten is replaced: once; only a new session in which something worked may be replaced
again, so that a server which forgets every session is not asked for ever.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle, basic/transports: Session Management; SEP-2260.
"""

from __future__ import annotations

import attrs

from ..codecs.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, is_request_id
from ..errors import CallError, RemoteProtocolError, SessionLost
from ..events import (
    Closed,
    ProgressReceived,
    ServerAsked,
    ServerNotified,
    ServerWithdrew,
    SessionExpired,
    Violation,
)
from ..messages import ErrorResponse, Message, Notification, Params, Request, RequestId, Response
from ..states import CLIENT, ClientEvent, ClientState, advance
from ..timers import Timer
from ..types import never
from .calls import ClientCall
from .core import ClientCore
from .exchange import Refusal
from .handshake import INITIALIZED, Handshake
from .listener import Listener
from .posts import Farewell, Post

_CAPABILITIES = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""What a client must have declared to be asked this."""


@attrs.define(eq=False)
class Conversation:
    """All that is under way."""

    _core: ClientCore
    _connect_timeout: float
    _close_timeout: float
    _listens: bool
    state: ClientState = attrs.field(default=ClientState.NEW, init=False)
    calls: dict[int, ClientCall] = attrs.field(factory=dict[int, ClientCall], init=False)
    """The calls that have not ended, by handle."""
    by_id: dict[RequestId | None, ClientCall] = attrs.field(
        factory=dict[RequestId | None, ClientCall], init=False
    )
    """The calls whose request is under way, by its id."""
    questions: dict[RequestId, ClientCall | None] = attrs.field(
        factory=dict[RequestId, ClientCall | None], init=False
    )
    """The server's requests that wait for our answer, and the calls they belong to."""
    posts: set[Post] = attrs.field(factory=set[Post], init=False)
    """The messages without answer that are under way."""
    _handshake: Handshake | None = attrs.field(default=None, init=False)
    _listener: Listener | None = attrs.field(default=None, init=False)
    _proven: bool = attrs.field(default=True, init=False)
    """Something has worked in this session."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be said any more."""
        return self.state in (ClientState.CLOSING, ClientState.CLOSED)

    # The session

    def start(self) -> None:
        """Open the conversation."""
        self._advance(ClientEvent.START)
        self._shake_hands()

    def initialized(self) -> None:
        """The server has answered ``initialize``."""
        self._advance(ClientEvent.ANSWERED)
        self.post(INITIALIZED)

    def delivered(self, message: Message) -> None:
        """A message of ours was taken; the one that completes the handshake opens the session."""
        self._proven |= message is not INITIALIZED
        if message is INITIALIZED and self.state is ClientState.CONFIRMING:
            self._advance(ClientEvent.CONFIRMED)
            assert self._handshake is not None
            self._handshake.confirmed()
            self._handshake = None
            for call in tuple(self.calls.values()):
                call.send()
            if self._listens:
                self._listener = Listener(self._core, self)
                self._listener.start()

    def undelivered(self, message: Message, reason: str) -> None:
        """A message of ours was not taken."""
        if message is INITIALIZED and self._handshake is not None:
            self._handshake.lost(reason)

    def expire(self, refusal: Refusal) -> None:
        """The server has forgotten the session (404): open a new one."""
        if not self._proven:
            self.fail(SessionLost(f"The server forgets its sessions at once: {refusal.message}"))
            return
        self._advance(ClientEvent.EXPIRED)
        self._leave_session()
        failed: list[int] = []
        for call in tuple(self.calls.values()):
            if call.idempotent:
                call.wait_again()
            else:
                failed.append(call.handle)
                call.lose_session()
        self._core.events.append(SessionExpired(tuple(failed)))
        self._shake_hands()

    def close(self) -> None:
        """End the session, and all that is under way."""
        if self.is_closed:
            return
        self._leave_session()
        for call in tuple(self.calls.values()):
            call.cancel("the client was closed")
        session_id = self._core.session_id
        self._advance(ClientEvent.CLOSE)
        if self.state is ClientState.CLOSED:
            self._core.events.append(Closed(None))
        elif session_id is None:
            self.closed()
        else:
            self._core.open(Farewell(self), b"DELETE")
            self._core.timers.set(Timer.CLOSE, self, self._core.now + self._close_timeout)

    def closed(self) -> None:
        """The session has been ended, or there was none."""
        self._core.timers.stop(Timer.CLOSE, self)
        self._leave_session()
        self._advance(ClientEvent.DONE)
        self._core.events.append(Closed(None))

    def fail(self, error: CallError) -> None:
        """There is no way on."""
        self._leave_session()
        for call in tuple(self.calls.values()):
            call.abandon(error)
        self._advance(ClientEvent.CLOSE)
        if self.state is ClientState.CLOSING:
            self._advance(ClientEvent.DONE)
        self._core.events.append(Closed(error))

    # What we say

    def call(self, call: ClientCall) -> None:
        """Make a call, now or when the handshake is done."""
        self.calls[call.handle] = call
        call.begin()
        if self.state is ClientState.READY:
            call.send()

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """Send what wants no answer."""
        Post(self._core, self, message).send()

    def cancel_request(self, call: ClientCall, reason: str) -> None:
        """Tell the server that nobody waits for a request any more.

        Source: basic/utilities/cancellation.
        """
        if call.request_id is not None:
            params = {"requestId": call.request_id, "reason": reason}
            self.post(Notification("notifications/cancelled", params))

    def answer(self, message: Response | ErrorResponse) -> bool:
        """Answer a request of the server; False if it does not want the answer any more."""
        if message.id is None or message.id not in self.questions:
            return False
        call = self.questions.pop(message.id)
        self.post(message)
        if call is not None:
            call.told()
        return True

    def forget(self, call: ClientCall) -> None:
        """A call has ended, and with it the server's interest in answers to its questions."""
        self.calls.pop(call.handle, None)
        for id in [id for id, owner in self.questions.items() if owner is call]:
            self._withdraw(id, "the call it belongs to has ended")

    # What the server says

    def route(self, message: Message, call: ClientCall | None) -> None:
        """Let a message find its way. ``call``: on whose stream it came."""
        match message:
            case Response(id) | ErrorResponse(id):
                self._answered(id, message)
            case Request():
                self._asked(message, call)
            case Notification("notifications/progress", params):
                self._progress(params or {})
            case Notification("notifications/cancelled", params):
                self._withdrawn(params or {})
            case Notification():
                handle = call.handle if call is not None else None
                self._core.events.append(ServerNotified(handle, message))
            case _ as impossible:
                never(impossible)

    def _answered(self, id: RequestId | None, message: Response | ErrorResponse) -> None:
        self._proven = True
        call = self.by_id.get(id)
        if call is not None:
            call.answer(message)
        elif type(id) is not int or id > self._core.last_request_id:
            self._violation(f"an answer to {id!r}, which is no request of ours", "unknown_id")

    def _asked(self, request: Request, call: ClientCall | None) -> None:
        capability = _CAPABILITIES.get(request.method)
        if request.method == "ping":
            self.post(Response(request.id, {}))
        elif capability is not None and capability not in self._core.capabilities:
            text = f"This client has not declared the capability {capability!r}"
            self.post(ErrorResponse(request.id, METHOD_NOT_FOUND, text))
        elif capability is not None and not self.calls:
            text = f"{request.method} must belong to a request of the client, and none is running"
            self.post(ErrorResponse(request.id, INVALID_PARAMS, text))
        elif request.id not in self.questions:
            self.questions[request.id] = call
            if call is not None:
                call.asked()
            self._core.events.append(ServerAsked(call.handle if call else None, request))

    def _progress(self, params: Params) -> None:
        token, progress = params.get("progressToken"), params.get("progress")
        call = self.by_id.get(token) if type(token) is int else None
        if type(progress) not in (int, float):
            self._violation("progress that is no number", "invalid_progress")
        elif call is not None:
            call.progressed()
            total, text = params.get("total"), params.get("message")
            self._core.events.append(
                ProgressReceived(
                    call=call.handle,
                    progress=progress,  # type: ignore[arg-type]
                    total=total if type(total) in (int, float) else None,
                    message=text if isinstance(text, str) else None,
                )
            )

    def _withdrawn(self, params: Params) -> None:
        id, reason = params.get("requestId"), params.get("reason")
        if is_request_id(id) and id in self.questions:
            call = self.questions[id]
            self._withdraw(id, reason if isinstance(reason, str) else "withdrawn by the server")
            if call is not None:
                call.told()

    def _withdraw(self, id: RequestId, reason: str) -> None:
        del self.questions[id]
        self._core.events.append(ServerWithdrew(id, reason))

    def _violation(self, what: str, reason: str) -> None:
        error = RemoteProtocolError(f"The server has sent {what}", reason=reason)
        self._core.events.append(Violation(error))

    # Endings

    def _shake_hands(self) -> None:
        self._proven = False
        self._handshake = Handshake(self._core, self, self._connect_timeout)
        self._handshake.start()

    def _leave_session(self) -> None:
        if self._handshake is not None:
            self._handshake.stop()
            self._handshake = None
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        for id in tuple(self.questions):
            self._withdraw(id, "the session has ended")
        for post in self.posts:
            self._core.timers.stop(Timer.RECONNECT, post)
        self.posts.clear()
        for exchange in tuple(self._core.exchanges.values()):
            self._core.abort(exchange)

    def _advance(self, event: ClientEvent) -> None:
        self.state = advance(CLIENT, self.state, event)
