"""Obtain a token, with the grant of the settings: a person logs in, or the program itself does.

Source: OAuth 2.1, 4; RFC 7523; RFC 8693; RFC 9449, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs

from ..effects import MakeKey
from ..errors import AuthorizationFailed
from ..states import AuthorizationEvent
from ..types import assert_never
from .challenges import Challenge
from .client_choice import Clients, auth_method
from .clients import REGISTRATION_REFUSED, OAuthClient
from .codes import RANDOM_BYTES, authorization_request
from .http import cut
from .metadata import AuthorizationServer, ProtectedResource
from .options import Authorization, ClientCredentials, IdentityAssertion, JwtAssertion
from .proofs import DPOP_ALGORITHM
from .reach import Reach
from .scopes import MAX_CHARS, choose_scopes, length_of, union, with_offline_access
from .steps import Steps
from .stored_credentials import StoredCredentials
from .token_requests import TokenEndpoint, TokenRequests, read_requested
from .tokens import ID_JAG, JWT_BEARER, TOKEN_EXCHANGE, Tokens, read_id_jag


@attrs.frozen(eq=False)
class Wanted:
    """The token that is to be obtained."""

    resource: ProtectedResource
    server: AuthorizationServer
    scopes: tuple[str, ...]
    key: dict[str, Any] | None = attrs.field(repr=False)
    """The key that it is to be bound to with DPoP; None for none."""


@attrs.define(eq=False, repr=False)
class Grants:
    """Obtains tokens."""

    _options: Authorization
    _random: Callable[[int], bytes]
    _stored: StoredCredentials
    _reach: Reach
    _clients: Clients
    _requests: TokenRequests
    _wants_refresh: bool = attrs.field(init=False)
    """False once ``offline_access`` was refused."""

    def __attrs_post_init__(self) -> None:
        self._wants_refresh = self._options.wants_refresh

    def choose(
        self, resource: ProtectedResource, server: AuthorizationServer, challenge: Challenge
    ) -> Steps[Wanted]:
        """Return what kind of token to obtain: its scopes, and its key."""
        key = yield from self._choose_key(resource, server, challenge)
        scopes = choose_scopes(
            self._options.scopes, self._stored.requested, challenge.scopes, resource.scopes
        )
        if length_of(scopes) > MAX_CHARS:
            text = (
                f"The server requires {len(scopes)} scopes of {length_of(scopes)} characters, and "
                f"at most {MAX_CHARS} are requested"
            )
            raise AuthorizationFailed(text, reason="too_many_scopes", url=self._reach.endpoint)
        return Wanted(resource, server, scopes, key)

    def obtain(self, wanted: Wanted) -> Steps[Tokens]:
        """Obtain a token, and return it."""
        match self._options.grant:
            case None:
                return self._log_in(wanted)
            case ClientCredentials():
                form = {"grant_type": "client_credentials"}
                return self._obtain_unattended(wanted, self._clients.given(wanted.server), form)
            case IdentityAssertion() as identity:
                return self._assert_identity(identity, wanted)
            case JwtAssertion(assertion=assertion):
                form = {"grant_type": JWT_BEARER, "assertion": assertion}
                if self._options.client is None:
                    return self._obtain_unattended(wanted, None, form)
                return self._obtain_unattended(wanted, self._clients.given(wanted.server), form)
            case _ as impossible:
                assert_never(impossible)

    def _choose_key(
        self, resource: ProtectedResource, server: AuthorizationServer, challenge: Challenge
    ) -> Steps[dict[str, Any] | None]:
        """Return the key for DPoP; None if neither the application nor the server wants it."""
        if not (self._options.dpop or resource.requires_dpop or challenge.scheme == "dpop"):
            return None
        if DPOP_ALGORITHM not in server.dpop_algorithms:
            raise AuthorizationFailed(
                f"Authorization failed: DPoP is required, and the authorization server "
                f"{cut(server.issuer)} does not support it with {DPOP_ALGORITHM}",
                reason="dpop_unsupported",
            )
        tokens = self._stored.tokens
        if tokens is not None and tokens.issuer == server.issuer and tokens.dpop_key is not None:
            return tokens.dpop_key
        return cast("dict[str, Any]", (yield MakeKey(DPOP_ALGORITHM)))

    def _log_in(self, wanted: Wanted) -> Steps[Tokens]:
        """Obtain a token by the login of a person."""
        server, needed = wanted.server, wanted.scopes
        scopes = with_offline_access(needed, server.scopes, wants_refresh=self._wants_refresh)
        retried: set[str] = set()
        while True:
            known = self._clients.registered(server.issuer)
            try:
                client = yield from self._clients.choose(
                    server, union(scopes, wanted.resource.scopes)
                )
            except AuthorizationFailed as error:
                if error.reason != REGISTRATION_REFUSED or scopes == needed:
                    raise
                scopes = self._without_own_scopes(needed)
                continue
            try:
                return (yield from self._log_in_as(client, attrs.evolve(wanted, scopes=scopes)))
            except AuthorizationFailed as error:
                if error.reason == "invalid_scope" and scopes != needed:
                    scopes = self._without_own_scopes(needed)
                    yield AuthorizationEvent.REFUSED
                    continue
                is_registered = client is self._clients.registered(server.issuer)
                # A client may request only the scopes that it was registered for. Those were other
                # ones if it was registered before this flow.
                lacks_scope = error.reason == "invalid_scope" and client is known
                is_old = lacks_scope or (error.reason == "invalid_client" and is_registered)
                if error.reason in retried or not (is_old or error.reason == "invalid_grant"):
                    raise
                if is_old:
                    self._clients.discard(server.issuer)
                retried.add(error.reason)
                yield AuthorizationEvent.REFUSED

    def _without_own_scopes(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the scopes without ``offline_access``, which was the idea of this client alone."""
        self._wants_refresh = False
        return needed

    def _log_in_as(self, client: OAuthClient, wanted: Wanted) -> Steps[Tokens]:
        """Ask a person to log in, and obtain a token with the code."""
        auth_method(client, wanted.server)  # what cannot work is said before a person logs in
        self._reach.check_login(wanted.server)
        pending = authorization_request(
            wanted.server,
            client,
            redirect_uri=self._options.redirect_uri,
            resource=wanted.resource.resource,
            scopes=wanted.scopes,
            extra=self._options.extra,
            random=self._random(2 * RANDOM_BYTES),
        )
        yield AuthorizationEvent.FOUND
        code = cast("str", (yield pending))
        yield AuthorizationEvent.FOUND
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
        }
        return (yield from self._obtain(wanted, client, form))

    def _obtain_unattended(
        self, wanted: Wanted, client: OAuthClient | None, form: dict[str, str]
    ) -> Steps[Tokens]:
        """Obtain a token without a person. A refusal is final."""
        yield AuthorizationEvent.UNATTENDED
        if wanted.scopes:
            form = {**form, "scope": " ".join(wanted.scopes)}
        return (yield from self._obtain(wanted, client, form))

    def _assert_identity(self, identity: IdentityAssertion, wanted: Wanted) -> Steps[Tokens]:
        """Exchange the identity token at the provider for an assertion, and that for a token."""
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": wanted.server.issuer,
            "subject_token": identity.subject_token,
            "subject_token_type": identity.subject_token_type,
        }
        if wanted.resource.resource is not None:
            form["resource"] = wanted.resource.resource
        if wanted.scopes:
            form["scope"] = " ".join(wanted.scopes)
        assertion = read_id_jag((yield from self._requests.send_identity(identity, form)))
        client = self._clients.given(wanted.server)
        form = {"grant_type": JWT_BEARER, "assertion": assertion}
        return (yield from self._obtain_unattended(wanted, client, form))

    def _obtain(
        self, wanted: Wanted, client: OAuthClient | None, form: dict[str, str]
    ) -> Steps[Tokens]:
        server, resource = wanted.server, wanted.resource.resource
        endpoint = TokenEndpoint(
            server.token_endpoint,
            server.issuer,
            client,
            "none" if client is None else auth_method(client, server),
            wanted.key,
            server.signing_algorithms,
        )
        if resource is not None:
            form = {**form, "resource": resource}
        response = read_requested(endpoint, (yield from self._requests.send(endpoint, form)))
        return Tokens(
            issuer=server.issuer,
            client_id=None if client is None else client.client_id,
            resource=resource,
            token_endpoint=endpoint.url,
            auth_method=endpoint.method,
            access_token=response.access_token,
            is_dpop=response.is_dpop,
            refresh_token=response.refresh_token,
            lifetime=response.lifetime,
            expires_at=self._stored.wall_clock() + response.lifetime,
            requested=wanted.scopes,
            granted=wanted.scopes if response.scopes is None else response.scopes,
            nearest=self._reach.nearest,
            dpop_key=wanted.key,
        )
