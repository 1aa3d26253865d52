"""Follow a task: a ``tools/call`` that the server has answered by a handle.

From the handle on, the server runs the call without a connection. The client asks for the state of
the task with ``tasks/get`` until the task has ended, at the interval that the server named last.
Input requests are part of the state; the client sends the input responses with ``tasks/update``.
One of these requests is in flight at a time. None is cached: ``ttlMs`` of a task is how long the
server keeps it.

When it asks is in :mod:`.task_polling`.

A request that fails because of the network, a proxy or a busy server says nothing about the task.
It is repeated, for as long as the timeouts of the call allow. The total timeout runs as for other
calls. The timeout starts again with each response about the task, from the time of the next request
on: it counts the silence of the server, not the interval at which the server wants to be asked.

Source: extension ``io.modelcontextprotocol/tasks`` of 2026-07-28; SEP-2663.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

from ..codecs import json
from ..codecs.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from ..errors import CallError, InvalidResponse, JsonRpcError, TaskCancelled, TaskLost
from ..events import ProgressReceived, TaskUpdated
from ..messages import ErrorResponse, Params, Response
from ..tasks import (
    CANCELLED,
    COMPLETED,
    FAILED,
    GET,
    INPUT_REQUIRED,
    PROGRESS,
    RESULT_TYPE,
    UPDATE,
    WORKING,
)
from ..types import assert_never
from .http_heads import Refusal
from .outcomes import Finished, Lost, TaskOutcome, TaskReported
from .task_polling import TaskPolling

TASK_METHOD = "tools/call"
"""The only method whose calls can become tasks at present."""

_NO_ROOM = "too_many_tasks"
"""The reason with which a server refuses input responses until other tasks have ended."""
_MAX_MESSAGE_CHARS = 1000


def task_id_of(members: Mapping[str, Any]) -> str | None:
    """Return the id in the handle of a task; None if the result of a call is none, or invalid."""
    id = members.get("taskId")
    is_handle = members.get("resultType") == RESULT_TYPE and isinstance(id, str)
    return id or None if is_handle else None


@attrs.define(eq=False, repr=False)
class InputResponses:
    """The input responses to one task, which are sent one request after the other."""

    answered: set[str] = attrs.field(factory=lambda: set(), init=False)
    """The keys of the input requests that have a response, sent or not."""
    _waiting: dict[str, Any] = attrs.field(factory=lambda: {}, init=False)
    """The responses that the server has not accepted yet, by key."""
    _sent: tuple[str, ...] = attrs.field(default=(), init=False)
    """The keys of those in flight."""

    @property
    def are_waiting(self) -> bool:
        """True if there are responses to send."""
        return bool(self._waiting)

    def add(self, key: str, response: Any) -> None:
        """Add a response, to be sent with the next request."""
        self.answered.add(key)
        self._waiting[key] = response

    def send(self) -> dict[str, Any]:
        """Return the responses to send now, by key."""
        self._sent = tuple(self._waiting)
        return dict(self._waiting)

    def accepted(self) -> None:
        """Record that the server has accepted those that were sent."""
        for key in self._sent:
            self._waiting.pop(key, None)

    def keep(self, required: Collection[str]) -> None:
        """Discard what the task no longer requires: another client has responded."""
        for key in tuple(self._waiting):
            if key not in required:
                del self._waiting[key]


@attrs.frozen(eq=False, repr=False)
class _State:
    """What the server has said of a task last."""

    status: str = WORKING
    message: str | None = None
    """The server's explanation of the status."""
    progress: float | None = None
    """The progress and the total of its last report; None if it sent none."""
    total: float | None = None


