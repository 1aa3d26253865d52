"""Tokens that are bound to keys, over real sockets: every adapter, and our clients."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import sansmcp
import sansmcp_auth
import sansmcp_blocking
from sansmcp.auth.saved import Saved
from sansmcp.auth.tokens import Tokens
from sansmcp.credentials import CredentialsKey

from ..messages import initialize
from ..ports import free_port
from ..tls import PUBLIC
from .conftest import ADAPTERS, who_app
from .proofs import KEY, OTHER, jwk_of, proof, thumbprint_of
from .test_our_client import ALL, VERSIONS, Talk
from .tokens import AUDIENCE, ISSUER, FakeIssuer, token

JSON = {"accept": "application/json, text/event-stream"}
SCOPES = "use read write"


def post(url: str, *headers: tuple[str, str]) -> httpx.Response:
    """Open a session with these credentials."""
    body, lines = initialize("2025-11-25", {}), [*JSON.items(), *headers]
    return httpx.post(url, json=body, headers=lines, verify=PUBLIC)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_proofs_of_another_library(adapter: str) -> None:
    """The server does not know that clients reach it at the URL of its resource."""
    resource = sansmcp.ProtectedResource(
        resource=AUDIENCE, authorization_servers=(ISSUER,), dpop="required"
    )
    running = ADAPTERS[adapter]().serve(
        who_app(),
        graceful_timeout=0.0,
        authenticate=FakeIssuer().verifier(),
        protected_resource=resource,
    )
    try:
        bound = token(cnf={"jkt": thumbprint_of(KEY)})
        sent, good = ("authorization", f"DPoP {bound}"), proof(bound)
        assert post(running.url, sent, ("dpop", good)).status_code == 200
        for credentials, error in (
            ((sent, ("dpop", good)), "invalid_dpop_proof"),
            ((sent,), "invalid_dpop_proof"),
            ((sent, ("dpop", proof(bound)), ("dpop", proof(bound))), "invalid_dpop_proof"),
            ((sent, ("dpop", proof(bound, OTHER))), "invalid_dpop_proof"),
            ((sent, ("dpop", proof(bound, htu=running.url))), "invalid_dpop_proof"),
            ((sent, ("dpop", proof(bound, iat=int(time.time()) - 400))), "invalid_dpop_proof"),
            ((("authorization", f"Bearer {bound}"),), "invalid_token"),
            ((("authorization", f"Bearer {token()}"),), "invalid_token"),
            ((("authorization", f"DPoP {token()}"), ("dpop", proof(bound))), "invalid_token"),
        ):
            refused = post(running.url, *credentials)
            assert refused.status_code == 401
            challenge = refused.headers["www-authenticate"]
            assert challenge.startswith('DPoP algs="ES256 ')
            assert f'error="{error}"' in challenge
        for both in ((sent, sent), (sent, ("authorization", f"Bearer {token()}"))):
            for credentials in (both, both[::-1]):
                refused = post(running.url, *credentials, ("dpop", proof(bound)))
                assert refused.status_code in (400, 401)
                assert refused.headers["www-authenticate"].startswith("DPoP ")
    finally:
        running.stop()


@contextmanager
def serving(**settings: Any) -> Generator[tuple[str, sansmcp.Authorization], None, None]:
    """Serve the application; yield its URL, and a client's settings with a token and its key."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    verifier = sansmcp_auth.JwtVerifier(issuer=ISSUER, audience=url, fetch=FakeIssuer().fetch)
    resource = sansmcp.ProtectedResource(
        resource=url, authorization_servers=(ISSUER,), required_scopes=("use",), **settings
    )
    bound = token(cnf={"jkt": thumbprint_of(KEY)}, aud=url, scope=SCOPES)
    tokens = Tokens(
        issuer=ISSUER,
        client_id="desktop",
        resource=url,
        token_endpoint=f"{ISSUER}/token",
        auth_method="none",
        access_token=bound,
        is_dpop=True,
        dpop_key=jwk_of(KEY, is_private=True),
        granted=tuple(SCOPES.split()),
        requested=tuple(SCOPES.split()),
    )
    client = sansmcp.OAuthClient(client_id="desktop", issuer=ISSUER)
    credentials = sansmcp.MemoryCredentials()
    credentials.save(CredentialsKey(url), Saved(resource=url, tokens=tokens).encode())
    authorization = sansmcp.Authorization(
        client=client,
        login=nobody,
        redirect_uri="http://127.0.0.1:1/callback",
        credentials=credentials,
        dpop=True,
        signer=sansmcp_auth.JoseSigner(),
    )
    with sansmcp_blocking.serve(
        who_app(),
        http=("127.0.0.1", port),
        graceful_timeout=0.0,
        http_sse="/sse",
        authenticate=verifier,
        protected_resource=resource,
    ):
        yield url, authorization


def nobody(url: str) -> str:
    raise RuntimeError("a person would have to log in")


@pytest.mark.parametrize("has_nonces", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("talk", ALL)
def test_our_clients(talk: Talk, version: str, has_nonces: bool) -> None:
    with serving(dpop="required", dpop_nonces=has_nonces) as (url, authorization):
        told = talk(url, authorization=authorization, versions=(version,))
    assert told == [f"{ISSUER} ada: read use write"] * 2


def test_our_client_over_http_sse() -> None:
    with serving(dpop="required") as (url, authorization):
        sse = url.replace("/mcp", "/sse")
        key = CredentialsKey(url)
        authorization.credentials.save(
            CredentialsKey(sse), authorization.credentials.load(key) or ""
        )
        with sansmcp_blocking.connect(
            sse, authorization=authorization, versions=("2024-11-05",)
        ) as client:
            assert client.call_tool("who")["content"][0]["text"].endswith("read use write")
