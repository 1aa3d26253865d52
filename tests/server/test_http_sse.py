"""HTTP+SSE: everything is said on one stream, and every POST belongs to one by its token."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from sansmcp import BodyEnd, ConnectionInfo, ConnectionLost, Limits, RequestHead, Response
from sansmcp.codecs.sse import KEEP_ALIVE
from sansmcp.events import (
    CallCancelled,
    ClientNotified,
    ClientResponseReceived,
    RefusalSent,
    ResponseUndelivered,
    SessionClosed,
    SessionOpened,
)
from sansmcp.reclaim import EXTENSION
from sansmcp.states import SessionState

from .harness import (
    LATEST,
    PING,
    STREAM,
    RawExchange,
    ServerHarness,
    expect,
    initialize,
    notification,
    request,
)
from .pipe_harness import reason, result
from .sse_harness import SseClient

requirement = pytest.mark.requirement


@pytest.fixture(params=["/sse", "/mcp"], ids=["own paths", "shared path"])
def path(request: pytest.FixtureRequest) -> str:
    """Where the stream is opened."""
    value: str = request.param
    return value


@pytest.fixture
def harness(path: str) -> ServerHarness:
    return ServerHarness(http_sse=path)


@pytest.fixture
def client(harness: ServerHarness, path: str) -> SseClient:
    return SseClient(harness, path)


# The stream


@requirement("LEGACYSSE-S-001", "LEGACYSSE-S-002", "SSE-S-001", "SSE-S-002")
def test_the_stream_begins_with_the_uri_for_messages(
    harness: ServerHarness, client: SseClient, path: str
) -> None:
    assert client.stream.header("cache-control") == "no-cache, no-transform"
    (event,) = client.stream.events
    assert (event.event, event.id, event.retry) == ("endpoint", None, None)
    uri = urlsplit(event.data)
    assert (uri.scheme, uri.netloc) == ("", "")
    assert uri.path == {"/sse": "/messages", "/mcp": "/mcp"}[path]
    assert len(uri.query) > len("session_id=") + 16
    assert harness.events == []
    assert harness.server.sessions == ()


@pytest.mark.parametrize(
    ("http_sse", "messages"),
    [("/sse/", "/messages"), ("/a/b/sse", "/a/b/messages"), ("/", "/messages")],
)
def test_messages_go_beside_the_stream(http_sse: str, messages: str) -> None:
    harness = ServerHarness(http_sse=http_sse)
    client = SseClient(harness, http_sse)
    assert urlsplit(client.uri).path == messages
    client.open()
    assert harness.send("GET", {"accept": STREAM}, target=f"{http_sse}/").status == 200
    assert harness.get(None).error["data"]["httpSseUrl"] == (http_sse.rstrip("/") or "/")


@requirement("LEGACYSSE-S-006", "SESSION-S-002")
def test_each_stream_has_its_own_unguessable_uri(harness: ServerHarness, path: str) -> None:
    clients = [SseClient(harness, path) for _ in range(10)]
    assert len({client.uri for client in clients}) == 10
    for number, client in enumerate(clients):
        client.open().say(request(number, "ping"))
        assert client.said == [result(number)]
    assert all(client.said == [] for client in clients)


@requirement("SSE-S-006")
def test_a_quiet_stream_is_kept_alive(harness: ServerHarness, client: SseClient) -> None:
    size = len(client.stream.body)
    harness.wait(46)
    assert client.stream.body[size:] == KEEP_ALIVE * 3
    client.open().stream.lose_connection()
    assert harness.server.next_deadline() is None


# Conversations


@requirement("LEGACYSSE-B-001", "LEGACYSSE-S-003", "LEGACYSSE-S-004", "LEGACYSSE-S-005")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LATEST])
def test_the_handshake(client: SseClient, version: str) -> None:
    client.say(initialize(version, {"roots": {}}))
    (answer,) = client.said
    assert answer["result"]["capabilities"].pop("extensions").keys() == {EXTENSION}
    assert answer == result(
        0,
        {
            "protocolVersion": version,
            "capabilities": {"tools": {}, "resources": {"subscribe": True}},
            "serverInfo": {"name": "bench", "version": "1"},
        },
    )
    session = client.session
    assert client.harness.events == [SessionOpened(session)]
    assert (session.id, session.revision.name) == (None, version)
    client.say(notification("notifications/initialized"))
    assert session.state is SessionState.READY
    assert client.said == []


@requirement("LEGACYSSE-S-003", "LEGACYSSE-S-004", "LEGACYSSE-S-005")
def test_calls_are_answered_on_the_stream(client: SseClient) -> None:
    harness = client.open().harness
    call = client.call(1, _meta={"progressToken": "t"})
    harness.run_action(call.progress, 1, 2)
    harness.run_action(call.notify, "notifications/message", {"data": "a\nb"})
    assert harness.run_action(call.disconnect) is False
    assert harness.run_action(call.respond, {"text": "ü\u2028"})
    client.say(request(2, "ping"), request(3, "nope"), initialize())
    said = client.said
    assert [message.get("method") or message["id"] for message in said] == [
        "notifications/progress",
        "notifications/message",
        1,
        2,
        3,
        0,
    ]
    assert said[2:4] == [result(1, {"text": "ü\u2028"}), result(2)]
    assert [reason(error) for error in said[4:]] == [
        (-32601, "method_not_found"),
        (-32600, "initialized_already"),
    ]


def test_notifications_questions_and_cancellations(client: SseClient) -> None:
    harness = client.open(capabilities={"elicitation": {}}).harness
    call = client.call(1)
    id = harness.run_action(call.ask, "elicitation/create", {"message": "?"}, timeout=30)
    harness.run_action(client.session.notify, "notifications/tools/list_changed")
    assert [message["method"] for message in client.said] == [
        "elicitation/create",
        "notifications/tools/list_changed",
    ]
    client.say(
        result(id, {"action": "decline"}),
        notification("notifications/x"),
        notification("notifications/cancelled", requestId=1, reason="bored"),
    )
    answered, notified, cancelled = harness.events
    assert answered == ClientResponseReceived(call, id, Response(id, {"action": "decline"}))
    assert isinstance(notified, ClientNotified)
    assert cancelled == CallCancelled(call, "bored")
    assert harness.run_action(call.respond, {}) is False
    assert client.said == []


@requirement("JSONRPC-B-030")
def test_a_batch_is_answered_by_one_event(client: SseClient) -> None:
    client.open("2025-03-26").say([request(1), request(2, "ping")])
    assert client.said == []
    client.harness.run_action(client.harness.last_call().respond, {})
    assert client.said == [[result(2), result(1)]]


def test_before_initialize_only_pings_are_answered(client: SseClient) -> None:
    client.say(request(1), request(2, "ping"), notification("notifications/initialized"))
    refused, pong = client.said
    assert reason(refused) == (-32600, "not_initialized")
    assert pong == result(2)


# Refused POSTs


@requirement("JSONRPC-B-023", "JSONRPC-B-024")
@pytest.mark.parametrize(
    ("body", "code", "why"),
    [
        (b"{", -32700, "malformed_json"),
        (b"", -32700, "malformed_json"),
        (b"\xff", -32700, "invalid_utf8"),
        (b"{}", -32600, "invalid_message"),
    ],
)
def test_what_is_no_message_is_refused(client: SseClient, body: bytes, code: int, why: str) -> None:
    expect(client.open().post(body), 400, why, code)
    assert client.said == []
    assert client.say(PING).said == [result(7)]


def test_a_message_that_is_too_large(path: str) -> None:
    client = SseClient(ServerHarness(http_sse=path, limits=Limits(max_message_bytes=1000)), path)
    expect(client.post(b" " * 1001), 413, "message_too_large")
    expect(client.post(PING, {"content-length": "1001"}), 413, "message_too_large")
    assert client.say(PING).said == [result(7)]


def test_an_unknown_token(harness: ServerHarness, client: SseClient) -> None:
    client.uri += "x"
    talk = client.post(PING)
    expect(talk, 404, "session_not_found")
    assert "open a new one" in talk.error["message"]


@requirement("SESSION-S-011", "SESSION-S-009")
def test_a_stream_is_of_no_use_to_another_principal(harness: ServerHarness, path: str) -> None:
    client = SseClient(harness, path, principal="alice").open()
    for principal in ("bob", ""):
        client.principal = principal
        expect(client.post(PING), 404, "session_not_found")
    client.principal = "alice"
    assert client.say(PING).said == [result(7)]


@requirement("SEC-S-001", "SEC-S-002")
def test_origin_and_host_count_here_too(
    harness: ServerHarness, client: SseClient, path: str
) -> None:
    evil = {"origin": "http://evil.example", "accept": STREAM}
    expect(harness.send("GET", evil, target=path), 403, "origin_not_allowed")
    expect(client.post(PING, evil), 403, "origin_not_allowed")
    rebound = {"host": "evil.example", "accept": STREAM}
    expect(harness.send("GET", rebound, target=path), 403, "host_not_allowed")
    expect(client.post(PING, rebound), 403, "host_not_allowed")


# The end of the stream


def test_when_the_stream_is_gone_so_is_everything_else(client: SseClient) -> None:
    harness = client.open(capabilities={"roots": {}}).harness
    call = client.call()
    harness.run_action(call.ask, "roots/list", timeout=60)
    session = client.session
    client.stream.lose_connection()
    assert [type(event) for event in harness.events] == [
        CallCancelled,
        ClientResponseReceived,
        SessionClosed,
    ]
    assert harness.events[-1] == SessionClosed(session, "the client has closed its stream")
    assert harness.server.sessions == ()
    assert harness.run_action(call.respond, {}) is False
    assert harness.run_action(session.notify, "x") is False
    expect(client.post(PING), 404, "session_not_found")
    assert harness.server.next_deadline() is None


def test_a_stream_that_is_gone_before_initialize(client: SseClient) -> None:
    client.stream.lose_connection()
    expect(client.post(initialize()), 404, "session_not_found")
    assert [type(event) for event in client.harness.events] == [RefusalSent]


def test_the_application_can_end_the_session(client: SseClient) -> None:
    harness = client.open().harness
    call = client.call()
    client.stream.reads = False
    harness.run_action(harness.server.end_session, client.session, "no more credit")
    # The end of the stream is not sent yet, and the session has ended all the same.
    for late in (notification("notifications/initialized"), request(2)):
        expect(client.post(late), 404, "session_not_found")
    client.stream.reads = True
    client.stream.pull()
    assert (client.stream.ended, client.stream.aborted) == (True, False)
    assert not call.is_running
    assert not any(isinstance(event, ResponseUndelivered) for event in harness.events)


@pytest.mark.parametrize("initialized", [True, False])
def test_shutting_down_ends_the_stream_properly(client: SseClient, initialized: bool) -> None:
    harness = client.harness
    if initialized:
        client.open().call()
    harness.run_action(harness.server.shut_down)
    assert (client.stream.ended, client.stream.aborted) == (True, False)
    kinds = [CallCancelled, SessionClosed] if initialized else []
    assert [type(event) for event in harness.events] == kinds
    expect(client.post(PING), 404, "session_not_found")
    expect(harness.send("GET", {"accept": STREAM}, target=client.path), 503, "shutting_down")
    assert harness.server.sessions == ()
    assert harness.server.next_deadline() is None


# Bounds


def test_streams_are_bounded_as_sessions_are(path: str) -> None:
    harness = ServerHarness(http_sse=path, limits=Limits(max_sessions=2))
    first, second = SseClient(harness, path), SseClient(harness, path).open()
    get = {"accept": STREAM}
    expect(harness.send("GET", get, target=path), 503, "too_many_sessions")
    harness.post(PING, harness.open_session())
    (refused,) = first.say(initialize()).said
    assert reason(refused) == (-32600, "too_many_sessions")
    first.stream.lose_connection()
    expect(harness.send("GET", get, target=path), 503, "too_many_sessions")
    second.stream.lose_connection()
    assert harness.send("GET", get, target=path).status == 200


@pytest.mark.parametrize("by", ["principal", "address"])
def test_one_client_cannot_use_all_streams(
    path: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it opens no session on them."""
    harness = ServerHarness(http_sse=path, limits=Limits(max_sessions_per_principal=2))

    def stream(who: str) -> RawExchange:
        if by == "principal":
            return harness.send("GET", {"accept": STREAM}, target=path, principal=who)
        peer = None if not who else (f"10.0.0.{who}", 1)
        monkeypatch.setattr(RawExchange, "connection", ConnectionInfo(peer=peer))
        return harness.send("GET", {"accept": STREAM}, target=path)

    first, second = stream("1"), stream("1")
    expect(stream("1"), 503, "too_many_sessions")
    assert stream("2").status == 200
    assert [stream("").status for _ in range(4)] == [200] * 4, "it is not known who they are"
    first.lose_connection()
    assert stream("1").status == 200
    assert not second.ended


