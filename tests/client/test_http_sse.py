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

from .harness import (
    LATEST,
    ONCE,
    URL,
    ClientHarness,
    error,
    initialized,
    notification,
    only_failure,
    request,
    response,
)
from .sse_harness import ENDPOINT, SseHarness, tell_endpoint

requirement = pytest.mark.requirement
HOST = "http://localhost:8000"
IDLE = Limits().stream_idle_timeout


@pytest.fixture
def harness() -> SseHarness:
    return SseHarness(capabilities={"elicitation": {}, "roots": {}}).connect()


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
    harness = SseHarness().start()
    stream = harness.take("GET")
    assert (stream.effect.url, stream.header("accept")) == (URL, "text/event-stream")
    stream.open_stream()
    assert harness.requests == []
    tell_endpoint(stream)
    asked = harness.take()
    assert asked.effect.url == HOST + ENDPOINT
    assert asked.effect.head.target == ENDPOINT.encode()
    elsewhere = ClientHarness()
    elsewhere.run_command(elsewhere.client.start)
    assert asked.json == elsewhere.take().json  # as on Streamable HTTP
    assert asked.json["params"]["protocolVersion"] == LATEST
    assert asked.header("content-type") == "application/json"
    assert asked.header("mcp-protocol-version") is None
    asked.accept()
    assert harness.requests == []
    stream.event(initialized(asked.id, version))
    confirmation = harness.take()
    assert confirmation.effect.url == HOST + ENDPOINT
    assert confirmation.json == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert confirmation.header("mcp-protocol-version") == header
    assert harness.events == []
    confirmation.accept()
    (event,) = harness.events
    assert isinstance(event, Connected)
    assert (event.transport, event.version) == ("http+sse", version)
    _, asked = harness.call()
    assert asked.effect.url == HOST + ENDPOINT
    assert asked.header("mcp-protocol-version") == header
    assert asked.header("mcp-session-id") is None


@requirement("LEGACYSSE-C-009", "AUTH-C-001")
def test_the_headers_of_the_application_are_sent_with_all_requests() -> None:
    harness = SseHarness(headers=((b"authorization", b"Bearer x"),)).start()
    assert harness.requests[0].header("authorization") == "Bearer x"
    assert harness.locate().header("authorization") == "Bearer x"


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
    assert SseHarness().start().locate(endpoint).effect.url == url


@pytest.mark.parametrize("block", [b":\n\n", b"retry: 5\n\n", b"id: 1\n\n", b"event: x\n\n"])
def test_blocks_that_the_standard_drops_are_no_first_event(block: bytes) -> None:
    harness = SseHarness().start()
    stream = harness.take("GET")
    stream.open_stream()
    stream.feed(BodyData(block))
    tell_endpoint(stream)
    assert harness.take().effect.url == HOST + ENDPOINT


@requirement("LEGACYSSE-C-004")
@pytest.mark.parametrize("status", [200, 201, 202, 204])
@pytest.mark.parametrize("body", [b"", b"Accepted", b'{"jsonrpc":"2.0","id":1,"result":"no"}'])
def test_any_success_acknowledges_a_post(harness: SseHarness, status: int, body: bytes) -> None:
    handle, asked = harness.call()
    asked.refuse(status, body, content_type="application/json")
    assert harness.events == []
    harness.say(response(asked.id, {"on": "the stream"}))
    assert harness.events == [CallCompleted(handle, {"on": "the stream"})]
    assert harness.client.next_deadline() == IDLE


def test_a_stream_as_the_answer_to_a_post_is_not_waited_for(harness: SseHarness) -> None:
    _, asked = harness.call()
    asked.open_stream()
    assert asked.aborted
    assert harness.events == []


def test_the_answer_may_come_before_the_acknowledgement(harness: SseHarness) -> None:
    handle, asked = harness.call()
    harness.say(response(asked.id))
    assert harness.events == [CallCompleted(handle, {})]
    asked.cut()
    assert len(harness.events) == 1
    _, asked = harness.call()
    harness.say(response(asked.id))
    harness.wait(1)  # long enough for an acknowledgement that nobody needs
    assert asked.aborted
    assert harness.client.next_deadline() == IDLE


