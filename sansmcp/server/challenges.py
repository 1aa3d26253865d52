"""The refusals of requests whose credentials are missing, invalid or insufficient.

With the setting ``protected_resource``, each names the metadata of the server and the scopes that
the client should ask for, so that the client can get a token.

Source: RFC 6750 section 3; RFC 9449, 7.1; RFC 9728 section 5.1; 2025-06-18 to 2026-07-28,
basic/authorization: Error Handling, Scope Challenge Handling.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qs

from ..authentication import Refusal
from ..codecs.headers import Headers
from ..errors import RemoteProtocolError
from ..http import RequestHead
from ..messages import RequestId
from ..protected_resource import DPOP_ALGORITHMS, ProtectedResource
from . import refusals

CREDENTIALS = (b"authorization", b"dpop")
"""The headers that carry credentials of OAuth 2.1."""

_UNAUTHORIZED = 401

_BAD_PROOF = refusals.BAD_PROOF.reason


def scheme_of(head: RequestHead) -> str:
    """Return the scheme of the access token of a request, "dpop" or "bearer"; empty for another.

    A longer word that begins with one of them counts as it.
    """
    values = head.values(b"authorization")
    scheme = values[0].strip().lower() if values else b""
    return next((each for each in ("dpop", "bearer") if scheme.startswith(each.encode())), "")


def check_credentials(resource: ProtectedResource | None, head: RequestHead) -> None:
    """Refuse a request with more than one access token, or with one in its URL.

    Raises RemoteProtocolError (status 400). Without ``resource``, the application alone knows what
    credentials are. Source: RFC 6750 sections 2 and 3.1; every revision, basic/authorization:
    Access Token Usage.
    """
    if resource is None:
        return
    query = head.target.partition(b"?")[2].decode("latin-1")
    if len(head.values(b"authorization")) > 1 or "access_token" in parse_qs(query):
        challenge = _challenge(resource, "invalid_request")
        raise refusals.BAD_CREDENTIALS(headers=_challenge_headers(challenge))


def without_credentials(resource: ProtectedResource | None, headers: Headers) -> Headers:
    """Return the headers for handlers, without the access token, which is for this server alone.

    Without ``resource``, all headers. Source: every revision, basic/authorization: Token Handling.
    """
    if resource is None:
        return headers
    return tuple(pair for pair in headers if pair[0] not in CREDENTIALS)


def not_authenticated(
    resource: ProtectedResource | None, head: RequestHead, refusal: Refusal
) -> RemoteProtocolError:
    """Return the error for a Refusal of the application. Source: RFC 9110 section 15.5.2."""
    is_challenge = refusal.status == _UNAUTHORIZED
    challenge = refusal.challenge
    if challenge is None and is_challenge:
        # Without credentials there is no error: the client did not know that it needs them.
        scheme = scheme_of(head)
        is_bound = scheme == "dpop"
        error = "invalid_token" if scheme else ""
        if refusal.reason == _BAD_PROOF:
            error = _BAD_PROOF
        scopes = () if resource is None else resource.required_scopes
        challenge = _challenge(resource, error, scopes, is_bound=is_bound)
    headers = () if challenge is None else _challenge_headers(challenge)
    if refusal.retry_after is not None:
        headers = (*headers, (b"retry-after", b"%d" % refusal.retry_after))
    return RemoteProtocolError(
        refusal.message,
        reason=refusal.reason or ("unauthorized" if is_challenge else "forbidden"),
        http_status=refusal.status,
        headers=headers,
    )


def proof_refused(
    resource: ProtectedResource, text: str, nonce: Headers = ()
) -> RemoteProtocolError:
    """Return the error for a DPoP proof that is not valid.

    ``nonce``: the header with the nonce that the client is to use; empty if that is not the cause.
    """
    template = refusals.NONCE_REQUIRED if nonce else refusals.BAD_PROOF
    challenge = _challenge(resource, template.reason, resource.required_scopes, is_bound=True)
    return template(text=text, headers=(*_challenge_headers(challenge), *nonce))


def token_not_bound(resource: ProtectedResource) -> RemoteProtocolError:
    """Return the error for an access token that had to be bound to a key."""
    challenge = _challenge(resource, "invalid_token", resource.required_scopes, is_bound=True)
    return refusals.TOKEN_NOT_BOUND(headers=_challenge_headers(challenge))


def insufficient_scope(
    resource: ProtectedResource | None,
    scopes: Iterable[str],
    request_id: RequestId | None = None,
    *,
    is_bound: bool,
) -> RemoteProtocolError:
    """Return the error for a request whose credentials lack a scope.

    ``scopes``: all that the request needs beside those that every request needs. ``is_bound``: the
    access token is bound to a key.
    """
    required = () if resource is None else resource.required_scopes
    needed = tuple(dict.fromkeys((*required, *scopes)))
    challenge = _challenge(resource, "insufficient_scope", needed, is_bound=is_bound)
    return refusals.INSUFFICIENT_SCOPE(
        request_id,
        scopes=" ".join(needed),
        data={"scopes": list(needed)},
        headers=_challenge_headers(challenge),
    )


def _challenge(
    resource: ProtectedResource | None,
    error: str,
    scopes: Iterable[str] = (),
    *,
    is_bound: bool = False,
) -> str:
    """Return a challenge. Its values need no escapes: all are checked, or ours.

    ``is_bound``: the client has used DPoP.
    """
    dpop = None if resource is None else resource.dpop
    is_dpop = dpop == "required" or (is_bound and dpop is not None)
    parameters = {
        "algs": " ".join(DPOP_ALGORITHMS) if is_dpop else "",
        "error": error,
        "error_description": _DESCRIPTIONS.get(error, ""),
        "scope": " ".join(scopes),
        "resource_metadata": "" if resource is None else resource.metadata_url,
    }
    shown = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)
    return f"{'DPoP' if is_dpop else 'Bearer'} {shown}".rstrip()


# Without commas, at which some clients split a challenge.
_DESCRIPTIONS = {
    "invalid_request": "Send one access token in one Authorization header",
    "invalid_token": "The access token is malformed or expired or not for this server",
    "invalid_dpop_proof": "The DPoP proof is malformed or used or not for this request",
    "use_dpop_nonce": "The DPoP proof needs the nonce of this server",
    "insufficient_scope": "The access token lacks a scope that this request needs",
}


def _challenge_headers(challenge: str) -> Headers:
    return (
        (b"www-authenticate", challenge.encode()),
        (b"cache-control", b"no-store"),
    )
