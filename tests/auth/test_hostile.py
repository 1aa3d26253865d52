"""Authorization servers and MCP servers that attack."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

import sansmcp.auth
from sansmcp.addresses import AddressClass
from sansmcp.auth.clients import REGISTRATION_REFUSED, OAuthClient
from sansmcp.auth.flow import GiveUp, SendAgain
from sansmcp.auth.options import Authorization, ClientCredentials
from sansmcp.auth.step_ups import Attempt
from sansmcp.auth.steps import Failed
from sansmcp.errors import AuthorizationFailed
from sansmcp.http import BodyData, BodyEnd, ResponseHead
from sansmcp.states import AuthorizationState
from sansmcp.types import escape_controls

from .bench import ASM, PRM, PUBLIC, RESOURCE, SERVER, Answer, Asked, Bench, World

EVIL = "https://evil.example"


def redirecting(**change: Any) -> World:
    """A person whose browser comes back with a changed query."""

    def person(url: str) -> str:
        parameters = dict(parse_qsl(urlsplit(url).query))
        given = {"code": "stolen", "state": parameters["state"], **change}
        return "?" + urlencode({name: value for name, value in given.items() if value is not None})

    return World(person=person)


@pytest.mark.parametrize("change", [{"iss": EVIL}, {"iss": "https://as.example/"}])
def test_mix_up_no_code_is_sent(change: dict[str, str]) -> None:
    bench = Bench(redirecting(**change)).start()
    bench.refused()
    assert bench.error.reason == "issuer_mismatch"
    assert bench.forms() == []
    assert bench.header == ""


def test_mix_up_metadata_of_another_issuer() -> None:
    server = {**SERVER, "issuer": EVIL}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server})).start()
    bench.refused()
    assert bench.error.reason == "issuer_mismatch"
    assert bench.urls == [PRM, ASM]
    assert bench.world.opened == []


def test_metadata_of_another_resource_leads_to_no_authorization_server() -> None:
    resource = {**RESOURCE, "resource": "https://bank.example/mcp"}
    bench = Bench(World(documents={PRM: resource, ASM: SERVER})).start()
    bench.refused()
    assert bench.error.reason == "resource_mismatch"
    assert bench.urls == [PRM]


HONEST_LOGIN = {**SERVER, "authorization_endpoint": "https://honest.example/authorize"}
"""Metadata of an issuer that has people log in at another one."""
URL_CLIENT = "https://app.example/client.json"


def at_the_honest_login(change: dict[str, Any], options: Authorization) -> Bench:
    """A client that may be known to the honest issuer, at the one that names its login."""
    server = {**HONEST_LOGIN, "client_id_metadata_document_supported": True, **change}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server}), options).start()
    bench.refused()
    return bench


def test_mix_up_a_client_that_all_issuers_know_is_not_led_to_another_login() -> None:
    """The login would be real, and its code would go to the issuer that has arranged it."""
    bench = at_the_honest_login({}, Authorization(client_metadata_url=URL_CLIENT))
    assert bench.requested("client_id") == ["client-of-as.example"]
    without = {"registration_endpoint": None}
    bench = at_the_honest_login(without, Authorization(client_metadata_url=URL_CLIENT))
    assert bench.error.reason == "no_client"
    assert bench.world.opened == []


def test_mix_up_a_client_without_an_issuer_is_not_led_to_another_login() -> None:
    options = Authorization(client=OAuthClient(client_id="c"))
    bench = at_the_honest_login({}, options)
    assert bench.error.reason == "no_issuer"
    assert "at another host, honest.example, which" in str(bench.error)
    assert "set issuer='https://as.example' of the client" in str(bench.error)
    assert bench.world.opened == []
    assert bench.forms() == []
    # What the application, or an earlier login, has bound it to is right.
    bound = Authorization(client=OAuthClient(client_id="c", issuer="https://as.example"))
    assert at_the_honest_login({}, bound).header == "Bearer token-1"


OWN_LOGINS: list[dict[str, Any]] = [
    {"authorization_response_iss_parameter_supported": True},
    {"authorization_endpoint": "https://as.example:443/login"},
    {"token_endpoint": "https://honest.example/token"},
]


@pytest.mark.parametrize("change", OWN_LOGINS)
def test_no_mix_up_is_seen_where_none_can_be(change: dict[str, Any]) -> None:
    """The response names its issuer; it is the issuer's own login; or the code goes back to it."""
    announces = "authorization_response_iss_parameter_supported" in change
    bench = at_the_honest_login(change, Authorization(client_metadata_url=URL_CLIENT))
    assert bench.requested("client_id") == [URL_CLIENT]
    if announces:  # and this one does not
        assert bench.error.reason == "issuer_missing"
        assert bench.forms() == []
    else:
        assert bench.header == "Bearer token-1"
    bench = at_the_honest_login(change, Authorization(client=OAuthClient(client_id="c")))
    assert bench.requested("client_id") == ["c"]


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_pkce_downgrade(methods: list[str] | None) -> None:
    server = {**SERVER, "code_challenge_methods_supported": methods}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server})).start()
    bench.refused()
    assert bench.error.reason == "pkce_unsupported"


