"""Answers and cancellations that come to another instance than that which waits for them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import (
    AppendResult,
    ErrorResponse,
    InputRequired,
    Limits,
    Page,
    Response,
    ServerCall,
    StreamKey,
)
from sansmcp.effects import StoreAppend, StoreRead
from sansmcp.events import CallCancelled, CallReceived, ClientResponseReceived
from sansmcp.server.legacy.sessions import RECORD

from .harness import (
    LATEST,
    PING,
    RawExchange,
    ServerHarness,
    methods,
    notification,
    report_progress_all,
)
from .instances import Instances
from .pipe_harness import result
from .test_multi_turn import BOTH, answers_to, new_instances, send
from .test_rounds import ACCEPTED, ALL, NAME

requirement = pytest.mark.requirement
OLDER = ["2025-03-26", "2025-06-18", "2025-11-25"]


def cancelled(id: Any, **more: Any) -> dict[str, Any]:
    return notification("notifications/cancelled", requestId=id, **more)


def ask(
    harness: ServerHarness, session: str, version: str = LATEST
) -> tuple[RawExchange, ServerCall, int]:
    """A call whose handler waits for an answer; the stream, the call, and the question's id."""
    talk, call = harness.call(session, version=version)
    id: int = harness.run_action(call.ask, "elicitation/create", timeout=30)
    return talk, call, id


# Answers


@pytest.mark.parametrize("version", OLDER)
def test_an_answer_reaches_the_handler_that_waits(version: str) -> None:
    first, second = instances = Instances()
    session = instances.open_session(version, ALL)
    talk, call, id = ask(first, session, version)
    assert second.post(result(id, ACCEPTED), session, version).status == 202
    assert first.events == []
    instances.wait(0.25)
    assert first.events == [ClientResponseReceived(call, id, Response(id, ACCEPTED))]
    first.run_action(call.respond, {})
    assert methods(talk) == ["elicitation/create", "answer"]


