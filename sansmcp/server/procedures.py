"""Procedures: what takes more than one message with the store, as generators.

A procedure reads from top to bottom. It stops where it waits for something:

* ``yield from read()``: a page of a log.
* ``yield from append()``: entries are added to a log.
* ``yield Changed()``: another instance may have appended to a log since it was last read.
* ``yield Interval()``: some time has passed, after which the log is looked at in any case.
* ``yield Told()``: the store has told of a change of a log, which is not read otherwise.
* ``yield Until()``: a time has come.
* ``yield Pause()``: ``wake()`` was called. The answer to each wait is a ``Waited``.

If the store fails, a read is repeated for as long as the procedure is wanted, and an append, which
the store may have done, in any case; but for ``Limits.store_retry_timeout`` at most. Then
StepFailedError is raised. A procedure that does not catch it, or sets its ``has_lost``, has lost
messages; the event StoreFailed reports that.

A procedure waits for one thing at a time, so it has at most one operation in flight. ``close()``
ends it where it stands. An append that is in flight then may be done or not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from ..effects import StoreEffect, StoreRead
from ..store import AppendResult, Entry, Page, StreamKey
from ..timers import Timer
from ..types import FastEnum, assert_never
from .logs import LogReader, Logs

_Value = TypeVar("_Value")


class StepFailedError(Exception):
    """The store has failed, and the step is given up. An append may be done or not.

    Attributes:
        has_lost: a procedure that goes on sets it to True if it has lost messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_lost = False


@attrs.frozen
class Read:
    """The step of ``read()``."""

    key: StreamKey
    after: int
    limit: int
    max_bytes: int | None


@attrs.frozen
class Append:
    """The step of ``append()``."""

    key: StreamKey
    entries: Sequence[Entry]
    is_repeated: bool


@attrs.frozen
class Changed:
    """Wait until a log may have changed. From the first time on, the store tells of changes."""

    key: StreamKey


@attrs.frozen
class Interval:
    """Wait for ``Limits.store_poll_interval``, or less if the store tells of a change."""

    key: StreamKey


@attrs.frozen
class Told:
    """Wait until the store tells of a change of a log; for ever if it cannot."""

    key: StreamKey


@attrs.frozen
class Pause:
    """Wait until ``Procedure.wake()`` is called."""


@attrs.frozen
class Until:
    """Wait until a time on the machine's clock."""

    timer: Timer
    deadline: float


class Waited(FastEnum):
    """Why a wait is over."""

    CHANGED = enum.auto()
    """The store has told of a change, or the time is over."""
    WOKEN = enum.auto()
    """``Procedure.wake()`` was called."""


Step: TypeAlias = Read | Append | Changed | Interval | Told | Pause | Until
Steps: TypeAlias = Generator[Step, Any, _Value]
"""A procedure, or a part of one, that returns a value at its end."""


def _is_never_wanted() -> bool:
    return False


