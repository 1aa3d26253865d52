"""Follow a task: a ``tools/call`` that the server has answered by a handle.

From the handle on, the server runs the call without a connection. The client asks for the state of
the task with ``tasks/get`` until the task has ended, at the interval that the server named last.
Input requests are part of the state; the client sends the input responses with ``tasks/update``.
One of these requests is in flight at a time. None is cached: ``ttlMs`` of a task is how long the
server keeps it.

If the task has not ended after some requests, the client subscribes to its changes, too, with
``subscriptions/listen``. A server need not support that. If it does, the client asks when it is
told of a change, and rarely otherwise. What a notification says of the state is not used: it may be
older than the response to a request that is in flight.

A request that fails because of the network, a proxy or a busy server says nothing about the task.
It is repeated, for as long as the timeouts of the call allow. The total timeout runs as for other
calls. The timeout starts again with each response about the task, from the time of the next request
on: it counts the silence of the server, not the interval at which the server wants to be asked.

Source: extension ``io.modelcontextprotocol/tasks`` of 2026-07-28; SEP-2663.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from ..codecs import json
from ..codecs.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from ..errors import CallError, InvalidResponse, JsonRpcError, TaskCancelled, TaskLost
from ..events import ProgressReceived, TaskUpdated
from ..messages import ErrorResponse, Notification, Params, Response
from ..meta_keys import ACKNOWLEDGED
from ..tasks import (
    CANCELLED,
    CHANGED,
    COMPLETED,
    FAILED,
    GET,
    INPUT_REQUIRED,
    PROGRESS,
    RESULT_TYPE,
    TASK_IDS,
    UPDATE,
    WORKING,
)
from ..types import assert_never
from .http_heads import Refusal
from .options import ReconnectPolicy
from .outcomes import Finished, Lost, Retry, TaskOutcome, TaskReported

TASK_METHOD = "tools/call"
"""The only method whose calls can become tasks at present."""

_DEFAULT_INTERVAL = 1.0
_SHORTEST_INTERVAL = 0.05
_LONGEST_INTERVAL = 60.0
"""Seconds between two requests, whatever the server wants."""

_NO_ROOM = "too_many_tasks"
"""The reason with which a server refuses input responses until other tasks have ended."""
_LONGEST_RETRY = 5.0
"""Seconds until a failed request is repeated, beside the backoff, if the interval is longer. So
several attempts fit into the timeout of the call.
"""

_LISTEN_AFTER = 10
"""States of a task that has not ended, before the client subscribes to its changes."""

_LISTENING_INTERVAL = 15.0
"""Seconds between two requests at least, while the server tells of changes."""

_MAX_MESSAGE_CHARS = 1000


class Listening(enum.Enum):
    """Whether a client hears of the changes of a task."""

    POLLING = enum.auto()
    """It asks at intervals."""
    SUBSCRIBING = enum.auto()
    """It asks at intervals, and the server has not acknowledged the subscription."""
    SUBSCRIBED = enum.auto()
    """It asks when the server tells of a change."""
    REFUSED = enum.auto()
    """It asks at intervals to the end: the server does not tell of this task."""


def task_id_of(members: Mapping[str, Any]) -> str | None:
    """Return the id in the handle of a task; None if the result of a call is none, or invalid."""
    id = members.get("taskId")
    is_handle = members.get("resultType") == RESULT_TYPE and isinstance(id, str)
    return id or None if is_handle else None


@attrs.define(eq=False, repr=False)
class FollowedTask:
    """The task of one call, as far as the client knows it."""

    id: str
    is_owned: bool
    """True if the task is cancelled when its caller gives up; False if the client has attached."""
    _policy: ReconnectPolicy
    _jitter: Callable[[], float]
    _result_types: Mapping[str, str]
    """The kinds of results that extensions define, as in ``ClientOptions``."""
    unanswered: tuple[str, ...] = attrs.field(default=(), init=False)
    """The methods of input requests that are left to another client."""
    _status: str = attrs.field(default=WORKING, init=False)
    _message: str | None = attrs.field(default=None, init=False)
    """The server's explanation of the status."""
    _reported: TaskUpdated | None = attrs.field(default=None, init=False)
    """The event that reported the task last; None before the first."""
    _progress: tuple[float, float | None] | None = attrs.field(default=None, init=False)
    """The progress and the total of the last report of the server; None if it sent none."""
    reported_progress: ProgressReceived | None = attrs.field(default=None, init=False)
    """The last report of progress, of the call before it became a task, or of the task."""
    answered: set[str] = attrs.field(factory=set[str], init=False)
    """The keys of the input requests that have a response, sent or not."""
    _responses: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    """The input responses that the server has not accepted yet, by key."""
    _sent: tuple[str, ...] = attrs.field(default=(), init=False)
    """The keys of those in flight."""
    _interval: float = attrs.field(default=_DEFAULT_INTERVAL, init=False)
    _failures: int = attrs.field(default=0, init=False)
    """The number of requests that have failed since the last response about the task."""
    listening: Listening = attrs.field(default=Listening.POLLING, init=False)
    _states: int = attrs.field(default=0, init=False)
    """The number of states that the client has polled since it listened last."""
    is_stale: bool = attrs.field(default=False, init=False)
    """True if the task may have changed after the request in flight, or the last one."""

    def next_request(self) -> tuple[str, Params]:
        """Return the method and parameters of the next request about the task."""
        self._sent = tuple(self._responses)
        if self._responses:
            return UPDATE, {"taskId": self.id, "inputResponses": dict(self._responses)}
        self.is_stale = False
        return GET, {"taskId": self.id}

    def add_response(self, key: str, response: Any) -> None:
        """Add an input response, to be sent with the next request."""
        self.answered.add(key)
        self._responses[key] = response

    @property
    def has_responses(self) -> bool:
        """True if there are input responses to send."""
        return bool(self._responses)

    # Listening

    def subscribe(self) -> Params | None:
        """Return the parameters of ``subscriptions/listen``, if the client is to subscribe now."""
        if self.listening is not Listening.POLLING or self._states < _LISTEN_AFTER:
            return None
        self.listening = Listening.SUBSCRIBING
        return {"notifications": {TASK_IDS: [self.id]}}

    def on_notification(self, notification: Notification) -> bool:
        """Record a notification of the subscription.

        Returns False if the server has acknowledged it without this task.
        """
        params = notification.params or {}
        if notification.method == ACKNOWLEDGED:
            ids = (json.as_object(params.get("notifications")) or {}).get(TASK_IDS)
            if not json.is_array(ids) or self.id not in ids:
                return False
            self.listening = Listening.SUBSCRIBED
            self.is_stale = True  # it may have changed before
        elif notification.method == CHANGED and params.get("taskId") == self.id:
            self.is_stale = True
        return True

    def on_unsubscribed(self, *, for_good: bool) -> None:
        """Record that the subscription has ended.

        ``for_good``: do not subscribe again.
        """
        self.is_stale = self.is_stale or self.listening is Listening.SUBSCRIBED
        self.listening = Listening.REFUSED if for_good else Listening.POLLING
        self._states = 0

    # What the server says

    def news(self, call: int) -> Iterator[TaskUpdated | ProgressReceived]:
        """Yield the events that report the state of the task, if it has changed.

        Args:
            call: the number of the call.
        """
        event = TaskUpdated(
            call=call,
            task_id=self.id,
            status=self._status,
            message=self._message,
            unanswered=self.unanswered,
        )
        if event != self._reported:
            self._reported = event
            yield event
        if self._progress is None:
            return
        progress, total = self._progress
        told = self.reported_progress
        if told is None or (told.progress, told.total) != self._progress:
            self.reported_progress = ProgressReceived(
                call=call, progress=progress, total=total, message=self._message
            )
            yield self.reported_progress

    def on_handle(self, members: Mapping[str, Any]) -> float:
        """Record the handle, and return the seconds until the next request.

        A handle has neither result nor input requests, even if the task has some.
        """
        self._record(members)
        return self._interval if self._status == WORKING else 0.0

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
                return self._retry(reason)
            case Refusal():
                return self._refusal(method, answer)
            case CallError():
                return Finished(answer)
            case _ as impossible:
                assert_never(impossible)

    def _response(self, method: str, result: Any) -> TaskOutcome:
        self._failures = 0
        if method == UPDATE:
            for key in self._sent:
                self._responses.pop(key, None)
            return TaskReported(self._wait)
        members = json.as_object(result) or {}
        if members.get("resultType", "complete") not in ("complete", RESULT_TYPE):
            return self._invalid("it has an unknown resultType")
        if members.get("taskId", self.id) != self.id:
            return self._invalid("it is about another task")
        if not isinstance(members.get("status"), str):
            return self._invalid("it has no status")
        self._record(members)
        if self._status == COMPLETED:
            return self._completed(members)
        if self._status == FAILED:
            return self._failed(members)
        if self._status == CANCELLED:
            text = f"The task of {TASK_METHOD} was cancelled"
            reason = "" if self._message is None else f": {self._message}"
            return Finished(TaskCancelled(text + reason, method=TASK_METHOD))
        return self._pending(members)

    def _refusal(self, method: str, refusal: Refusal) -> TaskOutcome:
        is_page = 200 <= refusal.status < 300  # of a proxy, in place of the server's response
        if refusal.is_retryable or is_page:
            return self._retry(refusal.message, refusal.retry_after)
        if refusal.error is not None:
            return self._error(method, refusal.error, refusal.status)
        return Finished(refusal.as_error(method, None))

    def _retry(self, reason: str, wait: float = 0.0) -> Retry:
        """Return when to repeat a request that got no response about the task.

        Args:
            reason: why it failed, as text for an event.
            wait: the seconds for which the server has asked at least.
        """
        self._failures += 1
        wait = max(wait, min(self._interval, _LONGEST_RETRY))
        delay = self._policy.delay(self._failures, wait, self._jitter())
        return Retry(delay, self._failures, reason)

    @property
    def _wait(self) -> float:
        """The seconds until the next request."""
        if self.is_stale:
            return 0.0
        is_told = self.listening is Listening.SUBSCRIBED
        return max(self._interval, _LISTENING_INTERVAL) if is_told else self._interval

    def _record(self, members: Mapping[str, Any]) -> None:
        self._status = members["status"]
        message, interval = members.get("statusMessage"), members.get("pollIntervalMs")
        meta = json.as_object(members.get("_meta")) or {}
        numbers = json.as_object(meta.get(PROGRESS)) or {}  # only servers of this library send it
        progress, total = numbers.get("progress"), numbers.get("total")
        if json.is_finite(progress):
            self._progress = progress, total if json.is_finite(total) else None
        self._message = message[:_MAX_MESSAGE_CHARS] if isinstance(message, str) else None
        if type(interval) is int and interval > 0:
            longest = _LONGEST_INTERVAL * 1000  # the integer may be too large for a float
            self._interval = max(min(interval, longest) / 1000, _SHORTEST_INTERVAL)
        elif interval is not None:
            self._interval = _DEFAULT_INTERVAL

    def _pending(self, members: Mapping[str, Any]) -> TaskOutcome:
        """Return the outcome of a status that is not the end, even if it is not known."""
        input_requests: dict[str, Any] = {}
        if self._status == INPUT_REQUIRED:
            found = json.as_object(members.get("inputRequests"))
            if found is None:
                return self._invalid("it requires input, but has no inputRequests")
            input_requests = found
        for key in tuple(self._responses):
            if key not in input_requests:  # another client has responded
                del self._responses[key]
        self._states += 1
        return TaskReported(self._wait, input_requests)

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
            return self._retry(f"{method} got an error: {error.message}")
        cause = JsonRpcError(
            error.code, error.message, error.data, method=method, http_status=status
        )
        why = "knows" if error.code == INVALID_PARAMS else "gives the state of"
        text = f"The server no longer {why} the task of {TASK_METHOD}, so its outcome is unknown"
        lost = TaskLost(f"{text}: {cause}", method=TASK_METHOD)
        lost.__cause__ = cause
        return Finished(lost)
