"""Token requests and responses, and the tokens as the storage keeps them.

Source: OAuth 2.1, 3.2 and 4.3; RFC 6749, 2.3.1; RFC 7523; RFC 7009; RFC 8693; RFC 8707; RFC
9449.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any
from urllib.parse import quote_plus, urlencode

import attrs

from ..addresses import AddressClass
from ..codecs import json
from ..scopes import parse_scope
from ..types import SecretBytes, redact
from .clients import OAuthClient, number_in
from .http import AuthRequest, AuthResponse, string_in, strings_in

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_SECRETS = (
    "code",
    "code_verifier",
    "refresh_token",
    "token",
    "assertion",
    "subject_token",
    "client_assertion",
)
"""The parameters that are secret."""

_VISIBLE = re.compile(r"[!-~]+")
_TYPES = {"bearer": "Bearer", "dpop": "DPoP"}

_MAX_SKEW = 30.0
"""Seconds before its expiry in which a token is refreshed, or a tenth of its lifetime."""

_MIN_LIFETIME = 1.0
"""Seconds; a shorter lifetime counts as not told. Such a token would be refreshed again and again
before it was sent for the first time.
"""


@attrs.frozen(kw_only=True)
class Tokens:
    """An access token, with everything it belongs to."""

    issuer: str
    client_id: str | None
    """None if no client was named: an assertion sufficed."""
    resource: str | None
    """The ``resource`` of the metadata; None for a server of 2025-03-26 that issues them itself."""
    token_endpoint: str
    auth_method: str
    """How the client authenticates at the token endpoint."""
    access_token: str = attrs.field(repr=redact)
    is_dpop: bool = False
    """True if the token is bound to ``dpop_key``, and is sent with a proof."""
    refresh_token: str | None = attrs.field(default=None, repr=redact)
    lifetime: float = math.inf
    """Seconds; infinite if the server did not say."""
    expires_at: float = math.inf
    """Seconds since 1970."""
    requested: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    nearest: AddressClass = AddressClass.PUBLIC
    """The class of the server's address, for the policy of a refresh."""
    dpop_key: dict[str, Any] | None = attrs.field(
        default=None, repr=lambda key: "None" if key is None else "<secret key>"
    )
    """The private JWK of the proofs; None without DPoP."""

    def is_expired(self, wall_time: float) -> bool:
        """Return whether the token has expired, or will within the next seconds."""
        return wall_time >= self.expires_at - min(_MAX_SKEW, self.lifetime / 10)

    def to_json(self) -> dict[str, Any]:
        """Return the tokens as a document of the storage has them."""
        return {
            "issuer": self.issuer,
            "client_id": self.client_id,
            "resource": self.resource,
            "token_endpoint": self.token_endpoint,
            "auth_method": self.auth_method,
            "access_token": self.access_token,
            "is_dpop": self.is_dpop,
            "refresh_token": self.refresh_token,
            "lifetime": None if self.lifetime == math.inf else self.lifetime,
            "expires_at": None if self.expires_at == math.inf else self.expires_at,
            "requested": list(self.requested),
            "granted": list(self.granted),
            "nearest": self.nearest.name,
            "dpop_key": self.dpop_key,
        }

    @classmethod
    def from_json(cls, value: Any) -> Tokens | None:
        """Return the tokens of a stored document; None if they are malformed."""
        members = json.as_object(value) or {}
        names = ("issuer", "token_endpoint", "auth_method", "access_token")
        issuer, token_endpoint, auth_method, access_token = (
            string_in(members, name) for name in names
        )
        if not (issuer and token_endpoint and auth_method and access_token):
            return None
        nearest = AddressClass.__members__.get(str(members.get("nearest")), AddressClass.PUBLIC)
        lifetime, expires_at = (number_in(members, name) for name in ("lifetime", "expires_at"))
        return cls(
            issuer=issuer,
            client_id=string_in(members, "client_id"),
            resource=string_in(members, "resource"),
            token_endpoint=token_endpoint,
            auth_method=auth_method,
            access_token=access_token,
            is_dpop=members.get("is_dpop") is True,
            refresh_token=string_in(members, "refresh_token"),
            lifetime=math.inf if lifetime is None else lifetime,
            expires_at=math.inf if expires_at is None else expires_at,
            requested=strings_in(members, "requested") or (),
            granted=strings_in(members, "granted") or (),
            nearest=nearest,
            dpop_key=json.as_object(members.get("dpop_key")),
        )


