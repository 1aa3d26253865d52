"""A store that fails at each step of a task."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import AppendResult, Limits
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import CallReceived, StoreFailed
from sansmcp.tasks import CANCEL, GET, METHODS

from ..harness import RawExchange
from .task_harness import ADA, NAME, RESULT, TaskHarness, TaskInstances, task_app, task_id

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> TaskHarness:
    return TaskHarness()


def give_up(harness: TaskHarness) -> None:
    """Let the store fail at everything, until the server gives up."""
    while harness.waiting:
        harness.fail_store_for_good()


@requirement("TASKS-S-007")
def test_a_task_that_cannot_be_stored_stays_a_call(harness: TaskHarness) -> None:
    harness.store_works = False
    talk, call = harness.call_tool()
    harness.fail_store_once()
    assert call.is_running
    assert not call.is_task
    assert not call.is_above_high_water
    harness.run_action(call.respond, RESULT)
    assert talk.json["result"]["resultType"] == "complete"


def test_a_call_tries_again_to_become_a_task(harness: TaskHarness) -> None:
    harness.store_works = False
    talk, call = harness.call_tool()
    harness.fail_store_once()
    harness.store_works = True
    harness.wait(1)
    assert call.is_task
    assert harness.status(task_id(talk)) == "working"


def test_a_handler_that_asks_for_a_task_goes_on_without() -> None:
    harness = TaskHarness(task_app(task="optional"), task_after=None, store_works=False)
    _, call = harness.call_tool()
    harness.run_action(call.become_task)
    harness.fail_store_once()
    harness.wait(5)
    assert call.is_running
    assert not call.is_task


def test_a_result_that_waits_for_the_handle_is_sent_without_one(harness: TaskHarness) -> None:
    harness.store_works = False
    talk, call = harness.call_tool()
    harness.run_action(call.respond, RESULT)
    assert not talk.ended
    harness.fail_store_once()
    assert talk.json["result"]["resultType"] == "complete"


def test_questions_that_wait_for_the_handle_become_an_error(harness: TaskHarness) -> None:
    harness.store_works = False
    talk, call = harness.call_tool()
    harness.ask_input(call, name=NAME)
    harness.fail_store_once()
    assert talk.json["error"]["data"]["reason"] == "task_not_stored"


def test_a_call_that_has_left_needs_no_task(harness: TaskHarness) -> None:
    harness.store_works = False
    talk, call = harness.call_tool()
    talk.lose_connection()
    harness.fail_store_once()
    assert harness.cancelled(call)
    assert not harness.server.is_busy


def test_a_call_that_needs_a_task_ends_without_one() -> None:
    harness = TaskHarness(task_app(task="required"), store_works=False)
    talk, call = harness.call_tool()
    harness.run_action(call.become_task)
    harness.fail_store_once()
    assert harness.cancelled(call)
    assert talk.json["error"]["data"]["reason"] == "task_not_stored"


def test_a_result_that_the_store_does_not_take_is_not_lost(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.store_works = False
    harness.run_action(call.respond, RESULT)
    for _ in range(120):
        while harness.waiting:
            harness.fail_store_once()
        harness.wait(0.5)
    assert harness.server.is_busy
    harness.store_works = True
    while harness.waiting:
        harness.use_store_once()
    assert harness.status(id) == "completed"
    assert not harness.server.is_busy


def test_an_append_whose_reply_was_lost_is_not_repeated(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.store_works = False
    harness.run_action(call.respond, RESULT)
    (effect,) = harness.waiting
    assert isinstance(effect, StoreAppend)
    harness.store.append(effect.stream, effect.entries, token=effect.token, now=harness.now)
    harness.fail_store_once()
    harness.store_works = True
    harness.wait(1)
    assert harness.status(id) == "completed"


@requirement("TASKS-S-032")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_request_about_a_task_claims_nothing_without_the_store(
    harness: TaskHarness, method: str
) -> None:
    id, call = harness.new_task()
    if method != CANCEL:
        harness.ask_input(call, name=NAME)
    harness.store_works = False
    talk = harness.about(method, id, inputResponses={"1.name": ADA})
    give_up(harness)
    assert (talk.status, talk.error["code"]) == (200, -32603)
    assert talk.error["data"]["reason"] == "store_failed"


@pytest.mark.parametrize("method", sorted(METHODS - {GET}))
def test_a_change_that_the_store_does_not_take_is_not_acknowledged(
    harness: TaskHarness, method: str
) -> None:
    id, call = harness.new_task()
    if method != CANCEL:
        harness.ask_input(call, name=NAME)
    harness.store_works = False
    talk = harness.about(method, id, inputResponses={"1.name": ADA})
    while isinstance(harness.waiting[0], StoreRead):
        harness.use_store_once()
    give_up(harness)
    assert talk.error["data"]["reason"] == "store_failed"
    harness.store_works = True
    assert harness.status(id) in ("working", "input_required")


def test_a_short_failure_costs_nothing(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    harness.store_works = False
    talk = harness.about(GET, id)
    harness.fail_store_once()
    harness.store_works = True
    harness.wait(1)
    assert talk.json["result"]["status"] == "working"


def test_a_client_that_leaves_does_not_wait_for_the_store(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    harness.store_works = False
    talk = harness.about(GET, id)
    events = len(harness.events)
    talk.lose_connection()
    assert len(harness.events) == events, "the application has not heard of the request"
    harness.fail_store_once()
    harness.wait(1)
    assert harness.waiting == []


def lose_end(harness: TaskHarness, **changed: Any) -> Any:
    """Let the store say that it has lost the end of a log."""
    (effect,) = harness.waiting
    harness.waiting.clear()
    assert isinstance(effect, StoreAppend)
    harness.run_action(harness.server.append_completed, effect, AppendResult.BEHIND)
    harness.store_works = True
    while harness.waiting:
        harness.use_store_once()


def test_a_task_goes_on_after_a_store_has_lost_its_end(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.store_works = False
    harness.run_action(call.respond, RESULT)
    lose_end(harness)
    assert harness.status(id) == "completed"
    assert any(isinstance(event, StoreFailed) for event in harness.events)


def test_a_task_goes_on_after_a_store_has_lost_its_log(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.store_works = False
    harness.run_action(call.respond, RESULT)
    harness.store.drop("", ".tasks")
    lose_end(harness)
    assert harness.status(id) == "completed"


def test_a_change_is_decided_anew_after_a_store_has_lost_the_end(harness: TaskHarness) -> None:
    id, _ = harness.new_task()
    harness.store_works = False
    talk = harness.cancel(id)
    harness.use_store_once()
    lose_end(harness)
    assert talk.json["result"]["resultType"] == "complete"
    assert harness.status(id) == "cancelled"


def test_a_page_may_lack_the_last_entry() -> None:
    """A store that evicts an entry between two reads of a task."""
    harness = TaskHarness(limits=Limits(max_stored_entries=10))
    id, call = harness.new_task()
    harness.run_action(call.respond, RESULT)
    harness.store_works = False
    talk = harness.about(GET, id)
    harness.use_store_once()
    (second,) = harness.waiting
    assert isinstance(second, StoreRead)
    harness.store_works = True
    harness.store.drop("", ".tasks")
    harness.use_store_once()
    assert talk.error["code"] == -32602


def test_a_page_that_is_read_meanwhile_does_not_count() -> None:
    """Whoever appends while it reads learns of others by a conflict."""
    first, second = TaskInstances()
    id, call = first.new_task()
    first.store_works = False
    first.wait(0.25)
    (reading,) = (effect for effect in first.waiting if isinstance(effect, StoreRead))
    first.run_action(call.respond, RESULT)
    first.waiting.remove(reading)
    first.perform_store_effect(reading)
    first.wait(0.25)
    while first.waiting:
        first.use_store_once()
    first.store_works = True
    assert second.status(id) == "completed"


def test_a_poll_that_fails_is_repeated() -> None:
    first, second = TaskInstances()
    id, call = first.new_task()
    first.store_works = False
    first.wait(0.25)
    while first.waiting:
        first.fail_store_once()
    first.store_works = True
    second.cancel(id)
    first.wait(1)
    assert first.cancelled(call)


def test_a_task_is_not_gone_on_with_while_the_server_stops(harness: TaskHarness) -> None:
    id, call = harness.new_task()
    harness.ask_input(call, name=NAME)
    harness.store_works = False
    harness.update(id, {"1.name": ADA})
    harness.use_store_once()
    entered = len(harness.events)
    harness.run_action(harness.server.shut_down)
    while harness.waiting:
        harness.use_store_once()
    assert not any(isinstance(event, CallReceived) for event in harness.events[entered:])


@pytest.mark.parametrize("result", AppendResult)
def test_a_handle_that_is_stored_after_the_end_of_the_server(
    harness: TaskHarness, result: AppendResult
) -> None:
    harness.store_works = False
    talk, _ = harness.call_tool()
    harness.run_action(harness.server.shut_down)
    assert talk.json["error"]["data"]["reason"] == "shutting_down"
    (effect,) = harness.waiting
    harness.waiting.clear()
    assert isinstance(effect, StoreAppend)
    harness.run_action(harness.server.append_completed, effect, result)
    assert harness.waiting == []


def test_a_server_that_has_stopped_gives_up(harness: TaskHarness) -> None:
    _, call = harness.new_task()
    harness.store_works = False
    harness.run_action(harness.server.shut_down)
    harness.fail_store_once()
    assert not harness.server.is_busy
    assert not call.is_running


def test_an_append_that_is_reported_late_is_no_death(harness: TaskHarness) -> None:
    """A poll may find that this instance runs a task before its append has been reported."""
    id, call = harness.new_task()
    harness.ask_input(call, name=NAME)
    harness.store_works = False
    answering = harness.update(id, {"1.name": ADA})
    while not isinstance(landed := harness.waiting[0], StoreAppend):
        harness.use_store_once()
    harness.store.append(landed.stream, landed.entries, token=landed.token, now=harness.now)
    polling = harness.about(GET, id)
    harness.use_store_except(landed)
    assert polling.json["result"]["status"] == "working"
    harness.store_works = True
    harness.use_store_once()
    assert "result" in answering.json
    again = harness.entered()
    assert again is not call
    harness.run_action(again.respond, RESULT)
    assert harness.status(id) == "completed"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_task_goes_on_before_its_question_is_reported_stored(
    harness: TaskHarness, is_late: bool
) -> None:
    """Whoever has read the question may answer it, while the append of it has not been reported."""
    id, call = harness.new_task()
    harness.store_works = False
    harness.ask_input(call, name=NAME)
    parked = harness.waiting[0]
    assert isinstance(parked, StoreAppend)
    appended = harness.store.append(
        parked.stream, parked.entries, token=parked.token, now=harness.now
    )
    answering = harness.update(id, {"1.name": ADA})
    harness.use_store_except(parked)
    assert "result" in answering.json
    again = harness.entered()
    assert again is not call
    if not is_late:
        harness.run_action(harness.server.append_completed, parked, appended)
    harness.run_action(again.respond, RESULT)
    harness.use_store_except(parked)
    if is_late:
        harness.run_action(harness.server.append_completed, parked, appended)
    harness.waiting.remove(parked)
    harness.store_works = True
    assert harness.status(id) == "completed"


def update_with_a_lost_reply(
    harness: TaskHarness, *, leaves: bool = False
) -> tuple[str, RawExchange]:
    """Let a client send the last input response, and the store lose its reply to the append."""
    id, call = harness.new_task()
    harness.ask_input(call, name=NAME)
    harness.store_works = False
    talk = harness.update(id, {"1.name": ADA})
    while isinstance(harness.waiting[0], StoreRead):
        harness.use_store_once()
    (effect,) = harness.waiting
    assert isinstance(effect, StoreAppend)
    harness.store.append(effect.stream, effect.entries, token=effect.token, now=harness.now)
    if leaves:
        talk.lose_connection()
    harness.fail_store_once()
    return id, talk


def entered(harness: TaskHarness) -> int:
    return sum(isinstance(event, CallReceived) for event in harness.events)


@pytest.mark.parametrize("restartable", [False, True])
def test_a_task_that_is_about_to_go_on_here_is_not_taken_for_lost(restartable: bool) -> None:
    """It is read in the moment in which its instance does not know yet that it has to run it."""
    harness = TaskHarness(task_app(restartable=restartable))
    id, talk = update_with_a_lost_reply(harness)
    harness.store_works = True
    assert harness.status(id) == "working"
    assert entered(harness) == 1
    harness.wait(1)
    assert talk.json["result"]["resultType"] == "complete"
    assert entered(harness) == 2
    assert harness.status(id) == "working"
    harness.run_action(harness.entered().respond, RESULT)
    assert harness.status(id) == "completed"


def test_a_client_that_leaves_does_not_cost_its_last_response(harness: TaskHarness) -> None:
    id, _ = update_with_a_lost_reply(harness, leaves=True)
    harness.store_works = True
    harness.wait(1)
    assert entered(harness) == 2
    harness.run_action(harness.entered().respond, RESULT)
    assert harness.status(id) == "completed"


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_server_that_stops_asks_for_another_request(harness: TaskHarness, method: str) -> None:
    """The code is one after which clients repeat their request; nothing else would be known."""
    id, call = harness.new_task()
    harness.ask_input(call, name=NAME)
    harness.store_works = False
    talk = harness.about(method, id, inputResponses={"1.name": ADA})
    harness.run_action(harness.server.shut_down)
    assert (talk.status, talk.error["code"]) == (200, -32603)
    assert talk.error["data"]["reason"] == "shutting_down"
    give_up(harness)
