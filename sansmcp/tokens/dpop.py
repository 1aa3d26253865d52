"""DPoP proofs: the form of one, the key that it names, and what it says of its request.

A proof is a JWT that a client signs for one HTTP request, with the key to which its access token is
bound. It names that key itself; a library checks the signature with this key. The server compares
the proof with the request (``server.dpop_checks``).

Source: RFC 9449, 4.2 and 4.3; RFC 7638, 3.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import attrs

from ..authentication import DpopProof, Refusal
from ..codecs import json
from ..http import RequestHead
from ..protected_resource import DPOP_ALGORITHMS
from .claims import TokenRejected, time_in
from .jwt import KEY_TYPES, JwtForm, JwtHeader, header_of

_MAX_BYTES = 8192
"""Bytes of a proof. With a key of 4096 bits it has some 2,000."""

_MAX_CHARS = 2048
"""Characters of a claim."""

_FORM = JwtForm(DPOP_ALGORITHMS, ("dpop+jwt",))

_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
"""The curves of the algorithms that have one."""

_MEMBERS = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n")}
"""The members that make a public key, in the order in which its thumbprint has them."""

_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")

# A long exponent would make the check of a signature slow. RSA keys have 2048 to 4096 bits.
_VALUES = {
    "kty": re.compile(r"[A-Z]+"),
    "crv": re.compile(r"[A-Za-z0-9-]+"),
    "n": re.compile(r"[A-Za-z0-9_-]{342,683}"),
    "e": re.compile(r"[A-Za-z0-9_-]{1,6}"),
    "x": re.compile(r"[A-Za-z0-9_-]{43,88}"),
    "y": re.compile(r"[A-Za-z0-9_-]{43,88}"),
}


class ProofRejected(TokenRejected):
    """A DPoP proof is not valid; the text says why, for the client and for the log."""

    @property
    def refusal(self) -> Refusal:
        """The refusal of the request. A client knows what its own proof says."""
        return Refusal(message=f"The DPoP proof is not valid: {self}", reason="invalid_dpop_proof")


@attrs.frozen
class SignedProof:
    """A proof whose signature is to be checked.

    Attributes:
        text: the JWT.
        header: its header.
        key: the public key that it names, as a JWK with the members that it needs and no other.
        thumbprint: the thumbprint of the key.
    """

    text: str = attrs.field(repr=False)
    header: JwtHeader
    key: Mapping[str, str]
    thumbprint: str

    def check_claims(self, claims: Mapping[str, Any], token: str, now: float) -> DpopProof:
        """Return what the proof says, once its signature is checked.

        Args:
            claims: its claims.
            token: the access token of the request.
            now: the wall-clock time, in seconds since 1970.

        Raises:
            ProofRejected: a claim is missing, or the proof is for another token.
        """
        if claims.get("ath") != _encode(sha256(token.encode()).digest()):
            raise ProofRejected("its ath is not the hash of the access token")
        try:
            age = now - time_in(claims, "iat")
            is_expired = "exp" in claims and now >= time_in(claims, "exp")
        except TokenRejected as error:
            raise ProofRejected(str(error)) from None
        if is_expired:
            raise ProofRejected("it has expired (exp)")
        return DpopProof(
            thumbprint=self.thumbprint,
            method=_text_in(claims, "htm"),
            url=_text_in(claims, "htu"),
            id=_text_in(claims, "jti"),
            age=age,
            nonce=_text_in(claims, "nonce") if "nonce" in claims else None,
        )


def read_proof(head: RequestHead) -> SignedProof:
    """Return the proof of a request, whose signature is not checked yet.

    Raises ProofRejected if there is not exactly one, or if it is malformed.
    """
    values = head.values(b"dpop")
    if len(values) != 1:
        raise ProofRejected(f"the request has {len(values)} headers DPoP instead of one")
    text = values[0].strip(b" \t").decode("latin-1")
    if len(text) > _MAX_BYTES:
        raise ProofRejected(f"it has more than {_MAX_BYTES} bytes")
    try:
        members = header_of(text)
        header = _FORM.check(members)
    except TokenRejected as error:
        raise ProofRejected(str(error)) from None
    key = _public_key(members.get("jwk"), header.algorithm)
    return SignedProof(text, header, key, _encode(sha256(json.encode(key)).digest()))


def _public_key(given: object, algorithm: str) -> dict[str, str]:
    """Return the members that make a public key, in the order of its thumbprint."""
    jwk = json.as_object(given)
    if jwk is None:
        raise ProofRejected("its header has no key (jwk)")
    if any(name in jwk for name in _PRIVATE):
        raise ProofRejected("its key (jwk) is a private or secret one: make another key")
    kind = KEY_TYPES[algorithm]
    if jwk.get("kty") != kind or jwk.get("crv") != _CURVES.get(algorithm):
        raise ProofRejected("its key (jwk) is not one for its algorithm (alg)")
    key = dict[str, str]()
    for name in _MEMBERS[kind]:
        value = jwk.get(name)
        if not isinstance(value, str) or not _VALUES[name].fullmatch(value):
            raise ProofRejected(f"the member {name} of its key (jwk) is malformed")
        key[name] = value
    return key


def _text_in(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_CHARS:
        raise ProofRejected(f"it has no {name}")
    return value


def _encode(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