# A handshake that fails


def test_initialize_is_refused() -> None:
    harness = SseHarness(reconnect=ONCE).start()
    harness.locate().refuse(503, b"busy")
    failure = harness.closed()
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.url) == (503, HOST + ENDPOINT)
    assert harness.stream.aborted


@pytest.mark.parametrize("accepted", [True, False])
def test_initialize_is_not_answered(accepted: bool) -> None:
    harness = SseHarness(connect_timeout=7).start()
    asked = harness.locate()
    if accepted:
        asked.accept()
    harness.wait(7)
    assert isinstance(harness.closed(), RequestTimeout)
    assert harness.stream.aborted
    assert asked.aborted is not accepted


def test_initialize_is_answered_by_an_error() -> None:
    harness = SseHarness().start()
    asked = harness.locate()
    harness.say(error(asked.id, -32602, "bad version"))
    assert isinstance(harness.closed(), JsonRpcError)


def test_the_connection_of_initialize_breaks() -> None:
    harness = SseHarness(reconnect=ONCE).start()
    harness.locate().cut()
    assert isinstance(harness.closed(), Disconnected)


@pytest.mark.parametrize("status", [400, 500])
def test_the_confirmation_is_refused(status: int) -> None:
    harness = SseHarness(reconnect=ONCE).start()
    harness.take_initialize()
    harness.take().refuse(status)
    assert str(status) in str(harness.closed())
    assert [type(event) for event in harness.events] == [MessageUndelivered]


# What a POST can bring about


@pytest.mark.parametrize("status", [400, 401, 413, 500])
def test_a_refused_post_fails_its_call_only(harness: SseHarness, status: int) -> None:
    other, id = harness.make()
    handle, asked = harness.call("tools/list")
    asked.refuse(status, b"because")
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.url, failure.body) == (status, HOST + ENDPOINT, b"because")
    harness.say(response(id))
    assert harness.events == [CallCompleted(other, {})]
    assert harness.client.state is ClientState.READY


def test_a_broken_post_fails_its_call_only(harness: SseHarness) -> None:
    other, id = harness.make()
    handle, asked = harness.call("tools/list")
    asked.cut()
    failure = only_failure(harness, handle)
    assert isinstance(failure, Disconnected)
    assert "cable cut" in str(failure)
    harness.say(response(asked.id), response(id))  # the answer that nobody waits for any more
    assert harness.events == [CallCompleted(other, {})]


def test_an_error_with_the_id_of_the_call_is_its_answer_wherever_it_comes(
    harness: SseHarness,
) -> None:
    handle, asked = harness.call()
    asked.answer(error(asked.id, -5, "no"), 400)
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.http_status) == (-5, 400)


@requirement("CANCEL-B-001", "LIFECYCLE-B-005")
def test_timeouts_and_cancellations_are_posted(harness: SseHarness) -> None:
    handle, id = harness.make(timeout=5)
    harness.keep_alive(5)
    assert isinstance(only_failure(harness, handle), RequestTimeout)
    assert harness.take().json["params"]["requestId"] == id
    handle, id = harness.make()
    harness.run_command(harness.client.cancel, handle, "bored")
    post = harness.take()
    assert post.json == notification("notifications/cancelled", requestId=id, reason="bored")
    assert post.effect.url == HOST + ENDPOINT


# What the stream brings


@requirement("JSONRPC-B-007", "JSONRPC-B-038")
def test_answers_are_matched_by_id(harness: SseHarness) -> None:
    first, id1 = harness.make()
    second, id2 = harness.make()
    third, id3 = harness.make()
    harness.say(response(id2), [error(id3, -5, "no"), {"bad": 1}, response(id1)], response(id1))
    kinds = [type(event) for event in harness.events]
    assert kinds == [CallCompleted, CallFailed, ProtocolViolation, CallCompleted]
    ends = [event.call for event in harness.events if isinstance(event, CallCompleted | CallFailed)]
    assert ends == [second, third, first]