@pytest.mark.parametrize("state", [None, "", "injected"])
def test_an_injected_code_is_ignored_and_the_person_can_go_on(state: str | None) -> None:
    world = redirecting(state=state)
    bench = Bench(world).start()
    bench.refused()
    assert bench.forms() == []
    assert bench.flow.state is AuthorizationState.LOGIN
    world.person = None
    assert bench.flow.redirected(world.log_in(world.opened[0]) or "", bench.now)
    bench.run()
    assert bench.header == "Bearer token-1"


def test_a_redirect_counts_once() -> None:
    bench = Bench().start()
    bench.refused()
    redirect = bench.world.log_in(bench.world.opened[0])
    assert not bench.flow.redirected(redirect or "", bench.now)
    assert len(bench.forms()) == 1


def test_a_denied_login_is_final() -> None:
    bench = Bench(redirecting(code=None, error="access_denied")).start()
    bench.refused()
    assert bench.error.reason == "access_denied"
    assert len(bench.world.opened) == 1


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "http://as/a"]
)
def test_urls_that_a_browser_must_not_open(url: str) -> None:
    server = {**SERVER, "authorization_endpoint": url}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: server})).start()
    bench.refused()
    assert bench.error.reason == "unsafe_url"
    assert bench.world.opened == []


@pytest.mark.parametrize("url", [PRM, ASM])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_of_metadata_are_not_followed(url: str, status: int) -> None:
    bench = Bench()
    bench.world.answers[url] = lambda asked: (status, b"", {"location": EVIL})
    bench.start()
    bench.refused()
    assert bench.error.reason == "no_metadata"
    assert not any(asked.startswith(EVIL) for asked in bench.urls)


@pytest.mark.parametrize("path", ["register", "token"])
@pytest.mark.parametrize("status", [302, 307, 308])
def test_redirects_of_posts_are_not_followed(path: str, status: int) -> None:
    bench = Bench()
    bench.world.answers[f"https://as.example/{path}"] = lambda asked: (
        status,
        b"",
        {"location": EVIL},
    )
    bench.start()
    bench.refused()
    assert bench.error.reason == {"register": "registration_refused", "token": "refused"}[path]
    assert not any(asked.startswith(EVIL) for asked in bench.urls)


@pytest.mark.parametrize(
    "url", [PRM, ASM, "https://as.example/register", "https://as.example/token"]
)
def test_huge_responses(url: str) -> None:
    bench = Bench()
    bench.world.answers[url] = lambda asked: (200, b" " * 70_000)
    bench.start()
    bench.refused()
    assert bench.error.reason == "response_too_large"


@pytest.mark.parametrize(
    "url", [PRM, ASM, "https://as.example/register", "https://as.example/token"]
)
def test_slow_responses(url: str) -> None:
    """A server that always sends a little more does not get more time."""
    bench = Bench()
    bench.world.answers[url] = lambda asked: None
    bench.start()
    bench.refused()
    bench.flow.receive(ResponseHead(status=200), bench.now)
    begin = bench.now
    while bench.now < begin + 9:
        bench.now += 1
        assert bench.flow.deadline == begin + 10
        bench.flow.receive(BodyData(b" "), bench.now)
    bench.wait()
    assert bench.error.reason == "no_response"
    assert bench.pending is None


class LateWorld(World):
    """Its servers answer when :func:`answer_late` has them do it."""

    def answer(self, request: Asked) -> Answer:
        return None


def answer_late(bench: Bench, seconds: float) -> float:
    """Answer the requests of a flow after some seconds each; return how long it took."""
    begin = bench.now
    while bench.pending is not None:
        if bench.flow.deadline < bench.now + seconds:
            bench.wait()
            continue
        bench.now += seconds
        bench.pending = None
        found = World.answer(bench.world, bench.world.asked[-1])
        assert isinstance(found, tuple)
        bench.flow.receive(ResponseHead(status=found[0], peer=PUBLIC), bench.now)
        body = found[1] if isinstance(found[1], bytes) else json.dumps(found[1]).encode()
        bench.flow.receive(BodyData(body), bench.now)
        bench.flow.receive(BodyEnd(), bench.now)
        bench.run()
    return bench.now - begin