def token_request(
    url: str,
    client: OAuthClient | None,
    method: str,
    form: dict[str, str],
    *,
    step: str = "the token request",
    repeats_id: bool = False,
    assertion: str | None = None,
    proof: str | None = None,
) -> AuthRequest:
    """Return a token request, with exactly one way of client authentication.

    A request to revoke a token has the same form (RFC 7009, 2.1).

    Args:
        url: the token endpoint, or the revocation endpoint.
        client: the client; None to send no client at all.
        method: how it authenticates, one of :data:`~sansmcp.auth.clients.AUTH_METHODS`.
        form: the parameters of the grant, or the token to revoke.
        step: the purpose of the request, for errors.
        repeats_id: True to send the id of the client in the form, too, with
            ``client_secret_basic``. RFC 6749, 2.3, allows one method in a request, and servers
            differ in whether the id counts as one.
        assertion: the signed JWT of ``private_key_jwt``.
        proof: the DPoP proof; None without DPoP.
    """
    headers = [
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"accept", b"application/json"),
    ]
    if proof is not None:
        headers.append((b"dpop", proof.encode()))
    secrets = [] if client is None or client.client_secret is None else [client.client_secret]
    if client is not None and method == "client_secret_basic":
        # Both parts are form-encoded first, so that a colon in the id does not end it.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret or '')}"
        encoded = base64.b64encode(pair.encode())
        headers.append((b"authorization", b"Basic " + encoded))
        secrets.append(encoded.decode())
        if repeats_id:
            form = {**form, "client_id": client.client_id}
    elif client is not None:
        form = {**form, "client_id": client.client_id}
        if method == "client_secret_post":
            form["client_secret"] = client.client_secret or ""
        elif assertion is not None:
            form.update(client_assertion_type=_ASSERTION, client_assertion=assertion)
    secrets += [value for name, value in form.items() if name in _SECRETS]
    return AuthRequest(
        step=step,
        url=url,
        method=b"POST",
        headers=tuple(headers),
        body=SecretBytes(urlencode(form).encode()),
        secrets=tuple(secret for secret in secrets if secret),
    )


@attrs.frozen(kw_only=True)
class TokenResponse:
    """A successful response to a token request."""

    access_token: str = attrs.field(repr=redact)
    is_dpop: bool
    refresh_token: str | None = attrs.field(repr=redact)
    lifetime: float
    """Seconds; infinite if the server did not say."""
    scopes: tuple[str, ...] | None
    """None if they are those that were requested."""


def read_tokens(response: AuthResponse) -> TokenResponse:
    """Return the tokens in a response.

    Raises:
        AuthorizationFailed: the server refused, or the response has no usable token.
    """
    if response.is_refusal("access_token"):
        raise response.refused()
    document = response.document or {}
    access_token = _token_in(response, document)
    kind = str(document.get("token_type") or "Bearer")  # some servers leave it out
    if kind.lower() not in _TYPES:
        what = f"sent a token of the unknown type {response.shown(kind)!r}"
        raise response.failed(what, "unknown_token_type")
    lifetime = number_in(document, "expires_in")
    if lifetime is not None and lifetime < _MIN_LIFETIME:
        lifetime = None
    scope = string_in(document, "scope")
    return TokenResponse(
        access_token=access_token,
        is_dpop=_TYPES[kind.lower()] == "DPoP",
        refresh_token=string_in(document, "refresh_token"),
        lifetime=math.inf if lifetime is None else lifetime,
        scopes=None if scope is None else parse_scope(scope),
    )


def read_id_jag(response: AuthResponse) -> str:
    """Return the identity assertion in the response of the identity provider.

    Raises:
        AuthorizationFailed: the provider refused, or the response has something else.
    """
    if response.is_refusal("access_token"):
        raise response.refused()
    document = response.document or {}
    kind = string_in(document, "issued_token_type") or ""
    if kind != ID_JAG:
        what = f"issued a token of the type {response.shown(kind)!r}, and not {ID_JAG}"
        raise response.failed(what, "unknown_token_type")
    return _token_in(response, document)


def _token_in(response: AuthResponse, document: dict[str, Any]) -> str:
    token = string_in(document, "access_token")
    if token is None or not _VISIBLE.fullmatch(token):
        raise response.failed("sent no access_token", "no_token")
    return token
