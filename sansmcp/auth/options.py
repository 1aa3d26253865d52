"""The settings of authorization: who the client is, and how it obtains a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import attrs

from ..credentials import CredentialStorage, MemoryCredentials
from ..errors import LocalProtocolError, check_positive_seconds, check_type
from ..scopes import parse_scope
from ..types import Shown, Value, redact
from .clients import OAuthClient
from .urls import is_client_metadata_url, is_redirect_uri, is_safe

_DEFAULT_REDIRECT_URI = "http://127.0.0.1/callback"

Login: TypeAlias = Callable[[str], str | Awaitable[str]]
"""Has a person log in: opens a URL in a browser, and returns the URL to which that is sent back.

A plain function may block; on an event loop it runs in a thread. If it raises, the requests that
wait fail. An attribute ``redirect_uri`` is the default of that setting.
"""


class JwtSigner(Protocol):
    """Makes keys and signs JWTs, for DPoP and ``private_key_jwt``. The methods raise if they fail.

    ``sansmcp_auth.JoseSigner`` is one.
    """

    def make_key(self, algorithm: str) -> dict[str, Any]:
        """Return a new private key as a JWK."""
        ...

    def sign(
        self, header: Mapping[str, Any], claims: Mapping[str, Any], key: Mapping[str, Any] | str
    ) -> str:
        """Return a JWT. ``key`` is a JWK, or PEM."""
        ...


ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
"""The type of an OpenID Connect ID token, for :class:`IdentityAssertion`."""


@attrs.frozen(eq=False, repr=False)
class ClientCredentials(Value):
    """A program that acts for itself; ``client`` of the settings has a secret or a key.

    Source: io.modelcontextprotocol/oauth-client-credentials; OAuth 2.1, 4.2.
    """


@attrs.frozen(kw_only=True, eq=False, repr=False)
class IdentityAssertion(Value):
    """An employee whose company's identity provider decides (enterprise-managed authorization).

    ``client`` of the settings is the client of the MCP server's authorization server.

    Attributes:
        token_endpoint: the token endpoint of the identity provider.
        client: the client that the provider knows.
        subject_token: the token that says who the employee is. Only the provider gets it.
        subject_token_type: its type.

    Source: io.modelcontextprotocol/enterprise-managed-authorization; RFC 8693; RFC 7523.
    """

    token_endpoint: str
    client: OAuthClient
    subject_token: str = attrs.field(repr=redact)
    subject_token_type: str = ID_TOKEN


@attrs.frozen(eq=False, repr=False)
class JwtAssertion(Value):
    """A program that the platform on which it runs vouches for (workload identity federation).

    Attributes:
        assertion: the JWT of the platform. Only ``issuer`` gets it.
        issuer: the issuer of the authorization server that accepts it.

    Source: io.modelcontextprotocol/auth/wif (SEP-1933); RFC 7523.
    """

    assertion: str = attrs.field(repr=redact)
    issuer: str


Grant: TypeAlias = ClientCredentials | IdentityAssertion | JwtAssertion


def _check_seconds(options: object, attribute: object, seconds: float) -> None:
    check_positive_seconds(seconds)


def _scopes(given: tuple[str, ...] | str) -> tuple[str, ...]:
    text = given if isinstance(given, str) else " ".join(given)
    scopes = parse_scope(text)
    if text and not scopes:
        raise LocalProtocolError(f"scopes must be words of visible ASCII, got {given!r}")
    return scopes


def _hosts(given: Iterable[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise LocalProtocolError(f"allowed_hosts takes a set of host names, got the str {given!r}")
    return frozenset(host.lower() for host in given)


@attrs.frozen(eq=False, kw_only=True, repr=False)
class Authorization(Shown):
    """How a client obtains authorization: the setting ``authorization``.

    With the defaults a person logs in, and the client registers itself with the authorization
    server.

    Raises:
        LocalProtocolError: a setting is invalid, alone or together with others.

    Attributes:
        account: a name for these credentials in the storage, if there are several for one server.
        client: a client that the authorization server knows already; None if there is none.
        client_metadata_url: the URL of this client's metadata document, for servers that support
            it; None if there is none.
        client_name: the name that a person sees who logs in, if the client registers itself.
        redirect_uri: where the person's browser is sent after the login; by default what ``login``
            names.
        scopes: scopes to request in any case; a tuple, or a str with spaces between them.
        wants_refresh: request ``offline_access``, if the authorization server lists it.
        extra: further parameters of the authorization URL, such as ``{"prompt": "consent"}``.
        names_resource: name the MCP server in the requests for a token (``resource``), so that the
            token is good for it alone. Set it to False only for an authorization server that
            refuses the parameter: the server that gets such a token can use it at every other one
            that accepts tokens of this issuer.
        grant: how a token is obtained; None for a login by a person.
        assume_pkce: use an authorization server whose metadata do not say how it supports PKCE. Set
            it for a provider that is known to support S256: others accept a stolen code.
        log_in_first: obtain a token before the first request, if the server has metadata. Set it
            for a server that refuses requests without a token by other statuses than 401.
        dpop: bind tokens to a key with DPoP, also if the server does not demand it.
        allowed_hosts: hosts of authorization servers that may be in a more private network than
            the MCP server, such as an identity provider of the company. List the host of the MCP
            server itself if its URL is http, the client does not know its address (behind a proxy,
            or on an HTTP library), and you trust the network between.
        login_timeout: seconds for a person to log in.
        login: has a person log in (:data:`Login`). None: the application takes the event
            :class:`~sansmcp.events.AuthorizationNeeded` and answers it. Only drivers call it.
        credentials: keeps the tokens; by default in memory, for the clients that share this object.
            Only drivers call it.
        signer: signs for DPoP and ``private_key_jwt``; None if neither is used. Only drivers call
            it.
    """

    account: str = ""
    client: OAuthClient | None = None
    client_metadata_url: str | None = None
    client_name: str = "sansmcp"
    login: Login | None = None
    redirect_uri: str = attrs.field(
        default=attrs.Factory(
            lambda self: getattr(self.login, "redirect_uri", _DEFAULT_REDIRECT_URI),
            takes_self=True,
        )
    )
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_scopes)
    wants_refresh: bool = True
    extra: Mapping[str, str] = MappingProxyType({})
    names_resource: bool = True
    grant: Grant | None = None
    assume_pkce: bool = False
    log_in_first: bool = False
    dpop: bool = False
    allowed_hosts: frozenset[str] = attrs.field(default=frozenset[str](), converter=_hosts)
    login_timeout: float = attrs.field(default=300.0, validator=_check_seconds)
    credentials: CredentialStorage = attrs.field(factory=MemoryCredentials)
    signer: JwtSigner | None = None

    def __attrs_post_init__(self) -> None:
        check_type(str, account=self.account, redirect_uri=self.redirect_uri)
        if not is_redirect_uri(self.redirect_uri):
            raise LocalProtocolError(
                "redirect_uri must be https, http to this machine, or have a scheme of your own "
                f"such as com.example.app, got {self.redirect_uri!r}"
            )
        url = self.client_metadata_url
        if url is not None and not is_client_metadata_url(url):
            raise LocalProtocolError(
                f"client_metadata_url must be https with a path and no fragment, got {url!r}"
            )
        if isinstance(self.grant, ClientCredentials | IdentityAssertion) and self.client is None:
            kind = type(self.grant).__name__
            raise LocalProtocolError(f"{kind} needs client=OAuthClient(...)")
        if isinstance(self.grant, IdentityAssertion) and not is_safe(self.grant.token_endpoint):
            raise LocalProtocolError(
                f"token_endpoint must be an https URL, got {self.grant.token_endpoint!r}"
            )

        if isinstance(self.grant, JwtAssertion):
            check_type(str, issuer=self.grant.issuer)
            given = None if self.client is None else self.client.issuer
            if given not in (None, self.grant.issuer):
                raise LocalProtocolError(
                    f"client is of the issuer {given!r}, and the grant of {self.grant.issuer!r}"
                )

    @property
    def needs_person(self) -> bool:
        """True if a person must log in."""
        return self.grant is None