UNATTENDED = Authorization(
    client=OAuthClient(client_id="c", client_secret="s"), grant=ClientCredentials()
)


@pytest.mark.parametrize("options", [Authorization(), UNATTENDED], ids=["person", "program"])
@pytest.mark.parametrize("seconds", [1.0, 9.9, 10.0])
def test_servers_that_answer_late_hold_a_call_for_a_minute(
    options: Authorization, seconds: float
) -> None:
    """The timeouts of the call stand still meanwhile, and each of 20 issuers has three places."""
    issuers = [f"https://as.example/{number}" for number in range(20)]
    named = {**RESOURCE, "authorization_servers": issuers}
    bench = Bench(LateWorld(documents={PRM: named}), options).start()
    for number in range(2):  # each flow has its own minute
        bench.refused(attempt=bench.sent(f"tools/call {number}"))
        assert 59 < answer_late(bench, seconds) <= 60
        assert bench.error.reason == "no_response"
        assert "within the 60 s for all requests of an authorization" in str(bench.error)


def test_the_minute_of_the_requests_does_not_run_during_a_login() -> None:
    bench = Bench(LateWorld(person=lambda _: None)).start()
    bench.refused()
    assert answer_late(bench, 9.9) == pytest.approx(29.7)
    bench.now += 299
    parameters = dict(parse_qsl(urlsplit(bench.world.opened[0]).query))
    bench.world.codes["x"] = parameters
    bench.flow.redirected(f"?code=x&state={parameters['state']}", bench.now)
    bench.run()
    assert answer_late(bench, 9.9) == pytest.approx(9.9)
    assert bench.header == "Bearer token-1"


def test_endpoints_of_another_origin_get_only_what_was_made_for_them() -> None:
    """They are allowed. The browser is sent there, and the code of that login; nothing else."""
    endpoints = {
        "authorization_endpoint": f"{EVIL}/authorize",
        "token_endpoint": f"{EVIL}/token",
        "registration_endpoint": f"{EVIL}/register",
    }
    server = {**SERVER, **endpoints}
    world = World(gives_refresh=True)
    Bench(world).start().refused()
    (earlier,) = [
        asked.form["code"] for asked in world.asked if asked.url == "https://as.example/token"
    ]
    world.documents = {
        PRM: {**RESOURCE, "authorization_servers": ["https://as2.example"]},
        ASM.replace("//as.example/", "//as2.example/"): {**server, "issuer": "https://as2.example"},
    }
    world.asked.clear()
    bench = Bench(world).start()
    bench.refused()
    stolen = [asked for asked in world.asked if asked.url.startswith(EVIL)]
    assert [asked.url for asked in stolen] == [f"{EVIL}/register", f"{EVIL}/token"]
    assert stolen[1].form["client_id"] == "client-of-evil.example"
    assert stolen[1].form["grant_type"] == "authorization_code"
    shown = repr([(asked.headers, asked.body) for asked in stolen])
    assert not any(secret in shown for secret in ("token-1", "refresh-1", f"{earlier}&"))


def test_deep_metadata_is_no_metadata() -> None:
    bench = Bench()
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    bench.world.documents[PRM] = {**RESOURCE, "more": deep}
    bench.start()
    bench.refused()
    assert bench.error.reason == "no_metadata"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "0x7f.1", "2130706433"]
)
@pytest.mark.parametrize("where", ["challenge", "issuer", "token_endpoint"])
def test_internal_addresses_are_refused_without_a_resolver(host: str, where: str) -> None:
    url = f"https://{host}/x"
    challenge = "Bearer"
    documents: dict[str, Any] = {PRM: RESOURCE, ASM: SERVER}
    if where == "challenge":
        challenge = f'Bearer resource_metadata="{url}"'
    elif where == "issuer":
        documents[PRM] = {**RESOURCE, "authorization_servers": [url]}
    else:
        documents[ASM] = {**SERVER, "token_endpoint": url}
    bench = Bench(World(documents=documents)).start()
    verdict = bench.refused(challenge=challenge)
    assert bench.error.reason == "private_address"
    # Nothing was requested yet if the challenge named it; the request is not sent again then.
    assert isinstance(verdict, GiveUp if where == "challenge" else SendAgain)
    assert not any(host in asked for asked in bench.urls)


