"""Read the state of a task from its log, and change it.

Any instance may change a task: it appends the new state under the number that follows the state it
has read. If another instance was faster, the append conflicts; then the new state is read, and the
change is decided anew. So the states of a task follow one another, and a task ends once, without a
lock.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ...shares import Shares
from ...store import AppendResult, Entry, StreamKey
from ...tasks import WORKING
from ..core import ServerCore
from ..procedures import Steps, append, read
from ..records import record_in
from .task_record import TaskRecord

_SESSION = ".tasks"
"""Stands for a session in the keys of tasks. No session has this id: tokens contain no point."""


def task_key(principal: str, id: str) -> StreamKey:
    """Return the key of the log of a task."""
    return StreamKey(principal, _SESSION, id)


def unchanged(record: TaskRecord) -> None:
    """Decide to change nothing: the task is only read."""


def task_entry(seq: int, record: TaskRecord) -> Entry:
    """Return the entry of a state. Raises LocalProtocolError if a state is not JSON."""
    return Entry(seq, record.encode(), record.is_terminal)


@attrs.frozen
class KnownTask:
    """The state of a task, and the number of its entry."""

    seq: int
    record: TaskRecord
    is_changed: bool = False
    """True if the operation that returns it has appended it."""


@attrs.define(eq=False, repr=False)
class Appends:
    """The states that operations of this instance are appending."""

    _instance: str
    by_task: Shares[StreamKey] = attrs.field(factory=Shares[StreamKey], init=False)
    """The number of states by task."""
    claims: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of states after which this instance calls a handler, by principal. Each holds a
    place: the store may take its time, and other tasks may come meanwhile.
    """

    def count(self, key: StreamKey, record: TaskRecord, by: int) -> None:
        """Count a state when its append begins (1), and when that is over (-1)."""
        self.by_task.change(key, by)
        if record.status == WORKING and record.writer == self._instance:
            self.claims.change(key.principal, by)


def change_task(
    core: ServerCore,
    key: StreamKey,
    decide: Callable[[TaskRecord], TaskRecord | None],
    appends: Appends,
    after: int = 0,
) -> Steps[KnownTask | None]:
    """Read a task, and append the state that ``decide()`` returns; None leaves it as it is.

    ``decide()`` may be called again. The last entry probably follows the number ``after``.

    Returns:
        The state at the end; None if there is no such task, or its time is over.

    Raises:
        StepFailedError: the store has failed. A change may have been stored or not.
        RecordTooNewError: only a later version can read the task.
    """
    while True:
        page = yield from read(key, after)
        entry = page.entries[-1] if page is not None and page.entries else None
        if page is None or (entry is None and after == page.last.seq - 1):
            return None
        if entry is None or entry.seq < page.last.seq:
            after = page.last.seq - 1
            continue
        record = TaskRecord.decode(record_in(entry))
        if record.is_expired(core.wall_time()):
            return None
        new = decide(record)
        if new is None:
            return KnownTask(entry.seq, record)
        appends.count(key, new, 1)
        try:
            result = yield from append(key, (task_entry(entry.seq + 1, new),))
        finally:
            appends.count(key, new, -1)
        if result is AppendResult.STORED:
            return KnownTask(entry.seq + 1, new, is_changed=True)
        # After a conflict the state of the other instance follows; else the store has lost some.
        after = entry.seq if result is AppendResult.CONFLICT else 0
