"""The form of DPoP proofs, whose signatures ``tests/protected/test_proofs.py`` checks."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from sansmcp import LocalProtocolError, ProtectedResource, RequestHead
from sansmcp.tokens.dpop import ProofRejected, SignedProof, read_proof
from sansmcp.tokens.jwt import JwtHeader

NOW = 1_000_000.0
KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
    "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
}
"""The key of the examples of RFC 9449."""
HEADER: dict[str, Any] = {"typ": "dpop+jwt", "alg": "ES256", "jwk": KEY}
ATH = base64.urlsafe_b64encode(hashlib.sha256(b"token").digest()).rstrip(b"=").decode()
CLAIMS: dict[str, Any] = {"jti": "a", "htm": "GET", "htu": "https://h/", "iat": NOW - 1, "ath": ATH}
SIGNED = SignedProof("", JwtHeader("ES256", None), KEY, "thumbprint")


def encoded(value: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def read(*proofs: bytes) -> SignedProof:
    headers = tuple((b"dpop", each) for each in proofs)
    return read_proof(RequestHead(method=b"GET", target=b"/", headers=headers))


def test_the_thumbprint_of_the_rfc() -> None:
    found = read(b" %s.e30.eA " % encoded({**HEADER, "jwk": {**KEY, "kid": "more"}}))
    assert found.thumbprint == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
    assert found.key == KEY


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"alg": "HS256"}, "alg"),
        ({"typ": "JWT"}, "typ"),
        ({"jwk": None}, "no key"),
        ({"jwk": {**KEY, "d": "x"}}, "private"),
        ({"jwk": {**KEY, "crv": "P-384"}}, "for its algorithm"),
        ({"jwk": {**KEY, "kty": "RSA"}}, "for its algorithm"),
        ({"jwk": {**KEY, "y": "="}}, "member y"),
        ({"jwk": {**KEY, "x": 1}}, "member x"),
        ({"more": "x" * 8192}, "8192"),
    ],
)
def test_a_header_that_is_not_allowed(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ProofRejected, match=text) as found:
        read(b"%s.e30.eA" % encoded({**HEADER, **change}))
    assert found.value.refusal.reason == "invalid_dpop_proof"


@pytest.mark.parametrize("proofs", [(), (b"a", b"b")])
def test_there_is_one_proof(proofs: tuple[bytes, ...]) -> None:
    with pytest.raises(ProofRejected, match="instead of one"):
        read(*proofs)


def test_what_a_proof_says() -> None:
    found = SIGNED.check_claims({**CLAIMS, "nonce": "n", "exp": NOW + 1}, "token", NOW)
    assert (found.method, found.url, found.id) == ("GET", "https://h/", "a")
    assert (found.age, found.nonce, found.thumbprint) == (1.0, "n", "thumbprint")
    assert SIGNED.check_claims(CLAIMS, "token", NOW).nonce is None


@pytest.mark.parametrize(
    "change", [{"ath": "x"}, {"iat": "0"}, {"exp": NOW}, {"exp": True}, {"jti": ""}, {"htm": 1}]
)
def test_claims_that_are_not_valid(change: dict[str, Any]) -> None:
    with pytest.raises(ProofRejected, match=next(iter(change))):
        SIGNED.check_claims({**CLAIMS, **change}, "token", NOW)


@pytest.mark.parametrize(
    "given", [{"dpop": "off"}, {"dpop_max_age": 0}, {"dpop_max_age": float("inf")}]
)
def test_what_are_no_settings_of_dpop(given: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        ProtectedResource(resource="https://h/mcp", authorization_servers=("https://as",), **given)
