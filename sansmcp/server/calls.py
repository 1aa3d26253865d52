"""A running call of the server.

A ``RunningCall`` is the ``ServerCall`` that the application holds: it sends the result or error,
progress, notifications and server requests. A ``Responder`` decides how these messages travel; each
era and transport has its own.

Every call ends exactly once. A response after a cancellation, or a second one, changes nothing.

Source: 2025-03-26 to 2025-11-25, basic/utilities: progress, cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, Protocol

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND, MISSING_CAPABILITY
from ..errors import (
    CallError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestCancelled,
    RequestTimeout,
    check_positive_seconds,
    error_response,
)
from ..events import CallCancelled, CallReceived, ClientResponseReceived, ResponseUndelivered
from ..http import RequestHead, RequestHeaders
from ..input_required import FIRST_INPUT, HandlerInput, InputRequired, InputResponses
from ..messages import ErrorResponse, Message, Notification, Params, Request, RequestId, Response
from ..meta_keys import CAPABILITIES, CLIENT_INFO, VERSION
from ..revisions import REVISIONS, Revision
from ..server_call import Peer, ServerCall
from ..states import CALL, CallEvent, CallState, advance
from ..timers import Timer
from . import refusals
from .admission import known_client_of
from .core import ServerCore
from .input_checks import no_input
from .options import milliseconds_of
from .responder import HttpResponder

_RUNNING: Final = CallState.RUNNING
_ANSWER: Final = CallEvent.ANSWER

MAX_DEPTH = 490
"""Levels of nesting of what a handler gives to be kept: saved states, input requests, and the
results of tasks.
"""

STORED_DEPTH = 510
"""The same for entries of the store, which also keep requests, with up to 500 levels, and enclose
all of these in some members of their own.
"""

_TASK_AGAIN = 1.0
"""Seconds after which a call tries again to become a task, if the store has failed, at least."""


@attrs.define(eq=False, repr=False)
class CallOwner(Peer):
    """A client, and its calls that run here."""

    principal: str
    revision: Revision
    client_info: Mapping[str, Any] = attrs.field(factory=lambda: {})
    client_capabilities: Mapping[str, Any] = attrs.field(factory=lambda: {})
    calls: dict[RequestId, RunningCall] = attrs.field(factory=lambda: {}, init=False)
    """The calls that run, by request id."""

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any], principal: str, newest: str) -> CallOwner:
        """Return the client of a message of 2026-07-28, from its own ``_meta`` alone.

        ``newest``: the version of a message that names none.
        """
        return cls(
            principal,
            REVISIONS[meta.get(VERSION, newest)],
            json.as_object(meta.get(CLIENT_INFO)) or {},
            json.as_object(meta.get(CAPABILITIES)) or {},
        )

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        return False

    def begin(self, call: RunningCall) -> None:
        """Record that a call runs."""
        self.calls[call.request.id] = call

    def touch(self) -> None:
        """Record that a call has ended."""

    def succeeded(self, request: Request, on_stored: Callable[[bool], object]) -> bool:
        """Record that a request is about to get a result as its response.

        Returns True if the response has to wait until the store has what the request has changed.
        ``on_stored`` is called then, with False if the store has failed.
        """
        return False

    def register_request(self, call: RunningCall, method: str) -> int:
        """Return the id for a new server request, and remember its call.

        Raises LocalProtocolError if the client does not take such a request.
        """
        raise LocalProtocolError(
            f"At revision {self.revision.name} servers make no requests; return InputRequired"
        )

    def unregister_request(self, id: int) -> None:
        """Forget a server request that has ended."""


class Responder(Protocol):
    """Sends the responses of one call, or of the calls of a batch, and the messages before them."""

    @property
    def session(self) -> CallOwner:
        """The owner of the calls."""
        ...

    @property
    def head(self) -> RequestHead | None:
        """The head of the HTTP request that carried the calls; None on stdio."""
        ...

    @property
    def open_calls(self) -> int:
        """The number of calls without a response."""
        ...

    def start(self) -> None:
        """Begin to wait, because some calls have no response after all were started."""

    def format_result(self, request: Request, result: Any) -> Response | ErrorResponse:
        """Return the response with a result in the form of the revision.

        Raises LocalProtocolError if the revision does not allow the result.
        """
        ...

    def require(
        self, call: RunningCall, required: InputRequired
    ) -> Response | ErrorResponse | bool:
        """Send the input requests of a handler: in a result, or as server requests.

        Returns the response to send, or, if the input requests were sent, whether the client is
        still connected. Raises LocalProtocolError, and does nothing, if they cannot be sent.
        """
        ...

    def may_send(self, request: Request, message: Message) -> bool:
        """True if the client accepts this message before the response."""
        ...

    @property
    def is_above_high_water(self) -> bool:
        """True if the store or the client is behind."""
        ...

    @property
    def is_connected(self) -> bool:
        """True if there is a connection to the client."""
        ...

    def message(self, data: bytes) -> bool:
        """Send a message before the response. Returns False if it is lost."""
        ...

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response of one call. Returns False if it is lost.

        ``http_status`` applies if the HTTP response is this one response, as plain JSON.
        """
        ...

    def complete_without_response(self) -> None:
        """End one call without a response."""

    def disconnect(self, retry: int | None) -> bool:
        """Close the connection so that the client reconnects after ``retry`` milliseconds.

        Returns False, with nothing changed, if the client could not resume.
        """
        ...


