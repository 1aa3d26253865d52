"""Tasks of a simulated world: what their logs have had, who knows them, and what must hold.

Each entry of the log of a task is its whole state. So the store of the world tells the state of
each task at any time, and what clients are shown and handlers do is compared with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs

from sansmcp import Entry, JsonRpcError, ServerCall, StreamKey
from sansmcp.app import TaskRule
from sansmcp.errors import CallError, RequestTimeout, TaskCancelled, TaskLost
from sansmcp.meta_keys import LISTEN, SUBSCRIPTION_ID
from sansmcp.server import refusals
from sansmcp.server.modern.task_operation import task_key
from sansmcp.server.modern.task_record import TaskRecord
from sansmcp.tasks import CANCEL, CANCELLED, COMPLETED, FAILED, GET, TASK_IDS, WORKING

from . import remains

if TYPE_CHECKING:
    from .peers import Customer, Instance, Made
    from .simulator import Errand, World

ATTACH = "attach"
"""Stands for a method: wait for the task that another call has started."""
_NOTICED = 8.0
"""Seconds after which an instance has noticed that another one has ended its task: more than
``store_check_interval`` and a quarter of it.
"""
CUTS = ("cut", "refused", "silence", "kill", "stop", "stall", "hiccup")
"""What may keep a client from reaching any server."""
_LOST = "instance_lost"
_DIED = refusals.TASK_LOST().reply.message
"""In the reason for which a call is made again whose task has died."""
_RESTARTS = 3
"""How often a handler is entered again that saves nothing."""


def is_log_of_task(key: StreamKey) -> bool:
    """Whether a log is that of a task."""
    return key.session == task_key("", "").session


@attrs.frozen(kw_only=True)
class TaskTerms:
    """How a call may become a task."""

    rule: TaskRule
    """What the application says."""
    is_detached: bool
    """Whether its client takes the handle for the result."""
    wants_log: bool
    wants_progress: bool


@attrs.frozen
class _State:
    """A state of a task in the store."""

    record: TaskRecord
    at: float
    """When the store had it."""


@attrs.define
class _Task:
    """What is known of one task."""

    states: list[_State] = attrs.field(factory=list[_State])
    asked: set[str] = attrs.field(factory=set[str])
    """The keys of all its input requests."""
    claims: set[int] = attrs.field(factory=set[int])
    """The states that have made an instance enter the handler again."""
    cancelled_by: list[str] = attrs.field(factory=list[str])
    """Who has wanted its end."""
    shown: tuple[float, str] | None = None
    """When a reader was first shown its end, and as what."""
    awaited_by: set[str] = attrs.field(factory=set[str])
    """The instances that have to notice that its handler has died."""
    is_lost: bool = False
    """Whether the store has lost a state of it: then nothing is certain any more."""

    @property
    def last(self) -> TaskRecord:
        return self.states[-1].record


class Tasks:
    """All tasks of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: defaultdict[StreamKey, _Task] = defaultdict(_Task)
        self._known: dict[str, StreamKey] = {}
        """Those whose handle a client has, by their ids."""
        self._followers = 0
        self.is_restartable = world.fates.pick("restartable", (True, False))

    def lose(self, since: float) -> None:
        """The store has lost all states that it got since then."""
        for task in self._tasks.values():
            task.is_lost = task.is_lost or any(state.at >= since for state in task.states)

    def is_lost(self, task_id: str | None) -> bool:
        """Whether the store has lost a state of a task."""
        return task_id in self._known and self._tasks[self._known[task_id]].is_lost

    def may_be_gone(self, task_id: str) -> bool:
        """Whether a task may be unknown to the store: it has lost it, or has kept it long enough.

        One whose handler runs is kept: its instance stores it again. When that has died, its last
        state is kept as long as any entry. Whether others notice the death soon enough after they
        have read the task is looked at by ``was_read()``.
        """
        world, task = self._world, self._tasks[self._known[task_id]]
        runs_it = world.instance_of(task.last.writer)
        is_working = task.last.status == WORKING
        is_kept = is_working and (runs_it is None or runs_it.is_alive)
        age = world.limits.max_stored_age / (1 if is_working else 2)
        is_old = not is_kept and world.clock.now >= task.states[-1].at + age
        return task.is_lost or is_old or "small store" in world.features

    def rule_of(self, call: ServerCall) -> TaskRule:
        """Return what the application says about a call."""
        terms = self._world.errands[call.request.params["arguments"]["call"]].task  # type: ignore[index]
        return "never" if terms is None else terms.rule

    # What the store has

    def appended(self, key: StreamKey, entries: Sequence[Entry], writer: str) -> None:
        """A log has new entries."""
        if not is_log_of_task(key):
            return
        task, world, name = self._tasks[key], self._world, key.stream
        if task.is_lost:
            return
        for entry in entries:
            record = TaskRecord.decode(entry.data)
            if task.states:
                self._check_step(key, task, record, writer)
            new = set(record.input_requests)
            if task.states:
                new -= task.last.input_requests.keys()
            if new & task.asked:
                world.fail("tasks", f"{name} asks again for {new & task.asked}")
            task.asked |= new
            task.states.append(_State(record, world.clock.now))
            world.tell(f"task {name} is {record.status}, run by {record.writer!r}, says {writer}")

    def _check_step(self, key: StreamKey, task: _Task, record: TaskRecord, writer: str) -> None:
        """Fail if a state may not follow the one before."""
        world, last, name = self._world, task.last, key.stream
        if last.is_terminal:
            world.fail("tasks", f"{name} was {last.status}, and is {record.status} now")
        before, after = last.reentry, record.reentry
        if before is not None and after is not None and before.rounds == after.rounds:
            for question, answer in before.responses.items():
                if after.responses.get(question) != answer:
                    world.fail("tasks", f"{name}: the answer to {question} is replaced")
        if 0 < len(record.input_requests) < len(last.input_requests):
            world.reach("task answered in part")
        if last.status != WORKING or record.writer == last.writer:
            return
        is_lost = _reason_of(record) == _LOST
        if is_lost and before is not None and before.restarts < _RESTARTS:
            world.fail("tasks", f"{name} is given up, and may be entered again")
        if is_lost or record.status == WORKING:
            dead, heir = world.instance_of(last.writer), world.instance_of(writer)
            assert dead is not None, "states name their writers"
            assert heir is not None, "tokens name their instances"
            if dead is heir and not heir.has_ended:
                world.fail("leases", f"{heir.name} takes itself for dead, which runs {name}")
            if dead is not heir:
                heir.seat.check_verdict(dead, key)

    def count_states(self, key: StreamKey) -> int:
        """Return how many states a task has had."""
        return len(self._tasks[key].states) if key in self._tasks else 0

    def was_read(self, key: StreamKey, by: Instance, states: int) -> None:
        """An instance has read a task, when it had had so many states.

        If the instance has died that runs its handler, the reader has to notice that soon.
        """
        task, world = self._tasks.get(key), self._world
        if task is None or len(task.states) > states or by.name in task.awaited_by:
            return
        if task.is_lost:
            return
        dead = world.instance_of(task.last.writer)
        if task.last.status != WORKING or dead is None or dead.is_alive:
            return
        task.awaited_by.add(by.name)
        read_at = world.clock.now
        bound = world.longest_lease + 2.0 + 15.0 * ("slow store" in world.features)

        def look() -> None:
            if not remains.has_room_for_tasks(by.server):
                by.seat.full_at = world.clock.now
            # Without room it follows the task again, for the time of another lease.
            due = bound + max(read_at, by.seat.troubled_at, by.seat.full_at)
            is_over = not by.is_alive or by.stops or task.is_lost
            is_over = is_over or world.clock.now > read_at + 100.0 or by.seat.has_evicted(key)
            if is_over or len(task.states) > states:
                task.awaited_by.discard(by.name)
            elif world.clock.now >= due:
                text = f"{by.name} does not notice that {dead.name} has died, which ran {key}"
                world.fail("leases", text)
            else:
                world.clock.call_at(due, look)

        world.clock.call_later(bound, look)

    # What handlers do

    def key_of(self, call: ServerCall) -> StreamKey | None:
        """Return the key of the task that a call is, or becomes."""
        return remains.task_of(call)

    def enters(self, call: ServerCall, instance: Instance) -> bool:
        """A handler is entered. Returns True if it was entered before, by an instance that died."""
        key = self.key_of(call)
        if key is None or remains.is_of_a_request(call):
            return False
        task, name = self._tasks[key], remains.name_in_logs(instance.server)
        if task.is_lost:
            return True
        records = [state.record for state in task.states]
        claims = [
            place
            for place, record in enumerate(records)
            if record.writer == name and place and records[place - 1].writer != name
        ]
        if not claims or claims[-1] in task.claims:
            text = f"{instance.name} enters {key} without being its writer"
            self._world.fail("executions", text)
        task.claims.add(claims[-1])
        is_restarted = records[claims[-1] - 1].status == WORKING
        restarted = "entered again after the death of an instance"
        self._world.reach(f"task {restarted if is_restarted else 'goes on with answers'}")
        return is_restarted

    def check_runs(self, call: ServerCall, instance: Instance) -> None:
        """Fail if a handler goes on long after its task has ended, or has gone to another one."""
        key = self.key_of(call)
        task = None if key is None else self._tasks.get(key)
        if task is None or task.is_lost or not call.is_task:
            return
        last, world = task.states[-1], self._world
        is_ours = last.record.writer == remains.name_in_logs(instance.server)
        bound = _NOTICED + 30.0 * ("slow store" in world.features)
        if not is_ours and world.clock.now > bound + max(last.at, instance.seat.troubled_at):
            text = f"{instance.name} runs {key}, which is {last.record.status} since {last.at:.1f}"
            world.fail("executions", text)

    # What clients know

    def may_begin_anew(self, made: Made, reason: str) -> None:
        """A call is sent again for a reason. If its task has died, it has none from now on.

        A safe call whose task died with its instance is made again. Until it has the handle of the
        next task, it is like a call that has none, and may end as one.
        """
        is_own = made.task_id is not None and not made.errand.subject and made.errand.is_safe
        if is_own and _DIED in reason and self._has_died(str(made.task_id)):
            made.task_id, made.lost_task = None, True

    def _has_died(self, task_id: str) -> bool:
        """Whether a task has failed because its instance has died; the store may have lost that."""
        task = self._tasks[self._known[task_id]]
        return task.is_lost or (task.last.status == FAILED and _reason_of(task.last) == _LOST)

    def has_handle(self, customer: Customer, made: Made, task_id: str) -> None:
        """A client has the handle of a task, which the store must have then."""
        world, errand = self._world, made.errand
        key = task_key(errand.principal if world.authentication else "", task_id)
        is_first = made.task_id is None and not made.lost_task
        made.task_id = task_id
        if key not in self._tasks:
            world.fail("stored first", f"{customer.name} is told of {key} before it is stored")
        if task_id not in self._known:
            world.reach("call became a task")
            self._known[task_id] = key
            if is_first:
                self._draw_followers(customer, errand, task_id)

    def _draw_followers(self, owner: Customer, errand: Errand, task_id: str) -> None:
        """Draw who else waits for a task, reads it, listens, or cancels it."""
        world, fates = self._world, self._world.fates
        terms = errand.task
        assert terms is not None
        if terms.is_detached:
            self._later(errand, ATTACH, task_id, owner, "waits")
        for name, method, rate in (
            ("joins", ATTACH, 0.4),
            ("joins too", ATTACH, 0.15),
            ("listens", LISTEN, 0.3),
            ("reads", GET, 0.4),
            ("reads later", GET, 0.4),
            ("reads in the end", GET, 0.3),
            ("joins at once", ATTACH, 0.9 * ("eager readers" in world.features)),
            ("joins as well", ATTACH, 0.9 * ("eager readers" in world.features)),
            ("cancels", CANCEL, 0.3 * ("cancels" in world.features)),
        ):
            if world.strikes(f"{errand.name} {name}", rate):
                able = [customer for customer in world.customers if customer.follows_tasks]
                customer = fates.pick(f"{errand.name} {name} by", able)
                self._later(errand, method, task_id, customer, name)

    def _later(
        self, subject: Errand, method: str, task_id: str, customer: Customer, name: str
    ) -> None:
        world, self._followers = self._world, self._followers + 1
        delays = (15.0, 30.0) if name == "reads in the end" else (0.0, 0.0, 0.5, 3.0, 10.0)
        delay = world.fates.pick(f"{subject.name} {name} after", delays)
        params: dict[str, Any] = {"taskId": task_id}
        if method == LISTEN:
            params = {"notifications": {TASK_IDS: [task_id]}}
        errand = attrs.evolve(
            subject,
            name=f"{customer.name}.{name} {self._followers}",
            method=method,
            params=params,
            idempotent=None,
            cancel_after=None,
            steps=(),
            subject=subject.name,
            task=None,
        )
        world.errands[errand.name] = errand
        world.clock.call_later(delay, lambda: customer.go(errand))

    def wants_end(self, task_id: str | None, who: str) -> None:
        """Somebody cancels a task, or leaves what its client would cancel it for."""
        if task_id in self._known:
            self._tasks[self._known[task_id]].cancelled_by.append(who)

    def _task_of(self, errand: Errand) -> _Task:
        task_id = (errand.params or {})["taskId"]
        return self._tasks[self._known[task_id]]

    def _is_foreign(self, customer: Customer, errand: Errand) -> bool:
        """Whether a client asks for the task of another principal."""
        return self._world.authentication and customer.principal != errand.principal

    def check_answered(self, customer: Customer, made: Made, result: Any) -> None:
        """A request about a task has its result, which must agree with the store."""
        world, errand = self._world, made.errand
        if self._is_foreign(customer, errand) and errand.method != LISTEN:
            world.fail("isolation", f"{customer.name} is answered about a task of another")
        if errand.method == LISTEN:
            return
        task, name = self._task_of(errand), errand.name
        if errand.method == CANCEL:
            world.reach("task cancelled by its handle")
            if not task.is_lost and not task.last.is_terminal:
                world.fail("tasks", f"{name}: {errand.subject} is said to be cancelled, and is not")
            return
        world.reach("task read")
        self._check_shown(task, name, result, made.made_at)

    def _check_shown(self, task: _Task, name: str, state: Any, asked_at: float) -> None:
        if task.is_lost:
            return
        status = state["status"]
        if all(status != each.record.status for each in task.states):
            self._world.fail("tasks", f"{name} is shown {status}, which the task never was")
        if task.shown is not None and asked_at >= task.shown[0] and status != task.shown[1]:
            self._world.fail("tasks", f"{name} is shown {status} after {task.shown}")
        if task.last.is_terminal and status == task.last.status:
            for member in ("result", "error"):
                if state.get(member) != task.last.outcome.get(member):
                    self._world.fail("tasks", f"{name} is shown another {member} than is stored")
            if task.shown is None:
                task.shown = self._world.clock.now, status

    def notified(self, customer: Customer, listener: Made, state: Any) -> None:
        """A client that listens is told of the state of a task."""
        if self._is_foreign(customer, listener.errand):
            self._world.fail("isolation", f"{customer.name} is told of a task of another")
        wanted = _listened(listener.errand)
        if state["taskId"] != wanted:
            self._world.fail("isolation", f"{customer.name} is told of {state['taskId']}")
        # A later subscription tells the state again. It may have taken the place of a silent one,
        # of which there is no event.
        subscription, told_by = state["_meta"][SUBSCRIPTION_ID], listener.told_end_by
        if told_by is not None and subscription <= told_by:
            self._world.fail("tasks", f"{listener.errand.name} is told of a task after its end")
        task = self._tasks[self._known[wanted]]
        self._check_shown(task, listener.errand.name, state, -1.0)
        if task.last.is_terminal and state["status"] == task.last.status:
            self._world.reach("task listener told of the end")
            listener.told_end_by = subscription

    def check_told(self, customer: Customer, listener: Made) -> None:
        """In the end: who still listens to a task that has ended was told so."""
        errand = listener.errand
        is_listening = errand.method == LISTEN and listener.end is None
        if not is_listening or self._is_foreign(customer, errand):
            return
        if self.is_lost(_listened(errand)):
            return
        if self.is_over(errand) and listener.told_end_by is None:
            self._world.fail("listening", f"{errand.name} is not told of the end of a task")

    def is_over(self, listener: Errand) -> bool:
        """Whether the task has ended that a client listens to, or may have."""
        return self.is_lost(_listened(listener)) or self._listened_to(listener).is_terminal

    def has_expired(self, listener: Errand) -> bool:
        """Whether the server has forgotten the task that a client listens to."""
        return self._listened_to(listener).is_expired(self._world.wall_time)

    def _listened_to(self, listener: Errand) -> TaskRecord:
        return self._tasks[self._known[_listened(listener)]].last

    def check_result(self, made: Made, result: Any) -> None:
        """A call with a handle has its result, which is the one in the store."""
        if self.is_lost(made.task_id):
            return
        last = self._tasks[self._known[str(made.task_id)]].last
        self._world.reach("task followed to its result")
        if made.errand.subject:
            self._world.reach("task attached to")
        if last.status != COMPLETED or last.outcome["result"] != result:
            self._world.fail("handles", f"{made.errand.name} has a result, and is {last.status}")

    def check_failure(self, customer: Customer, made: Made, error: CallError) -> None:
        """A call with a handle has failed, which nothing explains but the end of its task."""
        world, name = self._world, made.errand.name
        world.reach(f"task call failed: {type(error).__name__}")
        if not customer.version:
            customer.needs(f"{name} failed: {error!r}", "impatient", *CUTS)
            return  # it has never reached a server
        if made.errand.method == ATTACH and self._is_foreign(customer, made.errand):
            if not isinstance(error, TaskLost | RequestTimeout):
                world.fail("isolation", f"{name}, which is foreign, ends with {error!r}")
            return
        task = self._tasks[self._known[str(made.task_id)]]
        if task.is_lost or (isinstance(error, TaskLost) and self.may_be_gone(str(made.task_id))):
            return
        last = task.last
        match error:
            case JsonRpcError() if last.status == FAILED:
                self._check_error(made, error, last)
            case TaskCancelled() if last.status == CANCELLED:
                if not task.cancelled_by:
                    world.fail("handles", f"{name} is cancelled by nobody")
            case RequestTimeout():
                customer.needs(f"{name} failed: {error!r}", "impatient", "unanswered")
                if not made.errand.subject:
                    self.wants_end(made.task_id, f"the timeout of {name}")
            case _:
                world.fail("handles", f"{name} is {last.status}, and ends with {error!r}")

    def _check_error(self, made: Made, error: JsonRpcError, last: TaskRecord) -> None:
        world, name = self._world, made.errand.name
        stored, errand = last.outcome["error"], world.subject_of(made.errand)
        reason = _reason_of(last)
        if stored["code"] != error.code:
            world.fail("handles", f"{name} ends with {error!r}, and the store has {stored}")
        if reason == _LOST:
            world.reach("task failed because its instance has died")
        elif reason == "shutting_down" and "stop" in world.causes:
            world.reach("task failed because its instance was stopped")
        elif error.code != errand.fails_with:
            world.fail("handles", f"{name} ends with {error!r}")

    def check_cancelled(self, customer: Customer, made: Made) -> None:
        """In the end: a task has ended whose caller has cancelled the call, if it could tell."""
        if not made.is_cancelled or made.task_id is None or made.errand.subject:
            return
        last = self._tasks[self._known[made.task_id]].last
        if made.task_id in customer.undelivered or self.is_lost(made.task_id):
            return
        self._world.reach("task cancelled by its caller")
        if not last.is_terminal:
            self._world.fail("tasks", f"{made.errand.name} is cancelled, and is {last.status}")


def _listened(listener: Errand) -> str:
    """Return the id of the task that a client listens to."""
    params: dict[str, Any] = listener.params or {}
    ids: list[str] = params["notifications"][TASK_IDS]
    return ids[0]


def _reason_of(record: TaskRecord) -> str | None:
    data: Any = record.outcome.get("error", {}).get("data")
    return cast("dict[str, Any]", data).get("reason") if isinstance(data, dict) else None
