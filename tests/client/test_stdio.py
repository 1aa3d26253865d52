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
from sansmcp.effects import StartProcess
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

from .bench import LATEST, error, initialized, notification, only_failure, request, response
from .process_bench import COMMAND, ProcessBench

requirement = pytest.mark.requirement
ABLE: dict[str, Any] = {"elicitation": {}, "roots": {}}


@pytest.fixture
def bench() -> ProcessBench:
    return ProcessBench(capabilities=ABLE).connect()


# The handshake


@requirement("STDIO-C-002", "STDIO-B-001", "LIFECYCLE-C-001", "LIFECYCLE-C-002")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LATEST])
def test_the_handshake(version: str) -> None:
    bench = ProcessBench(name="me", version="7", capabilities=ABLE)
    bench.do(bench.client.start)
    assert bench.did == [StartProcess(COMMAND)]
    params: dict[str, Any] = {
        "protocolVersion": LATEST,
        "capabilities": ABLE,
        "clientInfo": {"name": "me", "version": "7"},
    }
    assert bench.written == [request(0, "initialize", **params)]
    bench.say(initialized(0, version))
    assert bench.written == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert bench.events == [
        Connected(
            transport="stdio",
            version=version,
            server_info={"name": "server", "version": "1"},
            capabilities={"tools": {}},
        )
    ]
    assert bench.client.next_deadline() is None


