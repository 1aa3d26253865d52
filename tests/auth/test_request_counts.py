"""How many requests each flow makes beside those to the MCP server: the fewest that are possible.

The authorization request, which the browser of a person makes, is counted too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import (
    Authorization,
    ClientCredentials,
    IdentityAssertion,
    JwtAssertion,
)

from .bench import ASM, OPENID, PRM, RESOURCE, ROOT_PRM, SERVER, Answer, Asked, Bench, World

TENANT = "https://as.example/tenant"
STEP_UP = 'Bearer error="insufficient_scope", scope="b"'
CLIENT_URL = "https://app.example/client.json"
GIVEN = OAuthClient(client_id="c", client_secret="s", issuer="https://as.example")
SECRET = {**SERVER, "token_endpoint_auth_methods_supported": ["client_secret_basic"]}
DPOP = {**SERVER, "dpop_signing_alg_values_supported": ["ES256"]}
IDENTITY = IdentityAssertion(
    token_endpoint="https://idp.example/token", client=GIVEN, subject_token="id.token"
)


def flow(
    documents: dict[str, Any] | None = None,
    options: Authorization | None = None,
    *,
    challenge: str = "Bearer",
    is_legacy_allowed: bool = False,
    **given: Any,
) -> Bench:
    """Run the flow of the first request."""
    world = World(documents={PRM: RESOURCE, ASM: SERVER} if documents is None else documents)
    for name, value in given.items():
        setattr(world, name, value)
    bench = Bench(world, options or Authorization(), is_legacy_allowed=is_legacy_allowed)
    bench.start().refused(challenge=challenge)
    return bench


def stepped_up() -> Bench:
    bench = flow(challenge='Bearer scope="a"')
    bench.refused(403, STEP_UP)
    return bench


def stepped_up_in_vain() -> Bench:
    bench = flow(challenge='Bearer scope="b"')
    bench.refused(403, STEP_UP)
    return bench


def migrated() -> Bench:
    bench = flow(gives_refresh=True)
    bench.world.documents = {
        PRM: {**RESOURCE, "authorization_servers": ["https://as2.example"]},
        ASM.replace("//as.example/", "//as2.example/"): {
            name: value.replace("//as", "//as2") if isinstance(value, str) else value
            for name, value in SERVER.items()
        },
    }
    bench.refused()
    return bench


def from_another_issuer(url: str) -> str:
    state = dict(parse_qsl(urlsplit(url).query))["state"]
    return "?" + urlencode({"code": "c", "state": state, "iss": "https://evil.example"})


def with_nonce(asked: Asked) -> Answer:
    return 400, {"error": "use_dpop_nonce"}, {"dpop-nonce": "n"}


def dpop(*, nonce: bool) -> Bench:
    demands = [with_nonce] if nonce else []
    world = World(documents={PRM: RESOURCE, ASM: DPOP}, token_type="DPoP")
    world.answers["https://as.example/token"] = lambda asked: (
        demands.pop()(asked) if demands else world.token(asked)
    )
    bench = Bench(world, Authorization(dpop=True)).start()
    bench.refused()
    return bench


def of_the_company() -> Bench:
    jag = {"access_token": "jag", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}
    options = Authorization(client=GIVEN, grant=IDENTITY)

    def issue(asked: Any) -> Any:
        return 200, jag

    return flow({PRM: RESOURCE, ASM: SECRET}, options, answers={"https://idp.example/token": issue})


FLOWS: dict[str, tuple[int, Callable[[], Bench]]] = {
    "usual": (5, flow),
    "OpenID metadata": (6, lambda: flow({PRM: RESOURCE, OPENID: SERVER})),
    "metadata of the origin": (6, lambda: flow({ROOT_PRM: RESOURCE, ASM: SERVER})),
    "challenged URL, and the last of three": (
        7,
        lambda: flow(
            {
                "https://h.example/odd": {**RESOURCE, "authorization_servers": [TENANT]},
                f"{TENANT}/.well-known/openid-configuration": {**SERVER, "issuer": TENANT},
            },
            challenge='Bearer resource_metadata="https://h.example/odd"',
        ),
    ),
    "metadata document of the client": (
        4,
        lambda: flow(
            {PRM: RESOURCE, ASM: {**SERVER, "client_id_metadata_document_supported": True}},
            Authorization(client_metadata_url=CLIENT_URL),
        ),
    ),
    "client of the settings": (
        4,
        lambda: flow({PRM: RESOURCE, ASM: SECRET}, Authorization(client=GIVEN)),
    ),
    "step-up": (5 + 2, stepped_up),
    "step-up to nothing new": (5, stepped_up_in_vain),
    "another authorization server": (5 + 5, migrated),
    "redirect of another issuer": (4, lambda: flow(person=from_another_issuer)),
    "metadata of another issuer": (
        2,
        lambda: flow({PRM: RESOURCE, ASM: {**SERVER, "issuer": "https://evil.example"}}),
    ),
    "metadata of another resource": (
        1,
        lambda: flow({PRM: {**RESOURCE, "resource": "https://evil.example/mcp"}, ASM: SERVER}),
    ),
    "client credentials": (
        3,
        lambda: flow(
            {PRM: RESOURCE, ASM: SECRET}, Authorization(client=GIVEN, grant=ClientCredentials())
        ),
    ),
    "assertion of the platform": (
        3,
        lambda: flow(options=Authorization(grant=JwtAssertion("a.b.c", "https://as.example"))),
    ),
    "assertion of the company": (4, of_the_company),
    "DPoP": (5, lambda: dpop(nonce=False)),
    "DPoP with a nonce": (6, lambda: dpop(nonce=True)),
    "2025-03-26": (6, lambda: flow({}, is_legacy_allowed=True)),
}


@pytest.mark.parametrize(("count", "run"), FLOWS.values(), ids=FLOWS)
def test_no_request_is_superfluous(count: int, run: Callable[[], Bench]) -> None:
    bench = run()
    assert len(bench.urls) + len(bench.world.opened) == count, (bench.urls, bench.world.opened)


def logged_in(**given: Any) -> Bench:
    """A client whose login is not counted."""
    bench = flow(gives_refresh=True, **given)
    bench.world.asked.clear()
    bench.world.opened.clear()
    return bench


def test_a_refresh_before_a_request_is_one_request() -> None:
    bench = logged_in(lifetime=100.0)
    bench.world.wall_time += 99
    assert not bench.flow.prepare(bench.now)
    bench.run()
    assert bench.urls == ["https://as.example/token"]


def test_a_refresh_after_a_refusal_is_one_request_more() -> None:
    """The metadata of the server tells whether it has changed to another authorization server."""
    bench = logged_in()
    bench.refused()
    assert bench.urls == [PRM, "https://as.example/token"]


def test_a_refresh_at_a_server_without_metadata() -> None:
    bench = logged_in(documents={}, is_legacy_allowed=True)
    bench.refused()
    assert bench.urls == [PRM, ROOT_PRM, "https://h.example/token"]
