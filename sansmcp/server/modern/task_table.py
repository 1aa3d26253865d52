"""The tasks of a server: which calls become tasks, and which tasks run here.

A task belongs to no instance. Its state is in the store, and whoever gets a request about it reads
it there. The handler runs at one instance, whose name is in the state. An instance that is asked
about a task of another one follows the lease of that one for a while. If the other instance dies,
the task ends with an error; or, if its handler is restartable, it is called again here.

Source: the extension io.modelcontextprotocol/tasks at 2026-07-28; SEP-2663.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from ... import tasks
from ...app import TaskRule, check_task_rule
from ...codecs import jsonrpc
from ...events import CallReceived
from ...http import RequestHead
from ...input_required import HandlerInput
from ...messages import RequestId
from ...meta_keys import LOG_LEVEL, meta_of
from ...shares import Shares
from ...store import StreamKey
from .. import refusals
from ..calls import CallOwner, Responder, RunningCall, TaskPlan
from ..core import ServerCore
from ..input_checks import missing_capability
from ..leases import Lease, Peers
from ..logs import Logs
from ..procedures import StepFailedError, Steps, run
from ..records import RecordTooNewError
from .running_task import RunningTask
from .task_operation import Appends, KnownTask, change_task, task_key, unchanged
from .task_record import Reentry, TaskRecord

_FOLLOWED = 120.0
"""Seconds for which the instance of a task is followed after a client has asked for the task.
Clients poll more often, whatever interval they are told.
"""

_LOOKED_AT = 16
"""Parked tasks that are read at a time to see if they still wait for input."""

_MAX_RESTARTS = 3
"""How often a handler is called again without saving progress: perhaps it kills its instance."""


def require_declaration(capabilities: Mapping[str, Any], id: RequestId) -> None:
    """Refuse a request whose client has not declared the extension."""
    if not tasks.declares_tasks(capabilities):
        raise missing_capability({"extensions": {tasks.EXTENSION: {}}}, id)


@attrs.define(eq=False, repr=False)
class TaskTable:
    """The tasks whose handlers run here, and the operations on all tasks."""

    _core: ServerCore
    logs: Logs
    _lease: Lease | None
    """None if no other instance shares the store."""
    _peers: Peers
    _running: dict[StreamKey, RunningTask] = attrs.field(
        factory=dict[StreamKey, RunningTask], init=False
    )
    """The tasks whose handlers run here, or whose states are being stored."""
    _principals: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of running and parked tasks by principal."""
    _parked: dict[str, dict[StreamKey, None]] = attrs.field(
        factory=dict[str, "dict[StreamKey, None]"], init=False
    )
    """The tasks that were parked here and wait for input, as far as is known, by principal."""
    _looking: int = attrs.field(default=0, init=False)
    """The number of parked tasks that are being read because there is no room."""
    _appends: Appends = attrs.field(
        default=attrs.Factory(lambda self: Appends(self._core.instance), takes_self=True),
        init=False,
    )

    @property
    def needs_lease(self) -> bool:
        """True if tasks run here."""
        return bool(self._running)

    @property
    def are_ending(self) -> bool:
        """True if any task whose handler has ended is being stored."""
        return any(not task.call.is_running for task in self._running.values())

    # Calls that become tasks

    def plan(self, call: RunningCall) -> TaskPlan | None:
        """Return when a call becomes a task; None if it does not.

        Raises RemoteProtocolError for a call that needs a task, and cannot become one.
        """
        rule = self._rule(call)
        if rule is None:
            if not self._core.options.shared_store:
                return None
            after = None if _loses_messages(call) else self._core.options.task_after
        elif rule == "never":
            return None
        else:
            after = self._core.options.task_after if isinstance(rule, str) else rule
        is_required = rule == "required"
        if is_required:
            require_declaration(call.peer.client_capabilities, call.request.id)
        if not tasks.declares_tasks(call.peer.client_capabilities):
            return None
        if is_required:
            self._check_room(call)
        return TaskPlan(self.new_task, after, is_required)

    def _rule(self, call: RunningCall) -> TaskRule:
        """Return the rule of the application for a call."""
        rule: TaskRule | Callable[[Any], TaskRule] = self._core.app.options_of("tools/call").task
        if not callable(rule):
            return rule
        try:
            chosen: TaskRule = rule(call)
            check_task_rule(chosen)
        except Exception as error:
            # Not its text, which could contain secrets.
            what = type(error).__name__
            raise refusals.BAD_TASK_RULE(call.request.id, what=what) from error
        return chosen

    def limit_for(self, principal: str, *, goes_on: bool = False) -> int | None:
        """Return the limit that is reached; None if there is room for the handler of a task.

        ``goes_on``: True for a task that has begun before, here or elsewhere. Parked tasks leave
        room for it: else two instances, each full of tasks that it has parked, would refuse each
        other's for ever if clients reach the other one.
        """
        limits, claims = self._core.limits, self._appends.claims
        parked = self._parked if goes_on else {}
        of_principal = self._principals.of(principal) + claims.of(principal)
        of_principal -= len(parked.get(principal, ()))
        if principal and of_principal >= limits.max_tasks_per_principal:
            self._look_at_parked(principal)
            return limits.max_tasks_per_principal
        total = self._principals.total + claims.total
        if total >= limits.max_tasks and total - sum(map(len, parked.values())) >= limits.max_tasks:
            self._look_at_parked(next(iter(self._parked), ""))
            return limits.max_tasks
        return None

    def _check_room(self, call: RunningCall) -> None:
        """Raise RemoteProtocolError if there are too many tasks."""
        limit = self.limit_for(call.peer.principal)
        if limit is not None:
            raise refusals.TOO_MANY_TASKS(call.request.id, limit=limit)

    def new_task(self, call: RunningCall, origin: Responder) -> RunningTask:
        """Return a task for a call; ``origin`` gets the handle.

        Raises RemoteProtocolError if there are too many tasks.
        """
        self._check_room(call)
        core = self._core
        reentry = None
        if core.app.options_of(call.request.method).is_restartable(call.request):
            given, saved = call.handler_input, call.saved_progress
            state = given.state if saved is None else saved
            responses = dict(given.input_responses)
            reentry = Reentry(call.request, {}, responses, state)
        time = core.wall_time()
        record = TaskRecord(
            created=time,
            updated=time,
            ttl=None,
            poll_interval=core.options.task_poll_interval,
            writer=core.instance,
            reentry=reentry,
        )
        key = task_key(call.peer.principal, core.token())
        task = RunningTask(core, self.logs, self, key, record, origin.head, call.peer, origin)
        task.call = call
        return self._add(key, task)

    def _add(self, key: StreamKey, task: RunningTask) -> RunningTask:
        self._running[key] = task
        self._principals.change(key.principal, 1)
        if self._lease is not None:
            self._lease.keep(self)
        return task

    def on_settled(self, task: RunningTask) -> None:
        """Forget a task: its handler runs no longer, and the store has its state.

        Its handler may run here again already: a client may have answered the question before the
        append of that was reported.
        """
        if self._running.get(task.key) is task:
            del self._running[task.key]
        self._principals.change(task.key.principal, -1)

    # Parked tasks: any instance may go on with them, end them, or let them expire. This one learns
    # of it when it reads the task; it does so for some of them when there is no room.

    def on_parked(self, task: RunningTask) -> None:
        """Count a task that waits for input, unless its handler runs here again already."""
        key = task.key
        if key not in self._running and key not in self._parked.get(key.principal, ()):
            self._parked.setdefault(key.principal, {})[key] = None
            self._principals.change(key.principal, 1)

    def _unpark(self, key: StreamKey) -> None:
        """Count a task no longer, if it counts as parked."""
        parked = self._parked.get(key.principal, {})
        if key in parked:
            del parked[key]
            if not parked:
                del self._parked[key.principal]
            self._principals.change(key.principal, -1)

    def _look_at_parked(self, principal: str) -> None:
        """Read some of the parked tasks of a principal, those first that were not read for long."""
        parked = self._parked.get(principal)
        if parked is None or self._looking:
            return
        self._parked[principal] = self._parked.pop(principal)
        for key in tuple(itertools.islice(parked, _LOOKED_AT)):
            parked[key] = parked.pop(key)
            self._looking += 1
            run(self.logs, self._look_at(key))

    def _look_at(self, key: StreamKey) -> Steps[None]:
        try:
            yield from self.change(key, unchanged)
        except (StepFailedError, RecordTooNewError):
            pass  # it keeps its place for now
        finally:
            self._looking -= 1

    # Operations

    def change(
        self,
        key: StreamKey,
        decide: Callable[[TaskRecord], TaskRecord | None],
        after: int = 0,
    ) -> Steps[KnownTask | None]:
        """Do as ``change_task()``, and notice if a task has ended or its instance may have died."""
        running = self._running.get(key)
        after = max(0, (after if running is None else running.seq) - 1)
        known = yield from change_task(self._core, key, decide, self._appends, after)
        if known is None or known.record.status != tasks.INPUT_REQUIRED:
            self._unpark(key)
        if known is None:
            return None
        running, record = self._running.get(key), known.record
        if running is not None and known.seq > running.seq and record.is_terminal:
            running.end_elsewhere()
        if known.is_changed:
            self.logs.on_changed(key)
        elif record.status == tasks.WORKING and running is None:
            self._follow(key, record)
        return known

    def _follow(self, key: StreamKey, record: TaskRecord, *, is_again: bool = False) -> None:
        """Notice if the instance that runs a task has died.

        ``is_again``: True if it has, and there was no room for the task here. The end of a lease is
        seen at once, so without a pause this would go round in circles.
        """
        on_death = partial(self._on_death, key, record.writer, record.updated)
        if record.writer == self._core.instance:
            on_death()  # it has, and was this one before it was started again
        else:
            until = self._core.now + _FOLLOWED
            self._peers.follow(
                record.writer, key, on_death, until, record.updated, is_patient=is_again
            )

    def _on_death(self, key: StreamKey, writer: str, updated: float) -> None:
        """Go on with a task whose instance has died, or end it with an error.

        ``updated``: the time of the state that was seen last. If there is another one, the instance
        may have kept no lease only because the task waited for input.
        """
        run(self.logs, self._after_death(key, writer, updated), lambda: True)

    def _after_death(self, key: StreamKey, writer: str, updated: float) -> Steps[None]:
        decide = partial(self._take_over, key, writer, updated)
        try:
            known = yield from change_task(self._core, key, decide, self._appends)
        except (StepFailedError, RecordTooNewError):
            return  # the next request about the task tries again
        if known is None:
            return
        record = known.record
        if known.is_changed and record.reentry is not None:
            self.go_on(key, known, record.reentry, None)
        elif record.status == tasks.WORKING and record.writer != self._core.instance:
            self._follow(key, record, is_again=True)
        if known.is_changed:
            self.logs.on_changed(key)

    def _take_over(
        self, key: StreamKey, writer: str, updated: float, record: TaskRecord
    ) -> TaskRecord | None:
        if record.status != tasks.WORKING or (record.writer, record.updated) != (writer, updated):
            return None
        # An append that makes this instance the writer may be done, and its completion may not have
        # been reported yet. Then the handler is called when it is.
        is_claimed = key in self._running or self._appends.by_task.of(key) > 0
        if writer == self._core.instance and is_claimed:
            return None
        time, reentry = self._core.wall_time(), record.reentry
        if reentry is None or reentry.restarts >= _MAX_RESTARTS:
            error = refusals.TASK_LOST().reply
            details = {"code": error.code, "message": error.message, "data": error.data}
            record = record.failed(details, time)
        elif self.limit_for(key.principal, goes_on=True) is not None:
            return None  # follow it again: there may be room later, here or elsewhere
        else:
            reentry = attrs.evolve(reentry, restarts=reentry.restarts + 1)
            record = attrs.evolve(record, writer=self._core.instance, reentry=reentry)
        return record.kept(time, self._core.limits.max_stored_age)

    def go_on(
        self, key: StreamKey, known: KnownTask, reentry: Reentry, head: RequestHead | None
    ) -> None:
        """Call the handler of a task here; the state that says so is stored.

        ``head``: that of the HTTP request with the last input response; None if there was none.
        """
        core, request = self._core, reentry.request
        if core.has_stopped:
            return  # this instance counts as dead, and others end the task
        caller = CallOwner.of_meta(meta_of(request), key.principal, core.modern_versions[-1])
        given = HandlerInput(reentry.responses, reentry.state)
        task = RunningTask(
            core, self.logs, self, key, known.record, head, caller, origin=None, seq=known.seq
        )
        call = task.call = RunningCall(core, caller, request, task, given, reentry.rounds)
        call.join_task(task)
        self._add(key, task).go_on()
        core.stateless[call] = None
        core.events.append(CallReceived(call))


def _loses_messages(call: RunningCall) -> bool:
    """Return True if the client wants messages that a task does not send."""
    meta = meta_of(call.request)
    has_token = jsonrpc.is_request_id(meta.get("progressToken"))
    return LOG_LEVEL in meta or (has_token and meta.get(tasks.PROGRESS_UNSHOWN) is not True)
