"""What a task asks: each question once, its answer by a request of its own."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InvalidResponse, JsonRpcError, Limits, RequestTimeout
from sansmcp.events import (
    CallCompleted,
    ServerRequestCancelled,
    ServerRequestReceived,
    TaskUpdated,
)
from sansmcp.messages import Request

from ..harness import Asked, ClientHarness, only_failure, response
from .harness import (
    MODERN,
    ModernClientHarness,
    ModernProcess,
    asked_ids,
    discovered,
    ends,
    failed,
    question,
    refused_version,
)
from .task_harness import (
    COMPLETED,
    DONE,
    ID,
    TOOL,
    begin,
    check_request,
    handle_of,
    poll,
    refuse_listening,
    state,
)

requirement = pytest.mark.requirement
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
CANCELLED = {"action": "cancel"}
SAMPLING = question("sampling/createMessage", x=1)


@pytest.fixture
def harness() -> ModernClientHarness:
    return ModernClientHarness(standalone_stream=False, capabilities=CAPABILITIES).connect()


def asking(**questions: Any) -> dict[str, Any]:
    """The state of a task that has these questions."""
    return state("input_required", inputRequests=questions)


def respond(harness: ClientHarness, id: Any, result: Any = None) -> bool:
    answered = harness.run_command(
        harness.client.respond, id, ACCEPTED if result is None else result
    )
    assert isinstance(answered, bool)
    return answered


def update(harness: ModernClientHarness) -> Asked:
    """The one request of the client, with answers."""
    asked = harness.take()
    assert asked.json["method"] == "tasks/update"
    return asked


def responses(asked: Asked) -> Any:
    params = check_request(asked, "tasks/update")
    assert params.keys() == {"inputResponses"}
    return params["inputResponses"]


@requirement(
    "TASKS-C-006", "TASKS-C-007", "TASKS-C-008", "TASKS-C-023", "TASKS-C-024", "TASKS-C-025"
)
def test_a_question_is_asked_once_and_answered_once(harness: ModernClientHarness) -> None:
    call = begin(harness)
    poll(harness).result(asking(q1=question(message="?")))
    (id,) = asked_ids(harness)
    assert harness.events[1:] == [
        TaskUpdated(call=call, task_id=ID, status="input_required", message=None),
        ServerRequestReceived(call, Request(id, "elicitation/create", {"message": "?"})),
    ]
    poll(harness).result(asking(q1=question(message="?")))
    assert asked_ids(harness) == [id]
    assert respond(harness, id)
    asked = update(harness)
    assert responses(asked) == {"q1": ACCEPTED}
    asked.result({"resultType": "complete"})
    for _ in range(2):  # the server is slow to see it
        poll(harness).result(asking(q1=question(message="?")))
    poll(harness).result(COMPLETED)
    assert asked_ids(harness) == [id]
    assert ends(harness) == [CallCompleted(call, DONE)]
    assert not respond(harness, id)
    assert harness.client.next_deadline() is None


@requirement("TASKS-C-023")
def test_so_it_is_on_stdio() -> None:
    harness = ModernProcess(capabilities=CAPABILITIES).connect()
    _, id = harness.make(params=TOOL)
    harness.say(response(id, handle_of("input_required")))
    harness.wait(0)
    (asked,) = harness.written
    harness.say(response(asked["id"], asking(k=SAMPLING)))
    (asked_id,) = asked_ids(harness)
    respond(harness, asked_id, {"model": "m"})
    (asked,) = harness.written
    assert asked["method"] == "tasks/update"
    assert asked["params"]["inputResponses"] == {"k": {"model": "m"}}


@requirement("TASKS-C-010", "TASKS-C-023")
def test_questions_are_answered_one_by_one(harness: ModernClientHarness) -> None:
    call = begin(harness)
    poll(harness).result(asking(a=question(), b=SAMPLING))
    first, second = asked_ids(harness)
    respond(harness, second, {"b": 1})
    asked = update(harness)
    assert responses(asked) == {"b": {"b": 1}}
    respond(harness, first)
    assert harness.requests == []  # one after the other
    asked.result()
    harness.wait(0)
    asked = update(harness)
    assert responses(asked) == {"a": ACCEPTED}
    asked.result()
    poll(harness).result(asking(a=question(), c=question()))
    assert len(asked_ids(harness)) == 3
    poll(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]


def test_an_answer_waits_for_the_poll_in_flight(harness: ModernClientHarness) -> None:
    begin(harness)
    poll(harness).result(asking(a=question(), b=question()))
    first, second = asked_ids(harness)
    asked = poll(harness)
    respond(harness, first)
    respond(harness, second, {"b": 1})
    assert harness.requests == []
    asked.result(asking(a=question(), b=question()))
    harness.wait(0)
    assert responses(update(harness)) == {"a": ACCEPTED, "b": {"b": 1}}


@requirement("TASKS-C-010")
def test_what_is_no_question_any_more_is_not_answered(harness: ModernClientHarness) -> None:
    begin(harness)
    poll(harness).result(asking(a=question(), b=question()))
    first, second = asked_ids(harness)
    asked = poll(harness)
    respond(harness, first)
    respond(harness, second, {"b": 1})
    asked.result(asking(b=question()))
    harness.wait(0)
    assert responses(update(harness)) == {"b": {"b": 1}}


@pytest.mark.parametrize("failure", [None, 503, -32603])
def test_an_answer_that_is_lost_is_sent_again(
    harness: ModernClientHarness, failure: int | None
) -> None:
    begin(harness)
    poll(harness).result(asking(a=question(), b=question()))
    first, second = asked_ids(harness)
    respond(harness, first)
    asked = update(harness)
    respond(harness, second)
    if failure is None:
        asked.cut()
    elif failure > 0:
        asked.refuse(failure)
    else:
        asked.answer(failed(asked.id, failure))
    harness.wait(2.5)
    again = update(harness)
    assert responses(again) == {"a": ACCEPTED, "b": ACCEPTED}
    again.result()
    poll(harness)


def test_an_answer_that_the_server_refuses(harness: ModernClientHarness) -> None:
    call = begin(harness)
    poll(harness).result(asking(a=question()))
    respond(harness, *asked_ids(harness))
    asked = update(harness)
    asked.answer(failed(asked.id, -32602, "not so"), 400)
    assert "not so" in str(only_failure(harness, call))


@pytest.mark.parametrize("after", [state(), asking(b=question()), state("new")])
def test_a_question_that_is_answered_elsewhere_is_withdrawn(
    harness: ModernClientHarness, after: dict[str, Any]
) -> None:
    begin(harness)
    poll(harness).result(asking(a=question()))
    (id,) = asked_ids(harness)
    poll(harness).result(after)
    assert ServerRequestCancelled(id, "the task no longer requires it") in harness.events
    assert not respond(harness, id)
    assert harness.requests == []


def test_the_end_of_the_call_withdraws_all(harness: ModernClientHarness) -> None:
    call = begin(harness)
    poll(harness).result(asking(a=question()))
    (id,) = asked_ids(harness)
    poll(harness).result(COMPLETED)
    assert isinstance(harness.events[-2], ServerRequestCancelled)
    assert harness.events[-1] == CallCompleted(call, DONE)
    assert not respond(harness, id)


def test_after_a_negotiation_open_questions_are_asked_again(harness: ModernClientHarness) -> None:
    begin(harness)
    questions = {"a": question(), "b": question()}
    poll(harness).result(asking(**questions))
    first, second = asked_ids(harness)
    respond(harness, first)
    update(harness).result()
    asked = harness.call("x/y")[1]
    asked.answer(refused_version(asked.id, MODERN), 400)
    assert not respond(harness, second)
    probe = harness.take()
    probe.answer(discovered(probe.id))
    polled, _ = harness.requests
    harness.requests.clear()
    polled.result(asking(**questions))
    assert asked_ids(harness) == [first, second, second]
    assert respond(harness, second)
    assert responses(update(harness)) == {"b": ACCEPTED}


# Clocks


def test_the_clocks_of_the_call_stand_still_while_a_person_is_asked(
    harness: ModernClientHarness,
) -> None:
    call = begin(harness, timeout=5, total_timeout=20)
    asked = poll(harness)
    asked.result(asking(a=question()))
    for number in range(100):
        poll(harness).result(asking(a=question()))
        if number == 8:
            refuse_listening(harness.take())
    respond(harness, *asked_ids(harness))
    update(harness).cut()
    harness.wait(2.49)
    assert ends(harness) == []
    harness.wait(2.6)
    failure = only_failure(harness, call)
    assert isinstance(failure, RequestTimeout)
    assert "5 s without progress" in str(failure)


# Who cannot answer


def cancels(harness: ModernClientHarness) -> None:
    asked = harness.take()
    assert check_request(asked, "tasks/cancel") == {}


@requirement("TASKS-C-006")
def test_an_error_of_a_person_is_a_cancellation(harness: ModernClientHarness) -> None:
    begin(harness)
    poll(harness).result(asking(a=question()))
    (id,) = asked_ids(harness)
    harness.run_command(harness.client.refuse_unsupported, id)
    assert responses(update(harness)) == {"a": CANCELLED}


@requirement("TASKS-C-006")
def test_any_other_error_ends_the_call_and_the_task(harness: ModernClientHarness) -> None:
    call = begin(harness)
    poll(harness).result(asking(a=SAMPLING))
    (id,) = asked_ids(harness)
    error = JsonRpcError(-1, "no model")
    harness.run_command(harness.client.respond_exception, id, error)
    failure = only_failure(harness, call)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.method, failure.task_id) == (-1, "tools/call", ID)
    cancels(harness)


def test_a_question_that_was_not_offered_to_be_answered() -> None:
    harness = ModernClientHarness(standalone_stream=False).connect()
    begin(harness)
    poll(harness).result(asking(a=question(), b=question()))
    harness.wait(0)
    asked = update(harness)
    assert responses(asked) == {"a": CANCELLED, "b": CANCELLED}
    assert asked_ids(harness) == []


@pytest.mark.parametrize(
    "asked", [SAMPLING, question("x/y"), {"method": 5}, {}, 7, {**question(), "params": 1}]
)
def test_another_one_ends_the_call_and_the_task(asked: Any) -> None:
    harness = ModernClientHarness(standalone_stream=False).connect()
    call = begin(harness)
    poll(harness).result(asking(a=asked))
    failure = only_failure(harness, call)
    assert isinstance(failure, InvalidResponse)
    assert "does not support" in str(failure)
    assert failure.method == "tools/call"
    cancels(harness)


@pytest.mark.parametrize("many", [{}, {"elicitation": {}}])
def test_too_many_questions(many: dict[str, Any]) -> None:
    limits = Limits(max_server_requests_per_call=3)
    harness = ModernClientHarness(
        standalone_stream=False, capabilities=many, limits=limits
    ).connect()
    call = begin(harness)
    poll(harness).result(asking(a=question(), b=question()))
    if not many:
        harness.wait(0)
        update(harness).result()
    poll(harness).result(asking(c=question(), d=question()))
    failure = only_failure(harness, call)
    assert isinstance(failure, InvalidResponse)
    assert "too many" in str(failure)
    cancels(harness)


def test_a_client_that_is_attached_leaves_to_others_what_it_cannot_answer() -> None:
    harness = ModernClientHarness(standalone_stream=False, capabilities={"sampling": {}}).connect()
    call = harness.run_command(harness.client.attach, ID)
    harness.take().result(asking(a=question(), b=SAMPLING, c=question("x/y")))
    unanswered = ("elicitation/create", "x/y")
    updated = TaskUpdated(
        call=call, task_id=ID, status="input_required", message=None, unanswered=unanswered
    )
    assert harness.events[0] == updated
    (id,) = asked_ids(harness)
    respond(harness, id, {})
    asked = update(harness)
    assert responses(asked) == {"b": {}}
    asked.result()
    poll(harness).result(asking(a=question()))
    event = harness.events[-1]
    assert isinstance(event, TaskUpdated)
    assert event.unanswered == ("elicitation/create",)
    poll(harness).result(COMPLETED)
    assert ends(harness) == [CallCompleted(call, DONE)]
