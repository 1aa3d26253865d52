"""DPoP proofs that PyJWT has signed, which shares no code with our clients and servers."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from sansmcp import Access, ConnectionInfo, Refusal, RequestHead

from .tokens import AUDIENCE

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
KEYS: dict[str, Any] = {
    "ES256": KEY,
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "RS256": rsa.generate_private_key(65537, 2048),
    "PS256": rsa.generate_private_key(65537, 4096),
}
_THUMBPRINT = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n")}


def _kind_of(key: Any) -> Any:
    return ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm


def jwk_of(key: Any, *, is_private: bool = False) -> dict[str, Any]:
    """The public key as a JWK, or the private one."""
    text = _kind_of(key).to_jwk(key if is_private else key.public_key())
    found: dict[str, Any] = json.loads(text)
    found.pop("key_ops", None)
    return found


def thumbprint_of(key: Any) -> str:
    """RFC 7638."""
    jwk = jwk_of(key)
    members = {name: jwk[name] for name in _THUMBPRINT[jwk["kty"]]}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return _encoded(hashlib.sha256(text.encode()).digest())


def proof(
    token: str,
    key: Any = KEY,
    algorithm: str = "ES256",
    *,
    header: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """A proof for a POST to our server; None leaves a claim or a member of the header out."""
    claims = {
        "jti": str(uuid.uuid4()),
        "htm": "POST",
        "htu": AUDIENCE,
        "iat": int(time.time()),
        "ath": _encoded(hashlib.sha256(token.encode()).digest()),
        **changes,
    }
    members = {"typ": "dpop+jwt", "jwk": jwk_of(key), **(header or {})}
    return jwt.encode(
        {name: value for name, value in claims.items() if value is not None},
        key,
        algorithm,
        headers={
            name: value for name, value in members.items() if value is not None or name == "typ"
        },
    )


def request(
    token: str, *proofs: str | bytes, scheme: str = "DPoP", method: bytes = b"POST"
) -> RequestHead:
    """A request with a token and proofs."""
    headers = [(b"authorization", f"{scheme} {token}".encode())]
    headers += [(b"dpop", each if isinstance(each, bytes) else each.encode()) for each in proofs]
    return RequestHead(method=method, target=b"/mcp", headers=tuple(headers))


def verify(verifier: Any, head: RequestHead) -> Access | Refusal:
    """What a verifier says of a request."""
    found: Access | Refusal = verifier(head, ConnectionInfo())
    return found


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
