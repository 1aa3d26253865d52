"""Conversations on stdio: what the client says in lines, and what it hears in lines."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    CallError,
    Client,
    InvalidResponse,
    JsonRpcError,
    LocalProtocolError,
    NegotiationFailed,
    RequestCancelled,
    RequestTimeout,
)
from sansmcp.effects import StartProcess, WriteStdin
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Connected,
    InvalidLine,
    ProgressReceived,
    ProtocolViolation,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
)
from sansmcp.messages import Notification, Request
from sansmcp.process import StdoutData

from .harness import LATEST, error, initialized, notification, only_failure, request, response
from .process_harness import COMMAND, ProcessHarness

requirement = pytest.mark.requirement
ABLE: dict[str, Any] = {"elicitation": {}, "roots": {}}


@pytest.fixture
def harness() -> ProcessHarness:
    return ProcessHarness(capabilities=ABLE).connect()


# Lines


def test_calls_that_are_made_at_once_are_one_write(harness: ProcessHarness) -> None:
    """Until a write is large, so that no large message is copied again and again."""
    client = harness.client
    for text in ("a", "b", "c" * 100_000, "d", "e"):
        client.call("tools/call", {"name": text}, now=harness.now)
    writes: list[bytes] = []
    while isinstance(effect := client.next_effect(), WriteStdin):
        writes.append(effect.data)
    assert [data.count(b"\n") for data in writes] == [3, 2]
    assert b"".join(writes).count(b'"tools/call"') == 5


# The handshake


@requirement("STDIO-C-002", "STDIO-B-001", "LIFECYCLE-C-001", "LIFECYCLE-C-002")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LATEST])
def test_the_handshake(version: str) -> None:
    harness = ProcessHarness(name="me", version="7", capabilities=ABLE)
    harness.run_command(harness.client.start)
    assert harness.did == [StartProcess(COMMAND)]
    params: dict[str, Any] = {
        "protocolVersion": LATEST,
        "capabilities": ABLE,
        "clientInfo": {"name": "me", "version": "7"},
    }
    assert harness.written == [request(0, "initialize", **params)]
    harness.say(initialized(0, version))
    assert harness.written == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert harness.events == [
        Connected(
            transport="stdio",
            version=version,
            server_info={"name": "server", "version": "1"},
            capabilities={"tools": {}},
        )
    ]
    assert harness.client.next_deadline() is None


@requirement("LIFECYCLE-C-003")
def test_calls_wait_for_the_handshake() -> None:
    harness = ProcessHarness().start()
    harness.run_command(harness.client.call, "tools/list")
    assert harness.written == []
    harness.say(initialized(0))
    assert [message["method"] for message in harness.written] == [
        "notifications/initialized",
        "tools/list",
    ]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (initialized(0, "1999-01-01"), NegotiationFailed),
        (error(0, -32602, "too new"), JsonRpcError),
        (error(None, -32700, "what?"), JsonRpcError),
        (response(0, {}), InvalidResponse),
        ({"jsonrpc": "2.0", "id": 0}, InvalidResponse),
        ([{"jsonrpc": "2.0", "id": 0}], InvalidResponse),
        (None, RequestTimeout),
    ],
)
def test_a_handshake_that_fails_ends_the_process(answer: Any, kind: type[CallError]) -> None:
    harness = ProcessHarness().start()
    handle = harness.run_command(harness.client.call, "tools/list")
    if answer is None:
        harness.wait(30)
    else:
        harness.say(answer)
    assert harness.done == ["StartProcess", "CloseStdin"]
    failure = only_failure(harness, handle)
    harness.exit()
    reason = harness.closed()
    assert isinstance(reason, kind)
    assert failure.__cause__ is reason


def test_what_is_said_before_the_handshake_is_done_is_heard() -> None:
    harness = ProcessHarness().start()
    harness.say(request(0, "ping"), notification("notifications/message"), b"hello", initialized(0))
    assert harness.written[0] == response(0)
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerNotified, InvalidLine, Connected]


# Calls


@requirement("JSONRPC-B-007")
def test_answers_are_matched_by_id_in_any_order(harness: ProcessHarness) -> None:
    first, id1 = harness.make(params={"name": "x"})
    second, id2 = harness.make("tools/list")
    harness.say(response(id2, {"for": 2}), error(id1, -5, "nope"), response(id1, {"late": 1}))
    completed, failed = harness.events
    assert completed == CallCompleted(second, {"for": 2})
    assert isinstance(failed, CallFailed)
    assert (failed.call, str(failed.error)) == (first, "nope (code -5)")
    assert harness.client.next_deadline() is None


@requirement("STDIO-B-002", "STDIO-C-003")
def test_line_ends_within_strings_do_not_end_lines(harness: ProcessHarness) -> None:
    text = "a\nb\rc\r\nd\u2028\u2029\x85\0e"
    handle = harness.run_command(harness.client.call, "tools/call", {"text": text})
    assert harness.input.count(b"\n") == 1
    (message,) = harness.written
    assert message["params"]["text"] == text
    harness.feed(StdoutData(b'{"jsonrpc":"2.0","id":1,"result":"\xe2\x80\xa8\\n"}\n'))
    assert harness.events == [CallCompleted(handle, "\u2028\n")]


@requirement("STDIO-B-003", "JSONRPC-B-038")
def test_a_line_may_be_a_batch(harness: ProcessHarness) -> None:
    first, id1 = harness.make()
    second, id2 = harness.make()
    third, id3 = harness.make()
    bad = {"jsonrpc": "2.0", "id": id2, "result": 1, "error": 1}
    harness.say([notification("a"), {"bad": 1}, response(id3), bad, response(id1)], [])
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerNotified, ProtocolViolation, CallCompleted, CallFailed, CallCompleted]
    ends = [event.call for event in harness.events if isinstance(event, CallCompleted | CallFailed)]
    assert ends == [third, second, first]


@requirement("PROGRESS-B-001", "LIFECYCLE-B-008", "LIFECYCLE-B-009", "CANCEL-B-001")
def test_progress_moves_the_deadline_of_its_own_call(harness: ProcessHarness) -> None:
    first, id1 = harness.make(timeout=5)
    second, _ = harness.make(timeout=5)
    harness.wait(4)
    harness.progress(id1, 0.5)
    assert harness.take_events() == [ProgressReceived(call=first, progress=0.5)]
    harness.wait(1)
    assert isinstance(only_failure(harness, second), RequestTimeout)
    harness.wait(4)
    assert isinstance(only_failure(harness, first), RequestTimeout)
    assert [message["method"] for message in harness.written] == ["notifications/cancelled"] * 2


@requirement("CANCEL-B-001", "CANCEL-B-005", "CANCEL-B-006")
def test_cancelling_writes_a_notification_and_ignores_the_answer(harness: ProcessHarness) -> None:
    handle, id = harness.make()
    harness.run_command(harness.client.cancel, handle, "bored")
    assert harness.written == [
        notification("notifications/cancelled", requestId=id, reason="bored")
    ]
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    harness.say(response(id))
    assert harness.events == []


@pytest.mark.parametrize("id", ["1", 99, None])
def test_an_answer_to_nobody_is_reported(harness: ProcessHarness, id: Any) -> None:
    harness.make()
    harness.say(error(id))
    assert [type(event) for event in harness.events] == [ProtocolViolation]


def test_notifications_go_both_ways(harness: ProcessHarness) -> None:
    harness.run_command(harness.client.notify, "notifications/roots/list_changed", {"a": 1})
    assert harness.written == [notification("notifications/roots/list_changed", a=1)]
    harness.make()
    harness.say(notification("notifications/message", data="x"))
    message = Notification("notifications/message", {"data": "x"})
    assert harness.events == [ServerNotified(None, message)]  # nobody knows which call it is about


# What the server asks


@requirement("LIFECYCLE-B-010", "JSONRPC-B-007")
def test_a_question_stops_the_clocks_of_all_calls(harness: ProcessHarness) -> None:
    first, id1 = harness.make(timeout=10, total_timeout=15)
    second, _ = harness.make(timeout=20)
    harness.wait(9)
    harness.ask("q", message="?")
    assert harness.events == [
        ServerRequestReceived(None, Request("q", "elicitation/create", {"message": "?"}))
    ]
    harness.progress(id1)
    harness.wait(10_000)
    assert harness.client.next_deadline() is None
    assert harness.run_command(harness.client.respond, "q", {"action": "accept"})
    assert harness.written == [response("q", {"action": "accept"})]
    harness.take_events()
    harness.wait(5.9)
    assert harness.events == []
    harness.wait(0.1)
    assert "15 s in all" in str(only_failure(harness, first))
    harness.wait(14)
    assert isinstance(only_failure(harness, second), RequestTimeout)


@requirement("CANCEL-B-003")
def test_a_withdrawn_question_starts_the_clocks_again(harness: ProcessHarness) -> None:
    handle, _ = harness.make(timeout=10)
    harness.ask("q")
    harness.say(notification("notifications/cancelled", requestId="q", reason="late"))
    assert harness.events[-1] == ServerRequestCancelled("q", "late")
    harness.wait(10)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


def test_a_call_made_after_the_question_has_its_own_time(harness: ProcessHarness) -> None:
    harness.make(timeout=10)
    harness.ask("q")
    later, _ = harness.make(timeout=10)
    harness.wait(10)
    assert isinstance(only_failure(harness, later), RequestTimeout)
    assert harness.run_command(harness.client.respond, "q", {})


def test_a_question_is_withdrawn_with_the_last_call_it_can_belong_to(
    harness: ProcessHarness,
) -> None:
    _, id1 = harness.make()
    _, id2 = harness.make()
    harness.ask("q")
    harness.take_events()
    harness.say(response(id1))
    assert [type(event) for event in harness.take_events()] == [CallCompleted]
    harness.say(response(id2))
    withdrawn, completed = harness.events
    assert withdrawn == ServerRequestCancelled("q", "the call it belongs to has ended")
    assert isinstance(completed, CallCompleted)


def test_a_question_may_come_when_no_call_is_running(harness: ProcessHarness) -> None:
    """Only a standalone stream tells that a question belongs to no call."""
    harness.ask(0, "roots/list")
    assert harness.events == [ServerRequestReceived(None, Request(0, "roots/list", {}))]
    handle, id = harness.make()
    assert id == 1  # the server's ids are numbers of its own
    harness.say(response(id))
    assert harness.events[-1] == CallCompleted(handle, {})
    assert harness.run_command(harness.client.respond, 0, {"roots": []})
    assert harness.written == [response(0, {"roots": []})]


@requirement("LIFECYCLE-B-011", "JSONRPC-B-025")
def test_what_needs_no_application_is_answered_at_once(harness: ProcessHarness) -> None:
    harness.say(request(7, "ping"), request(8, "sampling/createMessage"))
    pong, refused = harness.written
    assert pong == response(7)
    assert (refused["id"], refused["error"]["code"]) == (8, -32601)
    assert harness.events == []


# Holding it wrong


@pytest.mark.parametrize("target", ["", [], ()])
def test_a_target_has_words(target: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"URL|word"):
        Client(target, jitter=float)
