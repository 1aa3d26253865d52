"""Kinds of authorization servers that are in use, each by a server that behaves so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from sansmcp.addresses import AddressClass
from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import (
    Authorization,
    ClientCredentials,
    IdentityAssertion,
)
from sansmcp.auth.steps import Failed, Obtained
from sansmcp.http import ResponseHead
from sansmcp.states import AuthorizationState

from .bench import (
    ASM,
    OPENID,
    PRM,
    PUBLIC,
    RESOURCE,
    ROOT_PRM,
    SERVER,
    Answer,
    Asked,
    Bench,
    World,
)

TOKEN = "https://as.example/token"
REGISTER = "https://as.example/register"


def server(**changes: Any) -> dict[str, Any]:
    """The metadata of a server, with changed members; those that are None are left out."""
    changed = {**SERVER, **changes}
    return {name: value for name, value in changed.items() if value is not None}


def world(**changes: Any) -> World:
    return World(documents={PRM: RESOURCE, ASM: server(**changes)})


def logged_in(world: World, options: Authorization | None = None) -> Bench:
    """A client after a login."""
    bench = Bench(world, options or Authorization()).start()
    bench.refused()
    return bench


# A public client


METHODS: dict[str, list[str] | None] = {
    "many without none": ["private_key_jwt", "client_secret_basic", "client_secret_post"],
    "one": ["client_secret_post"],
    "unknown ones": ["tls_client_auth"],
    "empty": [],
    "no list": None,
}


@pytest.mark.parametrize("methods", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("is_registered", [True, False])
def test_a_public_client_sends_its_id(methods: list[str] | None, is_registered: bool) -> None:
    options = Authorization(client=None if is_registered else OAuthClient(client_id="mine"))
    bench = logged_in(world(token_endpoint_auth_methods_supported=methods), options)
    assert bench.header == "Bearer token-1"
    (form,) = bench.forms()
    assert form["client_id"] == ("client-of-as.example" if is_registered else "mine")
    assert "client_secret" not in form
    assert "authorization" not in bench.world.asked[-1].headers


def test_a_key_that_cannot_be_used_is_said_before_the_login() -> None:
    options = Authorization(client=OAuthClient(client_id="c", private_key="PEM"))
    bench = logged_in(world(token_endpoint_auth_methods_supported=["client_secret_basic"]), options)
    assert bench.error.reason == "no_auth_method"
    assert bench.world.opened == []


# The id beside a secret

SECRET = OAuthClient(client_id="c", client_secret="hush", issuer="https://as.example")
BASIC = ["client_secret_basic"]


def wanting(wants_id: bool, error: str) -> World:
    """A server that wants the id of the client in the form beside Basic, or refuses it there."""
    found = world(token_endpoint_auth_methods_supported=BASIC)
    found.gives_refresh, found.lifetime = True, 100.0

    def token(asked: Asked) -> Answer:
        assert asked.headers["authorization"].startswith("Basic ")
        if ("client_id" in asked.form) != wants_id:
            return (401 if error == "invalid_client" else 400), {"error": error}
        return found.token(asked)

    found.answers[TOKEN] = token
    return found


def repeated(bench: Bench) -> list[bool]:
    return ["client_id" in form for form in bench.forms()]


@pytest.mark.parametrize("error", ["invalid_client", "invalid_request"])
@pytest.mark.parametrize("grant", [None, ClientCredentials()])
def test_a_server_that_wants_the_id_beside_basic(
    error: str, grant: ClientCredentials | None
) -> None:
    """As servers of the official Python SDK do. What worked is remembered, also on disk."""
    found = wanting(wants_id=True, error=error)
    options = Authorization(client=SECRET, grant=grant)
    bench = logged_in(found, options)
    assert bench.header == "Bearer token-1"
    assert repeated(bench) == [False, True]
    found.asked.clear()
    found.wall_time += 100
    again = Bench(found, options).start()
    assert again.header == "Bearer token-2"
    assert [form["grant_type"] for form in again.forms()] == ["refresh_token"]
    assert repeated(again) == [True]


@pytest.mark.parametrize("error", ["invalid_client", "invalid_request"])
def test_a_server_that_refuses_the_id_beside_basic(error: str) -> None:
    bench = logged_in(wanting(wants_id=False, error=error), Authorization(client=SECRET))
    assert bench.header == "Bearer token-1"
    assert repeated(bench) == [False]


def test_a_server_that_has_changed_its_mind() -> None:
    found = wanting(wants_id=True, error="invalid_client")
    bench = logged_in(found, Authorization(client=SECRET))
    changed = wanting(wants_id=False, error="invalid_request")
    found.answers = changed.answers
    for _ in range(2):
        found.asked.clear()
        found.wall_time += 100
        bench.flow.prepare(bench.now)
        bench.run()
    assert repeated(bench) == [False]
    assert bench.flow.state is AuthorizationState.READY


def test_a_secret_that_is_wrong_stays_wrong() -> None:
    found = world(token_endpoint_auth_methods_supported=BASIC)
    found.answers[TOKEN] = lambda asked: (401, {"error": "invalid_client"})
    bench = logged_in(found, Authorization(client=SECRET, grant=ClientCredentials()))
    assert bench.error.reason == "invalid_client"
    assert repeated(bench) == [False, True]


def test_an_identity_provider_that_wants_the_id_beside_basic() -> None:
    found = world(token_endpoint_auth_methods_supported=["client_secret_post"])

    def exchange(asked: Asked) -> Answer:
        if "client_id" not in asked.form:
            return 401, {"error": "invalid_client"}
        kind = "urn:ietf:params:oauth:token-type:id-jag"
        return 200, {"access_token": "jag", "issued_token_type": kind}

    found.answers["https://idp.example/token"] = exchange
    identity = IdentityAssertion(
        token_endpoint="https://idp.example/token", client=SECRET, subject_token="id.token"
    )
    bench = logged_in(found, Authorization(client=SECRET, grant=identity))
    assert bench.header == "Bearer token-1"


# Clients that are forgotten


def forgetful() -> tuple[World, list[str]]:
    """A server that registers clients in memory. Clearing the list is starting it again."""
    found, known = world(), list[str]()
    found.gives_refresh, found.lifetime = True, 100.0

    def register(asked: Asked) -> Answer:
        known.append(f"client-{len(found.asked)}")
        return 201, {"client_id": known[-1]}

    def token(asked: Asked) -> Answer:
        if asked.form["client_id"] not in known:
            return 401, {"error": "invalid_client"}
        return found.token(asked)

    def person(url: str) -> str | None:
        if dict(parse_qsl(urlsplit(url).query))["client_id"] not in known:
            return None  # the page says that the client is unknown, and sends the browser nowhere
        found.person = None
        redirect = found.log_in(found.opened.pop())
        found.person = person
        return redirect

    found.answers.update({REGISTER: register, TOKEN: token})
    found.person = person
    return found, known


@pytest.mark.parametrize("when", ["before a request", "after a refusal", "at the start"])
def test_a_client_that_is_forgotten_is_registered_again(when: str) -> None:
    found, known = forgetful()
    bench = logged_in(found)
    assert bench.header == "Bearer token-1"
    known.clear()
    found.asked.clear()
    if when == "before a request":
        found.wall_time += 100
        bench.flow.prepare(bench.now)
        bench.run()
    elif when == "at the start":
        found.wall_time += 100
        bench = Bench(found).start()
    bench.refused()
    assert bench.header == "Bearer token-2"
    assert bench.urls.count(REGISTER) == 1


def test_a_client_that_is_forgotten_is_not_stored_any_more() -> None:
    """Another process does not send a person to a login with it either."""
    found, known = forgetful()
    logged_in(found)
    known.clear()
    found.wall_time += 100
    Bench(found).start()
    (document,) = found.stored.values()
    assert json.loads(document)["clients"] == {}
    assert found.locked == set()


def test_a_client_of_the_settings_is_not_forgotten() -> None:
    found, known = forgetful()
    known.append("mine")
    options = Authorization(client=OAuthClient(client_id="mine"))
    bench = logged_in(found, options)
    known.clear()
    bench.refused()  # the person cannot log in, and is asked once
    assert len(found.opened) == 2
    assert REGISTER not in bench.urls


def test_a_client_that_another_process_has_registered_since_is_kept() -> None:
    found, known = forgetful()
    bench = logged_in(found)
    ((key, document),) = found.stored.items()
    known.clear()
    found.stored[key] = document.replace('client_id":"client-', 'client_id":"newer-', 1)
    assert found.stored[key] != document
    found.wall_time += 100
    bench.flow.prepare(bench.now)
    bench.run()
    assert "newer-" in found.stored[key]


# offline_access


def refusing_offline(at: str) -> World:
    """A server that lists ``offline_access`` and refuses it to this client."""
    found = world(scopes_supported=["offline_access"])

    def person(url: str) -> str | None:
        query = dict(parse_qsl(urlsplit(url).query))
        if at == "login" and "offline_access" in query.get("scope", ""):
            return "?" + urlencode({"error": "invalid_scope", "state": query["state"]})
        found.person = None
        redirect = found.log_in(found.opened.pop())
        found.person = person
        return redirect

    def token(asked: Asked) -> Answer:
        if at == "token" and "offline_access" in str(bench_scope(found)):
            return 400, {"error": "invalid_scope"}
        return found.token(asked)

    def register(asked: Asked) -> Answer:
        if at == "registration" and "offline_access" in asked.document.get("scope", ""):
            return 400, {"error": "invalid_client_metadata"}
        return 201, {"client_id": "c"}

    found.answers.update({TOKEN: token, REGISTER: register})
    found.person = person
    return found


def bench_scope(found: World) -> str | None:
    return dict(parse_qsl(urlsplit(found.opened[-1]).query)).get("scope")


@pytest.mark.parametrize("at", ["login", "token", "registration"])
@pytest.mark.parametrize("challenge", ["Bearer", 'Bearer scope="a"'])
def test_offline_access_that_is_refused_is_left_out(at: str, challenge: str) -> None:
    found = refusing_offline(at)
    bench = Bench(found).start()
    bench.refused(challenge=challenge)
    assert bench.header == "Bearer token-1"
    assert bench.requested("scope")[-1] == ("a" if "scope" in challenge else None)
    found.opened.clear()
    bench.refused(403, 'Bearer error="insufficient_scope", scope="b"')
    assert bench.header == "Bearer token-2"
    assert len(found.opened) == 1  # it is not tried again


@pytest.mark.parametrize("at", ["login", "registration"])
def test_other_scopes_are_not_left_out(at: str) -> None:
    found = refusing_offline(at)
    bench = logged_in(found, Authorization(scopes="offline_access"))
    assert bench.error.reason in ("invalid_scope", "registration_refused")


# Metadata


@pytest.mark.parametrize("methods", [None, ["S256"], ["plain", "S256"]])
def test_a_server_that_is_known_to_support_pkce(methods: list[str] | None) -> None:
    bench = logged_in(
        world(code_challenge_methods_supported=methods), Authorization(assume_pkce=True)
    )
    assert bench.header == "Bearer token-1"


def test_a_server_that_does_not_list_pkce() -> None:
    bench = logged_in(world(code_challenge_methods_supported=None))
    assert bench.error.reason == "pkce_unsupported"
    assert bench.world.opened == []


@pytest.mark.parametrize("methods", [[], ["plain"]])
def test_a_server_that_says_it_does_not_support_pkce(methods: list[str]) -> None:
    bench = logged_in(
        world(code_challenge_methods_supported=methods), Authorization(assume_pkce=True)
    )
    assert bench.error.reason == "pkce_unsupported"


@pytest.mark.parametrize("place", ["resource", "server", "both"])
@pytest.mark.parametrize("path", ["", "/tenant"])
def test_issuers_that_differ_by_a_slash(place: str, path: str) -> None:
    issuer = f"https://as.example{path}"
    resource = {**RESOURCE, "authorization_servers": [issuer + "/" * (place != "server")]}
    found = World(
        documents={
            PRM: resource,
            ASM + path: server(issuer=issuer + "/" * (place != "resource")),
        }
    )
    bench = logged_in(found)
    assert bench.header == "Bearer token-1"
    bench.refused()
    assert bench.urls.count(REGISTER) == 1


ELSEWHERE: dict[str, Answer] = {
    "server error": (500, {"error": "x"}),
    "unavailable": (503, b"<html>"),
    "other JSON": (200, {"error": "not found"}),
    "a page": (200, b"<html>"),
}


@pytest.mark.parametrize("answer", ELSEWHERE.values(), ids=ELSEWHERE)
def test_the_next_place_is_tried(answer: Answer) -> None:
    documents = {PRM: answer, ROOT_PRM: RESOURCE, ASM: answer, OPENID: SERVER}
    bench = logged_in(World(documents=documents))
    assert bench.header == "Bearer token-1"


def test_metadata_with_a_byte_order_mark() -> None:
    documents = {PRM: RESOURCE, ASM: SERVER}
    marked = {
        url: (200, b"\xef\xbb\xbf" + json.dumps(each).encode()) for url, each in documents.items()
    }
    assert logged_in(World(documents=marked)).header == "Bearer token-1"


# Token responses


ODD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no type": lambda document: {"access_token": document["access_token"]},
    "type null": lambda document: {**document, "token_type": None},
    "error empty": lambda document: {**document, "error": ""},
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_odd_token_responses(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    found = world()

    def token(asked: Asked) -> Answer:
        usual = found.token(asked)
        assert isinstance(usual, tuple)
        return 200, change(usual[1])

    found.answers[TOKEN] = token
    assert logged_in(found).header == "Bearer token-1"


def test_a_missing_type_is_no_dpop() -> None:
    found = world(dpop_signing_alg_values_supported=["ES256"])
    found.answers[TOKEN] = lambda asked: (200, {"access_token": "t"})
    assert logged_in(found, Authorization(dpop=True)).error.reason == "dpop_mismatch"


def test_an_error_with_status_200_is_one() -> None:
    found = world()
    answers = iter([(200, {"error": "invalid_grant", "error_description": "expired"})])
    found.answers[TOKEN] = lambda asked: next(answers, None) or found.token(asked)
    bench = logged_in(found)
    assert bench.header == "Bearer token-1"
    assert len(found.opened) == 2  # as with status 400: once more
    found.answers[TOKEN] = lambda asked: (200, {"error": "slow_down"})
    bench.refused()
    assert bench.error.reason == "refused"
    assert "was answered with HTTP 200: slow_down" in str(bench.error)


# Servers that refuse the resource


@pytest.mark.parametrize("at", ["login", "token"])
def test_a_server_that_refuses_the_resource(at: str) -> None:
    """A token that is made for no server could be used at others by the one that gets it."""
    found = world()
    if at == "login":
        found.person = lambda url: (
            "?"
            + urlencode(
                {
                    "error": "invalid_target",
                    "state": dict(parse_qsl(urlsplit(url).query))["state"],
                }
            )
        )
    found.answers[TOKEN] = lambda asked: (400, {"error": "invalid_target"})
    bench = logged_in(found)
    assert bench.error.reason == "invalid_target"
    assert bench.header == ""
    assert len(found.opened) == 1


@pytest.mark.parametrize("grant", [None, ClientCredentials()])
def test_the_resource_can_be_left_out(grant: ClientCredentials | None) -> None:
    """At the login, at the token and at each refresh."""
    found = world()
    found.gives_refresh, found.lifetime = True, 100.0

    def answer(asked: Asked) -> Answer:
        is_named = "resource" in dict(parse_qsl(asked.body.decode()))
        return (400, {"error": "invalid_target"}) if is_named else found.token(asked)

    found.answers[TOKEN] = answer
    client = OAuthClient(client_id="mine", client_secret="s", issuer=SERVER["issuer"])
    options = Authorization(names_resource=False, grant=grant, client=client)
    bench = logged_in(found, options)
    assert bench.header == "Bearer token-1"
    assert not any("resource=" in url for url in found.opened)
    bench.now += 200.0
    bench.refused()
    assert bench.header == "Bearer token-2"
    assert not any("resource" in form for form in bench.forms())


# No registration


def test_a_server_that_registers_no_clients() -> None:
    found = world(registration_endpoint=None)
    assert logged_in(found).error.reason == "no_client"
    assert found.opened == []
    given = Authorization(client=OAuthClient(client_id="mine"))
    assert logged_in(found, given).header == "Bearer token-1"


def test_a_refused_registration_is_no_refusal_of_the_person() -> None:
    found = world()
    found.answers[REGISTER] = lambda asked: (403, {"error": "access_denied"})
    bench = logged_in(found)
    assert bench.error.reason == "registration_refused"
    assert "access_denied" in str(bench.error)
    assert found.opened == []


# Parameters of the login


class WantsAudience(World):
    """Its page of the login is for those who name the server that they want."""

    def log_in(self, url: str) -> str | None:
        asked = dict(parse_qsl(urlsplit(url).query))
        if asked.get("audience") == "tools":
            return super().log_in(url)
        refused = {"error": "invalid_request", "state": asked["state"]}
        return f"{asked['redirect_uri']}?{urlencode(refused)}"


def test_a_server_that_wants_a_parameter_of_its_own() -> None:
    assert "invalid_request" in str(logged_in(WantsAudience()).error)
    options = Authorization(extra={"audience": "tools"})
    assert logged_in(WantsAudience(), options).header == "Bearer token-1"


# Servers that ask late, or in other ways than 401


def test_a_server_that_asks_when_a_tool_is_called() -> None:
    bench = Bench(world()).start()
    for operation in ("initialize", "tools/list"):
        served = ResponseHead(status=200, headers=(), peer=PUBLIC)
        bench.flow.responded(bench.sent(operation), bench.endpoint, served)
    assert (bench.urls, bench.header) == ([], "")
    bench.refused(attempt=bench.sent("tools/call echo"))
    assert bench.header == "Bearer token-1"


FIRST = Authorization(log_in_first=True)


def test_a_login_before_the_first_request() -> None:
    bench = Bench(World(), FIRST).start()
    assert bench.header == "Bearer token-1"
    assert bench.urls == [PRM, ASM, REGISTER, TOKEN]
    assert bench.flow.state is AuthorizationState.READY
    bench.world.asked.clear()
    again = Bench(bench.world, FIRST).start()  # a stored token suffices
    assert (again.urls, again.header) == ([], "Bearer token-1")


@pytest.mark.parametrize("answer", [(404, b""), (500, b""), (200, b"<html>"), "no route"])
@pytest.mark.parametrize("is_legacy_allowed", [True, False])
def test_a_server_without_metadata_needs_no_login(answer: Answer, is_legacy_allowed: bool) -> None:
    """It has refused nothing, so that it is not taken for one of 2025-03-26."""
    found = World(documents={})
    found.answers[PRM] = lambda asked: answer
    bench = Bench(found, FIRST, is_legacy_allowed=is_legacy_allowed).start()
    assert bench.flow.state is AuthorizationState.IDLE
    assert (bench.header, len(bench.ends)) == ("", 1)
    assert isinstance(bench.ends[0], Obtained)
    assert set(bench.urls) <= {PRM, ROOT_PRM}


def test_a_server_that_never_answers_needs_no_login() -> None:
    found = World()
    found.answers[PRM] = lambda asked: None
    bench = Bench(found, FIRST).start()
    bench.wait()
    assert bench.flow.state is AuthorizationState.IDLE


def test_a_login_that_fails_before_the_first_request() -> None:
    bench = Bench(
        World(documents={PRM: {**RESOURCE, "resource": "https://other.example"}}), FIRST
    ).start()
    assert bench.error.reason == "resource_mismatch"
    bench = Bench(World(documents={PRM: RESOURCE}), FIRST).start()
    assert bench.error.reason == "no_metadata"


@pytest.mark.parametrize(
    ("endpoint", "peer", "nearest"),
    [
        ("http://127.0.0.1:8/mcp", "127.0.0.1", AddressClass.LOOPBACK),
        ("http://127.0.0.1:8/mcp", "", AddressClass.LOOPBACK),
        ("https://h.example/mcp", "10.0.0.1", AddressClass.PRIVATE),
        ("https://h.example/mcp", "", AddressClass.PUBLIC),
        ("https://h.example/mcp", PUBLIC, AddressClass.PUBLIC),
    ],
)
def test_the_address_of_the_server_is_that_of_its_metadata(
    endpoint: str, peer: str, nearest: AddressClass
) -> None:
    origin = endpoint.removesuffix("/mcp")
    prm = f"{origin}/.well-known/oauth-protected-resource/mcp"
    found = World(documents={prm: {**RESOURCE, "resource": endpoint}, ASM: SERVER}, peer=peer)
    bench = Bench(found, FIRST, endpoint=endpoint).start()
    assert bench.policies[0].nearest is AddressClass.LOOPBACK  # the application gave that URL
    assert {policy.nearest for policy in bench.policies[1:]} == {nearest}
    assert bench.header == "Bearer token-1"


def test_no_login_over_http_at_a_public_server() -> None:
    endpoint = "http://h/mcp"
    prm = "http://h/.well-known/oauth-protected-resource/mcp"
    found = World(documents={prm: {**RESOURCE, "resource": endpoint}, ASM: SERVER}, peer=PUBLIC)
    bench = Bench(found, FIRST, endpoint=endpoint).start()
    assert isinstance(bench.ends[-1], Failed)
    assert bench.error.reason == "insecure_endpoint"
