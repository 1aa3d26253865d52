"""A call from its first request to its outcome, told as a procedure: a generator.

A procedure reads from top to bottom. It yields what the client must do next, and stops there:

* :class:`Send`: send the request of the call. It is sent the answer: what has come for it.
* :class:`Ask`: make a request of the client's own. It is sent the answer.
* ``Retry``, ``Sleep``, ``TaskReported``: wait. It is sent None after the time, or earlier.
* ``NeedsInput``: get the input responses. It is sent them.
* ``NeedsVersion``, ``SessionOver``: open a new session.
* ``BecameTask``, ``TaskOver``, ``NeedsTools``, ``ToolsListed``: note what was received. It is sent
  None.

It returns the result of the call, or the exception that is its outcome. An exception of a call is
never raised here: the application raises it, and its traceback is that of the application.

A session that ends takes with it the request that is in flight, and all that was asked. Once the
next one is open, the procedure is sent None instead of what it waits for. After ``Send`` and
``Ask`` None means: do it again. A call that must not be repeated has failed before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ..codecs import json
from ..codecs.jsonrpc import HEADER_MISMATCH, UNSUPPORTED_VERSION
from ..errors import (
    AuthorizationFailed,
    CallError,
    InvalidResponse,
    JsonRpcError,
    RemoteProtocolError,
    TaskLost,
)
from ..http import Unsent
from ..messages import ErrorResponse, Params, Response
from .call_keys import BUSY, FIRST, Answer, CallKeys, Cut, Next, Unknown
from .http_heads import HttpRequest, Refusal
from .message_encoder import MessageEncoder
from .options import ClientOptions
from .outcomes import (
    Ask,
    BecameTask,
    Finished,
    Kind,
    Lost,
    NeedsInput,
    NeedsTools,
    NeedsVersion,
    Retry,
    RoundDone,
    Send,
    SessionOver,
    Sleep,
    TaskOutcome,
    TaskOver,
    TaskReported,
    ToolsListed,
)
from .request import PendingRequest, StepAnswer, Steps, jsonrpc_error_from
from .task import FollowedTask
from .task_polling import TaskPolling

_MAX_PAGES = 100
"""The number of pages of a list of tools to fetch when the headers of a tool are looked up."""

_BAD_REQUEST = 400
"""The HTTP status of an error about the request. With another one it may be of a handler, which has
run: a relay passes on errors of other servers. On stdio, where no headers are mirrored, nothing
tells them apart.
"""

_INSTANCE_LOST = "instance_lost"
"""The reason in an error of a server of several instances: that which ran the call has died."""

_SEND = Send()


@attrs.define(eq=False, repr=False)
class Procedures:
    """The procedures of the calls of one client."""

    _options: ClientOptions
    _jitter: Callable[[], float]
    _encoder: MessageEncoder
    """It has what was negotiated."""
    _keys: CallKeys
    _responded: Callable[[], object]
    """Is called when the server has responded to a call, so that it still knows the session."""
    now: float = attrs.field(default=0.0, init=False)
    """The time of the step, in seconds on the machine's clock."""

    def new_task(self, id: str, *, is_owned: bool) -> FollowedTask:
        """Return a task that is to be followed."""
        policy, types = self._options.reconnect, self._options.result_types
        return FollowedTask(id, is_owned, TaskPolling(id, policy, self._jitter), types)

    def run(self, call: PendingRequest) -> Steps[Any]:
        """Send a call, again and again if need be, until it has its outcome.

        Returns:
            The result, or the CallError.
        """
        if call.task is not None:
            return (yield from self._follow_task(call, call.task, None))
        given, rounds = call.params or {}, 0
        while True:
            answer = yield _SEND
            match answer:
                case Response(result=result):
                    self._responded()
                    self._key_arrived(call)
                    match call.outcome_of(result, self._encoder.agreed, self._options):
                        case Finished(result=result):
                            return result
                        case BecameTask() as became:
                            outcome = yield from self._become_task(call, became)
                            retry = self._after_death(call, outcome)
                            if retry is None:
                                return outcome
                            yield TaskOver()
                            yield retry
                            error = None
                        case needs:
                            rounds += 1
                            error = yield from self._get_input(call, needs, rounds, given)
                case _:
                    error = yield from self._after(call, answer)
            if error is None and self._is_stranded(call):
                error = yield from self._reclaim(call, Unknown(None, never_arrived=False))
            if error is not None:
                return error

    # What follows an answer: each returns the error that ends the call, or None to send it again

    def _after(self, call: PendingRequest, answer: StepAnswer) -> Steps[CallError | None]:
        """Act on what has come for a call and is not its result."""
        match answer:
            case ErrorResponse():
                return (yield from self._denied(call, answer, None))
            case Refusal():
                return (yield from self._refused(call, answer))
            case Lost():
                return (yield from self._lost(call, answer))
            case Cut():
                return (yield from self._reclaim(call, answer))
            case RemoteProtocolError():
                return call.unreadable(answer)
            case AuthorizationFailed():
                return call.unauthorized(answer)
            case _:
                assert answer is None
                if call.key is not None:
                    call.key.next = Next.REST
                return None

    def _get_input(
        self, call: PendingRequest, needs: NeedsInput, rounds: int, given: Params
    ) -> Steps[CallError | None]:
        """Get the input responses for the next request of a call; ``given``: its own parameters."""
        call.attempts.refusals = 0
        if rounds > self._options.limits.max_rounds:
            text = f"{call.method} got input requests {rounds} times (max_rounds)"
            return InvalidResponse(text, method=call.method)
        responses = yield needs
        if isinstance(responses, RoundDone):
            call.params = {**given, **responses.params}
        return None

    def _denied(
        self,
        call: PendingRequest,
        error: ErrorResponse,
        http_status: int | None,
    ) -> Steps[CallError | None]:
        """Remove the reason for an error response, if that can be done and was not tried yet."""
        self._responded()
        self._key_arrived(call)
        is_mismatch = error.code == HEADER_MISMATCH and http_status == _BAD_REQUEST
        must_mirror = self._encoder.mirroring is not None and call.method == "tools/call"
        if is_mismatch and must_mirror and NeedsTools not in call.attempts.tried:
            call.attempts.tried += (NeedsTools,)
            yield NeedsTools()
            yield from self._list_tools()
            return None
        if self._is_about_version(call, error, http_status):
            call.attempts.tried += (NeedsVersion,)
            yield NeedsVersion()
            return None
        denied = jsonrpc_error_from(error, call.method, call.id, http_status)
        retry = self._after_death(call, denied)
        if retry is None:
            return denied
        yield retry
        return None

    def _refused(self, call: PendingRequest, refusal: Refusal) -> Steps[CallError | None]:
        about_key = None if call.key is None else call.key.answer_in(refusal)
        if about_key is not None:
            return (yield from self._reclaim(call, about_key))
        is_first = _is_first(refusal.request)
        if call.attempts.refused(refusal, idempotent=call.options.idempotent) and is_first:
            if refusal.reason == BUSY:
                self._key_arrived(call)
            retry = self._next_attempt(call, refusal.message, refusal.retry_after)
            if retry is not None:
                yield retry
                return None
        if refusal.ends_session:
            was_not_run = is_first and (call.key is None or call.key.is_first)
            yield SessionOver(refusal, call.number if was_not_run else None)
            return None
        error = refusal.error
        if error is not None and (
            error.id == call.id
            or (error.id is None and self._is_about_version(call, error, refusal.status))
        ):
            return (yield from self._denied(call, error, refusal.status))
        return refusal.as_error(call.method, call.id)

    def _lost(self, call: PendingRequest, lost: Lost) -> Steps[CallError | None]:
        key, unsent = call.key, lost.unsent
        if unsent is not None and (key is None or key.is_first):
            if not call.attempts.is_final(unsent, self.now):
                retry = self._next_attempt(call, lost.reason)
                if retry is not None:
                    yield retry
                    return None
            if not call.attempts.was_sent:
                return call.unsent(lost.reason)
        if key is not None:
            is_final = unsent is not None and call.attempts.is_final(unsent, self.now)
            return (yield from self._reclaim(call, Cut(lost.reason, is_final=is_final)))
        return call.lost(lost.reason)

    def _reclaim(self, call: PendingRequest, answer: Answer) -> Steps[CallError | None]:
        """Act on a cut of a call with a key, or on an answer that is not its response."""
        key = call.key
        assert key is not None
        was_attached = call.stream is not None and call.stream.connections.was_opened
        step = self._keys.next_step(
            key,
            answer,
            self.now,
            was_attached=was_attached,
            idempotent=call.options.idempotent,
        )
        if isinstance(step, Retry):
            call.attempts.refusals = step.attempt
            yield step
        elif isinstance(step, Lost):
            call.key = None
            if not call.options.idempotent:
                return call.lost(step.reason)
            call.attempts.takes_keys = False
        return None

    def _key_arrived(self, call: PendingRequest) -> None:
        """Record that the response to a call with a key has arrived, and forget the key."""
        if call.key is not None:
            self._keys.arrived(call.key)
            call.key = None

    # Decisions

    def _is_stranded(self, call: PendingRequest) -> bool:
        """Return True if a server without keys has taken the place of that which ran a call."""
        key = call.key
        return key is not None and key.next not in FIRST and self._keys.place is None

    def _is_about_version(
        self, call: PendingRequest, error: ErrorResponse, http_status: int | None
    ) -> bool:
        """Return True if the version was refused, for the first time for a call."""
        is_unsupported = error.code == UNSUPPORTED_VERSION and self._encoder.agreed.is_modern
        is_of_protocol = self._encoder.mirroring is None or http_status == _BAD_REQUEST
        return is_unsupported and is_of_protocol and NeedsVersion not in call.attempts.tried

    def _after_death(self, call: PendingRequest, outcome: object) -> Retry | None:
        """Return when to send a safe call again because the instance that ran it has died."""
        if not (call.options.idempotent and isinstance(outcome, JsonRpcError)):
            return None
        reason = (json.as_object(outcome.data) or {}).get("reason")
        most = self._options.reconnect.max_attempts
        if reason != _INSTANCE_LOST or call.attempts.deaths == most:
            return None
        call.attempts.deaths += 1
        return self._attempt(call, 1, str(outcome))  # the server has answered

    def _next_attempt(self, call: PendingRequest, reason: str, wait: float = 0.0) -> Retry | None:
        """Return when to send a call again of which the server has run nothing, or which is safe.

        The timeouts of the call run on. Returns None if it was sent too often, or would time out
        before.

        Args:
            call: the call.
            reason: why it failed, as text for an event.
            wait: the seconds to wait at least.
        """
        used = 0 if call.stream is None else call.stream.connections.failures
        return self._attempt(call, max(call.attempts.refusals, used) + 1, reason, wait)

    def _attempt(
        self, call: PendingRequest, attempt: int, reason: str, wait: float = 0.0
    ) -> Retry | None:
        """Return the wait before an attempt; None if there is none any more."""
        policy = self._options.reconnect
        assert call.timeouts is not None
        if attempt > policy.max_attempts:
            return None
        delay = policy.delay(attempt, wait, self._jitter())
        if self.now + delay >= call.timeouts.deadline:
            return None
        call.attempts.refusals = attempt
        if call.key is not None:
            call.key.next = Next.AGAIN
        return Retry(delay, attempt, reason)

    # What a call needs beside its own request

    def _list_tools(self) -> Steps[None]:
        """Fetch the list of tools, so that the call whose headers were refused can be repeated.

        The server may have changed its tools since they were listed. The call is repeated even if
        the list cannot be fetched. Source: 2026-07-28 basic/transports: Custom Headers; SEP-2243.
        """
        params: Params = {}
        for _ in range(_MAX_PAGES):
            answer = yield from self._ask_for_tools(params)
            if not isinstance(answer, Response):
                break
            yield ToolsListed(answer.result)
            cursor = (json.as_object(answer.result) or {}).get("nextCursor")
            if not isinstance(cursor, str) or params == {"cursor": cursor}:
                break  # it is the last page, or the server ignores cursors
            params = {"cursor": cursor}

    def _ask_for_tools(self, params: Params) -> Steps[Any]:
        """Ask for a page of the list of tools, again and again while the server is out of reach."""
        policy, attempt = self._options.reconnect, 0
        while True:
            answer = yield Ask(Kind.TOOLS, "tools/list", params)
            attempt += 1
            match answer:
                case Refusal() if answer.was_not_run or answer.leaves_unknown:
                    wait = answer.retry_after
                case Lost(unsent=Unsent.UNREACHABLE | Unsent.REFUSED):
                    wait = 0.0
                case _:
                    return answer
            if attempt > policy.max_attempts:
                return answer
            yield Sleep(policy.delay(attempt, wait, self._jitter()))

    def _become_task(self, call: PendingRequest, became: BecameTask) -> Steps[Any]:
        """Follow the task by whose handle the server has answered a call."""
        task = call.task = self.new_task(became.members["taskId"], is_owned=True)
        task.reported_progress = call.progress
        wait = task.on_handle(became.members)
        yield became
        return (yield from self._follow_task(call, task, wait))

    def _follow_task(
        self, call: PendingRequest, task: FollowedTask, wait: float | None
    ) -> Steps[Any]:
        """Ask for the state of a task, and send input responses to it, until it has ended.

        Args:
            call: the call that waits for it.
            task: what is known of it.
            wait: the seconds until the first request; None to make it at once.

        Source: extension ``io.modelcontextprotocol/tasks`` of 2026-07-28; SEP-2663.
        """
        outcome: TaskOutcome | None = None if wait is None else TaskReported(wait)
        while not isinstance(outcome, Finished):
            if outcome is not None:
                yield outcome
            if not self._encoder.agreed.is_modern:
                version = self._encoder.agreed.revision.name
                text = (
                    f"{version}, which the server now speaks, has no tasks, so the outcome of the "
                    "task is unknown"
                )
                return call.error(TaskLost, text)
            method, params = task.next_request()
            answer = yield Ask(Kind.TASK, method, params)
            outcome = None
            if answer is not None:
                assert isinstance(answer, Response | ErrorResponse | Lost | Refusal | CallError)
                outcome = task.on_answer(method, answer)
        return outcome.result


def _is_first(request: HttpRequest) -> bool:
    """Return True if an HTTP request carries a call, and does not resume its stream."""
    return request.method == b"POST" and not request.last_event_id
