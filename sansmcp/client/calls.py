"""The calls of a client, from their start to their outcome.

Calls are sent, repeated and ended here, as their procedures want it, with what belongs to them:
their timeouts, tasks, subscriptions and input, and the server requests that pause them. A call
needs something of the session only after an error response or a refusal: a new one, or another
version. That is returned; the rest is done here, and reported as events.

Source: every revision, basic/lifecycle, basic/utilities: cancellation, progress; 2026-07-28
basic/utilities: multi round-trip requests; SEP-2663.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from ..codecs import json
from ..codecs.jsonrpc import INVALID_PARAMS, is_request_id
from ..errors import (
    AuthorizationFailed,
    CallError,
    InvalidResponse,
    JsonRpcError,
    RemoteProtocolError,
    RequestCancelled,
    describe_unread,
)
from ..events import (
    CallCompleted,
    CallFailed,
    MessageUndelivered,
    ProgressReceived,
    ServerRequestCancelled,
    ServerRequestReceived,
)
from ..limits import Limits
from ..messages import (
    ErrorResponse,
    Notification,
    Params,
    Request,
    RequestId,
    Response,
)
from ..meta_keys import (
    LISTEN,
)
from ..tasks import CANCEL as CANCEL_TASK
from ..timers import Timer, TimerTable
from ..types import assert_never
from .cache import Cache
from .call_keys import (
    CallKeys,
    Cut,
    Next,
    cancellation_by,
)
from .event_queue import EventQueue
from .http_heads import Refusal
from .input import ServerRequests
from .message_encoder import MessageEncoder
from .outcomes import (
    Ask,
    BecameTask,
    Flooded,
    InputRequested,
    Kind,
    LimitExceeded,
    Lost,
    NeedsInput,
    NeedsTools,
    NeedsVersion,
    OwnAnswer,
    Reply,
    ResponseBuffered,
    Restart,
    Retry,
    RoundDone,
    RoundFailed,
    RoundStarted,
    Send,
    SessionOver,
    Sleep,
    TaskInputDone,
    TaskOver,
    TaskReported,
    ToolsListed,
    Undelivered,
)
from .procedures import Procedures
from .request import PendingRequest, StepAnswer
from .request_table import RequestTable
from .stream_factory import idle_limit
from .task import TASK_METHOD, FollowedTask, task_id_of
from .transports.link import Link
from .unread import Unread

_CALL: Final = Kind.CALL
_REQUEST: Final = Timer.REQUEST

SessionStep: TypeAlias = NeedsVersion | SessionOver
"""What a call needs of the session."""


@attrs.define(eq=False, repr=False)
class Calls:
    """The calls of one client, and the requests that are made for them."""

    _requests: RequestTable
    _encoder: MessageEncoder
    """It has the settings, and what was negotiated."""
    keys: CallKeys
    cache: Cache
    _procedures: Procedures
    _server_requests: ServerRequests
    _timers: TimerTable
    _events: EventQueue
    _unread: Unread
    _link: Link

    def declare(self, capabilities: Mapping[str, Any]) -> None:
        """Declare other capabilities than those with which the client was created."""
        self._server_requests = ServerRequests(self._limits, capabilities)

    @property
    def _limits(self) -> Limits:
        return self._encoder.options.limits

    def new_task(self, id: str) -> FollowedTask:
        """Return a task of another client that is to be followed."""
        return self._procedures.new_task(id, is_owned=False)

    # Calls, from their start to their outcome

    def begin(self, call: PendingRequest, now: float, *, is_ready: bool) -> None:
        """Add a new call, and send it if the opening has ended."""
        self._requests.calls[call.number] = call
        call.procedure = self._procedures.run(call)
        self._arm(call)
        if is_ready:
            self.go_on(call, now)

    def send(self, request: PendingRequest, now: float) -> None:
        """Send a request with a new id, unless its result is in the cache."""
        if request.kind is _CALL:
            cached = self.cache.lookup(request.method, request.params or {}, now)
            if cached is not None:
                self._end_call(request, CallCompleted(request.number, cached), now, complete=True)
                return
            request.cache_generation = self.cache.generation
        if request.id is not None:
            self._requests.by_id.pop(request.id, None)
        key, has_keys = request.key, self.keys.place is not None
        if has_keys and key is not None and key.next is not Next.CALL:
            request.id = key.id
        else:
            request.id, request.key = self._requests.new_id(), None
            if has_keys and request.can_have_key:
                request.key = self.keys.new(request.id, key)
        self._requests.by_id[request.id] = request
        self._link.send(request, now)

    def finish(self, request: PendingRequest, result: Any, now: float) -> None:
        """End a call with its result, or with the error that the response means."""
        if isinstance(result, CallError):
            is_bad = isinstance(result, JsonRpcError) and result.code == INVALID_PARAMS
            if is_bad and "cursor" in (request.params or {}):
                self.cache.discard(request.method)  # the list has changed since the page before
            self.fail(request, result, now, complete=True)
            return
        if request.method == "tools/list":
            result, rejected = self._encoder.record_tools(result)
            self._events.extend(rejected)
        is_current = request.cache_generation == self.cache.generation
        caches = self._encoder.options.cache and self._encoder.agreed.revision.caching
        if is_current and caches:
            self.cache.insert(request.method, request.params or {}, result, now)
        self._end_call(request, CallCompleted(request.number, result), now, complete=True)

    def fail(
        self, request: PendingRequest, error: CallError, now: float, *, complete: bool = False
    ) -> None:
        """End a call with an error; ``complete``: the server has sent its response."""
        if request.task is not None:
            error.task_id = request.task.id
        self._end_call(request, CallFailed(request.number, error), now, complete=complete)

    def fail_all(self, error: CallError, now: float) -> None:
        """Fail all calls, because the client has failed."""
        for call in tuple(self._requests.calls.values()):
            self.fail(call, call.abandoned(error), now)

    @property
    def keeps_keys(self) -> bool:
        """True if calls with keys outlive the session, so that they are cancelled by their keys."""
        return self._encoder.agreed.is_modern or self._link.is_http_sse

    def requeue(
        self,
        error_of: Callable[[PendingRequest], CallError],
        now: float,
        *,
        keeps_keys: bool,
    ) -> tuple[int, ...]:
        """Let the calls of a session that has ended wait for the next one.

        Those that were sent in it and cannot be repeated fail. Returns their numbers.
        ``keeps_keys``: what the property of that name was in the session.
        """
        self.cache.clear()
        failed: list[int] = []
        for call in tuple(self._requests.calls.values()):
            if call.can_requeue(keeps_keys=keeps_keys):
                self._leave(call, now, complete=False)
                if not keeps_keys:
                    call.key = None
                assert call.timeouts is not None
                call.timeouts.discard_server_requests(now)
                self._arm(call)
            else:
                failed.append(call.number)
                self.fail(call, error_of(call), now)
        return tuple(failed)

    def _end_call(
        self,
        request: PendingRequest,
        event: CallCompleted | CallFailed,
        now: float,
        *,
        complete: bool,
    ) -> None:
        self._timers.stop(_REQUEST, request.number)
        self._leave(request, now, complete=complete)
        request.procedure = None  # it holds the call
        del self._requests.calls[request.number]
        for id in self._server_requests.end_call(request.number):
            self._events.append(ServerRequestCancelled(id, "the call it belongs to has ended"))
        self._events.append(event)

    def end_own(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        """End a request of the client's own; ``complete``: its response has arrived."""
        self._requests.remove_own(request)
        self._link.leave(request, now, complete=complete)

    def _leave(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        """End the stream and exchange of a request; ``complete``: its response has arrived."""
        if request.id is None:
            self._timers.stop(Timer.REPEAT, request.number)
        else:
            self._requests.by_id.pop(request.id, None)
            request.id = None
        self._link.leave(request, now, complete=complete)
        if request.task is not None:
            self._timers.stop(Timer.TASK_POLL, request.number)
        if request.child is not None:
            self._end_child(request, now, complete=False)
        if request.listener is not None:
            self._end_listener(request, now, complete=False)

    def _end_child(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        assert request.child is not None
        self.end_own(self._requests.own[request.child], now, complete=complete)
        request.child = None

    def _end_listener(self, request: PendingRequest, now: float, *, complete: bool) -> None:
        assert request.listener is not None
        listener, request.listener = self._requests.own[request.listener], None
        if not complete:
            self._send_cancellation(listener, "the client no longer follows the task", now)
        self.end_own(listener, now, complete=complete)

    def timed_out(self, request: PendingRequest, now: float) -> None:
        """End a call whose time is over, and send the server the cancellation."""
        assert request.timeouts is not None
        limit = request.timeouts.limit(now)
        self._send_cancellation(request, f"timed out after {limit}", now)
        quotes = self._unread.quotes(request.number, request.timeouts.started)
        self.fail(request, request.timed_out(now, describe_unread(quotes)), now)

    def _cancelled(self, request: PendingRequest, reason: str, now: float) -> None:
        text = f"{request.method} was cancelled: {reason}"
        self.fail(request, request.error(RequestCancelled, text), now)

    def cancel(self, request: PendingRequest, reason: str, now: float) -> None:
        """End a call with RequestCancelled, and send the server the cancellation."""
        self._send_cancellation(request, reason, now)
        self._cancelled(request, reason, now)

    def cancel_all(self, reason: str, now: float) -> list[Request | Notification]:
        """End all calls with RequestCancelled, because the session ends.

        Returns what is to be sent then: the server has to be told of what runs on without a
        session, such as tasks.
        """
        calls = tuple(self._requests.calls.values())
        messages: list[Request | Notification] = []
        for call in calls:
            if call.task is not None and (message := self._cancellation_of(call.task)) is not None:
                messages.append(message)
        for call in calls:
            if self.keeps_keys and call.key is not None and not self._is_unsent(call):
                messages.append(cancellation_by(call.key))
        for call in calls:
            self._cancelled(call, reason, now)
        return messages

    def _send_cancellation(self, request: PendingRequest, reason: str, now: float) -> None:
        """Send the cancellation of a request, or of the task that runs it.

        At 2026-07-28 on HTTP, aborting the exchange cancels the request, but not a task. Source:
        basic/utilities/cancellation; SEP-2663.
        """
        if request.task is not None:
            self._cancel_task(request.task, now)
            return
        if self._is_unsent(request):
            return
        if request.key is not None and self.keeps_keys:
            self.post(cancellation_by(request.key), now)
            return
        is_modern = self._encoder.agreed.is_modern
        abort_suffices = is_modern and not self._link.is_shared
        if request.id is not None and not abort_suffices:
            if is_modern and request.method == TASK_METHOD and self._encoder.options.tasks:
                self._requests.give_up(request.id)
            params = {"requestId": request.id, "reason": reason}
            self.post(Notification("notifications/cancelled", params), now)

    def _is_unsent(self, request: PendingRequest) -> bool:
        """Return True if a request waits for authorization, and the server has never seen it.

        What waits can also be a request for the rest of a call that was sent.
        """
        is_first = request.key is None or request.key.is_first
        return is_first and self._link.holds(request)

    def answered(
        self, request: PendingRequest, answer: OwnAnswer, now: float
    ) -> SessionStep | None:
        """Act on what has come for a call, or for a request that was made for one."""
        match request.kind:
            case Kind.TOOLS | Kind.TASK:
                call = self._requests.parent_of(request)
                self._end_child(call, now, complete=True)
                match answer:
                    case RemoteProtocolError():
                        return self.go_on(call, now, request.unreadable(answer))
                    case AuthorizationFailed():
                        return self.go_on(call, now, request.unauthorized(answer))
                    case _:
                        return self.go_on(call, now, answer)
            case Kind.LISTENER:
                may_listen_again = isinstance(answer, Lost) or (
                    isinstance(answer, Refusal) and answer.is_retryable
                )
                self._unsubscribed(request, now, for_good=not may_listen_again)
                return None
            case _:
                assert request.kind is _CALL
                return self.go_on(request, now, answer)

    def interrupted(self, request: PendingRequest, how: Cut | Restart, now: float) -> None:
        """Go on with a request whose connection has ended, and which may be sent again."""
        if isinstance(how, Cut):
            self.go_on(request, now, how)
        else:
            self.send(request, now)

    # Procedures of calls

    def go_on(
        self, call: PendingRequest, now: float, answer: StepAnswer = None
    ) -> SessionStep | None:
        """Let the procedure of a call take its next step: with an answer, or after a wait.

        Returns what the call needs of the session. It needs something only after an error response
        or a refusal.
        """
        assert call.procedure is not None
        self._procedures.now = now
        try:
            step = call.procedure.send(answer)
        except StopIteration as end:
            self.finish(call, end.value, now)
            return None
        if call.id is not None and not isinstance(step, NeedsInput | SessionOver):
            self._leave(call, now, complete=True)
        match step:
            case Send():
                self.send(call, now)
            case Ask() as ask:
                self._ask(call, ask, now)
            case Retry():
                timer = Timer.REPEAT if call.task is None else Timer.TASK_POLL
                self._timers.set(timer, call.number, now + step.delay)
                self._events.append(step.as_event(call.number))
            case Sleep(delay):
                self._timers.set(Timer.REPEAT, call.number, now + delay)
            case TaskReported(wait, input_requests):
                if input_requests is None or self._on_task_input(call, input_requests, now):
                    self._schedule_task_request(call, wait, now)
            case NeedsInput(members):
                self._start_round(call, members, now)
            case BecameTask() | TaskOver() | NeedsTools() | ToolsListed():
                self._note(call, step, now)
                return self.go_on(call, now)
            case NeedsVersion() | SessionOver():
                return step
            case _ as impossible:
                assert_never(impossible)
        return None

    def _note(
        self,
        call: PendingRequest,
        step: BecameTask | TaskOver | NeedsTools | ToolsListed,
        now: float,
    ) -> None:
        """Note what the procedure of a call was told."""
        match step:
            case BecameTask():
                self._events.extend(call.followed.news(call.number))
            case TaskOver():
                self._leave(call, now, complete=True)
                call.task = None
            case NeedsTools():
                self.cache.discard("tools/list")
            case _:
                self._events.extend(self._encoder.record_tools(step.result)[1])

    def _ask(self, call: PendingRequest, ask: Ask, now: float) -> None:
        """Make a request for the procedure of a call."""
        child = self._requests.add_own(ask.kind, ask.method, ask.params, call.number)
        call.child = child.number
        if ask.kind is Kind.TASK:
            self._timers.set(Timer.TASK_POLL, call.number, now + self._task_patience(call))
        self.send(child, now)

    # Tasks

    def _task_patience(self, call: PendingRequest) -> float:
        """Return the seconds to wait for the response to a request about a task."""
        assert call.timeouts is not None
        return call.timeouts.part(1 / 2, self._limits.post_timeout)

    def task_due(self, call: PendingRequest, now: float) -> None:
        """Make the next request about a task, or give up one without a response."""
        if call.child is None:
            self.go_on(call, now)
        else:
            wait = self._task_patience(call)
            self._end_child(call, now, complete=False)
            self.go_on(call, now, Lost(f"no response within {wait:g} s (post_timeout)"))

    def _on_task_input(
        self, call: PendingRequest, input_requests: dict[str, Any], now: float
    ) -> bool:
        """Report the new input requests of a task. Return False if they end the call."""
        task, number = call.followed, call.number
        assert call.timeouts is not None
        left = self._limits.max_server_requests_per_call - call.timeouts.server_requests
        outcome = self._server_requests.on_task_input(
            number,
            call.method,
            input_requests,
            task.responses.answered,
            left,
            is_owned=task.is_owned,
        )
        if isinstance(outcome, RoundFailed):
            self._on_round(outcome, now)
            return False
        for id in outcome.withdrawn:
            self._cancel_server_request(id, "the task no longer requires it", now)
        for key, response in outcome.declined.items():
            call.timeouts.server_requests += 1
            task.responses.add(key, response)
        task.unanswered = outcome.unanswered
        self._events.extend(call.followed.news(call.number))
        for request in outcome.requests:
            self._report_server_request(request, number, (number,), now)
        return True

    def _schedule_task_request(self, call: PendingRequest, wait: float, now: float) -> None:
        """Make the next request about a task after ``wait`` seconds, or before the call ends."""
        assert call.timeouts is not None
        wait = min(wait, max(call.timeouts.total_left(now) - 1, 1))
        if call.followed.responses.are_waiting:
            wait = 0.0
        call.timeouts.restart_at(now + wait)
        self._arm(call)
        self._timers.set(Timer.TASK_POLL, call.number, now + wait)
        params = call.followed.polling.subscribe()
        if params is not None:
            listener = self._requests.add_own(Kind.LISTENER, LISTEN, params, call.number)
            call.listener = listener.number
            self.send(listener, now)

    def on_task_changed(
        self, listener: PendingRequest, notification: Notification, now: float
    ) -> None:
        """Handle a notification of the subscription to a task."""
        call = self._requests.parent_of(listener)
        if call.followed.polling.on_notification(notification):
            self._ask_if_stale(call, now)
        else:
            self._end_listener(call, now, complete=False)
            call.followed.polling.on_unsubscribed(for_good=True)

    def _unsubscribed(self, listener: PendingRequest, now: float, *, for_good: bool) -> None:
        """Handle the end of the subscription to a task."""
        call = self._requests.parent_of(listener)
        self._end_listener(call, now, complete=True)
        call.followed.polling.on_unsubscribed(for_good=for_good)
        self._ask_if_stale(call, now)

    def _ask_if_stale(self, call: PendingRequest, now: float) -> None:
        """Ask for the state of a task that may have changed, unless that is being done."""
        if call.followed.polling.is_stale and call.child is None:
            self._schedule_task_request(call, 0.0, now)

    def _respond_to_task(self, call: PendingRequest, key: str, response: Any, now: float) -> None:
        """Send an input response, after the request about the task that is in flight."""
        call.followed.responses.add(key, response)
        if call.child is None:
            self.go_on(call, now)

    def _cancel_task(self, task: FollowedTask, now: float) -> None:
        """Cancel a task at the server, unless it belongs to another client."""
        message = self._cancellation_of(task)
        if message is not None:
            self.post(message, now)

    def _cancellation_of(self, task: FollowedTask) -> Request | None:
        if task.is_owned and self._encoder.agreed.is_modern:
            return Request(self._requests.new_id(), CANCEL_TASK, {"taskId": task.id})
        return None

    def cancel_late_task(self, message: Response | ErrorResponse, now: float) -> None:
        """Cancel the task of a call whose handle has crossed the cancellation of the call.

        The cancellation of a request does not end the task that it has become.
        """
        members = json.as_object(message.result) if isinstance(message, Response) else None
        id = None if members is None else task_id_of(members)
        if id is not None:
            self._cancel_task(self._procedures.new_task(id, is_owned=True), now)

    # Server requests and input requests

    def _start_round(self, request: PendingRequest, members: dict[str, Any], now: float) -> None:
        """Report the input requests of a result."""
        id, most = request.id, self._limits.max_server_requests_per_call
        self._leave(request, now, complete=True)
        assert request.timeouts is not None
        number, method = request.number, request.method
        left = most - request.timeouts.server_requests
        match self._server_requests.start_round(number, method, id, members, left):
            case RoundStarted(requests):
                for each in requests:
                    self._report_server_request(each, number, (number,), now)
            case RoundDone() | RoundFailed() as outcome:
                self._on_round(outcome, now)
            case _ as impossible:
                assert_never(impossible)

    def _on_round(self, outcome: RoundDone | RoundFailed, now: float) -> None:
        request = self._requests.calls[outcome.number]
        if isinstance(outcome, RoundFailed):
            self._send_cancellation(request, str(outcome.error), now)
            self.fail(request, outcome.error, now)
        else:
            self.go_on(request, now, outcome)

    def _report_server_request(
        self, request: Request, owner: int | None, stopped: tuple[int, ...], now: float
    ) -> None:
        """Report a server request, and pause the timeouts of the calls ``stopped``."""
        for number in stopped:
            call = self._requests.calls[number]
            assert call.timeouts is not None
            call.timeouts.pause(now)
            call.timeouts.server_requests += 1
            self._arm(call)
            if call.stream is not None:
                call.stream.idle_limit = idle_limit(call, self._limits.stream_idle_timeout)
        self._events.append(ServerRequestReceived(owner, request))

    def on_server_request(self, request: Request, owner: PendingRequest | None, now: float) -> None:
        """Report a server request; ``owner``: the request on whose stream it arrived."""
        if not self._encoder.agreed.revision.server_requests:
            self._events.report_violation(
                f"the request {request.method[:50]!r}", "unexpected_request"
            )
            return
        if owner is not None and owner.kind is not _CALL:
            owner = None
        number = None if owner is None else owner.number
        calls = self._requests.calls.values() if owner is None else (owner,)
        most = self._limits.max_server_requests_per_call
        used = {call.number: call.timeouts.server_requests for call in calls if call.timeouts}
        match self._server_requests.on_request(
            request,
            number,
            {each: most - count for each, count in used.items()},
            is_shared=self._link.is_shared,
            has_room=not self._link.is_full,
        ):
            case InputRequested(_, stopped):
                self._report_server_request(request, number, stopped, now)
            case Reply(message):
                self.post(message, now)
            case LimitExceeded(what):
                assert owner is not None
                text = f"{owner.method} led to {what}"
                self._send_cancellation(owner, text, now)
                self.fail(owner, owner.error(InvalidResponse, text), now)
            case Flooded(what):
                self._events.report_violation(what, "too_many")
            case None:
                pass
            case _ as impossible:
                assert_never(impossible)

    def respond(
        self, message: Response | ErrorResponse, now: float, *, declined: bool = False
    ) -> bool:
        """Respond to a server request. Return False if it is no longer open."""
        open_request = self._server_requests.take(message.id)
        if open_request is None:
            return False
        match self._server_requests.on_response(open_request, message):
            case Reply(reply):
                self.post(reply, now)
            case RoundDone() | RoundFailed() as outcome:
                self._on_round(outcome, now)
            case TaskInputDone(number, key, response):
                self._respond_to_task(self._requests.calls[number], key, response, now)
            case ResponseBuffered():
                pass
            case _ as impossible:
                assert_never(impossible)
        self._resume_timeouts(open_request.stopped, now, responded=not declined)
        return True

    def discard_server_requests(self) -> None:
        """Close all server requests: the session has ended."""
        for id in self._server_requests.clear():
            self._events.append(ServerRequestCancelled(id, "the session has ended"))

    def _cancel_server_request(self, id: RequestId, reason: str, now: float) -> None:
        """Close a server request that the server has cancelled."""
        open_request = self._server_requests.take(id)
        if open_request is not None:
            self._events.append(ServerRequestCancelled(id, reason))
            self._resume_timeouts(open_request.stopped, now, responded=False)

    # Timeouts

    def _resume_timeouts(self, numbers: tuple[int, ...], now: float, *, responded: bool) -> None:
        for number in numbers:
            call = self._requests.calls.get(number)
            if call is not None:
                assert call.timeouts is not None
                call.timeouts.resume(now, responded=responded)
                self._arm(call)
                if call.stream is not None:
                    call.stream.idle_limit = idle_limit(call, self._limits.stream_idle_timeout)

    def pause(self, request: PendingRequest, now: float) -> None:
        """Stop the timeouts of the call for which a request waits for authorization."""
        call = self._requests.call_of(request.number)
        if call is not None:
            assert call.timeouts is not None
            call.timeouts.pause(now)
            self._arm(call)

    def resume(self, request: PendingRequest, now: float) -> None:
        """Let the timeouts run on that :meth:`pause` has stopped."""
        call = self._requests.call_of(request.number)
        if call is not None:
            self._resume_timeouts((call.number,), now, responded=True)

    def _arm(self, call: PendingRequest) -> None:
        assert call.timeouts is not None
        self._timers.set(_REQUEST, call.number, call.timeouts.deadline)

    # Notifications of the server

    def on_progress(self, params: Params, now: float) -> None:
        """Report the progress of a call, and start its timeout again."""
        token, progress = params.get("progressToken"), params.get("progress")
        call = self._requests.by_id.get(token) if type(token) is int else None
        if not json.is_finite(progress):
            self._events.report_violation("progress that is not a number", "invalid_progress")
        elif call is not None and call.kind is _CALL:
            assert call.timeouts is not None
            call.timeouts.progressed(now)
            self._arm(call)
            total, text = params.get("total"), params.get("message")
            call.progress = ProgressReceived(
                call=call.number,
                progress=progress,
                total=total if json.is_finite(total) else None,
                message=text if isinstance(text, str) else None,
            )
            self._events.append(call.progress)

    def on_cancelled(self, params: Params, now: float) -> None:
        """Handle a cancellation: of a server request, or, at 2026-07-28, of a subscription."""
        id, reason = params.get("requestId"), params.get("reason")
        if not is_request_id(id):
            return
        call = self._requests.by_id.get(id)
        if self._encoder.agreed.revision.server_requests:
            self._cancel_server_request(
                id, reason if isinstance(reason, str) else "cancelled by the server", now
            )
        elif call is not None and call.kind is Kind.LISTENER:
            self._unsubscribed(call, now, for_good=False)
        elif call is not None and call.method == LISTEN:
            why = f"the server has ended the subscription: {reason or 'no reason given'}"
            self.fail(call, call.lost(why), now)

    # Messages that get no response

    def post(self, message: Request | Notification | Response | ErrorResponse, now: float) -> None:
        """Send a message by itself."""
        delivery = self._link.post(message, now)
        if delivery is None:
            return
        request, outcome = delivery
        if isinstance(outcome, Undelivered):
            self._events.append(MessageUndelivered(message, outcome.reason))
        elif isinstance(outcome, RemoteProtocolError):  # the responses of its turn are too much
            assert request is not None
            self.go_on(request, now, outcome)
