"""What the server asks: answered once or withdrawn, and the clock of the call stands meanwhile."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import JsonRpcError, LocalProtocolError, RequestTimeout
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    MessageUndelivered,
    ServerRequestCancelled,
    ServerRequestReceived,
)
from sansmcp.messages import Request, Response

from .harness import SESSION, Asked, ClientHarness, notification, only_failure, request, response

requirement = pytest.mark.requirement


def asked_by_server(
    harness: ClientHarness, id: Any = "q", method: str = "elicitation/create", timeout: float = 10
) -> tuple[int, Asked]:
    handle, asked = harness.call(timeout=timeout)
    asked.open_stream()
    asked.event(request(id, method, message="?"))
    return handle, asked


@pytest.fixture
def able() -> ClientHarness:
    return ClientHarness(capabilities={"elicitation": {}}).connect()


@requirement("JSONRPC-B-007", "LIFECYCLE-B-010")
def test_a_question_is_answered_and_stops_the_clock(able: ClientHarness) -> None:
    handle, asked = asked_by_server(able)
    assert able.take_events() == [
        ServerRequestReceived(handle, Request("q", "elicitation/create", {"message": "?"}))
    ]
    able.wait(10_000)
    assert able.events == []
    assert able.run_command(able.client.respond, "q", {"action": "accept"}) is True
    answer = able.take()
    assert answer.json == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}
    assert answer.header("mcp-session-id") == SESSION
    answer.accept()
    assert able.run_command(able.client.respond, "q", {}) is False
    able.wait(9)
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    able.wait(9)
    able.take_events()
    able.wait(2)
    assert isinstance(only_failure(able, handle), RequestTimeout)


def test_a_client_declares_the_requests_that_its_application_handles() -> None:
    harness = ClientHarness(capabilities={"sampling": {"tools": {}}})
    harness.client.handle_requests(["elicitation/create", "sampling/createMessage"])
    harness.run_command(harness.client.start)
    (initialize,) = harness.requests
    declared = initialize.json["params"]["capabilities"]
    assert declared == {"elicitation": {}, "sampling": {"tools": {}}}
    harness.initialize()
    handle, asked = asked_by_server(harness)
    (event,) = harness.take_events()
    assert event == ServerRequestReceived(
        handle, Request("q", "elicitation/create", {"message": "?"})
    )
    asked.event(request("r", "roots/list"))
    assert harness.take().json["error"]["code"] == -32601


def test_while_one_of_two_questions_is_open_the_clock_stands(able: ClientHarness) -> None:
    handle, asked = asked_by_server(able, 1)
    asked.event(request(2, "elicitation/create"))
    able.run_command(able.client.respond, 1, {})
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    able.wait(1000)
    assert not any(isinstance(event, CallFailed) for event in able.take_events())
    able.run_command(able.client.respond, 2, {})
    able.wait(10)
    assert isinstance(only_failure(able, handle), RequestTimeout)


def test_questions_can_be_answered_by_errors(able: ClientHarness) -> None:
    _, asked = asked_by_server(able, 1)
    able.run_command(able.client.respond_exception, 1, JsonRpcError(-5, "not now", {"x": 1}))
    assert able.take().json["error"] == {"code": -5, "message": "not now", "data": {"x": 1}}
    asked.event(request(2, "elicitation/create"))
    able.run_command(able.client.respond_exception, 2, ValueError("secret"))
    assert able.take().json["error"] == {"code": -32603, "message": "Internal error"}
    asked.event(request(3, "custom/method"))
    able.run_command(able.client.refuse_unsupported, 3)
    assert able.take().json["error"]["code"] == -32601


@pytest.mark.parametrize("answer", [math.nan, {"a": math.nan}, True, None, []])
def test_an_answer_that_is_no_json_object_changes_nothing(able: ClientHarness, answer: Any) -> None:
    asked_by_server(able)
    with pytest.raises(LocalProtocolError):
        able.client.respond("q", answer, now=0)
    assert able.run_command(able.client.respond, "q", {}) is True


@requirement("LIFECYCLE-B-011", "LIFECYCLE-B-015")
@pytest.mark.parametrize("id", [0, "p"])
def test_pings_are_answered_at_once(harness: ClientHarness, id: Any) -> None:
    asked_by_server(harness, id, "ping")
    assert harness.take().json == {"jsonrpc": "2.0", "id": id, "result": {}}
    assert harness.events == []


@requirement("JSONRPC-B-025", "LIFECYCLE-C-008")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_what_was_not_declared_is_refused(harness: ClientHarness, method: str) -> None:
    asked_by_server(harness, 5, method)
    answer = harness.take().json
    assert (answer["id"], answer["error"]["code"]) == (5, -32601)
    assert harness.events == []


# Withdrawn and repeated


@requirement("CANCEL-B-003", "CANCEL-B-004", "CANCEL-B-008")
def test_the_server_withdraws_a_question(able: ClientHarness) -> None:
    handle, asked = asked_by_server(able)
    able.take_events()
    asked.event(notification("notifications/cancelled", requestId="q", reason="late"))
    assert able.take_events() == [ServerRequestCancelled("q", "late")]
    assert able.run_command(able.client.respond, "q", {}) is False
    for id in ("q", 1, None, [1]):
        asked.event(notification("notifications/cancelled", requestId=id))
    asked.event({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    assert able.events == []
    assert able.requests == []
    asked.event(request("r", "elicitation/create"))
    asked.event(notification("notifications/cancelled", requestId="r"))
    assert able.take_events()[-1] == ServerRequestCancelled("r", "cancelled by the server")
    able.wait(10)
    assert isinstance(only_failure(able, handle), RequestTimeout)


def test_a_call_that_ends_withdraws_its_questions(able: ClientHarness) -> None:
    handle, asked = asked_by_server(able)
    asked.event(response(asked.id))
    assert able.take_events()[1:] == [
        ServerRequestCancelled("q", "the call it belongs to has ended"),
        CallCompleted(handle, {}),
    ]
    assert able.run_command(able.client.respond, "q", {}) is False


def test_the_same_question_twice_is_one(able: ClientHarness) -> None:
    _, asked = asked_by_server(able)
    asked.event(request("q", "elicitation/create"))
    assert len(able.events) == 1


# Answers that do not arrive


def test_an_answer_is_sent_again_when_the_server_wants_it(able: ClientHarness) -> None:
    asked_by_server(able, timeout=1000)
    able.run_command(able.client.respond, "q", {})
    able.take().refuse(429, retry_after="20")
    able.wait(20.4)
    assert able.requests == []
    able.wait(0.1)
    able.take().accept()


@pytest.mark.parametrize(("failures", "arrives"), [(2, True), (5, False)])
def test_an_answer_is_sent_again_when_it_may_help(
    able: ClientHarness, failures: int, arrives: bool
) -> None:
    asked_by_server(able, timeout=1000)
    able.take_events()
    able.run_command(able.client.respond, "q", {})
    for number in range(failures):
        post = able.take()
        if number % 2:
            post.refuse(503)
        else:
            post.cut()
        able.wait(8)
    if arrives:
        able.take().accept()
    assert able.requests == []
    assert [type(event) for event in able.events if not isinstance(event, CallFailed)] == [
        MessageUndelivered
    ] * (not arrives)


def test_an_answer_that_is_refused_is_not_sent_again(able: ClientHarness) -> None:
    asked_by_server(able)
    able.take_events()
    able.run_command(able.client.respond, "q", {})
    able.take().refuse(400, b"no")
    (event,) = able.events
    assert isinstance(event, MessageUndelivered)
    assert event.message == Response("q", {})
    able.wait(5)
    assert able.requests == []