@pytest.mark.parametrize(
    ("peer", "nearest"),
    [
        (PUBLIC, AddressClass.PUBLIC),
        ("10.0.0.1", AddressClass.PRIVATE),
        ("127.0.0.1", AddressClass.LOOPBACK),
        ("169.254.169.254", AddressClass.PUBLIC),
        ("", AddressClass.PUBLIC),
    ],
)
def test_the_policy_is_that_of_the_connection_of_the_refusal(
    peer: str, nearest: AddressClass
) -> None:
    world = World(lifetime=100.0, gives_refresh=True)
    bench = Bench(world, Authorization(allowed_hosts={"IDP.corp"})).start()
    bench.refused(peer=peer)
    assert {policy.nearest for policy in bench.policies} == {nearest}
    assert bench.policies[0].allowed_hosts == {"idp.corp"}
    world.wall_time += 100
    again = Bench(world).start()
    assert [policy.nearest for policy in again.policies] == [nearest]


def test_without_a_known_peer_a_literal_address_of_the_server_counts() -> None:
    bench = Bench(endpoint="http://127.0.0.1:8/mcp").start()
    bench.refused(peer="")
    assert bench.policies[0].nearest is AddressClass.LOOPBACK


def test_endless_logins_end() -> None:
    bench = Bench().start()
    attempt = Attempt("tools/call echo")
    for _ in range(10):
        attempt.sends, attempt.generation = attempt.sends + 1, bench.flow.generation
        bench.refused(attempt=attempt)
    assert len(bench.world.opened) <= 3


def test_a_login_is_not_opened_a_second_time_while_one_is_pending() -> None:
    bench = Bench(World(person=lambda url: None)).start()
    for number in range(5):
        bench.refused(attempt=bench.sent(f"operation {number}"))
    assert len(bench.world.opened) == 1


def test_what_an_attacker_says_is_not_shown_as_if_it_were_the_server() -> None:
    world = redirecting(
        code=None, error="pay me", error_description="at https://evil.example", iss=EVIL
    )
    bench = Bench(world).start()
    bench.refused()
    assert "pay me" not in str(bench.error)
    assert "at https" not in str(bench.error)


SECRETS = ("token-1", "refresh-1", "code-1", "hush")


def test_secrets_are_in_no_repr_and_in_no_error() -> None:
    world = World(gives_refresh=True)

    def register(asked: Asked) -> Answer:
        return 201, {"client_id": "c", "client_secret": "hush"}

    world.answers["https://as.example/register"] = register
    bench = Bench(world).start()
    bench.refused()
    document = next(iter(world.stored.values()))
    assert all(json.dumps(document).count(secret) for secret in ("token-1", "refresh-1", "hush"))
    shown = repr(
        (
            bench.flow,
            bench.flow.tokens,
            bench.flow.__dict__ if hasattr(bench.flow, "__dict__") else "",
        )
    )
    assert not any(secret in shown for secret in SECRETS)


LONG = "http://127.1.1." + "1" * 5000


def test_a_number_of_thousands_of_digits_is_no_address() -> None:
    resource = {**RESOURCE, "authorization_servers": [LONG]}
    bench = Bench(World(documents={PRM: resource, ASM: SERVER})).start()
    bench.refused()
    assert isinstance(bench.error, AuthorizationFailed)
    bench = Bench().start()
    bench.refused(challenge=f'Bearer resource_metadata="{LONG}/"')
    assert bench.header == "Bearer token-1"


@pytest.mark.parametrize("method", ["private_key_jwt", "client_secret_basic"])
def test_a_client_registered_for_what_it_cannot_do_uses_what_it_can(method: str) -> None:
    world = World()
    registered = {"client_id": "c", "token_endpoint_auth_method": method}
    world.answers["https://as.example/register"] = lambda asked: (201, registered)
    bench = Bench(world).start()
    bench.refused()
    assert bench.header == "Bearer token-1"


class BrokenBench(Bench):
    def _random(self, count: int) -> bytes:
        raise ZeroDivisionError("a bug")


def test_a_bug_ends_the_flow() -> None:
    bench = BrokenBench(World()).start()
    bench.refused()
    assert bench.error.reason == "internal_error"
    assert isinstance(bench.error.__cause__, ZeroDivisionError)
    assert not bench.flow.is_busy


