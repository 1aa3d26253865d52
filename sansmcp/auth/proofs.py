"""What is signed: the assertion with which a client authenticates, and DPoP proofs.

These functions return header and claims. Signing is an effect, because it needs a library.

Source: RFC 7523, 3; RFC 9449, 4.2.
"""

from __future__ import annotations

import hashlib
from typing import Any

from .codes import random_text
from .urls import without_query

ALGORITHMS = ("ES256", "RS256", "PS256", "ES384")
"""The algorithms of client assertions, in the order of preference."""

DPOP_ALGORITHM = "ES256"

_ASSERTION_LIFETIME = 60
"""Seconds."""

_PUBLIC_MEMBERS = ("kty", "crv", "x", "y", "n", "e")

Jwt = tuple[dict[str, Any], dict[str, Any]]
"""The header and the claims of a JWT."""


def client_assertion(
    client_id: str, issuer: str, *, algorithm: str, key_id: str | None, jti: str, wall_time: float
) -> Jwt:
    """Return the assertion with which a client authenticates at a token endpoint.

    ``aud`` is the issuer as published: RFC 7523 would allow the URL of the token endpoint, too, and
    its revision does not.
    """
    header = {"alg": algorithm, "typ": "JWT"}
    if key_id is not None:
        header["kid"] = key_id
    issued = int(wall_time)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "jti": jti,
        "iat": issued,
        "exp": issued + _ASSERTION_LIFETIME,
    }
    return header, claims


def dpop_proof(
    key: dict[str, Any],
    method: bytes,
    url: str,
    *,
    jti: str,
    wall_time: float,
    nonce: str | None = None,
    access_token: str | None = None,
) -> Jwt:
    """Return the proof for one HTTP request.

    Args:
        key: the private JWK; the proof contains its public members.
        method, url: the HTTP request.
        jti: a random text, new for each proof.
        wall_time: seconds since 1970.
        nonce: the last nonce of the server to which the request goes; None if it sent none.
        access_token: the token in the request; None for a token request.
    """
    public = {name: key[name] for name in _PUBLIC_MEMBERS if name in key}
    header = {"typ": "dpop+jwt", "alg": DPOP_ALGORITHM, "jwk": public}
    claims: dict[str, Any] = {
        "jti": jti,
        "htm": method.decode(),
        "htu": without_query(url),
        "iat": int(wall_time),
    }
    if access_token is not None:
        claims["ath"] = random_text(hashlib.sha256(access_token.encode()).digest())
    if nonce is not None:
        claims["nonce"] = nonce
    return header, claims