def test_a_slow_reader_makes_handlers_wait(path: str) -> None:
    harness = ServerHarness(http_sse=path, limits=Limits(max_unsent_bytes=1000))
    client = SseClient(harness, path).open()
    call = client.call()
    client.stream.reads = False
    said = 0
    while not call.is_above_high_water:
        assert harness.run_action(call.notify, "notifications/message", {"data": "x" * 100})
        said += 1
    assert 5 < said < 10
    # Whoever does not read the answers may not ask for more, but may still notify.
    for more in (PING, request(2), [request(3)]):
        talk = client.post(more)
        assert (talk.status, talk.error["data"]["reason"]) == (429, "stream_not_read")
    client.say(notification("notifications/x"))
    client.stream.reads = True
    client.stream.pull()
    assert not call.is_above_high_water
    assert len(client.said) == said
    assert client.say(PING).said == [result(7)]


def test_a_stream_that_is_lost_before_it_is_sent(harness: ServerHarness, path: str) -> None:
    talk = RawExchange(harness)
    talk.reads = False
    head = RequestHead(
        method=b"GET",
        target=path.encode(),
        headers=((b"host", b"localhost"), (b"accept", STREAM.encode())),
    )
    talk.feed(head).feed(BodyEnd()).feed(ConnectionLost())
    talk.reads = True
    talk.pull()
    assert talk.head is None
