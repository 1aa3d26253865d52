"""What is said on stdio at the stateless revision."""

from __future__ import annotations

from typing import Any

from sansmcp.events import RefusalSent
from sansmcp.meta_keys import LISTEN

from ..harness import notification
from ..pipe_harness import Pipe, reason, result
from .harness import SERVER_INFO, SUBSCRIPTION_ID, modern

US = {"name": "bench", "version": "1"}
TOOLS = "notifications/tools/list_changed"


def complete(id: Any, **members: Any) -> dict[str, Any]:
    return result(id, {"resultType": "complete", **members, "_meta": {SERVER_INFO: US}})


def cancelled(id: Any, **more: Any) -> dict[str, Any]:
    return notification("notifications/cancelled", requestId=id, **more)


def listening(id: Any, **notifications: Any) -> dict[str, Any]:
    return modern(id, LISTEN, notifications=notifications)


def refusal(pipe: Pipe, message: Any) -> tuple[Any, int, str]:
    """What a message is answered with; no handler runs."""
    (answer,) = pipe.say(message).said
    assert pipe.events == [RefusalSent]
    return (answer.get("id"), *reason(answer))


def told(id: Any, method: str = TOOLS) -> dict[str, Any]:
    return notification(method, _meta={SUBSCRIPTION_ID: id})


def acknowledged(id: Any, **notifications: Any) -> dict[str, Any]:
    method = "notifications/subscriptions/acknowledged"
    return notification(method, notifications=notifications, _meta={SUBSCRIPTION_ID: id})


def ended(id: Any) -> list[dict[str, Any]]:
    closing = result(id, {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: id}})
    return [closing, cancelled(id, reason="the server ends the subscription")]