PRIVATE, LINK_LOCAL = "10.0.0.1", "169.254.7.7"
EXPOSED: list[tuple[str, str, tuple[str, ...], str]] = [
    ("http://h/mcp", PUBLIC, (), "insecure_endpoint"),
    ("http://h/mcp", PUBLIC, ("h",), "insecure_endpoint"),
    ("http://93.184.215.14/mcp", "", ("93.184.215.14",), "insecure_endpoint"),
    ("http://h/mcp", "", (), "unknown_address"),
    ("http://h/mcp", "", ("other",), "unknown_address"),
    ("http://h/mcp", LINK_LOCAL, (), "unknown_address"),
    ("http://127.0.0.1.h/mcp", "", (), "unknown_address"),
    ("http://localhost.h/mcp", "", (), "unknown_address"),
]
"""Each with the address of the connection, ``allowed_hosts`` and the reason of the refusal."""
HIDDEN: list[tuple[str, str, tuple[str, ...]]] = [
    ("http://h/mcp", PRIVATE, ()),
    ("http://h/mcp", "", ("H",)),
    ("http://10.0.0.1/mcp", "", ()),
    ("http://[fd00::1]/mcp", "", ()),
    ("http://127.0.0.1/mcp", "", ()),
    ("http://localhost/mcp", "", ()),
    ("https://h.example/mcp", "", ()),
    ("https://h.example/mcp", PUBLIC, ()),
    ("http+unix://%2Frun%2Fmcp.sock/mcp", "", ()),
]


def serving(endpoint: str, peer: str = "") -> World:
    """A server at this endpoint."""
    prm = endpoint.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    documents = {prm: {**RESOURCE, "resource": endpoint}, ASM: SERVER}
    return World(documents=documents, peer=peer, gives_refresh=True)


@pytest.mark.parametrize(("endpoint", "peer", "allowed", "reason"), EXPOSED)
def test_no_token_goes_over_http_to_where_others_read_it(
    endpoint: str, peer: str, allowed: tuple[str, ...], reason: str
) -> None:
    """Whether the server refuses a request, or is asked for its metadata first."""
    for first in (False, True):
        options = Authorization(allowed_hosts=allowed, log_in_first=first)
        bench = Bench(serving(endpoint, peer), options, endpoint=endpoint).start()
        if not first:
            assert isinstance(bench.refused(peer=peer), GiveUp)
        assert bench.error.reason == reason
        assert bench.world.opened == []
        assert bench.forms() == []


@pytest.mark.parametrize(("endpoint", "peer", "allowed"), HIDDEN)
def test_a_token_goes_where_others_do_not_read_it(
    endpoint: str, peer: str, allowed: tuple[str, ...]
) -> None:
    world, options = serving(endpoint, peer), Authorization(allowed_hosts=allowed)
    bench = Bench(world, options, endpoint=endpoint).start()
    assert isinstance(bench.refused(peer=peer), SendAgain)
    assert bench.header == "Bearer token-1"
    assert Bench(world, options, endpoint=endpoint).start().header == "Bearer token-1"


def test_no_secret_goes_over_http_to_an_old_server_behind_a_proxy() -> None:
    """At a server of 2025-03-26 the token endpoint is at its own origin, and so is plain, too."""
    client = OAuthClient(client_id="c", client_secret="hush", issuer="http://h")
    bench = Bench(
        World(documents={}),
        Authorization(client=client, grant=ClientCredentials()),
        endpoint="http://h/mcp",
        is_legacy_allowed=True,
    ).start()
    bench.refused(peer="")
    assert bench.error.reason == "unknown_address"
    assert bench.world.asked == []


def test_a_stored_token_of_a_server_that_may_be_public_stays_at_home() -> None:
    """Neither it nor the refresh token is sent once the application trusts the host no more."""
    endpoint = "http://h/mcp"
    world = serving(endpoint)
    world.lifetime = 100.0
    trusted = Authorization(allowed_hosts={"h"})
    bench = Bench(world, trusted, endpoint=endpoint).start()
    bench.refused(peer="")
    for passed in (0, 100):
        world.wall_time += passed
        again = Bench(world, endpoint=endpoint).start()
        assert again.header == ""
        assert len(again.forms()) == 1
    assert Bench(world, trusted, endpoint=endpoint).start().header == "Bearer token-2"


@pytest.mark.parametrize("peer", [PUBLIC, ""])
def test_a_private_name_that_leads_elsewhere_gets_the_token_once(peer: str) -> None:
    endpoint = "http://h/mcp"
    bench = Bench(serving(endpoint), endpoint=endpoint).start()
    bench.refused(peer=PRIVATE)
    assert bench.header == "Bearer token-1"
    assert isinstance(bench.refused(peer=peer), GiveUp)
    assert bench.header == ""
    assert not bench.flow.is_busy
    bench.refused(peer=PRIVATE)
    assert bench.header == "Bearer token-2"


TEXTS = {
    "word": "A" * 30_000,
    "control": "\x1b]0;evil\x07\u202e",
    "url": "https://as.example/" + "a" * 30_000,
    "parts": "https://as.example/" + "abc/" * 8000,
    "host": "https://" + "a." * 12_000 + "x/",
    "scopes": " ".join(f"s{number}" for number in range(4000)),
}
"""What a server may put into any member of any document."""
REGISTRATION = {"client_id": "c", "client_secret": "s"}
TOKEN = {"access_token": "t", "token_type": "Bearer"}


