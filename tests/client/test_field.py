"""What servers, gateways and proxies were seen to send, by public reports; each names its source.

The first table is of responses to a call over Streamable HTTP; the later tests are about the rest.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    BodyData,
    BodyEnd,
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    NegotiationFailed,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)
from sansmcp.events import (
    CallCompleted,
    Connected,
    InvalidLine,
    ProgressReceived,
    ProtocolViolation,
    SessionExpired,
    StandaloneStreamClosed,
)
from sansmcp.process import StdoutData

from .detection_harness import failure
from .harness import SESSION, ClientHarness, initialized, only_failure, response
from .process_harness import ProcessHarness, line
from .sse_harness import SseHarness, tell_endpoint

GITHUB = "https://github.com/"


@pytest.mark.parametrize(
    ("source", "status", "headers", "body", "kind", "shown"),
    [
        (
            "stacklok/toolhive/issues/5247",
            200,
            {"content_type": "application/json"},
            b'{"id":1,"result":{}}',
            InvalidResponse,
            "jsonrpc",
        ),
        (
            "modelcontextprotocol/python-sdk/issues/1144",
            200,
            {"content_type": "application/json"},
            b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"An internal error"},"id":"x"}',
            Disconnected,
            "An internal error (code -32603)",
        ),
        (
            "speakeasy-api/gram/pull/3998",
            200,
            {"content_type": "application/json"},
            b'{"Output":{},"Version":"1.0"}',
            InvalidResponse,
            "breaks the protocol",
        ),
        (
            "envoyproxy/ai-gateway/issues/1996",
            200,
            {"content_type": "application/json", "content_encoding": "br"},
            b"\x13ep\x8cHM\xea\x01\xd0\x08",
            InvalidResponse,
            "Content-Encoding is 'br'",
        ),
        (
            "epam/ai-dial-core/pull/1587",
            200,
            {"content_type": "application/json", "content_encoding": "gzip"},
            b"\x1f\x8b\x08\x00",
            InvalidResponse,
            "Content-Encoding is 'gzip'",
        ),
        (
            "modelcontextprotocol/python-sdk/issues/1072",
            200,
            {"content_type": "text/html; charset=utf-8"},
            b"<!doctype html><title>Inspector</title>",
            RequestRefused,
            "text/html instead of JSON or an event stream: <!doctype html>",
        ),
        (
            "junjiem/dify-plugin-agent-mcp_sse/issues/79",
            200,
            {},
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            RequestRefused,
            "content without a type instead of JSON",
        ),
        (
            "kenforthewin/atomic/issues/193",
            406,
            {},
            b"Not Acceptable: Client must accept text/event-stream",
            RequestRefused,
            "HTTP 406: Not Acceptable",
        ),
        (
            "zereight/gitlab-mcp/issues/287",
            403,
            {"content_type": "text/html"},
            b"<title>Just a moment...</title>",
            RequestRefused,
            "Just a moment",
        ),
        (
            "punkpeye/fastmcp/issues/121",
            500,
            {"content_type": "application/json"},
            b'{"error":"Error POSTing to endpoint (HTTP 400)"}',
            RequestRefused,
            "Error POSTing to endpoint (HTTP 400)",
        ),
        (
            "agentgateway/agentgateway/issues/621",
            500,
            {"content_type": "application/json"},
            b'{"jsonrpc":"2.0","id":1,\x1f\x8b\x08',
            RequestRefused,
            "HTTP 500",
        ),
        (
            "pstrzalk/mcp-on-rails/issues/1",
            400,
            {"content_type": "application/json"},
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"data":"Invalid JSON”}}'.encode(),
            RequestRefused,
            "HTTP 400",
        ),
    ],
)
def test_a_call_ends_at_once_and_says_what_came(
    harness: ClientHarness,
    source: str,
    status: int,
    headers: dict[str, str],
    body: bytes,
    kind: type[CallError],
    shown: str,
) -> None:
    handle, asked = harness.call()
    asked.head(status, **headers)
    asked.feed(BodyData(body), BodyEnd())
    error = only_failure(harness, handle)
    assert type(error) is kind, f"{GITHUB}{source}"
    assert shown in str(error)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("cloudflare/mcp-server-cloudflare/issues/12", {"toolResult": {"content": []}}),
        (
            "github/github-mcp-server/issues/1952",
            {"content": [{"type": "text", "text": "missing", "annotations": None}]},
        ),
        ("samanhappy/mcphub/issues/922", {"content": [{"type": "text", "text": "null"}]}),
        ("HKUDS/nanobot/pull/4660", {"content": []}),
        ("tsedio/tsed/pull/3244", {"content": [], "structuredContent": {"code": "E"}}),
        ("Azure/azure-functions-nodejs-library/issues/444", {"type": "text", "content": "x"}),
    ],
)
def test_odd_results_of_tools_are_given_as_they_are(
    harness: ClientHarness, source: str, result: Any
) -> None:
    handle, asked = harness.call()
    asked.result(result)
    assert harness.events == [CallCompleted(handle, result)], f"{GITHUB}{source}"


@pytest.mark.parametrize(
    ("source", "status", "headers", "body"),
    [
        (
            "modelcontextprotocol/java-sdk/issues/748",
            202,
            {"content_type": "text/plain; charset=utf-8"},
            b"Accepted",
        ),
        ("modelcontextprotocol/rust-sdk/pull/497", 204, {}, b""),
        ("modelcontextprotocol/rust-sdk/pull/849", 200, {}, b""),
        ("alexandre-schaffner/revv/pull/145", 200, {"content_type": "application/json"}, b""),
        (
            "modelcontextprotocol/conformance/issues/274",
            200,
            {"content_type": "application/json"},
            b'{"jsonrpc":"2.0","result":{}}',
        ),
        ("metorial/metorial-platform/pull/444", 200, {"content_type": "text/plain"}, b"No res"),
        (
            "metorial/metorial-platform/pull/509",
            200,
            {"content_type": "text/event-stream"},
            b": nothing\n\n",
        ),
    ],
)
def test_a_confirmation_is_accepted_by_any_success(
    source: str, status: int, headers: dict[str, str], body: bytes
) -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    harness.take_initialize()
    confirmation = harness.take()
    confirmation.head(status, **headers)
    confirmation.feed(BodyData(body), BodyEnd())
    assert isinstance(harness.events[-1], Connected), f"{GITHUB}{source}"


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (
            "DAWNCR0W/affine-mcp-server/issues/301",
            {"code": -32000, "message": "Bad Request: No valid session ID"},
        ),
        (
            "modelcontextprotocol/python-sdk/issues/1004",
            {"code": -32600, "message": "Bad Request: Missing session ID"},
        ),
        ("robhunter/agentdeals/issues/1098", {"code": -32001, "message": "Unknown session: x"}),
        ("zoedsoupe/anubis-mcp/pull/124", {"code": -32600, "message": "No active session"}),
    ],
)
def test_a_session_that_is_refused_with_400_is_opened_anew(
    harness: ClientHarness, source: str, body: Any
) -> None:
    handle, asked = harness.call("tools/list")
    assert asked.header("mcp-session-id") == SESSION
    asked.answer({"jsonrpc": "2.0", "id": None, "error": body}, 400)
    assert isinstance(harness.events[0], SessionExpired), f"{GITHUB}{source}"
    opening = harness.take()
    assert (opening.json["method"], opening.header("mcp-session-id")) == ("initialize", None)
    opening.answer(initialized(opening.id), mcp_session_id="second")
    harness.take().accept()
    again = harness.take()
    again.result({"tools": []})
    assert harness.events[-1] == CallCompleted(handle, {"tools": []})


def test_a_call_that_may_not_be_repeated_tells_of_the_session(harness: ClientHarness) -> None:
    """https://github.com/DAWNCR0W/affine-mcp-server/issues/301 ."""
    handle, asked = harness.call()
    error = {"code": -32000, "message": "No valid session ID"}
    asked.answer({"jsonrpc": "2.0", "id": None, "error": error}, 400)
    failed = only_failure(harness, handle)
    assert isinstance(failed, SessionLost)
    assert "(HTTP 400)" in str(failed)


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32602, "message": "the session argument is wrong"},
        {"code": -32000, "message": "Bad Request"},
    ],
)
def test_other_refusals_with_400_end_no_session(harness: ClientHarness, error: Any) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/issues/1004 : only what names it does."""
    handle, asked = harness.call()
    id = asked.id if error["code"] == -32602 else None
    asked.answer({"jsonrpc": "2.0", "id": id, "error": error}, 400)
    assert isinstance(only_failure(harness, handle), JsonRpcError | RequestRefused)
    assert harness.requests == []


def test_a_page_in_place_of_the_standalone_stream_costs_nothing() -> None:
    """https://github.com/asciimoo/hister/issues/691 ."""
    harness = ClientHarness(standalone_stream=True).connect()
    harness.take("GET").refuse(200, b"<html>", content_type="text/html")
    assert isinstance(harness.events[-1], StandaloneStreamClosed)
    handle, asked = harness.call()
    asked.result()
    assert CallCompleted(handle, {}) in harness.events


