"""Asking the client for input: rounds that stand alone, and a state that nobody else can use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sansmcp import App, InputRequest, InputRequired, LocalProtocolError
from sansmcp.events import RefusalSent

from ...handlers import nothing
from ..harness import methods
from ..pipe_harness import Pipe
from .harness import (
    SERVER_INFO,
    ModernServerHarness,
    meta,
    modern,
    modern_app,
    new_seal,
)
from .rounds import ACCEPTED, ALL, MODEL, NAME, ROOTS, asking, first_round, new_bench

requirement = pytest.mark.requirement

# One round


@requirement(
    "MRTR-S-002",
    "MRTR-S-004",
    "MRTR-S-006",
    "MRTR-S-001",
    "MRTR-S-021",
    "MRTR-S-026",
    "JSONRPC-S-002",
)
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_the_questions_are_the_result(method: str) -> None:
    harness = new_bench()
    talk, call = harness.start(asking("a", method))
    assert (call.handler_input.input_responses, call.handler_input.state) == ({}, None)
    questions = {"name": NAME, "model": MODEL, "roots": ROOTS}
    assert harness.run_action(call.respond, InputRequired(questions)) is True
    assert talk.status == 200
    assert talk.json == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {
            "resultType": "input_required",
            "inputRequests": {
                "name": {"method": "elicitation/create", "params": NAME.params},
                "model": {"method": "sampling/createMessage", "params": MODEL.params},
                "roots": {"method": "roots/list", "params": {}},
            },
            "_meta": {SERVER_INFO: {"name": "bench", "version": "1"}},
        },
    }


@requirement("MRTR-S-021", "MODERN-S-010")
def test_they_may_end_a_stream() -> None:
    harness = new_bench()
    talk, call = harness.start(asking())
    harness.run_action(call.notify, "notifications/x")
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    assert methods(talk) == ["notifications/x", "answer"]
    assert talk.messages[-1]["result"]["resultType"] == "input_required"
    assert talk.ended


@requirement("MRTR-S-010")
def test_in_between_nothing_is_held() -> None:
    harness = new_bench()
    first_round(harness)
    assert not harness.server.is_busy
    assert harness.server.next_deadline() is None


@requirement("MRTR-S-007", "MRTR-S-005")
@pytest.mark.parametrize("state", ["x", 0, False, {"a": [1, None]}, "ü\n", [], 1.5])
def test_the_client_brings_answers_and_state(state: Any) -> None:
    harness = new_bench()
    sealed = first_round(harness, state)
    assert sealed.isascii()
    answers = {"name": ACCEPTED}
    talk, call = harness.start(asking(2, inputResponses=answers, requestState=sealed))
    assert call.handler_input.input_responses == answers
    assert call.handler_input.state == state
    harness.run_action(call.respond, {"content": []})
    assert talk.json["result"]["resultType"] == "complete"


@requirement("MRTR-S-008")
def test_there_is_always_a_state_or_a_question() -> None:
    harness = new_bench()
    talk, call = harness.start(asking())
    harness.run_action(call.respond, InputRequired())
    sealed = talk.json["result"]["requestState"]
    assert "inputRequests" not in talk.json["result"]
    _, call = harness.start(asking(2, requestState=sealed))
    assert (call.handler_input.input_responses, call.handler_input.state) == ({}, None)


def test_a_state_alone_means_come_again() -> None:
    harness = new_bench()
    talk, call = harness.start(asking())
    harness.run_action(call.respond, InputRequired(state={"step": 2}))
    _, call = harness.start(asking(2, requestState=talk.json["result"]["requestState"]))
    assert call.handler_input.state == {"step": 2}


# Rounds


@requirement("MRTR-S-011", "MRTR-B-001", "MODERN-S-025")
def test_three_rounds_each_with_another_server() -> None:
    """They share nothing but the key."""
    extra: dict[str, Any] = {}
    for step in range(3):
        harness = new_bench()
        talk, call = harness.start(asking(step, **extra))
        assert call.handler_input.state == (step or None)
        harness.run_action(call.respond, InputRequired({f"q{step}": NAME}, step + 1))
        result = talk.json["result"]
        answers = dict.fromkeys(result["inputRequests"], ACCEPTED)
        extra = {"inputResponses": answers, "requestState": result["requestState"]}
    _, call = new_bench().start(asking(3, **extra))
    assert (call.handler_input.state, call.handler_input.input_responses) == (3, {"q2": ACCEPTED})


@requirement("MRTR-S-025", "MRTR-S-024")
@pytest.mark.parametrize("answers", [{}, {"unknown": {}}, {"name": {}, "more": {"x": 1}}])
def test_which_answers_are_needed_is_for_the_handler(answers: dict[str, Any]) -> None:
    harness = new_bench()
    sealed = first_round(harness)
    talk, call = harness.start(asking(2, inputResponses=answers, requestState=sealed))
    assert call.handler_input.input_responses == answers
    harness.run_action(call.respond, InputRequired({"name": NAME}, call.handler_input.state))
    assert talk.json["result"]["resultType"] == "input_required"
    _, call = harness.start(asking(3, requestState=talk.json["result"]["requestState"]))
    assert call.handler_input.state == "saved"


def test_answers_may_come_without_a_state() -> None:
    _, call = new_bench().start(asking(2, inputResponses={"name": ACCEPTED}))
    assert (call.handler_input.input_responses, call.handler_input.state) == (
        {"name": ACCEPTED},
        None,
    )


# What a client cannot be asked


def missing(
    harness: ModernServerHarness, capabilities: dict[str, Any], *questions: InputRequest
) -> Any:
    talk, call = harness.start(modern(1, about=meta(capabilities)))
    named = {str(index): question for index, question in enumerate(questions)}
    assert harness.run_action(call.respond, InputRequired(named, "state")) is True
    if talk.status == 200:
        return None
    assert talk.status == 400
    assert (talk.json["id"], talk.error["code"]) == (1, -32021)
    assert not harness.server.is_busy
    return talk.error["data"]["requiredCapabilities"]


@requirement("MRTR-S-009", "MODERN-S-018", "MODERN-S-019", "MODERN-S-020", "MODERN-S-021")
def test_a_capability_that_the_client_has_not() -> None:
    harness = new_bench()
    harness.run_action(harness.start(asking())[1].respond, {})  # another request had them all
    assert missing(harness, {}, NAME) == {"elicitation": {"form": {}}}
    assert missing(harness, {}, MODEL) == {"sampling": {}}
    assert missing(harness, {}, ROOTS, MODEL) == {"roots": {}, "sampling": {}}
    assert missing(harness, {"sampling": {}}, ROOTS, MODEL) == {"roots": {}}
    assert missing(harness, {"sampling": None, "roots": True}, MODEL, ROOTS) == {
        "sampling": {},
        "roots": {},
    }
    assert missing(harness, ALL, NAME, MODEL, ROOTS) is None


@requirement("MRTR-S-009")
def test_a_part_of_a_capability_that_the_client_has_not() -> None:
    harness = new_bench()
    url = InputRequest("elicitation/create", {"mode": "url", "url": "https://x"})
    form = InputRequest("elicitation/create", {"mode": "form"})
    tools = InputRequest("sampling/createMessage", {"tools": []})
    assert missing(harness, ALL, form) is None
    assert missing(harness, ALL, url) == {"elicitation": {"url": {}}}
    assert missing(harness, {}, url, form) == {"elicitation": {"url": {}, "form": {}}}
    only_url: dict[str, Any] = {"elicitation": {"url": {}}}
    assert missing(harness, only_url, url) is None
    assert missing(harness, only_url, NAME) == {"elicitation": {"form": {}}}
    assert missing(harness, {"elicitation": {"url": {}, "form": {}}}, NAME, url) is None
    assert missing(harness, ALL, tools) == {"sampling": {"tools": {}}}
    assert missing(harness, {"sampling": {"tools": {}}}, tools, MODEL) is None


def test_on_a_stream_it_is_too_late_for_a_status() -> None:
    harness = new_bench()
    talk, call = harness.start(modern(1))
    harness.run_action(call.notify, "notifications/x")
    harness.run_action(call.respond, InputRequired({"name": NAME}))
    assert talk.status == 200
    assert talk.messages[-1]["error"]["code"] == -32021
    assert talk.ended


@requirement("MRTR-S-006")
def test_a_question_that_nobody_knows() -> None:
    _, call = new_bench().start(asking())
    for method in ("ping", "tools/call", ""):
        with pytest.raises(LocalProtocolError, match="do not take"):
            call.respond(InputRequired({"a": InputRequest(method)}), now=0)
    assert call.is_running


def cannot_ask(method: str) -> None:
    app = App("everything")
    app.fallback(nothing)
    harness = ModernServerHarness(app, state_signer=new_seal())
    for about in (meta(ALL), meta()):
        talk, call = harness.start(modern(1, method, about=about))
        for required in (InputRequired({"name": NAME}), InputRequired(state=1)):
            with pytest.raises(LocalProtocolError, match="cannot return InputRequired"):
                call.respond(required, now=0)
        harness.run_action(call.respond, {"found": 1})
        assert talk.json["result"]["resultType"] == "complete"


@requirement("MRTR-S-003")
@pytest.mark.parametrize(
    "method",
    [
        "completion/complete",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/list",
    ],
)
def test_a_method_that_cannot_ask(method: str) -> None:
    cannot_ask(method)


@requirement("MRTR-S-003")
@example("com.example/tools/call")
@given(
    st.text("acdelrstu/._-0AZ", min_size=1, max_size=20)
    | st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "x/", "com.example/"]),
        st.sampled_from(["tools/call", "prompts/get", "resources/read", "Tools/Call", "tools"]),
        st.sampled_from(["", "s", "/", "/x"]),
    )
)
def test_no_method_of_an_application_can_ask(method: str) -> None:
    """Four methods were tried, and a fifth one could have asked."""
    assume(method not in ("tools/call", "prompts/get", "resources/read"))
    assume(not method.startswith("rpc."))  # answered by nobody
    cannot_ask(method)


@pytest.mark.parametrize("state", [object(), float("nan"), "\ud800", b"bytes", {1}])
def test_a_state_that_is_no_json(state: Any) -> None:
    talk, call = new_bench().start(asking())
    with pytest.raises(LocalProtocolError):
        call.respond(InputRequired({"name": NAME}, state), now=0)
    assert call.is_running
    assert talk.head is None


def test_rounds_on_stdio() -> None:
    pipe = Pipe(modern_app(), state_signer=new_seal()).say(asking(1))
    call = pipe.harness.last_call()
    pipe.harness.run_action(call.respond, InputRequired({"name": NAME}, "saved"))
    (asked,) = pipe.run_pending().said
    assert asked["result"]["resultType"] == "input_required"
    sealed = asked["result"]["requestState"]
    pipe.say(asking(2, requestState=sealed, inputResponses={"name": ACCEPTED}))
    call = pipe.harness.last_call()
    assert (call.handler_input.state, call.handler_input.input_responses) == (
        "saved",
        {"name": ACCEPTED},
    )
    pipe.say(asking(3, requestState=sealed, name="other"))
    (answer,) = pipe.said
    assert answer["error"]["code"] == -32602
    assert isinstance(pipe.harness.events.pop(), RefusalSent)
    pipe.say(modern(4))
    pipe.harness.run_action(pipe.harness.last_call().respond, InputRequired({"name": NAME}))
    (answer,) = pipe.run_pending().said
    assert answer["error"]["code"] == -32021


def test_a_client_that_leaves_before_it_is_asked() -> None:
    harness = new_bench()
    talk, call = harness.start(asking())
    talk.lose_connection()
    assert harness.run_action(call.respond, InputRequired({"name": NAME}, 1)) is False
