"""Requests of a client, and how each ends exactly once.

A call is made once, by the application; it may need several JSON-RPC requests, each with a new id:
when one is lost that may be repeated, and at 2026-07-28 when the server asks for input, or for
other headers or another version. It ends by a result, an error of the server, a timeout, a
cancellation, or because nothing can bring the answer any more; whichever is first counts, and
everything after is ignored.

The timeout runs from the moment of the call. Progress starts it again, within the limit of the
total. While a server request that the client has declared to answer is open, both clocks stand
still, for a human may have to answer. Then the total goes on where it stood, and the timeout starts
again if the request was answered. The number of such requests is bounded, so a server cannot keep a
call alive for ever.

Source: 2025-03-26 to 2025-11-25, basic/lifecycle: Timeouts; basic/utilities: progress,
cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ..codecs import json
from ..codecs.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION
from ..errors import (
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    RemoteProtocolError,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)
from ..events import CallCompleted, CallFailed, Violation
from ..messages import ErrorResponse, Message, Params, Request, Response
from ..timers import Timer
from .core import ClientCore
from .exchange import Refusal
from .modern.refresh import ToolRefresh
from .modern.requests import learn_tools, uses_headers
from .modern.rounds import Round
from .transport import Carrier

if TYPE_CHECKING:
    from .conversation import Conversation


@attrs.define(eq=False, repr=False)
class ClientCall:
    """One call of the application."""

    _core: ClientCore
    _conversation: Conversation
    handle: int
    method: str
    _params: Params | None
    timeout: float
    """Seconds without an answer and without progress."""
    _total: float
    """Seconds without an answer, in all."""
    idempotent: bool
    """Whether the call may be made again when its outcome is unknown."""
    _resets: bool
    """Whether progress starts the timeout again."""
    started: float
    request_id: int | None = attrs.field(default=None, init=False)
    """The id of the request that is under way; None while the call waits for the handshake."""
    _carrier: Carrier | None = attrs.field(default=None, init=False)
    _questions: int = attrs.field(default=0, init=False)
    """Requests of the server that are open and stop the clocks of this call."""
    _asked: int = attrs.field(default=0, init=False)
    """All of them so far."""
    _stopped: float = attrs.field(default=0.0, init=False)
    """When the clocks were stopped."""
    is_over: bool = attrs.field(default=False, init=False)
    _ends: float = attrs.field(default=0.0, init=False)
    """When there has to be an answer, whatever progress there is."""
    _idle_ends: float = attrs.field(default=0.0, init=False)
    """When there has to be an answer or progress."""
    _round: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    """Parameters that answer the server's questions."""
    _sent: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    """All parameters of the request that was made last."""
    _rounds: int = attrs.field(default=0, init=False)
    _refresh: ToolRefresh | None = attrs.field(default=None, init=False)
    """How the headers of the tool were looked up once more."""
    _renegotiated: bool = attrs.field(default=False, init=False)
    """The server was asked again which versions it speaks."""
    _changes: int = attrs.field(default=0, init=False)
    """The state of the cache when the request was made."""

    def begin(self) -> None:
        """Start the clock."""
        self._ends = self._core.now + self._total
        self._wait()

    def send(self) -> None:
        """Make the request, with a new id, unless the result is known."""
        self._sent = {**(self._params or {}), **self._round}
        kept = self._core.cache.find(self.method, self._sent, self._core.now)
        if kept is not None:
            self.complete(kept)
            return
        self._changes = self._core.cache.changes
        if self._carrier is None:
            self._carrier = self._conversation.transport.carrier(self, self.handle)
        self.request_id = self._core.next_request_id()
        self._conversation.by_id[self.request_id] = self
        self._carrier.post(self.request)

    @property
    def request(self) -> Request:
        """The request, with its id as progress token: progress moves the deadline."""
        assert self.request_id is not None
        meta = {**self._sent.get("_meta", {}), "progressToken": self.request_id}
        return Request(self.request_id, self.method, {**self._sent, "_meta": meta})

    def progressed(self) -> None:
        """The server has reported progress."""
        if self._resets and not self._questions:
            self._wait()

    @property
    def questions_left(self) -> int:
        """How many more server requests may stop the clocks of this call."""
        return self._core.limits.max_questions_per_call - self._asked

    def asked(self) -> None:
        """Stop the clocks: the server waits for an answer of ours."""
        if not self._questions:
            self._stopped = self._core.now
            self._core.timers.stop(Timer.REQUEST, self)
        self._questions += 1
        self._asked += 1

    def told(self, *, answered: bool) -> None:
        """Let the clocks go on, unless another server request is open.

        The timeout starts again if the request was ``answered``, and not declined or withdrawn.
        """
        self._questions -= 1
        if answered:
            self._idle_ends = self._stopped + self.timeout
        if not self._questions and not self.is_over:
            self._go_on()

    def asked_too_much(self) -> None:
        """End the call: the server has asked more than one call allows."""
        most = self._core.limits.max_questions_per_call
        text = f"{self.method} led to more than {most} server requests (max_questions_per_call)"
        self._conversation.cancel_request(self, text)
        self.fail(self._error(InvalidResponse, text))

    def wait_again(self) -> None:
        """The session is gone: the next one shall make the request again."""
        self._leave_stream(complete=False)
        if self._questions:  # they were asked in the session that is gone
            self._questions = 0
            self._go_on()

    @property
    def survives(self) -> bool:
        """Whether it can be made in another session, as it is.

        Source: server/utilities/pagination: a cursor is of one session.
        """
        is_harmless = self.idempotent and "cursor" not in (self._params or {})
        return is_harmless or self.request_id is None

    # How a call ends

    def complete(self, result: Any) -> None:
        """The server has answered."""
        self._end(CallCompleted(self.handle, result), complete=True)

    def fail(self, error: CallError, *, complete: bool = False) -> None:
        """There is no result. ``complete``: the server has said so, and will end the stream."""
        self._end(CallFailed(self.handle, error), complete=complete)

    def answer(self, message: Response | ErrorResponse, http_status: int | None = None) -> None:
        """The response to our request has come."""
        if isinstance(message, Response):
            self._result(message.result)
            return
        if self._may_refresh(message):
            self._leave_stream(complete=True)
            self._core.cache.forget("tools/list")
            self._refresh = ToolRefresh(self._core, self._conversation, self)
            self._refresh.start()
            return
        if self._may_renegotiate(message):
            self._leave_stream(complete=True)
            self._renegotiated = True
            self._conversation.renegotiate()
            return
        if message.code == INVALID_PARAMS and "cursor" in (self._params or {}):
            self._core.cache.forget(self.method)  # the pages do not belong together any more
        self.fail(denied(message, self.method, self.request_id, http_status), complete=True)

    def next_round(self, params: dict[str, Any]) -> None:
        """Make the request again, with what the server has asked for."""
        self._round = params
        self.send()

    def _result(self, result: Any) -> None:
        """A result; at the stateless revisions it may ask for something first."""
        members = json.as_object(result) or {}
        kind = members.get("resultType", "complete") if self._core.is_modern else "complete"
        if kind == "input_required":
            self._next_questions(members)
        elif kind != "complete":
            what = repr(kind)[:50]
            text = f"The answer to {self.method} is of the unknown kind {what}"
            self.fail(self._error(InvalidResponse, text), complete=True)
        else:
            if self.method == "tools/list":
                result = learn_tools(self._core, result)
            if self._core.is_modern and self._changes == self._core.cache.changes:
                self._core.cache.keep(self.method, self._sent, result, self._core.now)
            self.complete(result)

    def _next_questions(self, members: dict[str, Any]) -> None:
        request_id = self.request_id
        self._leave_stream(complete=True)
        self._rounds += 1
        if self._rounds > self._core.limits.max_rounds:
            text = f"{self.method} was answered by questions {self._rounds} times"
            self.fail(self._error(InvalidResponse, text))
        else:
            Round(self._core, self._conversation, self).begin(request_id, members)

    def _may_refresh(self, error: ErrorResponse) -> bool:
        """Whether it may be our idea of the tool's headers that is wrong."""
        is_mismatch = uses_headers(self._core) and error.code == HEADER_MISMATCH
        return is_mismatch and self.method == "tools/call" and self._refresh is None

    def _may_renegotiate(self, error: ErrorResponse) -> bool:
        """Whether the server has not even looked at the request, because of its version."""
        is_unsupported = self._core.is_modern and error.code == UNSUPPORTED_VERSION
        return is_unsupported and not self._renegotiated

    def time_out(self) -> None:
        """The clock has run out."""
        seconds = self._core.now - self.started
        is_last = self._core.now >= self._ends
        limit = f"{self._total:g} s in all" if is_last else f"{self.timeout:g} s without progress"
        self._conversation.cancel_request(self, f"timed out after {limit}")
        self.fail(
            RequestTimeout(
                f"{self.method} got no answer within {limit}",
                seconds=seconds,
                method=self.method,
                request_id=self.request_id,
            )
        )

    def cancel(self, reason: str) -> None:
        """The application wants no answer any more."""
        self.fail(self._error(RequestCancelled, f"{self.method} was cancelled: {reason}"))

    def abandon(self, error: CallError) -> None:
        """The whole client has failed."""
        text, *lines = f"{self.method} was not completed: {error}".split("\n")
        id = self.request_id
        failure = Disconnected(text, method=self.method, request_id=id, lines=lines)
        failure.__cause__ = error
        self.fail(failure)

    def lose_session(self) -> None:
        """The server has forgotten the session."""
        self.fail(
            self._error(
                SessionLost,
                f"The server has ended the session (HTTP 404), so {self.method} was not completed; "
                "it can be made again in the new session",
            )
        )

    # What comes of its stream

    @property
    def restarts(self) -> bool:
        """Whether the request may be made again."""
        return self.idempotent

    def restart(self) -> None:
        """Make the request again."""
        self._conversation.by_id.pop(self.request_id, None)
        self.send()

    def message(self, message: Message) -> None:
        """A message on the call's stream.

        An error without an id can only mean the request that it answers.
        """
        if isinstance(message, ErrorResponse) and message.id is None:
            self.answer(message)
        else:
            self._conversation.inbox.route(message, self)

    def violated(self, error: RemoteProtocolError) -> None:
        """Something that is no message; if it has our id, it was meant to be the answer."""
        if error.request_id == self.request_id and not error.is_request:
            self.garbled(error)
        else:
            self._core.events.append(Violation(error))

    def lost(self, reason: str, *, complete: bool = False) -> None:
        """Nothing can bring the answer any more."""
        text = (
            f"{self.method} was sent, but its answer is lost and the outcome is unknown: {reason}"
        )
        self.fail(self._error(Disconnected, text))

    def refused(self, refusal: Refusal) -> None:
        """The HTTP request was refused."""
        error = refusal.error
        if refusal.status == 404 and refusal.session_id is not None:
            self._conversation.expire(refusal)
        elif error is not None and (
            error.id == self.request_id or (error.id is None and self._may_renegotiate(error))
        ):
            self.answer(error, refusal.status)
        else:
            self.fail(refused(refusal, self.method, self.request_id))

    def garbled(self, error: RemoteProtocolError) -> None:
        """The answer cannot be read."""
        failure = self._error(
            InvalidResponse, f"The answer to {self.method} breaks the protocol: {error.message}"
        )
        failure.__cause__ = error
        self.fail(failure)

    def _end(self, event: CallCompleted | CallFailed, *, complete: bool) -> None:
        """End the call, unless it has ended before."""
        if not self.is_over:
            self.is_over = True
            self._core.timers.stop(Timer.REQUEST, self)
            self._leave_stream(complete=complete)
            self._conversation.forget(self)
            self._core.events.append(event)

    def _wait(self) -> None:
        self._idle_ends = self._core.now + self.timeout
        self._set_timer()

    def _go_on(self) -> None:
        stood = self._core.now - self._stopped
        self._ends += stood
        self._idle_ends += stood
        self._set_timer()

    def _set_timer(self) -> None:
        self._core.timers.set(Timer.REQUEST, self, min(self._idle_ends, self._ends))

    def _leave_stream(self, *, complete: bool) -> None:
        self._conversation.by_id.pop(self.request_id, None)
        self.request_id = None
        if self._carrier is not None:
            self._carrier.close(complete=complete)
            self._carrier = None
        if self._refresh is not None:
            self._refresh.stop()

    def _error(self, kind: type[CallError], message: str) -> CallError:
        return kind(message, method=self.method, request_id=self.request_id)


def denied(
    error: ErrorResponse, method: str, request_id: int | None, http_status: int | None
) -> JsonRpcError:
    """The exception for an error that the server has answered with."""
    return JsonRpcError(
        error.code,
        error.message,
        error.data,
        method=method,
        request_id=request_id,
        http_status=http_status,
    )


def refused(refusal: Refusal, method: str, request_id: int | None) -> RequestRefused:
    """The exception for a refused HTTP request: with everything that helps to find out why."""
    return RequestRefused(
        f"{method} was refused: {refusal.message}",
        status=refusal.status,
        http_method=refusal.http_method.decode(),
        url=str(refusal.url),
        reason=refusal.reason,
        challenges=refusal.challenges,
        body=refusal.body,
        method=method,
        request_id=request_id,
    )