def said_by(world: World, challenge: str = "Bearer", status: int = 401) -> list[str]:
    """What a person or a log is shown of a flow, and what programs compare."""
    bench = Bench(world).start()
    bench.refused(status, challenge)
    bench.refused(403, challenge)
    errors = [end.error for end in bench.ends if isinstance(end, Failed)]
    return [text for error in errors for text in (str(error), error.reason)]


def is_short(text: str) -> bool:
    return len(text) < 2000 and text == escape_controls(text)


@pytest.mark.parametrize("value", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("is_list", [False, True])
def test_what_a_document_says_is_shown_in_short(value: str, is_list: bool) -> None:
    """Also what belongs to no error of the server: ids, methods, issuers, places."""
    given: Any = [value] * 3 if is_list else value
    for name in (*RESOURCE, "scopes_supported"):
        world = World(documents={PRM: {**RESOURCE, name: given}, ASM: SERVER})
        assert all(map(is_short, said_by(world)))
    for name in (*SERVER, "dpop_signing_alg_values_supported"):
        world = World(documents={PRM: RESOURCE, ASM: {**SERVER, name: given}})
        world.answers["https://as.example/register"] = lambda _: (201, REGISTRATION)
        assert all(map(is_short, said_by(world)))
    for name in ("client_id", "token_endpoint_auth_method", "error", "error_description"):
        server = {**SERVER, "token_endpoint_auth_methods_supported": ["unknown"]}
        for status in (201, 400):
            world = World(documents={PRM: RESOURCE, ASM: server})
            answer = (status, {**REGISTRATION, name: given})
            world.answers["https://as.example/register"] = lambda _, answer=answer: answer  # type: ignore[misc]
            assert all(map(is_short, said_by(world)))
    for name in (*TOKEN, "scope", "refresh_token", "error", "error_description", "expires_in"):
        for status in (200, 400):
            token = {**({} if "error" in name else TOKEN), name: given}
            world = World(answers={"https://as.example/token": lambda _, a=(status, token): a})  # type: ignore[misc]
            assert all(map(is_short, said_by(world)))


@pytest.mark.parametrize("value", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("name", ["resource_metadata", "scope", "error", "realm"])
def test_what_a_challenge_says_is_shown_in_short(value: str, name: str) -> None:
    if value.isprintable():
        challenge = f'{name}="{value}"'
        assert all(map(is_short, said_by(World(documents={}), f"Bearer {challenge}")))
        lacking = f'Bearer error="insufficient_scope", {challenge}'
        assert all(map(is_short, said_by(World(), lacking, 403)))


def test_scopes_do_not_grow_for_ever() -> None:
    """A program makes many calls, and each of them is said to need further scopes."""
    client = OAuthClient(client_id="c", client_secret="s", issuer="https://as.example")
    bench = Bench(options=Authorization(client=client, grant=ClientCredentials())).start()
    bench.refused()
    for number in range(60):
        scope = " ".join(f"{number}-{each}" for each in range(100))
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        bench.refused(403, challenge, bench.sent(f"tools/call {number}"))
    assert bench.error.reason == "too_many_scopes"
    assert max(len(form.get("scope", "")) for form in bench.forms()) <= 16 * 1024
    assert max(map(len, bench.world.stored.values())) < 64 * 1024
    assert bench.header == f"Bearer token-{len(bench.forms())}"
    # What the command would have the person type is left out, too.
    challenge = f'Bearer error="insufficient_scope", scope="{"a" * 30_000}"'
    for _ in range(3):
        bench.refused(403, challenge, bench.sent("tools/call one"))
    assert (bench.error.reason, bench.error.scopes) == ("insufficient_scope", ())


def test_a_token_that_lacks_scopes_is_obtained_at_the_server() -> None:
    """With HTTP+SSE, the server names the URL that refuses: ``$(...)`` in it, in the end."""
    bench = Bench().start()
    bench.refused()
    head = ResponseHead(
        status=403,
        headers=((b"www-authenticate", b'Bearer error="insufficient_scope", scope="a"'),),
        peer=PUBLIC,
    )
    url = "https://h.example/messages/$(reboot)"
    assert isinstance(bench.flow.refused(bench.sent(), url, head, 0.0), SendAgain)
    bench.run()
    verdict = bench.flow.refused(bench.sent(), url, head, 0.0)
    assert isinstance(verdict, GiveUp)
    assert (verdict.error.url, verdict.error.scopes) == (bench.endpoint, ("a",))


PRIVATE_LOGINS = [
    "http://localhost:8080/admin?delete=all&",
    "http://127.0.0.1/",
    "https://[::1]/",
    "https://10.0.0.1/",
    "https://0x0a000001/",
    "https://127.0x.0x.1/",
    "https://10.0X.0x.1/",
    "https://0000000000000000000000177.0.0.1/",
    "https://0x00000000000000000000007f.1/",
    "https://169.254.169.254/latest",
    "https://localhost./",
    "https://a.LOCALHOST/",
    "https://router/",
    "https://printer.local./",
    "https://db.internal/",
    "https://nas.home.arpa/",
]


@pytest.mark.parametrize("url", PRIVATE_LOGINS)
def test_no_browser_is_led_into_a_more_private_network(url: str) -> None:
    world = World(documents={PRM: RESOURCE, ASM: {**SERVER, "authorization_endpoint": url}})
    bench = Bench(world).start()
    bench.refused()
    assert bench.error.reason == "private_address"
    assert "allowed_hosts" in str(bench.error)
    assert world.opened == []


def test_a_login_in_the_network_of_the_server_or_at_an_allowed_host() -> None:
    def opened(url: str, peer: str, *hosts: str) -> int:
        world = World(documents={PRM: RESOURCE, ASM: {**SERVER, "authorization_endpoint": url}})
        bench = Bench(world, Authorization(allowed_hosts=hosts)).start()
        bench.refused(peer=peer)
        return len(world.opened)

    assert opened("https://10.0.0.1/", "10.0.0.2") == 1
    assert opened("http://localhost/", "127.0.0.1") == 1
    assert opened("https://10.0.0.1/", PUBLIC, "10.0.0.1") == 1
    assert opened("https://login.internal/", "10.0.0.2") == 1
    assert opened("https://login.internal/", PUBLIC, "login.internal") == 1


@pytest.mark.parametrize(
    ("endpoint", "logins"),
    [
        ("https://tools.internal/mcp", 1),
        ("https://tools/mcp", 1),
        ("https://tools.example/mcp", 0),
        ("https://[2001:4860:4860::8888]/mcp", 0),
    ],
)
def test_a_server_whose_address_is_not_known_is_as_near_as_its_name(
    endpoint: str, logins: int
) -> None:
    world = serving(endpoint)
    world.documents[ASM] = {**SERVER, "authorization_endpoint": "https://login.internal/"}
    Bench(world, endpoint=endpoint).start().refused(peer="")
    assert len(world.opened) == logins


def test_an_escaped_host_is_not_opened() -> None:
    url = "https://127%2e0.0.1/"
    world = World(documents={PRM: RESOURCE, ASM: {**SERVER, "authorization_endpoint": url}})
    bench = Bench(world).start()
    bench.refused()
    assert bench.error.reason == "unsafe_url"
    assert world.opened == []


ADDED_TO_LOGINS = [
    "client_id=other",
    "redirect_uri=https://evil.example/",
    "state=known",
    "code_challenge=known",
    "request=eyJ.e30.x",
    "request_uri=urn:x",
    "response_mode=fragment",
    "claims={}",
]
ADDED_TO_ANY = [
    "resource=https://bank.example/mcp",
    "tenant=1&resource=https%3A%2F%2Fbank.example%2Fmcp",
    "audience=https://bank.example/mcp",
    "scope=bank:pay",
    "authorization_details=[]",
    # as lenient servers read them
    "Resource=x",
    "%72esource=x",
    "%2572esource=x",
    "tenant=1;resource=x",
    "resource",
    "resource[]=x",
    "resource%5B0%5D=x",
    "resource%00=x",
    "+resource=x",
    "redirect.uri=x",
    "redirect+uri=x",
    "re%CD%8Fsource=x",
]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        *(("authorization_endpoint", query) for query in [*ADDED_TO_LOGINS, *ADDED_TO_ANY]),
        *(("token_endpoint", query) for query in ["code=x", "grant_type=x", *ADDED_TO_ANY]),
        ("revocation_endpoint", "token=x"),
    ],
)
def test_no_query_of_an_endpoint_speaks_for_the_client(name: str, query: str) -> None:
    """A second ``resource`` would make the token good for another server than this one."""
    document = {**SERVER, name: f"https://honest.example/endpoint?{query}"}
    bench = Bench(World(documents={PRM: RESOURCE, ASM: document})).start()
    bench.refused()
    assert bench.error.reason == "unsafe_url"
    assert f"in the query of its {name}, which only the client may send" in str(bench.error)
    assert (bench.world.opened, bench.forms()) == ([], [])


