"""A request that is being worked on, and how its answer travels.

Two objects share the work. A :class:`Call` is what the application holds: the request, and what may
be said about it (a result, an error, progress, notifications, requests to the client). An
:class:`Answer` is how one POST is answered. Which form the answer takes is decided late: a call
that is answered at once gets plain JSON; as soon as there is something to say before the result, or
when it takes longer than ``stream_after``, or when the result is large and could be resumed, the
answer becomes an event stream. A batch (2025-03-26) is one answer to several calls.

Every call ends exactly once. What comes after the end (an answer after a cancellation, a second
answer) changes nothing.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server; basic/utilities:
progress, cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

from ..codecs import json, jsonrpc
from ..errors import (
    CallError,
    LocalProtocolError,
    RequestCancelled,
    RequestTimeout,
    error_response,
)
from ..events import CallCancelled, ClientAnswered, MessageLost
from ..messages import ErrorResponse, Message, Notification, Params, Request, Response
from ..states import CALL, CallEvent, CallState, advance
from ..timers import Timer
from .core import ServerCore
from .exchange import ServerExchange
from .streams import Stream

if TYPE_CHECKING:
    from .sessions import Session

_LARGEST_PLAIN_ANSWER = 16 * 1024
"""Bytes. A larger answer takes long enough to be cut, so it goes out as a stream where that can be
resumed.
"""


class AnswerForm(Protocol):
    """How the answers of the calls that came together travel, and what is said before them."""

    session: Session
    """Whose calls they are."""
    is_batch: bool
    """The calls came as an array."""
    open_calls: int
    """How many have no answer yet."""

    def start(self) -> None:
        """All calls were begun; some still have no answer."""

    @property
    def congested(self) -> bool:
        """Whether to wait before saying more."""
        ...

    def message(self, data: bytes) -> bool:
        """Something to say before the answer; returns False if it is lost."""
        ...

    def respond(self, data: bytes) -> bool:
        """The answer of one call; returns False if it is lost."""
        ...

    def withdraw(self) -> None:
        """One call ends without an answer."""

    def disconnect(self, retry: int | None) -> bool:
        """Let the client go, and come back after so many milliseconds; False if it could not."""
        ...


@attrs.define(eq=False)
class Answer:
    """How one POST is answered."""

    _core: ServerCore
    session: Session
    exchange: ServerExchange
    open_calls: int
    is_batch: bool
    stream: Stream | None = attrs.field(default=None, init=False)
    """What the answer has become, once it is an event stream."""
    _abandoned: bool = attrs.field(default=False, init=False)
    """The peer left before it had an event id: nothing can ever be delivered."""
    _collected: list[bytes] = attrs.field(factory=list[bytes], init=False)
    """Answers so far that may still go out as plain JSON."""

    def start(self) -> None:
        """Begin to wait for the answer; it becomes a stream when that takes long."""
        self.exchange.answer = self
        if self._core.stream_after > 0:
            deadline = self._core.now + self._core.stream_after
            self._core.timers.set(Timer.STREAM_OPEN, self, deadline)
        else:
            self.open()

    @property
    def congested(self) -> bool:
        """Whether to wait: the store, or the client, does not keep up."""
        return self.stream is not None and self.stream.congested

    def message(self, data: bytes) -> bool:
        """Something to say before the answer; returns False if it is lost."""
        stream = self.open()
        return stream is not None and stream.append(data)

    def respond(self, data: bytes) -> bool:
        """The answer of one call; returns False if it is lost."""
        self.open_calls -= 1
        if self.stream is not None:
            return self.stream.append(data, final=self.open_calls == 0)
        self._collected.append(data)
        if self.open_calls == 0:
            self._finish()
        return not self._abandoned

    def withdraw(self) -> None:
        """One call ends without an answer."""
        self.open_calls -= 1
        if self.open_calls == 0:
            if self._collected:
                self._finish()
            elif (stream := self.open()) is not None:
                stream.append(b"", final=True)

    def open(self) -> Stream | None:
        """Turn the answer into a stream, if it is not one yet; None if nobody can ever read it."""
        if self.stream is None and not self._abandoned:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.stream = self.session.new_stream()
            self.session.read(self.exchange, self.stream, 0, prime=True)
            for index, data in enumerate(self._collected, 1):
                is_last = self.open_calls == 0 and index == len(self._collected)
                self.stream.append(data, final=is_last)
            self._collected.clear()
        return self.stream

    def disconnect(self, retry: int | None) -> bool:
        """Close the connection; the client reads on later. False, and no change, if it cannot."""
        if not self._core.resumable or not self.session.revision.polling:
            return False
        stream = self.open()
        return stream is not None and stream.disconnect(retry)

    def peer_gone(self) -> None:
        """The connection of the POST broke."""
        if self.stream is None:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self._abandoned = True

    def _finish(self) -> None:
        """All calls are answered and nothing was sent yet: choose the form."""
        body = self._collected[0] if not self.is_batch else jsonrpc.encode_batch(self._collected)
        if self._core.resumable and len(body) > _LARGEST_PLAIN_ANSWER:
            self.open()
        elif not self._abandoned:
            self._core.timers.stop(Timer.STREAM_OPEN, self)
            self.exchange.reply(200, body)


@attrs.define(eq=False, repr=False)
class Call:
    """A request that a client wants answered.

    Its methods may be called until it has ended, and do no harm after. All methods that take
    ``now`` (seconds, the clock of the machine) change the machine: pull its effects afterwards.
    """

    _core: ServerCore
    session: Session
    """Whose request it is."""
    request: Request
    """The request as it came."""
    _answer: AnswerForm
    state: CallState = attrs.field(default=CallState.RUNNING, init=False)
    host: Any = attrs.field(default=None, init=False)
    """For the adapter, to find its own things when an event names this call."""
    _last_progress: float | None = attrs.field(default=None, init=False)
    _asked: set[int] = attrs.field(factory=set[int], init=False)
    """Our requests to the client that are not answered yet."""

    def __repr__(self) -> str:
        return f"<call {self.request.id!r} {self.request.method}: {self.state.name.lower()}>"

    @property
    def is_running(self) -> bool:
        """Whether somebody still waits for the answer."""
        return self.state is CallState.RUNNING

    @property
    def congested(self) -> bool:
        """Whether to wait before saying more: the store, or the client, does not keep up."""
        return self.is_running and self._answer.congested

    def respond(self, result: Any, *, now: float) -> bool:
        """Answer with a result: any JSON value, though MCP wants an object.

        Returns False if nobody can get it any more. Raises LocalProtocolError, and changes nothing,
        if the result is not JSON.
        """
        return self._end(Response(self.request.id, result), now)

    def fail(self, code: int, message: str, data: Any = None, *, now: float) -> bool:
        """Answer with a JSON-RPC error. Returns and raises as :meth:`respond` does."""
        return self._end(ErrorResponse(self.request.id, code, message, data), now)

    def fail_with(self, error: Exception, *, now: float) -> bool:
        """Answer with what a handler raised; see :func:`~sansmcp.errors.error_response`."""
        return self._end(error_response(self.request.id, error), now)

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that has to do with this request.

        Returns False if it is lost or the call has ended.
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

        Raises LocalProtocolError if ``progress`` does not grow. Source: basic/utilities/progress.
        """
        meta = json.as_object((self.request.params or {}).get("_meta")) or {}
        token = meta.get("progressToken")
        if not jsonrpc.is_request_id(token) or not self.is_running:
            return False
        if self._last_progress is not None and progress <= self._last_progress:
            raise LocalProtocolError(f"Progress must grow: {progress} after {self._last_progress}")
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        said = self._say(Notification("notifications/progress", params), now)
        self._last_progress = progress
        return said

    def ask(self, method: str, params: Params | None = None, *, timeout: float, now: float) -> int:
        """Make a request to the client, on this call's stream. Returns its id.

        ClientAnswered tells what became of it. Raises LocalProtocolError if the client has not
        declared the capability it needs, or the call has ended.
        """
        if not self.is_running:
            raise LocalProtocolError("The call has ended: nothing can be asked on its stream")
        self.session.check_can_ask(method)
        id = self.session.next_id()
        if not self._say(Request(id, method, params), now):
            raise LocalProtocolError("The client has left, and cannot be asked")
        self._asked.add(id)
        self.session.asked[id] = self
        self._core.timers.set(Timer.CLIENT_ANSWER, (self.session, id), now + timeout)
        return id

    def disconnect(self, *, retry: float | None = None, now: float) -> bool:
        """Let the client go, and come back after ``retry`` seconds for the rest (SEP-1699).

        Whatever is said while it is away is waiting for it. Returns False, and changes nothing,
        where that is not possible: without a store, before revision 2025-11-25, or on a transport
        that is one stream for all.
        """
        self._core.now = now
        milliseconds = None if retry is None else round(retry * 1000)
        return self.is_running and self._answer.disconnect(milliseconds)

    def answered(self, id: int, answer: Response | ErrorResponse | CallError) -> None:
        """One of our requests to the client has ended; not for applications."""
        self._asked.discard(id)
        self.session.asked.pop(id, None)
        self._core.timers.stop(Timer.CLIENT_ANSWER, (self.session, id))
        self._core.events.append(ClientAnswered(self, id, answer))

    def ask_timed_out(self, id: int) -> None:
        """The client did not answer in time; not for applications."""
        error = RequestTimeout(
            "The client did not answer in time", seconds=0.0, method="", request_id=id
        )
        self._withdraw_question(id, "timed out")
        self.answered(id, error)

    def cancel(self, reason: str) -> None:
        """The client wants no answer any more; not for applications."""
        self.state = advance(CALL, self.state, CallEvent.CANCEL)
        self._leave(withdraw=False)
        self._answer.withdraw()
        self._core.events.append(CallCancelled(self, reason))

    def _end(self, message: Response | ErrorResponse, now: float) -> bool:
        data = jsonrpc.encode(message)
        self._core.now = now
        was_running = self.is_running
        self.state = advance(CALL, self.state, CallEvent.ANSWER)
        if not was_running:
            return False
        self._leave(withdraw=True)
        if self._answer.respond(data):
            return True
        self._core.events.append(MessageLost(self, "the client left before it could be answered"))
        return False

    def _say(self, message: Message, now: float) -> bool:
        if not self.is_running:
            return False
        data = jsonrpc.encode(message)
        self._core.now = now
        return self._answer.message(data)

    def _leave(self, *, withdraw: bool) -> None:
        """The call ends: the session forgets it, and so do the questions to the client."""
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
