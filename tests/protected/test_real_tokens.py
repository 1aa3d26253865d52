"""Tokens of a certified authorization server, at our servers on every adapter."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import sansmcp
import sansmcp_auth
import sansmcp_blocking

from ..messages import initialize
from ..tls import PUBLIC
from .authorization_server import AuthorizationServer
from .conftest import ADAPTERS, who_app
from .proofs import OTHER, proof

pytestmark = pytest.mark.node
requirement = pytest.mark.requirement

JWT, OPAQUE = "https://mcp.example.com/mcp", "https://mcp.example.com/opaque"
JSON = {"accept": "application/json, text/event-stream"}


def jwt_verifier(issuer: AuthorizationServer) -> sansmcp_auth.JwtVerifier:
    return sansmcp_auth.JwtVerifier(issuer=issuer.issuer, audience=JWT)


def introspection_verifier(
    issuer: AuthorizationServer, **more: Any
) -> sansmcp_auth.IntrospectionVerifier:
    return sansmcp_auth.IntrospectionVerifier(
        issuer=issuer.issuer,
        audience=OPAQUE,
        client_id="resource-server",
        client_secret="resource-server-secret",
        **more,
    )


VERIFIERS: dict[str, Callable[[AuthorizationServer], sansmcp.Authenticator]] = {
    JWT: jwt_verifier,
    OPAQUE: introspection_verifier,
}


@contextmanager
def serving(
    adapter: str, issuer: AuthorizationServer, audience: str, verify: sansmcp.Authenticator
) -> Generator[str, None, None]:
    """Serve the application, protected; yield its URL."""
    resource = sansmcp.ProtectedResource(
        resource=audience, authorization_servers=(issuer.issuer,), required_scopes=("use",)
    )
    running = ADAPTERS[adapter]().serve(
        who_app(), graceful_timeout=0.0, authenticate=verify, protected_resource=resource
    )
    try:
        yield running.url
    finally:
        running.stop()


def call(url: str, token: str, tool: str = "who") -> str:
    headers = {"authorization": f"Bearer {token}"}
    with sansmcp_blocking.connect(url, headers=headers) as client:
        text: str = client.call_tool(tool)["content"][0]["text"]
        return text


def post(url: str, token: str | None) -> httpx.Response:
    headers = JSON if token is None else {**JSON, "authorization": f"Bearer {token}"}
    return httpx.post(url, json=initialize("2025-11-25", {}), headers=headers, verify=PUBLIC)


@requirement("AUTH-S-001", "AUTH-S-002", "AUTH-S-003", "AUTH-S-005")
@pytest.mark.parametrize("audience", VERIFIERS)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_tokens_of_people_and_programs(
    issuer: AuthorizationServer, adapter: str, audience: str
) -> None:
    with serving(adapter, issuer, audience, VERIFIERS[audience](issuer)) as url:
        user, robot = issuer.user_token(audience), issuer.client_token(audience, "use write")
        assert call(url, user) == f"{issuer.issuer} ada: read use"
        # The introspection of this server names no subject if there is no user.
        program = "client " if audience.endswith("/opaque") else ""
        assert call(url, robot, "wipe") == f"{program}{issuer.issuer} robot: use write"
        with pytest.raises(sansmcp.CallError, match="the scopes use write"):
            call(url, user, "wipe")
        assert post(url, None).status_code == 401
        assert post(url, user[:-9] + "AAAAAAAAA").status_code == 401
        other = "https://other.example.com" + audience.removeprefix("https://mcp.example.com")
        assert post(url, issuer.client_token(other)).status_code == 401
        lacking = post(url, issuer.client_token(audience, "read"))
        assert lacking.status_code == 403
        assert 'scope="use"' in lacking.headers["www-authenticate"]
        document = httpx.get(url.replace("/mcp", "/.well-known/oauth-protected-resource"))
        assert document.json()["authorization_servers"] == [issuer.issuer]


@pytest.mark.parametrize("audience", VERIFIERS)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_tokens_that_are_bound_to_a_key(
    issuer: AuthorizationServer, adapter: str, audience: str
) -> None:
    """The key is in the JWT, or the authorization server tells it at its introspection endpoint."""
    token = issuer.bound_token(audience)
    is_jwt = audience == JWT
    assert (token.count(".") == 2) is is_jwt

    def attempt(scheme: str, *proofs: str) -> tuple[int, str]:
        credentials = [("authorization", f"{scheme} {token}"), *(("dpop", each) for each in proofs)]
        response = httpx.post(
            url, json=initialize("2025-11-25", {}), headers=[*JSON.items(), *credentials]
        )
        found = re.search('error="([a-z_]+)"', response.headers.get("www-authenticate", ""))
        return response.status_code, found[1] if found else ""

    with serving(adapter, issuer, audience, VERIFIERS[audience](issuer)) as url:
        good = proof(token, htu=audience)
        assert attempt("DPoP", good) == (200, "")
        assert attempt("DPoP", good) == (401, "invalid_dpop_proof")
        assert attempt("DPoP") == (401, "invalid_dpop_proof")
        assert attempt("DPoP", proof(token, OTHER, htu=audience)) == (401, "invalid_dpop_proof")
        assert attempt("DPoP", proof("another", htu=audience)) == (401, "invalid_dpop_proof")
        assert attempt("Bearer") == (401, "invalid_token")
        assert attempt("Bearer", proof(token, htu=audience)) == (401, "invalid_token")
        assert attempt("DPoP", proof(token, htu=audience)) == (200, "")


def test_a_token_that_is_revoked(issuer: AuthorizationServer) -> None:
    verify = introspection_verifier(issuer, max_age=0)
    with serving("blocking", issuer, OPAQUE, verify) as url:
        token = issuer.client_token(OPAQUE)
        assert post(url, token).status_code == 200
        issuer.revoke(token)
        assert post(url, token).status_code == 401


def test_an_authorization_server_that_is_gone(issuer: AuthorizationServer) -> None:
    token = issuer.client_token(JWT)
    nowhere = "http://127.0.0.1:1/"
    verify = sansmcp_auth.JwtVerifier(issuer=issuer.issuer, audience=JWT, jwks_url=nowhere)
    with serving("blocking", issuer, JWT, verify) as url:
        response = post(url, token)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
