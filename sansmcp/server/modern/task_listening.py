"""Status notifications: ``subscriptions/listen`` with ``taskIds``.

The tasks are read before the subscription is acknowledged, because the acknowledgement names those
that the client will hear of. Then each one's state is sent, and again whenever it has changed. A
notification has the whole state, so a client that reads slowly gets the newest state only.

Source: the extension io.modelcontextprotocol/tasks at 2026-07-28; SEP-2663.
"""

from __future__ import annotations

from typing import Any

import attrs

from ... import tasks
from ...codecs import json
from ...errors import RemoteProtocolError
from ...messages import Request
from ...store import StreamKey
from .. import refusals
from ..core import ServerCore
from ..procedures import Changed, Interval, Procedure, StepFailedError, Steps, run
from ..records import RecordTooNewError
from .subscriptions import ListenerStream, Subscription, Subscriptions
from .task_operation import KnownTask, task_key, unchanged
from .task_requests import task_id_of
from .task_table import TaskTable


@attrs.define(eq=False, repr=False)
class TaskWatch:
    """Tells one subscription of the states of one task."""

    _table: TaskTable
    _subscriptions: Subscriptions
    _subscription: Subscription
    _key: StreamKey
    _first: KnownTask
    """The state that was read before the subscription began."""
    _procedure: Procedure = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._procedure = Procedure(self._table.logs, self._tell())

    def begin(self) -> None:
        """Send the state, and every later one."""
        self._procedure.start()

    @property
    def is_stopped(self) -> bool:
        """True if the task has ended, or the subscription."""
        return self._procedure.is_over

    def stop(self) -> None:
        """Watch the task no more."""
        self._procedure.close()

    def _tell(self) -> Steps[None]:
        known: KnownTask | None = self._first
        seq = 0
        while known is not None:
            if known.seq != seq:
                seq = known.seq
                self._subscription.notify(tasks.CHANGED, known.record.details(self._key.stream))
            if known.record.is_terminal:
                break
            known = yield from self._look(known)
        self.stop()
        self._end_if_last()

    def _look(self, known: KnownTask) -> Steps[KnownTask | None]:
        """Read the state of the task when it may have changed, and the client can take it."""
        yield Changed(self._key)
        while self._subscription.stream.is_above_high_water:
            yield Interval(self._key)
        try:
            return (yield from self._table.change(self._key, unchanged, known.seq))
        except (StepFailedError, RecordTooNewError):
            return known

    def _end_if_last(self) -> None:
        """End a subscription to tasks alone when all of them have ended."""
        is_alone = self._subscription.wanted.keys() == {tasks.TASK_IDS}
        watches = self._subscription.watches
        if is_alone and all(isinstance(each, TaskWatch) and each.is_stopped for each in watches):
            self._subscriptions.end(self._subscription.stream)


@attrs.define(eq=False, repr=False)
class TaskListening:
    """Reads the tasks of a filter, and opens the subscription then."""

    _core: ServerCore
    _table: TaskTable
    _subscriptions: Subscriptions
    _request: Request
    _honoured: dict[str, Any]
    _stream: ListenerStream
    _client: str
    _waiting: set[StreamKey]
    """The tasks that are being read."""
    _found: dict[StreamKey, KnownTask] = attrs.field(factory=dict[StreamKey, KnownTask], init=False)
    _failure: RemoteProtocolError | None = attrs.field(default=None, init=False)

    @classmethod
    def start(
        cls,
        core: ServerCore,
        table: TaskTable,
        subscriptions: Subscriptions,
        request: Request,
        honoured: dict[str, Any],
        principal: str,
        stream: ListenerStream,
        client: str,
    ) -> None:
        """Open a subscription that has ``taskIds`` in its filter."""
        wanted = (request.params or {})["notifications"][tasks.TASK_IDS]
        limit = core.limits.max_resources_per_subscription
        ids = map(task_id_of, wanted if json.is_array(wanted) else ())
        keys = dict.fromkeys(task_key(principal, id) for id in ids if id is not None)
        first = tuple(keys)[:limit]
        self = cls(core, table, subscriptions, request, honoured, stream, client, set(first))
        stream.expect()
        for key in first:
            run(table.logs, self._look(key), self._is_wanted)
        if not first:
            self._open()

    def _is_wanted(self) -> bool:
        return self._failure is None and not self._stream.is_gone

    def _look(self, key: StreamKey) -> Steps[None]:
        """Read one task; the last of them opens the subscription."""
        try:
            known = yield from self._table.change(key, unchanged)
        except StepFailedError:
            self._failure = refusals.store_failed(self._request.id)
        except RecordTooNewError:
            self._failure = refusals.RECORD_TOO_NEW(self._request.id)
        else:
            if known is not None:
                self._found[key] = known
        self._waiting.discard(key)
        if self._waiting or self._stream.is_gone:
            return
        if self._failure is not None:
            self._stream.refuse(self._failure)
        elif self._core.has_stopped:
            self._stream.refuse(refusals.SHUTTING_DOWN(self._request.id))
        else:
            self._open()

    def _open(self) -> None:
        try:  # again: others may have come while the tasks were read
            self._subscriptions.check_room(self._request, self._client)
        except RemoteProtocolError as refusal:
            self._stream.refuse(refusal)
            return
        if self._found:
            self._honoured[tasks.TASK_IDS] = [key.stream for key in self._found]
        subscription = self._subscriptions.open(
            self._request, self._honoured, self._stream, self._client
        )
        watches = [
            TaskWatch(self._table, self._subscriptions, subscription, key, known)
            for key, known in self._found.items()
        ]
        subscription.watches.extend(watches)
        for watch in watches:
            watch.begin()
