"""The words of the extension ``io.modelcontextprotocol/tasks``, which client and server share.

A server answers a ``tools/call`` with the handle of a task instead of the result. The client reads
the state of the task with ``tasks/get``, answers its questions with ``tasks/update``, and cancels
it with ``tasks/cancel``.

Source: SEP-2663; 2026-07-28 of the extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .codecs import json

EXTENSION = "io.modelcontextprotocol/tasks"
"""The name of the extension, in the capabilities of the server and of each request."""

GET = "tasks/get"
UPDATE = "tasks/update"
CANCEL = "tasks/cancel"
METHODS = frozenset((GET, UPDATE, CANCEL))
"""The requests about a task."""

CHANGED = "notifications/tasks"
"""Tells the state of a task to a client that listens for it."""

TASK_IDS = "taskIds"
"""The member of the filter of ``subscriptions/listen`` that names tasks."""

RESULT_TYPE = "task"
"""The ``resultType`` of a handle."""

WORKING = "working"
INPUT_REQUIRED = "input_required"
COMPLETED = "completed"
FAILED = "failed"
CANCELLED = "cancelled"
TERMINAL = frozenset((COMPLETED, FAILED, CANCELLED))
"""The states that never change."""

PROGRESS = "sansmcp/progress"
"""The member of ``_meta`` of a task with the numbers of the last progress report: an object with
``progress`` and perhaps ``total``. The extension itself has only the text ``statusMessage``.
"""

PROGRESS_UNSHOWN = "sansmcp/progressUnshown"
"""The member of ``_meta`` of a request whose client has a progress token only to move its deadline:
true. Then a call may become a task by default, although it carries a token.
"""


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Return True if the capabilities of a client or server include the extension.

    Any object is support, since the extension defines no settings; anything else is none.
    """
    extensions = json.as_object(capabilities.get("extensions")) or {}
    return json.as_object(extensions.get(EXTENSION)) is not None
