"""Calls: each ends exactly once, by whatever comes first."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sansmcp import (
    BodyData,
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Closed,
    NotDelivered,
    ProgressReceived,
    Reconnecting,
    ServerAsked,
    ServerNotified,
    ServerWithdrew,
    Violation,
)
from sansmcp.messages import Notification, Request, Response
from sansmcp.states import ClientState

from .bench import SESSION, Asked, Bench, error, notification, request, response

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> Bench:
    return Bench().connect()


def only_failure(bench: Bench, handle: int) -> CallError:
    (event,) = [e for e in bench.take_events() if isinstance(e, CallFailed)]
    assert event.call == handle
    return event.error


# Answers


@requirement("SHTTP-C-006", "JSONRPC-B-011", "JSONRPC-B-055")
def test_a_json_answer(bench: Bench) -> None:
    handle, asked = bench.call(params={"name": "x"})
    assert asked.json["params"] == {"name": "x", "_meta": {"progressToken": asked.id}}
    asked.result({"content": [], "unknown": {"a": None}})
    assert bench.events == [CallCompleted(handle, {"content": [], "unknown": {"a": None}})]
    assert bench.client.next_deadline() is None


@requirement("SHTTP-C-006", "POLL-C-001")
def test_a_stream_answer(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(id="1")
    asked.event(b": x")
    asked.event(notification("notifications/message", level="info"))
    asked.event(response(asked.id, {"a": 1}))
    assert bench.events == [
        Violation(bench.events[0].error) if isinstance(bench.events[0], Violation) else None,
        ServerNotified(handle, Notification("notifications/message", {"level": "info"})),
        CallCompleted(handle, {"a": 1}),
    ]
    assert not asked.aborted
    asked.end()
    assert bench.client.next_deadline() is None


@requirement("JSONRPC-B-005", "JSONRPC-B-006", "PROGRESS-B-002")
def test_ids_and_tokens_never_repeat(bench: Bench) -> None:
    ids: list[tuple[Any, Any]] = []
    for _ in range(20):
        _, asked = bench.call()
        ids.append((asked.id, asked.json["params"]["_meta"]["progressToken"]))
        asked.result()
    assert len(set(ids)) == 20
    assert all(id == token for id, token in ids)


@requirement("JSONRPC-B-007")
def test_answers_are_matched_by_id_in_any_order(bench: Bench) -> None:
    first, asked1 = bench.call()
    second, asked2 = bench.call()
    asked1.open_stream()
    asked2.open_stream()
    asked1.event(response(asked2.id, {"for": 2}))  # on the wrong stream: still an answer
    asked1.event(response(asked1.id, {"for": 1}))
    assert bench.events == [CallCompleted(second, {"for": 2}), CallCompleted(first, {"for": 1})]


@pytest.mark.parametrize("id", ["1", 99, "server-error"])
def test_an_answer_to_nobody_is_reported(bench: Bench, id: Any) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(response(id))
    (event,) = bench.take_events()
    assert isinstance(event, Violation)
    asked.event(response(asked.id))
    assert bench.events == [CallCompleted(handle, {})]


@requirement("JSONRPC-B-014", "JSONRPC-B-028")
@pytest.mark.parametrize("id", ["own", None])
def test_errors_of_the_server(bench: Bench, id: Any) -> None:
    handle, asked = bench.call()
    message = error(asked.id if id == "own" else None, -32001, "nope")
    message["error"]["data"] = {"x": [1]}
    asked.answer(message)
    failure = only_failure(bench, handle)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.message, failure.data) == (-32001, "nope", {"x": [1]})
    assert (failure.method, failure.request_id, failure.http_status) == (
        "tools/call",
        asked.id,
        None,
    )


def test_an_error_with_our_id_counts_at_any_status(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.answer(error(asked.id, -32602, "bad arguments"), 400)
    failure = only_failure(bench, handle)
    assert isinstance(failure, JsonRpcError)
    assert failure.http_status == 400


def test_two_errors_without_an_id_end_a_call_once(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.answer([error(None), error(None, -2)])
    failure = only_failure(bench, handle)
    assert isinstance(failure, JsonRpcError)
    assert failure.code == -1
    assert bench.events == []


@requirement("JSONRPC-B-038")
def test_a_batch_of_messages_in_one_event(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event([notification("a"), {"bad": 1}, response(asked.id)])
    kinds = [type(event) for event in bench.events]
    assert kinds == [ServerNotified, Violation, CallCompleted]
    assert bench.events[-1] == CallCompleted(handle, {})


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 413, 429, 500, 503])
def test_refusals_end_the_call_and_are_not_repeated(bench: Bench, status: int) -> None:
    handle, asked = bench.call()
    asked.refuse(status, b"because")
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.body) == (status, b"because")
    assert f"HTTP {status}: because" in str(failure)
    bench.wait(100)
    assert bench.requests == []


def test_a_long_refusal_is_cut(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.head(500)
    for _ in range(100):
        asked.feed(BodyData(b"x" * 10_000))
    asked.cut()
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestRefused)
    assert len(failure.body) == 64 * 1024
    assert len(str(failure)) < 500


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", InvalidResponse),
        (b"{", InvalidResponse),
        (b'"x"', InvalidResponse),
        (b'{"jsonrpc":"2.0","id":1}', InvalidResponse),
        (b'{"jsonrpc":"2.0","method":"a"}', Disconnected),
        (b"[]", Disconnected),
        (b'[{"jsonrpc":"2.0","id":1}]', InvalidResponse),
    ],
)
def test_json_that_is_no_answer(bench: Bench, body: bytes, kind: type[CallError]) -> None:
    handle, asked = bench.call()
    assert asked.id == 1
    asked.answer(body)
    assert isinstance(only_failure(bench, handle), kind)


@pytest.mark.parametrize(
    "data", [b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"result":1,"error":1}']
)
def test_an_event_that_should_have_been_the_answer(bench: Bench, data: bytes) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(data)
    assert isinstance(only_failure(bench, handle), InvalidResponse)
    assert asked.aborted


def test_answers_that_are_too_large() -> None:
    bench = Bench(limits=Limits(max_message_bytes=1000)).connect()
    handle, asked = bench.call()
    asked.head(content_type="application/json")
    asked.feed(BodyData(b" " * 999))
    assert bench.events == []
    asked.feed(BodyData(b"  "))
    failure = only_failure(bench, handle)
    assert isinstance(failure, InvalidResponse)
    assert "1000 bytes" in str(failure)
    assert asked.aborted
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(b"x" * 1001, id="1")
    assert isinstance(only_failure(bench, handle), InvalidResponse)
    bench.wait(100)
    assert bench.requests == []


def test_parts_of_no_exchange_are_ignored(bench: Bench) -> None:
    bench.client.receive(999, BodyData(b"x"), now=0)
    _, asked = bench.call()
    asked.result()
    asked.feed(BodyData(b"x"))
    asked.cut()
    assert len(bench.events) == 1


# Timeouts and progress


@requirement(
    "LIFECYCLE-B-004", "LIFECYCLE-B-005", "LIFECYCLE-B-006", "LIFECYCLE-B-007", "SHTTP-C-008"
)
def test_a_call_times_out_and_is_cancelled(bench: Bench) -> None:
    handle, asked = bench.call(timeout=5)
    bench.wait(4.9)
    assert bench.events == []
    bench.wait(0.1)
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestTimeout)
    assert failure.seconds == 5
    assert "5 s without progress" in str(failure)
    cancelled = bench.take()
    assert cancelled.json["method"] == "notifications/cancelled"
    assert cancelled.json["params"]["requestId"] == asked.id
    assert asked.aborted
    asked.result()
    assert bench.events == []


@requirement("LIFECYCLE-B-008", "LIFECYCLE-B-009")
def test_progress_resets_the_timeout_up_to_the_total(bench: Bench) -> None:
    handle, asked = bench.call(timeout=5, total_timeout=12)
    asked.open_stream()
    for step in (1, 2, 3):
        bench.wait(4)
        if step < 3:
            asked.event(
                notification(
                    "notifications/progress",
                    progressToken=asked.id,
                    progress=step,
                    total=9.5,
                    message="m",
                )
            )
    reports = [event for event in bench.events if isinstance(event, ProgressReceived)]
    assert reports == [
        ProgressReceived(call=handle, progress=step, total=9.5, message="m") for step in (1, 2)
    ]
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestTimeout)
    assert "12 s in all" in str(failure)


def test_progress_need_not_reset_the_timeout(bench: Bench) -> None:
    handle, asked = bench.call(timeout=5, reset_on_progress=False)
    asked.open_stream()
    bench.wait(4)
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    bench.wait(1)
    assert isinstance(only_failure(bench, handle), RequestTimeout)


@pytest.mark.parametrize(
    ("params", "violates"),
    [
        ({"progressToken": 1}, True),
        ({"progressToken": 1, "progress": "x"}, True),
        ({"progressToken": 1, "progress": True}, True),
        ({"progressToken": "1", "progress": 1}, False),
        ({"progressToken": True, "progress": 1}, False),
        ({"progressToken": 99, "progress": 1}, False),
        ({"progress": 1}, False),
    ],
)
def test_odd_progress_is_no_progress(bench: Bench, params: dict[str, Any], violates: bool) -> None:
    _, asked = bench.call()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    assert [type(event) for event in bench.events] == [Violation] * violates


def test_odd_members_of_progress_are_left_out(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(
        notification("notifications/progress", progressToken=1, progress=1, total="x", message=5)
    )
    asked.event({"jsonrpc": "2.0", "method": "notifications/progress"})
    assert bench.events[0] == ProgressReceived(call=handle, progress=1)


def test_the_progress_token_is_ours_whatever_meta_says(bench: Bench) -> None:
    _, asked = bench.call(params={"_meta": {"progressToken": "mine", "x": 1}})
    assert asked.json["params"]["_meta"] == {"progressToken": asked.id, "x": 1}


# Cancelling and closing


@requirement("CANCEL-B-001", "CANCEL-B-005", "CANCEL-B-006")
def test_cancelling(bench: Bench) -> None:
    handle, asked = bench.call()
    assert bench.do(bench.client.cancel, handle, "bored") is True
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestCancelled)
    assert "bored" in str(failure)
    cancelled = bench.take()
    assert cancelled.json["params"] == {"requestId": asked.id, "reason": "bored"}
    cancelled.accept()
    assert asked.aborted
    assert bench.do(bench.client.cancel, handle) is False
    assert bench.do(bench.client.cancel, 99) is False
    assert bench.requests == []
    assert bench.events == []
    other, asked2 = bench.call()
    asked2.open_stream()
    asked2.event(response(asked.id))  # the late answer, on another stream
    assert bench.events == []
    asked2.event(response(asked2.id))
    assert bench.events == [CallCompleted(other, {})]


def test_cancelling_before_the_handshake_is_done() -> None:
    bench = Bench()
    bench.do(bench.client.start)
    bench.take()
    handle = bench.do(bench.client.call, "tools/call")
    assert bench.do(bench.client.cancel, handle)
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    assert bench.requests == []


def test_a_failed_cancellation_is_reported(bench: Bench) -> None:
    handle, _ = bench.call()
    bench.do(bench.client.cancel, handle)
    bench.take().refuse(500, b"broken")
    assert isinstance(bench.events[-1], NotDelivered)
    assert "broken" in bench.events[-1].reason


@requirement("SESSION-C-004", "SESSION-C-002")
@pytest.mark.parametrize("status", [200, 204, 404, 405, 500, None])
def test_closing_ends_the_session_and_all_calls(bench: Bench, status: int | None) -> None:
    handle, asked = bench.call()
    bench.do(bench.client.close)
    bench.do(bench.client.close)
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    assert asked.aborted
    assert bench.client.state.name == "CLOSING"
    farewell = bench.take("DELETE")
    assert farewell.header("mcp-session-id") == SESSION
    assert farewell.header("mcp-protocol-version") == "2025-11-25"
    if status is None:
        farewell.cut()
    else:
        farewell.refuse(status)
    assert bench.events == [Closed(None)]
    assert bench.client.state is ClientState.CLOSED
    assert bench.client.next_deadline() is None
    for command in (bench.client.call, bench.client.notify):
        with pytest.raises(LocalProtocolError, match="closed"):
            command("x", now=0)
    with pytest.raises(LocalProtocolError, match="closed"):
        bench.client.respond(1, {}, now=0)


def test_closing_does_not_wait_for_ever(bench: Bench) -> None:
    bench.do(bench.client.close)
    farewell = bench.take("DELETE")
    bench.wait(5)
    assert bench.events == [Closed(None)]
    assert farewell.aborted


def test_closing_before_anything_has_begun() -> None:
    bench = Bench()
    bench.do(bench.client.close)
    assert bench.events == [Closed(None)]
    bench = Bench()
    bench.do(bench.client.start)
    asked = bench.take()
    bench.do(bench.client.close)
    assert asked.aborted
    assert bench.events == [Closed(None)]
    bench = Bench()
    bench.do(bench.client.start)
    bench.take_initialize()
    bench.take()
    bench.do(bench.client.close)
    assert bench.take("DELETE").header("mcp-session-id") == SESSION


# What the server asks


def asked_by_server(
    bench: Bench, id: Any = "q", method: str = "elicitation/create", timeout: float = 10
) -> tuple[int, Asked]:
    handle, asked = bench.call(timeout=timeout)
    asked.open_stream()
    asked.event(request(id, method, message="?"))
    return handle, asked


@pytest.fixture
def able() -> Bench:
    return Bench(capabilities={"elicitation": {}}).connect()


@requirement("JSONRPC-B-007", "LIFECYCLE-B-010")
def test_a_question_is_answered_and_stops_the_clock(able: Bench) -> None:
    handle, asked = asked_by_server(able)
    assert able.take_events() == [
        ServerAsked(handle, Request("q", "elicitation/create", {"message": "?"}))
    ]
    able.wait(10_000)
    assert able.events == []
    assert able.do(able.client.respond, "q", {"action": "accept"}) is True
    answer = able.take()
    assert answer.json == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}
    assert answer.header("mcp-session-id") == SESSION
    answer.accept()
    assert able.do(able.client.respond, "q", {}) is False
    able.wait(9)
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    able.wait(9)
    able.take_events()
    able.wait(2)
    assert isinstance(only_failure(able, handle), RequestTimeout)


def test_while_one_of_two_questions_is_open_the_clock_stands(able: Bench) -> None:
    handle, asked = asked_by_server(able, 1)
    asked.event(request(2, "elicitation/create"))
    able.do(able.client.respond, 1, {})
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    able.wait(1000)
    assert not any(isinstance(event, CallFailed) for event in able.take_events())
    able.do(able.client.respond, 2, {})
    able.wait(10)
    assert isinstance(only_failure(able, handle), RequestTimeout)


def test_questions_can_be_answered_by_errors(able: Bench) -> None:
    _, asked = asked_by_server(able, 1)
    able.do(able.client.fail_with, 1, JsonRpcError(-5, "not now", {"x": 1}))
    assert able.take().json["error"] == {"code": -5, "message": "not now", "data": {"x": 1}}
    asked.event(request(2, "elicitation/create"))
    able.do(able.client.fail_with, 2, ValueError("secret"))
    assert able.take().json["error"] == {"code": -32603, "message": "Internal error"}
    asked.event(request(3, "custom/method"))
    able.do(able.client.decline, 3)
    assert able.take().json["error"]["code"] == -32601


def test_an_answer_that_is_no_json_changes_nothing(able: Bench) -> None:
    asked_by_server(able)
    with pytest.raises(LocalProtocolError):
        able.client.respond("q", math.nan, now=0)
    assert able.do(able.client.respond, "q", {}) is True


@requirement("LIFECYCLE-B-011", "LIFECYCLE-B-015")
@pytest.mark.parametrize("id", [0, "p"])
def test_pings_are_answered_at_once(bench: Bench, id: Any) -> None:
    asked_by_server(bench, id, "ping")
    assert bench.take().json == {"jsonrpc": "2.0", "id": id, "result": {}}
    assert bench.events == []


@requirement("JSONRPC-B-025", "LIFECYCLE-C-008")
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_what_was_not_declared_is_refused(bench: Bench, method: str) -> None:
    asked_by_server(bench, 5, method)
    answer = bench.take().json
    assert (answer["id"], answer["error"]["code"]) == (5, -32601)
    assert bench.events == []


@requirement("CANCEL-B-003", "CANCEL-B-004", "CANCEL-B-008")
def test_the_server_withdraws_a_question(able: Bench) -> None:
    handle, asked = asked_by_server(able)
    able.take_events()
    asked.event(notification("notifications/cancelled", requestId="q", reason="late"))
    assert able.take_events() == [ServerWithdrew("q", "late")]
    assert able.do(able.client.respond, "q", {}) is False
    for id in ("q", 1, None, [1]):
        asked.event(notification("notifications/cancelled", requestId=id))
    asked.event({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    assert able.events == []
    assert able.requests == []
    asked.event(request("r", "elicitation/create"))
    asked.event(notification("notifications/cancelled", requestId="r"))
    assert able.take_events()[-1] == ServerWithdrew("r", "withdrawn by the server")
    able.wait(10)
    assert isinstance(only_failure(able, handle), RequestTimeout)


def test_a_call_that_ends_withdraws_its_questions(able: Bench) -> None:
    handle, asked = asked_by_server(able)
    asked.event(response(asked.id))
    assert able.take_events()[1:] == [
        ServerWithdrew("q", "the call it belongs to has ended"),
        CallCompleted(handle, {}),
    ]
    assert able.do(able.client.respond, "q", {}) is False


def test_the_same_question_twice_is_one(able: Bench) -> None:
    _, asked = asked_by_server(able)
    asked.event(request("q", "elicitation/create"))
    assert len(able.events) == 1


@pytest.mark.parametrize(("failures", "arrives"), [(2, True), (5, False)])
def test_an_answer_is_sent_again_when_it_may_help(
    able: Bench, failures: int, arrives: bool
) -> None:
    asked_by_server(able, timeout=1000)
    able.take_events()
    able.do(able.client.respond, "q", {})
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
        NotDelivered
    ] * (not arrives)


def test_an_answer_that_is_refused_is_not_sent_again(able: Bench) -> None:
    asked_by_server(able)
    able.take_events()
    able.do(able.client.respond, "q", {})
    able.take().refuse(400, b"no")
    (event,) = able.events
    assert isinstance(event, NotDelivered)
    assert event.message == Response("q", {})
    able.wait(5)
    assert able.requests == []


# Notifications


@requirement("SHTTP-C-001", "JSONRPC-B-017")
def test_notifications_are_sent_once(bench: Bench) -> None:
    bench.do(bench.client.notify, "notifications/roots/list_changed", {"a": 1})
    post = bench.take()
    assert post.json == notification("notifications/roots/list_changed", a=1)
    post.cut("gone")
    (event,) = bench.events
    assert event == NotDelivered(Notification("notifications/roots/list_changed", {"a": 1}), "gone")
    bench.wait(100)
    assert bench.requests == []


# Holding it wrong


@pytest.mark.parametrize(
    "params", [{"a": math.nan}, {"a": object()}, {"_meta": 1}, {"_meta": None}]
)
def test_bad_parameters_change_nothing(bench: Bench, params: Any) -> None:
    with pytest.raises(LocalProtocolError):
        bench.client.call("x", params, now=0)
    assert bench.client.next_deadline() is None
    assert bench.requests == []


def test_initialize_is_no_call(bench: Bench) -> None:
    with pytest.raises(LocalProtocolError, match="start"):
        bench.client.call("initialize", now=0)


def test_calls_are_bounded() -> None:
    bench = Bench(limits=Limits(max_pending_calls=2)).connect()
    bench.call()
    bench.call()
    with pytest.raises(LocalProtocolError, match="2 calls"):
        bench.client.call("x", now=0)


# An application that is slow


def test_an_application_that_takes_no_events_stops_the_reading() -> None:
    bench = Bench(limits=Limits(max_queued_events=3)).connect()
    bench.takes_events = False
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(id="1")
    for number in range(10):
        asked.event(notification(f"n{number}"))
    asked.event(response(asked.id))
    asked.end()
    assert bench.is_paused
    bench.takes_events = True
    bench.settle()
    assert not bench.is_paused
    names = [e.notification.method for e in bench.events if isinstance(e, ServerNotified)]
    assert names == [f"n{number}" for number in range(10)]
    assert bench.events[-1] == CallCompleted(handle, {})
    assert not any(isinstance(event, Reconnecting) for event in bench.events)


def test_a_garbled_stream_is_told_in_its_turn() -> None:
    bench = Bench(limits=Limits(max_queued_events=1, max_message_bytes=200)).connect()
    bench.takes_events = False
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(notification("a"))
    asked.event(notification("b"))
    asked.feed(BodyData(b"data: " + b"x" * 300))
    assert bench.is_paused
    bench.takes_events = True
    bench.settle()
    assert [type(event) for event in bench.events] == [ServerNotified, ServerNotified, CallFailed]
    assert isinstance(only_failure(bench, handle), InvalidResponse)
