"""Token requests, token responses, and stored tokens."""

from __future__ import annotations

import base64
import json
import math
from typing import Any
from urllib.parse import parse_qsl

import attrs
import pytest

from sansmcp.addresses import AddressClass
from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.http import AuthRequest, AuthResponse
from sansmcp.auth.proofs import client_assertion, dpop_proof
from sansmcp.auth.tokens import ID_JAG, Tokens, read_id_jag, read_tokens, token_request
from sansmcp.effects import OpenExchange
from sansmcp.errors import AuthorizationFailed
from sansmcp.http import RequestHead

from .responses import response

URL = "https://as.example/token"
HEAD = RequestHead(method=b"POST", target=b"/token", headers=())
CLIENT = OAuthClient(client_id="c:ä", client_secret="s /+")


def form(request: AuthRequest) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode(), strict_parsing=True))


def basic(request: AuthRequest) -> bytes | None:
    value = dict(request.headers).get(b"authorization")
    return None if value is None else base64.b64decode(value.removeprefix(b"Basic "))


def test_basic_authentication_encodes_both_parts_and_leaves_the_body_alone() -> None:
    request = token_request(URL, CLIENT, "client_secret_basic", {"grant_type": "x"})
    assert basic(request) == b"c%3A%C3%A4:s+%2F%2B"
    assert form(request) == {"grant_type": "x"}
    assert request.method == b"POST"
    repeated = token_request(URL, CLIENT, "client_secret_basic", {"a": "b"}, repeats_id=True)
    assert basic(repeated) == basic(request)
    assert form(repeated) == {"a": "b", "client_id": "c:ä"}
    bare = token_request(URL, OAuthClient(client_id="c"), "client_secret_basic", {"a": "b"})
    assert basic(bare) == b"c:"


@pytest.mark.parametrize(
    ("method", "assertion", "more"),
    [
        ("none", None, {"client_id": "c:ä"}),
        ("client_secret_post", None, {"client_id": "c:ä", "client_secret": "s /+"}),
        (
            "private_key_jwt",
            "a.b.c",
            {
                "client_id": "c:ä",
                "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                "client_assertion": "a.b.c",
            },
        ),
    ],
)
def test_the_other_methods_use_the_body_only(
    method: str, assertion: str | None, more: dict[str, str]
) -> None:
    request = token_request(URL, CLIENT, method, {"grant_type": "x"}, assertion=assertion)
    assert form(request) == {"grant_type": "x", **more}
    assert basic(request) is None


def test_a_request_without_a_client_and_one_with_a_proof() -> None:
    assert form(token_request(URL, None, "none", {"a": "b"})) == {"a": "b"}
    request = token_request(URL, None, "none", {"a": "b"}, proof="p")
    assert dict(request.headers)[b"dpop"] == b"p"


def test_a_response() -> None:
    found = read_tokens(
        response(
            {
                "access_token": "t",
                "token_type": "bEaReR",
                "expires_in": "60",
                "refresh_token": "r",
                "scope": "a b",
            }
        )
    )
    assert (found.access_token, found.is_dpop, found.refresh_token) == ("t", False, "r")
    assert (found.lifetime, found.scopes) == (60.0, ("a", "b"))
    bare = read_tokens(response({"access_token": "t", "token_type": "DPoP"}, 201))
    assert (bare.is_dpop, bare.lifetime, bare.scopes) == (True, math.inf, None)


@pytest.mark.parametrize("kind", [{}, {"token_type": None}, {"token_type": ""}])
def test_a_token_without_a_type_is_a_bearer_token(kind: dict[str, Any]) -> None:
    assert not read_tokens(response({"access_token": "t", **kind})).is_dpop


def test_a_token_is_one_even_with_an_error_beside_it() -> None:
    assert read_tokens(response({"access_token": "t", "error": ""})).access_token == "t"
    assert read_tokens(response({"access_token": "t", "error": "x"})).access_token == "t"


@pytest.mark.parametrize("seconds", [0, 0.5, "0", -1])
def test_a_lifetime_that_is_none(seconds: Any) -> None:
    document = {"access_token": "t", "token_type": "Bearer", "expires_in": seconds}
    assert read_tokens(response(document)).lifetime == math.inf


@pytest.mark.parametrize(
    ("status", "document", "reason"),
    [
        (400, {"error": "invalid_grant"}, "invalid_grant"),
        (401, b"<html>", "refused"),
        (302, b"", "refused"),
        (200, {}, "no_token"),
        (200, b"<html>", "no_token"),
        (200, {"access_token": "", "token_type": "Bearer"}, "no_token"),
        (200, {"access_token": "a b", "token_type": "Bearer"}, "no_token"),
        (200, {"access_token": "a\r\nx: y", "token_type": "Bearer"}, "no_token"),
        (200, {"access_token": "\u00e4", "token_type": "Bearer"}, "no_token"),
        (200, {"error": "invalid_grant"}, "invalid_grant"),
        (200, {"access_token": "a", "token_type": 7}, "unknown_token_type"),
        (200, {"access_token": "a", "token_type": "mac"}, "unknown_token_type"),
    ],
)
def test_failed_token_requests(status: int, document: Any, reason: str) -> None:
    with pytest.raises(AuthorizationFailed) as caught:
        read_tokens(response(document, status))
    assert caught.value.reason == reason


def test_an_identity_assertion() -> None:
    document = {"access_token": "j", "issued_token_type": ID_JAG, "token_type": "N_A"}
    assert read_id_jag(response(document)) == "j"
    with pytest.raises(AuthorizationFailed, match="issued a token of the type"):
        read_id_jag(response({**document, "issued_token_type": "x"}))
    with pytest.raises(AuthorizationFailed, match="no access_token"):
        read_id_jag(response({"issued_token_type": ID_JAG}))
    for status in (403, 200):
        with pytest.raises(AuthorizationFailed, match=f"HTTP {status}: x"):
            read_id_jag(response({"error": "x"}, status))


