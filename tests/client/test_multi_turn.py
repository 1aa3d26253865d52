"""SEP-1858: answers are kept back until the server wants them, and the call goes on there."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    BodyData,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    Limits,
    RequestCancelled,
    RequestTimeout,
    encode_event,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Reconnecting,
    ServerRequestCancelled,
    ServerRequestReceived,
)

from .harness import Asked, ClientHarness, error, initialized, notification, request, response

requirement = pytest.mark.requirement
KEY = "sansmcp/multi-turn-sse"
ELICIT = "elicitation/create"


def new_bench(*, named: bool = True, version: str = "2025-11-25", **settings: Any) -> ClientHarness:
    """A client that offers multi-turn streams to a server, which may name them, too."""
    options: Any = {"capabilities": {"elicitation": {}}, "multi_turn": True, **settings}
    harness = ClientHarness(**options)
    harness.run_command(harness.client.start)
    asked = harness.take()
    answer = initialized(asked.id, version)
    if named:
        answer["result"]["capabilities"]["experimental"] = {KEY: {"sep": 1858}}
    asked.answer(answer, mcp_session_id="session-secret-0001")
    harness.take().accept()
    harness.events.clear()
    return harness


def say(asked: Asked, kind: str, id: str, data: bytes | None = None) -> None:
    asked.feed(BodyData(encode_event(data, event=kind, id=id)))


def ask(asked: Asked, number: int) -> None:
    asked.event(request(f"q{number}", ELICIT, message=number), id=f"e{number + 1}")


def open_turn(harness: ClientHarness, questions: int = 2, **options: Any) -> tuple[int, Asked]:
    """A call in whose stream questions were asked; the turn is open."""
    handle, asked = harness.call(**options)
    asked.open_stream()
    say(asked, "buffer_input", "e0")
    for number in range(questions):
        ask(asked, number)
    return handle, asked


def answer(harness: ClientHarness, number: int, result: Any = None) -> None:
    assert harness.run_command(
        harness.client.respond, f"q{number}", {"n": number} if result is None else result
    )


def close_turn(asked: Asked, id: str = "e9") -> None:
    say(asked, "input_required", id)
    asked.end()


# The agreement


@requirement("MTURN-C-006")
@pytest.mark.parametrize(
    "settings",
    [{"named": False}, {"version": "2025-06-18"}, {"multi_turn": False}],
)
def test_without_an_agreement_the_events_mean_nothing(settings: Any) -> None:
    harness = new_bench(**settings)
    _, asked = open_turn(harness, 1)
    answer(harness, 0)
    assert harness.take().json == response("q0", {"n": 0})
    close_turn(asked)
    assert any(isinstance(event, Reconnecting) for event in harness.events)


@pytest.mark.parametrize(("version", "agreed"), [("2025-11-25", True), ("2025-06-18", False)])
def test_an_operator_may_know_that_the_server_takes_part(version: str, agreed: bool) -> None:
    """The proposal asks for no capability, only for the revision."""
    settings = {"multi_turn": False, "assume_multi_turn": True}
    harness = new_bench(named=False, version=version, **settings)
    _, asked = open_turn(harness, 1)
    answer(harness, 0)
    assert bool(harness.requests) is not agreed
    close_turn(asked)
    assert harness.take().header("last-event-id") == ("e9" if agreed else None)


def test_it_is_offered_beside_other_experiments() -> None:
    harness = ClientHarness(multi_turn=True, capabilities={"experimental": {"mine": {}}})
    harness.run_command(harness.client.start)
    named = harness.take().json["params"]["capabilities"]
    assert named == {"experimental": {"mine": {}, KEY: {"sep": 1858}}}
    harness = ClientHarness(multi_turn=True, versions=("2025-11-25", "2026-07-28"))
    harness.run_command(harness.client.start)
    assert KEY not in harness.take().effect.body.decode()


# A turn


@requirement("MTURN-C-001", "MTURN-C-002", "MTURN-C-003", "MTURN-C-004", "MTURN-C-005")
@pytest.mark.parametrize("form", ["stream", "json"])
def test_a_turn(form: str) -> None:
    harness = new_bench()
    handle, asked = open_turn(harness)
    assert len([e for e in harness.take_events() if isinstance(e, ServerRequestReceived)]) == 2
    answer(harness, 1)
    close_turn(asked)
    assert (harness.requests, harness.events) == ([], [])
    answer(harness, 0)
    going_on = harness.take()
    assert going_on.json == [response("q1", {"n": 1}), response("q0", {"n": 0})]
    assert going_on.header("last-event-id") == "e9"
    assert going_on.header("mcp-session-id") == "session-secret-0001"
    if form == "json":
        going_on.answer(response(asked.id, {"done": True}))
    else:
        going_on.open_stream()
        going_on.event(response(asked.id, {"done": True}), id="e10")
    assert harness.take_events() == [CallCompleted(handle, {"done": True})]
    assert harness.requests == []


def test_all_answers_may_be_there_before_the_turn_ends() -> None:
    harness = new_bench()
    _, asked = open_turn(harness)
    answer(harness, 0)
    answer(harness, 1)
    assert harness.requests == []
    close_turn(asked)
    assert len(harness.take().json) == 2


@requirement("MTURN-B-001")
def test_many_turns() -> None:
    harness = new_bench()
    handle, asked = open_turn(harness, 1)
    request_id, going_on = asked.id, asked
    for turn in range(1, 5):
        close_turn(going_on, f"t{turn}")
        answer(harness, turn - 1)
        going_on = harness.take()
        assert going_on.header("last-event-id") == f"t{turn}"
        going_on.open_stream()
        say(going_on, "buffer_input", f"b{turn}", b"")  # an empty data line does no harm
        ask(going_on, turn)
    close_turn(going_on, "last")
    answer(harness, 4)
    harness.take().answer(response(request_id))
    assert harness.events[-1] == CallCompleted(handle, {})


def test_an_error_is_an_answer() -> None:
    harness = new_bench()
    _, asked = open_turn(harness, 1)
    harness.run_command(harness.client.respond_exception, "q0", JsonRpcError(-1, "declined"))
    close_turn(asked)
    assert harness.take().json == [error("q0", -1, "declined")]


def test_what_nobody_is_asked_is_answered_in_the_turn_too() -> None:
    harness = new_bench()
    _, asked = open_turn(harness, 0)
    asked.event(request("p", "ping"), id="e1")
    asked.event(request("s", "sampling/createMessage"), id="e2")
    assert harness.requests == []
    close_turn(asked)
    ping, sampling = harness.take().json
    assert ping == response("p")
    assert sampling["error"]["code"] == -32601


def test_a_turn_without_questions() -> None:
    harness = new_bench()
    _, asked = open_turn(harness, 0)
    close_turn(asked)
    assert harness.take().json == []
    _, asked = harness.call()
    asked.open_stream()
    close_turn(asked)
    assert harness.take().json == []


def test_events_of_other_types_without_data_mean_nothing() -> None:
    harness = new_bench()
    _, asked = open_turn(harness, 1)
    say(asked, "end_of_input", "e8")
    answer(harness, 0)
    assert harness.requests == []
    close_turn(asked)
    assert harness.take().json == [response("q0", {"n": 0})]


def test_other_streams_are_not_concerned() -> None:
    harness = new_bench()
    open_turn(harness, 1)
    _, other = harness.call()
    other.open_stream()
    other.event(request("other", ELICIT), id="o1")
    harness.run_command(harness.client.respond, "other", {})
    assert harness.take().json == response("other")


# Accidents


def test_a_turn_is_read_on_by_get() -> None:
    harness = new_bench()
    _, asked = open_turn(harness, 1)
    answer(harness, 0)
    say(asked, "buffer_input", "again")
    asked.cut()
    harness.wait(20)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "again"
    resumed.open_stream()
    ask(resumed, 0)  # known by the id of its event
    resumed.event(request("q0", ELICIT), id="other")  # known by its own
    ask(resumed, 1)
    close_turn(resumed)
    assert [
        e.request.id for e in harness.take_events() if isinstance(e, ServerRequestReceived)
    ] == [
        "q0",
        "q1",
    ]
    answer(harness, 1)
    assert [each["id"] for each in harness.take().json] == ["q0", "q1"]


@pytest.mark.parametrize("accident", ["refused", "cut", "cut early", "503"])
def test_the_same_answers_are_sent_again(accident: str) -> None:
    harness = new_bench()
    handle, asked = open_turn(harness, 1)
    close_turn(asked)
    answer(harness, 0)
    sent = harness.take()
    if accident == "503":
        sent.refuse(503)
    elif accident == "cut":
        sent.open_stream()
        sent.feed(BodyData(b": nothing\n\n"))
        sent.cut()
    else:
        sent.cut()
    harness.wait(20)
    again = harness.take()
    assert (again.json, again.header("last-event-id")) == (sent.json, "e9")
    again.open_stream()
    again.event(notification("notifications/x"), id="e10")
    again.cut()
    harness.wait(20)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "e10"
    resumed.open_stream()
    resumed.event(response(asked.id), id="e11")
    assert harness.events[-1] == CallCompleted(handle, {})


def test_answers_that_are_refused_end_the_call() -> None:
    harness = new_bench()
    handle, asked = open_turn(harness, 1)
    close_turn(asked)
    answer(harness, 0)
    harness.take().refuse(400)
    event = harness.events[-1]
    assert isinstance(event, CallFailed)
    assert isinstance(event.error, Disconnected)
    assert event.call == handle


def test_an_idempotent_call_begins_again() -> None:
    harness = new_bench()
    _, asked = open_turn(harness, 1, idempotent=True)
    close_turn(asked)
    answer(harness, 0)
    harness.take().refuse(400)
    harness.wait(20)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    again.open_stream()
    say(again, "buffer_input", "x0")
    ask(again, 5)
    close_turn(again)
    answer(harness, 5)
    assert [each["id"] for each in harness.take().json] == ["q5"]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("answered", [False, True])
def test_a_call_is_cancelled_in_a_turn(closed: bool, answered: bool) -> None:
    harness = new_bench()
    handle, asked = open_turn(harness)
    if answered:
        answer(harness, 0)
    if closed:
        close_turn(asked)
    harness.run_command(harness.client.cancel, handle)
    (cancelled,) = harness.requests
    assert cancelled.json["method"] == "notifications/cancelled"
    failed = [event for event in harness.events if isinstance(event, CallFailed)]
    assert [type(event.error) for event in failed] == [RequestCancelled]
    withdrawn = [event for event in harness.events if isinstance(event, ServerRequestCancelled)]
    assert len(withdrawn) == (1 if answered else 2)
    assert harness.run_command(harness.client.respond, "q1", {}) is False
    assert len(harness.requests) == 1


def test_a_call_is_cancelled_while_it_goes_on() -> None:
    harness = new_bench()
    handle, asked = open_turn(harness, 1)
    close_turn(asked)
    answer(harness, 0)
    going_on = harness.take()
    harness.run_command(harness.client.cancel, handle)
    assert going_on.aborted


def test_the_call_keeps_its_timeout() -> None:
    harness = new_bench(limits=Limits(stream_idle_timeout=1000))
    handle, asked = open_turn(harness, 1, timeout=10)
    harness.wait(100)  # somebody thinks about the answer
    answer(harness, 0)
    close_turn(asked)
    harness.wait(7)
    harness.take().open_stream()
    harness.wait(2)
    assert not any(isinstance(event, CallFailed) for event in harness.events)
    harness.wait(2)
    event = harness.events[-1]
    assert isinstance(event, CallFailed)
    assert isinstance(event.error, RequestTimeout)
    assert event.call == handle


@pytest.mark.parametrize("limits", [Limits(max_batch_messages=2), Limits(max_message_bytes=1000)])
def test_what_is_kept_back_is_limited(limits: Limits) -> None:
    harness = new_bench(limits=limits)
    handle, asked = open_turn(harness, 2)
    if limits.max_batch_messages == 2:
        ask(asked, 2)
    else:
        answer(harness, 0, {"long": "x" * 500})
        answer(harness, 1, {"long": "x" * 500})
    failed = [event for event in harness.events if isinstance(event, CallFailed)]
    assert [event.call for event in failed] == [handle]
    assert isinstance(failed[0].error, InvalidResponse)
    assert asked.aborted
    assert [each for each in harness.requests if each.method == "POST"] == []


def test_what_is_kept_back_is_limited_after_the_stream_has_ended() -> None:
    harness = new_bench(limits=Limits(max_message_bytes=1000))
    handle, asked = open_turn(harness, 2)
    close_turn(asked)
    answer(harness, 0, {"long": "x" * 500})
    answer(harness, 1, {"long": "x" * 500})
    failed = [event for event in harness.events if isinstance(event, CallFailed)]
    assert [event.call for event in failed] == [handle]
    assert isinstance(failed[0].error, InvalidResponse)


def test_a_request_that_is_made_again_begins_without_a_turn() -> None:
    """A stream without event ids is broken in a turn: the new one knows nothing of it."""
    harness = new_bench()
    handle, asked = harness.call(idempotent=True)
    asked.open_stream()
    asked.feed(BodyData(encode_event(None, event="buffer_input")))
    asked.event(request("q0", ELICIT))
    asked.cut()
    harness.wait(1.0)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    answer(harness, 0)
    assert harness.take().json == response("q0", {"n": 0})
    again.result()
    assert harness.events[-1] == CallCompleted(handle, {})