@pytest.mark.parametrize(
    ("source", "result", "shown"),
    [
        (
            "IBM/WxMCPServer/issues/3",
            {"protocolVersion": "%params/protocolVersion%", "capabilities": {}},
            "%params/protocolVersion%",
        ),
        ("strowk/mcp-k8s-go/issues/40", {"protocolVersion": "2024-10-07"}, "2024-10-07"),
        ("ian-cowley/MCPSqlServer/pull/3", {"capabilities": {}}, "protocolVersion"),
    ],
)
def test_a_version_that_is_none_is_named(source: str, result: Any, shown: str) -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(response(asked.id, result))
    error = failure(harness)
    assert isinstance(error, NegotiationFailed | InvalidResponse), f"{GITHUB}{source}"
    assert shown in str(error)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("modelcontextprotocol/ruby-sdk/issues/12", {"capabilities": {}}),
        ("majiayu000/litellm-rs/issues/1041", {"capabilities": None, "serverInfo": None}),
        ("finite-sample/rmcp/pull/10", {"capabilities": {"logging": {"levels": ["info"]}}}),
    ],
)
def test_a_thin_initialize_is_enough(source: str, result: Any) -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(response(asked.id, {"protocolVersion": "2025-06-18", **result}))
    harness.take().accept()
    assert isinstance(harness.events[-1], Connected), f"{GITHUB}{source}"
    handle, called = harness.call("tools/list")
    called.result({"tools": []})
    assert CallCompleted(handle, {"tools": []}) in harness.events