TOKENS = Tokens(
    issuer="https://as.example",
    client_id="c",
    resource="https://h.example",
    token_endpoint=URL,
    auth_method="none",
    access_token="hush-t",
    is_dpop=True,
    refresh_token="hush-r",
    lifetime=100.0,
    expires_at=1100.0,
    requested=("a", "b"),
    granted=("a",),
    nearest=AddressClass.PRIVATE,
    dpop_key={"kty": "EC", "d": "hush-d"},
)


def test_tokens_are_stored() -> None:
    assert Tokens.from_json(TOKENS.to_json()) == TOKENS
    endless = attrs.evolve(TOKENS, lifetime=math.inf, expires_at=math.inf, resource=None)
    assert Tokens.from_json(endless.to_json()) == endless


@pytest.mark.parametrize("value", [None, 7, {}, {**TOKENS.to_json(), "issuer": None}])
def test_malformed_stored_tokens_are_ignored(value: Any) -> None:
    assert Tokens.from_json(value) is None


def test_an_unknown_class_of_address_is_the_strictest() -> None:
    found = Tokens.from_json({**TOKENS.to_json(), "nearest": "MOON"})
    assert found is not None
    assert found.nearest is AddressClass.PUBLIC


@pytest.mark.parametrize(
    ("lifetime", "left", "expired"),
    [(100.0, 10.1, False), (100.0, 10.0, True), (3600.0, 30.1, False), (3600.0, 30.0, True)],
)
def test_tokens_are_refreshed_a_little_early(lifetime: float, left: float, expired: bool) -> None:
    tokens = attrs.evolve(TOKENS, lifetime=lifetime, expires_at=1000.0)
    assert tokens.is_expired(1000.0 - left) is expired
    assert not attrs.evolve(TOKENS, lifetime=math.inf, expires_at=math.inf).is_expired(1e12)


SENT: dict[str, tuple[OAuthClient | None, str, dict[str, str]]] = {
    "code": (None, "none", {"code": "hush hush"}),
    "verifier": (None, "none", {"code_verifier": "hush hush"}),
    "refresh token": (None, "none", {"refresh_token": "hush hush"}),
    "assertion": (None, "none", {"assertion": "hush hush"}),
    "identity": (None, "none", {"subject_token": "hush hush"}),
    "secret": (OAuthClient(client_id="c", client_secret="hush hush"), "client_secret_post", {}),
    "header": (OAuthClient(client_id="c", client_secret="hush hush"), "client_secret_basic", {}),
}


@pytest.mark.parametrize(("client", "method", "form"), SENT.values(), ids=SENT)
def test_no_error_repeats_what_was_sent(
    client: OAuthClient | None, method: str, form: dict[str, str]
) -> None:
    """Whatever the server writes into its errors, as it came or as a form has it."""
    request = token_request(URL, client, method, form)
    echoes = ["hush hush", "hush+hush", dict(request.headers).get(b"authorization", b"").decode()]
    for echo in filter(None, echoes):
        for document in (
            {"error": f"no {echo}", "error_description": f"{'x' * 295}{echo}"},
            {"access_token": "t", "token_type": f"{echo}"},
        ):
            answer = AuthResponse(request, 200, (), json.dumps(document).encode())
            with pytest.raises(AuthorizationFailed) as caught:
                read_tokens(answer)
            shown = f"{caught.value} {caught.value.reason}"
            assert "hush" not in shown
            assert echo.removeprefix("Basic ") not in shown


def test_no_secret_is_in_a_repr() -> None:
    found = read_tokens(
        response({"access_token": "hush", "token_type": "Bearer", "refresh_token": "hush"})
    )
    request = token_request(URL, CLIENT, "client_secret_basic", {"code": "hush"})
    effect = OpenExchange(exchange=1, url=URL, head=HEAD, body=request.body)
    assert "hush" not in repr((TOKENS, found, request, effect, request.body))


def test_the_assertion_of_a_client() -> None:
    header, claims = client_assertion(
        "c", "https://as.example", algorithm="ES256", key_id="k", jti="j", wall_time=1000.9
    )
    assert header == {"alg": "ES256", "typ": "JWT", "kid": "k"}
    assert claims == {
        "iss": "c",
        "sub": "c",
        "aud": "https://as.example",
        "jti": "j",
        "iat": 1000,
        "exp": 1060,
    }
    header, _ = client_assertion(
        "c", "https://as.example", algorithm="ES256", key_id=None, jti="j", wall_time=0
    )
    assert "kid" not in header


def test_the_proof_of_a_request() -> None:
    key = {"kty": "EC", "crv": "P-256", "x": "x", "y": "y", "d": "private", "kid": "k"}
    header, claims = dpop_proof(key, b"POST", "https://h.example/mcp?q#f", jti="j", wall_time=5.5)
    public = {"kty": "EC", "crv": "P-256", "x": "x", "y": "y"}
    assert header == {"typ": "dpop+jwt", "alg": "ES256", "jwk": public}
    assert claims == {"jti": "j", "htm": "POST", "htu": "https://h.example/mcp", "iat": 5}
    _, claims = dpop_proof(
        key, b"GET", "https://h.example/", jti="j", wall_time=5, nonce="n", access_token="t"
    )
    assert claims["nonce"] == "n"
    assert claims["ath"] == "47mKTaMaEn1L3m5DAz9muidMqw636xxw7EFAK_YnPdg"