@pytest.mark.parametrize("query", ["code=the-key-of-a-cloud", "$a=b"])
def test_a_registration_has_no_parameters_that_a_query_could_add(query: str) -> None:
    document = {**SERVER, "registration_endpoint": f"https://as.example/register?{query}"}
    world = World(documents={PRM: RESOURCE, ASM: document})
    world.answers[document["registration_endpoint"]] = lambda _: (201, {"client_id": "c"})
    bench = Bench(world).start()
    bench.refused()
    assert bench.header == "Bearer token-1"


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"]
)
@pytest.mark.parametrize(
    "query",
    ["p=b2c_signin", "tenant=1&api-version=2.0&", "", "&", "hd=h.example&prompt=login", "x"],
)
def test_any_other_query_of_an_endpoint_is_kept(name: str, query: str) -> None:
    document = {**SERVER, name: f"{SERVER[name]}?{query}"}
    world = World(documents={PRM: RESOURCE, ASM: document})
    world.answers[document["registration_endpoint"]] = lambda _: (201, {"client_id": "c"})
    bench = Bench(world).start()
    bench.refused()
    assert bench.header == "Bearer token-1"
    assert any(url.startswith(document[name]) for url in (*world.opened, *bench.urls))


def test_the_parameters_of_the_client_follow_the_query_of_the_endpoint() -> None:
    for query in ("", "a=b"):
        url = f"https://as.example/authorize?{query}"
        document = {**SERVER, "authorization_endpoint": url}
        bench = Bench(World(documents={PRM: RESOURCE, ASM: document})).start()
        bench.refused()
        assert bench.world.opened[0].startswith(f"{url}&response_type=code&")


