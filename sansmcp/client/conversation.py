"""What is under way between a client and a server: session, calls, the server's own questions.

This is where messages find their way: an answer to the call that waits for it, progress to the call
whose token it has, a request of the server to the application. And it is where a session that the
server has forgotten is replaced: once; only a new session in which something worked may be replaced
again, so that a server which forgets every session is not asked for ever.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle, basic/transports: Session Management; SEP-2260.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import Batch, is_request_id
from ..errors import (
    CallError,
    JsonRpcError,
    NegotiationFailed,
    RemoteProtocolError,
    SessionLost,
)
from ..events import (
    Closed,
    ProgressReceived,
    ServerNotified,
    SessionExpired,
    Violation,
)
from ..messages import ErrorResponse, Message, Notification, Params, Request, RequestId, Response
from ..meta import LISTEN, SUBSCRIPTION_ID
from ..revisions import of_era
from ..states import CLIENT, ClientEvent, ClientState, advance
from ..types import Era, never
from .calls import ClientCall
from .core import ClientCore
from .detection import Verdict
from .discovery import Discovery
from .exchange import Refusal
from .handshake import INITIALIZED, Handshake
from .questions import Questions
from .transport import Transport


@attrs.define(eq=False)
class Conversation:
    """All that is under way."""

    _core: ClientCore
    state: ClientState = attrs.field(default=ClientState.NEW, init=False)
    calls: dict[int, ClientCall] = attrs.field(factory=dict[int, ClientCall], init=False)
    """The calls that have not ended, by handle."""
    by_id: dict[RequestId | None, ClientCall] = attrs.field(
        factory=dict[RequestId | None, ClientCall], init=False
    )
    """The calls whose request is under way, by its id."""
    questions: Questions = attrs.field(init=False)
    """What the server has asked, and we have not answered."""
    transport: Transport = attrs.field(init=False)
    """How we talk."""
    _untried: list[Transport] = attrs.field(factory=list["Transport"], init=False)
    """How we could talk, too."""
    _attempts: list[tuple[str, CallError]] = attrs.field(
        factory=list[tuple[str, CallError]], init=False
    )
    """Those that were tried, and how they failed."""
    _error: CallError | None = attrs.field(default=None, init=False)
    """Why the client closes; None: it was asked to."""
    _opening: Handshake | Discovery | None = attrs.field(default=None, init=False)
    """How the conversation is being opened."""
    _probes: bool = attrs.field(default=True, init=False)
    """Whether to ask a server first if it does without a handshake."""
    _trusts: bool = attrs.field(default=False, init=False)
    """It is not asked, because of what is remembered of it."""
    _asked_again: bool = attrs.field(default=False, init=False)
    """It was asked at a version that it has named itself."""
    _proven: bool = attrs.field(default=True, init=False)
    """Something has worked in this session."""

    def __attrs_post_init__(self) -> None:
        self.questions = Questions(self._core, self)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be said any more."""
        return self.state in (ClientState.CLOSING, ClientState.CLOSED)

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        return self.state is ClientState.READY

    # The session

    def start(self, transports: Sequence[Transport]) -> None:
        """Open the conversation, by the first transport that works."""
        self._advance(ClientEvent.START)
        self.transport, *self._untried = transports
        self.transport.connect()

    def reachable(self) -> None:
        """Messages can be sent."""
        versions = of_era(self._core.versions, Era.MODERN)
        asks = self._probes and self.transport.speaks_modern and bool(versions)
        is_known_as_old = self._core.verdicts.era(self._core.target) is Era.LEGACY
        self._trusts = asks and is_known_as_old and bool(self._core.handshake_versions)
        if asks and not self._trusts:
            self.discover(versions[-1])
        else:
            self.shake_hands(None)

    def discover(self, version: str, *, is_last: bool = False) -> None:
        """Ask the server whether it speaks a version that needs no handshake."""
        self._trusts, self._asked_again = False, is_last
        self._opening = Discovery(self._core, self, version, is_last)
        self._opening.start()

    def shake_hands(self, version: str | None) -> None:
        """Open a session; ``version`` is what to offer, or None."""
        self._proven = False
        self._opening = None
        if not self._core.handshake_versions:
            ours = ", ".join(self._core.versions)
            text = f"The server needs a handshake, and this client speaks only {ours}"
            self.unreachable(NegotiationFailed(text), Verdict.NONE)
            return
        self._opening = Handshake(self._core, self, version, self._asked_again)
        self._opening.start()

    def unreachable(self, error: CallError, verdict: Verdict) -> None:
        """The transport does not work. Where it may be the wrong one, the next is tried."""
        self._attempts.append((self.transport.name, error))
        is_other = verdict is Verdict.NOT_SPOKEN
        is_other |= isinstance(error, JsonRpcError | NegotiationFailed)
        if is_other:
            self._core.verdicts.forget(self._core.target)
        if is_other and self._trusts:
            self._leave_session()
            self.reachable()
        elif verdict is Verdict.NOT_SPOKEN and self._untried:
            self._leave_session()
            self.transport = self._untried.pop(0)
            self.transport.connect()
        elif len(self._attempts) == 1:
            self.fail(error)
        else:
            lines = "".join(f"\n- {name}: {attempt}" for name, attempt in self._attempts)
            text = f"No transport of MCP works at {self._core.target}:{lines}"
            attempts = tuple(attempt for _, attempt in self._attempts)
            self.fail(NegotiationFailed(text, attempts=attempts))

    def initialized(self) -> None:
        """The server has answered ``initialize``."""
        self._advance(ClientEvent.ANSWERED)
        self.transport.post(INITIALIZED)

    def delivered(self, message: Message) -> None:
        """A message of ours was taken; the one that completes the handshake opens the session."""
        self._proven |= message is not INITIALIZED
        if message is INITIALIZED and self.state is ClientState.CONFIRMING:
            self._advance(ClientEvent.CONFIRMED)
            assert isinstance(self._opening, Handshake)
            self._opening.confirmed()
            self._open(Era.LEGACY)

    def discovered(self) -> None:
        """The server needs no handshake."""
        self._advance(ClientEvent.DISCOVERED)
        self._open(Era.MODERN)

    def _open(self, era: Era) -> None:
        """Calls go out from now on."""
        self._opening = None
        self._asked_again = False
        self._untried.clear()
        self._attempts.clear()
        self._core.verdicts.remember(self._core.target, self.transport.name, era)
        for call in tuple(self.calls.values()):
            call.send()
        self.transport.listen()

    def undelivered(self, message: Message, reason: str) -> None:
        """A message of ours was not taken."""
        if message is INITIALIZED and self._opening is not None:
            self._opening.lost(reason)

    def expire(self, refusal: Refusal) -> None:
        """The server has forgotten the session (404): open a new one."""
        if not self._proven:
            self.fail(SessionLost(f"The server forgets its sessions at once: {refusal.message}"))
        else:
            self._begin_again(ClientCall.lose_session)

    def lose_session(self, reason: str) -> None:
        """The stream that was the session is gone: open a new one."""
        self._begin_again(lambda call: call.lost(reason))

    def close(self) -> None:
        """End the session, and all that is under way."""
        if not self.is_closed:
            for call in tuple(self.calls.values()):
                call.cancel("the client was closed")
            self._end(None)

    def fail(self, error: CallError) -> None:
        """There is no way on."""
        for call in tuple(self.calls.values()):
            call.abandon(error)
        self._end(error)

    def closed(self) -> None:
        """The session has been ended, or there was none."""
        self.transport.leave()
        self._advance(ClientEvent.DONE)
        self._core.events.append(Closed(self._error))

    def _end(self, error: CallError | None) -> None:
        self._error = error
        if self.state is ClientState.NEW:
            self._advance(ClientEvent.CLOSE)
            self._core.events.append(Closed(None))
            return
        self._leave_session()
        self._advance(ClientEvent.CLOSE)
        if not self.transport.farewell(error):
            self.closed()

    def _begin_again(self, lose: Callable[[ClientCall], None]) -> None:
        """A new session, on the same transport. What has not been sent yet just waits for it."""
        self._advance(ClientEvent.EXPIRED)
        self._leave_session()
        failed: list[int] = []
        for call in tuple(self.calls.values()):
            if call.idempotent or call.request_id is None:
                call.wait_again()
            else:
                failed.append(call.handle)
                lose(call)
        self._core.events.append(SessionExpired(tuple(failed)))
        self.transport.connect()

    def dies_of_questions(self) -> bool:
        """Whether the process has ended because it was asked for its version.

        Then it is not asked again.
        """
        was_asked = self._probes and isinstance(self._opening, Discovery)
        if not was_asked or not self._core.handshake_versions:
            return False
        self._leave_session()
        self._probes, self._core.revision = False, None
        return True

    # What we say

    def call(self, call: ClientCall) -> None:
        """Make a call, now or when the handshake is done."""
        self.calls[call.handle] = call
        call.begin()
        if self.state is ClientState.READY:
            call.send()

    def post(self, message: Notification | Response | ErrorResponse) -> None:
        """Send what wants no answer."""
        self.transport.post(message)

    def cancel_request(self, call: ClientCall, reason: str) -> None:
        """Tell the server that nobody waits for a request any more.

        Source: basic/utilities/cancellation.
        """
        leaves = self._core.is_modern and not self.transport.is_one_stream  # that cancels it
        if call.request_id is not None and not leaves:
            params = {"requestId": call.request_id, "reason": reason}
            self.post(Notification("notifications/cancelled", params))

    def forget(self, call: ClientCall) -> None:
        """A call has ended."""
        self.calls.pop(call.handle, None)
        self.questions.forget(call)

    # What the server says

    def hear(self, data: bytes) -> None:
        """The bytes of a message (or batch) on the one stream for all.

        Raises RemoteProtocolError for what is no message and cannot be the answer of a call.
        """
        try:
            decoded = jsonrpc.decode(data, self._core.limits)
        except RemoteProtocolError as error:
            if not self._garbled(error):
                raise
            return
        for item in decoded.items if isinstance(decoded, Batch) else (decoded,):
            if self.is_closed:
                return  # an item before has ended the client
            if isinstance(item, RemoteProtocolError):
                if not self._garbled(item):
                    self._core.events.append(Violation(item))
            elif self._opening is not None:
                self._opening.message(item)
            else:
                self.route(item, None)

    def _garbled(self, error: RemoteProtocolError) -> bool:
        """Something that is no message was meant to be the answer of a request; False if not."""
        if error.request_id is None or error.is_request:
            return False
        call = self.by_id.get(error.request_id)
        if call is not None:
            call.garbled(error)
            return True
        if self._opening is not None and error.request_id == self._opening.request_id:
            self._opening.garbled(error)
            return True
        return False

    def route(self, message: Message, call: ClientCall | None) -> None:
        """Let a message find its way. ``call``: on whose stream it came."""
        match message:
            case Response(id) | ErrorResponse(id):
                self._answered(id, message)
            case Request():
                self.questions.asked(message, call)
            case Notification("notifications/progress", params):
                self._progress(params or {})
            case Notification("notifications/cancelled", params):
                self._cancelled(params or {})
            case Notification():
                call = call or self._subscription_of(message)
                handle = call.handle if call is not None else None
                self._core.events.append(ServerNotified(handle, message))
            case _ as impossible:
                never(impossible)

    def _subscription_of(self, notification: Notification) -> ClientCall | None:
        """The call that listens for a notification, where one stream has them all."""
        meta = json.as_object((notification.params or {}).get("_meta")) or {}
        id = meta.get(SUBSCRIPTION_ID)
        return self.by_id.get(id) if is_request_id(id) else None

    def _answered(self, id: RequestId | None, message: Response | ErrorResponse) -> None:
        self._proven = True
        call = self.by_id.get(id)
        if call is not None:
            call.answer(message)
        elif type(id) is not int or id > self._core.last_request_id:
            self.violated(f"an answer to {id!r}, which is no request of ours", "unknown_id")

    def _progress(self, params: Params) -> None:
        token, progress = params.get("progressToken"), params.get("progress")
        call = self.by_id.get(token) if type(token) is int else None
        if type(progress) not in (int, float):
            self.violated("progress that is no number", "invalid_progress")
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

    def _cancelled(self, params: Params) -> None:
        """The server wants no answer to its request; or, without handshake, ends a subscription."""
        id, reason = params.get("requestId"), params.get("reason")
        if not is_request_id(id):
            return
        call = self.by_id.get(id)
        if not self._core.is_modern:
            why = reason if isinstance(reason, str) else "withdrawn by the server"
            self.questions.withdrawn(id, why)
        elif call is not None and call.method == LISTEN:
            call.lost(f"the server has ended the subscription: {reason or 'no reason given'}")

    def violated(self, what: str, reason: str) -> None:
        """The server has sent what it must not."""
        error = RemoteProtocolError(f"The server has sent {what}", reason=reason)
        self._core.events.append(Violation(error))

    # Endings

    def _leave_session(self) -> None:
        if self._opening is not None:
            self._opening.stop()
            self._opening = None
        self.questions.drop()
        self.transport.leave()

    def _advance(self, event: ClientEvent) -> None:
        self.state = advance(CLIENT, self.state, event)