class CallTask(Responder, Protocol):
    """The task that a call has become, or is about to become."""

    @property
    def is_told(self) -> bool:
        """True if the client has the handle of the task."""
        ...

    def begin(self) -> None:
        """Store the task, and give the client the handle."""

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Keep a progress report. Raises LocalProtocolError if it is not JSON."""

    def save(self, state: Any) -> None:
        """Save the progress of the handler, which is JSON."""


@attrs.frozen
class TaskPlan:
    """When a call becomes a task, if its client can follow one."""

    new_task: Callable[[RunningCall, Responder], CallTask]
    """Returns the task; the responder gets the handle. Raises RemoteProtocolError if there are too
    many tasks.
    """
    after: float | None
    """Seconds without a response; None if only the handler decides."""
    is_required: bool
    """True if the client gets no result without a task."""


@attrs.define(eq=False, repr=False)
class RunningCall(ServerCall):
    """The ``ServerCall`` of the application, with the methods for the other parts of the server."""

    _core: ServerCore
    _owner: CallOwner
    request: Request
    _responder: Responder
    handler_input: HandlerInput = FIRST_INPUT
    rounds: int = 0
    last_progress: float | None = None
    is_reported: bool = attrs.field(default=True, kw_only=True)
    """True if the application gets the call; False if the server itself responds to it."""
    task_plan: TaskPlan | None = attrs.field(default=None, init=False)
    """None if the call cannot become a task."""
    _task: CallTask | None = attrs.field(default=None, init=False)
    saved_progress: Any = attrs.field(default=None, init=False)
    """What the handler has saved last with ``save_progress()``."""
    state: CallState = attrs.field(default=CallState.RUNNING, init=False)
    driver: Any = attrs.field(default=None, init=False)
    _server_requests: dict[int, tuple[str | None, float]] = attrs.field(
        factory=lambda: {}, init=False
    )
    """The open server requests by id: the name of each within an InputRequired (None for those of
    ``ask()``), and its timeout in seconds.
    """
    _input_responses: dict[str, Response | ErrorResponse] = attrs.field(
        factory=lambda: {}, init=False
    )
    """The input responses that have arrived, by name."""
    _saved: Any = attrs.field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<call {self.request.id!r} {self.request.method}: {self.state.name.lower()}>"

    @property
    def peer(self) -> CallOwner:
        return self._owner

    @property
    def headers(self) -> RequestHeaders:
        return RequestHeaders(self._responder.head)

    @property
    def client(self) -> str:
        responder: object = self._responder
        if not isinstance(responder, HttpResponder):
            return ""
        return known_client_of(self._core, responder.exchange)

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset() if self._responder.head is None else self._responder.head.scopes

    @property
    def responder(self) -> Responder:
        """What sends its messages."""
        return self._responder

    @property
    def open_requests(self) -> Collection[int]:
        """The ids of the open server requests."""
        return self._server_requests.keys()

    @property
    def is_running(self) -> bool:
        return self.state is _RUNNING

    @property
    def is_above_high_water(self) -> bool:
        return self.is_running and self._responder.is_above_high_water

    @property
    def is_connected(self) -> bool:
        return self.is_running and self._responder.is_connected

    def respond(self, result: Any, *, now: float) -> bool:
        if not isinstance(result, InputRequired):
            result = json.to_json_types(result)
            if type(result) is not dict and not isinstance(result, Mapping):
                raise LocalProtocolError(
                    f"A result must be an object (a dict), got {type(result).__name__}"
                )
            response = self._responder.format_result(self.request, result)
            if self.task_plan is not None and self.task_plan.is_required:
                self.become_task(now=now)
            return self._end(response, now)
        self._core.now = now
        outcome = self.is_running and self._responder.require(self, result)
        return outcome if isinstance(outcome, bool) else self._end(outcome, now)

    def respond_error(self, code: int, message: str, data: Any = None, *, now: float) -> bool:
        code = self._owner.revision.retired_codes.get(code, code)
        return self._end(ErrorResponse(self.request.id, code, message, data), now)

    def refuse_busy(self, *, now: float) -> bool:
        busy = refusals.BUSY(self.request.id)
        return self._end(busy.reply, now, busy.http_status)

    def respond_exception(self, error: Exception, *, now: float) -> bool:
        response = error_response(self.request.id, error)
        return self.respond_error(response.code, response.message, response.data, now=now)

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        return self._send(Notification(method, params), now)

    def progress(
        self,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        *,
        now: float,
    ) -> bool:
        meta = json.as_object((self.request.params or {}).get("_meta")) or {}
        token = meta.get("progressToken")
        has_token = jsonrpc.is_request_id(token)
        if not (has_token or self._task) or not self.is_running:
            return False
        if self.last_progress is not None and progress <= self.last_progress:
            raise LocalProtocolError(
                f"progress must increase with every report, got {progress} after "
                f"{self.last_progress}"
            )
        if self._task is not None:
            self._core.now = now
            self._task.report(progress, total, message)
            if self._task.is_told or not has_token:
                self.last_progress = progress
                return True
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        is_sent = self._send(Notification("notifications/progress", params), now)
        self.last_progress = progress
        return is_sent

    def ask(self, method: str, params: Params | None = None, *, timeout: float, now: float) -> int:
        if self.state is CallState.CANCELLED:  # such as by another instance that has taken it over
            text = f"Cannot send {method!r}: the call was cancelled; stop working on it"
            request = self.request
            raise RequestCancelled(text, method=request.method, request_id=request.id)
        if not self.is_running:
            raise LocalProtocolError(f"Cannot send {method!r}: the call has ended")
        check_positive_seconds(timeout)
        jsonrpc.check_call(method, params)
        json.encode(params)
        self._core.now = now
        id = self._send_request(method, params, timeout)
        if id is None:
            raise LocalProtocolError(f"Cannot send {method!r}: the client has disconnected")
        self._server_requests[id] = None, timeout
        return id

    def withdraw(self, id: int, reason: str, *, now: float) -> bool:
        if self._server_requests.get(id, ("", 0.0))[0] is not None:
            return False
        self._core.now = now
        self._cancel_request(id, reason)
        self._unregister_request(id)
        return True

    def disconnect(self, *, retry: float | None = None, now: float) -> bool:
        milliseconds = milliseconds_of(retry)
        self._core.now = now
        return self.is_running and self._responder.disconnect(milliseconds)

    @property
    def is_task(self) -> bool:
        return self._task is not None and self._task.is_told

    def become_task(self, *, now: float) -> bool:
        self._core.now = now
        if not self.is_running:
            return False
        if self._task is None and self.task_plan is not None:
            self._core.timers.stop(Timer.TASK, self)
            try:
                task = self.task_plan.new_task(self, self._responder)
            except RemoteProtocolError as refusal:
                self._do_without_task(refusal, "there are too many tasks")
                return False
            self.join_task(task)
            task.begin()
        return self._task is not None

    def save_progress(self, state: Any, *, now: float) -> bool:
        if not self._core.app.options_of(self.request.method).is_restartable(self.request):
            raise LocalProtocolError(
                "save_progress() needs a handler that may be called again; pass restartable=True "
                "where it is registered: to app.handler() or tools.tool()"
            )
        _check_kept(state)
        self._core.now = now
        if not self.is_running:
            return False
        self.saved_progress = state
        if self._task is not None:
            self._task.save(state)
        return self._task is not None

    def await_task(self) -> None:
        """Become a task after the time that was planned, or now."""
        assert self.task_plan is not None
        if self.task_plan.after is None or not self.is_running:
            return
        if self.task_plan.after == 0:
            self.become_task(now=self._core.now)
        else:
            self._core.timers.set(Timer.TASK, self, self._core.now + self.task_plan.after)

    def join_task(self, task: CallTask) -> None:
        """Send everything to a task from now on."""
        self._task = self._responder = task

    def leave_connection(self) -> None:
        """Let the call go on without its connection: its client has the handle of the task."""
        if self._owner.calls.get(self.request.id) is self:
            del self._owner.calls[self.request.id]
        self._owner = attrs.evolve(self._owner)

    def leave_session(self) -> None:
        """Go on without the session, which ends with its connection."""
        del self._owner.calls[self.request.id]
        self._core.stateless[self] = None

    def join_session(self, session: CallOwner) -> None:
        """Belong to another session of the client, which gets the open server requests, too."""
        for id in self._server_requests:
            self._owner.unregister_request(id)
        self._core.stateless.pop(self, None)
        self._owner.calls.pop(self.request.id, None)
        self._owner = session
        session.begin(self)

    def leave_task(self, origin: Responder) -> None:
        """Go on as a call that is no task, because the store has failed; or end with an error."""
        self._responder, self._task = origin, None
        refusal = refusals.TASK_NOT_STORED(self.request.id)
        self._do_without_task(refusal, "the task could not be stored")

    def _do_without_task(self, refusal: RemoteProtocolError, reason: str) -> None:
        """Try to become a task again later; if the call needs one, end with a refusal."""
        assert self.task_plan is not None
        if self.task_plan.is_required:
            self.abandon(refusal, reason)
        elif self.task_plan.after is not None:
            due = self._core.now + max(self.task_plan.after, _TASK_AGAIN)
            self._core.timers.set(Timer.TASK, self, due)

    def check_input_requests(self, required: InputRequired) -> None:
        """Raise LocalProtocolError if InputRequired is not JSON, or exceeds a limit."""
        _check_kept([required.state, [each.params for each in required.requests.values()]])
        limits = self._core.limits
        if len(required.requests) > limits.max_batch_messages:
            raise LocalProtocolError(
                f"InputRequired has {len(required.requests)} requests, more than "
                f"{limits.max_batch_messages} (max_batch_messages)"
            )
        if self.rounds == limits.max_rounds:
            raise LocalProtocolError(
                f"This call has used all {self.rounds} rounds of input (max_rounds); return a "
                "result or raise JsonRpcError"
            )

    def send_input_requests(self, required: InputRequired) -> bool:
        """Send the input requests as server requests. Returns False if the client is gone."""
        self.rounds += 1
        self._input_responses, self._saved = {}, required.state
        timeout = self._core.limits.input_timeout
        for name, input_request in required.requests.items():
            id = self._send_request(input_request.method, input_request.params, timeout)
            if id is None:
                error = "The client has disconnected"
                return self.respond_error(INTERNAL_ERROR, error, now=self._core.now)
            self._server_requests[id] = name, timeout
        self._continue_if_complete()
        return True

    def on_request_ended(self, id: int, outcome: Response | ErrorResponse | CallError) -> None:
        """Handle the end of a server request: a response, or the error that ended the wait."""
        name = self._unregister_request(id)
        if name is None:
            self._core.events.append(ClientResponseReceived(self, id, outcome))
        elif not isinstance(outcome, CallError):
            self._input_responses[name] = outcome
            self._continue_if_complete()

    def on_request_timeout(self, id: int) -> None:
        """Handle the timeout of a server request."""
        name, seconds = self._server_requests[id]
        if name is not None:
            self._end(no_input(seconds, self.request.id).reply, self._core.now)
            return
        error = RequestTimeout(
            "The client did not respond in time", seconds=seconds, method="", request_id=id
        )
        self._cancel_request(id, "timed out")
        self.on_request_ended(id, error)

    def end_parked(self) -> None:
        """End this object without a response, because the call is parked."""
        self.state = advance(CALL, self.state, _ANSWER)
        self._discard(cancel_requests=True)

    def cancel(self, reason: str) -> None:
        """Cancel the call, and report that to the application."""
        self.state = advance(CALL, self.state, CallEvent.CANCEL)
        self._report_cancellation(reason)
        self._discard(cancel_requests=False)
        self._responder.complete_without_response()

    def shut_down(self) -> None:
        """Cancel the call, and send an error, because the server shuts down."""
        refusal = refusals.SHUTTING_DOWN if self.is_reported else refusals.TASK_REQUEST_STOPPED
        self.abandon(refusal(self.request.id), "the server shuts down")

    def abandon(self, refusal: RemoteProtocolError, reason: str) -> None:
        """Cancel the call, and send an error as its response."""
        self.state = advance(CALL, self.state, CallEvent.CANCEL)
        self._report_cancellation(reason)
        self._discard(cancel_requests=False)
        # Not the status of the refusal: with 503 the client would repeat a call that has run.
        self._responder.respond(jsonrpc.encode(refusal.reply))

    def _report_cancellation(self, reason: str) -> None:
        if self.is_reported:
            self._core.events.append(CallCancelled(self, reason))

    def _send_request(self, method: str, params: Params | None, timeout: float) -> int | None:
        """Send a server request and return its id; None if the client has disconnected."""
        id = self._owner.register_request(self, method)
        if not self._send(Request(id, method, params), self._core.now):
            self._owner.unregister_request(id)
            return None
        self._core.send_gathered()
        deadline = self._core.now + timeout
        self._core.timers.set(Timer.CLIENT_RESPONSE, (self, id), deadline)
        return id

    def _unregister_request(self, id: int) -> str | None:
        """Forget a server request, and return its name if it has one."""
        self._owner.unregister_request(id)
        self._core.timers.stop(Timer.CLIENT_RESPONSE, (self, id))
        return self._server_requests.pop(id)[0]

    def _continue_if_complete(self) -> None:
        """Call the handler again if all input responses have arrived."""
        if all(name is None for name, _ in self._server_requests.values()):
            self.handler_input = HandlerInput(InputResponses(self._input_responses), self._saved)
            self._core.events.append(CallReceived(self))

    def _end(
        self, message: Response | ErrorResponse, now: float, status: int | None = None
    ) -> bool:
        data = jsonrpc.encode(message)
        self._core.now = now
        was_running = self.is_running
        self.state = advance(CALL, self.state, _ANSWER)
        if not was_running:
            return False
        if self._core.observer is not None:
            error = message if isinstance(message, ErrorResponse) else None
            self._core.observer.call_ended(self, error)
        self._discard(cancel_requests=True)
        if isinstance(message, Response):
            on_stored = partial(self._on_stored, data)
            return self._owner.succeeded(self.request, on_stored) or self._respond(data)
        return self._respond(data, status or self._status_of(message.code))

    def _status_of(self, code: int) -> int:
        """Return the HTTP status of an error at 2026-07-28, where the response is not a stream."""
        if code == MISSING_CAPABILITY:
            return 400
        # A fallback says with this code that there is no such method.
        is_unknown = code == METHOD_NOT_FOUND and self.request.method not in self._core.app.handlers
        return 404 if is_unknown else 200

    def _on_stored(self, data: bytes, is_stored: bool) -> None:
        """Send the response, because the store has what the request has changed."""
        if not is_stored:
            data = jsonrpc.encode(refusals.store_failed(self.request.id).reply)
        self._respond(data)

    def _respond(self, data: bytes, http_status: int = 200) -> bool:
        """Send the response. Returns False if the client has disconnected."""
        if self._responder.respond(data, http_status):
            return True
        self._core.events.append(
            ResponseUndelivered(self, "the client disconnected before the response")
        )
        return False

    def _send(self, message: Message, now: float) -> bool:
        if not self.is_running or not self._responder.may_send(self.request, message):
            return False
        data = jsonrpc.encode(message)
        self._core.now = now
        return self._responder.message(data)

    def _discard(self, *, cancel_requests: bool) -> None:
        """Forget the call, and end its open server requests.

        ``cancel_requests``: also send a cancellation of each of them to the client.
        """
        self._core.stateless.pop(self, None)
        if self.task_plan is not None:
            self._core.timers.stop(Timer.TASK, self)
        self._owner.calls.pop(self.request.id, None)
        self._owner.touch()
        for id in tuple(self._server_requests):
            if cancel_requests:
                self._cancel_request(id, "the request it belongs to has ended")
            error = RequestCancelled("The call has ended", method="", request_id=id)
            self.on_request_ended(id, error)

    def _cancel_request(self, id: int, reason: str) -> None:
        params = {"requestId": id, "reason": reason}
        data = jsonrpc.encode(Notification("notifications/cancelled", params))
        self._responder.message(data)


def _check_kept(value: Any) -> None:
    """Raise LocalProtocolError if a value that is to be kept is not JSON, or nests too deep."""
    try:
        json.check_bounds(json.encode(value), MAX_DEPTH, json.UNBOUNDED)
    except RemoteProtocolError as error:
        raise LocalProtocolError(
            f"States and input requests may nest {MAX_DEPTH} levels deep, and this nests deeper"
        ) from error
