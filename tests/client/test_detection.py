"""Which transport a server speaks, found out by what it answers; the replies are recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sansmcp import (
    Disconnected,
    JsonRpcError,
    KnownServers,
    NegotiationFailed,
    RequestRefused,
    RequestTimeout,
)
from sansmcp.events import CallFailed, Connected
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS

from .detection_harness import (
    JSON,
    NOT_ACCEPTABLE,
    SESSION_REQUIRED,
    SSE_URL_POSTED,
    by_http_sse,
    by_streamable_http,
    failure,
    started,
)
from .harness import POLICY, SESSION, URL, ClientHarness, error, initialized
from .sse_harness import tell_endpoint

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ClientHarness:
    """A client that has sent ``initialize`` to a server of which nothing is known."""
    return started(KnownServers())


# What the answer to POST initialize says


@requirement("LEGACYSSE-C-015", "LEGACYSSE-C-011")
def test_a_result_means_streamable_http(harness: ClientHarness) -> None:
    by_streamable_http(harness)
    assert harness.requests == []
    _, asked = harness.call()
    assert asked.header("mcp-session-id") == SESSION


@requirement(
    "LEGACYSSE-C-011",
    "LEGACYSSE-C-013",
    "LEGACYSSE-C-014",
    "LEGACYSSE-C-016",
)
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"", {}),
        (400, b"Bad Request: Missing session ID", {"content_type": "text/plain"}),
        (404, b'{"detail":"Not Found"}', JSON),
        (404, b"<!DOCTYPE html><title>404</title>", {"content_type": "text/html"}),
        (405, b'{"detail":"Method Not Allowed"}', {**JSON, "allow": "GET"}),
        (405, SSE_URL_POSTED, {**JSON, "allow": "GET"}),
        (406, NOT_ACCEPTABLE, JSON),
        (410, b"", {}),
        (415, b"", {}),
        (422, b'{"detail":[{"loc":["query","session_id"]}]}', JSON),
        (418, b"", {}),
    ],
)
def test_a_refusal_leads_to_a_get_of_the_same_url(
    harness: ClientHarness, status: int, body: bytes, headers: Mapping[str, str]
) -> None:
    harness.take().refuse(status, body, **headers)
    (asked,) = harness.requests
    assert (asked.effect.url, asked.header("accept")) == (URL, "text/event-stream")
    assert asked.header("mcp-session-id") is None
    assert asked.header("mcp-protocol-version") is None
    by_http_sse(harness)
    _, asked = harness.call()
    assert asked.effect.url == "http://localhost:8000/messages?s=4f1c"


@requirement("AUTH-C-026")
@pytest.mark.parametrize(
    "status", [302, 401, 403, 407, 408, 413, 425, 429, 431, 500, 501, 502, 503, 504, 202, 204]
)
def test_other_refusals_decide_nothing_and_are_reported_at_once(status: int) -> None:
    known_servers = KnownServers()
    harness = started(known_servers)
    harness.take().refuse(status, b"because")
    error = failure(harness)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.http_method, error.url) == (status, "POST", URL)
    assert f"POST {URL} was answered with HTTP {status}" in str(error)
    assert started(known_servers).take().method == "POST"  # nothing is remembered


@requirement("LEGACYSSE-C-014")
@pytest.mark.parametrize("status", [200, 400, 404, 405])
@pytest.mark.parametrize(("code", "id"), [(-32601, 0), (-32602, 0), (-32021, 0), (-32020, None)])
def test_an_error_of_an_mcp_server_is_its_answer(
    harness: ClientHarness, status: int, code: int, id: int | None
) -> None:
    harness.take().answer(error(id, code, "speak 2026-07-28"), status)
    reported = failure(harness)
    assert isinstance(reported, JsonRpcError)
    assert (reported.code, reported.message) == (code, "speak 2026-07-28")
    assert reported.http_status == (None if status == 200 else status)


@requirement("LIFECYCLE-B-003")
@pytest.mark.parametrize("id", [0, None])
@pytest.mark.parametrize(
    ("supported", "theirs", "said"),
    [
        (["2026-07-28", "2027-01-01"], "2026-07-28, 2027-01-01", ""),
        ([], "other versions", ": too old (code -32022)"),
        (5, "other versions", ": too old (code -32022)"),
    ],
)
def test_a_server_of_newer_versions_only(
    harness: ClientHarness, id: int | None, supported: Any, theirs: str, said: str
) -> None:
    answer = error(id, -32022, "too old")
    answer["error"]["data"] = {"supported": supported}
    harness.take().answer(answer, 400)
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    ours = "2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25"
    assert str(reported) == f"The server speaks {theirs}, and not {ours}{said}"


@pytest.mark.parametrize("silent", [False, True])
def test_a_server_out_of_reach_decides_nothing(harness: ClientHarness, silent: bool) -> None:
    asked = harness.take()
    if silent:
        harness.wait(30)
    else:
        asked.cut("connection refused")
    assert isinstance(failure(harness), RequestTimeout if silent else Disconnected)


# The 406 story


def test_a_server_of_http_sse_is_reached_by_a_detour(harness: ClientHarness) -> None:
    """A server of 2024-11-05: POST to its stream is answered by 405."""
    handle = harness.run_command(harness.client.call, "tools/list")
    harness.take().refuse(405, SSE_URL_POSTED, **JSON, allow="GET")
    assert harness.events == []  # nobody needs to know
    stream = harness.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    asked = harness.take()
    asked.accept()
    stream.event(initialized(asked.id, "2024-11-05"))
    harness.take().accept()
    (event,) = harness.take_events()
    assert isinstance(event, Connected)
    assert (event.transport, event.version) == ("http+sse", "2024-11-05")
    asked = harness.take()
    stream.event({"jsonrpc": "2.0", "id": asked.id, "result": {}})
    (completed,) = harness.events
    assert getattr(completed, "call", None) == handle


def test_once_something_has_worked_the_detour_is_history() -> None:
    harness = started(KnownServers(), policy=POLICY)
    harness.take().refuse(405)
    stream = by_http_sse(harness)
    stream.cut()
    harness.wait(0.5)
    harness.take("GET").refuse(404)
    assert isinstance(failure(harness), RequestRefused)


@requirement("LEGACYSSE-C-017")
def test_when_all_fail_the_error_tells_every_attempt(harness: ClientHarness) -> None:
    handle = harness.run_command(harness.client.call, "tools/list")
    harness.take().refuse(406, NOT_ACCEPTABLE, **JSON)
    harness.take("GET").refuse(400, SESSION_REQUIRED, **JSON)
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    assert str(reported).split("\n") == [
        f"No MCP transport works at {URL}:",
        f"- streamable-http: initialize was refused: POST {URL} was answered with HTTP 406: "
        "Not Acceptable: Client must accept text/event-stream",
        f"- http+sse: opening the event stream was refused: GET {URL} was answered with HTTP 400: "
        "No Mcp-Session-Id: POST initialize to this URL first (session_required)",
    ]
    post, get = reported.attempts
    assert isinstance(post, RequestRefused)
    assert isinstance(get, RequestRefused)
    assert (post.http_method, post.url, post.status, post.reason) == ("POST", URL, 406, None)
    assert (get.http_method, get.url, get.status) == ("GET", URL, 400)
    assert get.reason == "session_required"
    assert (post.body, get.body) == (NOT_ACCEPTABLE, SESSION_REQUIRED)
    failed = harness.events[0]
    assert isinstance(failed, CallFailed)
    assert failed.call == handle
    assert failed.error.__cause__ is reported


@requirement("LEGACYSSE-C-017")
@pytest.mark.parametrize(
    ("how", "part"),
    [
        ("refused", "HTTP 405: no explanation"),
        ("html", "text/html instead of JSON or an event stream: <html>"),
        ("unauthorized", "HTTP 401"),
        ("message", "another event than endpoint"),
        ("json", "JSON instead"),
        ("cut", "cable cut"),
        ("silence", "no endpoint event within 30 s"),
        ("origin", "another origin, http://evil.example"),
    ],
)
def test_whatever_the_get_brings_both_attempts_are_told(
    harness: ClientHarness, how: str, part: str
) -> None:
    harness.take().refuse(404, b"nothing here")
    asked = harness.take("GET")
    if how == "refused":
        asked.refuse(405)
    elif how == "html":
        asked.refuse(200, b"<html>", content_type="text/html")
    elif how == "unauthorized":
        asked.refuse(401)
    elif how == "json":
        asked.answer(error(None))
    elif how == "cut":
        asked.cut()
    elif how == "silence":
        harness.wait(30)
    else:
        asked.open_stream()
        if how == "message":
            asked.event(b"{}")
        else:
            tell_endpoint(asked, "http://evil.example/")
    reported = failure(harness)
    assert isinstance(reported, NegotiationFailed)
    assert len(reported.attempts) == 2
    for attempt, line in zip(reported.attempts, str(reported).split("\n")[1:], strict=True):
        assert line.endswith(str(attempt))
    assert "HTTP 404: nothing here" in str(reported)
    assert f"GET {URL}" in str(reported)
    assert part in str(reported)


@pytest.mark.parametrize("status", [404, 503])
def test_an_endpoint_that_does_not_take_initialize(harness: ClientHarness, status: int) -> None:
    harness.take().refuse(405)
    stream = harness.take("GET")
    stream.open_stream()
    tell_endpoint(stream)
    harness.take().refuse(status)
    reported = failure(harness)
    assert stream.aborted
    assert isinstance(reported, NegotiationFailed)
    assert "/messages?... was answered with HTTP" in str(reported)


@pytest.mark.parametrize(
    ("answer", "headers", "said"),
    [
        (b"", {}, "no content instead of JSON or an event stream"),
        (b"hi", {}, "content without a type instead of JSON or an event stream: hi"),
        (
            b"hi",
            {"content_type": "text/plain"},
            "text/plain instead of JSON or an event stream: hi",
        ),
    ],
)
def test_a_success_that_is_no_answer(
    harness: ClientHarness, answer: bytes, headers: dict[str, str], said: str
) -> None:
    harness.take().refuse(200, answer, **headers)
    assert str(failure(harness)).endswith(f"was answered with HTTP 200: {said}")


def test_who_did_not_answer_is_told(harness: ClientHarness) -> None:
    harness.take().cut("cable cut")
    assert str(failure(harness)) == f"initialize got no response from {URL}: cable cut"


def test_who_was_silent_is_told(harness: ClientHarness) -> None:
    harness.take()
    harness.wait(30)
    assert (
        str(failure(harness))
        == f"initialize got no response from {URL} within 30 s (connect_timeout)"
    )


def test_whose_answer_breaks_the_protocol_is_told(harness: ClientHarness) -> None:
    harness.take().refuse(200, b"hi", **JSON)
    said = f"The response to initialize from {URL} breaks the protocol: Not valid JSON"
    assert str(failure(harness)).startswith(said)


# Servers that open the event stream of HTTP+SSE for a POST, too


@pytest.mark.parametrize("versions", [HANDSHAKE_VERSIONS, tuple(REVISIONS)])
def test_an_endpoint_event_means_http_sse_whatever_opened_the_stream(
    versions: tuple[str, ...],
) -> None:
    harness = ClientHarness(versions=versions)
    harness.run_command(harness.client.start)
    posted = harness.take()
    posted.open_stream()
    tell_endpoint(posted)
    assert posted.aborted
    by_http_sse(harness)


def test_a_client_that_must_not_use_it_says_so() -> None:
    harness = ClientHarness(transports=("streamable-http",))
    harness.run_command(harness.client.start)
    posted = harness.take()
    posted.open_stream()
    tell_endpoint(posted)
    assert "an event stream of HTTP+SSE, the transport 'http+sse'" in str(failure(harness))