@requirement("LIFECYCLE-C-003")
def test_calls_wait_for_the_handshake() -> None:
    bench = ProcessBench().start()
    bench.do(bench.client.call, "tools/list")
    assert bench.written == []
    bench.say(initialized(0))
    assert [message["method"] for message in bench.written] == [
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
    bench = ProcessBench().start()
    handle = bench.do(bench.client.call, "tools/list")
    if answer is None:
        bench.wait(30)
    else:
        bench.say(answer)
    assert bench.done == ["StartProcess", "CloseStdin"]
    failure = only_failure(bench, handle)
    bench.exit()
    reason = bench.closed()
    assert isinstance(reason, kind)
    assert failure.__cause__ is reason


def test_what_is_said_before_the_handshake_is_done_is_heard() -> None:
    bench = ProcessBench().start()
    bench.say(request(0, "ping"), notification("notifications/message"), b"hello", initialized(0))
    assert bench.written[0] == response(0)
    kinds = [type(event) for event in bench.events]
    assert kinds == [ServerNotified, InvalidLine, Connected]


# Calls


@requirement("JSONRPC-B-007")
def test_answers_are_matched_by_id_in_any_order(bench: ProcessBench) -> None:
    first, id1 = bench.make(params={"name": "x"})
    second, id2 = bench.make("tools/list")
    bench.say(response(id2, {"for": 2}), error(id1, -5, "nope"), response(id1, {"late": 1}))
    completed, failed = bench.events
    assert completed == CallCompleted(second, {"for": 2})
    assert isinstance(failed, CallFailed)
    assert (failed.call, str(failed.error)) == (first, "nope (code -5)")
    assert bench.client.next_deadline() is None


@requirement("STDIO-B-002", "STDIO-C-003")
def test_line_ends_within_strings_do_not_end_lines(bench: ProcessBench) -> None:
    text = "a\nb\rc\r\nd\u2028\u2029\x85\0e"
    handle = bench.do(bench.client.call, "tools/call", {"text": text})
    assert bench.input.count(b"\n") == 1
    (message,) = bench.written
    assert message["params"]["text"] == text
    bench.feed(StdoutData(b'{"jsonrpc":"2.0","id":1,"result":"\xe2\x80\xa8\\n"}\n'))
    assert bench.events == [CallCompleted(handle, "\u2028\n")]


@requirement("STDIO-B-003", "JSONRPC-B-038")
def test_a_line_may_be_a_batch(bench: ProcessBench) -> None:
    first, id1 = bench.make()
    second, id2 = bench.make()
    third, id3 = bench.make()
    bad = {"jsonrpc": "2.0", "id": id2, "result": 1, "error": 1}
    bench.say([notification("a"), {"bad": 1}, response(id3), bad, response(id1)], [])
    kinds = [type(event) for event in bench.events]
    assert kinds == [ServerNotified, ProtocolViolation, CallCompleted, CallFailed, CallCompleted]
    ends = [event.call for event in bench.events if isinstance(event, CallCompleted | CallFailed)]
    assert ends == [third, second, first]


@requirement("PROGRESS-B-001", "LIFECYCLE-B-008", "LIFECYCLE-B-009", "CANCEL-B-001")
def test_progress_moves_the_deadline_of_its_own_call(bench: ProcessBench) -> None:
    first, id1 = bench.make(timeout=5)
    second, _ = bench.make(timeout=5)
    bench.wait(4)
    bench.progress(id1, 0.5)
    assert bench.take_events() == [ProgressReceived(call=first, progress=0.5)]
    bench.wait(1)
    assert isinstance(only_failure(bench, second), RequestTimeout)
    bench.wait(4)
    assert isinstance(only_failure(bench, first), RequestTimeout)
    assert [message["method"] for message in bench.written] == ["notifications/cancelled"] * 2


@requirement("CANCEL-B-001", "CANCEL-B-005", "CANCEL-B-006")
def test_cancelling_writes_a_notification_and_ignores_the_answer(bench: ProcessBench) -> None:
    handle, id = bench.make()
    bench.do(bench.client.cancel, handle, "bored")
    assert bench.written == [notification("notifications/cancelled", requestId=id, reason="bored")]
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    bench.say(response(id))
    assert bench.events == []


@pytest.mark.parametrize("id", ["1", 99, None])
def test_an_answer_to_nobody_is_reported(bench: ProcessBench, id: Any) -> None:
    bench.make()
    bench.say(error(id))
    assert [type(event) for event in bench.events] == [ProtocolViolation]


def test_notifications_go_both_ways(bench: ProcessBench) -> None:
    bench.do(bench.client.notify, "notifications/roots/list_changed", {"a": 1})
    assert bench.written == [notification("notifications/roots/list_changed", a=1)]
    bench.make()
    bench.say(notification("notifications/message", data="x"))
    message = Notification("notifications/message", {"data": "x"})
    assert bench.events == [ServerNotified(None, message)]  # nobody knows which call it is about


# What the server asks


@requirement("LIFECYCLE-B-010", "JSONRPC-B-007")
def test_a_question_stops_the_clocks_of_all_calls(bench: ProcessBench) -> None:
    first, id1 = bench.make(timeout=10, total_timeout=15)
    second, _ = bench.make(timeout=20)
    bench.wait(9)
    bench.ask("q", message="?")
    assert bench.events == [
        ServerRequestReceived(None, Request("q", "elicitation/create", {"message": "?"}))
    ]
    bench.progress(id1)
    bench.wait(10_000)
    assert bench.client.next_deadline() is None
    assert bench.do(bench.client.respond, "q", {"action": "accept"})
    assert bench.written == [response("q", {"action": "accept"})]
    bench.take_events()
    bench.wait(5.9)
    assert bench.events == []
    bench.wait(0.1)
    assert "15 s in all" in str(only_failure(bench, first))
    bench.wait(14)
    assert isinstance(only_failure(bench, second), RequestTimeout)


@requirement("CANCEL-B-003")
def test_a_withdrawn_question_starts_the_clocks_again(bench: ProcessBench) -> None:
    handle, _ = bench.make(timeout=10)
    bench.ask("q")
    bench.say(notification("notifications/cancelled", requestId="q", reason="late"))
    assert bench.events[-1] == ServerRequestCancelled("q", "late")
    bench.wait(10)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


def test_a_call_made_after_the_question_has_its_own_time(bench: ProcessBench) -> None:
    bench.make(timeout=10)
    bench.ask("q")
    later, _ = bench.make(timeout=10)
    bench.wait(10)
    assert isinstance(only_failure(bench, later), RequestTimeout)
    assert bench.do(bench.client.respond, "q", {})


def test_a_question_is_withdrawn_with_the_last_call_it_can_belong_to(bench: ProcessBench) -> None:
    _, id1 = bench.make()
    _, id2 = bench.make()
    bench.ask("q")
    bench.take_events()
    bench.say(response(id1))
    assert [type(event) for event in bench.take_events()] == [CallCompleted]
    bench.say(response(id2))
    withdrawn, completed = bench.events
    assert withdrawn == ServerRequestCancelled("q", "the call it belongs to has ended")
    assert isinstance(completed, CallCompleted)


def test_a_question_may_come_when_no_call_is_running(bench: ProcessBench) -> None:
    """Only a standalone stream tells that a question belongs to no call."""
    bench.ask(0, "roots/list")
    assert bench.events == [ServerRequestReceived(None, Request(0, "roots/list", {}))]
    handle, id = bench.make()
    assert id == 1  # the server's ids are numbers of its own
    bench.say(response(id))
    assert bench.events[-1] == CallCompleted(handle, {})
    assert bench.do(bench.client.respond, 0, {"roots": []})
    assert bench.written == [response(0, {"roots": []})]


@requirement("LIFECYCLE-B-011", "JSONRPC-B-025")
def test_what_needs_no_application_is_answered_at_once(bench: ProcessBench) -> None:
    bench.say(request(7, "ping"), request(8, "sampling/createMessage"))
    pong, refused = bench.written
    assert pong == response(7)
    assert (refused["id"], refused["error"]["code"]) == (8, -32601)
    assert bench.events == []


# Holding it wrong


@pytest.mark.parametrize("target", ["", [], ()])
def test_a_target_has_words(target: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"URL|word"):
        Client(target, jitter=float)
