"""InputRequired towards clients of the handshake revisions: requests, answers, and re-entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import (
    InputRequest,
    InputRequired,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    ServerCall,
)
from sansmcp.events import CallCancelled, CallReceived, ResponseUndelivered

from .harness import RawExchange, ServerHarness, methods, notification, request
from .pipe_harness import Pipe, result

requirement = pytest.mark.requirement
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
NAME = InputRequest("elicitation/create", {"message": "Your name?"})
ROOTS = InputRequest("roots/list")
ACCEPTED = {"action": "accept", "content": {"name": "Eve"}}


class Peer:
    """A client on Streamable HTTP, or on stdio, that is asked for input."""

    def __init__(self, kind: str, capabilities: dict[str, Any], **settings: Any) -> None:
        self.pipe = Pipe(**settings).open(capabilities=capabilities) if kind == "stdio" else None
        self.harness = (
            self.pipe.harness if self.pipe else ServerHarness(resumable=kind == "store", **settings)
        )
        self.session = "" if self.pipe else self.harness.open_session(capabilities=capabilities)
        self.talk: RawExchange | None = None
        self.heard: list[Any] = []

    def call(self, method: str = "tools/call", id: Any = 1) -> ServerCall:
        if self.pipe is not None:
            return self.pipe.call(id, method)
        self.talk, call = self.harness.call(self.session, id, method=method)
        return call

    def say(self, message: dict[str, Any]) -> None:
        if self.pipe is not None:
            self.pipe.say(message)
        else:
            assert self.harness.post(message, self.session).status == 202

    @property
    def messages(self) -> list[Any]:
        """What the server has said since the last look."""
        if self.pipe is not None:
            return self.pipe.run_pending().said
        assert self.talk is not None
        if self.talk.header("content-type") == "application/json":
            return [self.talk.json]
        self.heard, before = self.talk.messages, self.heard
        return self.heard[len(before) :]

    def entered(self) -> ServerCall:
        """The call whose handler was just entered again."""
        event = self.harness.events.pop()
        assert isinstance(event, CallReceived)
        return event.call

    def do(self, action: Callable[..., Any], *arguments: Any) -> Any:
        return self.harness.run_action(action, *arguments)


@pytest.fixture(params=["store", "no store", "stdio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def peer(kind: str) -> Peer:
    return Peer(kind, ALL)


@requirement("MTURN-S-011")
def test_the_questions_are_requests_and_the_handler_is_entered_again(peer: Peer) -> None:
    call = peer.call()
    assert peer.do(call.respond, InputRequired({"name": NAME, "roots": ROOTS}, {"n": 1}))
    name, roots = peer.messages
    assert (name["method"], name["params"]) == (NAME.method, NAME.params)
    assert (roots["method"], roots["params"]) == ("roots/list", {})
    peer.say(result(roots["id"], {"roots": []}))
    assert peer.harness.events == []
    peer.say(result(name["id"], ACCEPTED))
    call = peer.entered()
    assert call.handler_input.input_responses == {"name": ACCEPTED, "roots": {"roots": []}}
    assert call.handler_input.state == {"n": 1}
    peer.do(call.respond, {"content": []})
    assert peer.messages == [result(1, {"content": []})]
    assert peer.harness.server.is_busy is False


def test_many_rounds(peer: Peer) -> None:
    call = peer.call()
    for step in range(5):
        peer.do(call.respond, InputRequired({f"q{step}": NAME}, step))
        (asked,) = peer.messages
        peer.say(result(asked["id"], ACCEPTED))
        call = peer.entered()
        assert (list(call.handler_input.input_responses), call.handler_input.state) == (
            [f"q{step}"],
            step,
        )
    peer.do(call.respond, {})
    assert peer.messages == [result(1)]


def test_without_questions_it_goes_on_at_once(peer: Peer) -> None:
    call = peer.call()
    peer.do(call.respond, InputRequired(state=[1]))
    call = peer.entered()
    assert (call.handler_input.input_responses, call.handler_input.state) == ({}, [1])
    peer.do(call.respond, {})
    assert peer.messages == [result(1)]


def test_an_error_is_an_answer_that_raises(peer: Peer) -> None:
    call = peer.call()
    peer.do(call.respond, InputRequired({"name": NAME, "roots": ROOTS}))
    name, roots = peer.messages
    peer.say({"jsonrpc": "2.0", "id": name["id"], "error": {"code": -1, "message": "no!"}})
    peer.say(result(roots["id"]))
    answers = peer.entered().handler_input.input_responses
    assert set(answers) == {"name", "roots"}
    assert (len(answers), answers["roots"]) == (2, {})
    with pytest.raises(JsonRpcError, match="no!"):
        answers["name"]


def test_answers_that_come_twice_count_once(peer: Peer) -> None:
    call = peer.call()
    peer.do(call.respond, InputRequired({"name": NAME}))
    (asked,) = peer.messages
    for _ in range(2):
        peer.say(result(asked["id"], ACCEPTED))
    peer.entered()
    assert peer.harness.events == []


def test_a_client_that_cannot_be_asked_is_told(kind: str) -> None:
    peer = Peer(kind, {"roots": {}})
    call = peer.call()
    peer.do(call.respond, InputRequired({"name": NAME, "roots": ROOTS}))
    (answer,) = peer.messages
    assert answer["error"]["code"] == -32600
    assert answer["error"]["data"]["reason"] == "missing_capability"
    assert answer["error"]["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}
    assert not call.is_running


@pytest.mark.parametrize(
    ("method", "required"),
    [
        ("tools/list", InputRequired({"name": NAME})),
        ("tools/call", InputRequired({"name": InputRequest("ping")})),
        ("tools/call", InputRequired({"name": InputRequest(NAME.method, {"a": object()})})),
        ("tools/call", InputRequired({"name": NAME}, object())),
    ],
)
def test_what_cannot_be_asked_changes_nothing(
    peer: Peer, method: str, required: InputRequired
) -> None:
    call = peer.call(method)
    with pytest.raises(LocalProtocolError):
        call.respond(required, now=0)
    assert call.is_running
    peer.do(call.respond, {})
    assert peer.messages == [result(1)]


def test_the_rounds_are_limited(kind: str) -> None:
    peer = Peer(kind, ALL, limits=Limits(max_rounds=2))
    call = peer.call()
    for _ in range(2):
        peer.do(call.respond, InputRequired())
        call = peer.entered()
    with pytest.raises(LocalProtocolError, match="all 2 rounds"):
        call.respond(InputRequired(), now=0)
    assert call.is_running


def test_after_the_end_nothing_is_asked(peer: Peer) -> None:
    call = peer.call()
    peer.do(call.respond, {})
    assert peer.messages == [result(1)]
    assert peer.do(call.respond, InputRequired({"name": NAME})) is False


# Accidents, where the questions wait in memory


@pytest.mark.parametrize("kind", ["no store", "stdio"])
def test_answers_that_never_come(kind: str) -> None:
    peer = Peer(kind, ALL, limits=Limits(input_timeout=60))
    call = peer.call()
    peer.do(call.respond, InputRequired({"name": NAME, "roots": ROOTS}))
    name, roots = peer.messages
    peer.say(result(roots["id"]))
    (peer.pipe or peer.harness).wait(60)
    withdrawn, answer = peer.messages
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (
        "notifications/cancelled",
        name["id"],
    )
    assert answer["error"]["data"]["reason"] == "no_input"
    peer.say(result(name["id"], ACCEPTED))
    assert peer.harness.events == []
    assert not call.is_running


@pytest.mark.parametrize("kind", ["no store", "stdio"])
def test_a_call_is_cancelled_while_it_waits(kind: str) -> None:
    peer = Peer(kind, ALL)
    call = peer.call()
    peer.do(call.respond, InputRequired({"name": NAME}))
    (asked,) = peer.messages
    peer.say(notification("notifications/cancelled", requestId=1))
    assert isinstance(peer.harness.events.pop(), CallCancelled)
    peer.say(result(asked["id"], ACCEPTED))
    assert peer.harness.events == []
    assert peer.harness.server.is_busy is False


def test_a_client_that_has_left_cannot_be_asked() -> None:
    peer = Peer("no store", ALL)
    call = peer.call()
    assert peer.talk is not None
    peer.talk.lose_connection()
    assert peer.do(call.respond, InputRequired({"name": NAME})) is False
    (event,) = peer.harness.events
    assert isinstance(event, ResponseUndelivered)
    assert not call.is_running


def test_calls_of_a_batch_ask_together() -> None:
    harness = ServerHarness()
    session = harness.open_session("2025-03-26", ALL)
    talk = harness.post([request(1), request(2)], session, "2025-03-26")
    calls = [event.call for event in harness.events if isinstance(event, CallReceived)]
    harness.events.clear()
    for call in calls:
        harness.run_action(call.respond, InputRequired({"name": NAME}))
    assert methods(talk) == ["elicitation/create"] * 2
    answers = [result(message["id"], ACCEPTED) for message in talk.messages]
    harness.post(answers, session, "2025-03-26")
    for _ in range(2):
        harness.run_action(harness.last_call().respond, {})
    assert sorted(message["id"] for message in talk.messages[2:]) == [1, 2]
    assert talk.ended
