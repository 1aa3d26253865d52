"""Expiry, refresh, and the storage that several processes share."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import pytest

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.flow import SendAgain
from sansmcp.auth.options import Authorization
from sansmcp.auth.saved import Saved
from sansmcp.auth.step_ups import Attempt
from sansmcp.auth.steps import Failed, Obtained
from sansmcp.credentials import CredentialsKey
from sansmcp.effects import (
    LoadCredentials,
    LockCredentials,
    MakeKey,
    SaveCredentials,
    SignJwt,
)
from sansmcp.errors import AuthorizationFailed
from sansmcp.http import ResponseHead
from sansmcp.states import AuthorizationState

from .bench import ASM, ENDPOINT, PRM, RESOURCE, SERVER, Answer, Asked, Bench, World

KEY = CredentialsKey(ENDPOINT)


def world(**given: Any) -> World:
    return World(lifetime=100.0, gives_refresh=True, **given)


def logged_in(world: World, options: Authorization | None = None) -> Bench:
    bench = Bench(world, options or Authorization()).start()
    bench.refused()
    world.asked.clear()
    return bench


def test_an_expired_token_is_refreshed_before_it_is_sent() -> None:
    bench = logged_in(world())
    assert bench.flow.prepare(bench.now)
    bench.world.wall_time += 90
    assert not bench.flow.prepare(bench.now)
    bench.run()
    assert bench.flow.prepare(bench.now)
    assert bench.urls == ["https://as.example/token"]
    assert bench.forms() == [
        {
            "grant_type": "refresh_token",
            "refresh_token": "refresh-1",
            "resource": ENDPOINT,
            "client_id": "client-of-as.example",
        }
    ]
    assert bench.header == "Bearer token-2"
    assert "refresh-2" in bench.world.stored[KEY]
    assert bench.world.locked == set()


def test_a_refresh_token_that_is_not_replaced_is_kept() -> None:
    bench = logged_in(world())
    bench.world.gives_refresh = False
    for _ in range(2):
        bench.world.wall_time += 100
        bench.flow.prepare(bench.now)
        bench.run()
    assert [form["refresh_token"] for form in bench.forms()] == ["refresh-1", "refresh-1"]
    assert bench.header == "Bearer token-3"


def test_without_a_refresh_token_an_expired_token_is_sent() -> None:
    bench = logged_in(World(lifetime=100.0))
    bench.world.wall_time += 1000
    assert bench.flow.prepare(bench.now)
    assert bench.header == "Bearer token-1"


def test_stored_credentials_need_no_request() -> None:
    logged_in(shared := world())
    bench = Bench(shared).start()
    assert bench.urls == []
    assert bench.header == "Bearer token-1"
    assert bench.flow.state is AuthorizationState.READY


def test_expired_stored_credentials_need_one_request() -> None:
    logged_in(shared := world())
    shared.wall_time += 100
    bench = Bench(shared).start()
    assert bench.urls == ["https://as.example/token"]
    assert bench.header == "Bearer token-2"


def test_credentials_of_another_account_are_not_used() -> None:
    logged_in(shared := world())
    assert Bench(shared, Authorization(account="other")).start().header == ""


def test_a_refused_token_is_refreshed_if_the_server_is_the_same() -> None:
    bench = logged_in(world())
    attempt = bench.sent()
    assert bench.refused(attempt=attempt) == SendAgain()
    assert bench.urls == [PRM, "https://as.example/token"]
    assert bench.forms()[0]["grant_type"] == "refresh_token"
    attempt.generation = bench.flow.generation
    bench.refused(attempt=attempt)  # the refreshed token as well
    assert bench.forms()[1]["grant_type"] == "authorization_code"


def test_a_refused_token_with_new_scopes_is_not_refreshed() -> None:
    bench = logged_in(world())
    bench.refused(challenge='Bearer error="invalid_token", scope="b"')
    assert bench.forms()[0]["grant_type"] == "authorization_code"
    assert bench.requested("scope")[-1] == "b"


@pytest.mark.requirement("AUTH-C-004", "AUTH-C-024")
def test_another_authorization_server_gets_nothing_of_the_first() -> None:
    bench = logged_in(world())
    other = json.loads(json.dumps(SERVER).replace("https://as.example", "https://as2.example"))
    bench.world.documents = {
        PRM: {**RESOURCE, "authorization_servers": ["https://as2.example"]},
        ASM.replace("as.", "as2."): other,
    }
    bench.refused()
    assert bench.urls == [
        PRM,
        "https://as2.example/.well-known/oauth-authorization-server",
        "https://as2.example/register",
        "https://as2.example/token",
    ]
    assert bench.requested("client_id") == ["client-of-as.example", "client-of-as2.example"]
    for asked in bench.world.asked:
        assert b"client-of-as.example\n" not in asked.body + b"\n"
        assert b"token-1" not in asked.body
        assert b"refresh-1" not in asked.body


# A refresh that fails


def spent(asked: Asked) -> Answer:
    return 400, {"error": "invalid_grant"}


def test_a_refused_refresh_leads_to_a_login() -> None:
    bench = logged_in(world())
    refuse = bench.world.token

    def token(asked: Asked) -> Answer:
        return spent(asked) if asked.form["grant_type"] == "refresh_token" else refuse(asked)

    bench.world.answers["https://as.example/token"] = token
    bench.refused()
    assert [form["grant_type"] for form in bench.forms()] == ["refresh_token", "authorization_code"]
    assert bench.header == "Bearer token-2"
    assert bench.world.locked == set()


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"error": "bad_refresh_token"}),  # as GitHub refuses one
        (200, b"<html>"),
        (400, {"message": "it has expired"}),
        (400, {"error": "invalid_request"}),
        (401, b"<html>"),
        (403, {"error": "access_denied"}),
    ],
)
def test_a_refresh_may_be_refused_in_any_words(answer: Answer) -> None:
    bench = logged_in(world())
    usual = bench.world.token

    def token(asked: Asked) -> Answer:
        return answer if asked.form["grant_type"] == "refresh_token" else usual(asked)

    bench.world.answers["https://as.example/token"] = token
    bench.refused()
    assert bench.header == "Bearer token-2"
    assert bench.world.locked == set()


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_out_of_order_does_not_cost_the_refresh_token(status: int) -> None:
    bench = logged_in(world())
    bench.world.answers["https://as.example/token"] = lambda asked: (
        status,
        {"error": "temporarily_unavailable"},
    )
    bench.refused()
    assert bench.error.reason == "temporarily_unavailable"
    bench.world.answers.clear()
    bench.refused(attempt=Attempt("tools/call other", bench.flow.generation, 1))
    assert bench.header == "Bearer token-2"
    assert len(bench.world.opened) == 1


def test_a_login_after_a_refused_refresh_requests_what_was_requested_before() -> None:
    bench = logged_in(world())
    bench.refused(403, 'Bearer error="insufficient_scope", scope="b"')
    bench.world.answers["https://as.example/token"] = spent
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.header == ""
    bench.world.answers.clear()
    bench.refused(challenge='Bearer scope="a"')
    assert set((bench.requested("scope")[-1] or "").split()) >= {"a", "b"}


def test_step_ups_are_counted_until_the_operation_succeeds() -> None:
    bench = logged_in(world())
    for number in range(5):
        challenge = f'Bearer error="insufficient_scope", scope="s{number}"'
        bench.refused(403, challenge)
        assert isinstance(bench.ends[-1], Obtained)
        bench.flow.responded(bench.sent(), bench.endpoint, ResponseHead(status=200))


def test_a_registration_does_not_replace_what_another_process_has_stored() -> None:
    bench = Bench(world())
    refusing_scopes(bench.world)
    bench.start()
    bench.refused(challenge='Bearer scope="a"')
    document = json.loads(bench.world.stored[KEY])
    document["tokens"] |= {"access_token": "newer", "refresh_token": "newer"}
    bench.world.stored[KEY] = json.dumps(document)
    bench.world.person = lambda url: None  # nobody logs in
    bench.refused(403, 'Bearer error="insufficient_scope", scope="b"')
    bench.wait()
    assert bench.error.reason == "login_failed"
    assert json.loads(bench.world.stored[KEY])["tokens"]["refresh_token"] == "newer"
    assert bench.world.locked == set()


def with_another_client(shared: World, **changes: Any) -> None:
    """Another process has registered once more since the login, and stored its client."""
    document = json.loads(shared.stored[KEY])
    document["clients"]["https://as.example"] |= {"client_id": "newer", **changes}
    shared.stored[KEY] = json.dumps(document)


def test_tokens_are_refreshed_with_the_id_of_their_own_public_client() -> None:
    bench = logged_in(world())
    with_another_client(bench.world)
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.header == "Bearer token-2"
    assert bench.forms()[-1]["client_id"] == "client-of-as.example"


def test_tokens_of_a_client_whose_secret_is_lost_are_not_refreshed() -> None:
    server = {**SERVER, "token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    shared = world(documents={PRM: RESOURCE, ASM: server})
    shared.answers["https://as.example/register"] = lambda asked: (
        201,
        {"client_id": "older", "client_secret": "s"},
    )
    bench = logged_in(shared)
    with_another_client(shared, client_secret="t")
    shared.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.urls == []
    assert bench.header == ""


def test_a_refused_refresh_before_a_request_discards_the_token() -> None:
    bench = logged_in(world())
    bench.world.answers["https://as.example/token"] = spent
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.flow.prepare(bench.now)
    assert bench.header == ""
    assert bench.flow.state is AuthorizationState.IDLE


def test_a_lost_refresh_is_repeated_once() -> None:
    bench = logged_in(world())
    answers: list[Answer] = ["reset"]
    usual = bench.world.token
    bench.world.answers["https://as.example/token"] = lambda asked: (
        answers.pop() if answers else usual(asked)
    )
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert len(bench.forms()) == 2
    assert bench.header == "Bearer token-2"


def test_a_refresh_whose_response_is_too_long_is_not_tried_again() -> None:
    bench = logged_in(world())
    bench.world.answers["https://as.example/token"] = lambda asked: (200, b"x" * 70_000)
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.error.reason == "response_too_large"
    assert len(bench.forms()) == 1


def test_a_refresh_that_is_lost_twice_fails_and_keeps_the_token() -> None:
    bench = logged_in(world())
    bench.world.answers["https://as.example/token"] = lambda asked: "reset"
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.error.reason == "unreachable"
    assert bench.flow.state is AuthorizationState.READY
    assert "refresh-1" in bench.world.stored[KEY]
    assert bench.world.locked == set()


@pytest.mark.parametrize("secret", [None, "s"])
def test_a_given_client_that_has_changed_cannot_refresh(secret: str | None) -> None:
    methods = ["none", "client_secret_basic"]
    server = {**SERVER, "token_endpoint_auth_methods_supported": methods}
    shared = world(documents={PRM: RESOURCE, ASM: server})
    logged_in(shared, Authorization(client=OAuthClient(client_id="a", client_secret=secret)))
    shared.wall_time += 100
    bench = Bench(shared, Authorization(client=OAuthClient(client_id="b", client_secret=secret)))
    bench.start()
    assert bench.urls == []
    assert bench.header == ""


@pytest.mark.parametrize("issuer", ["https://honest.example", None])
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_secret_does_not_go_to_an_issuer_that_registered_the_same_id(
    issuer: str | None, method: str
) -> None:
    """A server can register a client under the id of one that another issuer knows."""
    server = {**SERVER, "token_endpoint_auth_methods_supported": [method]}
    shared = world(documents={PRM: RESOURCE, ASM: server})
    registered = {"client_id": "robot", "client_secret": "x", "token_endpoint_auth_method": method}
    shared.answers["https://as.example/register"] = lambda asked: (201, registered)
    assert logged_in(shared).header == "Bearer token-1"
    shared.wall_time += 100
    shared.asked.clear()
    given = OAuthClient(client_id="robot", client_secret="hush", issuer=issuer)
    bench = Bench(shared, Authorization(client=given)).start()
    assert bench.urls == []
    assert bench.header == ""


def test_a_given_client_and_a_metadata_document_can_refresh() -> None:
    url = "https://app.example/client.json"
    server = {**SERVER, "client_id_metadata_document_supported": True}
    for options in (
        Authorization(client=OAuthClient(client_id="a")),
        Authorization(client_metadata_url=url),
    ):
        shared = world(documents={PRM: RESOURCE, ASM: server})
        bench = logged_in(shared, options)
        shared.wall_time += 100
        bench.flow.prepare(bench.now)
        bench.run()
        assert bench.header == "Bearer token-2"


def test_without_resource_none_is_sent() -> None:
    shared = world(documents={})
    bench = Bench(shared, is_legacy_allowed=True).start()
    bench.refused()
    shared.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert "resource" not in bench.forms()[-1]


# Two processes


def test_the_second_of_two_processes_uses_the_token_of_the_first() -> None:
    shared = world()
    first, second = logged_in(shared), Bench(shared).start()
    shared.wall_time += 100
    first.flow.prepare(0.0)
    second.flow.prepare(0.0)
    first.run()
    second.run()
    assert second.header == first.header == "Bearer token-2"
    assert len(second.forms()) == 1


def test_a_process_waits_for_the_lock_of_another() -> None:
    shared = world()
    bench = logged_in(shared)
    shared.locked.add(KEY)
    shared.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.urls == []
    bench.wait()
    shared.locked.clear()
    bench.wait()
    assert bench.header == "Bearer token-2"
    assert bench.now == pytest.approx(0.2)


def test_a_lock_that_is_stuck_is_an_error() -> None:
    shared = world()
    bench = logged_in(shared)
    shared.locked.add(KEY)
    shared.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    while not isinstance(bench.ends[-1], Failed):
        bench.wait()
    assert bench.error.reason == "lock_held"
    assert bench.now == pytest.approx(45.0)
    assert shared.locked == {KEY}


def test_a_token_of_another_process_that_has_expired_too_is_refreshed() -> None:
    shared = world()
    first, second = logged_in(shared), Bench(shared).start()
    shared.wall_time += 100
    first.flow.prepare(0.0)
    first.run()
    shared.wall_time += 200
    second.flow.prepare(0.0)
    second.run()
    assert second.forms()[-1]["refresh_token"] == "refresh-2"
    assert second.header == "Bearer token-3"


def test_after_a_logout_of_another_process_nothing_is_refreshed() -> None:
    shared = world()
    bench = logged_in(shared)
    shared.stored.clear()
    shared.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.urls == []
    assert bench.header == ""
    assert shared.locked == set()


# The storage


def test_a_document_of_a_newer_release_is_neither_used_nor_overwritten() -> None:
    shared = world(stored={KEY: '{"version": 2}'})
    bench = logged_in(shared)
    assert bench.header == "Bearer token-1"
    shared.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.header == "Bearer token-2"
    assert shared.stored == {KEY: '{"version": 2}'}


@pytest.mark.parametrize("document", ["", "nonsense", "[]", "{}", '{"version":1}', "\ud800"])
def test_a_malformed_document_counts_as_none(document: str) -> None:
    bench = Bench(world(stored={KEY: document})).start()
    assert bench.header == ""
    bench.refused()
    assert bench.header == "Bearer token-1"


def test_if_the_storage_cannot_be_read_nobody_is_asked_to_log_in() -> None:
    bench = Bench(world(storage_fails={LoadCredentials})).start()
    assert bench.error.reason == "effect_failed"
    assert "cannot be read: it burns" in str(bench.error)
    assert bench.flow.state is AuthorizationState.IDLE


@pytest.mark.parametrize(
    ("failing", "text"),
    [
        (SaveCredentials, "cannot be stored"),
        (LockCredentials, "cannot be locked"),
        (LoadCredentials, "cannot be read"),
    ],
)
def test_a_token_that_cannot_be_stored_is_not_used(failing: type, text: str) -> None:
    bench = logged_in(world())
    bench.world.storage_fails.add(failing)
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert text in str(bench.error)
    assert bench.header == "Bearer token-1"
    assert bench.world.locked == set()


@pytest.mark.parametrize(
    ("failing", "text"), [(MakeKey, "no key can be made"), (SignJwt, "a JWT cannot be signed")]
)
def test_failing_signatures(failing: type, text: str) -> None:
    server = {**SERVER, "dpop_signing_alg_values_supported": ["ES256"]}
    given = world(documents={PRM: RESOURCE, ASM: server}, storage_fails={failing})
    bench = Bench(given, Authorization(dpop=True)).start()
    bench.refused()
    assert text in str(bench.error)


def test_a_document_round_trips() -> None:
    saved = Saved(bound_issuer="https://as.example")
    for number in range(25):
        issuer = f"https://as.example{number}"
        saved.add_client(issuer, OAuthClient(client_id="c", issuer=issuer))
    again = Saved.parse(saved.encode())
    assert list(again.clients) == [f"https://as.example{number}" for number in range(5, 25)]
    assert again.clients == saved.clients
    assert (again.bound_issuer, again.tokens) == ("https://as.example", None)
    broken = json.dumps({"version": 1, "clients": {"https://as.example": {}}, "tokens": {}})
    assert Saved.parse(broken).clients == {}


# Time


@pytest.mark.parametrize(
    "url", [PRM, ASM, "https://as.example/register", "https://as.example/token"]
)
def test_a_request_that_is_not_answered_ends_the_flow(url: str) -> None:
    bench = Bench()
    bench.world.answers[url] = lambda asked: None
    bench.start()
    bench.refused()
    assert bench.flow.deadline == 10.0
    bench.wait()
    assert bench.error.reason == "no_response"
    assert bench.error.url == url
    assert bench.pending is None
    assert bench.flow.deadline == float("inf")


def test_nobody_logs_in() -> None:
    bench = Bench(World(person=lambda url: None), Authorization(login_timeout=60.0)).start()
    bench.refused()
    assert bench.flow.deadline == 60.0
    bench.wait()
    assert bench.error.reason == "login_failed"
    assert "60 s (login_timeout)" in str(bench.error)
    assert not bench.flow.redirected("?code=late", bench.now)
    bench.flow.login_failed("too late", bench.now)
    assert len(bench.ends) == 2


def test_the_application_gives_up_the_login() -> None:
    bench = Bench(World(person=lambda url: None)).start()
    bench.refused()
    bench.flow.login_failed("the window was closed", bench.now)
    bench.run()
    assert "the window was closed" in str(bench.error)


def test_closing_breaks_the_flow_off() -> None:
    bench = Bench()
    bench.world.answers[PRM] = lambda asked: None
    bench.start()
    bench.refused()
    fetch = bench.pending
    assert fetch is not None
    bench.flow.close()
    bench.run()
    assert bench.pending is None
    assert bench.flow.deadline == float("inf")
    assert bench.flow.state is AuthorizationState.CLOSED
    assert bench.flow.prepare(0.0)
    assert isinstance(bench.ends[-1], Obtained)  # of the loading


def test_closing_releases_the_lock_and_ignores_what_comes_late() -> None:
    bench = logged_in(world())
    bench.world.answers["https://as.example/token"] = lambda asked: None
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert bench.world.locked == {KEY}
    bench.flow.close()
    bench.run()
    assert bench.world.locked == set()
    late = LoadCredentials(KEY)
    bench.flow.completed(late, None, bench.now)
    bench.flow.effect_failed(late, "x", bench.now)
    assert bench.flow.next_step() is None


def test_closing_while_a_person_logs_in() -> None:
    bench = Bench(World(person=lambda url: None)).start()
    bench.refused()
    bench.flow.close()
    assert bench.flow.next_step() is None
    assert not bench.flow.redirected("?code=x", bench.now)


def test_a_lock_that_is_taken_after_the_end_is_released() -> None:
    bench = logged_in(world())
    bench.world.wall_time += 100
    bench.flow.prepare(bench.now)
    lock = bench.flow.next_step()
    assert isinstance(lock, LockCredentials)
    bench.flow.close()
    bench.world.locked.add(KEY)
    bench.flow.completed(lock, True, bench.now)
    bench.run()
    assert bench.world.locked == set()


def test_an_expired_client_of_a_code_is_registered_again_once() -> None:
    bench = Bench(world())
    answers: list[Answer] = [(401, {"error": "invalid_client"}), (401, {"error": "invalid_client"})]
    usual = bench.world.token
    bench.world.answers["https://as.example/token"] = lambda asked: (
        answers.pop() if answers else usual(asked)
    )
    bench.start()
    bench.refused()
    assert bench.error.reason == "invalid_client"
    assert bench.urls.count("https://as.example/register") == 2
    answers.append((401, {"error": "invalid_client"}))
    bench.refused()
    assert bench.header == "Bearer token-1"


def refusing_scopes(world: World, *, refuses_all: bool = False) -> list[str]:
    """Refuse each client the scopes for which it was not registered; return those scopes."""
    registered: list[str] = []

    def register(asked: Asked) -> Answer:
        registered.append(asked.document["scope"])
        return 201, {"client_id": f"client-{len(registered)}"}

    def log_in(url: str) -> str | None:
        query = dict(parse_qsl(urlsplit(url).query))
        if refuses_all or query["scope"] != registered[-1]:
            answer = {"error": "invalid_scope", "state": query["state"]}
            return f"{query['redirect_uri']}?{urlencode(answer)}"
        world.person = None
        world.opened.pop()
        redirect = world.log_in(url)
        world.person = log_in
        return redirect

    world.answers["https://as.example/register"], world.person = register, log_in
    return registered


def test_a_client_that_is_limited_to_its_scopes_is_registered_again() -> None:
    """As by oidc-provider, and by the authorization server of the official Python SDK."""
    bench = Bench(world())
    registered = refusing_scopes(bench.world)
    bench.start()
    bench.refused(challenge='Bearer scope="a"')
    bench.refused(403, 'Bearer error="insufficient_scope", scope="b"')
    assert bench.header == "Bearer token-2"
    assert registered == ["a", "a b"]
    assert len(bench.world.opened) == 3


def test_scopes_that_are_refused_to_a_new_client_are_not_tried_again() -> None:
    bench = Bench(world())
    registered = refusing_scopes(bench.world, refuses_all=True)
    bench.start()
    bench.refused(challenge='Bearer scope="a"')
    assert bench.error.reason == "invalid_scope"
    assert registered == ["a"]


def test_a_refused_code_is_tried_again_once() -> None:
    bench = Bench()
    bench.world.answers["https://as.example/token"] = spent
    bench.start()
    bench.refused()
    assert bench.error.reason == "invalid_grant"
    assert len(bench.world.opened) == 2


def test_a_given_client_that_is_refused_is_not_registered() -> None:
    bench = Bench(options=Authorization(client=OAuthClient(client_id="c")))
    bench.world.answers["https://as.example/token"] = lambda asked: (
        401,
        {"error": "invalid_client"},
    )
    bench.start()
    bench.refused()
    assert bench.error.reason == "invalid_client"
    assert len(bench.forms()) == 1


def test_the_text_of_an_error_can_be_evolved_for_each_request() -> None:
    error = AuthorizationFailed("x", reason="y", url="z", method="m", request_id=1)
    assert (error.reason, error.url, error.method, error.request_id) == ("y", "z", "m", 1)
    assert attrs.has(CredentialsKey)


def test_a_registration_keeps_what_another_process_has_stored_meanwhile() -> None:
    shared = world()
    logged_in(shared)
    ((key, theirs),) = shared.stored.items()
    shared.stored.clear()
    shared.person = lambda url: None

    def register(asked: Asked) -> Answer:
        shared.stored[key] = theirs
        return 201, {"client_id": "mine"}

    shared.answers["https://as.example/register"] = register
    bench = Bench(shared).start()
    bench.refused()
    assert bench.flow.state is AuthorizationState.LOGIN
    stored = Saved.parse(shared.stored[key])
    assert stored.clients["https://as.example"].client_id == "mine"
    assert stored.tokens is not None
    assert stored.tokens.access_token == "token-1"


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client"])
def test_the_storage_is_not_locked_while_a_person_logs_in(error: str) -> None:
    """Other processes use the credentials meanwhile, and a person may take minutes."""
    bench = logged_in(shared := world())
    shared.answers["https://as.example/token"] = lambda asked: (400, {"error": error})
    shared.person = lambda url: None
    bench.refused()
    assert [form["grant_type"] for form in bench.forms()] == ["refresh_token"]
    assert bench.flow.state is AuthorizationState.LOGIN
    assert shared.locked == set()