@attrs.define(eq=False, repr=False)
class FollowedTask:
    """The task of one call, as far as the client knows it."""

    id: str
    is_owned: bool
    """True if the task is cancelled when its caller gives up; False if the client has attached."""
    polling: TaskPolling
    _result_types: Mapping[str, str]
    """The kinds of results that extensions define, as in ``ClientOptions``."""
    responses: InputResponses = attrs.field(factory=InputResponses, init=False)
    unanswered: tuple[str, ...] = attrs.field(default=(), init=False)
    """The methods of input requests that are left to another client."""
    _state: _State = attrs.field(factory=_State, init=False)
    _reported: TaskUpdated | None = attrs.field(default=None, init=False)
    """The event that reported the task last; None before the first."""
    reported_progress: ProgressReceived | None = attrs.field(default=None, init=False)
    """The last report of progress, of the call before it became a task, or of the task."""

    def next_request(self) -> tuple[str, Params]:
        """Return the method and parameters of the next request about the task."""
        responses = self.responses.send()
        if responses:
            return UPDATE, {"taskId": self.id, "inputResponses": responses}
        self.polling.asked()
        return GET, {"taskId": self.id}

    # What the server says

    def news(self, call: int) -> Iterator[TaskUpdated | ProgressReceived]:
        """Yield the events that report the state of the task, if it has changed.

        Args:
            call: the number of the call.
        """
        event = TaskUpdated(
            call=call,
            task_id=self.id,
            status=self._state.status,
            message=self._state.message,
            unanswered=self.unanswered,
        )
        if event != self._reported:
            self._reported = event
            yield event
        progress, total, told = self._state.progress, self._state.total, self.reported_progress
        if progress is None:
            return
        if told is None or (told.progress, told.total) != (progress, total):
            self.reported_progress = ProgressReceived(
                call=call, progress=progress, total=total, message=self._state.message
            )
            yield self.reported_progress

    def on_handle(self, members: Mapping[str, Any]) -> float:
        """Record the handle, and return the seconds until the next request.

        A handle has neither result nor input requests, even if the task has some.
        """
        self._record(members)
        return self.polling.wait if self._state.status == WORKING else 0.0

    def on_answer(
        self, method: str, answer: Response | ErrorResponse | Lost | Refusal | CallError
    ) -> TaskOutcome:
        """Return what the end of a request about the task means.

        Args:
            method: the method of the request.
            answer: its response, or why there is none. A CallError ends the call.
        """
        match answer:
            case Response(result=result):
                return self._response(method, result)
            case ErrorResponse():
                return self._error(method, answer)
            case Lost(reason):
                return self.polling.retry(reason)
            case Refusal():
                return self._refusal(method, answer)
            case CallError():
                return Finished(answer)
            case _ as impossible:
                assert_never(impossible)

    def _response(self, method: str, result: Any) -> TaskOutcome:
        self.polling.answered()
        if method == UPDATE:
            self.responses.accepted()
            return TaskReported(self.polling.wait)
        members = json.as_object(result) or {}
        if members.get("resultType", "complete") not in ("complete", RESULT_TYPE):
            return self._invalid("it has an unknown resultType")
        if members.get("taskId", self.id) != self.id:
            return self._invalid("it is about another task")
        if not isinstance(members.get("status"), str):
            return self._invalid("it has no status")
        self._record(members)
        status, message = self._state.status, self._state.message
        if status == COMPLETED:
            return self._completed(members)
        if status == FAILED:
            return self._failed(members)
        if status == CANCELLED:
            text = f"The task of {TASK_METHOD} was cancelled"
            reason = "" if message is None else f": {message}"
            return Finished(TaskCancelled(text + reason, method=TASK_METHOD))
        return self._pending(members)

    def _refusal(self, method: str, refusal: Refusal) -> TaskOutcome:
        is_page = 200 <= refusal.status < 300  # of a proxy, in place of the server's response
        if refusal.is_retryable or is_page:
            return self.polling.retry(refusal.message, refusal.retry_after)
        if refusal.error is not None:
            return self._error(method, refusal.error, refusal.status)
        return Finished(refusal.as_error(method, None))

    def _record(self, members: Mapping[str, Any]) -> None:
        message, meta = members.get("statusMessage"), json.as_object(members.get("_meta")) or {}
        numbers = json.as_object(meta.get(PROGRESS)) or {}  # only servers of this library send it
        progress, total = numbers.get("progress"), numbers.get("total")
        if not json.is_finite(progress):
            progress, total = self._state.progress, self._state.total
        self._state = _State(
            members["status"],
            message[:_MAX_MESSAGE_CHARS] if isinstance(message, str) else None,
            progress,
            total if json.is_finite(total) else None,
        )
        self.polling.set_interval(members.get("pollIntervalMs"))

    def _pending(self, members: Mapping[str, Any]) -> TaskOutcome:
        """Return the outcome of a status that is not the end, even if it is not known."""
        input_requests: dict[str, Any] = {}
        if self._state.status == INPUT_REQUIRED:
            found = json.as_object(members.get("inputRequests"))
            if found is None:
                return self._invalid("it requires input, but has no inputRequests")
            input_requests = found
        self.responses.keep(input_requests)
        self.polling.is_pending()
        return TaskReported(self.polling.wait, input_requests)

    def _completed(self, members: Mapping[str, Any]) -> TaskOutcome:
        result = json.as_object(members.get("result"))
        if result is None:
            return self._invalid("it is completed, but has no result")
        kind = result.get("resultType", "complete")
        if kind != "complete" and not (isinstance(kind, str) and kind in self._result_types):
            return self._invalid("its result has an unknown resultType")
        return Finished(members["result"])

    def _failed(self, members: Mapping[str, Any]) -> TaskOutcome:
        error = json.as_object(members.get("error")) or {}
        code, message = error.get("code"), error.get("message")
        if type(code) is not int or not isinstance(message, str):
            return self._invalid("it has failed, but has no error")
        return Finished(JsonRpcError(code, message, error.get("data"), method=TASK_METHOD))

    def _invalid(self, what: str) -> Finished:
        text = f"The state of the task of {TASK_METHOD} is invalid: {what}"
        return Finished(InvalidResponse(text, method=TASK_METHOD))

    def _error(self, method: str, error: ErrorResponse, status: int | None = None) -> TaskOutcome:
        """Return the outcome of an error response, which is not the error of the call."""
        reason = (json.as_object(error.data) or {}).get("reason")
        if error.code == INTERNAL_ERROR or reason == _NO_ROOM:  # such as a store that fails
            return self.polling.retry(f"{method} got an error: {error.message}")
        cause = JsonRpcError(
            error.code, error.message, error.data, method=method, http_status=status
        )
        why = "knows" if error.code == INVALID_PARAMS else "gives the state of"
        text = f"The server no longer {why} the task of {TASK_METHOD}, so its outcome is unknown"
        lost = TaskLost(f"{text}: {cause}", method=TASK_METHOD)
        lost.__cause__ = cause
        return Finished(lost)
