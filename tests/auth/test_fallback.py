"""The fallback of 2025-03-26: what a server without metadata of the resource gets, and what not.

Such a server decides alone where the person logs in and where the code goes. So it must get nothing
that belongs to another issuer: no secret, no code, no assertion.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import (
    Authorization,
    ClientCredentials,
    IdentityAssertion,
)

from .bench import (
    ASM,
    ENDPOINT,
    OPENID,
    PRM,
    RESOURCE,
    ROOT_PRM,
    SERVER,
    Answer,
    Asked,
    Bench,
    World,
)

OLD = "https://h.example/.well-known/oauth-authorization-server"
OWN: dict[str, Any] = {
    **SERVER,
    "issuer": "https://h.example",
    "authorization_endpoint": "https://h.example/login",
    "token_endpoint": "https://h.example/token",
    "registration_endpoint": "https://h.example/register",
}
METHODS = ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]


def fallback(world: World, options: Authorization | None = None) -> Bench:
    """A server without metadata of the resource, after it has refused a request."""
    bench = Bench(world, options or Authorization(), is_legacy_allowed=True).start()
    bench.refused()
    return bench


def sent_to(bench: Bench, host: str) -> list[Asked]:
    """The POSTs that a host got."""
    origin = f"https://{host}/"
    return [each for each in bench.world.asked if each.url.startswith(origin) and each.body]


def test_the_issuer_is_the_origin_of_the_server() -> None:
    bench = fallback(World(documents={OLD: OWN}))
    assert bench.urls == [
        PRM,
        ROOT_PRM,
        OLD,
        "https://h.example/register",
        "https://h.example/token",
    ]
    assert bench.header == "Bearer token-1"
    assert bench.flow.tokens is not None
    assert bench.flow.tokens.issuer == "https://h.example"


@pytest.mark.parametrize("place", [ASM, OPENID])
def test_another_issuer_speaks_for_itself(place: str) -> None:
    """Of a document that names another issuer nothing is used but that name."""
    named = {**OWN, "issuer": "https://as.example"}
    bench = fallback(World(documents={OLD: named, place: SERVER}))
    assert bench.header == "Bearer token-1"
    assert bench.urls[-2:] == ["https://as.example/register", "https://as.example/token"]
    assert bench.world.opened[0].startswith("https://as.example/authorize?")
    assert sent_to(bench, "h.example") == []


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "no_metadata"),
        ({ASM: {**SERVER, "issuer": "https://other.example"}}, "issuer_mismatch"),
    ],
)
def test_another_issuer_that_does_not_confirm_it(metadata: dict[str, Any], reason: str) -> None:
    bench = fallback(World(documents={OLD: {**OWN, "issuer": "https://as.example"}, **metadata}))
    assert bench.error.reason == reason
    assert bench.world.opened == []
    assert sent_to(bench, "h.example") == []


def test_mix_up_by_a_document_that_names_an_honest_issuer() -> None:
    """The honest server logs the person in; its code must not reach the MCP server."""
    mixed = {**SERVER, "token_endpoint": "https://h.example/token"}
    bench = fallback(World(documents={OLD: mixed, ASM: SERVER}))
    assert sent_to(bench, "h.example") == []
    assert [form["code"] for form in bench.forms()] == ["code-1"]
    assert bench.urls[-1] == "https://as.example/token"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_mix_up_by_endpoints_of_several_origins(name: str) -> None:
    bench = fallback(World(documents={OLD: {**OWN, name: "https://as.example/x"}}))
    assert bench.error.reason == "issuer_mismatch"
    assert "https://as.example/x" in str(bench.error)
    assert bench.world.opened == []
    assert bench.forms() == []


def test_one_other_origin_may_have_all_endpoints() -> None:
    bench = fallback(World(documents={OLD: {**SERVER, "issuer": "https://h.example"}}))
    assert bench.header == "Bearer token-1"


FOREIGN: dict[str, dict[str, Any]] = {
    "another issuer": {OLD: SERVER, ASM: SERVER},
    "endpoints elsewhere": {OLD: {**SERVER, "issuer": "https://h.example"}},
}


@pytest.mark.parametrize("documents", FOREIGN.values(), ids=FOREIGN)
def test_another_server_is_told_for_whom_a_token_is(documents: dict[str, Any]) -> None:
    """Else a server that hides its metadata would get a token that is good for others."""
    bench = fallback(World(documents=documents, gives_refresh=True))
    assert bench.requested("resource") == [ENDPOINT]
    assert [form["resource"] for form in bench.forms()] == [ENDPOINT]
    again = Bench(bench.world, is_legacy_allowed=True).start()
    again.refused()
    assert again.forms()[-1]["grant_type"] == "refresh_token"
    assert again.forms()[-1]["resource"] == ENDPOINT
    assert again.header == "Bearer token-2"


def test_a_program_gets_no_token_for_others() -> None:
    basic = {**SERVER, "token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    options = Authorization(client=secret("https://as.example"), grant=ClientCredentials())
    bench = fallback(World(documents={OLD: SERVER, ASM: basic}), options)
    assert [form["resource"] for form in bench.forms()] == [ENDPOINT]


def test_the_own_server_is_told_no_resource() -> None:
    bench = fallback(World(documents={OLD: OWN}))
    assert bench.requested("resource") == [None]
    assert "resource" not in bench.forms()[0]


@pytest.mark.parametrize("issuer", ["http://as", "https://as.example?x", "file:///x"])
def test_a_name_that_is_no_issuer(issuer: str) -> None:
    bench = fallback(World(documents={OLD: {**OWN, "issuer": issuer}}))
    assert bench.error.reason == "issuer_mismatch"
    assert sent_to(bench, "h.example") == []


def secret(issuer: str | None) -> OAuthClient:
    return OAuthClient(client_id="robot", client_secret="hush", issuer=issuer)


IDENTITY = IdentityAssertion(
    token_endpoint="https://idp.example/token",
    client=OAuthClient(client_id="at-idp"),
    subject_token="id.token",
)
BOUND: dict[str, Authorization] = {
    "secret": Authorization(client=secret("https://as.example"), grant=ClientCredentials()),
    "secret of a person's client": Authorization(client=secret("https://as.example")),
    "key": Authorization(
        client=OAuthClient(client_id="robot", private_key="PEM", issuer="https://as.example"),
        grant=ClientCredentials(),
    ),
    "identity": Authorization(client=secret("https://as.example"), grant=IDENTITY),
}


@pytest.mark.parametrize("options", BOUND.values(), ids=BOUND)
@pytest.mark.parametrize("documents", [{}, {OLD: OWN}], ids=["defaults", "metadata"])
def test_what_is_bound_to_another_issuer_is_not_used(
    options: Authorization, documents: dict[str, Any]
) -> None:
    bench = fallback(World(documents=documents), options)
    assert bench.error.reason == "foreign_issuer"
    assert bench.forms() == []
    assert bench.world.signed == []


UNBOUND: dict[str, Authorization] = {
    "secret": Authorization(client=secret(None), grant=ClientCredentials()),
    "a person's client": Authorization(client=OAuthClient(client_id="c")),
    "identity": Authorization(client=secret(None), grant=IDENTITY),
}


@pytest.mark.parametrize("options", UNBOUND.values(), ids=UNBOUND)
def test_what_is_bound_to_no_issuer_opens_no_fallback(options: Authorization) -> None:
    bench = fallback(World(documents={OLD: OWN}), options)
    assert bench.error.reason == "no_issuer"
    assert "issuer='https://h.example'" in str(bench.error)
    assert bench.urls == [PRM, ROOT_PRM]


def test_a_client_of_the_origin_can_be_used() -> None:
    server = {**OWN, "token_endpoint_auth_methods_supported": METHODS}
    options = Authorization(client=secret("https://h.example"), grant=ClientCredentials())
    bench = fallback(World(documents={OLD: server}), options)
    assert bench.header == "Bearer token-1"
    assert sent_to(bench, "h.example")[0].headers["authorization"].startswith("Basic ")


def taken_over(stored: dict[Any, str]) -> Bench:
    """A server that had metadata of the resource, and now has none."""
    world = World(documents={OLD: {**OWN, "issuer": "https://as.example"}}, stored=stored)
    return fallback(world)


def registered(asked: Asked) -> Answer:
    return 201, {"client_id": "c", "client_secret": "hush"}


@pytest.mark.parametrize("logged_out", [False, True])
def test_a_server_that_had_metadata_gets_no_fallback(logged_out: bool) -> None:
    """What is stored for it belongs to the issuer that it named then."""
    server = {**SERVER, "token_endpoint_auth_methods_supported": METHODS}
    world = World(documents={PRM: RESOURCE, ASM: server}, gives_refresh=logged_out)
    world.answers["https://as.example/register"] = registered
    bench = Bench(world).start()
    bench.refused()
    if logged_out:  # the refresh is refused, and the person does not log in again
        world.answers["https://as.example/token"] = lambda asked: (400, {"error": "invalid_grant"})
        world.person = lambda url: None
        bench.refused()
        bench.flow.login_failed("no", bench.now)
    after = taken_over(world.stored)
    assert after.error.reason == "no_metadata"
    assert "earlier" in str(after.error)
    assert after.urls == [PRM, ROOT_PRM]


def test_the_tokens_of_an_older_release_say_so_too() -> None:
    world = World()
    bench = Bench(world).start()
    bench.refused()
    ((key, document),) = world.stored.items()
    older = {name: value for name, value in json.loads(document).items() if name != "resource"}
    assert taken_over({key: json.dumps(older)}).error.reason == "no_metadata"


def test_a_registration_alone_is_enough() -> None:
    world = World(person=lambda url: None)
    bench = Bench(world).start()
    bench.refused()
    assert bench.flow.tokens is None
    assert taken_over(world.stored).error.reason == "no_metadata"


@pytest.mark.parametrize("status", [200, 302, 401, 403, 405, 500, 503])
@pytest.mark.parametrize("place", [PRM, ROOT_PRM])
def test_only_404_says_that_there_is_no_metadata(place: str, status: int) -> None:
    bench = fallback(World(documents={place: (status, b"<html>"), OLD: OWN}))
    assert bench.error.reason == "no_metadata"
    assert f"HTTP {status}" in str(bench.error)
    assert OLD not in bench.urls


@pytest.mark.parametrize("status", [200, 302, 403, 500])
def test_only_404_leads_to_the_default_endpoints(status: int) -> None:
    bench = fallback(World(documents={OLD: (status, b"<html>")}))
    assert bench.error.reason == "no_metadata"
    assert bench.urls[-1] == OLD


def test_a_refresh_goes_where_the_token_came_from() -> None:
    bench = fallback(World(documents={OLD: OWN}, gives_refresh=True))
    bench.world.asked.clear()
    bench.refused()
    assert bench.urls == [PRM, ROOT_PRM, "https://h.example/token"]
    assert bench.forms()[0]["grant_type"] == "refresh_token"
