"""The client that the authorization server knows: given, a metadata document, or registered.

What an authorization server knows about a client is bound to its issuer. A client of one issuer is
never shown to another, except for the URL of a metadata document, which is the same everywhere.

Source: 2026-07-28, basic/authorization/client-registration; RFC 7591; RFC 6749, 2.3.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..codecs import json
from ..errors import LocalProtocolError
from ..types import Value, redact
from .http import AuthRequest, AuthResponse, string_in, strings_in
from .urls import MAX_CHARS, is_loopback

AUTH_METHODS = ("private_key_jwt", "client_secret_basic", "client_secret_post", "none")
"""The ways in which a client can authenticate at the token endpoint, the best first."""

REGISTRATION_REFUSED = "registration_refused"
"""The reason of the error if a server does not register this client."""

_MAX_NUMBER = 1e15
"""Seconds that no clock reaches; a larger number counts as none."""

_SECRET_METHODS = ("client_secret_basic", "client_secret_post")


def _known_method(client: OAuthClient, attribute: object, method: str | None) -> None:
    if method is not None and method not in AUTH_METHODS:
        known = ", ".join(AUTH_METHODS)
        raise LocalProtocolError(f"auth_method must be one of {known}, got {method!r}")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OAuthClient(Value):
    """A client as an authorization server knows it.

    Attributes:
        client_id: its id.
        client_secret: its secret; None if it has none.
        issuer: the issuer of the authorization server that knows it. None: the first one that the
            MCP server names, which thus decides who gets the secret.
        auth_method: how it authenticates at the token endpoint; None for the first of
            :data:`AUTH_METHODS` that both sides support.
        private_key: the key for ``private_key_jwt``, in a form that the driver's signer reads: a
            JWK (a dict) or PEM (a str). None if it has none.
        key_id: the ``kid`` of that key; None if the server needs none.
        algorithm: the algorithm of that key, such as ``"ES256"``; None for the first of
            :data:`~sansmcp.auth.proofs.ALGORITHMS` that the server supports.
        redirect_uris: those that were registered; empty if any of the settings may be used.
        secret_expires_at: seconds since 1970; 0 for never.
    """

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=redact)
    issuer: str | None = None
    auth_method: str | None = attrs.field(default=None, validator=_known_method)
    private_key: str | dict[str, Any] | None = attrs.field(
        default=None, repr=lambda key: "None" if key is None else "<secret key>"
    )
    key_id: str | None = None
    algorithm: str | None = None
    redirect_uris: tuple[str, ...] = ()
    secret_expires_at: float = 0

    def __attrs_post_init__(self) -> None:
        if self.auth_method == "private_key_jwt" and self.private_key is None:
            raise LocalProtocolError("auth_method 'private_key_jwt' needs private_key")
        if self.auth_method in _SECRET_METHODS and self.client_secret is None:
            raise LocalProtocolError(f"auth_method {self.auth_method!r} needs client_secret")

    def is_expired(self, wall_time: float) -> bool:
        """Return whether the secret has expired, so that the client must be registered again."""
        return 0 < self.secret_expires_at <= wall_time

    def method_for(self, supported: tuple[str, ...]) -> str | None:
        """Return how to authenticate at a token endpoint; None if no method is common.

        With ``none`` the id alone is sent, in the form.

        A secret alone does not force its use: servers hand out secrets to clients that they then
        expect to send none.
        """
        if self.auth_method is not None:
            return self.auth_method
        if self.client_secret is None and self.private_key is None:
            return "none"  # a public client can do nothing else, and many servers do not list it
        possible = {"none"}
        if self.client_secret is not None:
            possible.update(_SECRET_METHODS)
        if self.private_key is not None:
            possible.add("private_key_jwt")
        common = (name for name in AUTH_METHODS if name in possible and name in supported)
        return next(common, None)

    def to_json(self) -> dict[str, Any]:
        """Return a registered client as a document of the storage has it."""
        return {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "auth_method": self.auth_method,
            "redirect_uris": list(self.redirect_uris),
            "secret_expires_at": self.secret_expires_at,
        }

    @classmethod
    def from_json(cls, issuer: str, value: Any) -> OAuthClient | None:
        """Return a registered client of a stored document; None if it is malformed."""
        members = json.as_object(value) or {}
        client_id = string_in(members, "client_id")
        if client_id is None:
            return None
        return cls(
            issuer=issuer,
            client_id=client_id,
            client_secret=string_in(members, "client_secret"),
            auth_method=_method_in(members, "auth_method"),
            redirect_uris=strings_in(members, "redirect_uris") or (),
            secret_expires_at=number_in(members, "secret_expires_at") or 0,
        )


def registration_request(
    url: str,
    *,
    name: str,
    redirect_uris: tuple[str, ...],
    supported: tuple[str, ...],
    scopes: tuple[str, ...],
) -> AuthRequest:
    """Return the request that registers a client.

    Args:
        url: the registration endpoint.
        name: the name that a person sees who logs in.
        redirect_uris: where the authorization server may send the person back to.
        supported: the methods that the token endpoint supports.
        scopes: those that the client may request, now or later; empty to leave that open.
    """
    methods = ("none", *_SECRET_METHODS)  # without a secret, none can be stolen
    wanted = next((method for method in methods if method in supported), "none")
    is_native = all(_is_native(uri) for uri in redirect_uris)
    document: dict[str, Any] = {
        "client_name": name,
        "redirect_uris": list(redirect_uris),
        "application_type": "native" if is_native else "web",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
    }
    if scopes:
        document["scope"] = " ".join(scopes)
    return AuthRequest(
        step="client registration",
        url=url,
        method=b"POST",
        headers=((b"content-type", b"application/json"), (b"accept", b"application/json")),
        body=json.encode(document),
    )


def read_registration(
    response: AuthResponse, issuer: str, redirect_uris: tuple[str, ...]
) -> OAuthClient:
    """Return the client that was registered.

    Raises:
        AuthorizationFailed: the server refused, or its response has no client id.
    """
    if response.is_refusal("client_id"):
        refused = response.refused()
        refused.reason = REGISTRATION_REFUSED  # the error of the server says nothing of the login
        raise refused
    document = response.document or {}
    client_id = string_in(document, "client_id")
    if client_id is None:
        raise response.failed("registered a client without a client_id", "invalid_registration")
    if len(client_id) > MAX_CHARS:
        what = f"registered a client whose client_id has {len(client_id)} characters"
        raise response.failed(what, "invalid_registration")
    return OAuthClient(
        issuer=issuer,
        client_id=client_id,
        client_secret=string_in(document, "client_secret"),
        auth_method=_method_in(document, "token_endpoint_auth_method"),
        redirect_uris=redirect_uris,
        secret_expires_at=number_in(document, "client_secret_expires_at") or 0,
    )


def number_in(document: dict[str, Any], name: str) -> float | None:
    """Return a member that is a number, not negative; None if there is none.

    Digits in a string count as a number, since servers send them so.
    """
    value = document.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MAX_NUMBER else None


def _is_native(uri: str) -> bool:
    """Return whether a redirect URI leads to a program: this machine, or a scheme of its own."""
    return not uri.startswith(("http://", "https://")) or is_loopback(uri)


def _method_in(document: dict[str, Any], name: str) -> str | None:
    """Return the method of a registered client; None if it cannot authenticate so."""
    has_secret = string_in(document, "client_secret") is not None
    possible = ("none", *_SECRET_METHODS) if has_secret else ("none",)
    method = string_in(document, name)
    return method if method in possible else None
