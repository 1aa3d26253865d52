"""Web pages of other origins: what browsers are told, and which pages get responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sansmcp import (
    BodyData,
    Limits,
    LocalProtocolError,
    RateLimit,
    Refusal,
    RemoteProtocolError,
    RequestHead,
    SecurityPolicy,
    Server,
)
from sansmcp.revisions import MODERN_VERSIONS

from .harness import (
    BOTH,
    JSON,
    LATEST,
    STREAM,
    RawExchange,
    ServerHarness,
    example_app,
    initialize,
    notification,
    request,
)
from .modern.harness import modern, notification_from
from .protected_harness import ProtectedHarness
from .sse_harness import SseClient

ORIGIN = "https://app.example.com"
OTHER = "https://other.example.com"
METADATA = "/.well-known/oauth-protected-resource/mcp"
EXPOSED = "Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate, DPoP-Nonce"
READABLE = [
    ("access-control-allow-origin", ORIGIN),
    ("access-control-expose-headers", EXPOSED),
    ("vary", "Origin"),
]
"""What each response has for a page that may read it."""

ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
"""The headers of a preflight, beside ``Origin``."""


def policy(*origins: str, cors: bool = True) -> SecurityPolicy:
    return SecurityPolicy(allowed_origins=origins or (ORIGIN,), cors=cors)


class Page(ProtectedHarness):
    """A server whose clients are the scripts of a web page, logged in."""

    def __init__(self, *, origin: str | None = ORIGIN, **settings: Any) -> None:
        self.origin = origin
        common: dict[str, Any] = {
            "policy": policy(),
            "http_sse": "/sse",
            "health_path": "/healthz",
            "limits": Limits(max_request_bytes=4000),
        }
        super().__init__(**{**common, **settings})

    def send(
        self,
        method: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes = b"",
        **options: Any,
    ) -> RawExchange:
        return super().send(method, {"origin": self.origin, **(headers or {})}, body, **options)

    def preflight(
        self, target: str = "/mcp", headers: Mapping[str, str | None] | None = None
    ) -> RawExchange:
        """What a browser sends before a request of the page: without credentials."""
        token, self.token = self.token, None
        talk = self.send("OPTIONS", {**ASKS, **(headers or {})}, target=target)
        self.token = token
        return talk


def told(talk: RawExchange) -> list[tuple[str, str]]:
    """All headers that are for browsers and caches, in order, also those that come twice."""
    assert talk.head is not None
    pairs = [(name.decode(), value.decode()) for name, value in talk.head.headers]
    return sorted(pair for pair in pairs if pair[0].startswith("access-control-") or "vary" in pair)


# Each kind of response. A function returns a response, whose status is given.


def _json(page: Page) -> RawExchange:
    talk = page.ask(modern(1, "tools/list"))
    page.run_action(page.last_call().respond, {"tools": []})
    return talk


def _stream(page: Page) -> RawExchange:
    talk = page.ask(modern(1, "tools/list"))
    page.run_action(page.last_call().progress, 1)
    page.wait(100)
    assert talk.header("content-type") == STREAM
    return talk


def _listening(page: Page) -> RawExchange:
    wanted = {"toolsListChanged": True}
    return page.ask(modern(1, "subscriptions/listen", notifications=wanted))


def _legacy_json(page: Page) -> RawExchange:
    talk, call = page.call(page.open_session(), method="tools/list")
    page.run_action(call.respond, {"tools": []})
    assert talk.header("content-type") == JSON
    return talk


def _legacy_stream(page: Page) -> RawExchange:
    talk, call = page.call(page.open_session(), method="tools/list", token=1)
    page.run_action(call.progress, 1)
    assert talk.header("content-type") == STREAM
    return talk


def _resumed(page: Page) -> RawExchange:
    session = page.open_session()
    talk, call = page.call(session, method="tools/list", token=1)
    page.run_action(call.progress, 1)
    talk.lose_connection()
    return page.get(session, talk.last_id)


def _without_token(page: Page) -> RawExchange:
    page.token = None
    return page.ask(modern(1, "tools/list"))


def _authentication_fails(page: Page) -> RawExchange:
    refusal = Refusal(503, "Try again", reason="verifier_unavailable", retry_after=5)
    page.verify = lambda head, connection: refusal  # type: ignore[assignment]
    return page.ask(modern(1, "tools/list"))


def _over_the_rate(page: Page) -> RawExchange:
    return [page.ask(modern(n, "ping/no")) for n in range(5)][-1]


def _draining(page: Page) -> RawExchange:
    page.server.drain(now=page.now)
    return page.post(initialize(LATEST, {}))


def _too_slow(page: Page) -> RawExchange:
    head = RequestHead(
        method=b"POST",
        target=b"/mcp",
        headers=((b"host", b"localhost"), (b"origin", ORIGIN.encode())),
    )
    talk = RawExchange(page)
    page.server.receive_part(talk.exchange, head, now=page.now)
    error = RemoteProtocolError("late", reason="request_timeout", http_status=408)
    page.server.refuse(talk.exchange, error, now=page.now)
    talk.pull()
    return talk


def _too_long(page: Page) -> RawExchange:
    return page.send("POST", {"accept": BOTH, "content-type": JSON}, b"x" * 5000)


def _sse_message(page: Page) -> RawExchange:
    return SseClient(page).post(initialize("2024-11-05", {}))


def _sse_unknown(page: Page) -> RawExchange:
    target = "/messages?session_id=unknown"
    return page.send("POST", {"content-type": JSON}, b"{}", target=target)


KINDS: dict[str, tuple[int, Callable[[Page], RawExchange]]] = {
    "JSON": (200, _json),
    "stream": (200, _stream),
    "listening": (200, _listening),
    "modern notification": (202, lambda page: page.ask(notification_from("notifications/x"))),
    "initialize": (200, lambda page: page.post(initialize(LATEST, {}))),
    "JSON in a session": (200, _legacy_json),
    "stream in a session": (200, _legacy_stream),
    "resumed stream": (200, _resumed),
    "standalone stream": (200, lambda page: page.get(page.open_session())),
    "notification": (
        202,
        lambda page: page.post(notification("notifications/x"), page.open_session()),
    ),
    "DELETE": (200, lambda page: page.send("DELETE", {"mcp-session-id": page.open_session()})),
    "other path": (404, lambda page: page.send("GET", target="/elsewhere")),
    "unknown session": (404, lambda page: page.post(request(1, "ping"), "unknown")),
    "unknown method": (404, lambda page: page.ask(modern(1, "no/such"))),
    "other HTTP method": (405, lambda page: page.send("PUT")),
    "OPTIONS that asks nothing": (405, lambda page: page.send("OPTIONS")),
    "bad request": (400, lambda page: page.post(b"{")),
    "bad media type": (415, lambda page: page.post(b"{}", headers={"content-type": "text/plain"})),
    "other host": (403, lambda page: page.send("GET", {"host": "evil.example"})),
    "no token": (401, _without_token),
    "scope": (403, lambda page: page.ask(modern(1, "resources/list"))),
    "verifier": (503, _authentication_fails),
    "over the rate": (429, _over_the_rate),
    "draining": (503, _draining),
    "late body": (408, _too_slow),
    "long body": (413, _too_long),
    "health": (200, lambda page: page.send("GET", target="/healthz")),
    "stream of HTTP+SSE": (200, lambda page: SseClient(page).stream),
    "message of HTTP+SSE": (202, _sse_message),
    "unknown stream of HTTP+SSE": (404, _sse_unknown),
    "preflight": (200, lambda page: page.preflight()),
}


def response(kind: str, page: Page) -> RawExchange:
    status, ask = KINDS[kind]
    talk = ask(page)
    assert talk.status == status, talk.body
    return talk


def settings_of(kind: str) -> dict[str, Any]:
    return {"rate_limit": RateLimit(0.1, burst=4)} if kind == "over the rate" else {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_a_listed_origin_may_read_each_response(kind: str) -> None:
    page = Page(**settings_of(kind))
    found = told(response(kind, page))
    names = [name for name, _ in found]
    assert [pair for pair in found if pair in READABLE] == READABLE
    assert len(names) == len(set(names)) == (6 if kind == "preflight" else 3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "preflight"])
def test_by_default_no_response_has_such_headers(kind: str) -> None:
    page = Page(policy=SecurityPolicy(allowed_origins=(ORIGIN,)), **settings_of(kind))
    assert told(response(kind, page)) == []


@pytest.mark.parametrize("kind", ["JSON", "initialize", "no token", "DELETE", "stream of HTTP+SSE"])
def test_a_program_that_is_no_page(kind: str) -> None:
    """The response depends on the origin, which caches are told."""
    assert told(response(kind, Page(origin=None))) == [("vary", "Origin")]


@pytest.mark.parametrize("authenticated", [True, False])
@pytest.mark.parametrize("origin", [OTHER, "null", f"{ORIGIN}.evil.example", f"{ORIGIN}:8443", ""])
@pytest.mark.parametrize("target", ["/mcp", "/sse", "/messages"])
def test_other_pages_get_nothing(target: str, origin: str, authenticated: bool) -> None:
    page = Page(origin=origin)
    page.token = "user" if authenticated else None
    asks = [page.preflight(target), *(page.send(each, target=target) for each in ("GET", "POST"))]
    for talk in asks:
        assert talk.status == 403
        assert talk.error["data"]["reason"] == "origin_not_allowed"
        assert told(talk) == [("vary", "Origin")]
    assert page.asked == []


def test_two_origins_are_none() -> None:
    pairs = ((b"host", b"localhost"), (b"origin", ORIGIN.encode()), (b"origin", OTHER.encode()))
    asks = tuple((name.encode(), value.encode()) for name, value in ASKS.items())
    head = RequestHead(method=b"OPTIONS", target=b"/mcp", headers=(*pairs, *asks))
    talk = RawExchange(Page()).feed(head)
    assert (talk.status, told(talk)) == (403, [("vary", "Origin")])


def test_a_page_that_has_rebound_its_name() -> None:
    """Its requests have its own name as Host, and as Origin or, if both are the same, no Origin."""
    for origin in ("http://evil.example", None, ORIGIN):
        page = Page(origin=origin)
        for talk in (page.preflight(headers={"host": "evil.example"}), *_sent(page)):
            assert (talk.status, talk.error["data"]["reason"]) == (403, "host_not_allowed")


def _sent(page: Page) -> list[RawExchange]:
    return [page.send(each, {"host": "evil.example"}) for each in ("GET", "POST", "DELETE")]


# Preflights


@pytest.mark.parametrize("versions", [(LATEST,), MODERN_VERSIONS, (LATEST, *MODERN_VERSIONS)])
@pytest.mark.parametrize("target", ["/mcp", "/mcp/", "/mcp?a=b"])
def test_a_preflight_is_answered_before_all_else(target: str, versions: tuple[str, ...]) -> None:
    page = Page(versions=versions, http_sse=None, rate_limit=RateLimit(0.1, burst=1))
    page.server.drain(now=page.now)
    for _ in range(5):
        talk = page.preflight(target)
        assert (talk.status, talk.body, talk.ended) == (200, b"", True)
        assert talk.header("access-control-allow-methods") == "POST, GET, DELETE"
        assert talk.header("access-control-max-age") == "86400"
        allowed = talk.header("access-control-allow-headers")
        assert allowed == (
            "Authorization, Content-Type, DPoP, Last-Event-ID, Mcp-Method, Mcp-Name, "
            "MCP-Protocol-Version, Mcp-Session-Id, traceparent, tracestate"
        )
    assert (page.asked, page.events, page.server.sessions) == ([], [], ())


@pytest.mark.parametrize(("path", "messages"), [("/sse", "/messages"), ("/mcp", "/mcp")])
def test_a_preflight_of_http_sse(path: str, messages: str) -> None:
    page = Page(http_sse=path)
    client = SseClient(page, path)
    for target in (path, messages, client.uri):
        assert page.preflight(target).status == 200


def test_a_preflight_has_its_answer_before_its_body() -> None:
    page = Page()
    pairs = {"host": "localhost", "origin": ORIGIN, **ASKS}
    headers = tuple((name.encode(), value.encode()) for name, value in pairs.items())
    talk = RawExchange(page).feed(RequestHead(method=b"OPTIONS", target=b"/mcp", headers=headers))
    assert talk.ended
    assert talk.feed(BodyData(b"x" * 10_000)).status == 200


@pytest.mark.parametrize(
    "headers", [{"origin": None}, {"access-control-request-method": None}], ids=str
)
def test_what_is_no_preflight(headers: dict[str, str | None]) -> None:
    assert Page().preflight(headers=headers).status == 401
    harness = ServerHarness(policy=policy())
    assert harness.send("OPTIONS", {"origin": ORIGIN, **ASKS, **headers}).status == 405


@pytest.mark.parametrize("target", ["/elsewhere", "/healthz"])
def test_a_preflight_to_another_path(target: str) -> None:
    talk = Page().preflight(target)
    assert talk.status in (401, 405)
    assert "access-control-allow-methods" not in dict(told(talk))


def test_by_default_preflights_are_refused() -> None:
    refused = Page(policy=SecurityPolicy(allowed_origins=(ORIGIN,))).preflight()
    assert (refused.status, told(refused)) == (401, [])


def _allowed(asked: str) -> list[str]:
    talk = Page().preflight(headers={"access-control-request-headers": asked})
    value = talk.header("access-control-allow-headers")
    assert value is not None
    return value.split(", ")[10:]


def test_the_headers_of_arguments_are_allowed_as_asked_for() -> None:
    assert _allowed("mcp-param-region,x-other, Mcp-Param-City ,mcp-param-") == [
        "mcp-param-region",
        "mcp-param-city",
    ]


@pytest.mark.parametrize("name", ["mcp-param-a b", "mcp-param-\xe4", "mcp-param-a:b", "*"])
def test_what_cannot_be_the_name_of_a_header_is_not_repeated(name: str) -> None:
    assert _allowed(name) == []


def test_the_headers_of_arguments_are_bounded() -> None:
    assert _allowed(",".join(f"mcp-param-{n}" for n in range(5000))) == [
        f"mcp-param-{n}" for n in range(32)
    ]
    assert _allowed("mcp-param-" + "x" * 65) == []
    assert len(_allowed("mcp-param-" + "x" * 64)) == 1


# The metadata of a protected resource


@pytest.mark.parametrize("origin", [ORIGIN, OTHER, "null", None])
@pytest.mark.parametrize("cors", [True, False])
def test_any_page_may_read_the_metadata(origin: str | None, cors: bool) -> None:
    page = Page(origin=origin, policy=policy(cors=cors))
    page.token = None
    read, asked = page.send("GET", target=METADATA), page.preflight(METADATA)
    assert (read.status, told(read)) == (200, [("access-control-allow-origin", "*")])
    assert json.loads(read.body)["authorization_servers"]
    assert asked.status == 200
    assert dict(told(asked)) == {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, HEAD",
        "access-control-allow-headers": "*",
        "access-control-max-age": "86400",
    }
    refused = page.send("DELETE", target=METADATA)
    assert (refused.status, told(refused)) == (405, [("access-control-allow-origin", "*")])


# The policy


def test_all_origins() -> None:
    """The answer is the same for all, and nothing permits cookies."""
    page = Page(policy=policy("*"), origin=OTHER)
    expected = [("access-control-allow-origin", "*"), *READABLE[1:]]
    assert told(response("JSON", page)) == expected
    assert page.preflight().status == 200
    page.origin = "null"
    refused = page.ask(modern(2, "tools/list"))
    assert (refused.status, told(refused)) == (403, [("vary", "Origin")])


def test_the_origin_is_compared_without_case_and_sent_as_it_came() -> None:
    page = Page(policy=policy("HTTPS://App.Example.com"), origin=ORIGIN)
    assert told(response("JSON", page)) == READABLE


@pytest.mark.parametrize("origins", [None, ()])
def test_the_origins_must_be_listed(origins: tuple[str, ...] | None) -> None:
    with pytest.raises(LocalProtocolError, match="cors=True needs allowed_origins, the origins of"):
        Server(
            example_app(),
            new_token=str,
            policy=SecurityPolicy(allowed_origins=origins, cors=True),
        )


def test_null_cannot_be_listed() -> None:
    with pytest.raises(LocalProtocolError, match="'null' cannot be among allowed_origins: any"):
        policy(ORIGIN, "null")