def test_so_do_answers_of_a_batch_and_errors() -> None:
    first, second = instances = Instances()
    session = instances.open_session("2025-03-26", ALL)
    _, call, id = ask(first, session, "2025-03-26")
    error = {"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}
    assert second.post([error], session, "2025-03-26").status == 202
    instances.wait(0.25)
    assert first.events == [ClientResponseReceived(call, id, ErrorResponse(id, -1, "no"))]


def test_the_first_answer_counts() -> None:
    instances = Instances(3)
    session = instances.open_session(capabilities=ALL)
    _, call, id = ask(instances[0], session)
    for harness, content in zip(instances[1:], ("a", "b"), strict=True):
        assert harness.post(result(id, content), session).status == 202
    instances.wait(0.5)
    assert instances[0].post(result(id, "c"), session).status == 202
    instances.wait(0.5)
    assert instances[0].events == [ClientResponseReceived(call, id, Response(id, "a"))]


def test_questions_of_all_instances_have_different_ids() -> None:
    instances = Instances(3)
    session = instances.open_session(capabilities=ALL)
    asked = [ask(harness, session) for harness in instances for _ in range(2)]
    ids = [id for _, _, id in asked]
    assert len(set(ids)) == 6
    assert all(0 < id < 2**53 for id in ids)
    for id in ids:
        instances[1].post(result(id, {"of": id}), session)
    instances.wait(0.5)
    given = [event for harness in instances for event in harness.events]
    assert {(e.call, e.request_id) for e in given if isinstance(e, ClientResponseReceived)} == {
        (call, id) for _, call, id in asked
    }
    assert all(
        e.result() == {"of": e.request_id} for e in given if isinstance(e, ClientResponseReceived)
    )


def test_an_answer_that_comes_too_late_is_ignored() -> None:
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    _, _, id = ask(first, session)
    instances.wait(31)
    assert len(first.events) == 1  # it has timed out
    assert second.post(result(id), session).status == 202
    instances.wait(31)
    assert len(first.events) == 1


def test_an_answer_that_cannot_be_stored_may_be_sent_again() -> None:
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    _, call, id = ask(first, session)
    second.post(PING, session)
    second.store_works = False
    talk, gone = second.post(result(id), session), second.post(result(id), session)
    for _ in ("session", "session", "question", "question"):
        assert isinstance(second.use_store_once(), StoreRead)
    gone.lose_connection()
    for _ in range(2):
        assert isinstance(second.waiting[0], StoreAppend)
        second.fail_store_for_good()
    assert (talk.status, talk.error["data"]["reason"]) == (503, "store_failed")
    assert gone.head is None
    second.store_works = True
    assert second.post(result(id), session).status == 202
    instances.wait(0.25)
    assert first.events == [ClientResponseReceived(call, id, Response(id, {}))]


def test_an_answer_whose_mailbox_cannot_be_read_may_be_sent_again() -> None:
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    _, _, id = ask(first, session)
    second.post(PING, session)
    second.store_works = False
    talk = second.post(result(id), session)
    second.use_store_once()
    assert isinstance(second.waiting[0], StoreRead)
    second.fail_store_for_good()
    assert (talk.status, talk.error["data"]["reason"]) == (503, "store_failed")


def test_a_request_whose_client_has_left_before_its_session_could_be_read_is_forgotten() -> None:
    _, second = instances = Instances()
    session = instances.open_session()
    second.post(PING, session)
    second.store_works = False
    talk = second.post(PING, session)
    talk.lose_connection()
    second.fail_store_once()
    assert talk.head is None


def test_an_answer_is_stored_before_the_client_may_forget_it() -> None:
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    _, _, id = ask(first, session)
    second.post(PING, session)
    second.store_works = False
    talk, gone = second.post(result(id), session), second.post(result(id), session)
    for _ in ("session", "session", "question", "question"):
        second.use_store_once()
    gone.lose_connection()
    assert talk.head is None
    for _ in range(2):
        second.use_store_once()
    assert talk.status == 202
    assert gone.head is None


def test_only_what_was_asked_for_is_stored() -> None:
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    _, _, id = ask(first, session)
    second.post(PING, session)
    count = instances.store.count
    posted = [second.post(result(wrong), session) for wrong in (id + 1, id - 1, 1, -1, 2**53)]
    for _ in range(3):
        second.post(result(id), session)
    assert instances.store.count == count + 1
    while not all(each.status == 202 for each in posted):
        second.wait(1)
    assert instances.store.count == count + 1


def test_cancellations_of_requests_that_never_were_write_nothing() -> None:
    """They ended another principal's session, by filling the store."""
    first, second = instances = Instances()
    session = instances.open_session(capabilities=ALL)
    first.post(PING, session)
    second.post(PING, session)
    count, size = instances.store.count, instances.store.size
    for number in range(300):
        harness = instances[number % 2]
        assert harness.post(cancelled(f"{number} {'x' * 1000}"), session).status == 202
    instances.wait(2)
    assert (instances.store.count, instances.store.size) == (count, size)


def test_only_so_many_cancellations_wait_for_their_calls() -> None:
    """Those beyond are still looked up once."""
    first, second = instances = Instances(limits=Limits(max_calls_per_session=3))
    session = instances.open_session()
    second.post(PING, session)
    _, early = first.call(session, "early")
    for id in ("a", "b", "c", "early"):
        second.post(cancelled(id), session)
    instances.wait(1)
    assert early.is_running
    second.post(cancelled("early", reason="y" * 10_000), session)
    instances.wait(1)
    assert first.events == [CallCancelled(early, "y" * 1000)]


# Cancellations


@requirement("CANCEL-B-003", "CANCEL-B-007")
@pytest.mark.parametrize("version", OLDER)
def test_a_cancellation_reaches_the_handler_that_runs(version: str) -> None:
    first, second = instances = Instances()
    session = instances.open_session(version)
    talk, call = first.call(session, "a", version=version)
    report_progress_all(first, call, "x")
    assert second.post(cancelled("a", reason="bored"), session, version).status == 202
    assert call.is_running
    instances.wait(1)
    assert first.events == [CallCancelled(call, "bored")]
    assert methods(talk) == ["x"]
    assert talk.ended


def test_a_cancellation_may_be_there_before_the_call() -> None:
    """The request waits for its session to be looked up."""
    first, second = instances = Instances()
    session = instances.open_session()
    first.store_works = False
    first.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call"}, session)
    second.post(cancelled(5), session)
    first.store_works = True
    first.use_store_once()
    call = first.last_call()
    instances.wait(1)
    assert first.events == [CallCancelled(call, "cancelled by the client")]


def test_a_cancellation_waits_for_a_mailbox_that_a_slow_store_opens_late() -> None:
    """The call is opened at one instance after seconds (seed 629400571037 of the simulator)."""
    first, second = instances = Instances()
    session = instances.open_session()
    second.post(PING, session)
    _, call = first.call(session, "a")
    first.store_works = False
    second.post(cancelled("a"), session)
    instances.wait(4)
    assert call.is_running
    first.store_works = True
    while first.waiting:
        first.use_store_once()
    instances.wait(1)
    assert CallCancelled(call, "cancelled by the client") in first.events


def test_a_cancellation_does_not_look_for_ever() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    second.post(PING, session)
    second.post(cancelled("late"), session)
    instances.wait(7)
    _, call = first.call(session, "late")
    instances.wait(7)
    assert call.is_running


def test_a_session_that_ends_at_another_instance_takes_its_calls_along() -> None:
    """Its handler ran to its end, although its session had ended (seed 2462229541739)."""
    first, second = instances = Instances()
    session = instances.open_session()
    _, call = first.call(session)
    instances.wait(0.5)
    assert second.send("DELETE", {"mcp-session-id": session}).status == 200
    instances.wait(1)
    assert CallCancelled(call, "ended at another instance") in first.events
    assert first.server.sessions == ()


@pytest.mark.parametrize("what", ["a call", "a question", "a stream", "a stream of the other"])
def test_a_session_ends_at_once_where_the_store_tells_of_it(what: str) -> None:
    first, second = instances = Instances(store_tells=True)
    session = instances.open_session(LATEST, ALL)
    call = None
    if what in ("a call", "a question"):
        talk, call = first.call(session)
        if what == "a question":
            first.run_action(call.ask, "elicitation/create", timeout=30)
        first.run_action(call.notify, "notifications/x")
    elif what == "a stream":
        talk = first.get(session)
    else:
        written, other = second.call(session)
        second.run_action(other.notify, "notifications/x")
        written.lose_connection()
        talk = first.get(session, written.last_id)
    instances.wait(1)
    for each in instances:
        each.tell()
    instances.wait(1)
    assert not talk.is_over
    assert second.send("DELETE", {"mcp-session-id": session}).status == 200
    first.tell()
    first.wait(0.02)
    assert talk.is_over
    if call is not None:
        assert CallCancelled(call, "ended at another instance") in first.events
    first.wait(10)
    assert first.watched == set()
    if what != "a stream of the other":
        assert first.server.sessions == ()


def test_a_session_of_which_the_store_tells_goes_on() -> None:
    """The record of the session has changed, or the connection to the store was renewed."""
    first, _ = instances = Instances(store_tells=True)
    session = instances.open_session()
    talk = first.get(session)
    for _ in range(3):
        first.tell()
        instances.wait(1)
    talk.lose_connection()
    first.tell()
    instances.wait(1)
    assert len(first.server.sessions) == 1


def test_a_session_that_has_ended_is_not_looked_up_again() -> None:
    """Seed 4005269289533 of the simulator: it kept a timer."""
    harness = ServerHarness(shared_store=True, stream_after=math.inf)
    session = harness.open_session()
    harness.call(session)
    harness.store_works = False
    harness.wait(0.25)
    _, reading = harness.waiting
    assert isinstance(reading, StoreRead)
    (known,) = harness.server.sessions
    harness.run_action(harness.server.end_session, known, "enough")
    harness.waiting.remove(reading)
    harness.run_action(harness.server.read_completed, reading, None)
    harness.wait(1)
    read = {effect.stream.session for effect in harness.waiting if isinstance(effect, StoreRead)}
    assert reading.stream.session not in read
    harness.store_works = True
    while harness.waiting:
        harness.use_store_once()


def record_of(instances: Instances, session: str) -> Page | None:
    return instances.store.read(StreamKey("", session, RECORD), 0, limit=9, max_bytes=10**6)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_session_that_ends_while_it_is_looked_up_is_not_opened_again(where: str) -> None:
    """Its record is deleted between the look and the save (seed 620150202607 of the simulator).

    A log that does not exist may begin with any number, so the save made the record anew, and the
    session was open at all instances, for ever.
    """
    first, second = instances = Instances()
    session = instances.open_session()
    if where == "here":
        second.post(PING, session)
    second.store_works = False
    second.post(PING, session)
    if where == "here":
        (known,) = second.server.sessions
        second.run_action(second.server.end_session, known, "enough")
    second.use_store_once()
    if where == "elsewhere":
        assert first.send("DELETE", {"mcp-session-id": session}).status == 200
    while second.waiting:
        second.use_store_once()
    assert second.server.sessions == ()
    assert record_of(instances, session) is None
    second.store_works = True
    for harness in instances:
        assert harness.post(PING, session).status == 404


def test_the_record_of_a_session_goes_that_was_saved_again_and_has_ended_here_since() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    second.store_works = False
    second.post(PING, session)
    second.use_store_once()
    first.send("DELETE", {"mcp-session-id": session})
    assert isinstance(second.use_store_once(), StoreAppend)
    (known,) = second.server.sessions
    second.run_action(second.server.end_session, known, "enough")
    looked, dropped = second.waiting
    assert isinstance(looked, StoreRead)
    second.waiting.remove(dropped)  # as if it had been done before the append
    second.use_store_once()
    second.use_store_once()
    assert record_of(instances, session) is None


def test_a_session_goes_on_if_the_store_fails_when_its_record_is_looked_for_again() -> None:
    _, second = instances = Instances()
    session = instances.open_session()
    second.store_works = False
    second.post(PING, session)
    second.use_store_once()
    second.use_store_once()
    (looked,) = second.waiting
    assert isinstance(looked, StoreRead)
    second.fail_store_once()
    second.wait(1)
    assert second.waiting == [looked]
    second.fail_store_for_good()
    assert second.waiting == []
    second.store_works = True
    assert second.post(PING, session).status == 200


def test_a_mailbox_that_the_store_has_evicted_is_opened_again() -> None:
    harness = ServerHarness(shared_store=True, stream_after=math.inf)
    session = harness.open_session()
    _, call = harness.call(session)
    harness.store_works = False
    harness.wait(0.25)
    for _ in range(2):
        opening, reading = harness.waiting
        assert isinstance(opening, StoreAppend)
        assert isinstance(reading, StoreRead)
        harness.waiting.clear()
        harness.run_action(harness.server.append_completed, opening, AppendResult.STORED)
        harness.run_action(harness.server.read_completed, reading, None)
        harness.wait(0.25)
        harness.waiting[:] = [
            each
            for each in harness.waiting
            if isinstance(each, StoreAppend | StoreRead) and each.stream == reading.stream
        ]
    assert call.is_running


@pytest.mark.parametrize("id", ["5", 6, 5.0, True, None])
def test_a_cancellation_is_for_one_request_of_one_session(id: Any) -> None:
    first, second = instances = Instances()
    session, other = instances.open_session(), instances.open_session()
    _, call = first.call(session, 5)
    second.post(cancelled(id), session)
    second.post(cancelled(5), other)
    instances.wait(1)
    assert call.is_running


def test_who_looks_for_a_cancellation_does_so_while_the_call_runs() -> None:
    harness = ServerHarness(shared_store=True, stream_after=math.inf)
    session = harness.open_session()
    talk, call = harness.call(session)
    harness.store_works = False
    harness.wait(0.25)
    assert isinstance(harness.use_store_once(), StoreAppend)  # that somebody waits
    for _ in range(3):
        harness.wait(0.25)
        assert len(harness.waiting) == 1  # not twice at the same time
        harness.wait(0.5)
        assert isinstance(harness.use_store_once(), StoreRead)
    harness.wait(0.25)
    harness.fail_store_once()
    harness.wait(0.25)
    (read,) = harness.waiting
    harness.events.clear()
    harness.post(cancelled(call.request.id), session)
    harness.use_store_once()
    while harness.waiting:
        harness.use_store_once()
    assert harness.events == [CallCancelled(call, "cancelled by the client")]
    assert isinstance(read, StoreRead)
    assert talk.ended


def test_nobody_looks_for_calls_that_have_ended() -> None:
    harness = ServerHarness(shared_store=True)
    session = harness.open_session()
    _, call = harness.call(session)
    harness.wait(0.2)
    harness.run_action(call.respond, {})
    harness.store_works = False
    harness.wait(1)
    assert harness.waiting == []
    harness.store_works = True
    _, call = harness.call(session)
    harness.store_works = False
    harness.wait(0.25)
    harness.run_action(call.respond, {})
    while harness.waiting:
        harness.use_store_once()
    harness.wait(1)
    assert harness.waiting == []


def test_what_is_found_too_late_changes_nothing() -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    _, call = first.call(session)
    first.wait(0.25)  # the others know from now on that it runs
    second.post(cancelled(call.request.id), session)
    first.store_works = False
    first.wait(0.25)
    assert [type(effect) for effect in first.waiting] == [StoreRead]
    first.run_action(call.respond, {})
    while first.waiting:
        first.use_store_once()
    assert first.events == []


# Cancellations of calls that wait in the store


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("where", [0, 1])
def test_a_call_that_waits_for_answers_is_cancelled(version: str, where: int) -> None:
    instances = Instances()
    session = instances.open_session(version, ALL)
    talk, call = instances[0].call(session, 5, version=version)
    instances[0].run_action(call.respond, InputRequired({"a": NAME, "b": NAME}))
    a, b = answers_to(talk.messages)
    instances[1 - where].post(a, session, version)
    assert instances[where].post(cancelled(5), session, version).status == 202
    assert not talk.ended
    for harness in instances:
        assert harness.post(b, session, version).status == 202
    instances.wait(0.5)
    assert talk.ended
    assert methods(talk) == [NAME.method] * 2
    assert instances.entered == []


def test_so_is_one_that_is_continued_by_one_array() -> None:
    instances = new_instances()
    session = instances.open_session(capabilities=BOTH)
    talk, call = instances[0].call(session, 5)
    instances[0].run_action(call.respond, InputRequired({"a": NAME}))
    instances[1].post(cancelled(5), session)
    given = [
        send(harness, session, talk.last_id, answers_to(talk.messages)) for harness in instances
    ]
    instances.wait(0.25)
    for answer in given:
        assert (answer.status, answer.messages, answer.ended) == (200, [], True)
    assert instances.entered == []


def test_an_instance_that_is_alone_does_the_same(harness: ServerHarness) -> None:
    session = harness.open_session(capabilities=ALL)
    talk, call = harness.call(session, 5)
    harness.run_action(call.respond, InputRequired({"a": NAME}))
    assert harness.post(cancelled(5), session).status == 202
    harness.post(answers_to(talk.messages)[0], session)
    assert talk.ended
    assert not any(isinstance(event, CallReceived) for event in harness.events)


def test_a_call_that_goes_on_is_cancelled_where_it_runs() -> None:
    instances = Instances(3)
    session = instances.open_session(capabilities=ALL)
    talk, call = instances[0].call(session, 5)
    instances[0].run_action(call.respond, InputRequired({"a": NAME}))
    instances[1].post(answers_to(talk.messages)[0], session)
    (call,) = instances.entered
    instances[2].post(cancelled(5), session)
    instances.wait(0.25)
    assert instances[1].events == [CallCancelled(call, "cancelled by the client")]
    instances.wait(0.5)
    assert talk.ended
    assert methods(talk) == [NAME.method]


def test_the_answers_of_a_call_that_goes_on_may_come_again_after_its_cancellation() -> None:
    """It is the instance at which it runs that ends it."""
    instances = new_instances()
    first, second = instances
    session = instances.open_session(capabilities=BOTH)
    talk, call = first.call(session, 5)
    first.run_action(call.respond, InputRequired({"a": NAME}))
    going_on = send(second, session, talk.last_id, answers_to(talk.messages))
    (call,) = instances.entered
    report_progress_all(second, call, "x")
    first.post(cancelled(5), session)
    again = [
        send(harness, session, talk.last_id, answers_to(talk.messages)) for harness in instances
    ]
    report_progress_all(second, call, "y")
    instances.wait(0.75)
    assert second.events == [CallCancelled(call, "cancelled by the client")]
    assert methods(going_on) == ["x"]
    assert going_on.ended
    for reader in again:
        assert methods(reader) == ["x", "y"]
        assert reader.ended
