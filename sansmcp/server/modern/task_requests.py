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
from ..procedures import StepFailedError, Steps, run
from ..records import RecordTooNewError
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
                steps = self._get()
            case tasks.CANCEL:
                steps = self._cancel()
            case _:
                steps = self._update(responses)
        run(table.logs, self._respond(steps), lambda: call.is_running)

    @property
    def _key(self) -> StreamKey:
        return task_key(self._call.peer.principal, self._task_id)

    def _respond(self, steps: Steps[dict[str, Any]]) -> Steps[None]:
        """Respond with the result of the request, or with the refusal."""
        id = self._call.request.id
        try:
            result = yield from steps
        except RemoteProtocolError as raised:
            refusal = raised
        except StepFailedError:  # claim nothing: the change may have been stored or not
            refusal = refusals.TASK_STORE_FAILED(id)
        except RecordTooNewError:
            refusal = refusals.RECORD_TOO_NEW(id)
        else:
            self._call.respond(result, now=self._core.now)
            return
        error = refusal.reply
        self._call.respond_error(error.code, error.message, error.data, now=self._core.now)

    def _change(self, decide: Callable[[TaskRecord], TaskRecord | None]) -> Steps[KnownTask]:
        """Change the task. Raises RemoteProtocolError if there is none."""
        known = yield from self._table.change(self._key, decide)
        if known is None:
            raise refusals.UNKNOWN_TASK(self._call.request.id)
        return known

    def _get(self) -> Steps[dict[str, Any]]:
        known = yield from self._change(unchanged)
        return known.record.details(self._task_id)

    def _cancel(self) -> Steps[dict[str, Any]]:
        yield from self._change(self._cancelled)
        return {}

    def _update(self, given: Mapping[str, Any]) -> Steps[dict[str, Any]]:
        """Add responses. If they are the last ones, call the handler again."""
        known = yield from self._change(partial(self._updated, given))
        if self._answered is not None and self._answered.reentry is not None:
            self._table.go_on(self._key, known, self._answered.reentry, self._head)
        return {}

    def _cancelled(self, record: TaskRecord) -> TaskRecord | None:
        """Return the cancelled task; None if it has ended."""
        if record.is_terminal:
            return None
        time = self._core.wall_time()
        ended = record.ended(tasks.CANCELLED, time)
        return ended.kept(time, self._core.limits.max_stored_age)

    def _updated(self, given: Mapping[str, Any], record: TaskRecord) -> TaskRecord | None:
        """Return the task with those responses that it waits for; None if there is none.

        Raises RemoteProtocolError if it is to go on here, and there is no room.
        """
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
        limit = self._table.limit_for(self._key.principal, goes_on=True)
        if limit is not None:
            raise refusals.TOO_MANY_TASKS(self._call.request.id, limit=limit)
        self._answered = answered
        options = self._core.app.options_of("tools/call")
        return attrs.evolve(
            answered,
            status=tasks.WORKING,
            writer=self._core.instance,
            reentry=answered.reentry if options.is_restartable(reentry.request) else None,
        )


def _responses_of(request: Request) -> dict[str, Any]:
    """Return the input responses of ``tasks/update``. Raises RemoteProtocolError."""
    responses = json.as_object((request.params or {}).get(INPUT_RESPONSES))
    if responses is None or any(json.as_object(each) is None for each in responses.values()):
        what = "inputResponses is an object of results, which are objects"
        raise refusals.INVALID_MODERN_PARAMS(request.id, what=what)
    return responses