@attrs.define(eq=False, repr=False)
class Procedure(LogReader):
    """A procedure that runs. It begins with ``start()``."""

    _logs: Logs
    _steps: Steps[object] | None
    """None when the procedure is over."""
    _is_wanted: Callable[[], bool] = _is_never_wanted
    """Returns True as long as a read that has failed is worth repeating."""
    _watched: StreamKey | None = attrs.field(default=None, init=False)
    """The log for whose changes it has waited."""
    _step: Step | None = attrs.field(default=None, init=False)
    """The step at which it waits; None before the first, and while it goes to the next."""

    def start(self) -> None:
        """Go to the first step."""
        self._go_on(None)

    def close(self) -> None:
        """End the procedure where it stands. Repeated calls are safe, also from its own steps."""
        steps = self._steps
        self._end()
        if steps is not None and self._step is not None:
            steps.close()

    @property
    def is_over(self) -> bool:
        """True if the procedure has ended, by itself or by ``close()``."""
        return self._steps is None

    @property
    def is_watching(self) -> bool:
        """True if the store is to tell of changes of a log."""
        return self._watched is not None

    def watch(self, key: StreamKey) -> None:
        """Let the store tell of changes of a log from now on, for the next ``Changed``."""
        if self._watched is None:
            self._watched = key
            self._logs.watch(key, self)

    def unwatch(self) -> None:
        """Let the store tell no more. ``Changed`` then ends only with ``wake()``."""
        if self._watched is not None:
            self._logs.unwatch(self._watched, self)
            self._watched = None

    def wake(self) -> None:
        """Go on, unless an operation is in flight. The answer is WOKEN."""
        if isinstance(self._step, Changed) and self.is_watching:
            self._logs.stop_polling(self._step.key, self)
        if isinstance(self._step, Changed | Pause):
            self._go_on(Waited.WOKEN)

    def poll_store(self) -> None:
        """Go on: the time is over, or the store has told of a change. The answer is CHANGED."""
        assert not isinstance(self._step, Read | Append), "it is polled only while it waits"
        self._go_on(Waited.CHANGED)

    def on_append_done(self) -> None:
        self._go_on(AppendResult.STORED)

    def on_append_conflict(self) -> None:
        self._go_on(AppendResult.CONFLICT)

    def on_append_behind(self) -> None:
        self._go_on(AppendResult.BEHIND)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        self._go_on(page)

    def may_repeat(self, effect: StoreEffect) -> bool:
        if self.is_over:
            return False
        return self._step.is_repeated if isinstance(self._step, Append) else self._is_wanted()

    def failed(self, effect: StoreEffect) -> bool:
        """Raise StepFailedError at the step. Returns False if messages are lost."""
        if self.is_over:
            return True
        failure = StepFailedError()
        try:
            self._go_on(failure)
        except StepFailedError:
            return False
        return not failure.has_lost

    def _go_on(self, answer: AppendResult | Page | Waited | StepFailedError | None) -> None:
        steps = self._steps
        if steps is None:
            return
        self._step = None
        try:
            step = steps.send(answer)
        except StopIteration:
            self._end()
        except BaseException:
            self._end()
            raise
        else:
            self._step = step
            if self.is_over:  # it has closed itself on the way
                steps.close()
            else:
                self._perform(step)

    def _perform(self, step: Step) -> None:
        match step:
            case Read(key=key, after=after, limit=limit, max_bytes=most):
                most = self._logs.core.limits.max_stored_bytes if most is None else most
                self._logs.read(key, after, self, limit=limit, max_bytes=most)
            case Append(key=key, entries=entries):
                self._logs.append(key, entries, self)
            case Changed(key=key):
                self.watch(key)
                self._logs.poll_later(key, self)
            case Interval(key=key):
                self._logs.poll_soon(key, self)
            case Told(key=key):
                self._watched = key
                self._logs.watch_only(key, self)
            case Until(timer=timer, deadline=deadline):
                self._logs.core.timers.set(timer, self, deadline)
            case Pause():
                pass
            case _ as impossible:
                assert_never(impossible)

    def _end(self) -> None:
        self._steps = None
        self.unwatch()
        if isinstance(self._step, Until):
            self._logs.core.timers.stop(self._step.timer, self)


def read(
    key: StreamKey, after: int = 0, limit: int = 1, max_bytes: int | None = None
) -> Steps[Page | None]:
    """Read the entries after a number: by default one, of any size.

    Returns:
        The page; None if the log does not exist.

    Raises:
        StepFailedError: the store has failed.
    """
    answer = yield Read(key, after, limit, max_bytes)
    if isinstance(answer, StepFailedError):
        raise answer
    page: Page | None = answer
    return page


def append(
    key: StreamKey, entries: Sequence[Entry], *, is_repeated: bool = True
) -> Steps[AppendResult]:
    """Append entries, whose numbers follow that of the last entry.

    ``is_repeated``: False to give it up at the first failure.

    Raises StepFailedError if the store has failed. The append may be done or not.
    """
    answer = yield Append(key, entries, is_repeated)
    if isinstance(answer, StepFailedError):
        raise answer
    result: AppendResult = answer
    return result


def run(logs: Logs, steps: Steps[object], is_wanted: Callable[[], bool] = _is_never_wanted) -> None:
    """Run a procedure until it ends by itself.

    ``is_wanted`` returns True as long as a read that has failed is worth repeating.
    """
    Procedure(logs, steps, is_wanted).start()
