"""Conversations by HTTP+SSE: the endpoint, the POSTs, and what the one stream brings."""

from __future__ import annotations

import json

import pytest

from sansmcp import (
    BodyData,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    Limits,
    RequestRefused,
    RequestTimeout,
    encode_event,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Connected,
    MessageUndelivered,
    ProgressReceived,
    ProtocolViolation,
    ServerNotified,
    ServerRequestReceived,
)
from sansmcp.messages import Notification, Request
from sansmcp.states import ClientState

from .bench import (
    LATEST,
    ONCE,
    URL,
    Bench,
    error,
    initialized,
    notification,
    only_failure,
    request,
    response,
)
from .sse_bench import ENDPOINT, SseBench, tell_endpoint

requirement = pytest.mark.requirement
HOST = "http://localhost:8000"


@pytest.fixture
def bench() -> SseBench:
    return SseBench(capabilities={"elicitation": {}, "roots": {}}).connect()


# The handshake


@requirement(
    "LEGACYSSE-C-001",
    "LEGACYSSE-C-003",
    "LEGACYSSE-C-005",
    "LEGACYSSE-C-006",
    "LEGACYSSE-B-001",
    "LEGACYSSE-C-010",
    "VERS-C-001",
)
@pytest.mark.parametrize(
    ("version", "header"),
    [("2024-11-05", None), ("2025-03-26", None), ("2025-06-18", "2025-06-18"), (LATEST, LATEST)],
)
def test_the_handshake(version: str, header: str | None) -> None:
    bench = SseBench().start()
    stream = bench.take("GET")
    assert (stream.effect.url, stream.header("accept")) == (URL, "text/event-stream")
    stream.open_stream()
    assert bench.requests == []
    tell_endpoint(stream)
    asked = bench.take()
    assert asked.effect.url == HOST + ENDPOINT
    assert asked.effect.head.target == ENDPOINT.encode()
    elsewhere = Bench()
    elsewhere.do(elsewhere.client.start)
    assert asked.json == elsewhere.take().json  # as on Streamable HTTP
    assert asked.json["params"]["protocolVersion"] == LATEST
    assert asked.header("content-type") == "application/json"
    assert asked.header("mcp-protocol-version") is None
    asked.accept()
    assert bench.requests == []
    stream.event(initialized(asked.id, version))
    confirmation = bench.take()
    assert confirmation.effect.url == HOST + ENDPOINT
    assert confirmation.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert confirmation.header("mcp-protocol-version") == header
    assert bench.events == []
    confirmation.accept()
    (event,) = bench.events
    assert isinstance(event, Connected)
    assert (event.transport, event.version) == ("http+sse", version)
    _, asked = bench.call()
    assert asked.effect.url == HOST + ENDPOINT
    assert asked.header("mcp-protocol-version") == header
    assert asked.header("mcp-session-id") is None


@requirement("LEGACYSSE-C-009", "AUTH-C-001")
def test_the_headers_of_the_application_are_sent_with_all_requests() -> None:
    bench = SseBench(headers=((b"authorization", b"Bearer x"),)).start()
    assert bench.requests[0].header("authorization") == "Bearer x"
    assert bench.locate().header("authorization") == "Bearer x"


@requirement("LEGACYSSE-C-002")
@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("/messages?s=1", f"{HOST}/messages?s=1"),
        ("messages/", f"{HOST}/messages/"),
        ("?s=1", f"{HOST}/mcp?s=1"),
        (f"{HOST}/a/b?c=d", f"{HOST}/a/b?c=d"),
        ("//localhost:8000/x", f"{HOST}/x"),
        ("HTTP://LOCALHOST:8000/x", f"{HOST}/x"),
    ],
)
def test_the_endpoint_may_be_any_reference(endpoint: str, url: str) -> None:
    assert SseBench().start().locate(endpoint).effect.url == url


@pytest.mark.parametrize("block", [b":\n\n", b"retry: 5\n\n", b"id: 1\n\n", b"event: x\n\n"])
def test_blocks_that_the_standard_drops_are_no_first_event(block: bytes) -> None:
    bench = SseBench().start()
    stream = bench.take("GET")
    stream.open_stream()
    stream.feed(BodyData(block))
    tell_endpoint(stream)
    assert bench.take().effect.url == HOST + ENDPOINT


