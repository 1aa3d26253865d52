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
from ..codecs.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Batch, is_request_id
from ..errors import (
    CallError,
    NegotiationFailed,
    ProcessEnded,
    RemoteProtocolError,
    SessionLost,
)
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
from ..revisions import of_era
from ..states import CLIENT, ClientEvent, ClientState, advance
from ..types import Era, never
from .calls import ClientCall
from .core import ClientCore
from .detection import Verdict
from .discovery import Discovery
from .exchange import Refusal
from .handshake import INITIALIZED, Handshake
from .modern import SUBSCRIPTION_ID
from .rounds import CAPABILITIES, Round
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
    questions: dict[RequestId, tuple[ClientCall, ...]] = attrs.field(
        factory=dict[RequestId, tuple[ClientCall, ...]], init=False
    )
    """The server's requests that wait for our answer, and the calls they may belong to."""
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
    rounds: dict[RequestId, Round] = attrs.field(factory=dict[RequestId, Round], init=False)
    """Which of those questions came in a result, to be answered by another request."""
    _opening: Handshake | Discovery | None = attrs.field(default=None, init=False)
    """How the conversation is being opened."""
    _probes: bool = attrs.field(default=True, init=False)
    """Whether to ask a server first if it does without a handshake."""
    _proven: bool = attrs.field(default=True, init=False)
    """Something has worked in this session."""
    _flooded: bool = attrs.field(default=False, init=False)

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
        is_known_as_old = self._core.verdicts.era(self._core.target) is Era.LEGACY
        may_be_old = bool(self._core.handshake_versions)
        asks = self._probes and self.transport.speaks_modern and bool(versions)
        if asks and not (is_known_as_old and may_be_old):
            self.discover(versions[-1])
        else:
            self.shake_hands(None)

    def discover(self, version: str, *, is_last: bool = False) -> None:
        """Ask the server whether it speaks a version that needs no handshake."""
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
        was_asked = self._probes and bool(of_era(self._core.versions, Era.MODERN))
        self._opening = Handshake(self._core, self, version, was_asked)
        self._opening.start()

    def unreachable(self, error: CallError, verdict: Verdict) -> None:
        """The transport does not work. Where it may be the wrong one, the next is tried."""
        self._attempts.append((self.transport.name, error))
        if verdict is Verdict.NOT_SPOKEN and self._untried:
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
        self._untried.clear()
        self._attempts.clear()
        if self._core.url is not None:
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

    def process_ended(self, error: ProcessEnded) -> None:
        """The server process has ended by itself.

        One that ends when it is asked for its version is started again, and not asked.
        """
        may_be_old = self._core.handshake_versions and error.status is not None
        if isinstance(self._opening, Discovery) and may_be_old and self._probes:
            self._leave_session()
            self._probes = False
            self._core.revision = None
            self.transport.connect()
        else:
            self.fail(error)

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

    def answer(self, message: Response | ErrorResponse) -> bool:
        """Answer a request of the server; False if it does not want the answer any more."""
        if message.id is None or message.id not in self.questions:
            return False
        calls = self.questions.pop(message.id)
        if (round := self.rounds.pop(message.id, None)) is not None:
            round.take(message)
        else:
            self.post(message)
        for call in calls:
            call.told()
        return True

    def forget(self, call: ClientCall) -> None:
        """A call has ended, and with it the server's interest in answers to its questions."""
        self.calls.pop(call.handle, None)
        for id, calls in tuple(self.questions.items()):
            if call in calls:
                self.questions[id] = tuple(one for one in calls if one is not call)
                if not self.questions[id]:
                    self._withdraw(id, "the call it belongs to has ended")

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
                self._asked(message, call)
            case Notification("notifications/progress", params):
                self._progress(params or {})
            case Notification("notifications/cancelled", params):
                self._withdrawn(params or {})
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
            self._violation(f"an answer to {id!r}, which is no request of ours", "unknown_id")

    def _asked(self, request: Request, call: ClientCall | None) -> None:
        if self._core.is_modern:
            self._violation(f"the request {request.method[:50]!r}", "unexpected_request")
            return
        if self._is_flooded():
            return
        capability = CAPABILITIES.get(request.method)
        if request.method == "ping":
            self.post(Response(request.id, {}))
        elif capability is not None and capability not in self._core.capabilities:
            text = f"This client has not declared the capability {capability!r}"
            self.post(ErrorResponse(request.id, METHOD_NOT_FOUND, text))
        elif capability is not None and not self.calls and not self.transport.is_one_stream:
            text = f"{request.method} must belong to a request of the client, and none is running"
            self.post(ErrorResponse(request.id, INVALID_PARAMS, text))
        elif request.id not in self.questions:
            everybody = tuple(self.calls.values()) if self.transport.is_one_stream else ()
            calls = self.questions[request.id] = everybody if call is None else (call,)
            for asked in calls:
                asked.asked()
            self._core.events.append(ServerAsked(call.handle if call else None, request))

    def _is_flooded(self) -> bool:
        """Whether the server asks more than it takes answers to; what it asks then is not heard."""
        most = self._core.limits.max_pending_calls
        was_flooded = self._flooded
        self._flooded = len(self._core.posts) >= most or len(self.questions) >= most
        if self._flooded and not was_flooded:
            self._violation(f"more than {most} requests without taking our answers", "too_many")
        return self._flooded

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
            calls = self.questions[id]
            self._withdraw(id, reason if isinstance(reason, str) else "withdrawn by the server")
            for call in calls:
                call.told()

    def _withdraw(self, id: RequestId, reason: str) -> None:
        del self.questions[id]
        self.rounds.pop(id, None)
        self._core.events.append(ServerWithdrew(id, reason))

    def _violation(self, what: str, reason: str) -> None:
        error = RemoteProtocolError(f"The server has sent {what}", reason=reason)
        self._core.events.append(Violation(error))

    # Endings

    def _leave_session(self) -> None:
        if self._opening is not None:
            self._opening.stop()
            self._opening = None
        for id in tuple(self.questions):
            self._withdraw(id, "the session has ended")
        self.transport.leave()

    def _advance(self, event: ClientEvent) -> None:
        self.state = advance(CLIENT, self.state, event)
