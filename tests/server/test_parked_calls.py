"""Calls that wait for answers in the store, and go on wherever these come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    Entry,
    EntryKind,
    EventId,
    InputRequired,
    Limits,
    LocalProtocolError,
    StreamKey,
)
from sansmcp.effects import StoreAppend, StoreEffect, StoreRead
from sansmcp.events import CallReceived, RefusalSent, ResponseUndelivered, StoreFailed

from ..appending import append
from .harness import LATEST, PING, RawExchange, ServerHarness, expect, methods, report_progress_all
from .instances import Instances
from .pipe_harness import result
from .test_rounds import ACCEPTED, ALL, NAME, ROOTS

requirement = pytest.mark.requirement
OLDER = ["2025-03-26", "2025-06-18", "2025-11-25"]


def ask(
    instances: Instances, *names: str, version: str = LATEST
) -> tuple[str, RawExchange, list[Any]]:
    """A call at the first instance that is parked; its stream, and the questions."""
    session = instances.open_session(version, ALL)
    talk, call = instances[0].call(session, "original", version=version, token=7)
    instances[0].run_action(call.progress, 1)
    required = InputRequired(dict.fromkeys(names or ("name",), NAME), {"saved": [1]})
    assert instances[0].run_action(call.respond, required) is True
    return session, talk, talk.messages[1:]


def answer_to(question: dict[str, Any]) -> dict[str, Any]:
    return result(question["id"], ACCEPTED)


@requirement("MTURN-S-008", "MTURN-S-009", "MTURN-S-011")
@pytest.mark.parametrize("version", OLDER)
def test_an_answer_at_another_instance_goes_on_there(version: str) -> None:
    first, second = instances = Instances()
    session, talk, (question,) = ask(instances, version=version)
    assert not first.server.is_busy
    assert second.post(answer_to(question), session, version).status == 202
    call = second.last_call()
    assert (call.request.id, call.request.method) == ("original", "tools/call")
    assert call.handler_input.input_responses == {"name": ACCEPTED}
    assert call.handler_input.state == {"saved": [1]}
    with pytest.raises(LocalProtocolError, match="must increase"):
        call.progress(1, now=second.now)
    second.run_action(call.progress, 2)
    second.run_action(call.respond, {"done": True})
    assert not talk.ended
    instances.wait(0.5)
    assert talk.messages[2]["params"] == {"progressToken": 7, "progress": 2}
    assert talk.messages[3:] == [result("original", {"done": True})]
    assert talk.ended


def test_rounds_at_one_instance_after_the_other() -> None:
    instances = Instances(3)
    session, talk, questions = ask(instances)
    for number in (1, 2, 0, 0, 1):
        harness = instances[number]
        harness.post(answer_to(questions[-1]), session)
        call = harness.last_call()
        harness.run_action(call.respond, InputRequired({"again": NAME}))
        instances.wait(0.5)
        questions = talk.messages[1:]
    instances[2].post(answer_to(questions[-1]), session)
    instances[2].run_action(instances[2].last_call().respond, {})
    instances.wait(0.5)
    assert talk.messages[-1] == result("original")
    assert talk.ended
    assert len({question["id"] for question in questions}) == 6
    assert instances.entered == []


def test_the_rounds_of_a_parked_call_are_limited() -> None:
    """They are counted in the store, so it makes no difference which instance goes on."""
    instances = Instances(limits=Limits(max_rounds=2))
    session, talk, questions = ask(instances)
    instances[1].post(answer_to(questions[-1]), session)
    instances[1].run_action(instances[1].last_call().respond, InputRequired({"again": NAME}))
    instances.wait(0.5)
    instances[0].post(answer_to(talk.messages[-1]), session)
    call = instances[0].last_call()
    with pytest.raises(LocalProtocolError, match="all 2 rounds"):
        call.respond(InputRequired({"again": NAME}), now=instances[0].now)
    assert call.is_running


def test_answers_at_several_instances_enter_the_handler_once() -> None:
    instances = Instances(3)
    session, _, questions = ask(instances, "a", "b", "c")
    for harness, question in zip(instances, questions, strict=True):
        assert instances.entered == []
        harness.post(answer_to(question), session)
    assert set(instances[2].last_call().handler_input.input_responses) == {"a", "b", "c"}
    for harness in instances:
        for question in questions:
            assert harness.post(answer_to(question), session).status == 202
    assert instances.entered == []


def test_two_instances_add_an_answer_at_the_same_time() -> None:
    """Both have read the answers before one of them adds to them."""
    instances = Instances(3)
    session, _, (a, b) = ask(instances, "a", "b")
    first, second = instances[1:]
    for harness in (first, second):
        harness.post(PING, session)
        harness.store_works = False
    talks = first.post(answer_to(a), session), second.post(answer_to(b), session)
    for harness in (first, second):
        for _ in ("session", "turn", "answers", "cancellation"):
            assert isinstance(harness.use_store_once(), StoreRead)
    assert isinstance(first.use_store_once(), StoreAppend)
    assert (talks[0].status, talks[1].status) == (202, None)
    assert isinstance(second.use_store_once(), StoreAppend)
    for _ in ("answers", "cancellation"):
        assert isinstance(second.use_store_once(), StoreRead)
    assert isinstance(second.use_store_once(), StoreAppend)
    assert (talks[1].status, instances.entered) == (None, [])
    assert isinstance(second.use_store_once(), StoreAppend), "it names itself as the writer"
    assert talks[1].status == 202
    (call,) = instances.entered
    assert set(call.handler_input.input_responses) == {"a", "b"}


@pytest.mark.parametrize("is_multi_turn", [False, True])
def test_an_instance_dies_before_it_continues_the_call(is_multi_turn: bool) -> None:
    """The client repeats its POST, and the instance that gets it takes over."""
    first, second, third = instances = Instances(3, assume_multi_turn=is_multi_turn)
    session, _, asked = ask(instances)
    question = asked[0]
    turn, _, _ = question["id"].rpartition(".")
    headers = {"last-event-id": turn} if is_multi_turn else None
    body = [answer_to(question)] if is_multi_turn else answer_to(question)
    second.post(PING, session)
    second.store_works = False
    talks = [second.post(body, session, headers=headers)]
    while not isinstance(effect := second.use_store_once(), StoreAppend):
        pass
    assert effect.entries[0].kind.name == "MESSAGE", "the response is stored, and no more"
    assert talks[0].status is None
    talks.append(third.post(body, session, headers=headers))
    assert third.last_call().handler_input.input_responses == {"name": ACCEPTED}
    late = first.post(body, session, headers=headers)
    while second.waiting:  # it was only slow: its entry conflicts
        second.use_store_once()
    assert len(instances.entered) == 0
    assert {talk.status for talk in (*talks, late)} == {200 if is_multi_turn else 202}


def test_the_asking_instance_is_killed() -> None:
    first, second, third = instances = Instances(3)
    session, talk, (question,) = ask(instances)
    talk.lose_connection()
    instances.remove(first)
    resumed = third.get(session, talk.last_id)
    second.post(answer_to(question), session)
    second.run_action(second.last_call().respond, {})
    instances.wait(0.5)
    assert resumed.messages == [result("original")]
    assert resumed.ended


def test_answers_of_a_batch_find_their_turn() -> None:
    first, second = instances = Instances()
    session, _, (a, b) = ask(instances, "a", "b", version="2025-03-26")
    answers = [answer_to(a), answer_to(b)]
    assert second.post(answers, session, "2025-03-26").status == 202
    assert set(second.last_call().handler_input.input_responses) == {"a", "b"}
    assert first.events == []


def test_answers_may_be_as_deep_as_all_that_comes() -> None:
    instances = Instances(limits=Limits(max_json_depth=10))
    session, _, questions = ask(instances, "a", "b")
    deep: dict[str, Any] = {}
    for _ in range(8):
        deep = {"x": deep}
    for harness, question in zip(instances, questions, strict=True):
        assert harness.post(result(question["id"], deep), session).status == 202
    (call,) = instances.entered
    assert dict(call.handler_input.input_responses) == {"a": deep, "b": deep}


@pytest.mark.parametrize("wrong", ["x", ".", "1.1"])
def test_answers_to_nothing_are_ignored(wrong: str) -> None:
    instances = Instances()
    session = instances.open_session()
    assert instances[1].post(result(wrong), session).status == 202
    assert instances.entered == []


@pytest.mark.parametrize("wrong", ["0-1.0", "token-1.", "nothing-here-at-all-1.0"])
def test_answers_to_what_looks_like_a_lost_turn_are_refused(wrong: str) -> None:
    instances = Instances()
    session = instances.open_session()
    expect(instances[1].post(result(wrong), session), 400, "unknown_turn")
    assert instances.entered == []


def test_an_answer_names_a_turn_and_nothing_else() -> None:
    """The number of another entry of the same log, or another question of the same turn."""
    instances = Instances()
    session, _, (question,) = ask(instances)
    turn, _, _ = question["id"].rpartition(".")
    stream, _, seq = turn.rpartition("-")
    for wrong in (f"{stream}-{int(seq) - 1}.0", f"{stream}-{int(seq) + 1}.0", f"{turn}.1"):
        assert instances[1].post(result(wrong), session).status == 202
    assert instances.entered == []


def test_nobody_answers_the_questions_of_another_session() -> None:
    first, second = instances = Instances()
    session, _, (question,) = ask(instances)
    for principal in ("", "eve"):
        other = first.open_session(capabilities=ALL, principal=principal)
        talk = second.post(answer_to(question), other, principal=principal)
        expect(talk, 400, "unknown_turn")
    assert instances.entered == []
    second.post(answer_to(question), session)
    assert len(instances.entered) == 1


@pytest.mark.parametrize("where", [0, 1])
def test_turns_expire_with_what_is_stored(where: int) -> None:
    """The answer was taken with 202, and its call never ended."""
    instances = Instances(limits=Limits(max_stored_age=90))
    session, talk, (question,) = ask(instances)
    for _ in range(5):
        instances.grow_old(20)
        instances[1].post(PING, session)
    assert not talk.aborted
    expect(instances[where].post(answer_to(question), session), 400, "unknown_turn")
    assert instances.entered == []
    instances.wait(0.5)
    assert talk.aborted
    expect(instances[where].get(session, talk.last_id), 400, "unknown_event_id")


@pytest.mark.parametrize("is_read", [True, False])
def test_a_lost_turn_of_the_only_instance_ends_its_call(is_read: bool) -> None:
    """The instance no longer read the store, so the reader waited for ever.

    A reader that is not there is not told, and finds out when it comes back.
    """
    harness = ServerHarness(limits=Limits(max_stored_entries=3))
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    (question,) = talk.messages
    if not is_read:
        talk.lose_connection()
    _, other = harness.call(session)
    report_progress_all(harness, other, "a", "b", "c", "d")
    expect(harness.post(answer_to(question), session), 400, "unknown_turn")
    assert talk.aborted is is_read
    expect(harness.get(session, talk.last_id), 400, "unknown_event_id")


def test_answers_that_are_late_are_still_ignored() -> None:
    harness = ServerHarness()
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    (question,) = talk.messages
    harness.post(answer_to(question), session)
    harness.run_action(harness.last_call().respond, {})
    assert harness.post(answer_to(question), session).status == 202
    assert methods(talk)[-1] == "answer"


def test_lost_turns_are_told_to_the_application_where_nobody_waits() -> None:
    harness = ServerHarness()
    session = harness.open_session("2025-03-26", ALL)
    answers = [result("nothing-here-at-all-1.0", ACCEPTED)]
    assert harness.post(answers, session, "2025-03-26").status == 202
    event = harness.events[-1]
    assert isinstance(event, RefusalSent)
    assert event.error.reason == "unknown_turn"


def test_a_store_that_fails_lets_the_client_answer_again() -> None:
    instances = Instances()
    second = instances[1]
    session, _, (question,) = ask(instances)
    second.post(PING, session)
    second.store_works = False
    for uses in range(1, 5):
        talk = second.post(answer_to(question), session)
        for _ in range(uses):
            second.use_store_once()
        second.fail_store_for_good()
        assert (talk.status, talk.error["data"]["reason"]) == (503, "store_failed")
    lost = second.post(answer_to(question), session)
    second.use_store_once()
    lost.lose_connection()
    second.fail_store_once()
    assert lost.head is None
    second.store_works = True
    assert second.post(answer_to(question), session).status == 202
    assert len(instances.entered) == 1


def test_an_instance_that_has_stopped_takes_no_more_answers() -> None:
    """It took the last one and did not go on: the client waited for its timeout (simulated)."""
    instances = Instances(3)
    session, talk, (question,) = ask(instances)
    _, second, third = instances
    second.post(PING, session)
    second.store_works = False
    answered = second.post(answer_to(question), session)
    for _ in ("session", "turn", "answers"):
        second.use_store_once()
    second.run_action(second.server.shut_down)
    while second.waiting:
        second.use_store_once()
    assert (answered.status, answered.error["data"]["reason"]) == (503, "shutting_down")
    assert third.post(answer_to(question), session).status == 202
    third.run_action(third.last_call().respond, {})
    instances.wait(0.5)
    assert talk.messages[-1] == result("original")


def test_a_call_whose_last_answer_is_stored_by_an_instance_that_has_stopped_ends() -> None:
    instances = Instances()
    session, talk, (question,) = ask(instances)
    second = instances[1]
    second.post(PING, session)
    second.store_works = False
    second.post(answer_to(question), session)
    for _ in ("session", "turn", "answers", "cancellation"):
        second.use_store_once()
    second.run_action(second.server.shut_down)
    while second.waiting:
        second.use_store_once()
    instances.wait(0.5)
    assert talk.messages[-1]["error"]["data"]["reason"] == "shutting_down"
    assert talk.ended
    assert not any(isinstance(event, CallReceived) for event in second.events)


def test_a_store_that_fails_while_a_call_is_parked_loses_the_call() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    harness.fail_store_for_good()
    assert talk.aborted
    *retried, event = harness.events
    assert isinstance(event, StoreFailed)
    assert event.lost
    assert all(isinstance(each, StoreFailed) and not each.lost for each in retried)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_call_goes_on_that_was_parked_though_the_store_seemed_to_fail(is_read: bool) -> None:
    """The reply of a store can get lost. The client has the questions by another way: the log."""
    harness = ServerHarness(store_works=False)
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    parking = harness.waiting[0]
    if not is_read:
        talk.lose_connection()
    assert isinstance(parking, StoreAppend)
    assert harness.store.append(
        parking.stream, parking.entries, token=parking.token, now=harness.now
    )
    harness.fail_store_for_good()
    assert talk.aborted is is_read
    harness.use_store_once()  # where a cancellation would be left
    harness.store_works = True
    question = json.loads(parking.entries[0].data)
    assert harness.post(answer_to(question), session).status == 202
    harness.run_action(harness.last_call().respond, {"done": True})
    (answer,) = harness.get(session, f"{parking.stream.stream}-1").messages
    assert answer == result(1, {"done": True})


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_call_goes_on_here_before_its_parking_is_reported(has_failed: bool) -> None:
    """The repetition conflicted with what followed, and the call never ended (simulated)."""
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    talk, call = first.call(session)
    first.store_works = False
    first.run_action(call.respond, InputRequired({"name": NAME}))
    while not (isinstance(parking := first.waiting[0], StoreAppend) and parking.entries[-1].waits):
        first.use_store_once()
    assert first.store.append(parking.stream, parking.entries, token=parking.token, now=first.now)
    if has_failed:
        first.fail_store_once(parking)
    resumed = second.get(session, f"{parking.stream.stream}-1")
    assert first.post(answer_to(resumed.messages[0]), session).status is None
    first.use_store_except(parking)
    call = first.last_call()
    if not has_failed:
        first.use_store_once()  # the store says at last that it has done it, or conflicts
    first.store_works = True
    instances.wait(2)
    first.run_action(call.progress, 1)
    first.run_action(call.respond, {"done": True})
    instances.wait(6)
    assert resumed.messages[-1] == result(1, {"done": True})
    assert resumed.ended
    assert not any(isinstance(event, ResponseUndelivered) for event in first.events)
    assert talk.messages[-1] == result(1, {"done": True})


@pytest.mark.parametrize("lost", ["the answer", "the claim"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_an_answer_counts_whose_append_and_client_are_lost(lost: str, is_shared: bool) -> None:
    """The answer is stored: whatever the client sends again is not what continues the call."""
    harness = Instances()[1] if is_shared else ServerHarness()
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    harness.store_works = False
    post = harness.post(answer_to(talk.messages[-1]), session)
    for _ in range(1 + (lost == "the claim") * is_shared):
        while not isinstance(effect := harness.waiting[0], StoreAppend):
            harness.use_store_once()
        if effect.entries[0].kind is EntryKind.MESSAGE and lost == "the claim" and is_shared:
            harness.use_store_once()
    effect = harness.waiting[0]
    assert isinstance(effect, StoreAppend)
    assert harness.store.append(effect.stream, effect.entries, token=effect.token, now=harness.now)
    post.lose_connection()
    harness.fail_store_once()
    harness.store_works = True
    assert harness.post(answer_to(talk.messages[-1]), session).status == 202
    harness.wait(1.0)
    harness.run_action(harness.last_call().respond, {"done": True})
    harness.wait(1.0)
    assert talk.messages[-1] == result(1, {"done": True})


def test_without_a_store_any_more_the_call_waits_in_memory() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    report_progress_all(harness, call, "a")
    harness.fail_store_for_good()
    harness.run_action(call.respond, InputRequired({"name": NAME, "roots": ROOTS}))
    for question in talk.messages[1:]:
        harness.post(answer_to(question), session)
    harness.run_action(harness.last_call().respond, {})
    assert talk.messages[-1] == result(1)


def test_a_session_that_ends_takes_its_parked_calls_along() -> None:
    harness = ServerHarness(store_works=False)
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    harness.use_store_once()
    (question,) = talk.messages
    harness.post(answer_to(question), session)
    harness.use_store_once()
    harness.send("DELETE", {"mcp-session-id": session})
    while harness.waiting:
        harness.use_store_once()
    assert talk.ended
    assert not any(isinstance(event, CallReceived) for event in harness.events)


def test_what_another_instance_goes_on_with_is_not_written_here_any_more() -> None:
    """Should two ever write one log, those that came first count."""
    first, second = instances = Instances()
    session = instances.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a")
    cursor = EventId.decode(talk.last_id)
    assert cursor is not None
    log = StreamKey("", session, cursor.stream)
    final = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    entry = Entry(cursor.seq + 1, final, final=True)
    assert append(instances.store, log, (entry,), now=0)
    assert not append(instances.store, log, (entry,), now=0)
    report_progress_all(first, call, "b")
    assert first.run_action(call.respond, {}) is False
    assert isinstance(first.events[-1], ResponseUndelivered)
    instances.wait(0.5)
    assert methods(talk) == ["a", "answer"]
    assert talk.ended
    assert second.events == []


def test_there_are_only_so_many_questions_at_once() -> None:
    harness = ServerHarness(limits=Limits(max_batch_messages=2))
    _, call = harness.call(harness.open_session(capabilities=ALL))
    with pytest.raises(LocalProtocolError, match="more than 2"):
        call.respond(InputRequired(dict.fromkeys("abc", NAME)), now=0)
    assert call.is_running


def test_a_parked_call_whose_instance_has_stopped_is_not_looked_at_for_ever() -> None:
    """Its reader read log and lease over and over, at once (seed 900493 of the simulator)."""
    instances = Instances()
    session, talk, (question,) = ask(instances)
    first, second = instances
    first.run_action(first.server.shut_down)
    resumed = second.get(session, talk.last_id)  # comes back to the end
    reads = [0]
    perform = second.perform_store_effect

    def counting(effect: StoreEffect) -> None:
        reads[0] += 1
        assert reads[0] < 500, "it goes round in circles"
        perform(effect)

    second.perform_store_effect = counting  # type: ignore[method-assign]
    second.wait(30)
    assert not resumed.ended
    second.post(answer_to(question), session)
    second.run_action(second.last_call().respond, {"done": True})
    assert resumed.messages[-1] == result("original", {"done": True})