@requirement("LEGACYSSE-C-004")
@pytest.mark.parametrize("status", [200, 201, 202, 204])
@pytest.mark.parametrize("body", [b"", b"Accepted", b'{"jsonrpc":"2.0","id":1,"result":"no"}'])
def test_any_success_acknowledges_a_post(bench: SseBench, status: int, body: bytes) -> None:
    handle, asked = bench.call()
    asked.refuse(status, body, content_type="application/json")
    assert bench.events == []
    bench.say(response(asked.id, {"on": "the stream"}))
    assert bench.events == [CallCompleted(handle, {"on": "the stream"})]
    assert bench.client.next_deadline() is None


def test_a_stream_as_the_answer_to_a_post_is_not_waited_for(bench: SseBench) -> None:
    _, asked = bench.call()
    asked.open_stream()
    assert asked.aborted
    assert bench.events == []


def test_the_answer_may_come_before_the_acknowledgement(bench: SseBench) -> None:
    handle, asked = bench.call()
    bench.say(response(asked.id))
    assert bench.events == [CallCompleted(handle, {})]
    asked.cut()
    assert len(bench.events) == 1
    _, asked = bench.call()
    bench.say(response(asked.id))
    bench.wait(1)  # long enough for an acknowledgement that nobody needs
    assert asked.aborted
    assert bench.client.next_deadline() is None


# A handshake that fails


def test_initialize_is_refused() -> None:
    bench = SseBench(reconnect=ONCE).start()
    bench.locate().refuse(503, b"busy")
    failure = bench.closed()
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.url) == (503, HOST + ENDPOINT)
    assert bench.stream.aborted


@pytest.mark.parametrize("accepted", [True, False])
def test_initialize_is_not_answered(accepted: bool) -> None:
    bench = SseBench(connect_timeout=7).start()
    asked = bench.locate()
    if accepted:
        asked.accept()
    bench.wait(7)
    assert isinstance(bench.closed(), RequestTimeout)
    assert bench.stream.aborted
    assert asked.aborted is not accepted


def test_initialize_is_answered_by_an_error() -> None:
    bench = SseBench().start()
    asked = bench.locate()
    bench.say(error(asked.id, -32602, "bad version"))
    assert isinstance(bench.closed(), JsonRpcError)


def test_the_connection_of_initialize_breaks() -> None:
    bench = SseBench(reconnect=ONCE).start()
    bench.locate().cut()
    assert isinstance(bench.closed(), Disconnected)


@pytest.mark.parametrize("status", [400, 404, 500])
def test_the_confirmation_is_refused(status: int) -> None:
    bench = SseBench(reconnect=ONCE).start()
    bench.take_initialize()
    bench.take().refuse(status)
    assert str(status) in str(bench.closed())
    assert [type(event) for event in bench.events] == [MessageUndelivered]


# What a POST can bring about


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500])
def test_a_refused_post_fails_its_call_only(bench: SseBench, status: int) -> None:
    other, id = bench.make()
    handle, asked = bench.call("tools/list")
    asked.refuse(status, b"because")
    failure = only_failure(bench, handle)
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.url, failure.body) == (status, HOST + ENDPOINT, b"because")
    bench.say(response(id))
    assert bench.events == [CallCompleted(other, {})]
    assert bench.client.state is ClientState.READY


def test_a_broken_post_fails_its_call_only(bench: SseBench) -> None:
    other, id = bench.make()
    handle, asked = bench.call("tools/list")
    asked.cut()
    failure = only_failure(bench, handle)
    assert isinstance(failure, Disconnected)
    assert "cable cut" in str(failure)
    bench.say(response(asked.id), response(id))  # the answer that nobody waits for any more
    assert bench.events == [CallCompleted(other, {})]


def test_an_error_with_the_id_of_the_call_is_its_answer_wherever_it_comes(bench: SseBench) -> None:
    handle, asked = bench.call()
    asked.answer(error(asked.id, -5, "no"), 400)
    failure = only_failure(bench, handle)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.http_status) == (-5, 400)


@requirement("CANCEL-B-001", "LIFECYCLE-B-005")
def test_timeouts_and_cancellations_are_posted(bench: SseBench) -> None:
    handle, id = bench.make(timeout=5)
    bench.wait(5)
    assert isinstance(only_failure(bench, handle), RequestTimeout)
    assert bench.take().json["params"]["requestId"] == id
    handle, id = bench.make()
    bench.do(bench.client.cancel, handle, "bored")
    post = bench.take()
    assert post.json == notification("notifications/cancelled", requestId=id, reason="bored")
    assert post.effect.url == HOST + ENDPOINT


# What the stream brings


