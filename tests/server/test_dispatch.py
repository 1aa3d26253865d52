"""The ladder for every request, GET and DELETE: each row has its own status, error and reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import pytest

from sansmcp import BodyData, BodyEnd, Limits, ProtectedResource, RequestHead, SecurityPolicy
from sansmcp.events import CallReceived
from sansmcp.server.cors import is_preflight
from sansmcp.server.era_choice import is_http_sse
from sansmcp.server.health import is_health_request
from sansmcp.server.legacy.session_validation import VALIDATORS
from sansmcp.server.options import ServerOptions
from sansmcp.server.resource_metadata import is_metadata_request
from sansmcp.server.validation import (
    MCP_PATH,
    POST,
    Endpoint,
    RequestContext,
    check_mcp_path,
    marks_of_post,
)

from .harness import (
    BOTH,
    JSON,
    PING,
    STREAM,
    RawExchange,
    ServerHarness,
    expect,
    initialize,
    methods,
    request,
)

requirement = pytest.mark.requirement


def test_the_order_of_the_rows() -> None:
    assert names(MCP_PATH) == [
        "validate_path",
        "validate_host_and_origin",
        "validate_content_length",
        "validate_http_method",
    ]
    assert names(POST) == ["validate_accept", "validate_content_type"]
    assert names(VALIDATORS[b"GET"]) == [
        "validate_stream_accept",
        "validate_version",
        "validate_session_exists",
        "validate_get_supported",
        "validate_session_given",
        "validate_stream_offered",
    ]
    assert names(VALIDATORS[b"DELETE"]) == [
        "validate_delete_supported",
        "validate_deletion_allowed",
        "validate_version",
        "validate_session_given",
        "validate_session_exists",
    ]
    assert VALIDATORS.keys() - {b"GET", b"DELETE"} == {b"POST"}
    assert VALIDATORS[b"POST"] == ()


def names(rows: Iterable[Callable[..., object]]) -> list[str]:
    return [row.__name__ for row in rows]


# Every request


@pytest.mark.parametrize("target", ["/", "/mcp2", "/mcp/x", "*", "//mcp"])
def test_another_path(harness: ServerHarness, target: str) -> None:
    expect(harness.send("POST", {"accept": BOTH}, PING, target=target), 404, "not_found")


@pytest.mark.parametrize("target", ["/mcp", "/mcp/", "/mcp?x=1"])
def test_the_path_with_and_without_slash(harness: ServerHarness, target: str) -> None:
    expect(harness.send("POST", {}, PING, target=target), 415, "unsupported_media_type")


@requirement("SEC-S-001", "SEC-S-002", "SEC-S-003", "JSONRPC-B-016")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT"])
def test_origin_and_host(harness: ServerHarness, method: str) -> None:
    expect(harness.send(method, {"origin": "http://evil.example"}), 403, "origin_not_allowed")
    expect(harness.send(method, {"host": "evil.example"}), 403, "host_not_allowed")
    expect(harness.send(method, {"host": None}), 403, "host_not_allowed")


def test_what_the_policy_allows() -> None:
    harness = ServerHarness(policy=SecurityPolicy(allowed_hosts=("mcp.example",)))
    allowed = harness.send("GET", {"host": "mcp.example", "origin": "https://mcp.example"})
    expect(allowed, 400, "session_required")


@pytest.mark.parametrize("length", ["1001", "9" * 30, "-1", "x", "1_0"])
def test_a_body_that_says_it_is_too_large_is_not_read(length: str) -> None:
    harness = ServerHarness(limits=Limits(max_message_bytes=1000))
    head = RequestHead(
        method=b"POST",
        target=b"/mcp",
        headers=((b"host", b"localhost"), (b"content-length", length.encode())),
    )
    expect(RawExchange(harness).feed(head), 413, "message_too_large")


@pytest.mark.parametrize("size", [1, 100, 1001])
def test_a_body_that_turns_out_too_large(size: int) -> None:
    harness = ServerHarness(limits=Limits(max_message_bytes=1000))
    head = RequestHead(
        method=b"POST",
        target=b"/mcp",
        headers=(
            (b"host", b"localhost"),
            (b"accept", BOTH.encode()),
            (b"content-type", JSON.encode()),
        ),
    )
    talk = RawExchange(harness).feed(head)
    for _ in range(1001 // size + 1):
        talk.feed(BodyData(b" " * size))
    expect(talk, 413, "message_too_large")
    body = talk.body
    talk.feed(BodyData(b"more")).feed(BodyEnd())
    assert talk.body == body


def test_a_body_just_within_the_limit() -> None:
    harness = ServerHarness(limits=Limits(max_message_bytes=1000))
    expect(harness.post(b" " * 1000), 400, "malformed_json", -32700)


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "PATCH", "TRACE", "get"])
def test_http_methods(harness: ServerHarness, method: str) -> None:
    talk = harness.send(method)
    expect(talk, 405, "method_not_allowed")
    assert talk.header("allow") == "POST, GET, DELETE"


def test_the_answer_to_head_has_the_length_of_a_body_and_none(harness: ServerHarness) -> None:
    """A body breaks what reads the next answer."""
    talk, other = harness.send("HEAD"), harness.send("PUT")
    assert (talk.status, talk.header("allow")) == (405, "POST, GET, DELETE")
    assert int(talk.header("content-length") or 0) > 0 == len(talk.body)
    assert len(other.body) == int(other.header("content-length") or 0)


# GET


@requirement("SHTTP-C-010", "SHTTP-S-019")
@pytest.mark.parametrize("accept", [None, "*/*", "text/*", f"text/html, {STREAM};q=0.1"])
def test_get_may_ask_for_a_stream_in_many_ways(harness: ServerHarness, accept: str | None) -> None:
    """Plain tools say that they take anything, or nothing at all."""
    talk = harness.get(harness.open_session(), headers={"accept": accept})
    assert (talk.status, talk.header("content-type")) == (200, STREAM)


@requirement("SHTTP-C-010", "SHTTP-S-019")
@pytest.mark.parametrize("accept", [JSON, f"{STREAM};q=0", f"*/*, {STREAM};q=0", "text/html"])
def test_get_must_not_exclude_a_stream(harness: ServerHarness, accept: str | None) -> None:
    talk = harness.get(None, headers={"accept": accept})
    expect(talk, 406, "not_acceptable")
    assert talk.error["message"] == "GET here opens an event stream: send Accept: text/event-stream"
    assert talk.error["data"]["required"] == [STREAM]


@requirement("SHTTP-S-001")
def test_one_path_is_for_everything(harness: ServerHarness) -> None:
    session = harness.open_session()
    assert harness.post(request(1, "ping"), session).status == 200
    assert harness.get(session).status == 200
    assert harness.send("DELETE", {"mcp-session-id": session}).status == 200


@pytest.mark.parametrize("accept", [STREAM, "text/*", f"{JSON}, {STREAM}; charset=utf-8"])
def test_get_that_does(harness: ServerHarness, accept: str) -> None:
    assert harness.get(harness.open_session(), headers={"accept": accept}).status == 200


@requirement("SESSION-S-006", "SESSION-S-011")
def test_unknown_and_foreign_sessions(harness: ServerHarness) -> None:
    expect(harness.get("nope"), 404, "session_not_found")
    session = harness.open_session(principal="alice")
    expect(harness.get(session), 404, "session_not_found")
    expect(harness.get(session, principal="bob"), 404, "session_not_found")
    expect(harness.get(session, "x-1", principal="bob"), 404, "session_not_found")
    assert harness.get(session, principal="alice").status == 200


@pytest.mark.parametrize("cursor", ["", "nonsense", "unknown-token-0001-3", "a b-1", "ÿ-1"])
def test_unknown_cursors(harness: ServerHarness, cursor: str) -> None:
    expect(harness.get(harness.open_session(), cursor), 400, "unknown_event_id")


@requirement("SHTTP-S-019")
def test_no_listener_offered() -> None:
    harness = ServerHarness(standalone_streams=False)
    talk = harness.get(harness.open_session())
    expect(talk, 405, "method_not_allowed")
    assert talk.header("allow") == "POST"


def test_no_session(harness: ServerHarness) -> None:
    talk = harness.get(None)
    expect(talk, 400, "session_required")
    assert talk.error["message"] == (
        "No Mcp-Session-Id: POST initialize to this URL first, then GET with the id it returns. "
        "The HTTP+SSE transport is not served on this URL"
    )
    assert talk.error["data"] == {
        "reason": "session_required",
        "transports": ["streamable-http"],
        "httpSseUrl": None,
    }


def test_without_sessions_there_is_nothing_to_listen_to() -> None:
    expect(ServerHarness(sessions=False).get(None), 405, "method_not_allowed")


@requirement("VERS-S-002")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_unknown_version_on_get_and_delete(harness: ServerHarness, method: str) -> None:
    session = harness.open_session()
    headers = {"accept": STREAM, "mcp-session-id": session, "mcp-protocol-version": "draft"}
    expect(harness.send(method, headers), 400, "unsupported_version", -32022)


# DELETE


@requirement("SESSION-S-007")
def test_nothing_to_delete_without_sessions() -> None:
    talk = ServerHarness(sessions=False).send("DELETE")
    expect(talk, 405, "method_not_allowed")
    assert talk.header("allow") == "POST"


@requirement("SESSION-S-004", "SESSION-S-006")
def test_delete(harness: ServerHarness) -> None:
    session = harness.open_session()
    expect(harness.send("DELETE"), 400, "session_required")
    expect(harness.send("DELETE", {"mcp-session-id": "nope"}), 404, "session_not_found")
    foreign = harness.send("DELETE", {"mcp-session-id": session}, principal="eve")
    expect(foreign, 404, "session_not_found")
    done = harness.send("DELETE", {"mcp-session-id": session})
    assert (done.status, done.body) == (200, b"")
    expect(harness.send("DELETE", {"mcp-session-id": session}), 404, "session_not_found")


# Any refusal


def test_after_every_refusal_the_server_serves(harness: ServerHarness) -> None:
    session = harness.open_session()
    for body in (b"", b"{", b"[]", b"\xff", b'{"jsonrpc":"2.0","id":1,"method":1}'):
        harness.post(body, session)
        assert harness.post(PING, session).json == {"jsonrpc": "2.0", "id": 7, "result": {}}
        assert harness.post(initialize()).status == 200


def test_a_request_that_was_refused_by_its_head_is_not_read(harness: ServerHarness) -> None:
    head = RequestHead(method=b"POST", target=b"/nope", headers=((b"host", b"localhost"),))
    talk = RawExchange(harness).feed(head)
    expect(talk, 404, "not_found")
    talk.feed(BodyData(PING)).feed(BodyEnd()).lose_connection()
    assert not any(isinstance(event, CallReceived) for event in harness.events)


def test_a_server_that_shuts_down_takes_nothing_new(harness: ServerHarness) -> None:
    session = harness.open_session()
    harness.run_action(harness.server.drain)
    expect(harness.post(PING, session), 503, "shutting_down", id=7)


def test_a_server_that_shuts_down_still_hears_about_what_runs(harness: ServerHarness) -> None:
    session = harness.open_session(capabilities={"elicitation": {}})
    talk, call = harness.call(session, 1)
    id = harness.run_action(call.ask, "elicitation/create", {}, timeout=60.0)
    harness.run_action(harness.server.drain)
    assert harness.post({"jsonrpc": "2.0", "id": id, "result": {}}, session).status == 202
    harness.run_action(call.respond, {})
    assert methods(talk) == ["elicitation/create", "answer"]
    expect(harness.get(session), 503, "shutting_down")


RESOURCE = ProtectedResource(
    resource="https://a.example/mcp", authorization_servers=("https://b.example",)
)

GOOD = {
    "host": "localhost",
    "origin": None,
    "accept": BOTH,
    "content-type": JSON,
    "content-length": None,
}


@pytest.mark.parametrize(
    ("changed", "target", "root", "status"),
    [
        ({}, "/mcp", "", 200),
        ({}, "/mcp?a=b", "", 200),
        ({}, "/mcp/", "/below", 200),
        ({}, "/elsewhere", "", 404),
        ({}, "/healthz", "", 405),
        ({"host": "evil.example"}, "/mcp", "", 403),
        ({"origin": "http://evil.example"}, "/mcp", "", 403),
        ({"accept": "text/html"}, "/mcp", "", 406),
        ({"content-type": "text/plain"}, "/mcp", "", 415),
        ({"content-length": "10000"}, "/mcp", "", 413),
        ({"host": None}, "/mcp", "", 403),
        ({"content-type": None}, "/mcp", "", 415),
    ],
)
def test_a_head_after_one_that_has_passed_is_checked_as_the_first(
    changed: dict[str, str | None], target: str, root: str, status: int
) -> None:
    harness = ServerHarness(
        sessions=False, health_path="/healthz", limits=Limits(max_request_bytes=1000)
    )
    alone = ServerHarness(
        sessions=False, health_path="/healthz", limits=Limits(max_request_bytes=1000)
    )
    body = json.dumps(initialize()).encode()
    assert harness.send("POST", GOOD, body).status == 200
    for each in (harness, harness, alone):
        talk = each.send("POST", {**GOOD, **changed}, body, target=target, root=root)
        assert talk.status == status
        assert each.send("POST", GOOD, body).status == 200


def test_all_that_the_checks_of_a_post_read_is_among_its_marks() -> None:
    """Otherwise a head could pass because another one has."""

    class Head(RequestHead):
        read: ClassVar[set[bytes]] = set()

        def values(self, name: bytes) -> Sequence[bytes]:
            self.read.add(name)
            return super().values(name)

    endpoint = Endpoint(
        ServerOptions(),
        path=b"/mcp",
        sse_path=b"/mcp",
        health_path=b"/healthz",
    )
    fields = tuple((n.encode(), v.encode()) for n, v in GOOD.items() if v is not None)
    head = Head(method=b"POST", target=b"/mcp", headers=fields)
    marks_of_post(head)
    marks = Head.read | {b"content-length"}
    Head.read = set()
    check_mcp_path(RequestContext(endpoint, head))
    is_health_request(endpoint, head)
    is_metadata_request(RESOURCE, head)
    is_preflight(endpoint, head)
    is_http_sse(endpoint, head)
    assert Head.read <= marks
    assert {b"host", b"accept"} <= Head.read
