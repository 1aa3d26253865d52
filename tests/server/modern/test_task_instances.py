"""Tasks of several instances that share a store: any of them serves a task, and one may die."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Limits, LocalProtocolError, Page, StreamKey
from sansmcp.effects import StoreEffect, StoreRead
from sansmcp.events import CallReceived
from sansmcp.server.leases import lease_key
from sansmcp.tasks import GET

from .harness import MODERN
from .task_harness import ADA, AGE, NAME, RESULT, TaskHarness, TaskInstances, task_app

requirement = pytest.mark.requirement

LEASE = 10.0
"""Seconds: the default of ``Limits.lease_timeout``."""

RESTARTABLE = {"restartable": True}


def reason_of(harness: TaskHarness, id: str) -> Any:
    return harness.get(id)["error"]["data"]["reason"]


def entries_of(harness: TaskHarness) -> int:
    return sum(isinstance(event, CallReceived) for event in harness.events)


@requirement("TASKS-S-007")
def test_any_instance_knows_a_task_as_soon_as_its_client_does() -> None:
    first, second = TaskInstances()
    id, call = first.new_task()
    assert second.status(id) == "working"
    first.run_action(call.respond, RESULT)
    assert second.get(id)["result"]["content"] == RESULT["content"]
    assert second.get(id) == first.get(id)


@requirement("TASKS-S-059")
def test_any_instance_cancels_a_task() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    second.cancel(id)
    assert first.status(id) == second.status(id) == "cancelled"
    instances.wait(0.5)
    assert first.cancelled(call)


def test_an_instance_that_reads_of_a_cancellation_cancels_at_once() -> None:
    first, second = TaskInstances()
    id, call = first.new_task()
    second.cancel(id)
    first.get(id)
    assert first.cancelled(call)


def test_a_result_that_comes_after_a_cancellation_elsewhere_is_dropped() -> None:
    first, second = TaskInstances()
    id, call = first.new_task()
    second.cancel(id)
    first.run_action(call.respond, RESULT)
    assert first.status(id) == second.status(id) == "cancelled"
    assert not first.server.is_busy


def test_progress_after_a_cancellation_elsewhere_cancels_the_handler() -> None:
    first, second = TaskInstances()
    _, call = first.new_task()
    id, call = first.new_task()
    second.cancel(id)
    first.now = second.now = 1.5
    first.run_action(call.progress, 1)
    assert first.cancelled(call)


def test_a_parked_task_goes_on_at_the_instance_with_the_last_answer() -> None:
    first, second, third = TaskInstances(3)
    id, call = first.new_task()
    first.ask_input(call, "state", name=NAME, age=AGE)
    assert second.get(id)["inputRequests"].keys() == {"1.name", "1.age"}
    second.update(id, {"1.name": ADA})
    assert third.get(id)["inputRequests"].keys() == {"1.age"}
    third.update(id, {"1.age": ADA})
    again = third.entered()
    assert again.handler_input.input_responses == {"name": ADA, "age": ADA}
    assert again.handler_input.state == "state"
    assert again.request == call.request
    assert [entries_of(each) for each in (first, second, third)] == [1, 0, 1]
    third.run_action(again.respond, RESULT)
    assert first.status(id) == "completed"


def test_a_parked_task_needs_no_instance() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    first.ask_input(call, name=NAME)
    instances.wait(6 * LEASE, second)
    assert second.status(id) == "input_required"
    second.update(id, {"1.name": ADA})
    assert second.entered().is_running


def test_of_two_instances_with_the_last_answer_one_goes_on() -> None:
    first, second, third = TaskInstances(3)
    id, call = first.new_task()
    first.ask_input(call, name=NAME)
    second.store_works = third.store_works = False
    talks = [each.update(id, {"1.name": ADA}) for each in (second, third)]
    for each in (second, third, second, third):  # both read, then both append
        while each.waiting:
            each.use_store_once()
            break
    while second.waiting or third.waiting:
        for each in (second, third):
            if each.waiting:
                each.use_store_once()
    assert [talk.json["result"]["resultType"] for talk in talks] == ["complete", "complete"]
    assert sorted(entries_of(each) for each in (second, third)) == [0, 1]


# The death of an instance


@requirement("TASKS-S-053")
def test_a_task_whose_instance_has_died_fails_within_the_lease_and_two_seconds() -> None:
    first, second = instances = TaskInstances()
    id, _ = first.new_task()
    assert second.status(id) == "working"
    instances.wait(LEASE - 1, second)
    assert second.status(id) == "working"
    instances.wait(3, second)
    state = second.get(id)
    assert (state["status"], state["error"]["code"]) == ("failed", -32603)
    assert reason_of(second, id) == "instance_lost"
    assert state["statusMessage"] == state["error"]["message"]


def test_a_task_lives_as_long_as_its_instance() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    for _ in range(12):
        instances.wait(LEASE)
        assert second.status(id) == "working"
    first.run_action(call.respond, RESULT)
    assert second.status(id) == "completed"


def test_an_instance_that_was_only_slow_cancels_its_handler() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    second.get(id)
    instances.wait(LEASE + 2, second)
    assert second.status(id) == "failed"
    first.wait(1)
    assert first.cancelled(call)
    assert first.status(id) == "failed"


def reads_log(effect: StoreEffect, key: StreamKey) -> bool:
    return isinstance(effect, StoreRead) and effect.stream == key


def lease_read(harness: TaskHarness) -> tuple[StoreRead, Page | None]:
    """Let the next page of a lease be read, and not reported yet."""
    harness.store_works = harness.leases_work = False
    lease = lease_key("instance-0-000000000001")
    while not (reads := [each for each in harness.waiting if reads_log(each, lease)]):
        harness.wait(0.25)
    (read,) = reads
    assert isinstance(read, StoreRead)
    return read, harness.store.read(read.stream, read.after, limit=9, max_bytes=9999)


@pytest.mark.parametrize("asks_again", [False, True])
def test_an_instance_that_had_nothing_to_write_is_not_dead(asks_again: bool) -> None:
    """It has kept no lease while its task waited for input. Then it runs the handler again."""
    first, second = instances = TaskInstances(versions=(MODERN,))
    id, call = first.new_task()
    second.get(id)
    instances.wait(1)
    first.ask_input(call, name=NAME)
    instances.wait(8.5)
    read, page = lease_read(second)
    first.update(id, {"1.name": ADA})
    if asks_again:
        asking = second.about(GET, id)
        second.use_store_except(read)
        assert asking.json["result"]["status"] == "working"
    second.waiting.remove(read)
    second.run_action(second.server.read_completed, read, page)
    second.store_works = second.leases_work = True
    while second.waiting:
        second.use_store_once()
    instances.wait(15)
    first.run_action(first.entered().respond, RESULT)
    assert second.get(id)["result"]["content"] == RESULT["content"]


def test_an_instance_that_begins_another_task_is_not_dead() -> None:
    first, second = instances = TaskInstances(versions=(MODERN,))
    id, call = first.new_task()
    second.get(id)
    instances.wait(1)
    first.ask_input(call, name=NAME)
    instances.wait(8.5)
    read, page = lease_read(second)
    another, call = first.new_task()
    asking = second.about(GET, another)
    second.use_store_except(read)
    assert asking.json["result"]["status"] == "working"
    second.waiting.remove(read)
    second.run_action(second.server.read_completed, read, page)
    second.store_works = second.leases_work = True
    while second.waiting:
        second.use_store_once()
    assert first.status(another) == second.status(another) == "working"


def test_an_instance_dies_after_it_has_gone_on() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    second.get(id)
    instances.wait(1)
    first.ask_input(call, name=NAME)
    instances.wait(8)
    first.update(id, {"1.name": ADA})
    instances.wait(2 * LEASE + 2, second)
    assert reason_of(second, id) == "instance_lost"


def test_nobody_is_followed_for_ever() -> None:
    first, second = instances = TaskInstances(versions=(MODERN,))
    id, _ = first.new_task()
    second.get(id)
    instances.wait(130)
    assert second.next_deadline() is None


def test_a_client_that_polls_rarely_sees_the_death() -> None:
    first, second = instances = TaskInstances()
    id, _ = first.new_task()
    second.get(id)
    instances.wait(60, second)
    assert second.status(id) == "failed"


def test_of_several_followers_one_ends_the_task() -> None:
    first, *others = instances = TaskInstances(4)
    id, _ = first.new_task()
    for each in others:
        each.get(id)
    instances.wait(LEASE + 2, *others)
    assert {reason_of(each, id) for each in others} == {"instance_lost"}


def test_a_server_that_stops_ends_its_tasks() -> None:
    first, second = TaskInstances()
    id, call = first.new_task()
    assert first.server.is_busy
    first.run_action(first.server.shut_down)
    assert first.cancelled(call)
    assert reason_of(second, id) == "shutting_down"


def test_a_server_that_stops_before_the_handle_answers_the_call() -> None:
    first = TaskInstances(1)[0]
    first.store_works = False
    talk, _ = first.call_tool()
    first.run_action(first.server.shut_down)
    assert talk.json["error"]["data"]["reason"] == "shutting_down"
    while first.waiting:
        first.use_store_once()


def test_a_task_of_an_instance_without_others_fails_when_it_is_started_again() -> None:
    first = TaskHarness()
    id, _ = first.new_task()
    second = TaskHarness(store=first.store, tokens="again")
    second.get(id)
    assert reason_of(second, id) == "instance_lost"


# Handlers that are called again


def test_a_restartable_handler_is_called_again_with_what_it_saved() -> None:
    first, second = instances = TaskInstances(app=task_app(**RESTARTABLE))
    id, call = first.new_task()
    assert first.run_action(call.save_progress, {"step": 3})
    assert not call.is_above_high_water
    second.get(id)
    instances.wait(LEASE + 2, second)
    again = second.entered()
    assert again.handler_input.state == {"step": 3}
    assert again.request == call.request
    assert again.peer.client_capabilities == call.peer.client_capabilities
    assert second.status(id) == "working"
    second.run_action(again.respond, RESULT)
    assert second.status(id) == "completed"
    first.wait(1)
    assert first.cancelled(call)


def test_a_restartable_handler_is_called_again_by_one_instance() -> None:
    first, *others = instances = TaskInstances(4, app=task_app(**RESTARTABLE))
    id, _ = first.new_task()
    for each in others:
        each.get(id)
    instances.wait(LEASE + 2, *others)
    assert sorted(entries_of(each) for each in others) == [0, 0, 1]


def test_a_handler_that_kills_its_instances_is_not_called_for_ever() -> None:
    every = instances = TaskInstances(6, app=task_app(**RESTARTABLE))
    id, _ = every[0].new_task()
    for number in range(1, 6):
        every[number].get(id)
        instances.wait(LEASE + 2, every[number])
    assert [entries_of(each) for each in every] == [1, 1, 1, 1, 0, 0]
    assert reason_of(every[5], id) == "instance_lost"


def test_the_tasks_of_a_server_that_stops_are_called_again() -> None:
    first, second = instances = TaskInstances(app=task_app(**RESTARTABLE))
    id, call = first.new_task()
    first.run_action(call.save_progress, 1)
    first.run_action(first.server.shut_down)
    assert first.cancelled(call)
    assert second.status(id) == "working"
    instances.wait(1, second)
    assert second.entered().handler_input.state == 1, "it need not wait for the lease"


def test_what_was_answered_is_there_again_after_a_restart() -> None:
    first, second = instances = TaskInstances(app=task_app(**RESTARTABLE))
    id, call = first.new_task()
    first.run_action(call.progress, 4)
    first.ask_input(call, "asked", name=NAME)
    first.update(id, {"1.name": ADA})
    second.get(id)
    instances.wait(LEASE + 2, second)
    again = second.entered()
    assert again.handler_input.input_responses == {"name": ADA}
    assert again.handler_input.state == "asked"
    assert again.rounds == 1
    assert second.run_action(again.progress, 2), "it repeats what it has done"


def test_progress_that_is_saved_before_the_handle_is_saved_with_the_task() -> None:
    first, second = instances = TaskInstances(app=task_app(task=1, **RESTARTABLE))
    talk, call = first.call_tool()
    assert not first.run_action(call.save_progress, "early")
    first.wait(1)
    instances.wait(0.25)
    id = talk.messages[-1]["result"]["taskId"]
    second.get(id)
    instances.wait(LEASE + 2, second)
    assert second.entered().handler_input.state == "early"


def test_a_state_alone_is_saved_with_the_task() -> None:
    first, second = instances = TaskInstances(app=task_app(**RESTARTABLE))
    id, call = first.new_task()
    first.ask_input(call, "step 2")
    second.get(id)
    instances.wait(LEASE + 2, second)
    assert second.entered().handler_input.state == "step 2"


def test_only_a_restartable_handler_saves_progress() -> None:
    harness = TaskHarness()
    _, call = harness.new_task()
    with pytest.raises(LocalProtocolError, match="restartable"):
        harness.run_action(call.save_progress, 1)


def test_progress_is_not_saved_after_the_end() -> None:
    harness = TaskHarness(task_app(**RESTARTABLE))
    id, call = harness.new_task()
    with pytest.raises(LocalProtocolError):
        harness.run_action(call.save_progress, {1, 2})
    harness.cancel(id)
    assert not harness.run_action(call.save_progress, 1)


# Bounds


def test_beyond_the_bound_calls_keep_their_connections() -> None:
    limits = Limits(max_tasks_per_principal=2, max_tasks=3)
    harness = TaskHarness(limits=limits)
    ids = [harness.new_task(principal="ada")[0] for _ in range(2)]
    talk, call = harness.call_tool(principal="ada")
    harness.run_action(call.respond, RESULT)
    assert talk.json["result"]["resultType"] == "complete"
    harness.new_task(principal="eve")
    talk, call = harness.call_tool(principal="bob")
    harness.run_action(call.respond, RESULT)
    assert talk.json["result"]["resultType"] == "complete"
    harness.cancel(ids[0], principal="ada")
    harness.new_task(principal="ada")


def test_beyond_the_bound_a_call_that_needs_a_task_is_refused() -> None:
    harness = TaskHarness(task_app(task="required"), limits=Limits(max_tasks=1))
    _, call = harness.call_tool()
    harness.run_action(call.become_task)
    talk = harness.call_tool()[0]
    assert (talk.status, talk.error["data"]["reason"]) == (429, "too_many_tasks")


def test_a_task_whose_log_the_store_has_lost_is_written_again() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    instances.store.drop("", ".tasks")
    assert second.about(GET, id).error["code"] == -32602
    instances.wait(0.5)
    assert second.status(id) == "working"
    first.run_action(call.respond, RESULT)
    assert second.status(id) == "completed"
