"""The metadata of the protected resource and of the authorization server, checked.

A document is used only if it is about what was asked for: ``resource`` must cover the endpoint, and
``issuer`` must be the string that led to the document. Otherwise a server could name the metadata
of another one, and get what is meant for it (mix-up). A response that is no such document, whatever
its status, leads to the next place where the document may be.

Source: RFC 9728, 2 and 3.3; RFC 8414, 2 and 3.3; RFC 9207, 3; 2026-07-28,
basic/authorization/authorization-server-discovery.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import attrs

from ..codecs.headers import Headers
from .http import AuthRequest, AuthResponse, cut, shown_url, string_in, strings_in
from .scopes import union
from .urls import MAX_CHARS, covers, default_server_urls, is_usable, origin_of, parameter_among

_MAX_SERVERS = 20
"""The entries of ``authorization_servers`` that are read."""

_OF_CLIENT = "client_id client_secret client_assertion client_assertion_type"
_RESERVED = {
    "authorization_endpoint": (
        "response_type response_mode client_id redirect_uri scope state nonce code_challenge "
        "code_challenge_method dpop_jkt resource audience authorization_details claims request "
        "request_uri registration"
    ),
    "token_endpoint": (
        f"{_OF_CLIENT} grant_type code code_verifier redirect_uri refresh_token assertion "
        "requested_token_type subject_token subject_token_type actor_token actor_token_type scope "
        "resource audience authorization_details"
    ),
    "revocation_endpoint": f"{_OF_CLIENT} token token_type_hint",
}
"""The parameters that only the client may send to an endpoint: they say who wants what.

In the query of the endpoint they would get into the client's own request: a further ``resource``, a
``request`` that replaces all others, or a ``scope`` that the client never asked for. A registration
has no parameters.
"""


def metadata_request(step: str, url: str, *, version: str | None = None) -> AuthRequest:
    """Return the request for a document.

    ``version``: the protocol version for ``MCP-Protocol-Version``; None for no such header.
    """
    headers: Headers = ((b"accept", b"application/json"),)
    if version is not None:
        headers = (*headers, (b"mcp-protocol-version", version.encode()))
    return AuthRequest(step=step, url=url, headers=headers)


def document_of(response: AuthResponse, identifier: str) -> tuple[dict[str, Any], str] | None:
    """Return the document in a response and what it is about; None if it may be at the next URL.

    A redirect, which is not followed, counts as none, and so does an error of the server. The media
    type is not checked, because servers send text/plain.

    Args:
        response: the response.
        identifier: the member that says what the document is about.
    """
    document = response.document if response.is_success else None
    about = None if document is None else string_in(document, identifier)
    return None if document is None or about is None else (document, about)


@attrs.frozen(kw_only=True)
class ProtectedResource:
    """The metadata of an MCP server. ``resource`` is the string to send as ``resource``.

    ``resource`` is None for a server of 2025-03-26, which has no metadata.
    """

    resource: str | None
    servers: tuple[str, ...] = ()
    """The issuers of its authorization servers."""
    scopes: tuple[str, ...] = ()
    """``scopes_supported``."""
    requires_dpop: bool = False


def read_resource(response: AuthResponse, endpoint: str) -> ProtectedResource | None:
    """Return the metadata in a response; None if it may be at the next URL.

    Raises:
        AuthorizationFailed: it is about another resource, or names no authorization server.
    """
    found = document_of(response, "resource")
    if found is None:
        return None
    document, resource = found
    if len(resource) > MAX_CHARS or not covers(resource, endpoint):
        what = f"is about {cut(resource)!r}, and not about this server"
        raise response.failed(what, "resource_mismatch")
    servers = strings_in(document, "authorization_servers") or ()
    safe = tuple(issuer for issuer in servers[:_MAX_SERVERS] if is_issuer(issuer))
    if not safe:
        raise response.failed("names no authorization server that can be used", "no_server")
    return ProtectedResource(
        resource=resource,
        servers=safe,
        scopes=union(strings_in(document, "scopes_supported") or ()),
        requires_dpop=document.get("dpop_bound_access_tokens_required") is True,
    )


@attrs.frozen(kw_only=True)
class AuthorizationServer:
    """The metadata of an authorization server. Members that are absent have their defaults."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    signing_algorithms: tuple[str, ...] = ()
    """``token_endpoint_auth_signing_alg_values_supported``."""
    dpop_algorithms: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    takes_metadata_urls: bool = False
    """True if a client can be the URL of its metadata document."""
    sends_issuer: bool = False
    """True if each authorization response has ``iss``."""

    @property
    def names_own_login(self) -> bool:
        """True if the code of a login cannot be that of another server, sent here by mix-up.

        Either the response says who has issued the code, or the person logs in at the origin that
        published these metadata, or the code goes back to the origin where the person logged in.
        Source: RFC 9207; RFC 9700, 4.4.
        """
        origins = (origin_of(self.issuer), origin_of(self.token_endpoint))
        return self.sends_issuer or origin_of(self.authorization_endpoint or "") in origins


