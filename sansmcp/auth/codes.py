"""The authorization request, which a person opens in a browser, and the redirect that answers it.

What the flow needs to check the redirect is fixed before the person leaves: state, verifier, issuer
and redirect URI. The code is sent to no other server than the one that this record names.

Source: OAuth 2.1, 4.1; RFC 7636; RFC 8707; RFC 9207; 2026-07-28, basic/authorization:
Authorization Response Validation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from ..errors import AuthorizationFailed
from ..scopes import OFFLINE_ACCESS, parse_scope
from ..types import hide_secrets, redact
from .clients import OAuthClient
from .http import cut, reason_of, shown_url
from .metadata import AuthorizationServer
from .urls import is_safe, parameter_among

RANDOM_BYTES = 32
"""The random bytes of a verifier, and of a state."""

_ONCE = ("code", "state", "iss", "error")
_MAX_QUERY = 16 * 1024


def random_text(random: bytes) -> str:
    """Return random bytes as text of the characters ``A-Za-z0-9-_``."""
    return base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a PKCE verifier."""
    return random_text(hashlib.sha256(verifier.encode()).digest())


@attrs.frozen(kw_only=True)
class PendingCode:
    """An authorization request for which a person is asked."""

    server: AuthorizationServer
    redirect_uri: str
    state: str = attrs.field(repr=redact)
    verifier: str = attrs.field(repr=redact)
    url: str = attrs.field(repr=lambda url: repr(hide_secrets(url)))
    """What the person opens."""


def authorization_request(
    server: AuthorizationServer,
    client: OAuthClient,
    *,
    redirect_uri: str,
    resource: str | None,
    scopes: tuple[str, ...],
    extra: Mapping[str, str],
    random: bytes,
) -> PendingCode:
    """Return the request for a code.

    Args:
        server: the authorization server; it has an ``authorization_endpoint``.
        client: the client that the server knows.
        redirect_uri: where the server is to send the person back to.
        resource: the ``resource`` of the metadata; None for a server of 2025-03-26 that is its own.
        scopes: those to request; empty for none.
        extra: further parameters; they do not replace those of the protocol.
        random: twice :data:`RANDOM_BYTES` random bytes.

    Raises:
        AuthorizationFailed: the endpoint cannot be opened, or has one of ``extra`` in its query.
    """
    endpoint = server.authorization_endpoint or ""
    verifier = random_text(random[:RANDOM_BYTES])
    state = random_text(random[RANDOM_BYTES:])
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "state": state,
    }
    if resource is not None:
        parameters["resource"] = resource
    if scopes:
        parameters["scope"] = " ".join(scopes)
    separator = "&" if "?" in endpoint else "?"
    url = endpoint + separator + urlencode({**extra, **parameters})
    if not is_safe(url):
        raise AuthorizationFailed(
            f"Authorization failed: the authorization URL is not https: {shown_url(endpoint)!r}",
            reason="unsafe_url",
            url=endpoint,
        )
    repeated = parameter_among(extra, endpoint)
    if repeated is not None:
        raise AuthorizationFailed(
            f"Authorization failed: the authorization server has {cut(repeated)!r} in the query of "
            f"its authorization_endpoint, and extra of the settings has it, too: "
            f"{shown_url(endpoint)!r}",
            reason="unsafe_url",
            url=endpoint,
        )
    return PendingCode(
        server=server,
        redirect_uri=redirect_uri,
        state=state,
        verifier=verifier,
        url=url,
    )


def scopes_of(url: str) -> tuple[str, ...]:
    """Return the scopes that an authorization URL asks for, without what the client adds itself."""
    scopes = parse_scope(dict(parse_qsl(urlsplit(url).query)).get("scope"))
    return tuple(scope for scope in scopes if scope != OFFLINE_ACCESS)


def code_in(pending: PendingCode, redirect: str) -> str | None:
    """Return the code of a redirect; None if the redirect does not belong to the request.

    A redirect without the ``state`` of the request comes from somebody else. It is ignored, and the
    person can still complete the login.

    Args:
        pending: the request.
        redirect: the URL to which the person was sent back, or only its query.

    Raises:
        AuthorizationFailed: the login failed, or the redirect is from another issuer.
    """
    query = redirect.partition("?")[2] if "?" in redirect else redirect
    pairs = parse_qsl(query.partition("#")[0][:_MAX_QUERY], keep_blank_values=True)
    given = dict(pairs)
    state = given.get("state", "")
    if not hmac.compare_digest(state.encode("utf-8", "replace"), pending.state.encode()):
        return None
    for name in _ONCE:
        if sum(each == name for each, _ in pairs) > 1:
            raise _failed(f"the redirect has {name!r} more than once", "invalid_redirect")
    issuer = given.get("iss")
    expected = pending.server.issuer
    if issuer is None and pending.server.sends_issuer:
        raise _failed(
            f"the redirect names no issuer (iss), although {cut(expected)} announces it",
            "issuer_missing",
        )
    if issuer is not None and issuer != expected:
        # What the redirect says of an error may come from an attacker, so it is not shown.
        names = f"{cut(issuer)!r}, and not from {cut(expected)!r}"
        text = f"the redirect is from the issuer {names}"
        raise _failed(text, "issuer_mismatch")
    if given.get("error"):
        said = [given["error"], given.get("error_description", "")]
        text = ": ".join(cut(each) for each in said if each)
        raise _failed(f"the authorization server refused: {text}", reason_of(given["error"]))
    if not given.get("code"):
        raise _failed("the redirect has neither a code nor an error", "invalid_redirect")
    return given["code"]


def _failed(text: str, reason: str) -> AuthorizationFailed:
    return AuthorizationFailed(f"Authorization failed at the login: {text}", reason=reason)
