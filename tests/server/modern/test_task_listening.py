"""Status notifications: a client that listens hears of each state of its tasks."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Limits
from sansmcp.effects import StoreRead
from sansmcp.tasks import CHANGED, TASK_IDS

from ...handlers import nothing
from ..harness import RawExchange, methods
from .harness import MODERN, SUBSCRIPTION_ID, modern_app
from .task_harness import ADA, NAME, RESULT, TaskHarness, TaskInstances, task_app

requirement = pytest.mark.requirement

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@pytest.fixture
def harness() -> TaskHarness:
    return TaskHarness()


def statuses(talk: RawExchange) -> list[str]:
    """The states that a client was told of."""
    told = [message["params"] for message in talk.messages if message.get("method") == CHANGED]
    return [params["status"] for params in told]


def acknowledged(talk: RawExchange) -> Any:
    assert talk.messages[0]["method"] == ACKNOWLEDGED
    return talk.messages[0]["params"]["notifications"]


@requirement("TASKS-S-024", "TASKS-S-025", "TASKS-S-062")
def test_each_state_is_told(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    talk = harness.listen(id, "unknown", "x" * 20)
    assert acknowledged(talk) == {TASK_IDS: [id]}
    assert statuses(talk) == ["working"]
    harness.ask_input(call, name=NAME)
    state = harness.get(id)
    told = talk.messages[-1]["params"]
    assert (
        told.pop("_meta")[SUBSCRIPTION_ID] == talk.messages[0]["params"]["_meta"][SUBSCRIPTION_ID]
    )
    assert told == {key: state[key] for key in state.keys() - {"resultType", "_meta"}}
    harness.update(id, {"1.name": ADA})
    harness.run_action(harness.entered().respond, RESULT)
    assert statuses(talk) == ["working", "input_required", "working", "completed"]
    told = talk.messages[-2]["params"]["result"]
    assert told == harness.get(id)["result"]


def test_a_stream_of_tasks_alone_ends_with_the_last_of_them(harness: TaskHarness) -> None:
    ids = [harness.new_task() for _ in range(2)]
    talk = harness.listen(*(id for id, _ in ids))
    harness.run_action(ids[0][1].respond, RESULT)
    assert not talk.ended
    harness.cancel(ids[1][0])
    assert talk.ended
    assert statuses(talk) == ["working", "working", "completed", "cancelled"]
    assert talk.messages[-1]["result"]["resultType"] == "complete"


def test_another_stream_does_not() -> None:
    app = modern_app()
    del app.handlers["tools/call"]
    app.handler("tools/call", task=0)(nothing)
    harness = TaskHarness(app)
    id, call = harness.new_task()
    talk = harness.listen(id, toolsListChanged=True)
    assert acknowledged(talk) == {"toolsListChanged": True, TASK_IDS: [id]}
    harness.run_action(call.respond, RESULT)
    harness.run_action(harness.server.publish, "notifications/tools/list_changed")
    assert not talk.ended
    assert methods(talk)[-1] == "notifications/tools/list_changed"


def test_a_task_that_has_ended_is_told_once(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.run_action(call.respond, RESULT)
    talk = harness.listen(id)
    assert statuses(talk) == ["completed"]
    assert talk.ended


@requirement("TASKS-S-023")
def test_listening_for_tasks_needs_the_declaration(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    talk = harness.listen(id, capabilities={})
    assert (talk.status, talk.error["code"]) == (400, -32021)


def test_a_server_without_tasks_leaves_them_out() -> None:
    talk = TaskHarness(task_app(task="never")).listen("x" * 20, capabilities={})
    assert acknowledged(talk) == {}


@requirement("TASKS-S-032")
def test_a_foreign_task_is_left_out(harness: TaskHarness) -> None:
    id, _ = harness.new_task(principal="ada")
    talk = harness.listen(id, principal="eve")
    assert acknowledged(talk) == {}


@pytest.mark.parametrize("ids", [[], "no", [7, None]])
def test_a_filter_without_tasks(harness: TaskHarness, ids: Any) -> None:
    talk = harness.listen(**{TASK_IDS: ids})
    assert acknowledged(talk) == {}
    assert talk.ended


def test_the_tasks_of_a_subscription_are_bounded() -> None:
    harness = TaskHarness(limits=Limits(max_resources_per_subscription=2))
    ids = [harness.new_task()[0] for _ in range(3)]
    assert acknowledged(harness.listen(*ids)) == {TASK_IDS: ids[:2]}


def test_a_client_that_leaves_is_told_no_more(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    talk = harness.listen(id)
    talk.lose_connection()
    harness.run_action(call.progress, 1)
    assert harness.watched == set()


def test_a_slow_client_gets_the_newest_state_when_it_reads_again() -> None:
    harness = TaskHarness(limits=Limits(max_unsent_bytes=300))
    id, call = harness.new_task()
    talk = harness.listen(id)
    talk.reads = False
    for number in range(1, 6):
        harness.wait(2)
        harness.run_action(call.progress, number)
    talk.reads = True
    talk.pull()
    harness.wait(1)
    told = [each["params"].get("statusMessage") for each in talk.messages[1:]]
    assert told[-1] == "5"
    assert len(told) < 5


def test_another_instance_tells_of_a_task() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    talk = second.listen(id)
    first.run_action(call.respond, RESULT)
    assert statuses(talk) == ["working"]
    instances.wait(0.25)
    assert statuses(talk) == ["working", "completed"]
    assert talk.ended


def test_a_store_that_tells_of_changes_is_not_polled() -> None:
    first, second = TaskInstances(versions=(MODERN,))
    second.store_tells = True
    id, call = first.new_task()
    talk = second.listen(id)
    first.run_action(call.respond, RESULT)
    second.tell()
    assert statuses(talk) == ["working", "completed"]


def test_a_slow_client_does_not_wait_until_the_store_tells_again() -> None:
    first, second = instances = TaskInstances(
        versions=(MODERN,), limits=Limits(max_unsent_bytes=300)
    )
    second.store_tells = True
    id, call = first.new_task()
    talk = second.listen(id)
    talk.reads = False
    instances.wait(2)
    first.run_action(call.progress, 1)
    second.tell()
    assert "statusMessage" not in talk.messages[-1]["params"]
    first.run_action(call.respond, RESULT)
    second.tell()
    talk.reads = True
    talk.pull()
    instances.wait(1)
    assert statuses(talk)[-1] == "completed"


def test_a_second_listener_does_not_miss_what_the_first_was_told() -> None:
    first, second = instances = TaskInstances(versions=(MODERN,))
    second.store_tells = True
    id, call = first.new_task()
    talk = second.listen(id)
    second.store_works = False
    another = second.listen(id)
    (read,) = second.waiting
    assert isinstance(read, StoreRead)
    found = instances.store.read(read.stream, read.after, limit=9, max_bytes=9999)
    first.run_action(call.respond, RESULT)
    second.tell()
    second.waiting.remove(read)
    second.run_action(second.server.read_completed, read, found)  # as it was before
    while second.waiting:
        second.use_store_once()
    assert statuses(talk) == statuses(another) == ["working", "completed"]


def test_whoever_listens_hears_of_the_death_of_an_instance() -> None:
    first, second = instances = TaskInstances()
    id, _ = first.new_task()
    talk = second.listen(id)
    instances.wait(12, second)
    assert statuses(talk) == ["working", "failed"]
    assert talk.ended


def test_a_task_that_is_no_longer_stored_is_told_no_more() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    first.ask_input(call, name=NAME)
    talk = second.listen(id)
    instances.store.drop("", ".tasks")
    instances.wait(0.5)
    assert statuses(talk) == ["input_required"]
    assert talk.ended


# The store


def test_a_filter_waits_for_the_store(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    harness.store_works = False
    talk = harness.listen(id)
    assert talk.head is None
    harness.use_store_once()
    assert statuses(talk) == ["working"]


def test_a_filter_is_refused_without_the_store(harness: TaskHarness) -> None:
    ids = [harness.new_task()[0] for _ in range(2)]
    harness.store_works = False
    talk = harness.listen(*ids)
    while harness.waiting:
        harness.fail_store_for_good()
    assert (talk.status, talk.error["data"]["reason"]) == (503, "store_failed")


def test_a_client_that_leaves_meanwhile_is_forgotten(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    harness.store_works = False
    talk = harness.listen(id)
    talk.lose_connection()
    harness.use_store_once()
    assert talk.head is None


def test_a_server_that_stops_meanwhile_refuses(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    harness.store_works = False
    talk = harness.listen(id)
    harness.run_action(harness.server.shut_down)
    while harness.waiting:
        harness.use_store_once()
    assert (talk.status, talk.error["data"]["reason"]) == (503, "shutting_down")


def test_a_state_that_cannot_be_read_is_read_later(harness: TaskHarness) -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    talk = second.listen(id)
    first.run_action(call.respond, RESULT)
    second.store_works = False
    second.wait(0.25)
    while second.waiting:
        second.fail_store_once()
    second.store_works = True
    instances.wait(0.5)
    assert statuses(talk) == ["working", "completed"]


def test_a_state_that_arrives_after_the_end_is_dropped() -> None:
    first, second = TaskInstances()
    id, call = first.new_task()
    talk = second.listen(id)
    second.store_works = False
    second.wait(0.25)
    talk.lose_connection()
    while second.waiting:
        second.use_store_once()
    assert statuses(talk) == ["working"]
    again = second.listen
    second.store_works = True
    talk = again(id)
    second.store_works = False
    second.wait(0.25)
    talk.lose_connection()
    while second.waiting:
        second.fail_store_once()
    assert call.is_running


def test_those_that_listen_while_tasks_are_read_find_no_more_room_than_there_is() -> None:
    """There was room for each of them when it came."""
    harness = TaskHarness(limits=Limits(max_subscriptions=1))
    id, _ = harness.new_task()
    harness.store_works = False
    talks = [harness.listen(id) for _ in range(3)]
    while harness.waiting:
        harness.use_store_once()
    assert [talk.status for talk in talks] == [200, 503, 503]
    assert talks[1].error["data"]["reason"] == "too_many_subscriptions"
