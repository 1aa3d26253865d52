"""The function for AWS Lambda answers the events that function URLs and HTTP APIs make."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest

import sansmcp
import sansmcp_asgi
import sansmcp_local

from .test_embedding import load

HOST = "k2x7example.lambda-url.eu-central-1.on.aws"
URL = f"https://{HOST}/mcp"


@attrs.frozen
class Context:
    """What is used of the context that Lambda passes to functions."""

    milliseconds: int = 60_000

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("MCP_HOST", HOST)
    monkeypatch.setenv("MCP_STATE_KEY", "a secret of 16 bytes or more")
    return load("aws_lambda")


def event(
    method: str = "POST",
    body: bytes | None = None,
    *,
    headers: Iterable[tuple[str, str]] = (),
    path: str = "/mcp",
    query: str = "",
    is_base64: bool = False,
) -> dict[str, Any]:
    """An event of payload format 2.0, with all members that a function URL sends."""
    made: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {
            "content-length": str(len(body or b"")),
            "x-amzn-tls-version": "TLSv1.3",
            "x-amzn-trace-id": "Root=1-66a0c0de-0123456789abcdef01234567",
            "x-forwarded-proto": "https",
            "host": HOST,
            "x-forwarded-port": "443",
            "x-forwarded-for": "198.51.100.7",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **dict(headers),
        },
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "k2x7example",
            "domainName": HOST,
            "domainPrefix": "k2x7example",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "198.51.100.7",
                "userAgent": "python-httpx/0.28.1",
            },
            "requestId": "0f0e0d0c-0b0a-0908-0706-050403020100",
            "routeKey": "$default",
            "stage": "$default",
            "time": "24/Jul/2026:12:00:00 +0000",
            "timeEpoch": 1784894400000,
        },
        "isBase64Encoded": is_base64,
    }
    if body is not None:
        made["body"] = base64.b64encode(body).decode() if is_base64 else body.decode()
    return made


def answer_to(function: ModuleType, made: dict[str, Any], context: Context = Context()) -> Any:
    """What the function returns for an event; both are JSON on their way."""
    return json.loads(json.dumps(function.handler(json.loads(json.dumps(made)), context)))


@attrs.frozen
class Gateway:
    """Makes an event of each request of a client, and calls the function with it."""

    function: ModuleType
    is_base64: bool = False

    def fetch(
        self, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes | None
    ) -> tuple[int, list[tuple[str, str]], list[bytes]]:
        place = urlsplit(url)
        made = event(
            method,
            body or None,
            headers=[(name.lower(), value) for name, value in headers],
            path=place.path,
            query=place.query,
            is_base64=self.is_base64 and bool(body),
        )
        response = answer_to(self.function, made)
        return (
            response["statusCode"],
            list(response["headers"].items()),
            [response["body"].encode()],
        )


@pytest.mark.parametrize("is_base64", [False, True], ids=["text", "base64"])
@pytest.mark.parametrize("version", sansmcp.REVISIONS)
def test_clients_of_each_revision(function: ModuleType, version: str, is_base64: bool) -> None:
    fetch = Gateway(function, is_base64).fetch
    with sansmcp_local.connect_fetch(URL, fetch, versions=(version,)) as client:
        assert [tool["name"] for tool in client.tools()] == ["brew"]
        failed = client.call_tool("brew", {"drink": 1})
        assert "drink" in failed["content"][0]["text"]


def test_it_asks_the_user(function: ModuleType) -> None:
    """The second request carries the answer to an event loop and a server that know nothing."""
    asked: list[str] = []

    def answer(request: sansmcp.ServerRequest) -> dict[str, Any]:
        asked.append(request.params["message"])
        return {"action": "accept", "content": {"value": True}}

    with sansmcp_local.connect_fetch(
        URL,
        Gateway(function).fetch,
        capabilities={"elicitation": {}},
        request_handlers={"elicitation/create": answer},
    ) as client:
        result = client.call_tool("brew", {"drink": "Tee für zwei"})
    assert result["content"][0]["text"] == "a cup of Tee für zwei"
    assert asked == ["Brew Tee für zwei?"]


@pytest.mark.parametrize(
    ("method", "status", "reason"),
    [
        ("GET", 405, "No standalone event stream is offered here"),
        ("DELETE", 405, "There are no sessions here to end"),
        ("OPTIONS", 405, "MCP uses POST, GET and DELETE"),
    ],
)
def test_what_it_does_not_serve(
    function: ModuleType, method: str, status: int, reason: str
) -> None:
    response = answer_to(function, event(method))
    assert (response["statusCode"], json.loads(response["body"])["error"]["message"]) == (
        status,
        reason,
    )
    assert "POST" in response["headers"]["allow"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"host": "attacker.example"}, "host_not_allowed"),
        ({"origin": "https://attacker.example"}, "origin_not_allowed"),
    ],
)
def test_other_hosts_and_pages(function: ModuleType, headers: dict[str, str], reason: str) -> None:
    response = answer_to(function, event(body=b"{}", headers=headers.items()))
    assert response["statusCode"] == 403
    assert json.loads(response["body"])["error"]["data"]["reason"] == reason
    assert "vary" not in response["headers"]  # the gateway adds the headers for pages


# Pages of other origins

ORIGIN = "https://app.example.com"
CORS = (
    ("access-control-allow-origin", ORIGIN),
    ("access-control-expose-headers", "mcp-session-id, www-authenticate, retry-after"),
    ("vary", "Origin"),
)
"""What the configuration of a function URL or an API adds, with its settings for MCP."""


def answer_of_gateway(function: ModuleType, made: dict[str, Any]) -> tuple[int, list[Any]]:
    """Status and headers that a page gets from a gateway with its own CORS configuration.

    It answers preflights itself, and adds its headers to what the function has sent.
    """
    if made["requestContext"]["http"]["method"] == "OPTIONS":
        return 204, [*CORS, ("access-control-allow-headers", "authorization,content-type")]
    answer = answer_to(function, made)
    return answer["statusCode"], [*answer["headers"].items(), *CORS]


def count(headers: list[Any]) -> list[int]:
    """How often each header comes of which a browser takes one."""
    return [[name.lower() for name, _ in headers].count(name) for name, _ in CORS]


@pytest.mark.parametrize(("cors", "expected"), [(False, [1, 1, 1]), (True, [2, 2, 2])])
def test_the_gateway_adds_the_headers_for_pages(
    function: ModuleType, monkeypatch: pytest.MonkeyPatch, cors: bool, expected: list[int]
) -> None:
    """Each once, on successes and refusals: with ``cors`` a browser would see each twice."""
    policy = sansmcp.SecurityPolicy(allowed_hosts=(HOST,), allowed_origins=(ORIGIN,), cors=cors)
    mcp = sansmcp_asgi.asgi_app(
        function.tools,
        sessions=False,
        resumable=False,
        reclaim=False,
        policy=policy,
        graceful_timeout=0,
    )
    monkeypatch.setattr(function, "mcp", mcp)
    page = {"origin": ORIGIN}
    status, headers = answer_of_gateway(function, event("OPTIONS", headers=page.items()))
    assert (status, count(headers)) == (204, [1, 1, 1])
    for made, wanted in (
        (request_of("tools/list", {}, **page), 200),
        (event("GET", headers=page.items()), 405),
        (event(body=b"{", headers=page.items()), 400),
        (event(path="/elsewhere", headers=page.items()), 404),
    ):
        status, headers = answer_of_gateway(function, made)
        assert (status, count(headers)) == (wanted, expected)


def request_of(method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
    """An event with a request of 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **headers}
    return event(body=json.dumps(request).encode(), headers=headers.items())


def test_an_event_stream_ends_before_lambda_stops_the_function(function: ModuleType) -> None:
    """The client gets all that was said until then, and the end of the request."""
    made = request_of("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    response = answer_to(function, made, Context(1001))
    assert response["headers"]["content-type"] == "text/event-stream"
    events = sansmcp.SseDecoder(100_000).feed(response["body"].encode())
    acknowledged, ended = (json.loads(each.data or "") for each in events)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert (ended["id"], ended["result"]["resultType"]) == (1, "complete")


def test_a_call_that_takes_too_long_ends_with_an_error(function: ModuleType) -> None:
    cancelled: list[str] = []

    async def sleep() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("sleep")

    function.tools.tool(sleep)
    made = request_of("tools/call", {"name": "sleep", "arguments": {}}, **{"mcp-name": "sleep"})
    response = answer_to(function, made, Context(1001))
    assert json.loads(response["body"])["error"]["data"]["reason"] == "shutting_down"
    assert cancelled == ["sleep"]
