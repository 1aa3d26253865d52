"""The requests about tasks: ``tasks/get``, ``tasks/update`` and ``tasks/cancel``.

The server responds to them itself, when the store has been read, or has the change. A task of
another principal is unknown: its key is another one.

Source: the extension io.modelcontextprotocol/tasks at 2026-07-28; SEP-2663.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from ... import tasks
from ...codecs import json
from ...errors import RemoteProtocolError
from ...http import RequestHead
from ...input_required import INPUT_RESPONSES
from ...messages import Request
from ...store import StreamKey
from .. import refusals
from ..calls import RunningCall
from ..core import ServerCore
from .task_operation import KnownTask, task_key, unchanged
from .task_record import TaskRecord
from .task_table import TaskTable

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{16,128}", re.ASCII)


def task_id_of(value: object) -> str | None:
    """Return a value that a client sent if it may be the id of a task, else None."""
    return value if isinstance(value, str) and _TASK_ID.fullmatch(value) else None


@attrs.define(eq=False, repr=False)
class TaskRequest:
    """One request about a task."""

    _core: ServerCore
    _table: TaskTable
    _call: RunningCall
    _head: RequestHead | None
    _task_id: str
    _answered: TaskRecord | None = attrs.field(default=None, init=False)
    """The state with the responses of this request, the last ones of their round."""
    _limit: int | None = attrs.field(default=None, init=False)
    """The limit that keeps the task from going on here."""

    @classmethod
    def start(
        cls, core: ServerCore, table: TaskTable, call: RunningCall, head: RequestHead | None
    ) -> None:
        """Respond to a request, now or later. Raises RemoteProtocolError for a refusal."""
        request = call.request
        params = request.params or {}
        responses = _responses_of(request) if request.method == tasks.UPDATE else {}
        id = task_id_of(params.get("taskId"))
        if id is None:
            raise refusals.UNKNOWN_TASK(request.id)
        self = cls(core, table, call, head, id)
        match request.method:
            case tasks.GET:
                self._operate(unchanged, self._tell)
            case tasks.CANCEL:
                self._operate(self._cancelled, self._acknowledge)
            case _:
                self._operate(partial(self._updated, responses), self._go_on)

    @property
    def _key(self) -> StreamKey:
        return task_key(self._call.peer.principal, self._task_id)

    def _operate(
        self,
        decide: Callable[[TaskRecord], TaskRecord | None],
        done: Callable[[KnownTask], None],
    ) -> None:
        self._table.operate(
            self._key, decide, partial(self._done, done), self._fail, self._is_wanted
        )

    def _is_wanted(self) -> bool:
        """True if a failed operation is to be repeated.

        Also without the client if the task is to go on here: the failed append may have been done.
        """
        return self._call.is_running or self._answered is not None

    def _done(self, done: Callable[[KnownTask], None], known: KnownTask | None) -> None:
        if known is None:
            self._refuse(refusals.UNKNOWN_TASK(self._call.request.id))
        else:
            done(known)

    def _fail(self, refusal: refusals.RefusalTemplate) -> None:
        """Claim nothing: the change may have been stored or not."""
        self._refuse(refusal(self._call.request.id))

    def _refuse(self, refusal: RemoteProtocolError) -> None:
        error = refusal.reply
        self._call.respond_error(error.code, error.message, error.data, now=self._core.now)

    def _tell(self, known: KnownTask) -> None:
        self._call.respond(known.record.details(self._task_id), now=self._core.now)

    def _acknowledge(self, known: KnownTask) -> None:
        self._call.respond({}, now=self._core.now)

    def _cancelled(self, record: TaskRecord) -> TaskRecord | None:
        """Return the cancelled task; None if it has ended."""
        if record.is_terminal:
            return None
        time = self._core.wall_time()
        ended = record.ended(tasks.CANCELLED, time)
        return ended.kept(time, self._core.limits.max_stored_age)

    def _updated(self, given: Mapping[str, Any], record: TaskRecord) -> TaskRecord | None:
        """Return the task with those responses that it waits for; None if there is none."""
        self._limit = None
        self._answered = None
        new = {key: given[key] for key in record.input_requests if key in given}
        reentry = record.reentry
        if not new or reentry is None:
            return None
        time = self._core.wall_time()
        left = {key: asked for key, asked in record.input_requests.items() if key not in new}
        named = {reentry.names[key]: response for key, response in new.items()}
        answered = attrs.evolve(
            record,
            updated=time,
            input_requests=left,
            reentry=attrs.evolve(reentry, responses={**reentry.responses, **named}),
        ).kept(time, self._core.limits.max_stored_age)
        if left:
            return answered
        self._limit = self._table.limit_for(self._key.principal, self._key)
        if self._limit is not None:
            return None
        self._answered = answered
        options = self._core.app.options_of("tools/call")
        return attrs.evolve(
            answered,
            status=tasks.WORKING,
            writer=self._core.instance,
            reentry=answered.reentry if options.is_restartable(reentry.request) else None,
        )

    def _go_on(self, known: KnownTask) -> None:
        """Acknowledge the responses. If they were the last ones, call the handler again."""
        if self._limit is not None:
            self._refuse(refusals.TOO_MANY_TASKS(self._call.request.id, limit=self._limit))
            return
        if self._answered is not None and self._answered.reentry is not None:
            self._table.go_on(self._key, known, self._answered.reentry, self._head)
        self._acknowledge(known)


def _responses_of(request: Request) -> dict[str, Any]:
    """Return the input responses of ``tasks/update``. Raises RemoteProtocolError."""
    responses = json.as_object((request.params or {}).get(INPUT_RESPONSES))
    if responses is None or any(json.as_object(each) is None for each in responses.values()):
        what = "inputResponses is an object of results, which are objects"
        raise refusals.INVALID_MODERN_PARAMS(request.id, what=what)
    return responses
