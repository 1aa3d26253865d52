"""A task whose handler runs here: the writer of its log, and the responder of its call.

A call becomes a task in two steps. First its state is appended to a log; until the store has it,
the call keeps its connection. Then the client gets the handle, and the connection is no longer
needed. What the handler sends from there on changes the state of the task: the result or an error
ends it, ``InputRequired`` parks it, progress is its status message.

Each entry of the log is the whole state, so of several changes only the last one is appended.
Reports of progress are appended once per poll interval at most, everything else at once. The state
is appended again from time to time, so that a running task outlives its time to live.

If another instance appends to the log, it has ended the task (a cancellation, or because this
instance seemed to be dead). Then the handler is cancelled.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import attrs

from ... import tasks
from ...codecs import json, jsonrpc
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...errors import RemoteProtocolError
from ...http import RequestHead
from ...input_required import InputRequired
from ...messages import ErrorResponse, Message, Request
from ...states import TASK_LOG, TaskLogEvent, TaskLogState, advance
from ...store import Page, StreamKey
from ...timers import Timer
from .. import refusals
from ..calls import MAX_DEPTH, CallOwner, Responder, RunningCall
from ..core import ServerCore
from ..input_checks import check_asking, missing_capabilities, missing_capability
from ..logs import LogReader, Logs
from .results import ModernResults
from .task_operation import task_entry
from .task_record import MAX_MESSAGE_CHARS, Reentry, TaskRecord

_NEXT_ATTEMPT = 1.0
"""Seconds after which a state that the store has not taken is appended again."""


class TaskOwner(Protocol):
    """The table of the tasks that run here."""

    def on_settled(self, task: RunningTask) -> None:
        """Forget a task: its handler runs no longer, and the store has its state."""

    def on_parked(self, task: RunningTask) -> None:
        """Count a task that has settled because it waits for input."""


@attrs.define(eq=False, repr=False)
class RunningTask(ModernResults, LogReader):
    """Writes the log of one task, and takes what its handler sends."""

    _core: ServerCore
    _logs: Logs
    _owner: TaskOwner
    key: StreamKey
    """The log."""
    record: TaskRecord
    """The state, which the store may not have yet."""
    head: RequestHead | None
    """The head of the HTTP request that made or continued the task; None on stdio."""
    session: CallOwner
    """The owner of the call."""
    origin: Responder | None
    """The responder of the request that made the task; None when the client has the handle."""
    seq: int = 0
    """The number of the last entry that is stored."""
    call: RunningCall = attrs.field(init=False)
    open_calls: int = attrs.field(default=1, init=False)
    # There is at most one append in flight, of _being_stored, as the entry seq + 1: what changes
    # meanwhile changes record alone. While the log is WAITING, the store has _being_stored, and
    # record is that or a report of progress, which waits for the timer.
    _log_state: TaskLogState = attrs.field(default=TaskLogState.WAITING, init=False)
    _being_stored: TaskRecord = attrs.field(init=False)
    """The state that is being appended, or was last."""
    _is_saving: bool = attrs.field(default=False, init=False)
    """True if the handler waits until the state is stored."""
    _stored_at: float = attrs.field(default=-math.inf, init=False)
    """When the state was stored last."""
    _ends_at: float = attrs.field(init=False)
    """Until when the handler may run."""
    _response: tuple[bytes, int] | None = attrs.field(default=None, init=False)
    """The response of the handler and its HTTP status, for a client that gets no handle."""

    def __attrs_post_init__(self) -> None:
        self._being_stored = self.record
        self._ends_at = self._core.now + self._core.limits.task_timeout

    @property
    def is_told(self) -> bool:
        """True if the client has the handle."""
        return self.origin is None

    def begin(self) -> None:
        """Store the first state, and give the client the handle then."""
        self._change(self.record, is_urgent=True)

    def go_on(self) -> None:
        """Write on in the log of a task that was parked, or whose instance has died."""
        self._stored_at = self._core.now
        self._follow()
        self._wait()

    # What the handler sends

    def start(self) -> None:
        """Do nothing: the call has begun."""

    def require(self, call: RunningCall, required: InputRequired) -> ErrorResponse | bool:
        """Park the task until the client has sent the input responses.

        Returns an error if the client lacks a capability. Raises LocalProtocolError, and does
        nothing, if the input requests are not valid.
        """
        check_asking(call.request, required)
        call.check_input_requests(required)
        missing = missing_capabilities(required, call.peer.client_capabilities)
        if missing:
            return missing_capability(missing, call.request.id).reply
        if not required.requests:
            self._save_reentry(responses={}, state=required.state, rounds=call.rounds + 1)
            return call.send_input_requests(required)
        rounds = call.rounds + 1
        names = {f"{rounds}.{name}": name for name in required.requests}
        asked = {
            key: {
                "method": required.requests[name].method,
                "params": dict(required.requests[name].params),
            }
            for key, name in names.items()
        }
        reentry = Reentry(call.request, names, {}, required.state, rounds)
        parked = attrs.evolve(
            self.record,
            status=tasks.INPUT_REQUIRED,
            updated=self._core.wall_time(),
            writer="",
            input_requests=asked,
            reentry=reentry,
        )
        call.end_parked()
        self.open_calls = 0
        self._change(parked, is_urgent=True)
        return True

    def may_send(self, request: Request, message: Message) -> bool:
        """True for a message before the handle; afterwards there is no stream for it."""
        return self.origin is not None and self.origin.may_send(request, message)

    @property
    def is_above_high_water(self) -> bool:
        """True if the handler waits for the handle, or for the state that it saves."""
        return not self.is_told or self._is_saving

    @property
    def is_connected(self) -> bool:
        """True until the client has the handle, if it is connected: then it polls."""
        return self.origin is not None and self.origin.is_connected

    def message(self, data: bytes) -> bool:
        """Send a message before the handle. Returns False if it is lost."""
        return self.origin is not None and self.origin.message(data)

    def respond(self, data: bytes, http_status: int = 200) -> bool:
        """End the task with the response of the handler."""
        self.open_calls = 0
        origin = self.origin
        if origin is not None and self._core.has_stopped:
            self._settle()
            return origin.respond(data, http_status)
        if self._core.has_stopped and self.record.reentry is not None:
            self._settle()  # another instance goes on
            return True
        self._response = (data, http_status)
        response = _decoded(data)
        time = self._core.wall_time()
        if "result" in response:
            ended = self.record.ended(tasks.COMPLETED, time, outcome={"result": response["result"]})
        elif self._core.has_stopped:
            error = refusals.TASK_STOPPED().reply
            details = {"code": error.code, "message": error.message, "data": error.data}
            ended = self.record.failed(details, time)
        else:
            ended = self.record.failed(response["error"], time)
        self._change(ended, is_urgent=True)
        return True

    def complete_without_response(self) -> None:
        """End the task as cancelled: the client has left before it got the handle."""
        self.open_calls = 0
        if self.origin is not None:
            self.origin.complete_without_response()
        self._change(self.record.ended(tasks.CANCELLED, self._core.wall_time()), is_urgent=True)

    def disconnect(self, retry: int | None) -> bool:
        """Always False: there is no stream that could be resumed."""
        return False

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Make a progress report the status message. Raises LocalProtocolError if it is no JSON."""
        numbers: dict[str, Any] = {"progress": progress}
        if total is not None:
            numbers["total"] = total
        json.encode([numbers, message])
        if message is None:
            message = " of ".join(map(_shown, numbers.values()))
        changed = attrs.evolve(
            self.record,
            message=message[:MAX_MESSAGE_CHARS],
            progress=numbers,
            updated=self._core.wall_time(),
        )
        self._change(changed, is_urgent=False)

    def save(self, state: Any) -> None:
        """Save the state from which another instance may enter the handler again."""
        self._is_saving = True
        self._save_reentry(state=state)

    def _save_reentry(self, **changes: Any) -> None:
        if self.record.reentry is not None:
            reentry = attrs.evolve(self.record.reentry, **changes, restarts=0)
            self._change(attrs.evolve(self.record, reentry=reentry), is_urgent=True)

    # The log

    def _change(self, record: TaskRecord, *, is_urgent: bool) -> None:
        if self.record.is_terminal or self._is_settled:
            return
        self.record = record
        if is_urgent:
            self._advance(TaskLogEvent.CHANGE)
        self._wait()

    def on_due(self) -> None:
        """Store the state, because it is to be stored now; end a task that takes too long."""
        if self._core.now >= self._ends_at and self.call.is_running:
            error = refusals.TASK_TIMED_OUT(limit=self._core.limits.task_timeout).reply
            details = {"code": error.code, "message": error.message, "data": error.data}
            failed = self.record.failed(details, self._core.wall_time())
            self._change(failed, is_urgent=True)
            self.call.cancel("the task takes too long")
        else:
            self._append()

    def _wait(self) -> None:
        """Store the state at once, or set the time for it."""
        if self._is_appending:
            return
        if self._log_state is TaskLogState.DUE:
            self._append()
            return
        limits = self._core.limits
        is_new = self.record is not self._being_stored
        interval = self.record.poll_interval if is_new else self._core.refresh_interval
        due = min(self._stored_at + min(interval, limits.max_stored_age / 3), self._ends_at)
        if due <= self._core.now:
            self._append()
        else:
            self._core.timers.set(Timer.STORED, self, due)

    def _append(self) -> None:
        core = self._core
        core.timers.stop(Timer.STORED, self)
        self._advance(TaskLogEvent.APPEND)
        self.record = self.record.kept(core.wall_time(), core.limits.max_stored_age)
        self._being_stored = self.record
        entry = task_entry(self.seq + 1, self.record)
        self._logs.append(self.key, (entry,), self)

    def on_append_done(self) -> None:
        """Go on with the newest state; the client gets the handle when the first one is stored."""
        if self._is_settled:
            return
        stored = self._being_stored
        self._advance(TaskLogEvent.STORED)
        self.seq += 1
        self._stored_at = self._core.now
        self._is_saving = self._is_saving and self._log_state is TaskLogState.DUE
        if self.origin is not None:
            self._tell(stored)
        self._logs.on_changed(self.key)
        if stored.is_terminal:
            self._settle()
        elif stored.status == tasks.INPUT_REQUIRED:
            self._settle()
            self._owner.on_parked(self)
        else:
            self._wait()

    def _tell(self, stored: TaskRecord) -> None:
        """Give the client the handle."""
        origin, self.origin = self.origin, None
        assert origin is not None
        self.call.leave_connection()
        if origin.open_calls:
            handle = stored.handle(self.key.stream)
            origin.respond(jsonrpc.encode(self.format_handle(self.call.request, handle)))
        self._follow()

    def on_append_conflict(self) -> None:
        """Cancel the handler: another instance has ended the task, or goes on with it."""
        self.end_elsewhere()

    def on_append_behind(self) -> None:
        """Look where the log ends now, and append there."""
        if not self._is_settled:
            self._advance(TaskLogEvent.FAIL)
            self._read(0)

    def may_repeat(self, effect: StoreEffect) -> bool:
        """Repeat an append when the client has the handle. Before, the call can do without."""
        return isinstance(effect, StoreAppend) and self.is_told

    def failed(self, effect: StoreEffect) -> bool:
        """Go on without a task, or try again later."""
        if isinstance(effect, StoreRead) or self._is_settled:
            self._poll_later()
            return True
        if self.origin is not None:
            self._do_without(self.origin)
        elif self._core.has_stopped:
            self._settle()
            return False
        else:
            self._advance(TaskLogEvent.FAIL)
            self._core.timers.set(Timer.STORED, self, self._core.now + _NEXT_ATTEMPT)
        return True

    def _do_without(self, origin: Responder) -> None:
        """Let the call go on as one that is no task, because the store has failed."""
        self._settle()
        if self._response is not None:
            origin.respond(*self._response)
        elif self.call.is_running:
            self.call.leave_task(origin)
        elif origin.open_calls:
            origin.respond(jsonrpc.encode(refusals.TASK_NOT_STORED(self.call.request.id).reply))

    def poll_store(self) -> None:
        """Read what another instance may have appended."""
        if self._is_appending:
            self._poll_later()
        else:
            self._read(self.seq)

    def _read(self, after: int) -> None:
        most = self._core.limits.max_stored_bytes
        self._logs.read(self.key, after, self, limit=1, max_bytes=most)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        if self._is_settled or self._is_appending:
            self._poll_later()
        elif page is not None and page.last.seq > self.seq and not self._is_own(page):
            self.end_elsewhere()
        elif self._log_state is TaskLogState.DUE:
            self.seq = 0 if page is None else page.last.seq
            self._append()
        elif page is None:  # the store has evicted it
            self._append()
            self._poll_later()
        else:
            self._poll_later()

    def _is_own(self, page: Page) -> bool:
        """Return True if the newest entry is that of an append that was given up, and was done."""
        entry = task_entry(self.seq + 1, self._being_stored)
        return page.last.seq == entry.seq and page.entries == (entry,)

    def end_elsewhere(self) -> None:
        """Cancel the handler: another operation has ended the task."""
        if self._is_settled:
            return
        self._settle()
        if self.call.is_running:
            self.call.cancel("the task has been cancelled, or ended by another instance")

    def _follow(self) -> None:
        """Notice if another instance appends to the log."""
        if self._core.options.shared_store:
            self._logs.watch(self.key, self)
            self._poll_later()

    def _poll_later(self) -> None:
        if not self._is_settled and self.is_told and self._core.options.shared_store:
            self._logs.poll_later(self.key, self)

    def _settle(self) -> None:
        self._advance(TaskLogEvent.SETTLE)
        self._core.timers.stop(Timer.STORED, self)
        self._logs.unwatch(self.key, self)
        self._owner.on_settled(self)

    @property
    def _is_appending(self) -> bool:
        return self._log_state in (TaskLogState.APPENDING, TaskLogState.OUTDATED)

    @property
    def _is_settled(self) -> bool:
        return self._log_state is TaskLogState.SETTLED

    def _advance(self, event: TaskLogEvent) -> None:
        self._log_state = advance(TASK_LOG, self._log_state, event)


def _decoded(data: bytes) -> dict[str, Any]:
    """Return a response of the handler; an error instead of one that nests too deep."""
    try:
        response: dict[str, Any] = json.decode(data, MAX_DEPTH)
    except RemoteProtocolError:
        error = refusals.TASK_TOO_DEEP(limit=MAX_DEPTH).reply
        response = {"error": {"code": error.code, "message": error.message, "data": error.data}}
    return response


def _shown(number: float) -> str:
    """Return a number as text. An integer may be too large for a float."""
    return f"{number:g}" if isinstance(number, float) else str(number)
