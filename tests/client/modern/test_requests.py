"""Requests that say all there is to know, and the answers, on both transports."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from sansmcp import (
    InvalidResponse,
    JsonRpcError,
    LocalProtocolError,
    RequestRefused,
    RequestTimeout,
)
from sansmcp.events import (
    CallCompleted,
    Closed,
    MessageUndelivered,
    ProgressReceived,
    ProtocolViolation,
    ServerNotified,
)
from sansmcp.messages import Notification
from sansmcp.states import ClientState

from ..harness import URL, error, notification, only_failure, request, response
from .harness import (
    META,
    MODERN,
    PREFIX,
    TASKS,
    ModernClientHarness,
    ModernProcess,
    discovered,
    ends,
    failed,
    violations,
)

requirement = pytest.mark.requirement
VERSION = PREFIX + "protocolVersion"


@pytest.fixture
def harness() -> ModernClientHarness:
    """A client whose server needs no handshake."""
    return ModernClientHarness().connect()


# What is sent


@requirement(
    "MODERN-C-002",
    "MODERN-C-003",
    "MODERN-C-006",
    "MODERN-C-007",
    "HEADERS-C-001",
    "HEADERS-C-002",
    "HEADERS-C-003",
    "HEADERS-B-013",
    "JSONRPC-B-003",
)
@pytest.mark.parametrize("params", [None, {}, {"a": 1}, {"_meta": {"x": 1}}])
def test_every_request_says_all(harness: ModernClientHarness, params: Any) -> None:
    _, asked = harness.call("custom/method", params=params)
    message = asked.json
    sent = dict(params or {})
    more = sent.pop("_meta", {})
    assert message["params"].pop("_meta") == {**META, **more, "progressToken": asked.id}
    assert message == {"jsonrpc": "2.0", "id": 1, "method": "custom/method", "params": sent}
    assert asked.header("mcp-protocol-version") == MODERN
    assert asked.header("mcp-method") == "custom/method"
    assert asked.header("accept") == "application/json, text/event-stream"
    assert asked.header("content-type") == "application/json"
    for name in ("mcp-name", "mcp-session-id", "last-event-id"):
        assert asked.header(name) is None


@requirement("MODERN-C-006", "MODERN-C-007", "JSONRPC-B-003", "LIFECYCLE-C-008")
def test_every_line_says_all() -> None:
    harness = ModernProcess(
        name="mine", version="7", capabilities={"roots": {"listChanged": False}}
    ).connect()
    harness.run_command(harness.client.call, "x/y")
    (message,) = harness.written
    assert message == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "x/y",
        "params": {
            "_meta": {
                VERSION: MODERN,
                PREFIX + "clientCapabilities": {
                    "roots": {"listChanged": False},
                    "extensions": {TASKS: {}},
                },
                PREFIX + "clientInfo": {"name": "mine", "version": "7"},
                "progressToken": 1,
            }
        },
    }


@requirement("MODERN-C-007")
def test_who_we_are_may_be_kept_to_ourselves() -> None:
    harness = ModernClientHarness(name="mine", anonymous=True)
    asked = harness.start()
    assert "mine" not in str(asked.json)
    asked.answer(discovered(asked.id))
    assert PREFIX + "clientInfo" not in harness.call()[1].json["params"]["_meta"]


@requirement("MODERN-C-007")
@pytest.mark.both_eras
def test_a_handshake_tells_it_all_the_same() -> None:
    harness = ModernClientHarness(name="mine", anonymous=True)
    harness.start().refuse(400)
    assert harness.take().json["params"]["clientInfo"] == {"name": "mine", "version": "0"}


def test_an_application_cannot_speak_of_another_version(harness: ModernClientHarness) -> None:
    meta = {VERSION: "2099-01-01", PREFIX + "logLevel": "debug"}
    _, asked = harness.call(params={"name": "x", "_meta": meta})
    assert asked.json["params"]["_meta"][VERSION] == MODERN
    assert asked.json["params"]["_meta"][PREFIX + "logLevel"] == "debug"


@requirement("HEADERS-C-005", "HEADERS-C-017")
@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "query", "uri": "u"}, "query"),
        ("prompts/get", {"name": "a prompt"}, "a prompt"),
        ("resources/read", {"uri": "file:///a%20b", "name": "n"}, "file:///a%20b"),
        ("resources/list", {"name": "n", "uri": "u"}, None),
        ("tools/call", {"name": 5}, None),
        ("tools/call", {}, None),
    ],
)
def test_the_name_is_repeated_in_a_header(
    harness: ModernClientHarness, method: str, params: Any, name: str | None
) -> None:
    _, asked = harness.call(method, params=params)
    assert asked.header("mcp-name") == name
    assert asked.header("mcp-method") == method


@requirement("HEADERS-C-006", "HEADERS-C-015", "HEADERS-C-016")
@pytest.mark.parametrize(
    "name", ["Zürich", " x", "x\t", "a\r\nx-evil: 1", "\x00", "=?base64?eA==?=", ""]
)
def test_names_that_are_not_safe_are_encoded(harness: ModernClientHarness, name: str) -> None:
    _, asked = harness.call("resources/read", params={"uri": name})
    header = asked.header("mcp-name")
    assert header == f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    assert asked.json["params"]["uri"] == name


def test_further_headers_are_sent_too() -> None:
    harness = ModernClientHarness(headers=((b"authorization", b"Bearer x"),)).connect()
    assert harness.call()[1].header("authorization") == "Bearer x"


@requirement("MODERN-C-001", "MODERN-C-003", "HEADERS-C-001")
def test_every_message_is_a_post_of_its_own() -> None:
    """Neither the number of the POSTs nor where they go was looked at."""
    harness = ModernClientHarness()
    posts = [harness.start()]
    posts[0].answer(discovered(posts[0].id))
    harness.run_command(harness.client.notify, "notifications/one")
    harness.run_command(harness.client.call, "tools/call", {"name": "x"})
    harness.run_command(harness.client.notify, "notifications/two")
    harness.run_command(harness.client.call, "tools/list")
    posts += harness.requests
    assert [post.json["method"] for post in posts] == [
        "server/discover",
        "notifications/one",
        "tools/call",
        "notifications/two",
        "tools/list",
    ]
    for post in posts:
        assert (post.method, post.effect.url) == ("POST", URL)
        assert post.header("mcp-protocol-version") == MODERN


@requirement("MODERN-C-003", "HEADERS-C-001", "HEADERS-C-004")
def test_notifications(harness: ModernClientHarness) -> None:
    harness.run_command(harness.client.notify, "notifications/custom", {"a": 1, "_meta": {"x": 1}})
    asked = harness.take()
    assert asked.json == {
        "jsonrpc": "2.0",
        "method": "notifications/custom",
        "params": {"a": 1, "_meta": {VERSION: MODERN, "x": 1}},
    }
    assert asked.header("mcp-method") == "notifications/custom"
    assert asked.header("mcp-protocol-version") == MODERN
    asked.accept()
    assert harness.events == []
    harness.run_command(harness.client.notify, "notifications/custom")
    harness.take().refuse(404, b"no")
    (event,) = harness.events
    assert isinstance(event, MessageUndelivered)


@pytest.mark.parametrize("params", [{"_meta": 5}, {"x": float("nan")}])
def test_parameters_that_cannot_be_sent_change_nothing(
    harness: ModernClientHarness, params: Any
) -> None:
    for command in (harness.client.notify, harness.client.call):
        with pytest.raises(LocalProtocolError):
            command("x", params, now=0)
    harness.run_pending()
    assert harness.requests == []


@requirement("SUBS-B-001")
def test_there_is_no_get_and_no_delete(harness: ModernClientHarness) -> None:
    assert harness.requests == []
    harness.call()[1].result()
    harness.run_command(harness.client.close)
    assert harness.requests == []
    assert harness.events[-1] == Closed(None)
    assert harness.client.state is ClientState.CLOSED


@requirement("JSONRPC-B-006", "CANCEL-C-007")
def test_ids_are_not_used_again(harness: ModernClientHarness) -> None:
    ids: list[int] = []
    for _ in range(3):
        handle, asked = harness.call()
        ids.append(asked.id)
        harness.run_command(harness.client.cancel, handle)
    assert len(set(ids)) == 3


# What is answered


@requirement("MODERN-C-005", "JSONRPC-C-002")
@pytest.mark.parametrize("kind", ["complete", None])
@pytest.mark.parametrize("streams", [True, False])
def test_an_answer(harness: ModernClientHarness, streams: bool, kind: str | None) -> None:
    handle, asked = harness.call()
    result: dict[str, Any] = {"content": [], "_meta": {PREFIX + "serverInfo": {"name": "s"}}}
    if kind is not None:
        result["resultType"] = kind
    if streams:
        asked.open_stream()
        asked.event(response(asked.id, result))
    else:
        asked.result(result)
    assert harness.events == [CallCompleted(handle, result)]
    if streams:
        asked.end()
    assert not asked.aborted
    assert harness.client.next_deadline() is None


@requirement("MODERN-C-005", "SESSION-C-006")
def test_a_stream(harness: ModernClientHarness) -> None:
    handle, asked = harness.call()
    asked.head(content_type="text/event-stream", mcp_session_id="s-1")
    asked.event(notification("notifications/message", data="x"))
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    asked.event(b"", id="e-0", retry=1)
    asked.event(response(asked.id), id="e-1")
    asked.end()
    assert harness.events == [
        ServerNotified(handle, Notification("notifications/message", {"data": "x"})),
        ProgressReceived(call=handle, progress=1),
        CallCompleted(handle, {}),
    ]
    assert harness.call()[1].header("mcp-session-id") is None


def test_ids_of_events_mean_nothing(harness: ModernClientHarness) -> None:
    """The same id twice is two events, and nothing is resumed after one."""
    handle, asked = harness.call(idempotent=False)
    asked.open_stream()
    asked.event(notification("a"), id="1")
    asked.event(notification("b"), id="1")
    asked.cut()
    assert [type(event) for event in harness.events[:2]] == [ServerNotified] * 2
    assert "the outcome is unknown" in str(only_failure(harness, handle))
    harness.wait(100)
    assert harness.requests == []


@pytest.mark.parametrize("tasks", [True, False])
def test_a_request_may_declare_other_capabilities(tasks: bool) -> None:
    """A gateway declares what its own client can do; the client itself follows tasks."""
    harness = ModernProcess(capabilities={"roots": {}}, tasks=tasks).connect()
    followed: Any = {"extensions": {TASKS: {}}} if tasks else {}
    cases: Any = (
        ({"capabilities": {"sampling": {}}}, {"sampling": {}}),
        ({"capabilities": {}}, {}),
        ({}, {"roots": {}}),
    )
    for given, declared in cases:
        harness.run_command(harness.client.call, "x/y", **given)
        meta = harness.written[-1]["params"]["_meta"]
        assert meta[PREFIX + "clientCapabilities"] == {**declared, **followed}
    with pytest.raises(LocalProtocolError):
        harness.client.call("x/y", capabilities={"x": object()}, now=harness.now)


@requirement("MODERN-C-004", "MRTR-C-008")
@pytest.mark.parametrize("method", ["ping", "elicitation/create", "roots/list", "x"])
def test_requests_of_the_server_are_violations(method: str) -> None:
    harness = ModernClientHarness(capabilities={"elicitation": {}, "roots": {}}).connect()
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(request("q", method))
    assert violations(harness) == ["unexpected_request"]
    assert harness.run_command(harness.client.respond, "q", {}) is False
    asked.event(response(asked.id))
    assert harness.events[-1] == CallCompleted(handle, {})
    assert harness.requests == []


@requirement("MODERN-C-004", "STDIO-C-011")
def test_so_they_are_on_stdio() -> None:
    harness = ModernProcess().connect()
    harness.ask(method="ping")
    assert violations(harness) == ["unexpected_request"]
    assert harness.written == []


@requirement("JSONRPC-C-003")
@pytest.mark.parametrize("kind", ["incomplete", "x" * 1000, 5, None, ["complete"]])
def test_a_result_of_an_unknown_kind(harness: ModernClientHarness, kind: Any) -> None:
    handle, asked = harness.call()
    asked.result({"resultType": kind})
    failure = only_failure(harness, handle)
    assert isinstance(failure, InvalidResponse)
    assert "unknown resultType" in str(failure)
    assert len(str(failure)) < 200


@pytest.mark.parametrize("result", [[], "x", 5])
def test_a_result_without_members_is_complete(harness: ModernClientHarness, result: Any) -> None:
    handle, asked = harness.call()
    asked.result(result)
    assert harness.events == [CallCompleted(handle, result)]


@requirement("JSONRPC-B-012", "JSONRPC-B-015", "JSONRPC-B-049")
@pytest.mark.parametrize("status", [200, 400, 404, 422, 500])
@pytest.mark.parametrize("code", [-32001, -32004, -32019, -32021, -32601, -32602, 7])
@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_errors_with_the_right_id_are_answers_at_any_status(
    harness: ModernClientHarness, status: int, code: int, method: str
) -> None:
    handle, asked = harness.call(method)
    asked.answer(failed(asked.id, code, "no", {"x": [1]}), status)
    failure = only_failure(harness, handle)
    assert isinstance(failure, JsonRpcError)
    assert (failure.code, failure.data) == (code, {"x": [1]})
    assert failure.http_status == (None if status == 200 else status)
    assert harness.requests == []


@requirement("VERS-C-013")
def test_404_says_nothing_about_the_server(harness: ModernClientHarness) -> None:
    handle, asked = harness.call("no/such")
    asked.answer(error(asked.id, -32601), 404)
    assert isinstance(only_failure(harness, handle), JsonRpcError)
    _, asked = harness.call()
    assert asked.header("mcp-protocol-version") == MODERN


@requirement("HEADERS-C-023", "HEADERS-B-010")
@pytest.mark.parametrize("status", [202, 400, 401, 404, 405, 413, 431, 500, 501])
@pytest.mark.parametrize("body", [b"", b"too much", json.dumps(error("other", -32600)).encode()])
def test_other_refusals_are_reported(
    harness: ModernClientHarness, status: int, body: bytes
) -> None:
    handle, asked = harness.call("tools/list")
    asked.refuse(status, body)
    failure = only_failure(harness, handle)
    assert isinstance(failure, RequestRefused)
    assert (failure.status, failure.body) == (status, body)
    assert harness.requests == []
    assert harness.client.state is ClientState.READY


def test_an_error_without_id_on_the_stream_is_the_answer(harness: ModernClientHarness) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "error": {"code": 5, "message": "x"}})
    assert isinstance(only_failure(harness, handle), JsonRpcError)


def test_what_is_no_message(harness: ModernClientHarness) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(b"{")
    asked.event([notification("a"), 5])
    assert [type(event) for event in harness.events] == [
        ProtocolViolation,
        ServerNotified,
        ProtocolViolation,
    ]
    harness.events.clear()
    asked.event({"jsonrpc": "2.0", "id": asked.id, "result": {}, "error": 5})
    assert isinstance(only_failure(harness, handle), InvalidResponse)


@pytest.mark.parametrize("streams", [True, False])
def test_an_answer_that_cannot_be_read(harness: ModernClientHarness, streams: bool) -> None:
    handle, asked = harness.call()
    if streams:
        asked.open_stream()
        asked.event({"jsonrpc": "2.0", "id": asked.id})
    else:
        asked.answer(b"{")
    assert isinstance(only_failure(harness, handle), InvalidResponse)


# Time


def test_progress_puts_the_timeout_off(harness: ModernClientHarness) -> None:
    handle, asked = harness.call(timeout=5)
    asked.open_stream()
    harness.wait(4)
    asked.event(notification("notifications/progress", progressToken=asked.id, progress=1))
    harness.wait(4)
    assert ends(harness) == []
    harness.wait(1)
    assert isinstance(only_failure(harness, handle), RequestTimeout)
