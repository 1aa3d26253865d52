"""A request that is being worked on.

A :class:`Call` is what the application holds: the request, and what may be said about it (a result,
an error, progress, notifications, requests to the client). How that travels is the business of an
:class:`AnswerForm`; each era and transport has its own.

Every call ends exactly once. What comes after the end (an answer after a cancellation, a second
answer) changes nothing.

Source: 2025-03-26 to 2025-11-25, basic/utilities: progress, cancellation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import INTERNAL_ERROR, MISSING_CAPABILITY
from ..errors import (
    CallError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestCancelled,
    RequestTimeout,
    check_seconds,
    error_response,
)
from ..events import CallCancelled, CallReceived, ClientAnswered, MessageLost
from ..http import RequestHead, RequestHeaders
from ..messages import ErrorResponse, Message, Notification, Params, Request, RequestId, Response
from ..revisions import Revision
from ..states import CALL, CallEvent, CallState, SessionState, advance
from ..timers import Timer
from ..turns import FIRST_TURN, Answers, InputRequired, Turn
from ..types import Secret
from .asking import no_input
from .core import ServerCore
from .options import milliseconds_of


@attrs.define(eq=False, repr=False)
class Caller:
    """Who makes a request, as far as the request tells: principal, revision, client."""

    principal: str
    revision: Revision
    client_info: Mapping[str, Any] = attrs.field(factory=lambda: {})
    client_capabilities: Mapping[str, Any] = attrs.field(factory=lambda: {})
    calls: dict[RequestId, Call] = attrs.field(factory=lambda: {}, init=False)
    """The calls that run, by request id; not for applications."""

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that belongs to no call; a session has a stream for such.

        Returns False if it is lost.
        """
        return False

    def begin(self, call: Call) -> None:
        """A call runs from now on."""
        self.calls[call.request.id] = call

    def touch(self) -> None:
        """Note that a call has ended."""

    def succeeded(self, request: Request) -> None:
        """Note that a request is about to be answered with a result."""

    def next_question(self, call: Call, method: str) -> int:
        """An id for a request to the client.

        Raises LocalProtocolError if the client must not be asked this.
        """
        raise LocalProtocolError(
            f"At revision {self.revision.name} servers make no requests: return InputRequired"
        )

    def forget_question(self, id: int) -> None:
        """A request to the client has ended."""


class Session(Caller):
    """A client that has sent ``initialize``, from then until it ends its session.

    On Streamable HTTP a session is known by its ``id``. Without sessions ``id`` is None, and a
    session lasts for one request. On other transports it lasts as long as the channel.
    """

    __slots__ = ()

    id: Secret | None
    state: SessionState
    subscriptions: set[str]
    """The URIs of the resources whose updates the client wants to be told of, at this instance."""


class AnswerForm(Protocol):
    """How the answers of the calls that came together travel, and what is said before them."""

    @property
    def session(self) -> Caller:
        """Whose calls they are."""
        ...

    @property
    def head(self) -> RequestHead | None:
        """The HTTP request that the calls came in; None where there is none."""
        ...

    @property
    def is_batch(self) -> bool:
        """Whether the calls came as an array."""
        ...

    @property
    def open_calls(self) -> int:
        """How many have no answer yet."""
        ...

    def start(self) -> None:
        """All calls were begun; some still have no answer."""

    def shape(self, request: Request, result: Any) -> Response | ErrorResponse:
        """A result as the revision wants it. Raises LocalProtocolError if it has no such thing."""
        ...

    def require(self, call: Call, required: InputRequired) -> Response | ErrorResponse | bool:
        """Ask the client for what a handler needs: by a result, or by requests.

        Returns that result, or whether the client is there to be asked. Raises LocalProtocolError,
        and does nothing, for what cannot be asked.
        """
        ...

    def may_say(self, request: Request, message: Message) -> bool:
        """Whether the client wants to hear this before the answer."""
        ...

    @property
    def congested(self) -> bool:
        """Whether to wait before saying more."""
        ...

    def message(self, data: bytes) -> bool:
        """Something to say before the answer; returns False if it is lost."""
        ...

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """The answer of one call, and its status where it stands alone; False if it is lost."""
        ...

    def withdraw(self) -> None:
        """One call ends without an answer."""

    def disconnect(self, retry: int | None) -> bool:
        """Let the client go, and come back after so many milliseconds; False if it could not."""
        ...


