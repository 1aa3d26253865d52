"""The flow: which requests it makes, in which order, and with what."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.flow import GiveUp, SendAgain
from sansmcp.auth.options import (
    Authorization,
    ClientCredentials,
    IdentityAssertion,
    JwtAssertion,
)
from sansmcp.auth.steps import Obtained
from sansmcp.http import ResponseHead
from sansmcp.states import AuthorizationState

from .bench import ASM, ENDPOINT, OPENID, PRM, RESOURCE, ROOT_PRM, SERVER, Bench, World

TENANT = "https://as.example/tenant1"


def tenant(url: str) -> dict[str, Any]:
    """A world whose issuer has a path, and whose metadata is at one of the three URLs."""
    resource = {**RESOURCE, "authorization_servers": [TENANT]}
    return {PRM: resource, url: {**SERVER, "issuer": TENANT}}


SHORTEST: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "default": ({PRM: RESOURCE, ASM: SERVER}, f'Bearer resource_metadata="{PRM}"', [PRM, ASM]),
    "no challenge": ({PRM: RESOURCE, ASM: SERVER}, "", [PRM, ASM]),
    "openid": ({PRM: RESOURCE, OPENID: SERVER}, "Bearer", [PRM, ASM, OPENID]),
    "root": ({ROOT_PRM: RESOURCE, ASM: SERVER}, "Bearer", [PRM, ROOT_PRM, ASM]),
    "challenged": (
        {"https://h.example/odd": RESOURCE, ASM: SERVER},
        'Bearer resource_metadata="https://h.example/odd"',
        ["https://h.example/odd", ASM],
    ),
    "stale challenge": (
        {PRM: RESOURCE, ASM: SERVER},
        'Bearer resource_metadata="https://h.example/odd"',
        ["https://h.example/odd", PRM, ASM],
    ),
    "path, first": (
        tenant("https://as.example/.well-known/oauth-authorization-server/tenant1"),
        "Bearer",
        [PRM, "https://as.example/.well-known/oauth-authorization-server/tenant1"],
    ),
    "path, last": (
        tenant("https://as.example/tenant1/.well-known/openid-configuration"),
        "Bearer",
        [
            PRM,
            "https://as.example/.well-known/oauth-authorization-server/tenant1",
            "https://as.example/.well-known/openid-configuration/tenant1",
            "https://as.example/tenant1/.well-known/openid-configuration",
        ],
    ),
}


@pytest.mark.requirement("AUTH-C-006", "AUTH-C-007", "AUTH-C-008", "AUTH-C-009", "AUTH-C-010")
@pytest.mark.parametrize(("documents", "challenge", "metadata"), SHORTEST.values(), ids=SHORTEST)
def test_the_shortest_flow(documents: dict[str, Any], challenge: str, metadata: list[str]) -> None:
    bench = Bench(World(documents=documents)).start()
    assert bench.refused(challenge=challenge) == SendAgain()
    assert bench.urls == [*metadata, "https://as.example/register", "https://as.example/token"]
    assert len(bench.world.opened) == 1
    assert bench.header == "Bearer token-1"
    assert bench.flow.state is AuthorizationState.READY
    assert [type(end) for end in bench.ends] == [Obtained, Obtained]
    assert bench.world.locked == set()


def test_metadata_is_requested_without_credentials() -> None:
    bench = Bench().start()
    bench.refused()
    for asked in bench.world.asked[:2]:
        assert (asked.method, asked.headers) == ("GET", {"accept": "application/json"})


@pytest.mark.requirement("AUTH-C-020")
def test_what_the_code_flow_sends() -> None:
    resource = {**RESOURCE, "resource": "HTTPS://H.EXAMPLE"}
    bench = Bench(World(documents={PRM: resource, ASM: SERVER})).start()
    bench.refused()
    assert bench.requested("resource") == ["HTTPS://H.EXAMPLE"]
    (form,) = bench.forms()
    assert form.pop("code_verifier")
    assert form == {
        "grant_type": "authorization_code",
        "code": "code-1",
        "redirect_uri": "http://127.0.0.1/callback",
        "resource": "HTTPS://H.EXAMPLE",
        "client_id": "client-of-as.example",
    }


@pytest.mark.requirement("AUTH-C-011", "AUTH-C-025")
def test_the_fallback_of_2025_03_26() -> None:
    old = "https://h.example/.well-known/oauth-authorization-server"
    metadata = {**SERVER, "issuer": "https://h.example"}
    bench = Bench(World(documents={old: metadata}), is_legacy_allowed=True).start()
    bench.refused()
    assert bench.urls == [
        PRM,
        ROOT_PRM,
        old,
        "https://as.example/register",
        "https://as.example/token",
    ]
    assert bench.world.asked[2].headers["mcp-protocol-version"] == "2025-03-26"
    # The endpoints have another origin, and serve other resources as well.
    assert bench.requested("resource") == ["https://h.example/mcp"]
    assert bench.forms()[0]["resource"] == "https://h.example/mcp"


@pytest.mark.requirement("AUTH-C-011", "AUTH-C-022")
def test_the_default_endpoints_of_2025_03_26() -> None:
    bench = Bench(World(documents={}), is_legacy_allowed=True).start()
    bench.refused()
    old = "https://h.example/.well-known/oauth-authorization-server"
    assert bench.urls == [
        PRM,
        ROOT_PRM,
        old,
        "https://h.example/register",
        "https://h.example/token",
    ]
    assert bench.world.opened[0].startswith("https://h.example/authorize?")
    assert bench.requested("code_challenge_method") == ["S256"]


def test_without_metadata_a_newer_client_names_all_that_it_has_tried() -> None:
    bench = Bench(World(documents={})).start()
    bench.refused(challenge='Bearer resource_metadata="https://h.example/odd"')
    assert bench.error.reason == "no_metadata"
    assert all(url in str(bench.error) for url in ("https://h.example/odd", PRM, ROOT_PRM))


def test_an_issuer_without_metadata() -> None:
    bench = Bench(World(documents={PRM: RESOURCE})).start()
    bench.refused()
    assert bench.error.reason == "no_metadata"
    assert bench.urls == [PRM, ASM, OPENID]


def test_the_first_of_several_servers_that_can_be_used() -> None:
    resource = {**RESOURCE, "authorization_servers": ["https://bad.example", "https://as.example"]}
    bench = Bench(World(documents={PRM: resource, ASM: SERVER})).start()
    bench.refused()
    assert bench.header == "Bearer token-1"


def test_if_no_server_can_be_used_the_first_error_is_reported() -> None:
    resource = {**RESOURCE, "authorization_servers": ["https://bad.example", "https://as.example"]}
    bench = Bench(World(documents={PRM: resource})).start()
    bench.refused()
    assert "https://bad.example" in str(bench.error)


# Registration


def test_a_given_client_is_not_registered() -> None:
    client = OAuthClient(client_id="mine", client_secret="s", issuer="https://as.example")
    server = {**SERVER, "token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server}), Authorization(client=client))
    bench.start().refused()
    assert bench.urls == [PRM, ASM, "https://as.example/token"]
    assert bench.world.asked[-1].headers["authorization"] == "Basic bWluZTpz"


@pytest.mark.requirement("AUTH-C-024")
def test_a_given_client_of_another_issuer_is_not_used() -> None:
    client = OAuthClient(client_id="mine", client_secret="s", issuer="https://other.example")
    bench = Bench(options=Authorization(client=client)).start()
    bench.refused()
    assert bench.error.reason == "foreign_issuer"
    assert bench.urls == [PRM]


@pytest.mark.requirement("AUTH-C-024")
def test_a_given_client_without_issuer_belongs_to_the_first() -> None:
    world = World()
    options = Authorization(client=OAuthClient(client_id="mine"))
    Bench(world, options).start().refused()
    world.documents[PRM] = {**RESOURCE, "authorization_servers": ["https://evil.example"]}
    world.stored = {
        key: document.replace("token-1", "stale") for key, document in world.stored.items()
    }
    bench = Bench(world, options).start()
    world.asked.clear()
    bench.refused()
    assert bench.error.reason == "foreign_issuer"
    assert bench.urls == [PRM]


def test_a_metadata_document_is_the_client_where_that_is_supported() -> None:
    url = "https://app.example/client.json"
    server = {**SERVER, "client_id_metadata_document_supported": True}
    bench = Bench(
        World(documents={PRM: RESOURCE, ASM: server}), Authorization(client_metadata_url=url)
    ).start()
    bench.refused()
    assert bench.urls == [PRM, ASM, "https://as.example/token"]
    assert bench.requested("client_id") == [url]
    assert bench.forms()[0]["client_id"] == url


def test_a_metadata_document_is_not_the_client_elsewhere() -> None:
    url = "https://app.example/client.json"
    bench = Bench(options=Authorization(client_metadata_url=url)).start()
    bench.refused()
    assert bench.requested("client_id") == ["client-of-as.example"]


def test_a_server_that_registers_nobody() -> None:
    server = {name: value for name, value in SERVER.items() if name != "registration_endpoint"}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server})).start()
    bench.refused()
    assert bench.error.reason == "no_client"
    assert bench.world.opened == []


def test_a_registered_client_is_stored_and_used_again() -> None:
    world = World(person=lambda url: None)
    Bench(world).start().refused()
    world.person = None
    bench = Bench(world).start()
    bench.refused()
    assert bench.urls.count("https://as.example/register") == 1


def registered_scopes(bench: Bench) -> list[str | None]:
    """The scopes for which clients were registered."""
    asked = [each for each in bench.world.asked if each.url == "https://as.example/register"]
    return [each.document.get("scope") for each in asked]


def test_a_client_is_registered_for_all_scopes_that_the_server_names() -> None:
    resource = {**RESOURCE, "scopes_supported": ["b", "c"]}
    server = {**SERVER, "scopes_supported": ["offline_access"]}
    bench = Bench(World(documents={PRM: resource, ASM: server})).start()
    bench.refused(challenge='Bearer scope="a"')
    assert bench.requested("scope") == ["a offline_access"]
    assert registered_scopes(bench) == ["a offline_access b c"]


def strict(scopes: str) -> World:
    """Refuses scopes that a client was not registered for; knows no others than these."""
    world = World()

    def log_in(url: str) -> str:
        wanted = dict(parse_qsl(urlsplit(url).query))
        (*_, registration) = (
            each for each in world.asked if each.url == "https://as.example/register"
        )
        allowed = registration.document.get("scope", "").split()
        if not set(wanted["scope"].split()) <= {*allowed} & {*scopes.split()}:
            return "?" + urlencode({"error": "invalid_scope", "state": wanted["state"]})
        world.person = None
        redirect = world.log_in(world.opened.pop())
        world.person = log_in
        assert redirect is not None
        return redirect

    world.person = log_in
    return world


def test_a_client_that_was_registered_for_other_scopes_is_registered_again() -> None:
    bench = Bench(strict("a b c")).start()
    bench.refused(challenge='Bearer scope="a"')
    assert bench.refused(403, STEP_UP.format("b")) == SendAgain()
    assert bench.header == "Bearer token-2"
    assert registered_scopes(bench) == ["a", "a b"]
    assert bench.requested("scope") == ["a", "a b", "a b"]


def test_a_scope_that_nobody_gets_is_an_error() -> None:
    bench = Bench(strict("a")).start()
    bench.refused(challenge='Bearer scope="b"')
    assert bench.error.reason == "invalid_scope"
    assert registered_scopes(bench) == ["b"]
    bench.refused(challenge='Bearer scope="c"')
    assert bench.error.reason == "invalid_scope"
    assert registered_scopes(bench) == ["b", "c"]


@pytest.mark.parametrize("change", ["redirect_uri", "expired"])
def test_a_registered_client_that_cannot_be_used_is_registered_again(change: str) -> None:
    world = World()
    registered = {"client_id": "c", "client_secret_expires_at": 2_000_000}
    world.answers["https://as.example/register"] = lambda asked: (201, registered)
    Bench(world).start().refused()
    options = Authorization()
    if change == "redirect_uri":
        options = Authorization(redirect_uri="http://127.0.0.1:8/callback")
    else:
        world.wall_time = 2_000_000
    bench = Bench(world, options).start()
    bench.refused()
    assert bench.urls.count("https://as.example/register") == 2


def test_no_common_way_to_authenticate() -> None:
    server = {**SERVER, "token_endpoint_auth_methods_supported": ["tls_client_auth"]}
    options = Authorization(client=OAuthClient(client_id="c", client_secret="s"))
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server}), options).start()
    bench.refused()
    assert bench.error.reason == "no_auth_method"
    assert bench.world.opened == []


# Scopes


@pytest.mark.requirement("AUTH-C-013", "AUTH-C-014", "AUTH-C-015")
@pytest.mark.parametrize(
    ("challenge", "supported", "requested"),
    [
        ('Bearer scope="c d"', ["s"], "c d"),
        ("Bearer", ["s", "t"], "s t"),
        ("Bearer", None, None),
    ],
)
def test_scopes_of_the_first_request(
    challenge: str, supported: list[str] | None, requested: str | None
) -> None:
    resource = RESOURCE if supported is None else {**RESOURCE, "scopes_supported": supported}
    bench = Bench(World(documents={PRM: resource, ASM: SERVER})).start()
    bench.refused(challenge=challenge)
    assert bench.requested("scope") == [requested]


@pytest.mark.parametrize(("wants", "requested"), [(True, "a offline_access"), (False, "a")])
def test_offline_access(wants: bool, requested: str) -> None:
    server = {**SERVER, "scopes_supported": ["offline_access"]}
    options = Authorization(wants_refresh=wants, scopes="a", extra={"prompt": "consent"})
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server}), options).start()
    bench.refused()
    assert bench.requested("scope") == [requested]
    assert bench.requested("prompt") == ["consent"]


STEP_UP = 'Bearer error="insufficient_scope", scope="{}"'


@pytest.mark.requirement("AUTH-C-016", "AUTH-C-017")
def test_a_step_up_asks_for_the_union_and_repeats_only_login_and_token() -> None:
    bench = Bench().start()
    bench.refused(challenge='Bearer scope="a"')
    bench.world.asked.clear()
    assert bench.refused(403, STEP_UP.format("b")) == SendAgain()
    assert bench.urls == ["https://as.example/token"]
    assert bench.requested("scope") == ["a", "a b"]
    assert bench.header == "Bearer token-2"


@pytest.mark.requirement("AUTH-C-019")
def test_a_step_up_that_asks_for_nothing_new_is_none() -> None:
    bench = Bench().start()
    bench.refused(challenge='Bearer scope="a b"')
    verdict = bench.refused(403, STEP_UP.format("b"))
    assert isinstance(verdict, GiveUp)
    assert "'b'" in str(verdict.error)
    assert "'a b'" in str(verdict.error)
    assert len(bench.world.opened) == 1


@pytest.mark.requirement("AUTH-C-019")
def test_step_ups_of_one_operation_are_limited() -> None:
    bench = Bench().start()
    bench.refused()
    assert bench.refused(403, STEP_UP.format("a")) == SendAgain()
    assert bench.refused(403, STEP_UP.format("b")) == SendAgain()
    verdict = bench.refused(403, STEP_UP.format("c"))
    assert isinstance(verdict, GiveUp)
    assert "tools/call echo" in str(verdict.error)
    other = bench.sent("tools/call other")
    assert bench.refused(403, STEP_UP.format("c"), attempt=other) == SendAgain()


def test_only_so_many_operations_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp.auth.step_ups._MAX_OPERATIONS", 1)
    bench = Bench().start()
    for scope, operation in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")):
        attempt = bench.sent(operation)
        assert bench.refused(403, STEP_UP.format(scope), attempt=attempt) == SendAgain()


def test_a_step_up_with_a_stored_token_reads_the_metadata() -> None:
    world = World()
    Bench(world).start().refused()
    bench = Bench(world).start()
    world.asked.clear()
    bench.refused(403, STEP_UP.format("b"))
    assert bench.urls == [PRM, ASM, "https://as.example/token"]


@pytest.mark.parametrize(
    ("status", "challenge"),
    [(403, "Bearer"), (403, 'Bearer error="invalid_token"'), (403, ""), (400, "Bearer"), (200, "")],
)
def test_other_refusals_are_those_of_the_application(status: int, challenge: str) -> None:
    bench = Bench().start()
    assert bench.refused(status, challenge) is None
    assert bench.urls == []


# Several requests


def test_a_request_with_an_older_token_is_only_sent_again() -> None:
    bench = Bench().start()
    old = bench.sent()
    bench.refused()
    assert bench.refused(attempt=old) == SendAgain()
    assert len(bench.world.opened) == 1


def test_requests_wait_for_the_flow_that_runs() -> None:
    bench = Bench(World(person=lambda url: None)).start()
    bench.refused()
    assert bench.flow.is_busy
    assert not bench.flow.prepare(bench.now)
    assert bench.refused() == SendAgain()
    assert len(bench.world.opened) == 1


def test_a_request_is_sent_three_times_at_most() -> None:
    bench = Bench().start()
    attempt = bench.sent()
    assert bench.refused(attempt=attempt) == SendAgain()
    attempt.sends, attempt.generation = 2, bench.flow.generation
    assert bench.refused(attempt=attempt) == SendAgain()
    attempt.sends, attempt.generation = 3, bench.flow.generation
    verdict = bench.refused(attempt=attempt)
    assert isinstance(verdict, GiveUp)
    assert verdict.error.reason == "refused_again"
    assert len(bench.world.opened) == 2


def test_tokens_that_were_refused_do_not_count_as_step_ups() -> None:
    """Another process of this user has stored a token that the server does not take either."""
    bench = Bench().start()
    attempt = bench.sent()
    assert bench.refused(attempt=attempt) == SendAgain()
    for sends, scope in ((3, "a"), (4, "b")):
        attempt.sends, attempt.generation = sends, bench.flow.generation
        assert bench.refused(403, STEP_UP.format(scope), attempt=attempt) == SendAgain()
    attempt.sends, attempt.generation = 5, bench.flow.generation
    verdict = bench.refused(403, STEP_UP.format("c"), attempt=attempt)
    assert isinstance(verdict, GiveUp)


def test_step_ups_end_while_others_of_the_operation_succeed() -> None:
    bench = Bench().start()
    attempt = bench.sent()
    assert bench.refused(attempt=attempt) == SendAgain()
    for sends in range(2, 10):
        bench.flow.responded(bench.sent(), ENDPOINT, ResponseHead(status=200))
        attempt.sends, attempt.generation = sends, bench.flow.generation
        verdict = bench.refused(403, STEP_UP.format(f"scope{sends}"), attempt=attempt)
        if isinstance(verdict, GiveUp):
            break
    assert attempt.sends == 5


# Without a person


def machine(methods: list[str], **given: Any) -> World:
    server = {
        "issuer": "https://as.example",
        "token_endpoint": "https://as.example/token",
        "token_endpoint_auth_methods_supported": methods,
        **given,
    }
    return World(documents={PRM: RESOURCE, ASM: server})


@pytest.mark.requirement("AUTH-C-018")
def test_client_credentials_with_a_secret() -> None:
    client = OAuthClient(client_id="c", client_secret="s")
    world = machine(["client_secret_basic", "private_key_jwt"])
    options = Authorization(client=client, grant=ClientCredentials(), scopes="a")
    bench = Bench(world, options).start()
    bench.refused()
    assert bench.urls == [PRM, ASM, "https://as.example/token"]
    assert bench.forms() == [
        {"grant_type": "client_credentials", "scope": "a", "resource": ENDPOINT}
    ]
    assert world.asked[-1].headers["authorization"].startswith("Basic ")
    bench.refused(403, STEP_UP.format("b"))
    assert bench.forms()[1]["scope"] == "a b"
    assert bench.header == "Bearer token-2"


@pytest.mark.parametrize(
    ("listed", "given", "algorithm"),
    [(["RS256", "ES256"], None, "ES256"), (None, None, "ES256"), (["X"], "RS512", "RS512")],
)
def test_client_credentials_with_a_key(
    listed: list[str] | None, given: str | None, algorithm: str
) -> None:
    client = OAuthClient(client_id="c", private_key="PEM", key_id="k", algorithm=given)
    more = {} if listed is None else {"token_endpoint_auth_signing_alg_values_supported": listed}
    world = machine(["private_key_jwt"], **more)
    bench = Bench(world, Authorization(client=client, grant=ClientCredentials())).start()
    bench.refused()
    (signed,) = world.signed
    assert signed.header["alg"] == algorithm
    assert signed.claims["aud"] == "https://as.example"
    assert signed.key == "PEM"
    assert bench.forms()[0]["client_assertion"] == "jwt-1"


def test_an_error_without_a_person_is_final() -> None:
    client = OAuthClient(client_id="c", client_secret="s")
    world = machine(["client_secret_basic"])
    world.answers["https://as.example/token"] = lambda asked: (400, {"error": "invalid_grant"})
    bench = Bench(world, Authorization(client=client, grant=ClientCredentials())).start()
    bench.refused()
    assert bench.error.reason == "invalid_grant"
    assert len(bench.forms()) == 1


@pytest.mark.parametrize("has_client", [True, False])
def test_an_assertion_of_the_platform(has_client: bool) -> None:
    client = OAuthClient(client_id="c") if has_client else None
    world = machine(["none"])
    options = Authorization(client=client, grant=JwtAssertion("a.b.c", "https://as.example"))
    bench = Bench(world, options).start()
    bench.refused()
    assert bench.urls == [PRM, ASM, "https://as.example/token"]
    (form,) = bench.forms()
    assert form.pop("client_id", None) == ("c" if has_client else None)
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "a.b.c",
        "resource": ENDPOINT,
    }
    assert Bench(world, options).start().header == "Bearer token-1"


@pytest.mark.parametrize("is_legacy_allowed", [True, False])
def test_an_assertion_of_the_platform_is_for_one_server(is_legacy_allowed: bool) -> None:
    """Another one could use it there, as long as it is valid."""
    options = Authorization(grant=JwtAssertion("a.b.c", "https://mine.example"))
    world = World(documents={}) if is_legacy_allowed else machine(["none"])
    bench = Bench(world, options, is_legacy_allowed=is_legacy_allowed).start()
    bench.refused()
    assert bench.error.reason == "foreign_issuer"
    assert bench.forms() == []


IDENTITY = IdentityAssertion(
    token_endpoint="https://idp.example/token",
    client=OAuthClient(client_id="at-idp", client_secret="i"),
    subject_token="id.token",
)


def test_an_assertion_of_the_company() -> None:
    jag = "urn:ietf:params:oauth:token-type:id-jag"
    world = machine(["client_secret_basic"])
    world.answers["https://idp.example/token"] = lambda asked: (
        200,
        {"access_token": "jag", "issued_token_type": jag, "token_type": "N_A"},
    )
    client = OAuthClient(client_id="c", client_secret="s", issuer="https://as.example")
    bench = Bench(world, Authorization(client=client, grant=IDENTITY, scopes="a")).start()
    bench.refused()
    assert bench.urls == [PRM, ASM, "https://idp.example/token", "https://as.example/token"]
    assert bench.forms()[0] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": jag,
        "audience": "https://as.example",
        "resource": ENDPOINT,
        "subject_token": "id.token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "scope": "a",
    }
    assert bench.forms()[1] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "jag",
        "scope": "a",
        "resource": ENDPOINT,
    }
    at_idp, at_server = (asked.headers["authorization"] for asked in world.asked[2:])
    assert at_idp != at_server


def test_an_identity_at_a_server_of_2025_03_26() -> None:
    jag = "urn:ietf:params:oauth:token-type:id-jag"
    world = World(documents={})
    world.answers["https://idp.example/token"] = lambda asked: (
        200,
        {"access_token": "jag", "issued_token_type": jag},
    )
    client = OAuthClient(client_id="c", client_secret="s", issuer="https://h.example")
    options = Authorization(client=client, grant=IDENTITY)
    bench = Bench(world, options, is_legacy_allowed=True).start()
    bench.refused()
    assert all("resource" not in form and "scope" not in form for form in bench.forms())


# DPoP

DPOP_SERVER = {**SERVER, "dpop_signing_alg_values_supported": ["ES256"]}


def dpop_world(**resource: Any) -> World:
    documents = {PRM: {**RESOURCE, **resource}, ASM: DPOP_SERVER}
    return World(documents=documents, token_type="DPoP")


@pytest.mark.parametrize("who", ["application", "challenge", "metadata"])
def test_who_can_want_dpop(who: str) -> None:
    world = dpop_world(dpop_bound_access_tokens_required=who == "metadata")
    bench = Bench(world, Authorization(dpop=who == "application")).start()
    bench.refused(challenge="DPoP" if who == "challenge" else "Bearer")
    (signed,) = world.signed
    assert signed.claims["htu"] == "https://as.example/token"
    assert world.asked[-1].headers["dpop"] == "jwt-1"
    effect = bench.flow.proof(b"GET", "https://h.example/mcp?x")
    assert effect is not None
    assert (effect.claims["htm"], effect.claims["htu"]) == ("GET", ENDPOINT)
    assert "ath" in effect.claims
    assert bench.flow.headers("p") == ((b"authorization", b"DPoP token-1"), (b"dpop", b"p"))


def test_without_dpop_there_is_no_proof() -> None:
    bench = Bench().start()
    assert bench.flow.proof(b"GET", ENDPOINT) is None
    assert bench.flow.headers(None) == ()
    bench.refused()
    assert bench.flow.proof(b"GET", ENDPOINT) is None


def test_the_token_endpoint_can_demand_a_nonce() -> None:
    world = dpop_world()
    answers = iter([(400, {"error": "use_dpop_nonce"}, {"DPoP-Nonce".lower(): "n1"})])
    world.answers["https://as.example/token"] = lambda asked: (
        next(answers, None) or world.token(asked)
    )
    bench = Bench(world, Authorization(dpop=True)).start()
    bench.refused()
    assert bench.header
    assert ["nonce" in each.claims for each in world.signed] == [False, True]
    assert world.signed[0].claims["jti"] != world.signed[1].claims["jti"]
    first, second = bench.forms()
    assert first == second


def test_a_nonce_is_demanded_once() -> None:
    world = dpop_world()
    demand = (400, {"error": "use_dpop_nonce"}, {"dpop-nonce": "n1"})
    world.answers["https://as.example/token"] = lambda asked: demand
    bench = Bench(world, Authorization(dpop=True)).start()
    bench.refused()
    assert bench.error.reason == "use_dpop_nonce"
    assert len(bench.forms()) == 2


def test_a_nonce_of_the_mcp_server_starts_no_flow_and_goes_to_no_other() -> None:
    world = dpop_world()
    bench = Bench(world, Authorization(dpop=True)).start()
    bench.refused()
    attempt = bench.sent()
    demand = 'DPoP error="use_dpop_nonce"'
    assert bench.refused(challenge=demand, attempt=attempt, nonce="n2") == SendAgain()
    assert len(bench.world.opened) == 1
    effect = bench.flow.proof(b"POST", ENDPOINT)
    assert effect is not None
    assert effect.claims["nonce"] == "n2"
    bench.refused(challenge=demand, attempt=attempt, nonce="n3")  # again: a new flow
    assert len(bench.world.opened) == 2
    assert "nonce" not in world.signed[-1].claims


def test_only_so_many_nonces_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp.auth.signatures._MAX_NONCES", 1)
    world = dpop_world()
    bench = Bench(world, Authorization(dpop=True)).start()
    bench.refused(nonce="n1")
    world.answers["https://as.example/token"] = lambda asked: (
        400,
        {"error": "x"},
        {"dpop-nonce": "n2"},
    )
    bench.refused(403, STEP_UP.format("b"))
    effect = bench.flow.proof(b"GET", ENDPOINT)
    assert effect is not None
    assert "nonce" not in effect.claims


def test_dpop_that_the_server_does_not_support() -> None:
    bench = Bench().start()
    bench.refused(challenge="DPoP")
    assert bench.error.reason == "dpop_unsupported"
    assert bench.world.opened == []


@pytest.mark.parametrize(("wanted", "given"), [(True, "Bearer"), (False, "DPoP")])
def test_a_token_that_is_not_of_the_requested_kind(wanted: bool, given: str) -> None:
    world = dpop_world()
    world.token_type = given
    bench = Bench(world, Authorization(dpop=wanted)).start()
    bench.refused()
    assert bench.error.reason == "dpop_mismatch"
    assert bench.header == ""


def test_the_key_is_kept_for_the_next_token_of_a_server() -> None:
    world = dpop_world()
    bench = Bench(world, Authorization(dpop=True)).start()
    bench.refused()
    key = world.signed[0].key
    world.storage_fails.clear()
    bench.refused(403, STEP_UP.format("b"))
    assert world.signed[1].key is key
