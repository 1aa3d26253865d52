"""A selector, and the tasks that wait for it.

A *task* is a generator. It yields a :class:`Wait`, and is sent the events that have occurred. There
is no background thread: the thread that waits for something runs the loop.
"""

from __future__ import annotations

import heapq
import itertools
import math
import selectors
import time
from collections.abc import Generator
from typing import TypeAlias, TypeVar

import attrs

from sansmcp_local import wait_in_parts

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

_T = TypeVar("_T")


@attrs.frozen
class Wait:
    """Wait until a file descriptor is ready, the deadline has passed, or the task is woken."""

    fd: int | None = None
    """None if ``events`` have occurred already, or are 0."""
    events: int = 0
    """READ or WRITE; 0 to wait only for the deadline, or to be woken."""
    deadline: float = math.inf


Steps: TypeAlias = Generator[Wait, int, _T]
"""The generator of a task. It is sent the events that have occurred; 0 if there are none."""

Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]


@attrs.define(eq=False, repr=False)
class Task:
    """A generator, and its current :class:`Wait`."""

    steps: Steps[None]
    wait: Wait | None = attrs.field(default=None, init=False)
    """None before its first step."""
    alarm: float = attrs.field(default=math.inf, init=False)
    """When the loop checks the deadline: at the deadline, or earlier."""


class Loop:
    """Runs tasks: call ``go_on(wait(...))`` again and again."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._tasks: dict[Task, None] = {}
        self._due: dict[Task, int] = {}
        self._alarms: list[tuple[float, int, Task]] = []
        """A heap. A deadline that has become later keeps its old entry until that is reached."""
        self._serials = itertools.count()

    def start(self, steps: Steps[None]) -> Task:
        """Start a task at the next :meth:`go_on`."""
        task = Task(steps)
        self._tasks[task] = None
        self.wake(task)
        return task

    def wake(self, task: Task) -> None:
        """Run a task at the next :meth:`go_on`, before its wait is over."""
        self._due.setdefault(task, 0)

    @property
    def has_work(self) -> bool:
        """True if a task can run at once."""
        return bool(self._due)

    def wake_idle(self) -> None:
        """Wake all tasks that wait only for that."""
        for task in self._tasks:
            if task.wait == Wait():
                self.wake(task)

    def stop(self, task: Task) -> None:
        """Close the generator of a task where it waits."""
        if task in self._tasks:
            self._unregister(task)
            del self._tasks[task]
            task.steps.close()

    def close(self) -> None:
        for task in tuple(self._tasks):
            self.stop(task)
        self._selector.close()

    def wait(self, until: float) -> Ready:
        """Wait until a task can run, or the time ``until``. Changes no state of the loop."""
        deadline = 0.0 if self._due else min(self._next_alarm(), until)
        if deadline < math.inf and not self._selector.get_map():
            time.sleep(max(0.0, deadline - time.monotonic()))  # Windows waits for no empty set
            return []
        return wait_in_parts(self._selector.select, deadline)

    def go_on(self, ready: Ready) -> None:
        """Run each task that can run until it waits again."""
        now = time.monotonic()
        due, self._due = self._due, {}
        while self._next_alarm() <= now:
            task = heapq.heappop(self._alarms)[2]
            task.alarm = math.inf
            due.setdefault(task, 0)
        for key, events in ready:
            due[key.data] = events
        for task, events in due.items():
            if task in self._tasks:
                self._step(task, events)

    def _step(self, task: Task, events: int) -> None:
        has_begun = task.wait is not None
        self._unregister(task)
        try:
            # A generator cannot be sent a value before its first step.
            wait = task.wait = task.steps.send(events) if has_begun else next(task.steps)
        except BaseException as ended:
            del self._tasks[task]
            if not isinstance(ended, StopIteration):
                raise
            return
        if wait.fd is not None:
            self._selector.register(wait.fd, wait.events, task)
        elif wait.events:
            self._due[task] = wait.events
        self._set_alarm(task)

    def _set_alarm(self, task: Task) -> None:
        deadline = _deadline(task)
        if deadline < task.alarm:
            task.alarm = deadline
            heapq.heappush(self._alarms, (deadline, next(self._serials), task))
            if len(self._alarms) > 64 + 2 * len(
                self._tasks
            ):  # most belong to tasks that have ended
                self._alarms = [each for each in self._alarms if each[2] in self._tasks]
                heapq.heapify(self._alarms)

    def _next_alarm(self) -> float:
        """Return the earliest deadline; drop or move entries that are out of date."""
        while self._alarms:
            when, _, task = self._alarms[0]
            is_current = task in self._tasks and task.alarm == when
            if is_current and _deadline(task) <= when:
                return when
            heapq.heappop(self._alarms)
            if is_current:
                task.alarm = math.inf
                self._set_alarm(task)
        return math.inf

    def _unregister(self, task: Task) -> None:
        if task.wait is not None and task.wait.fd is not None:
            self._selector.unregister(task.wait.fd)


def _deadline(task: Task) -> float:
    return math.inf if task.wait is None else task.wait.deadline
