"""Keys and tokens of our own, valid and hostile, and an authorization server without sockets."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import attrs
from joserfc import jwk, jws

from sansmcp import Access, ConnectionInfo, Refusal, RequestHead
from sansmcp.tokens.claims import Undecided
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest
from sansmcp_auth import JwtVerifier

ISSUER, AUDIENCE = "https://login.example.com/tenant", "https://mcp.example.com/mcp"
JWKS_URL = "https://login.example.com/keys"
METADATA_URL = "https://login.example.com/.well-known/oauth-authorization-server/tenant"

RSA = jwk.RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = jwk.ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
STRANGER = jwk.RSAKey.generate_key(2048, {"kid": "rsa"})
"""A key of somebody else under the id of ours."""


def encoded(document: Any) -> str:
    """A part of a token."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a valid token with these changes; None leaves one out."""
    now = time.time()
    valid = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "exp": now + 60,
        "iat": now,
        "scope": "use read",
    }
    return {name: value for name, value in {**valid, **changes}.items() if value is not None}


def header(**changes: Any) -> dict[str, Any]:
    """The header of a valid token with these changes; None leaves a member out."""
    valid = {"alg": "RS256", "typ": "at+jwt", "kid": "rsa"}
    return {name: value for name, value in {**valid, **changes}.items() if value is not None}


def token(key: Any = RSA, head: dict[str, Any] | None = None, **changes: Any) -> str:
    """A signed token."""
    head = header() if head is None else head
    registry = jws.JWSRegistry(algorithms=[head["alg"]], strict_check_header=False)
    registry.max_header_length = 100_000
    return jws.serialize_compact(head, json.dumps(claims(**changes)), key, registry=registry)


@attrs.define
class FakeIssuer:
    """Answers the requests of a verifier, and counts them; ``documents`` by URL."""

    documents: dict[str, Any] = attrs.Factory(
        lambda: {
            METADATA_URL: {"issuer": ISSUER, "jwks_uri": JWKS_URL},
            JWKS_URL: {"keys": [RSA.as_dict(private=False), EC.as_dict(private=False)]},
        }
    )
    fetched: list[str] = attrs.Factory(list[str])
    is_down: bool = False

    def fetch(self, request: FetchRequest) -> FetchedResponse:
        url = str(request.url)
        self.fetched.append(url)
        if self.is_down:
            raise Undecided("down")
        body = json.dumps(self.documents[url]).encode() if url in self.documents else b""
        status = b"200 OK" if url in self.documents else b"404 Not Found"
        response = FetchedResponse()
        length = b"content-length: %d" % len(body)
        response.receive_data(b"HTTP/1.1 " + status + b"\r\n" + length + b"\r\n\r\n" + body)
        return response

    def verifier(self, **settings: Any) -> JwtVerifier:
        return JwtVerifier(issuer=ISSUER, audience=AUDIENCE, fetch=self.fetch, **settings)


def request(token: str) -> RequestHead:
    """A request with a token."""
    value = b"Bearer " + token.encode("utf-8", "surrogateescape")
    return RequestHead(method=b"POST", target=b"/mcp", headers=((b"authorization", value),))


def verify(verifier: Any, token: str) -> Access | Refusal:
    """What a verifier says of a token."""
    found: Access | Refusal = verifier(request(token), ConnectionInfo())
    return found