def read_server(
    response: AuthResponse, issuer: str, *, for_code: bool, may_omit_pkce: bool = False
) -> AuthorizationServer | None:
    """Return the metadata in a response; None if it may be at the next URL.

    Args:
        response: the response.
        issuer: the issuer from which its URL was built.
        for_code: True if the server must support authorization codes with PKCE.
        may_omit_pkce: True if the metadata may not say how the server supports PKCE.

    Raises:
        AuthorizationFailed: it is of another issuer, or lacks what the flow needs.
    """
    found = document_of(response, "issuer")
    if found is None:
        return None
    document, named = found
    if not is_same_issuer(named, issuer):
        what = f"is of the issuer {cut(named)!r}, and not of {cut(issuer)!r}"
        raise response.failed(what, "issuer_mismatch")
    token_endpoint = _endpoint(response, document, "token_endpoint")
    if token_endpoint is None:
        raise response.failed("names no token_endpoint", "no_token_endpoint")
    if for_code:
        _check_code_support(response, document, may_omit_pkce=may_omit_pkce)
    return AuthorizationServer(
        issuer=named,
        token_endpoint=token_endpoint,
        authorization_endpoint=_endpoint(response, document, "authorization_endpoint"),
        registration_endpoint=_endpoint(response, document, "registration_endpoint"),
        revocation_endpoint=_endpoint(response, document, "revocation_endpoint"),
        auth_methods=strings_in(document, "token_endpoint_auth_methods_supported")
        or ("client_secret_basic",),
        signing_algorithms=strings_in(document, "token_endpoint_auth_signing_alg_values_supported")
        or (),
        dpop_algorithms=strings_in(document, "dpop_signing_alg_values_supported") or (),
        scopes=strings_in(document, "scopes_supported") or (),
        takes_metadata_urls=document.get("client_id_metadata_document_supported") is True,
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def issuer_named_by_old_server(response: AuthResponse) -> str | None:
    """Return the issuer that a server of 2025-03-26 names at its origin; None for no document.

    Raises:
        AuthorizationFailed: it cannot be an issuer.
    """
    found = document_of(response, "issuer")
    if found is None:
        return None
    _, named = found
    if not is_issuer(named):
        raise response.failed(f"is of {cut(named)!r}, which is no issuer", "issuer_mismatch")
    return named


def read_old_server(
    response: AuthResponse, issuer: str, *, for_code: bool
) -> AuthorizationServer | None:
    """Return the metadata of a server of 2025-03-26 that is its own issuer; None if there is none.

    It may not say whether it supports PKCE, which that revision demands of all servers. Only the
    MCP server vouches for its endpoints. So one origin must have them all: otherwise the server
    could have a person log in at another one, and get the code.

    Raises:
        AuthorizationFailed: it is of another issuer, has endpoints of several origins, or lacks
            what the flow needs.
    """
    server = read_server(response, issuer, for_code=for_code, may_omit_pkce=True)
    if server is None:
        return None
    named = (server.authorization_endpoint, server.token_endpoint, server.registration_endpoint)
    endpoints = [url for url in named if url is not None]
    if len({origin_of(url) for url in endpoints}) > 1:
        what = f"has endpoints of several origins: {', '.join(map(cut, endpoints))}"
        raise response.failed(what, "issuer_mismatch")
    return server


def default_server(endpoint: str) -> AuthorizationServer:
    """Return what a server of 2025-03-26 without metadata supports.

    Whether it supports PKCE is not known; that revision demands it of all servers.
    """
    issuer, authorization, token, registration = default_server_urls(endpoint)
    return AuthorizationServer(
        issuer=issuer,
        token_endpoint=token,
        authorization_endpoint=authorization,
        registration_endpoint=registration,
        auth_methods=("client_secret_basic", "client_secret_post", "none"),
    )


def _check_code_support(
    response: AuthResponse, document: dict[str, Any], *, may_omit_pkce: bool
) -> None:
    if string_in(document, "authorization_endpoint") is None:
        raise response.failed("names no authorization_endpoint", "no_authorization_endpoint")
    if "code" not in (strings_in(document, "response_types_supported") or ()):
        what = "does not list 'code' in response_types_supported"
        raise response.failed(what, "code_unsupported")
    # Without PKCE an intercepted code is as good as a token; 'plain' protects from nothing.
    methods = strings_in(document, "code_challenge_methods_supported")
    if "S256" not in (methods or ()) and not (may_omit_pkce and methods is None):
        what = "does not list 'S256' in code_challenge_methods_supported"
        raise response.failed(what, "pkce_unsupported")


def _endpoint(response: AuthResponse, document: dict[str, Any], name: str) -> str | None:
    """Return the URL of an endpoint; its origin may be another than the issuer's.

    It may have a query, which requests keep (RFC 6749, 3.1), unless that speaks for the client.
    """
    url = string_in(document, name)
    if url is None:
        return None
    if not is_usable(url):
        what = f"has a {name} that is not https, or too long: {cut(url)!r}"
        raise response.failed(what, "unsafe_url")
    reserved = _RESERVED.get(name)
    parameter = None if reserved is None else parameter_among(reserved.split(), url)
    if parameter is not None:
        what = (
            f"has the parameter {cut(parameter)!r} in the query of its {name}, which only the "
            f"client may send: {shown_url(url)!r}"
        )
        raise response.failed(what, "unsafe_url")
    return url


def is_issuer(issuer: str) -> bool:
    """Return whether a string can be an issuer."""
    return is_usable(issuer) and not urlsplit(issuer).query


def is_same_issuer(named: str, issuer: str) -> bool:
    """Return whether metadata is that of an issuer.

    They must be the same string, except for one slash at the end: the official Python SDK 1.30 adds
    it to the issuers in its resource metadata, and other servers leave it out there. Both forms
    lead to the same document. From here on only the issuer in the document is used.
    """
    shorter, longer = sorted((named, issuer), key=len)
    return named == issuer or (longer == f"{shorter}/" and not shorter.endswith("/"))
