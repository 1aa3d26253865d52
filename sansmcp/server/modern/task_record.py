"""What the log of a task keeps: each entry is the whole state of the task.

So the last entry is enough, and a store may evict the others. No client sees an entry; the methods
of ``TaskRecord`` return what it gets.

Source: the extension io.modelcontextprotocol/tasks at 2026-07-28; SEP-2663.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import attrs

from ... import tasks
from ...messages import Request
from ..calls import STORED_DEPTH
from ..records import NOTHING, read_record, write_record

MAX_MESSAGE_CHARS = 1000
"""Characters that are kept of a status message."""


@attrs.frozen
class Reentry:
    """Everything that any instance needs to call the handler of a task."""

    request: Request
    names: Mapping[str, str] = attrs.field(factory=lambda: {})
    """The names that the handler gave to the input requests of this round, by their keys."""
    responses: Mapping[str, Any] = attrs.field(factory=lambda: {})
    """The input responses of this round so far, by names."""
    state: Any = None
    """The state that the handler saved last."""
    rounds: int = 0
    restarts: int = 0
    """How often the handler was entered again since it saved its progress."""


@attrs.frozen(kw_only=True)
class TaskRecord:
    """The state of a task. Times are in seconds since 1970."""

    status: str = tasks.WORKING
    created: float
    updated: float
    """When status, message or input requests changed last."""
    ttl: float | None
    """Seconds from ``created`` for which the task can be read; None for no end."""
    poll_interval: float
    """Seconds between two polls of a client."""
    message: str | None = None
    """The text of the last progress report, or why the task has failed."""
    progress: Mapping[str, Any] | None = None
    """The numbers of the last progress report."""
    writer: str = ""
    """The instance that runs the handler; empty if none does, or no others share the store."""
    input_requests: Mapping[str, Any] = attrs.field(factory=lambda: {})
    """The input requests without a response, by keys."""
    outcome: Mapping[str, Any] = attrs.field(factory=lambda: {})
    """The member ``result`` or ``error`` of the response, once there is one."""
    reentry: Reentry | None = None
    """None if the handler is not called again."""
    unknown: Mapping[str, Any] = NOTHING
    """The members that only a later version knows, also those of the records inside."""

    @property
    def is_terminal(self) -> bool:
        """True if the task has ended."""
        return self.status in tasks.TERMINAL

    def encode(self) -> bytes:
        """Return the data of an entry. Raises LocalProtocolError if a state is not JSON."""
        return write_record(self, self.unknown)

    @classmethod
    def decode(cls, data: bytes) -> TaskRecord:
        """Return the record in the data of an entry. Raises RecordTooNewError."""
        return read_record(cls, data, STORED_DEPTH, {"reentry": Reentry, "request": Request})

    def is_expired(self, time: float) -> bool:
        """Return True if the time to live is over.

        Never while the handler runs: its instance renews the time by its own clock, and that of
        the instance that asks may be hours ahead.
        """
        is_over = self.ttl is not None and time >= self.created + self.ttl
        return is_over and self.status != tasks.WORKING

    def kept(self, time: float, seconds: float) -> TaskRecord:
        """Return the record with a time to live that ends ``seconds`` after ``time``.

        Not before it was created, by the clock of another instance: this one's may be behind.
        """
        ttl = max(time, self.created) - self.created + seconds
        return attrs.evolve(self, ttl=None if ttl == math.inf else ttl)

    def ended(self, status: str, time: float, **changes: Any) -> TaskRecord:
        """Return the record of the task when it has ended."""
        return attrs.evolve(
            self,
            status=status,
            updated=time,
            writer="",
            input_requests={},
            reentry=None,
            **changes,
        )

    def failed(self, error: Mapping[str, Any], time: float) -> TaskRecord:
        """Return the record of the task when it has ended with an error."""
        message = str(error.get("message"))[:MAX_MESSAGE_CHARS]
        return self.ended(tasks.FAILED, time, outcome={"error": error}, message=message)

    def handle(self, id: str) -> dict[str, Any]:
        """Return the result that a client gets instead of that of its call."""
        return {"resultType": tasks.RESULT_TYPE, **self._members(id)}

    def details(self, id: str) -> dict[str, Any]:
        """Return the state of the task as ``tasks/get`` and notifications give it."""
        members = {**self._members(id), **self.outcome}
        if self.status == tasks.INPUT_REQUIRED:
            members["inputRequests"] = self.input_requests
        if self.progress is not None:
            members["_meta"] = {tasks.PROGRESS: self.progress}
        return members

    def _members(self, id: str) -> dict[str, Any]:
        members: dict[str, Any] = {
            "taskId": id,
            "status": self.status,
            "createdAt": _timestamp(self.created),
            "lastUpdatedAt": _timestamp(self.updated),
            "ttlMs": None if self.ttl is None else _milliseconds(self.ttl),
            "pollIntervalMs": _milliseconds(self.poll_interval),
        }
        if self.message is not None:
            members["statusMessage"] = self.message
        return members


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _timestamp(time: float) -> str:
    """Return a time in the form of ISO 8601."""
    written = datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds")
    return written.replace("+00:00", "Z")