@pytest.mark.parametrize(
    ("source", "token"),
    [
        ("twentyhq/twenty/issues/24559", "tool-call-1"),
        ("kaeawc/auto-mobile/issues/6118", "tapOn-1719"),
        ("lennix1337/Genexus18MCP/issues/44", "7724730363a945f8bd4f378326ab30e0"),
        ("anthropics/claude-code/issues/47765", 99),
        ("BerriAI/litellm/pull/32252", 0),
    ],
)
def test_progress_for_a_token_that_is_no_call_harms_none(source: str, token: Any) -> None:
    harness = ProcessHarness().connect()
    handle, id = harness.make()
    harness.progress(token)
    harness.say(response(id))
    assert not any(isinstance(each, ProgressReceived) for each in harness.events)
    assert harness.events[-1] == CallCompleted(handle, {}), f"{GITHUB}{source}"


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("sansan0/TrendRadar/issues/1204", "=" * 60),
        ("jackdark425/aigroup-mdtoword-mcp/issues/3", "🚀 [模板加载器] 开始初始化"),
        ("php-mcp/laravel/issues/33", "[2025-07-10 10:49:36] Starting MCP server"),
        ("TSavo/printify-mcp/issues/3", "Found 2 shops: ["),
        ("microsoft/azure-devops-mcp/issues/147", "Azure DevOps MCP Server version : 1"),
    ],
)
def test_what_a_process_prints_is_shown_and_skipped(source: str, printed: str) -> None:
    harness = ProcessHarness().start()
    harness.feed(StdoutData(printed.encode() + b"\n"))
    asked = {"id": 0}
    harness.feed(StdoutData(printed.encode() + b"\n" + line(initialized(asked["id"]))))
    shown = [each for each in harness.events if isinstance(each, InvalidLine)]
    assert len(shown) == 2, f"{GITHUB}{source}"
    assert isinstance(harness.events[-1], Connected)


def test_a_response_to_no_request_is_reported_and_skipped(harness: ClientHarness) -> None:
    """https://github.com/stacklok/toolhive/issues/379 ."""
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(response(7777, {"protocolVersion": "2024-11-05"}))
    asked.event(response(asked.id))
    assert [type(each) for each in harness.events] == [ProtocolViolation, CallCompleted]
    assert harness.events[-1] == CallCompleted(handle, {})


@pytest.mark.parametrize(
    ("source", "endpoint", "shown"),
    [
        (
            "haierkeys/fast-note-sync-service/issues/273",
            "http://127.0.0.1:9000/api/mcp/message?sessionId=1",
            "http://127.0.0.1:9000",
        ),
        ("modelcontextprotocol/typescript-sdk/issues/583", "/messages/?session_id=1", "/messages/"),
    ],
)
def test_an_endpoint_behind_a_proxy_that_does_not_work_is_named(
    source: str, endpoint: str, shown: str
) -> None:
    harness = SseHarness(transports=("http+sse",)).start()
    stream = harness.take("GET")
    stream.open_stream()
    tell_endpoint(stream, endpoint)
    if endpoint.startswith("/"):
        harness.take().refuse(404, b"Not Found")
    error = failure(harness)
    assert not isinstance(error, RequestTimeout), f"{GITHUB}{source}"
    assert shown in str(error)


def test_a_cursor_that_is_an_empty_text_is_a_cursor() -> None:
    """https://github.com/PrefectHQ/fastmcp/issues/5025 ."""
    from sansmcp.typed_results import TOOLS, Pages

    pages = Pages(TOOLS)
    pages.items({"tools": [{"name": "a"}], "nextCursor": ""})
    assert (pages.is_done, pages.params) == (False, {"cursor": ""})
    assert [each["name"] for each in pages.items({"tools": [{"name": "b"}]})] == ["b"]


def test_an_empty_cursor_again_ends_the_list() -> None:
    """https://github.com/modelcontextprotocol/java-sdk/issues/628 ."""
    from sansmcp.typed_results import TOOLS, Pages

    pages = Pages(TOOLS)
    page = json.loads('{"tools":[{"name":"a"}],"nextCursor":""}')
    assert len(list(pages.items(page))) == 1
    assert list(pages.items(page)) == []
    assert pages.is_done
