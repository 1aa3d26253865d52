"""Status notifications: ``subscriptions/listen`` with ``taskIds``.

The tasks are read before the subscription is acknowledged, because the acknowledgement names those
that the client will hear of. Then each one's state is sent, and again whenever it has changed. A
notification has the whole state, so a client that reads slowly gets the newest state only.

Source: the extension io.modelcontextprotocol/tasks at 2026-07-28; SEP-2663.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from ... import tasks
from ...codecs import json
from ...errors import RemoteProtocolError
from ...messages import Request
from ...store import StreamKey
from .. import refusals
from ..core import ServerCore
from ..logs import LogReader, Logs
from .subscriptions import ListenerStream, Subscription, Subscriptions
from .task_operation import KnownTask, task_key, unchanged
from .task_requests import task_id_of
from .task_table import TaskTable


@attrs.define(eq=False, repr=False)
class TaskWatch(LogReader):
    """Tells one subscription of the states of one task."""

    _core: ServerCore
    _table: TaskTable
    _subscriptions: Subscriptions
    _subscription: Subscription
    _key: StreamKey
    _seq: int = attrs.field(default=0, init=False)
    """The number of the last entry that was sent."""
    is_stopped: bool = attrs.field(default=False, init=False)

    @property
    def _logs(self) -> Logs:
        return self._table.logs

    def begin(self, known: KnownTask) -> None:
        """Send the state, and every later one."""
        self._logs.watch(self._key, self)
        self._on_known(known)

    def poll_store(self) -> None:
        """Read the state of the task, unless the client is too slow for another notification."""
        if self._subscription.stream.is_above_high_water:
            self._logs.poll_soon(self._key, self)
        else:
            self._table.operate(
                self._key, unchanged, self._on_known, self._on_failed, self._is_wanted, self._seq
            )

    def stop(self) -> None:
        """Watch the task no more."""
        self.is_stopped = True
        self._logs.unwatch(self._key, self)

    def _on_known(self, known: KnownTask | None) -> None:
        if self.is_stopped:
            return
        if known is not None and known.seq != self._seq:
            self._seq = known.seq
            self._subscription.notify(tasks.CHANGED, known.record.details(self._key.stream))
        if known is None or known.record.is_terminal:
            self.stop()
            self._end_if_last()
        else:
            self._logs.poll_later(self._key, self)

    def _on_failed(self, refusal: refusals.RefusalTemplate) -> None:
        if not self.is_stopped:
            self._logs.poll_later(self._key, self)

    def _is_wanted(self) -> bool:
        return False

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
    _failure: refusals.RefusalTemplate | None = attrs.field(default=None, init=False)

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
            done, failed = partial(self._on_known, key), partial(self._on_failed, key)
            table.operate(key, unchanged, done, failed, self._is_wanted)
        if not first:
            self._open()

    def _is_wanted(self) -> bool:
        return self._failure is None and not self._stream.is_gone

    def _on_known(self, key: StreamKey, known: KnownTask | None) -> None:
        if known is not None:
            self._found[key] = known
        self._has_read(key)

    def _on_failed(self, key: StreamKey, refusal: refusals.RefusalTemplate) -> None:
        self._failure = refusal
        self._has_read(key)

    def _has_read(self, key: StreamKey) -> None:
        self._waiting.discard(key)
        if self._waiting or self._stream.is_gone:
            return
        if self._failure is refusals.RECORD_TOO_NEW:
            self._stream.refuse(refusals.RECORD_TOO_NEW(self._request.id))
        elif self._failure is not None:
            self._stream.refuse(refusals.store_failed(self._request.id))
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
            (TaskWatch(self._core, self._table, self._subscriptions, subscription, key), known)
            for key, known in self._found.items()
        ]
        subscription.watches.extend(watch for watch, _ in watches)
        for watch, known in watches:
            watch.begin(known)
