"""What a task keeps may be deep and large, within bounds: any state can be read again."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InputRequest, Limits, LocalProtocolError
from sansmcp.events import CallReceived

from .task_harness import NAME, TaskHarness, task_app

LEVELS = 490
"""How deep what a handler gives may nest."""

CLIENT_LEVELS = 500
"""The deepest messages of clients, if ``max_json_depth`` allows all that it may."""


def nested(levels: int) -> Any:
    """An array that nests so deep."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def result(levels: int) -> Any:
    """A result, which nests two levels deeper."""
    return {"content": [], "structuredContent": {"a": nested(levels)}}


def test_a_deep_result_is_kept() -> None:
    harness = TaskHarness()
    id, call = harness.new_task()
    harness.run_action(call.respond, result(LEVELS - 3))
    assert harness.get(id)["result"]["structuredContent"] == {"a": nested(LEVELS - 3)}


def test_a_result_that_is_too_deep_fails_the_task() -> None:
    """Otherwise each request about the task would fail, and leave its client waiting."""
    harness = TaskHarness()
    id, call = harness.new_task()
    harness.run_action(call.respond, result(LEVELS - 2))
    state = harness.get(id)
    assert (state["error"]["code"], state["error"]["data"]["reason"]) == (-32603, "too_deep")
    assert state["statusMessage"] == state["error"]["message"]


def test_an_error_that_is_too_deep() -> None:
    harness = TaskHarness()
    id, call = harness.new_task()
    harness.run_action(call.respond_error, -32000, "no", nested(LEVELS))
    assert harness.get(id)["error"]["data"]["reason"] == "too_deep"


def test_what_a_client_sends_is_kept_however_deep() -> None:
    """The largest ``max_json_depth``; an entry encloses the request by some members more."""
    limits = Limits(max_json_depth=CLIENT_LEVELS)
    harness = TaskHarness(task_app(restartable=True), limits=limits)
    arguments = nested(CLIENT_LEVELS - 3)
    id, call = harness.new_task(arguments={"a": arguments})
    harness.ask_input(call, name=NAME)
    answer = {"action": "accept", "content": nested(CLIENT_LEVELS - 4)}
    assert harness.update(id, {"1.name": answer}).status == 200
    assert harness.status(id) == "working"
    again = harness.entered()
    assert again.request.params is not None
    assert again.request.params["arguments"] == {"a": arguments}
    assert again.handler_input.input_responses == {"name": answer}


def test_states_and_input_requests_that_are_too_deep_are_refused() -> None:
    harness = TaskHarness(task_app(restartable=True))
    id, call = harness.new_task()
    deep = nested(LEVELS + 1)
    with pytest.raises(LocalProtocolError, match="deep"):
        harness.run_action(call.save_progress, deep)
    with pytest.raises(LocalProtocolError, match="deep"):
        harness.ask_input(call, deep)
    with pytest.raises(LocalProtocolError, match="deep"):
        harness.ask_input(call, deep, name=NAME)
    with pytest.raises(LocalProtocolError, match="deep"):
        harness.ask_input(call, name=InputRequest("elicitation/create", {"message": deep}))
    assert harness.status(id) == "working"
    harness.run_action(call.save_progress, nested(LEVELS))
    assert harness.status(id) == "working"
    assert len([event for event in harness.events if isinstance(event, CallReceived)]) == 1


def test_the_text_of_a_long_error_is_not_kept_twice() -> None:
    harness = TaskHarness()
    id, call = harness.new_task()
    harness.run_action(call.respond_error, -32000, "x" * 100_000)
    state = harness.get(id)
    assert state["statusMessage"] == "x" * 1000
    assert state["error"]["message"] == "x" * 100_000


@pytest.mark.parametrize(
    ("progress", "total", "message"),
    [
        (1_234_567, 9_876_543, "1234567 of 9876543"),
        (0.1 + 0.2, None, "0.3"),
        (10**400, None, str(10**400)),
    ],
)
def test_numbers_as_text(progress: float, total: float | None, message: str) -> None:
    harness = TaskHarness()
    id, call = harness.new_task()
    harness.run_action(call.progress, progress, total)
    harness.wait(1)
    assert harness.get(id)["statusMessage"] == message
