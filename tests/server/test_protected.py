"""Access tokens: how a client finds out where to get one, and what happens without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import (
    App,
    InputRequest,
    InputRequired,
    Limits,
    LocalProtocolError,
    MemoryStore,
    Refusal,
    RequestHead,
    StateSigner,
)
from sansmcp.events import AccessExpired, CallReceived

from ..handlers import nothing
from .harness import (
    BOTH,
    JSON,
    LATEST,
    STREAM,
    RawExchange,
    ServerHarness,
    expect,
    initialize,
    notification,
    request,
)
from .modern.harness import ModernServerHarness, meta, modern
from .pipe_harness import result
from .protected_harness import (
    ISSUER,
    METADATA,
    RESOURCE,
    URL,
    ProtectedHarness,
    challenge,
    scoped_app,
)
from .sse_harness import SseClient

requirement = pytest.mark.requirement

WELL_KNOWN = "/.well-known/oauth-protected-resource"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.fixture
def harness() -> ProtectedHarness:
    return ProtectedHarness()


def ask(harness: ProtectedHarness, method: str, version: str | None, **params: Any) -> RawExchange:
    """A request with the present token; ``version``: None for 2026-07-28."""
    if version is None:
        return harness.ask(modern(7, method, **params))
    token, harness.token = harness.token, "user"
    session = harness.open_session(version)
    harness.token = token
    return harness.post({**request(7, method), "params": params}, session, version)


def received(harness: ServerHarness) -> list[str]:
    """The methods of the calls whose handlers are called."""
    return [each.call.request.method for each in harness.events if isinstance(each, CallReceived)]


# The metadata


@requirement("AUTH-S-008", "AUTH-S-009")
@pytest.mark.parametrize("path", [f"{WELL_KNOWN}/mcp", WELL_KNOWN])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_everybody_may_read_the_metadata(harness: ProtectedHarness, path: str, method: str) -> None:
    harness.token = None
    foreign = {"host": "mcp.example.com", "origin": "https://anywhere.example"}
    talk = harness.send(method, foreign, target=path)
    assert (talk.status, talk.header("access-control-allow-origin")) == (200, "*")
    assert talk.header("content-type") == JSON
    assert harness.asked == []
    if method == "GET":
        assert talk.json == {
            "resource": URL,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["use", "read"],
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": ["ES256", "ES384", "ES512", "PS256", "RS256"],
        }
    else:
        assert talk.body == b""


def test_a_page_may_ask_if_it_may_read_the_metadata(harness: ProtectedHarness) -> None:
    talk = harness.send("OPTIONS", {"host": "h", "origin": "https://a"}, target=WELL_KNOWN)
    assert (talk.status, talk.body) == (200, b"")
    assert talk.header("access-control-allow-origin") == "*"
    assert talk.header("access-control-allow-headers") == "*"


def test_the_metadata_are_only_read(harness: ProtectedHarness) -> None:
    expect(harness.send("DELETE", target=WELL_KNOWN), 405, "method_not_allowed")


def test_the_metadata_of_a_mounted_server_are_at_the_root_of_the_origin() -> None:
    harness = ProtectedHarness()
    talk = harness.send("GET", target="/mcp", root=WELL_KNOWN)
    assert talk.status == 200
    assert harness.send("GET", target=f"{WELL_KNOWN}/mcp", root="/mounted").status == 404


def test_without_a_protected_resource_there_are_no_metadata() -> None:
    assert ServerHarness().send("GET", target=WELL_KNOWN).status == 404


# Requests without a valid token


@requirement("AUTH-S-001", "AUTH-S-005", "AUTH-S-006", "AUTH-S-007", "AUTH-S-008", "AUTH-S-010")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_without_a_token_is_told_where_to_get_one(
    harness: ProtectedHarness, version: str
) -> None:
    harness.token = None
    talk = harness.post(initialize(version, {}))
    expect(talk, 401, "unauthorized")
    assert challenge(talk) == {"scope": "use", "resource_metadata": METADATA}
    assert harness.server.sessions == ()
    path = METADATA.removeprefix("https://mcp.example.com")
    assert harness.send("GET", target=path).json["resource"] == URL


@requirement("AUTH-S-001", "AUTH-S-003", "AUTH-S-005")
@pytest.mark.parametrize("token", ["unknown", "", "a b", "user,", "b\u00e4r"])
def test_an_invalid_token(harness: ProtectedHarness, token: str) -> None:
    harness.token = token
    talk = harness.ask(modern(1))
    expect(talk, 401, {"unknown": "unknown_token"}.get(token, "unauthorized"))
    told = challenge(talk)
    assert (told.pop("error"), told.pop("scope")) == ("invalid_token", "use")
    assert received(harness) == []


def test_credentials_of_another_kind_are_none(harness: ProtectedHarness) -> None:
    """RFC 6750 section 3.1: the client did not know that it needs a token."""
    talk = harness.post(initialize(LATEST, {}), headers={"authorization": "Basic YTpi"})
    assert (talk.status, "error" in challenge(talk)) == (401, False)


@requirement("AUTH-S-001")
@pytest.mark.parametrize("version", ["2025-11-25", None])
def test_every_request_needs_a_token(harness: ProtectedHarness, version: str | None) -> None:
    session = harness.open_session()
    harness.token = None
    cancelled = notification("notifications/cancelled", requestId=1)
    talks = [
        harness.get(session),
        harness.send("DELETE", {"mcp-session-id": session}),
        harness.send("GET", target="/nothing"),
        harness.send("OPTIONS"),
        *(
            harness.ask({**each, "params": {**each.get("params", {}), **modern(1)["params"]}})
            if version is None
            else harness.post(each, session)
            for each in (request(1, "ping"), request(1, "tools/list"), cancelled)
        ),
    ]
    assert [talk.status for talk in talks] == [401] * 7
    assert len(harness.server.sessions) == 1


@requirement("AUTH-S-005")
@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ("/mcp", [b"Bearer user", b"Bearer user"]),
        ("/mcp", [b"Bearer user", b"Basic YTpi"]),
        ("/mcp?access_token=user", []),
        ("/mcp?a=1&access_token=user", [b"Bearer user"]),
    ],
)
def test_a_malformed_authorization(
    harness: ProtectedHarness, target: str, lines: list[bytes]
) -> None:
    headers = ((b"host", b"localhost"), *((b"authorization", line) for line in lines))
    head = RequestHead(method=b"POST", target=target.encode(), headers=headers)
    talk = RawExchange(harness).feed(head)
    expect(talk, 400, "bad_credentials")
    assert challenge(talk)["error"] == "invalid_request"


def test_a_token_in_the_body_is_not_read(harness: ProtectedHarness) -> None:
    form = {"content-type": "application/x-www-form-urlencoded", "accept": BOTH}
    harness.token = None
    assert harness.send("POST", form, b"access_token=user").status == 401
    harness.token = "user"
    assert harness.send("POST", form, b"access_token=user").status == 415


def test_a_verifier_that_cannot_decide(harness: ProtectedHarness) -> None:
    """A 401 would send every user to log in."""
    refusal = Refusal(503, "Try again", reason="verifier_unavailable", retry_after=5)
    harness.verify = lambda head, connection: refusal  # type: ignore[assignment]
    talk = harness.post(initialize(LATEST, {}))
    expect(talk, 503, "verifier_unavailable")
    assert (talk.header("retry-after"), talk.header("www-authenticate")) == ("5", None)


# Scopes


@requirement("AUTH-S-005", "AUTH-S-011", "AUTH-S-012")
@pytest.mark.parametrize("version", [*VERSIONS, None])
def test_a_method_needs_its_scopes(harness: ProtectedHarness, version: str | None) -> None:
    talk = ask(harness, "resources/list", version)
    expect(talk, 403, "insufficient_scope", id=7)
    assert talk.error["data"]["scopes"] == ["use", "read"]
    told = challenge(talk)
    assert told.pop("error_description") != ""
    assert told == {
        "error": "insufficient_scope",
        "scope": "use read",
        "resource_metadata": METADATA,
    }
    assert received(harness) == []
    harness.token = "reader"
    ask(harness, "resources/list", version)
    assert received(harness) == ["resources/list"]
    call = harness.last_call()
    assert (call.peer.principal, sorted(call.scopes)) == ("ada", ["read", "use"])


@requirement("AUTH-S-012", "AUTH-S-013")
@pytest.mark.parametrize("version", ["2025-11-25", None])
def test_a_tool_needs_its_scopes_all_told_at_once(
    harness: ProtectedHarness, version: str | None
) -> None:
    talk = ask(harness, "tools/call", version, name="wipe")
    assert (talk.status, challenge(talk)["scope"]) == (403, "use write read audit")
    talk = ask(harness, "tools/call", version, name="sum")
    assert (talk.status, challenge(talk)["scope"]) == (403, "use read")
    ask(harness, "tools/call", version, name="add")
    assert received(harness) == ["tools/call"]


@requirement("AUTH-S-014")
def test_a_broader_scope_includes_others(harness: ProtectedHarness) -> None:
    harness.token = "admin"
    harness.ask(modern(1, "resources/list"))
    assert received(harness) == ["resources/list"]
    assert harness.last_call().scopes == {"admin", "write", "use", "read"}


@requirement("AUTH-S-011")
@pytest.mark.parametrize("token", ["lesser", "unscoped"])
def test_a_token_without_what_every_request_needs(harness: ProtectedHarness, token: str) -> None:
    harness.token = token
    talk = harness.post(initialize(LATEST, {}))
    expect(talk, 403, "insufficient_scope")
    assert challenge(talk)["scope"] == "use"
    assert harness.server.sessions == ()


def test_a_batch_is_refused_as_a_whole(harness: ProtectedHarness) -> None:
    """Else the client could not tell that more scopes would help, or what has run."""
    session = harness.open_session("2025-03-26")
    batch = [request(1, "tools/list"), request(2, "resources/list")]
    talk = harness.post(batch, session, "2025-03-26")
    expect(talk, 403, "insufficient_scope")
    assert received(harness) == []
    harness.token = "reader"
    harness.post(batch, session, "2025-03-26")
    assert received(harness) == ["tools/list", "resources/list"]


def test_a_function_of_scopes_that_raises(harness: ProtectedHarness) -> None:
    talk = harness.ask(modern(3, name="unknown"))
    expect(talk, 500, "scopes_failed", -32603, id=3)
    assert isinstance(harness.events[-1].error.__cause__, KeyError)  # type: ignore[union-attr]
    assert received(harness) == []


WITHOUT_NAME: list[dict[str, Any]] = [
    {},
    {"name": None},
    {"name": 5},
    {"name": ["add"]},
    {"name": {"x": 1}},
]


@pytest.mark.parametrize("params", WITHOUT_NAME)
@pytest.mark.parametrize("version", ["2025-03-26", LATEST, "2026-07-28"])
def test_a_function_of_scopes_gets_only_requests_that_name_something(
    harness: ProtectedHarness, version: str, params: dict[str, Any]
) -> None:
    """Its exception would be logged as a fault of the application, with a traceback each time."""
    if version == "2026-07-28":
        message = modern(3)
        del message["params"]["name"]
        message["params"].update(params)
        talk = harness.ask(message, {"mcp-name": "add"})
    else:
        session = harness.open_session(version)
        talk = harness.post(request(3, **params), session, version)
    expect(talk, 400, "invalid_params", -32602, id=3)
    assert received(harness) == []


def test_a_function_of_scopes_gets_no_batch_in_which_a_request_names_nothing(
    harness: ProtectedHarness,
) -> None:
    session = harness.open_session("2025-03-26")
    batch = [request(1, "tools/list"), request(2, name=["add"])]
    talk = harness.post(batch, session, "2025-03-26")
    expect(talk, 400, "invalid_params", -32602, id=2)
    assert received(harness) == []


def test_a_function_of_scopes_that_returns_others() -> None:
    app = App("bench")
    app.handler("tools/call", scopes=lambda request: {"offline_access"})(nothing)
    harness = ProtectedHarness(app)
    expect(harness.ask(modern(3)), 500, "scopes_failed", -32603, id=3)


def test_a_fallback_needs_its_scopes() -> None:
    app = App("gateway")
    app.fallback(nothing, scopes={"read"})
    harness = ProtectedHarness(app)
    session = harness.open_session()
    assert harness.post(request(1, "tools/list"), session).status == 403
    assert harness.post(request(1, "ping"), session).status == 200


def test_scopes_without_a_protected_resource() -> None:
    """Nobody has scopes then, and nobody is let in."""
    harness = ModernServerHarness(scoped_app())
    talk = harness.ask(modern(3, "resources/list"))
    expect(talk, 403, "insufficient_scope", id=3)
    told = challenge(talk)
    assert (told["scope"], "resource_metadata" in told) == ("read", False)


@requirement("AUTH-S-011")
def test_scopes_on_http_sse() -> None:
    harness = ProtectedHarness(http_sse="/sse")
    client = SseClient(harness)
    client.say(initialize("2024-11-05", {}), notification("notifications/initialized"))
    talk = client.post(request(1, "resources/list"))
    assert (talk.status, challenge(talk)["scope"]) == (403, "use read")
    harness.token = "reader"
    client.say(request(2, "resources/list"))
    assert received(harness) == ["resources/list"]


# What handlers see, and who owns what


@requirement("AUTH-S-004")
def test_handlers_do_not_see_the_token(harness: ProtectedHarness) -> None:
    harness.ask(modern(1, "tools/list"), {"dpop": "proof", "x-more": "y"})
    call = harness.last_call()
    assert ("authorization" in call.headers, "dpop" in call.headers) == (False, False)
    assert call.headers["x-more"] == "y"


def test_handlers_see_credentials_that_are_no_tokens() -> None:
    harness = ProtectedHarness(protected_resource=None)
    harness.ask(modern(1, "tools/list"))
    assert harness.last_call().headers["authorization"] == "Bearer user"


@requirement("AUTH-S-016")
def test_a_session_and_its_streams_belong_to_their_principal(harness: ProtectedHarness) -> None:
    harness.token = "reader"
    session = harness.open_session()
    talk, call = harness.call(session, method="resources/list", token=1)
    harness.run_action(call.progress, 1)
    cursor = talk.last_id
    harness.token = "eve"
    other = harness.open_session()
    attempts: tuple[Callable[[str], RawExchange], ...] = (
        lambda name: harness.get(name, cursor),
        lambda name: harness.post(request(9, "tools/list"), name),
        lambda name: harness.send("DELETE", {"mcp-session-id": name}),
    )
    for attempt in attempts:
        stolen, unknown = attempt(session), attempt("no-such-session")
        assert (stolen.status, stolen.json) == (404, unknown.json)
    expect(harness.get(other, cursor), 400, "unknown_event_id")
    harness.token = "user"  # a new token of the same principal goes on
    assert harness.get(session, cursor).status == 200


@requirement("AUTH-S-016")
def test_a_request_state_belongs_to_its_principal() -> None:
    signer = StateSigner(keys=(b"sixteen bytes at least",), clock=lambda: 0.0)
    harness = ProtectedHarness(state_signer=signer)
    harness.token = "reader"
    talk = harness.ask(modern(1, "tools/call", name="sum"))
    harness.run_action(harness.last_call().respond, InputRequired({}, state={"step": 1}))
    state = talk.json["result"]["requestState"]
    harness.token = "eve"
    talk = harness.ask(modern(2, "tools/call", name="sum", requestState=state))
    expect(talk, 400, "bad_request_state", -32602, id=2)


def test_a_protected_resource_needs_authentication() -> None:
    with pytest.raises(LocalProtocolError, match="needs authenticate"):
        ServerHarness(protected_resource=RESOURCE)


# Streams end when the token expires


def test_a_stream_that_can_be_resumed_ends_with_its_token(harness: ProtectedHarness) -> None:
    harness.token = "short"
    session = harness.open_session()
    talk, call = harness.call(session, method="resources/list", token=1)
    harness.run_action(call.progress, 1)
    listening = harness.get(session)
    harness.wait(59)
    assert (talk.is_over, listening.is_over) == (False, False)
    harness.wait(1)
    assert (talk.ended, listening.ended, talk.aborted) == (True, True, False)
    expired = [event for event in harness.events if isinstance(event, AccessExpired)]
    assert expired == [AccessExpired("ada"), AccessExpired("ada")]
    harness.token = "unknown"
    assert harness.get(session, talk.last_id).status == 401
    harness.token = "reader"
    resumed = harness.get(session, talk.last_id)
    harness.run_action(call.respond, {})
    assert resumed.messages[-1]["result"] == {}
    harness.wait(100)
    assert len([event for event in harness.events if isinstance(event, AccessExpired)]) == 2


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_a_stream_that_another_instance_writes_breaks_when_the_token_expires(version: str) -> None:
    store = MemoryStore(Limits())
    first, second = (
        ProtectedHarness(store=store, shared_store=True, tokens=f"instance-{number}")
        for number in range(2)
    )
    session = first.open_session(version)
    own = {"mcp-protocol-version": version}
    listening = first.get(session, headers=own)
    first.server.sessions[0].notify("notifications/com.example/x", {}, now=first.now)
    first.run_pending()
    second.token = "short"
    resumed = second.get(session, listening.last_id, own)
    for elapsed in range(60):
        assert not resumed.is_over, elapsed
        for harness in (first, second):
            harness.wait(1)
    assert resumed.aborted
    assert [each for each in second.events if isinstance(each, AccessExpired)]


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_a_resumed_stream_that_cannot_be_polled_breaks_when_the_token_expires(version: str) -> None:
    """As a client that has resumed a broken stream resumes it once more."""
    harness = ProtectedHarness()
    harness.token = "short"
    session = harness.open_session(version)
    own = {"mcp-protocol-version": version}
    talk, call = harness.call(session, method="resources/list", token=1, version=version)
    harness.run_action(call.progress, 1)
    talk.lose_connection()
    resumed = harness.get(session, talk.last_id, own)
    harness.wait(59)
    assert not resumed.is_over
    harness.wait(1)
    assert resumed.aborted
    assert [each for each in harness.events if isinstance(each, AccessExpired)]
    harness.token = "reader"
    resumed = harness.get(session, talk.last_id, own)
    harness.run_action(call.respond, {})
    assert resumed.messages[-1]["result"] == {}


@pytest.mark.parametrize("retry", [None, 2.5])
def test_the_end_names_the_time_to_wait(retry: float | None) -> None:
    harness = ProtectedHarness(retry=retry)
    harness.token = "short"
    listening = harness.get(harness.open_session())
    harness.wait(60)
    assert listening.events[-1].retry == (None if retry is None else 2500)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_a_call_that_cannot_be_polled_goes_on(version: str) -> None:
    harness = ProtectedHarness()
    harness.token = "short"
    session = harness.open_session(version)
    talk, call = harness.call(session, method="resources/list", token=1, version=version)
    harness.run_action(call.progress, 1)
    listening = harness.get(session, headers={"mcp-protocol-version": version})
    harness.wait(60)
    assert (talk.is_over, listening.ended) == (False, True)
    harness.run_action(call.respond, {})
    assert talk.ended


def test_a_call_without_a_session_goes_on_and_a_subscription_ends(
    harness: ProtectedHarness,
) -> None:
    harness.token = "short"
    talk = harness.ask(modern(1, "resources/list"))
    call = harness.last_call()
    listening = harness.ask(
        modern(2, "subscriptions/listen", notifications={"toolsListChanged": True})
    )
    harness.wait(60)
    assert (talk.is_over, listening.ended) == (False, True)
    assert listening.messages[-1]["result"]["resultType"] == "complete"
    assert [event for event in harness.events if isinstance(event, AccessExpired)] == [
        AccessExpired("ada")
    ]
    harness.server.publish("notifications/tools/list_changed", now=harness.now)
    harness.run_action(call.respond, {})
    assert talk.ended


def test_a_stream_of_http_sse_lives_as_long_as_the_newest_token() -> None:
    harness = ProtectedHarness(http_sse="/sse")
    harness.token = "short"
    client = SseClient(harness)
    client.say(initialize("2024-11-05", {}), notification("notifications/initialized"))
    harness.wait(30)
    client.say(request(1, "ping"))
    harness.token = "longer"
    client.say(request(2, "ping"))
    harness.token = "short"
    client.say(request(3, "ping"))
    harness.wait(99)
    assert not client.stream.is_over
    harness.wait(1)
    assert client.stream.ended
    assert client.post(request(4, "ping")).status == 404
    assert harness.server.sessions == ()


@pytest.mark.parametrize("has_event", [True, False])
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_the_response_to_a_parked_call_goes_on(version: str, has_event: bool) -> None:
    """Its client may have no event id yet, with which it could resume."""
    store = MemoryStore(Limits())
    app = scoped_app()
    app.handler("resources/read")(nothing)
    harness = ProtectedHarness(app, store=store, shared_store=True, limits=Limits())
    harness.token = "short"
    session = harness.open_session(version, {"roots": {}})
    talk, call = harness.call(session, method="resources/read", token=1, version=version)
    if has_event:
        harness.run_action(call.progress, 1)
    harness.run_action(call.respond, InputRequired({"a": InputRequest("roots/list")}))
    for _ in range(61):
        harness.wait(1)
    assert (talk.aborted, talk.is_over) == (False, False)
    (question,) = (each for each in talk.messages if each.get("method") == "roots/list")
    harness.token = "reader"
    harness.post(result(question["id"], {"roots": []}), session, version)
    harness.run_action(harness.last_call().respond, {})
    harness.wait(1)
    assert talk.messages[-1]["result"] == {}
    assert talk.ended


def test_a_call_of_http_sse_goes_on_after_its_token_has_expired() -> None:
    """The stream is all that its client has to hear of it. Then the stream ends."""
    harness = ProtectedHarness(http_sse="/sse")
    harness.token = "short"
    client = SseClient(harness)
    client.open("2024-11-05")
    client.say(request(1, "resources/list"))
    call = harness.last_call()
    for _ in range(100):
        harness.wait(1)
    assert not client.stream.is_over
    harness.run_action(call.respond, {"done": True})
    assert client.said[-1]["result"] == {"done": True}
    harness.wait(1)
    assert client.stream.ended
    assert harness.server.sessions == ()
    assert [event for event in harness.events if isinstance(event, AccessExpired)] == [
        AccessExpired("ada")
    ]


def test_a_newer_token_after_the_first_has_expired_keeps_the_stream_of_http_sse() -> None:
    harness = ProtectedHarness(http_sse="/sse")
    harness.token = "short"
    client = SseClient(harness)
    client.open("2024-11-05")
    client.say(request(1, "resources/list"))
    call = harness.last_call()
    harness.wait(80)
    harness.token = "user"
    client.say(request(2, "ping"))
    harness.run_action(call.respond, {})
    harness.wait(1000)
    assert not client.stream.is_over


def test_a_stream_of_http_sse_with_a_token_that_does_not_expire() -> None:
    harness = ProtectedHarness(http_sse="/sse")
    harness.token = "short"
    client = SseClient(harness)
    harness.token = "user"
    client.say(initialize("2024-11-05", {}))
    harness.token = "short"
    client.say(notification("notifications/initialized"))
    harness.wait(1000)
    assert not client.stream.is_over


def test_a_response_that_has_ended_expires_no_more(harness: ProtectedHarness) -> None:
    harness.token = "short"
    talk = harness.ask(modern(1, "resources/list", about={**meta(), "progressToken": 1}))
    harness.wait(1)
    assert talk.header("content-type") == STREAM
    harness.run_action(harness.last_call().respond, {})
    assert talk.ended
    deadline = harness.server.next_deadline()
    assert deadline is None
