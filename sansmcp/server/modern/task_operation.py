"""Read the state of a task from its log, and change it.

Any instance may change a task: it appends the new state under the number that follows the state it
has read. If another instance was faster, the append conflicts; then the new state is read, and the
change is decided anew. So the states of a task follow one another, and a task ends once, without a
lock.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ...effects import StoreEffect, StoreRead
from ...shares import Shares
from ...store import Entry, Page, StreamKey
from ...tasks import WORKING
from .. import refusals
from ..core import ServerCore
from ..logs import Logs, StoreOperation
from ..records import RecordTooNewError, record_in
from ..refusals import RefusalTemplate
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


@attrs.define(eq=False, repr=False)
class TaskOperation(StoreOperation):
    """Reads a task once, and changes it if that is decided."""

    _core: ServerCore
    _logs: Logs
    _key: StreamKey
    _decide: Callable[[TaskRecord], TaskRecord | None]
    """Returns the new state; None leaves the task as it is. It may be called again."""
    _done: Callable[[KnownTask | None], None]
    """Called with the state at the end; None if there is no such task, or its time is over."""
    _failed: Callable[[RefusalTemplate], None]
    """Called with the reason if the store has failed, or only a later version can read the task."""
    _is_wanted: Callable[[], bool]
    """Returns True as long as a failed operation is worth repeating."""
    _appends: Appends
    _new: KnownTask | None = attrs.field(default=None, init=False)
    """The state that is being appended; None if there is none."""

    def start(self, after: int = 0) -> None:
        """Read the task; the last entry probably follows the number ``after``."""
        most = self._core.limits.max_stored_bytes
        self._logs.read(self._key, after, self, limit=1, max_bytes=most)

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        entry = page.entries[-1] if page is not None and page.entries else None
        if page is None or (entry is None and effect.after == page.last.seq - 1):
            self._done(None)
        elif entry is None or entry.seq < page.last.seq:
            self.start(page.last.seq - 1)
        else:
            try:
                record = TaskRecord.decode(record_in(entry))
            except RecordTooNewError:
                self._failed(refusals.RECORD_TOO_NEW)
            else:
                self._change(KnownTask(entry.seq, record))

    def _change(self, known: KnownTask) -> None:
        if known.record.is_expired(self._core.wall_time()):
            self._done(None)
            return
        new = self._decide(known.record)
        if new is None:
            self._done(known)
        else:
            self._new = KnownTask(known.seq + 1, new, is_changed=True)
            self._appends.count(self._key, new, 1)
            self._logs.append(self._key, (task_entry(self._new.seq, new),), self)

    def _end_append(self) -> KnownTask:
        assert self._new is not None
        appended, self._new = self._new, None
        self._appends.count(self._key, appended.record, -1)
        return appended

    def on_append_done(self) -> None:
        self._done(self._end_append())
        self._logs.on_changed(self._key)

    def on_append_conflict(self) -> None:
        """Read what another instance has appended."""
        self.start(self._end_append().seq - 1)

    def on_append_behind(self) -> None:
        """Read what the store still has."""
        self._end_append()
        self.start()

    def may_repeat(self, effect: StoreEffect) -> bool:
        return self._is_wanted()

    def failed(self, effect: StoreEffect) -> bool:
        if self._new is not None:
            self._end_append()
        self._failed(refusals.TASK_STORE_FAILED)
        return True
