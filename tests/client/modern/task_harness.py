"""Tasks of a scripted server: handles, states, and calls that are answered by them."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.events import TaskUpdated

from ..harness import Asked, notification
from .harness import SUBSCRIPTION, TASKS, ModernClientHarness, ModernProcess, failed

ID = "hX2-task-secret"
TOOL: dict[str, Any] = {"name": "render", "arguments": {}}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "ready"}], "isError": False}


def task(status: str = "working", **members: Any) -> dict[str, Any]:
    """What a server says of a task; members that are None are left out."""
    given: dict[str, Any] = {
        "taskId": ID,
        "status": status,
        "createdAt": "2026-08-01T10:00:00Z",
        "lastUpdatedAt": "2026-08-01T10:00:00Z",
        "ttlMs": 3_600_000,
        "pollIntervalMs": 2000,
        **members,
    }
    return {name: value for name, value in given.items() if value is not None}


def handle_of(status: str = "working", **members: Any) -> dict[str, Any]:
    return {"resultType": "task", **task(status, **members)}


def state(status: str = "working", **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", **task(status, **members)}


INSTANCE_LOST: dict[str, Any] = {
    "code": -32603,
    "message": "The instance has died",
    "data": {"reason": "instance_lost"},
}
"""The error of a task whose instance has died, as another one of the server says it."""
COMPLETED = state("completed", result=DONE)


def begin(
    harness: ModernClientHarness, handle: dict[str, Any] | None = None, **options: Any
) -> int:
    """A call that has become a task."""
    call, asked = harness.call(params=TOOL, **options)
    asked.result(handle_of() if handle is None else handle)
    return call


def poll(harness: ModernClientHarness, seconds: float = 2.0) -> Asked:
    """The next request about the task, which is a poll and comes after so many seconds."""
    due = harness.next_deadline()
    assert due == pytest.approx(harness.now + seconds)
    assert harness.requests == []
    harness.wait(seconds + 1e-9)
    asked = harness.take()
    check_request(asked, "tasks/get")
    return asked


def check_request(asked: Asked, method: str, id: str = ID) -> dict[str, Any]:
    """Check what each request about a task has, and return its other parameters."""
    message = asked.json
    assert message["method"] == method == asked.header("mcp-method")
    assert asked.header("mcp-name") == id == message["params"].pop("taskId")
    meta = message["params"].pop("_meta")
    assert meta.pop("progressToken", None) is None
    capabilities = meta["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities["extensions"][TASKS] == {}
    params: dict[str, Any] = message["params"]
    return params


def updates(harness: ModernClientHarness | ModernProcess) -> list[tuple[str, str | None]]:
    """What the client has reported of its tasks."""
    found = [event for event in harness.events if isinstance(event, TaskUpdated)]
    return [(event.status, event.message) for event in found]


LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = "notifications/tasks"


def about(id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A notification of a subscription."""
    return notification(method, **params, _meta={SUBSCRIPTION: id})


def acknowledge(asked: Asked, *ids: Any) -> None:
    """Take a subscription to some tasks."""
    asked.open_stream()
    asked.event(about(asked.id, ACKNOWLEDGED, notifications={"taskIds": list(ids)}))


def refuse_listening(asked: Asked) -> None:
    """Know no such request."""
    asked.answer(failed(asked.id, -32601, "Method not found"), 404)
