"""A selector, and the tasks that wait for it.

A *task* is a generator. It yields what it waits for (:class:`Wait`) and is sent which of that has
come. Nothing runs by itself: whoever waits for something turns the loop meanwhile.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Generator
from typing import TypeAlias, TypeVar

import attrs

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

_T = TypeVar("_T")


@attrs.frozen
class Wait:
    """Until a file descriptor is ready, a time has come, or somebody wakes the task."""

    fd: int | None = None
    """None: what is waited for is there already, if there are events."""
    events: int = 0
    """READ or WRITE; 0: only for the time, or to be woken."""
    deadline: float = math.inf


Steps: TypeAlias = Generator[Wait, int, _T]
"""What runs in a task; it is sent the events that have come, 0 if only time has passed."""

Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]


@attrs.define(eq=False, repr=False)
class Task:
    """Steps, and what they wait for."""

    steps: Steps[None]
    wait: Wait | None = attrs.field(default=None, init=False)
    """None: it has not begun."""


class Loop:
    """Tasks that go on when they can, while somebody turns it: ``go_on(wait(...))``."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._tasks: dict[Task, None] = {}
        self._due: dict[Task, int] = {}

    def start(self, steps: Steps[None]) -> Task:
        """Run steps from the next turn on."""
        task = Task(steps)
        self._tasks[task] = None
        self.wake(task)
        return task

    def wake(self, task: Task) -> None:
        """Let a task go on at the next turn, whatever it waits for."""
        self._due.setdefault(task, 0)

    @property
    def has_work(self) -> bool:
        """Whether a task can go on at once."""
        return bool(self._due)

    def wake_idle(self) -> None:
        """Let all tasks go on that wait for nothing but to be woken."""
        for task in self._tasks:
            if task.wait == Wait():
                self.wake(task)

    def stop(self, task: Task) -> None:
        """End a task where it waits."""
        if task in self._tasks:
            self._unregister(task)
            del self._tasks[task]
            task.steps.close()

    def close(self) -> None:
        """Stop all tasks."""
        for task in tuple(self._tasks):
            self.stop(task)
        self._selector.close()

    def wait(self, until: float) -> Ready:
        """Wait until a task can go on, at most until a time; changes nothing."""
        deadline = min((_deadline(task) for task in self._tasks), default=math.inf)
        deadline = 0.0 if self._due else min(deadline, until)
        seconds = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        return self._selector.select(seconds)

    def go_on(self, ready: Ready) -> None:
        """Let each task that can go on do so, until it waits again."""
        now = time.monotonic()
        due, self._due = self._due, {}
        for task in self._tasks:
            if _deadline(task) <= now:
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
            # A generator that has not begun takes nothing.
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

    def _unregister(self, task: Task) -> None:
        if task.wait is not None and task.wait.fd is not None:
            self._selector.unregister(task.wait.fd)


def _deadline(task: Task) -> float:
    return math.inf if task.wait is None else task.wait.deadline
