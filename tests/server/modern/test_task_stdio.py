"""Tasks on stdio."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from sansmcp import InputRequired
from sansmcp.events import CallReceived
from sansmcp.meta_keys import LISTEN
from sansmcp.tasks import CANCEL, CHANGED, GET, TASK_IDS, UPDATE

from ..harness import notification
from ..pipe_harness import Pipe
from .harness import meta, modern
from .lines import acknowledged, ended
from .task_harness import ADA, ASKABLE, EPOCH, NAME, RESULT, TASKS, TaskHarness, task_app

requirement = pytest.mark.requirement


@pytest.fixture
def pipe() -> Generator[Pipe, None, None]:
    """A server on stdio; its tasks end with it."""
    pipe = new_pipe()
    yield pipe
    stop(pipe)


def new_pipe(**settings: Any) -> Pipe:
    return Pipe(task_app(), resumable=True, wall_clock=lambda: EPOCH, **settings)


def stop(pipe: Pipe) -> None:
    pipe.harness.store_works = True
    pipe.harness.run_action(pipe.harness.server.shut_down)
    while pipe.harness.waiting:
        pipe.harness.use_store_once()


def new_task(pipe: Pipe, id: Any = 1) -> tuple[str, Any]:
    pipe.say(modern(id, about=meta(ASKABLE)))
    (answer,) = pipe.said
    assert (answer["id"], answer["result"]["resultType"]) == (id, "task")
    return answer["result"]["taskId"], pipe.harness.last_call()


def about(pipe: Pipe, method: str, task: str, **params: Any) -> Any:
    pipe.say(modern(9, method, meta(TASKS), taskId=task, **params))
    *_, answer = pipe.said
    return answer["result"]


def test_a_task_from_its_handle_to_its_result(pipe: Pipe) -> None:
    id, call = new_task(pipe)
    assert about(pipe, GET, id)["status"] == "working"
    pipe.harness.run_action(call.respond, InputRequired({"name": NAME}))
    assert about(pipe, GET, id)["inputRequests"].keys() == {"1.name"}
    about(pipe, UPDATE, id, inputResponses={"1.name": ADA})
    again = pipe.harness.last_call()
    pipe.harness.run_action(again.respond, RESULT)
    assert about(pipe, GET, id)["result"]["content"] == RESULT["content"]


def test_the_id_of_a_request_is_free_when_the_handle_is_sent(pipe: Pipe) -> None:
    first, call = new_task(pipe)
    second, _ = new_task(pipe)
    assert first != second
    pipe.say(notification("notifications/cancelled", requestId=1))
    pipe.harness.run_action(call.respond, RESULT)
    assert about(pipe, GET, first)["status"] == "completed"
    assert about(pipe, GET, second)["status"] == "working"


def test_a_task_is_cancelled_by_its_own_request(pipe: Pipe) -> None:
    id, call = new_task(pipe)
    assert about(pipe, CANCEL, id).keys() == {"resultType", "_meta"}
    assert not call.is_running
    assert about(pipe, GET, id)["status"] == "cancelled"


def test_a_call_is_cancelled_before_the_handle() -> None:
    pipe = Pipe(task_app(task=1), resumable=True, wall_clock=lambda: EPOCH)
    pipe.say(modern(1, about=meta(TASKS)))
    call = pipe.harness.last_call()
    pipe.say(notification("notifications/cancelled", requestId=1))
    assert not call.is_running
    pipe.harness.wait(5)
    assert pipe.run_pending().said == []


def test_a_client_listens_among_other_messages(pipe: Pipe) -> None:
    id, call = new_task(pipe)
    pipe.say(modern("l", LISTEN, meta(TASKS), notifications={TASK_IDS: [id]}))
    first, second = pipe.said
    assert first == acknowledged("l", **{TASK_IDS: [id]})
    assert (second["method"], second["params"]["status"]) == (CHANGED, "working")
    pipe.harness.run_action(call.respond, RESULT)
    told, *rest = pipe.run_pending().said
    assert told["params"]["status"] == "completed"
    assert rest == ended("l")


def test_a_client_ends_its_subscription(pipe: Pipe) -> None:
    id, call = new_task(pipe)
    pipe.say(modern("l", LISTEN, meta(TASKS), notifications={TASK_IDS: [id]}))
    pipe.say(notification("notifications/cancelled", requestId="l"))
    pipe.output = b""
    pipe.harness.run_action(call.respond, RESULT)
    assert pipe.run_pending().said == []


def test_a_subscription_may_end_before_the_store_has_answered(pipe: Pipe) -> None:
    id, _ = new_task(pipe)
    pipe.harness.store_works = False
    pipe.say(modern("l", LISTEN, meta(TASKS), notifications={TASK_IDS: [id]}))
    pipe.say(notification("notifications/cancelled", requestId="l"))
    pipe.harness.use_store_once()
    assert pipe.run_pending().said == []


def test_a_subscription_is_refused_without_the_store(pipe: Pipe) -> None:
    id, _ = new_task(pipe)
    pipe.harness.store_works = False
    pipe.say(modern("l", LISTEN, meta(TASKS), notifications={TASK_IDS: [id]}))
    pipe.harness.fail_store_for_good()
    (answer,) = pipe.run_pending().said
    assert answer["error"]["data"]["reason"] == "store_failed"


def test_a_task_outlives_its_pipe(pipe: Pipe) -> None:
    id, call = new_task(pipe)
    pipe.lose()
    assert call.is_running
    pipe.harness.run_action(call.respond, RESULT)
    other = TaskHarness(store=pipe.harness.store, tokens="other")
    assert other.status(id) == "completed"


def test_a_task_fails_if_nothing_outlives_its_process() -> None:
    first = TaskHarness(shared_store=True)
    pipe = new_pipe(shared_store=True)
    pipe.harness.store = first.store
    id, _ = new_task(pipe)
    first.get(id)
    first.wait(12)
    assert first.status(id) == "failed"
    assert not any(isinstance(event, CallReceived) for event in first.events)
    stop(pipe)