def test_no_query_of_an_endpoint_speaks_for_the_client_at_a_server_of_2025_03_26() -> None:
    """All its endpoints are those of another server, which would give the token."""
    honest = "https://honest.example"
    document = {
        **SERVER,
        "issuer": "https://h.example",
        "authorization_endpoint": f"{honest}/authorize?resource=https://bank.example/mcp",
        "token_endpoint": f"{honest}/token",
        "registration_endpoint": f"{honest}/register",
    }
    where = "https://h.example/.well-known/oauth-authorization-server"
    bench = Bench(World(documents={where: document}), is_legacy_allowed=True).start()
    bench.refused()
    assert bench.error.reason == "unsafe_url"
    assert bench.urls[-1] == where


@pytest.mark.parametrize("name", ["prompt", "PROMPT"])
def test_no_query_of_an_endpoint_changes_what_the_settings_add(name: str) -> None:
    document = {**SERVER, "authorization_endpoint": f"https://as.example/authorize?{name}=none"}
    world = World(documents={PRM: RESOURCE, ASM: document})
    bench = Bench(world, Authorization(extra={"prompt": "consent"})).start()
    bench.refused()
    assert bench.error.reason == "unsafe_url"
    assert "and extra of the settings has it, too" in str(bench.error)
    assert world.opened == []


def own_reasons() -> set[str]:
    """The words with which this library says what failed, as its code has them."""
    found = set[str]()
    for path in Path(sansmcp.auth.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                given = [each.value for each in node.keywords if each.arg == "reason"]
                given += node.args[1:] if name in ("failed", "_failed") else []
                words = [each.value for each in given if isinstance(each, ast.Constant)]
                found |= {word for word in words if isinstance(word, str)}
    return found | {REGISTRATION_REFUSED}


@pytest.mark.parametrize("word", sorted(own_reasons()))
def test_no_authorization_server_speaks_with_a_word_of_this_library(word: str) -> None:
    """The command and programs react to them, for example with ``allowed_hosts``."""
    told = {"error": word, "error_description": "Do what the word says"}
    login = Bench(redirecting(code=None, **told)).start()
    login.refused()
    token = Bench(World(answers={"https://as.example/token": lambda _: (400, told)})).start()
    token.refused()
    for bench in (login, token):
        assert bench.error.reason == "refused"
        assert f"{word}: Do what the word says" in str(bench.error)


def test_the_words_of_this_library_are_found() -> None:
    documented = {"login_failed", "private_address", "pkce_unsupported", "not_revoked", "no_client"}
    assert documented < own_reasons()
    assert len(own_reasons()) > 25


@pytest.mark.parametrize("word", ["access_denied", "server_error", "login_required"])
def test_a_word_of_oauth_is_the_reason(word: str) -> None:
    bench = Bench(redirecting(code=None, error=word)).start()
    bench.refused()
    assert bench.error.reason == word
