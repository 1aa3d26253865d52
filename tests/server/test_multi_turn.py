"""SEP-1858: questions between two events, answers as one array, at any instance."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, InputRequired, Limits, LocalProtocolError, Server
from sansmcp.testing import sequential_tokens

from ..handlers import nothing
from .harness import LATEST, RawExchange, ServerHarness, expect, initialize, methods, request
from .instances import Instances
from .pipe_harness import Pipe, result
from .test_rounds import ACCEPTED, ALL, NAME

requirement = pytest.mark.requirement
KEY = "sansmcp/multi-turn-sse"
BOTH: dict[str, Any] = {**ALL, "experimental": {KEY: {"sep": 1858}}}


def ask(instances: Instances, *names: str) -> tuple[str, RawExchange, list[Any]]:
    """A call at the first instance that asks; its stream, and the questions."""
    session = instances.open_session(capabilities=BOTH)
    talk, call = instances[0].call(session, "original", token=7)
    instances[0].run_action(call.progress, 1)
    instances[0].run_action(
        call.respond, InputRequired(dict.fromkeys(names or ("name",), NAME), [1])
    )
    return session, talk, talk.messages[1:]


def new_instances(count: int = 2, **settings: Any) -> Instances:
    return Instances(count, multi_turn=True, **settings)


def send(
    harness: ServerHarness, session: str, cursor: str | None, answers: list[Any]
) -> RawExchange:
    """The answers, in one POST."""
    return harness.post(answers, session, headers={"last-event-id": cursor})


def answers_to(questions: list[Any]) -> list[Any]:
    return [result(question["id"], ACCEPTED) for question in questions]


# The agreement


@requirement("MTURN-S-001", "MTURN-S-011")
@pytest.mark.parametrize(
    ("offered", "capabilities", "version", "agreed"),
    [
        (True, BOTH, LATEST, True),
        (False, BOTH, LATEST, False),
        (True, ALL, LATEST, False),
        (True, {**ALL, "experimental": {"other": {}}}, LATEST, False),
        (True, {**ALL, "experimental": [KEY]}, LATEST, False),
        (True, BOTH, "2025-06-18", False),
        (True, BOTH, "2025-03-26", False),
    ],
)
def test_both_sides_must_name_it(
    offered: bool, capabilities: dict[str, Any], version: str, agreed: bool
) -> None:
    harness = ServerHarness(
        App("x", capabilities={"experimental": {"mine": {}}}), multi_turn=offered
    )
    harness.server.app.handler("tools/call")(nothing)
    talk = harness.post(initialize(version, capabilities))
    named: dict[str, Any] = {"mine": {}}
    if agreed:
        named[KEY] = {"sep": 1858}
    assert talk.json["result"]["capabilities"]["experimental"] == named
    session = talk.header("mcp-session-id")
    talk, call = harness.call(session, version=version)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    kinds = [event.event for event in talk.events if event.data != ""]
    if agreed:
        assert kinds == ["buffer_input", "message", "input_required"]
        assert talk.ended
    else:
        assert kinds == ["message"]
        assert not talk.ended
        refused = send(harness, session or "", talk.last_id, answers_to(talk.messages))
        assert refused.status == (202 if version == "2025-03-26" else 400)


@pytest.mark.parametrize(
    ("version", "agreed"), [(LATEST, True), ("2025-06-18", False), ("2025-03-26", False)]
)
def test_an_operator_may_know_that_clients_take_part(version: str, agreed: bool) -> None:
    """The proposal asks for no capability, only for the revision."""
    harness = ServerHarness(assume_multi_turn=True)
    session = harness.open_session(version, ALL)
    assert "experimental" not in harness.server.app.initialize_result(version)["capabilities"]
    talk, call = harness.call(session, version=version)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    kinds = [event.event for event in talk.events if event.data != ""]
    if agreed:
        assert kinds == ["buffer_input", "message", "input_required"]
        going_on = send(harness, session, talk.last_id, answers_to(talk.messages))
        harness.run_action(harness.last_call().respond, {})
        assert methods(going_on) == ["answer"]
    else:
        assert kinds == ["message"]


def test_the_response_to_the_answers_is_primed() -> None:
    """It got an id with the first message of the call only."""
    instances = new_instances()
    session, talk, questions = ask(instances)
    going_on = send(instances[1], session, talk.last_id, answers_to(questions))
    assert [(event.id, event.data) for event in going_on.events] == [(talk.last_id, "")]
    (call,) = instances.entered
    resumed = instances[0].get(session, going_on.lose_connection().last_id)
    instances[1].run_action(call.respond, {"done": True})
    instances.wait(0.5)
    assert resumed.messages == [result("original", {"done": True})]


def test_it_is_not_for_other_transports_and_eras() -> None:
    pipe = Pipe(multi_turn=False)
    (answer,) = pipe.say(initialize(capabilities=BOTH)).said
    assert "experimental" not in answer["result"]["capabilities"]
    harness = ServerHarness(multi_turn=True, sessions=False)
    talk = harness.post(initialize(capabilities=BOTH))
    assert "experimental" not in talk.json["result"]["capabilities"]


def test_it_needs_a_store() -> None:
    with pytest.raises(LocalProtocolError, match="resumable"):
        Server(App("x"), new_token=sequential_tokens(), resumable=False, multi_turn=True)


# A turn


@requirement("MTURN-S-002", "MTURN-S-003", "MTURN-S-004", "MTURN-S-005", "MTURN-S-006")
def test_the_questions_stand_between_two_events_without_data() -> None:
    instances = new_instances()
    _, talk, (first, second) = ask(instances, "a", "b")
    _, _, opens, _, _, closes = talk.events
    assert f"event: buffer_input\nid: {opens.id}\n\n".encode() in talk.body
    assert talk.body.endswith(f"event: input_required\nid: {closes.id}\n\n".encode())
    assert methods(talk) == ["notifications/progress", *[NAME.method] * 2]
    assert first["params"] == second["params"] == NAME.params
    assert first["jsonrpc"] == second["jsonrpc"] == "2.0"
    assert first["id"] != second["id"]
    assert talk.ended
    assert not instances[0].server.is_busy
    assert b"original" not in talk.body  # what the server needs is not for the client


@requirement("MTURN-S-008")
def test_what_is_needed_is_stored_before_the_client_is_told() -> None:
    harness = ServerHarness(multi_turn=True, store_works=False)
    talk, call = harness.call(harness.open_session(capabilities=BOTH))
    harness.run_action(call.respond, InputRequired({"name": NAME}, [1]))
    assert methods(talk) == []
    harness.use_store_once()
    assert talk.events[-1].event == "input_required"


@requirement("MTURN-S-007", "MTURN-S-009", "MTURN-S-010")
@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
@pytest.mark.parametrize("where", [0, 1])
def test_the_call_goes_on_in_the_response_to_the_answers(names: tuple[str], where: int) -> None:
    instances = new_instances()
    session, talk, questions = ask(instances, *names)
    going_on = send(instances[where], session, talk.last_id, answers_to(questions)[::-1])
    assert (going_on.status, going_on.header("content-type")) == (200, "text/event-stream")
    (call,) = instances.entered
    assert (call.request.id, call.handler_input.state) == ("original", [1])
    assert dict(call.handler_input.input_responses) == dict.fromkeys(names, ACCEPTED)
    instances[where].run_action(call.progress, 2)
    instances[where].run_action(call.respond, {"done": True})
    report, answer = going_on.messages
    assert report["params"] == {"progressToken": 7, "progress": 2}
    assert answer == result("original", {"done": True})
    assert going_on.ended


@requirement("MTURN-B-001")
def test_many_turns_each_at_another_instance() -> None:
    instances = new_instances(3)
    session, talk, questions = ask(instances)
    for number in (1, 2, 0, 0, 1):
        harness = instances[number]
        talk = send(harness, session, talk.last_id, answers_to(questions))
        harness.run_action(harness.last_call().respond, InputRequired({"again": NAME}))
        assert talk.ended
        questions = talk.messages
    talk = send(instances[2], session, talk.last_id, answers_to(questions))
    instances[2].run_action(instances[2].last_call().respond, {})
    assert talk.messages == [result("original")]


def test_without_questions_nothing_is_said_of_turns() -> None:
    harness = ServerHarness(multi_turn=True)
    talk, call = harness.call(harness.open_session(capabilities=BOTH))
    harness.run_action(call.respond, InputRequired(state=1))
    harness.run_action(harness.last_call().respond, {})
    assert talk.json == result(1)
    talk, call = harness.call(harness.open_session(capabilities=BOTH))
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    session = harness.server.sessions[-1].id
    assert session is not None
    talk = send(harness, session.reveal(), talk.last_id, answers_to(talk.messages))
    harness.run_action(harness.last_call().respond, InputRequired(state=1))
    harness.run_action(harness.last_call().respond, {})
    assert talk.messages == [result(2)]


def test_an_error_of_the_client_is_an_answer() -> None:
    instances = new_instances()
    session, talk, (question,) = ask(instances)
    declined = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}
    assert send(instances[1], session, talk.last_id, [declined]).status == 200
    (call,) = instances.entered
    with pytest.raises(Exception, match="no"):
        call.handler_input.input_responses["name"]


# Accidents


def test_a_turn_whose_stream_broke_is_read_by_get() -> None:
    instances = new_instances()
    session, talk, (question,) = ask(instances)
    for index, event in enumerate(talk.events[:-1]):
        rest = instances[index % 2].get(session, event.id)
        assert [each.id for each in rest.events] == [each.id for each in talk.events[index:]]
        assert rest.ended
    assert send(instances[1], session, talk.last_id, answers_to([question])).status == 200
    assert len(instances.entered) == 1


def test_the_same_answers_again_do_not_run_it_twice() -> None:
    instances = new_instances(3)
    session, talk, questions = ask(instances)
    cut = send(instances[1], session, talk.last_id, answers_to(questions)).lose_connection()
    (call,) = instances.entered
    again = send(instances[2], session, talk.last_id, answers_to(questions))
    newest = send(instances[1], session, talk.last_id, answers_to(questions))
    instances[1].run_action(call.respond, {"done": True})
    instances.wait(0.5)
    for reader in (again, newest, send(instances[0], session, talk.last_id, answers_to(questions))):
        assert reader.messages == [result("original", {"done": True})]
        assert reader.ended
    assert cut.messages == []
    assert instances.entered == []


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([{"action": "decline"}, ACCEPTED], "cursor_used"),
        ([{"action": "decline"}], "answers_missing"),
    ],
)
def test_a_turn_is_not_continued_twice(answers: list[Any], reason: str) -> None:
    instances = new_instances()
    session, talk, questions = ask(instances, "a", "b")
    send(instances[0], session, talk.last_id, answers_to(questions))
    others = [result(q["id"], a) for q, a in zip(questions, answers, strict=False)]
    expect(send(instances[1], session, talk.last_id, others), 400, reason)
    assert len(instances.entered) == 1


@pytest.mark.parametrize("wrong", ["too few", "strangers", "twice", "too many"])
def test_all_questions_are_to_be_answered(wrong: str) -> None:
    instances = new_instances()
    session, talk, questions = ask(instances, "a", "b")
    answers = answers_to(questions)
    given = {
        "too few": answers[:1],
        "strangers": [answers[0], result("x")],
        "twice": [answers[0], answers[0]],
        "too many": [*answers, result("x")],
    }
    expect(send(instances[1], session, talk.last_id, given[wrong]), 400, "answers_missing")
    assert send(instances[1], session, talk.last_id, answers).status == 200
    assert len(instances.entered) == 1


def test_one_answer_that_comes_alone_is_none() -> None:
    """The answers come as one array, so that it is known when they are complete."""
    instances = new_instances()
    session, talk, questions = ask(instances, "a", "b")
    answers = answers_to(questions)
    for harness, answer in zip(instances, answers, strict=True):
        assert harness.post(answer, session).status == 202
    assert instances.entered == []
    assert send(instances[1], session, talk.last_id, answers).status == 200
    assert len(instances.entered) == 1


def test_cursors_of_others_are_unknown() -> None:
    instances = new_instances()
    session, talk, questions = ask(instances)
    other = instances.open_session(capabilities=BOTH)
    eve = instances[0].open_session(capabilities=BOTH, principal="eve")
    expect(send(instances[1], other, talk.last_id, answers_to(questions)), 400, "unknown_event_id")
    foreign = instances[1].post(
        answers_to(questions), eve, headers={"last-event-id": talk.last_id}, principal="eve"
    )
    expect(foreign, 400, "unknown_event_id")
    for principal in ("eve", ""):
        stolen = instances[1].post(
            answers_to(questions),
            session if principal else eve,
            headers={"last-event-id": talk.last_id},
            principal=principal,
        )
        expect(stolen, 404, "session_not_found")
    assert instances.entered == []


def test_a_cursor_must_be_that_of_the_turn() -> None:
    instances = new_instances()
    session, talk, questions = ask(instances)
    cursors = [event.id for event in talk.events[:-1]]
    for cursor in [*cursors, f"{talk.last_id}1", "nonsense", "token-000000000009-1"]:
        refused = send(instances[1], session, cursor, answers_to(questions))
        expect(refused, 400, "unknown_event_id")
    assert instances.entered == []


def test_a_cursor_expires() -> None:
    instances = new_instances(limits=Limits(max_stored_age=90))
    session, talk, questions = ask(instances)
    for _ in range(5):
        instances.grow_old(20)
        instances[1].post(request(1, "ping"), session)
    late = send(instances[1], session, talk.last_id, answers_to(questions))
    expect(late, 400, "unknown_event_id")


@pytest.mark.parametrize("body", [[], [request(1, "ping")], [result("x"), request(1, "ping")]])
def test_other_arrays_are_no_answers(body: list[Any]) -> None:
    instances = new_instances()
    session, talk, _ = ask(instances)
    assert send(instances[1], session, talk.last_id, body).status == 400
    assert instances[1].post([result("x")], session).status == 400


def test_a_client_that_leaves_too_early_finds_the_result() -> None:
    harness = ServerHarness(multi_turn=True, store_works=False)
    session = harness.open_session(capabilities=BOTH)
    talk, call = harness.call(session)
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    harness.use_store_once()
    gone = send(harness, session, talk.last_id, answers_to(talk.messages)).lose_connection()
    for _ in range(5):
        harness.use_store_once()
    assert gone.head is None
    harness.store_works = True
    harness.run_action(harness.last_call().respond, {})
    again = send(harness, session, talk.last_id, answers_to(talk.messages))
    assert again.messages == [result(1)]


def test_a_call_that_goes_on_is_a_call_like_others() -> None:
    instances = new_instances()
    session, talk, questions = ask(instances)
    going_on = send(instances[1], session, talk.last_id, answers_to(questions))
    (call,) = instances.entered
    assert instances[1].server.is_busy
    assert not call.is_above_high_water
    assert call.is_connected
    assert instances[1].run_action(call.disconnect, retry=1) is True
    assert going_on.ended
    assert not call.is_connected
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    params = {"requestId": "original"}
    instances[1].post({**cancelled, "params": params}, session)
    assert not call.is_running
    rest = instances[0].get(session, going_on.last_id)
    assert (rest.status, rest.messages, rest.ended) == (200, [], True)
