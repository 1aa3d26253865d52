"""What is under way between a client and a server: session, calls, the server's own questions.

This is where the opening is tried again, within ``connect_timeout``, while the server cannot be
reached: it may start a second after its client.

A session that the server has forgotten is replaced here, too. The first loss is replaced at once.
Further ones, without an answered request between them, wait longer and longer, and after
``ReconnectPolicy.attempts`` of them the client closes, so that a server which forgets every session
is not asked for ever.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle, basic/transports: Session Management.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from ..errors import (
    CallError,
    JsonRpcError,
    NegotiationFailed,
    SessionLost,
)
from ..events import (
    Closed,
    Reconnecting,
    SessionExpired,
)
from ..messages import ErrorResponse, Message, Notification, RequestId, Response
from ..revisions import of_era
from ..states import CLIENT, ClientEvent, ClientState, advance
from ..timers import Timer
from ..types import Era
from .calls import ClientCall
from .core import ClientCore
from .detection import Verdict
from .exchange import Refusal
from .inbox import Inbox
from .modern.discovery import Discovery
from .posts import INITIALIZED
from .questions import Questions
from .transport import Transport

if TYPE_CHECKING:
    from .legacy.era import Legacy
    from .legacy.handshake import Handshake


@attrs.define(eq=False, repr=False)
class Conversation:
    """All that is under way."""

    _core: ClientCore
    state: ClientState = attrs.field(default=ClientState.NEW, init=False)
    handles: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    """For calls."""
    calls: dict[int, ClientCall] = attrs.field(factory=dict[int, ClientCall], init=False)
    """The calls that have not ended, by handle."""
    by_id: dict[RequestId | None, ClientCall] = attrs.field(
        factory=dict[RequestId | None, ClientCall], init=False
    )
    """The calls whose request is under way, by its id."""
    legacy: Legacy | None = attrs.field(init=False)
    """What handshakes take; None: we speak no revision that has one."""
    inbox: Inbox = attrs.field(init=False)
    """Where messages of the server come in."""
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
    opening: Handshake | Discovery | None = attrs.field(default=None, init=False)
    """How the conversation is being opened."""
    _probes: bool = attrs.field(default=True, init=False)
    """Whether to ask a server first if it does without a handshake."""
    _trusts: bool = attrs.field(default=False, init=False)
    """It is not asked, because of what is remembered of it."""
    _asked_again: bool = attrs.field(default=False, init=False)
    """It was asked at a version that it has named itself."""
    era_is_sure: bool = attrs.field(default=True, init=False)
    """False if the server has answered the question for its version by a failure, which any server
    could do.
    """
    opening_ends: float = attrs.field(default=0.0, init=False)
    """When the opening must be done, in seconds on the machine's clock."""
    _failures: list[CallError] = attrs.field(factory=list[CallError], init=False)
    """How the attempts at this opening have failed, which were made by the transport in use."""
    _is_silent: bool = attrs.field(default=False, init=False)
    """True if the server has left the question for its version unanswered in this opening."""
    _losses: int = attrs.field(default=0, init=False)
    """Sessions that the server has forgotten since it answered a request."""

    def __attrs_post_init__(self) -> None:
        self.inbox = Inbox(self._core, self)
        self.questions = Questions(self._core, self)
        self.legacy = None
        if self._core.handshake_versions:  # else not even imported
            from .legacy.era import Legacy

            self.legacy = Legacy(self._core, self)

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
        self._connect()

    def _connect(self) -> None:
        """Begin an opening: its time runs from now on."""
        self._failures.clear()
        self._is_silent = False
        self.opening_ends = self._core.now + self._core.connect_timeout
        self.transport.connect()

    def reachable(self) -> None:
        """Messages can be sent."""
        if not self._failures:
            self.opening_ends = self._core.now + self._core.connect_timeout
        self.era_is_sure = True
        versions = of_era(self._core.versions, Era.MODERN)
        may_ask = self._probes and not self._is_silent
        asks = may_ask and self.transport.speaks_modern and bool(versions)
        is_known_as_old = self._core.verdicts.era(self._core.target) is Era.LEGACY
        self._trusts = asks and is_known_as_old and bool(self._core.handshake_versions)
        if asks and not self._trusts:
            self.discover(versions[-1])
        else:
            self.shake_hands(None)

    def discover(self, version: str, *, is_last: bool = False) -> None:
        """Ask the server whether it speaks a version that needs no handshake."""
        self._trusts, self._asked_again = False, is_last
        self.opening = Discovery(self._core, self, version, is_last)
        self.opening.start()

    def shake_hands(self, version: str | None) -> None:
        """Open a session; ``version`` is what to offer, or None."""
        assert self.legacy is not None
        self.opening = self.legacy.handshake(version, is_last=self._asked_again)
        self.opening.start()

    def asked_in_vain(self) -> None:
        """Let the opening go on without an answer to the question for the version.

        The server gets the full time for the handshake, and is not asked again in this opening.
        """
        self._is_silent = True
        self.opening_ends += self._core.probe_timeout

    def unreachable(self, error: CallError, verdict: Verdict, *, wait: float | None = None) -> None:
        """The transport does not work. Where it may be the wrong one, the next is tried.

        Args:
            error: how it failed.
            verdict: what that says about the server.
            wait: seconds to wait at least before the same is tried again; None if that would be of
                no use.
        """
        if wait is not None and self._tries_again(error, wait):
            return
        if self._failures:
            error.note_attempts([failure for failure in self._failures if failure is not error])
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
            self._connect()
        elif len(self._attempts) == 1:
            self.fail(error)
        else:
            lines = [f"- {name}: {attempt}" for name, attempt in self._attempts]
            text = f"No transport of MCP works at {self._core.server}:"
            attempts = tuple(attempt for _, attempt in self._attempts)
            self.fail(NegotiationFailed(text, attempts=attempts, lines=lines))

    def _tries_again(self, error: CallError, wait: float) -> bool:
        """Let the opening be tried again after a while; False if there is no time left for that.

        At least half of the time that is left is kept for the attempt.
        """
        policy, left = self._core.reconnect, self.opening_ends - self._core.now
        if wait >= left or len(self._failures) >= policy.attempts:
            return False
        self._failures.append(error)
        delay = policy.delay(len(self._failures), wait, self._core.jitter())
        self._leave_session()
        self._connect_later(min(delay, max(wait, left / 2)), len(self._failures), str(error))
        return True

    def _connect_later(self, delay: float, attempt: int, reason: str) -> None:
        self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
        self._core.events.append(
            Reconnecting(call=None, delay=delay, attempt=attempt, reason=reason)
        )

    def retry_due(self) -> None:
        """The delay before the next attempt at the opening, or before the next session, is over."""
        self.transport.connect()

    def initialized(self) -> None:
        """The server has answered ``initialize``."""
        self._advance(ClientEvent.ANSWERED)
        self.transport.post(INITIALIZED)

    def delivered(self, message: Message) -> None:
        """A message of ours was taken; the one that completes the handshake opens the session."""
        if message is not INITIALIZED:
            self._losses = 0
        if message is INITIALIZED and self.state is ClientState.CONFIRMING:
            self._advance(ClientEvent.CONFIRMED)
            assert self.opening is not None
            assert not isinstance(self.opening, Discovery)
            self.opening.confirmed()
            self._open(Era.LEGACY)

    def discovered(self) -> None:
        """The server needs no handshake."""
        self._advance(ClientEvent.DISCOVERED)
        self._open(Era.MODERN)

    def _open(self, era: Era) -> None:
        """Calls go out from now on."""
        self.opening = None
        self._asked_again = False
        self._untried.clear()
        self._attempts.clear()
        self._failures.clear()
        if self.era_is_sure or era is Era.MODERN:
            self._core.verdicts.remember(self._core.target, self.transport.name, era)
        for call in tuple(self.calls.values()):
            call.send()
        self.transport.listen()

    def proven(self) -> None:
        """The server has answered in this session."""
        self._losses = 0

    def delayed(self, message: Message, reason: str) -> None:
        """A message of ours was not taken, and is sent again."""
        if message is INITIALIZED:
            assert self.opening is not None
            assert not isinstance(self.opening, Discovery)
            self.opening.why = reason

    def undelivered(self, message: Message, reason: str) -> None:
        """A message of ours was not taken."""
        if message is INITIALIZED and self.opening is not None:
            assert not isinstance(self.opening, Discovery)
            self.opening.unconfirmed(reason)

    def expire(self, refusal: Refusal) -> None:
        """The server has forgotten the session (404): open a new one.

        Source: 2025-11-25, basic/transports, Session Management: the client MUST do so.
        """
        policy, losses = self._core.reconnect, self._losses
        self._losses += 1
        if losses > policy.attempts:
            text = f"The server has forgotten {self._losses} sessions in a row: {refusal.message}"
            self.fail(SessionLost(text))
            return
        self._begin_again(ClientCall.lose_session)
        if losses == 0:
            self._connect()
        else:
            delay = policy.delay(losses, refusal.retry_after, self._core.jitter())
            self._connect_later(delay, losses, refusal.message)

    def lose_session(self, reason: str) -> None:
        """The stream that was the session is gone: open a new one."""
        self._begin_again(lambda call: call.lost(reason))
        self._connect()

    def renegotiate(self) -> None:
        """The server does not speak the version in force any more: find out what it speaks."""
        self._begin_again(lambda call: call.lost("the server does not speak that version any more"))
        self.reachable()

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
        """Nothing of before counts any more. What has not been sent yet just waits."""
        self._advance(ClientEvent.EXPIRED)
        self._leave_session()
        self._core.session_id = None
        self._failures.clear()
        self._core.cache.clear()
        failed: list[int] = []
        for call in tuple(self.calls.values()):
            if call.survives:
                call.wait_again()
            else:
                failed.append(call.handle)
                lose(call)
        self._core.events.append(SessionExpired(tuple(failed)))

    def dies_of_questions(self) -> bool:
        """Whether the process has ended because it was asked for its version.

        Then it is not asked again.
        """
        was_asked = self._probes and isinstance(self.opening, Discovery)
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

    # Endings

    def _leave_session(self) -> None:
        if self.opening is not None:
            self.opening.stop()
            self.opening = None
        self._core.timers.stop(Timer.RECONNECT, self)
        self.questions.drop()
        self.transport.leave()

    def _advance(self, event: ClientEvent) -> None:
        self.state = advance(CLIENT, self.state, event)