@requirement("JSONRPC-B-007", "JSONRPC-B-038")
def test_answers_are_matched_by_id(bench: SseBench) -> None:
    first, id1 = bench.make()
    second, id2 = bench.make()
    third, id3 = bench.make()
    bench.say(response(id2), [error(id3, -5, "no"), {"bad": 1}, response(id1)], response(id1))
    kinds = [type(event) for event in bench.events]
    assert kinds == [CallCompleted, CallFailed, ProtocolViolation, CallCompleted]
    ends = [event.call for event in bench.events if isinstance(event, CallCompleted | CallFailed)]
    assert ends == [second, third, first]


def test_notifications_and_progress(bench: SseBench) -> None:
    handle, id = bench.make(timeout=10)
    bench.wait(9)
    bench.say(notification("notifications/progress", progressToken=id, progress=1))
    bench.say(notification("notifications/message", data="x"))
    assert bench.take_events() == [
        ProgressReceived(call=handle, progress=1),
        ServerNotified(None, Notification("notifications/message", {"data": "x"})),
    ]
    bench.wait(9)
    assert bench.events == []


@requirement("LIFECYCLE-B-010")
def test_questions_are_answered_by_posts_and_stop_all_clocks(bench: SseBench) -> None:
    first, _ = bench.make(timeout=10)
    second, _ = bench.make(timeout=20)
    bench.say(request("q", "elicitation/create", message="?"))
    asked = Request("q", "elicitation/create", {"message": "?"})
    assert bench.take_events() == [ServerRequestReceived(None, asked)]
    bench.wait(1000)
    bench.do(bench.client.respond, "q", {"action": "decline"})
    post = bench.take()
    assert post.json == response("q", {"action": "decline"})
    assert post.effect.url == HOST + ENDPOINT
    post.refuse(503)  # it may pass: the answer is sent again
    bench.wait(1)
    assert bench.take().json == post.json
    bench.wait(9)
    assert isinstance(only_failure(bench, first), RequestTimeout)
    bench.take()
    bench.wait(10)
    assert isinstance(only_failure(bench, second), RequestTimeout)


def test_a_question_may_come_when_no_call_is_running(bench: SseBench) -> None:
    bench.say(request(1, "roots/list"), request(2, "ping"))
    assert bench.events == [ServerRequestReceived(None, Request(1, "roots/list", {}))]
    assert bench.take().json == response(2)


@pytest.mark.parametrize("data", [b"hello", b"{", b'{"jsonrpc":"2.0"}'])
def test_what_is_no_message_is_reported(bench: SseBench, data: bytes) -> None:
    handle, id = bench.make()
    bench.say(data, response(id))
    violation, completed = bench.events
    assert isinstance(violation, ProtocolViolation)
    assert completed == CallCompleted(handle, {})


def test_an_invalid_answer_fails_its_call(bench: SseBench) -> None:
    handle, id = bench.make()
    bench.say({"jsonrpc": "2.0", "id": id})
    assert isinstance(only_failure(bench, handle), InvalidResponse)


def test_other_events_mean_nothing(bench: SseBench) -> None:
    handle, id = bench.make()
    tell_endpoint(bench.stream, "/elsewhere")
    answer = b'{"jsonrpc":"2.0","id":%d,"result":1}' % id
    bench.stream.feed(BodyData(encode_event(answer, event="other")))
    bench.say(b"", notification("n"))
    assert [type(event) for event in bench.events] == [ServerNotified]
    bench.do(bench.client.cancel, handle)
    assert bench.take().effect.url == HOST + ENDPOINT


def test_any_chunking_gives_the_same_conversation() -> None:
    messages = (notification("n", a="ä"), "noise", response(1, "x"), [response(2)])
    data = b"".join(encode_event(json.dumps(message).encode()) for message in messages)
    told: list[str] = []
    for size in (1, 2, 3, 7, 1000):
        bench = SseBench().connect()
        bench.make()
        bench.make()
        for start in range(0, len(data), size):
            bench.stream.feed(BodyData(data[start : start + size]))
        told.append(repr(bench.events))
    assert len(set(told)) == 1


def test_an_application_that_takes_no_events_stops_the_reading() -> None:
    bench = SseBench(limits=Limits(max_queued_events=3)).connect()
    handle, id = bench.make()
    bench.takes_events = False
    bench.say(*[notification(f"n{number}") for number in range(10)], response(id))
    bench.stream.end()
    assert bench.is_paused
    bench.takes_events = True
    bench.settle()
    names = [e.notification.method for e in bench.events if isinstance(e, ServerNotified)]
    assert names == [f"n{number}" for number in range(10)]
    assert bench.events[10] == CallCompleted(handle, {})