@attrs.define(eq=False, repr=False)
class Call:
    """A request that a client wants answered.

    Its methods may be called until it has ended, and do no harm after. All methods that take
    ``now`` (seconds, the clock of the machine) change the machine: pull its effects afterwards.
    """

    _core: ServerCore
    session: Caller
    """Whose request it is."""
    request: Request
    """The request as it came."""
    _answer: AnswerForm
    turn: Turn = FIRST_TURN
    """With what a handler that has asked the client for input is entered again: CallReceived names
    the same call once more.
    """
    rounds: int = 0
    """How often its handler has asked for input."""
    last_progress: float | None = None
    state: CallState = attrs.field(default=CallState.RUNNING, init=False)
    host: Any = attrs.field(default=None, init=False)
    """For the adapter, to find its own things when an event names this call."""
    _asked: dict[int, tuple[str | None, float]] = attrs.field(factory=lambda: {}, init=False)
    """Our requests to the client that are not answered yet: the names of those of an InputRequired,
    and how many seconds there are for the answer.
    """
    _answers: dict[str, Response | ErrorResponse] = attrs.field(factory=lambda: {}, init=False)
    """The answers to that InputRequired, as far as they have come."""
    _saved: Any = attrs.field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<call {self.request.id!r} {self.request.method}: {self.state.name.lower()}>"

    @property
    def headers(self) -> RequestHeaders:
        """The headers of the HTTP request that it came in; none on stdio.

        On HTTP+SSE they are those of the request that opened the event stream.
        """
        return RequestHeaders(self._answer.head)

    @property
    def is_running(self) -> bool:
        """Whether somebody still waits for the answer."""
        return self.state is CallState.RUNNING

    @property
    def congested(self) -> bool:
        """Whether to wait before saying more: the store, or the client, does not keep up."""
        return self.is_running and self._answer.congested

    def respond(self, result: Any, *, now: float) -> bool:
        """Answer with a result, or with InputRequired: any JSON value, though MCP wants an object.

        Returns False if nobody can get it any more. Raises LocalProtocolError, and changes nothing,
        if the result is not JSON, or the client cannot be asked for input.
        """
        if not isinstance(result, InputRequired):
            return self._end(self._answer.shape(self.request, json.dumped(result)), now)
        self._core.now = now
        asked = self.is_running and self._answer.require(self, result)
        return asked if isinstance(asked, bool) else self._end(asked, now)

    def fail(self, code: int, message: str, data: Any = None, *, now: float) -> bool:
        """Answer with a JSON-RPC error. Returns and raises as :meth:`respond` does.

        A code that the revision has retired is replaced by the one that took its place.
        """
        code = self.session.revision.retired_codes.get(code, code)
        return self._end(ErrorResponse(self.request.id, code, message, data), now)

    def fail_with(self, error: Exception, *, now: float) -> bool:
        """Answer with what a handler raised; see :func:`~sansmcp.errors.error_response`.

        Returns and raises as :meth:`respond` does.
        """
        said = error_response(self.request.id, error)
        return self.fail(said.code, said.message, said.data, now=now)

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that has to do with this request.

        Returns False if it is lost or the call has ended. Raises LocalProtocolError, and changes
        nothing, if the parameters are not JSON.
        """
        return self._say(Notification(method, params), now)

    def progress(
        self,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        *,
        now: float,
    ) -> bool:
        """Report progress, if the client asked for it (else nothing is sent and False returned).

        Raises LocalProtocolError if ``progress`` does not grow, or something is not JSON. Source:
        basic/utilities/progress.
        """
        meta = json.as_object((self.request.params or {}).get("_meta")) or {}
        token = meta.get("progressToken")
        if not jsonrpc.is_request_id(token) or not self.is_running:
            return False
        if self.last_progress is not None and progress <= self.last_progress:
            raise LocalProtocolError(f"Progress must grow: {progress} after {self.last_progress}")
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        said = self._say(Notification("notifications/progress", params), now)
        self.last_progress = progress
        return said

    def ask(self, method: str, params: Params | None = None, *, timeout: float, now: float) -> int:
        """Make a request to the client, on this call's stream. Returns its id.

        ClientAnswered tells what became of it, after ``timeout`` seconds at the latest. Raises
        LocalProtocolError, and changes nothing, if the call has ended, the client has left or has
        not declared the capability that it needs, where servers make no requests (at 2026-07-28,
        and without a session), and for arguments that cannot be sent.
        """
        if not self.is_running:
            raise LocalProtocolError("The call has ended: nothing can be asked on its stream")
        check_seconds(timeout)
        jsonrpc.check_call(method, params)
        json.encode(params)
        self._core.now = now
        id = self._ask(method, params, timeout)
        if id is None:
            raise LocalProtocolError("The client has left, and cannot be asked")
        self._asked[id] = None, timeout
        return id

    def disconnect(self, *, retry: float | None = None, now: float) -> bool:
        """Let the client go, and come back after ``retry`` seconds for the rest (SEP-1699).

        Whatever is said while it is away is waiting for it. Returns False, and changes nothing,
        where that is not possible: without a store, at any revision but 2025-11-25, or on a
        transport that is one stream for all. Raises LocalProtocolError for a time that is none.
        """
        milliseconds = milliseconds_of(retry)
        self._core.now = now
        return self.is_running and self._answer.disconnect(milliseconds)

    def check_required(self, required: InputRequired) -> None:
        """Raises LocalProtocolError for what is not JSON, too much, or asked too often."""
        json.encode([required.state, [each.params for each in required.requests.values()]])
        limits = self._core.limits
        if len(required.requests) > limits.max_batch:
            raise LocalProtocolError(f"More than {limits.max_batch} questions at once")
        if self.rounds == limits.max_rounds:
            raise LocalProtocolError(f"The client was asked for input {self.rounds} times already")

    def ask_for(self, required: InputRequired) -> bool:
        """Ask what a handler needs to go on; False if nobody can be asked. Not for applications."""
        self.rounds += 1
        self._answers, self._saved = {}, required.state
        timeout = self._core.limits.input_timeout
        for name, question in required.requests.items():
            id = self._ask(question.method, question.params, timeout)
            if id is None:
                return self.fail(INTERNAL_ERROR, "The client has left", now=self._core.now)
            self._asked[id] = name, timeout
        self._go_on()
        return True

    def answered(self, id: int, answer: Response | ErrorResponse | CallError) -> None:
        """One of our requests to the client has ended; not for applications."""
        name = self._forget_question(id)
        if name is None:
            self._core.events.append(ClientAnswered(self, id, answer))
        elif not isinstance(answer, CallError):
            self._answers[name] = answer
            self._go_on()

    def ask_timed_out(self, id: int) -> None:
        """The client did not answer in time; not for applications."""
        name, seconds = self._asked[id]
        if name is not None:
            self._end(no_input(seconds, self.request.id).reply, self._core.now)
            return
        error = RequestTimeout(
            "The client did not answer in time", seconds=seconds, method="", request_id=id
        )
        self._withdraw_question(id, "timed out")
        self.answered(id, error)

    def leave(self) -> None:
        """The handler is done, and somebody else goes on with the call; not for applications."""
        self.state = advance(CALL, self.state, CallEvent.ANSWER)
        self._leave(withdraw=True)

    def cancel(self, reason: str) -> None:
        """The client wants no answer any more; not for applications."""
        self.state = advance(CALL, self.state, CallEvent.CANCEL)
        self._core.events.append(CallCancelled(self, reason))
        self._leave(withdraw=False)
        self._answer.withdraw()

    def abandon(self, refusal: RemoteProtocolError) -> None:
        """The server ends before there is an answer; not for applications."""
        self.state = advance(CALL, self.state, CallEvent.CANCEL)
        self._core.events.append(CallCancelled(self, "the server shuts down"))
        self._leave(withdraw=False)
        self._answer.respond(jsonrpc.encode(refusal.reply), refusal.http_status)

    def _ask(self, method: str, params: Params | None, timeout: float) -> int | None:
        """Make a request to the client; None if it has left."""
        id = self.session.next_question(self, method)
        if not self._say(Request(id, method, params), self._core.now):
            self.session.forget_question(id)
            return None
        deadline = self._core.now + timeout
        self._core.timers.set(Timer.CLIENT_ANSWER, (self.session, id), deadline)
        return id

    def _forget_question(self, id: int) -> str | None:
        """A request to the client has ended; returns its name, if it has one."""
        self.session.forget_question(id)
        self._core.timers.stop(Timer.CLIENT_ANSWER, (self.session, id))
        return self._asked.pop(id)[0]

    def _go_on(self) -> None:
        """Let the handler be entered again, once all that it needs is there."""
        if all(name is None for name, _ in self._asked.values()):
            self.turn = Turn(Answers(self._answers), self._saved)
            self._core.events.append(CallReceived(self))

    def _end(self, message: Response | ErrorResponse, now: float) -> bool:
        data = jsonrpc.encode(message)
        self._core.now = now
        was_running = self.is_running
        self.state = advance(CALL, self.state, CallEvent.ANSWER)
        if not was_running:
            return False
        self._leave(withdraw=True)
        if isinstance(message, Response):
            self.session.succeeded(self.request)
        lacks = isinstance(message, ErrorResponse) and message.code == MISSING_CAPABILITY
        if self._answer.respond(data, 400 if lacks else 200):
            return True
        self._core.events.append(MessageLost(self, "the client left before it could be answered"))
        return False

    def _say(self, message: Message, now: float) -> bool:
        if not self.is_running or not self._answer.may_say(self.request, message):
            return False
        data = jsonrpc.encode(message)
        self._core.now = now
        return self._answer.message(data)

    def _leave(self, *, withdraw: bool) -> None:
        """The call ends: the session forgets it, and so do the questions to the client."""
        self._core.stateless.pop(self, None)
        self.session.calls.pop(self.request.id, None)
        self.session.touch()
        for id in tuple(self._asked):
            if withdraw:
                self._withdraw_question(id, "the request it belongs to has ended")
            error = RequestCancelled("The call has ended", method="", request_id=id)
            self.answered(id, error)

    def _withdraw_question(self, id: int, reason: str) -> None:
        params = {"requestId": id, "reason": reason}
        data = jsonrpc.encode(Notification("notifications/cancelled", params))
        self._answer.message(data)
