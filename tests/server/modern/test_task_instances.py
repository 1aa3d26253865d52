"""Tasks of several instances that share a store: any of them serves a task, and one may die."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Limits, LocalProtocolError, Page, ServerCall, StreamKey
from sansmcp.effects import StoreEffect, StoreRead
from sansmcp.events import CallReceived
from sansmcp.server.leases import lease_key
from sansmcp.server.store_calls import call_store
from sansmcp.tasks import GET

from .harness import MODERN
from .task_harness import ADA, AGE, EPOCH, NAME, RESULT, TaskHarness, TaskInstances, task_app

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


@pytest.mark.parametrize("ahead", [-7200.0, 7200.0])
def test_an_instance_whose_clock_is_wrong_knows_the_tasks_that_run_elsewhere(ahead: float) -> None:
    first, second = TaskInstances()
    other: TaskHarness = TaskHarness(
        store=first.store,
        tokens="wrong",
        shared_store=True,
        wall_clock=lambda: EPOCH + ahead + other.now,
    )
    id, call = first.new_task()
    assert other.status(id) == "working"
    other.cancel(id)
    assert second.status(id) == "cancelled"
    id, call = first.new_task()
    first.run_action(call.respond, RESULT)
    assert second.status(id) == "completed"


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


def test_a_death_after_which_the_task_cannot_be_read_is_noticed_again() -> None:
    first, second = instances = TaskInstances()
    id, _ = first.new_task()
    assert second.status(id) == "working"
    second.store_works = False
    instances.wait(LEASE + 2, second)
    second.fail_store_for_good()
    second.store_works = True
    assert second.status(id) == "working"
    instances.wait(LEASE + 2, second)
    assert reason_of(second, id) == "instance_lost"


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


def test_a_task_fails_though_the_instance_that_finds_it_shares_its_store_no_more() -> None:
    """It keeps no lease of its own, by which it would know if others can keep theirs."""
    (first,) = TaskInstances(1)
    id, _ = first.new_task()
    second = TaskHarness(store=first.store, tokens="alone")
    assert second.status(id) == "working"
    second.wait(LEASE + 1)
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


def test_saved_progress_is_stored_before_the_handler_goes_on() -> None:
    """``call.save_progress()`` waits for this: what follows may run twice."""
    harness = TaskHarness(task_app(**RESTARTABLE))
    _, call = harness.new_task()
    harness.store_works = False
    assert harness.run_action(call.save_progress, 1)
    assert call.is_above_high_water
    assert harness.run_action(call.save_progress, 2)
    harness.use_store_once()
    assert call.is_above_high_water, "the store has the first one only"
    harness.fail_store_once()
    assert call.is_above_high_water
    harness.wait(1)
    harness.use_store_once()
    assert not call.is_above_high_water


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


def is_task(harness: TaskHarness, call: ServerCall) -> bool:
    """Whether a call that has not ended has become a task by now."""
    assert call.is_running
    return call.is_task


def test_calls_that_become_tasks_later_find_no_room_then() -> None:
    """There was room for each of them when it came."""
    harness = TaskHarness(task_app(task=1.0), limits=Limits(max_tasks=2))
    calls = [harness.call_tool()[1] for _ in range(4)]
    harness.wait(1.5)
    assert [is_task(harness, call) for call in calls] == [True, True, False, False]
    harness.run_action(calls[0].respond, RESULT)
    harness.wait(1.5)
    assert [is_task(harness, call) for call in calls[1:]].count(True) == 2
    assert not harness.run_action(calls[3].become_task) or calls[3].is_task


def test_a_call_that_needs_a_task_later_and_finds_no_room_ends() -> None:
    app = task_app(task="required")
    harness = TaskHarness(app, limits=Limits(max_tasks=1))
    (_, first), (talk, second) = harness.call_tool(), harness.call_tool()
    harness.run_action(first.become_task)
    assert not harness.run_action(second.respond, RESULT)
    assert talk.error["data"]["reason"] == "too_many_tasks"
    assert harness.cancelled(second)


def test_a_handler_that_makes_a_task_itself_finds_no_room() -> None:
    harness = TaskHarness(task_app(task="optional"), limits=Limits(max_tasks=1))
    (_, first), (_, second) = harness.call_tool(), harness.call_tool()
    assert harness.run_action(first.become_task)
    assert not harness.run_action(second.become_task)
    assert second.is_running


def test_a_task_that_waits_for_input_keeps_its_place() -> None:
    """Else one client parks as many as it likes, and lets all of them go on at once."""
    harness = TaskHarness(limits=Limits(max_tasks_per_principal=2))
    parked: list[str] = []
    for _ in range(2):
        id, call = harness.new_task(principal="ada")
        harness.ask_input(call, name=NAME)
        parked.append(id)
    _, call = harness.call_tool(principal="ada")
    assert not is_task(harness, call)
    for id in parked:
        harness.update(id, {"1.name": ADA}, principal="ada")
        assert harness.status(id, principal="ada") == "working"
    assert entries_of(harness) == 5
    harness.cancel(parked[0], principal="ada")
    harness.wait(1.5)
    assert is_task(harness, call)


@pytest.mark.parametrize("limits", [{"max_tasks": 20}, {"max_tasks_per_principal": 20}])
@pytest.mark.parametrize("end", ["goes on elsewhere", "is cancelled elsewhere", "expires"])
def test_a_place_is_free_when_a_parked_task_has_gone_from_here(
    end: str, limits: dict[str, int]
) -> None:
    first, second = instances = TaskInstances(limits=Limits(max_stored_age=600, **limits))
    ids: list[str] = []
    for _ in range(20):
        id, call = first.new_task(principal="ada")
        first.ask_input(call, name=NAME)
        ids.append(id)
    if end == "expires":
        instances.wait(601)
    for id in ids:
        if end == "goes on elsewhere":
            second.update(id, {"1.name": ADA}, principal="ada")
            second.run_action(second.entered().respond, RESULT)
        elif end == "is cancelled elsewhere":
            second.cancel(id, principal="ada")
    _, call = first.call_tool(principal="ada")
    assert not is_task(first, call)
    instances.wait(1.5)
    assert is_task(first, call)


def test_places_of_parked_tasks_are_looked_at_in_turn() -> None:
    """Those that still wait are many, and the one that has gone is the last."""
    first, second = instances = TaskInstances(limits=Limits(max_tasks=50))
    ids: list[str] = []
    for number in range(50):
        id, call = first.new_task(principal=f"user {number % 2}")
        first.ask_input(call, name=NAME)
        ids.append(id)
    second.cancel(ids[-1], principal="user 1")
    _, call = first.call_tool()
    instances.wait(5)
    assert is_task(first, call)


def test_a_task_goes_on_only_where_there_is_room() -> None:
    first, second = TaskInstances(limits=Limits(max_tasks=1))
    id, call = first.new_task()
    first.ask_input(call, name=NAME)
    _, other = second.new_task()
    refused = second.update(id, {"1.name": ADA})
    assert refused.error["data"]["reason"] == "too_many_tasks"
    assert second.status(id) == "input_required"
    second.run_action(other.respond, RESULT)
    second.update(id, {"1.name": ADA})
    assert second.entered().handler_input.input_responses == {"name": ADA}


@pytest.mark.parametrize("limits", [{"max_tasks": 1}, {"max_tasks_per_principal": 1}])
def test_instances_full_of_parked_tasks_take_the_input_of_each_other(
    limits: dict[str, int],
) -> None:
    """Clients may reach the other one each time, and neither has room for a new task."""
    first, second = TaskInstances(limits=Limits(**limits))
    ids: list[str] = []
    for instance in (first, second):
        id, call = instance.new_task(principal="ada")
        instance.ask_input(call, name=NAME)
        ids.append(id)
    theirs, own = ids
    second.update(theirs, {"1.name": ADA}, principal="ada")
    running = second.entered()
    refused = second.update(own, {"1.name": ADA}, principal="ada")  # one handler runs
    assert refused.error["data"]["reason"] == "too_many_tasks"
    second.run_action(running.respond, RESULT)
    second.update(own, {"1.name": ADA}, principal="ada")
    second.run_action(second.entered().respond, RESULT)
    assert [second.status(id, principal="ada") for id in ids] == ["completed"] * 2


@pytest.mark.parametrize("limits", [{"max_tasks": 2}, {"max_tasks_per_principal": 2}])
def test_a_task_that_is_being_continued_has_a_place_before_the_store_has_its_state(
    limits: dict[str, int],
) -> None:
    """The store may take its time, and other tasks come meanwhile."""
    first, second = TaskInstances(limits=Limits(**limits))
    ids: list[str] = []
    for _ in range(2):
        id, call = first.new_task(principal="ada")
        first.ask_input(call, name=NAME)
        ids.append(id)
    _, other = second.new_task(principal="ada")
    second.store_works = False
    update, late = (second.update(id, {"1.name": ADA}, principal="ada") for id in ids)
    while second.waiting:
        second.use_store_once()
    second.store_works = True
    assert update.json["result"]["resultType"] == "complete"
    assert late.error["data"]["reason"] == "too_many_tasks"
    for call in (other, second.entered()):
        second.run_action(call.respond, RESULT)
    assert second.status(ids[0], principal="ada") == "completed"
    second.update(ids[1], {"1.name": ADA}, principal="ada")
    assert second.status(ids[1], principal="ada") == "working"


def test_the_task_of_a_dead_instance_waits_for_room() -> None:
    app = task_app(**RESTARTABLE)
    first, second = instances = TaskInstances(app=app, limits=Limits(max_tasks=1))
    id, _ = first.new_task()
    _, other = second.new_task()
    second.get(id)
    instances.wait(LEASE + 2, second)
    assert entries_of(second) == 1
    assert second.status(id) == "working"
    second.run_action(other.respond, RESULT)
    instances.wait(LEASE + 2, second)
    assert entries_of(second) == 2
    second.run_action(second.entered().respond, RESULT)
    assert second.status(id) == "completed"


def test_the_task_of_a_stopped_instance_waits_for_room() -> None:
    """The end of its lease is known at once, and known again whenever the task is followed."""
    app = task_app(**RESTARTABLE)
    first, second = instances = TaskInstances(app=app, limits=Limits(max_tasks=1))
    id, _ = first.new_task()
    _, other = second.new_task()
    first.stop()
    second.get(id)
    instances.wait(LEASE + 2, second)
    assert second.status(id) == "working"
    second.run_action(other.respond, RESULT)
    instances.wait(LEASE + 2, second)
    second.run_action(second.entered().respond, RESULT)
    assert second.status(id) == "completed"


def test_a_look_at_parked_tasks_that_fails_is_repeated_at_the_next_call() -> None:
    first, second = instances = TaskInstances(limits=Limits(max_tasks=1))
    id, call = first.new_task()
    first.ask_input(call, name=NAME)
    second.cancel(id)
    first.store_works = False
    _, call = first.call_tool()
    first.fail_store_once()
    assert first.waiting == []
    first.store_works = True
    instances.wait(3)
    assert is_task(first, call)


def test_a_task_whose_log_the_store_has_lost_is_written_again() -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    instances.store.drop("", ".tasks")
    assert second.about(GET, id).error["code"] == -32602
    instances.wait(0.5)
    assert second.status(id) == "working"
    first.run_action(call.respond, RESULT)
    assert second.status(id) == "completed"


def test_an_end_elsewhere_stays_after_an_append_that_was_given_up() -> None:
    first, second = instances = TaskInstances(limits=Limits(store_retry_timeout=0.1))
    id, call = first.new_task()
    first.store_works = False
    first.run_action(call.respond, RESULT)
    first.fail_store_once()
    first.wait(0.1)
    first.fail_store_once()
    second.cancel(id)
    first.store_works = True
    first.tell()
    instances.wait(5.0)
    assert first.status(id) == second.status(id) == "cancelled"


def test_an_append_that_was_given_up_and_done_is_no_end_elsewhere() -> None:
    first, second = TaskInstances(limits=Limits(store_retry_timeout=0.1))
    id, call = first.new_task()
    first.store_works = False
    first.now = second.now = 1.5
    first.run_action(call.progress, 1)
    first.fail_store_once()
    first.wait(0.1)
    call_store(first.waiting[0], first.store, now=first.now)
    first.fail_store_once()
    first.store_works = True
    first.tell()
    assert call.is_running
    first.run_action(call.respond, RESULT)
    assert first.status(id) == second.status(id) == "completed"
