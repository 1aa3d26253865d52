"""HTTP+SSE beside Streamable HTTP: which request belongs to which, and what it is told."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError

from .harness import BOTH, JSON, LATEST, PING, STREAM, ServerHarness, expect, initialize, request
from .pipe_harness import result
from .sse_harness import SseClient

requirement = pytest.mark.requirement


@pytest.fixture
def apart() -> ServerHarness:
    """Both transports, on paths of their own."""
    return ServerHarness(http_sse="/sse")


@pytest.fixture
def shared() -> ServerHarness:
    """Both transports on one path."""
    return ServerHarness(http_sse="/mcp")


# Paths of its own


@pytest.mark.parametrize("accept", [None, "*/*", "text/*"])
@pytest.mark.parametrize("path", ["/sse", "/mcp"])
def test_get_may_ask_for_a_stream_in_many_ways(path: str, accept: str | None) -> None:
    """2024-11-05 asks for no Accept header, and some tools send none."""
    talk = ServerHarness(http_sse=path).send("GET", {"accept": accept}, target=path)
    assert (talk.status, talk.events[0].event) == (200, "endpoint")


@pytest.mark.parametrize("accept", [JSON, f"{STREAM};q=0", "text/html"])
def test_get_must_not_exclude_a_stream(apart: ServerHarness, accept: str | None) -> None:
    talk = apart.send("GET", {"accept": accept}, target="/sse")
    expect(talk, 406, "not_acceptable")
    assert talk.error["data"]["required"] == [STREAM]


@requirement("LEGACYSSE-S-001")
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_a_post_to_the_stream_is_told_the_mcp_path(apart: ServerHarness, method: str) -> None:
    talk = apart.send(method, {"accept": BOTH, "content-type": JSON}, PING, target="/sse")
    expect(talk, 405, "http_sse_stream_url")
    assert talk.header("allow") == "GET"
    assert talk.error["data"]["mcpUrl"] == "/mcp"
    assert "/mcp" in talk.error["message"]


@pytest.mark.parametrize("query", ["", "?session_id=", "?x=1", "?session_id=a&session_id=b"])
def test_a_post_without_a_token(apart: ServerHarness, query: str) -> None:
    expect(apart.send("POST", {}, PING, target=f"/messages{query}"), 400, "message_token_required")


@requirement("LEGACYSSE-S-001")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_messages_are_posted(apart: ServerHarness, method: str) -> None:
    client = SseClient(apart)
    talk = apart.send(method, {"accept": STREAM}, target=client.uri)
    expect(talk, 405, "method_not_allowed")
    assert talk.header("allow") == "POST"


@requirement("LEGACYSSE-S-007")
def test_it_is_not_served_unless_asked_for() -> None:
    for target in ("/sse", "/messages", "/messages?session_id=x"):
        for method in ("GET", "POST"):
            expect(ServerHarness().send(method, {"accept": BOTH}, target=target), 404, "not_found")


def test_a_server_tells_what_it_speaks(apart: ServerHarness, shared: ServerHarness) -> None:
    both = ("streamable-http", "http+sse")
    for harness in (apart, shared):
        assert harness.server.transports(http=True, stdio=False) == both
        assert harness.server.transports(http=True, stdio=True) == (*both, "stdio")
        assert harness.server.transports(http=False, stdio=True) == ("stdio",)
    assert ServerHarness().server.transports(http=True, stdio=False) == ("streamable-http",)


@pytest.mark.parametrize("http_sse", ["", "sse", "http://x/sse", "/sse?x", "/s se", "/sse\r\n"])
def test_what_is_no_path_is_refused(http_sse: str) -> None:
    with pytest.raises(LocalProtocolError, match="path"):
        ServerHarness(http_sse=http_sse)


# The hint


@requirement("SESSION-S-004")
@pytest.mark.parametrize("http_sse", ["/sse", "/mcp"])
def test_without_a_session_the_hint_names_the_other_transport(http_sse: str) -> None:
    harness = ServerHarness(http_sse=http_sse)
    versioned = {"mcp-protocol-version": LATEST}
    for talk in (harness.get(None, headers=versioned), harness.post(request(1))):
        assert (talk.status, talk.error["data"]) == (
            400,
            {
                "reason": "session_required",
                "transports": ["streamable-http"],
                "httpSseUrl": http_sse,
            },
        )
        assert talk.error["message"].endswith(f"The HTTP+SSE transport is served at {http_sse}")


# One path for both


@requirement("LEGACYSSE-S-009")
@pytest.mark.parametrize("target", ["/mcp", "/mcp/", "/mcp?x=1"])
def test_a_get_that_names_nothing_is_of_http_sse(shared: ServerHarness, target: str) -> None:
    assert SseClient(shared, target).open().say(PING).said == [result(7)]


@pytest.mark.parametrize("accept", [JSON, "text/html"])
def test_it_must_not_exclude_a_stream(shared: ServerHarness, accept: str | None) -> None:
    expect(shared.send("GET", {"accept": accept}), 406, "not_acceptable")


def test_a_get_that_names_something_is_of_streamable_http(shared: ServerHarness) -> None:
    session = shared.open_session()
    assert shared.get(session).events[0].event == "message"
    expect(shared.get("unknown"), 404, "session_not_found")
    expect(shared.get(None, "cursor-1"), 400, "session_required")
    expect(shared.get(None, headers={"mcp-protocol-version": LATEST}), 400, "session_required")


def test_only_where_there_are_sessions() -> None:
    with pytest.raises(LocalProtocolError, match="sessions"):
        ServerHarness(http_sse="/mcp", sessions=False)
    apart = ServerHarness(http_sse="/sse", sessions=False)
    assert SseClient(apart).open().say(PING).said == [result(7)]
    expect(apart.get(None), 405, "method_not_allowed")


@requirement("LEGACYSSE-S-009")
def test_a_post_with_a_token_is_of_http_sse(shared: ServerHarness) -> None:
    client = SseClient(shared, "/mcp").open()
    talk = client.post(PING, {"accept": None, "content-type": None, "mcp-session-id": "x"})
    assert (talk.status, talk.body) == (202, b"")
    assert client.said == [result(7)]


@pytest.mark.parametrize("query", ["", "?session_id=", "?x=1", "?session_id=a&session_id=b"])
def test_a_post_without_a_token_is_of_streamable_http(shared: ServerHarness, query: str) -> None:
    talk = shared.send("POST", {"accept": JSON}, PING, target=f"/mcp{query}")
    expect(talk, 406, "not_acceptable")


@pytest.mark.parametrize("method", ["DELETE", "PUT"])
def test_other_methods_are_of_streamable_http(shared: ServerHarness, method: str) -> None:
    client = SseClient(shared, "/mcp").open()
    refused = shared.send(method, target=client.uri)
    assert refused.status == {"DELETE": 400, "PUT": 405}[method]
    assert client.say(PING).said == [result(7)]


@pytest.mark.parametrize("path", ["/messages", "/messages/"])
def test_the_mcp_path_can_be_the_one_for_messages(path: str) -> None:
    harness = ServerHarness(path=path, http_sse="/sse")
    client = SseClient(harness).open()
    assert client.say(PING).said == [result(7)]
    expect(harness.send("GET", {"accept": STREAM}, target=path), 400, "session_required")
    talk = harness.send("POST", {"accept": BOTH, "content-type": JSON}, PING, target=path)
    expect(talk, 400, "session_required", id=7)


def test_the_stream_can_be_opened_where_messages_are_posted() -> None:
    harness = ServerHarness(http_sse="/messages")
    assert SseClient(harness, "/messages").open().say(PING).said == [result(7)]
    expect(harness.send("POST", {}, PING, target="/messages"), 400, "message_token_required")


# Both at the same time


@requirement("LEGACYSSE-S-008")
@pytest.mark.parametrize("path", ["/sse", "/mcp"])
def test_both_transports_serve_at_the_same_time_and_do_not_mix(path: str) -> None:
    harness = ServerHarness(http_sse=path)
    client = SseClient(harness, path).open("2024-11-05")
    session = harness.open_session()
    listener = harness.get(session)
    old = client.call(1)
    talk, new = harness.call(session, 1)
    harness.run_action(old.respond, {"for": "old"})
    harness.run_action(new.respond, {"for": "new"})
    for each in harness.server.sessions:
        harness.run_action(each.notify, f"notifications/{each.revision.name}")
    assert talk.json == result(1, {"for": "new"})
    assert client.said == [
        result(1, {"for": "old"}),
        {"jsonrpc": "2.0", "method": "notifications/2024-11-05"},
    ]
    assert [message["method"] for message in listener.messages] == [f"notifications/{LATEST}"]
    # A token is no session id, and a session id no token.
    token = client.uri.rpartition("=")[2]
    expect(harness.post(PING, token), 404, "session_not_found", id=7)
    client.uri = client.uri.replace(token, session)
    expect(client.post(PING), 404, "session_not_found")
    client.stream.lose_connection()
    assert len(harness.server.sessions) == 1
    assert harness.post(PING, session).json == result(7)


def test_the_end_of_a_session_leaves_the_other_transport_alone(shared: ServerHarness) -> None:
    client = SseClient(shared, "/mcp").open()
    session = shared.open_session()
    shared.send("DELETE", {"mcp-session-id": session})
    assert client.say(PING).said == [result(7)]
    assert shared.post(initialize()).status == 200


# Mounted in a larger application


def test_a_server_that_is_mounted_tells_the_whole_path() -> None:
    harness = ServerHarness(http_sse="/sse")
    stream = harness.send("GET", {"accept": STREAM}, target="/sse", root="/api/v1")
    assert (stream.events[0].data or "").startswith("/api/v1/messages?session_id=")
    headers = {"accept": BOTH, "content-type": JSON}
    talk = harness.send("POST", headers, PING, target="/sse", root="/api/v1")
    assert talk.error["data"]["mcpUrl"] == "/api/v1/mcp"
    talk = harness.send("POST", headers, PING, root="/api/v1")
    assert talk.error["data"]["httpSseUrl"] == "/api/v1/sse"
