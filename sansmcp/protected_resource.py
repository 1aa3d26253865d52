"""What a server publishes about its protection by OAuth 2.1: protected resource metadata.

Source: RFC 9728; 2025-06-18 to 2026-07-28, basic/authorization: Authorization Server Location.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

import attrs

from .codecs import json
from .errors import LocalProtocolError, check_positive_seconds, check_type
from .http import Url
from .scopes import checked_scopes

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")

DPOP_ALGORITHMS = ("ES256", "ES384", "ES512", "PS256", "RS256")
"""The signatures of DPoP proofs that are accepted. Source: RFC 9449, 4.3: asymmetric ones only."""


def check_identifier(name: str, text: str) -> Url:
    """Return the URL of a resource, issuer or endpoint.

    Raises LocalProtocolError unless it is an https URL, or an http URL of this machine, without
    fragment. Source: every revision, basic/authorization: Communication Security.
    """
    check_type(str, **{name: text})
    url = Url.parse(text)
    if url.scheme != "https" and _LOOPBACK.fullmatch(url.host) is None:
        raise LocalProtocolError(f"{name} must be an https URL, or one of this machine: {text!r}")
    if "#" in text:
        raise LocalProtocolError(f"{name} must not have a fragment: {text!r}")
    return url


def _identifier(name: str, text: str) -> str:
    check_identifier(name, text)
    if "?" in text:
        raise LocalProtocolError(f"{name} must not have a query: {text!r}")
    return text


def _resource(text: str) -> str:
    return _identifier("resource", text)


def _servers(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):  # iterating over it would give a server for each letter
        raise LocalProtocolError(
            f"authorization_servers must be a tuple of str, got the str {given!r}"
        )
    servers = tuple(_identifier("authorization_servers", each) for each in given)
    if not servers:
        raise LocalProtocolError("authorization_servers must name at least one server")
    return servers


def _implied(given: Mapping[str, Collection[str]]) -> Mapping[str, tuple[str, ...]]:
    check_type(Mapping, implied_scopes=given)
    checked_scopes(tuple(given))
    return MappingProxyType({scope: checked_scopes(implied) for scope, implied in given.items()})


def _check_dpop(resource: object, attribute: object, dpop: object) -> None:
    if dpop not in (None, "accepted", "required"):
        raise LocalProtocolError(f'dpop must be "accepted", "required" or None, got {dpop!r}')


def _check_age(resource: object, attribute: object, seconds: float) -> None:
    check_positive_seconds(seconds)
    if seconds == math.inf:  # the names of all proofs would have to be kept
        raise LocalProtocolError("dpop_max_age must be finite")


@attrs.frozen(kw_only=True)
class ProtectedResource:
    """A server whose clients need access tokens: its URL, authorization servers, and scopes.

    With the setting ``protected_resource``, a server publishes it as protected resource metadata,
    and refuses requests in the form that makes clients get a token. The tokens are verified by the
    setting ``authenticate``.

    Attributes:
        resource: the URL of the MCP endpoint as clients use it, e.g.
            ``"https://mcp.example.com/mcp"``. It is the audience of the tokens. Https, or http on
            this machine.
        authorization_servers: the issuers of the tokens, at least one; each exactly as the server's
            metadata has it.
        required_scopes: the scopes that every request needs. A client without a token is told to
            ask for these.
        scopes_supported: the scopes that are published; None for ``required_scopes``. Clients that
            are told of no others ask for all of them, so name those of everyday use only.
        implied_scopes: by scope, the ones that it includes, e.g. ``{"mcp:admin": {"mcp:read"}}``. A
            token with ``mcp:admin`` then counts as one with both.
        dpop: ``"accepted"``: a token that is bound to a key (RFC 9449) is accepted with a proof of
            possession only, and one that is not bound as a Bearer token. ``"required"``: tokens
            that are not bound are refused. None: the function ``authenticate`` verifies no proofs,
            so clients are told of Bearer tokens only.
        dpop_max_age: seconds by which the time of a proof (``iat``) and the clock of this machine
            may differ, either way. The server keeps the names of proofs for twice as long, and a
            minute. If instances share a store, it is at most half of ``Limits.max_stored_age``
            less that minute.
        dpop_nonces: demand a nonce of this server in each proof, so that clients cannot make
            proofs for later. It needs ``state_signer``, which adapters set, and costs each client
            one more request at the beginning.

    Raises:
        LocalProtocolError: a URL is not allowed, there is no authorization server, a scope is
            malformed or ``offline_access``, or a setting of DPoP is none of these.
    """

    # Converters, because the document is made before validators run.
    resource: str = attrs.field(converter=_resource)
    authorization_servers: tuple[str, ...] = attrs.field(converter=_servers)
    required_scopes: tuple[str, ...] = attrs.field(default=(), converter=checked_scopes)
    scopes_supported: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(checked_scopes)
    )
    implied_scopes: Mapping[str, tuple[str, ...]] = attrs.field(
        factory=dict[str, tuple[str, ...]], converter=_implied, hash=False
    )
    dpop: Literal["accepted", "required"] | None = attrs.field(
        default="accepted", validator=_check_dpop
    )
    dpop_max_age: float = attrs.field(default=300.0, validator=_check_age)
    dpop_nonces: bool = False

    metadata_url: str = attrs.field(
        default=attrs.Factory(lambda self: _metadata_url(self), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )
    """The URL of the metadata document."""
    metadata_paths: tuple[bytes, bytes] = attrs.field(
        default=attrs.Factory(lambda self: _metadata_paths(self), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )
    """The paths of the metadata document, without a slash at the end: that of this resource, and
    that of its origin, which clients try second.
    """
    metadata: bytes = attrs.field(
        default=attrs.Factory(lambda self: _metadata(self), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )
    """The metadata document."""

    def expand(self, scopes: Iterable[str]) -> frozenset[str]:
        """Return the scopes of a token, with those that they imply."""
        found, ahead = set[str](), list(scopes)
        while ahead:
            scope = ahead.pop()
            if scope not in found:
                found.add(scope)
                ahead += self.implied_scopes.get(scope, ())
        return frozenset(found)


def _metadata_url(resource: ProtectedResource) -> str:
    # Source: RFC 9728 section 3.1.
    parts = urlsplit(resource.resource)
    return f"{parts.scheme}://{parts.netloc}{_well_known(parts.path)}"


def _metadata_paths(resource: ProtectedResource) -> tuple[bytes, bytes]:
    # Source: 2025-11-25, basic/authorization: Protected Resource Metadata Discovery Requirements.
    path = urlsplit(resource.resource).path.rstrip("/")
    return _well_known(path).encode(), _WELL_KNOWN.encode()


def _metadata(resource: ProtectedResource) -> bytes:
    # Source: RFC 9728 section 2; RFC 9449, 5.2.
    given = resource.scopes_supported
    supported = resource.required_scopes if given is None else given
    return json.encode(
        {
            "resource": resource.resource,
            "authorization_servers": list(resource.authorization_servers),
            **({"scopes_supported": list(supported)} if supported else {}),
            "bearer_methods_supported": ["header"],
            **(
                {}
                if resource.dpop is None
                else {"dpop_signing_alg_values_supported": list(DPOP_ALGORITHMS)}
            ),
            **({"dpop_bound_access_tokens_required": True} if resource.dpop == "required" else {}),
        }
    )


def _well_known(path: str) -> str:
    """Return the path of the metadata of a resource with this path."""
    return _WELL_KNOWN + ("" if path == "/" else path)