def test_notifications_and_progress(harness: SseHarness) -> None:
    handle, id = harness.make(timeout=10)
    harness.wait(9)
    harness.say(notification("notifications/progress", progressToken=id, progress=1))
    harness.say(notification("notifications/message", data="x"))
    assert harness.take_events() == [
        ProgressReceived(call=handle, progress=1),
        ServerNotified(None, Notification("notifications/message", {"data": "x"})),
    ]
    harness.wait(9)
    assert harness.events == []


@requirement("LIFECYCLE-B-010")
def test_questions_are_answered_by_posts_and_stop_all_clocks(harness: SseHarness) -> None:
    first, _ = harness.make(timeout=10)
    second, _ = harness.make(timeout=20)
    harness.say(request("q", "elicitation/create", message="?"))
    asked = Request("q", "elicitation/create", {"message": "?"})
    assert harness.take_events() == [ServerRequestReceived(None, asked)]
    harness.keep_alive(1000)
    harness.run_command(harness.client.respond, "q", {"action": "decline"})
    post = harness.take()
    assert post.json == response("q", {"action": "decline"})
    assert post.effect.url == HOST + ENDPOINT
    post.refuse(503)  # it may pass: the answer is sent again
    harness.wait(1)
    assert harness.take().json == post.json
    harness.keep_alive(9)
    assert isinstance(only_failure(harness, first), RequestTimeout)
    harness.take()
    harness.keep_alive(10)
    assert isinstance(only_failure(harness, second), RequestTimeout)


def test_a_question_may_come_when_no_call_is_running(harness: SseHarness) -> None:
    harness.say(request(1, "roots/list"), request(2, "ping"))
    assert harness.events == [ServerRequestReceived(None, Request(1, "roots/list", {}))]
    assert harness.take().json == response(2)


@pytest.mark.parametrize("data", [b"hello", b"{", b'{"jsonrpc":"2.0"}'])
def test_what_is_no_message_is_reported(harness: SseHarness, data: bytes) -> None:
    handle, id = harness.make()
    harness.say(data, response(id))
    violation, completed = harness.events
    assert isinstance(violation, ProtocolViolation)
    assert completed == CallCompleted(handle, {})


def test_an_invalid_answer_fails_its_call(harness: SseHarness) -> None:
    handle, id = harness.make()
    harness.say({"jsonrpc": "2.0", "id": id})
    assert isinstance(only_failure(harness, handle), InvalidResponse)


def test_other_events_mean_nothing(harness: SseHarness) -> None:
    handle, id = harness.make()
    tell_endpoint(harness.stream, "/elsewhere")
    answer = b'{"jsonrpc":"2.0","id":%d,"result":1}' % id
    harness.stream.feed(BodyData(encode_event(answer, event="other")))
    harness.say(b"", notification("n"))
    assert [type(event) for event in harness.events] == [ServerNotified]
    harness.run_command(harness.client.cancel, handle)
    assert harness.take().effect.url == HOST + ENDPOINT


def test_any_chunking_gives_the_same_conversation() -> None:
    messages = (notification("n", a="ä"), "noise", response(1, "x"), [response(2)])
    data = b"".join(encode_event(json.dumps(message).encode()) for message in messages)
    told: list[str] = []
    for size in (1, 2, 3, 7, 1000):
        harness = SseHarness().connect()
        harness.make()
        harness.make()
        for start in range(0, len(data), size):
            harness.stream.feed(BodyData(data[start : start + size]))
        told.append(repr(harness.events))
    assert len(set(told)) == 1


def test_an_application_that_takes_no_events_stops_the_reading() -> None:
    harness = SseHarness(limits=Limits(max_queued_events=3)).connect()
    handle, id = harness.make()
    harness.takes_events = False
    harness.say(*[notification(f"n{number}") for number in range(10)], response(id))
    harness.stream.end()
    assert harness.is_paused
    harness.takes_events = True
    harness.run_pending()
    names = [e.notification.method for e in harness.events if isinstance(e, ServerNotified)]
    assert names == [f"n{number}" for number in range(10)]
    assert harness.events[10] == CallCompleted(handle, {})
