"""Choose the client for a login, or register one, and find the one to which tokens were issued.

A client of the settings that names no issuer is bound to the first at which it is used, so that no
other authorization server gets its secret.
"""

from __future__ import annotations

import attrs

from ..errors import AuthorizationFailed
from .clients import AUTH_METHODS, OAuthClient, read_registration, registration_request
from .http import cut
from .metadata import AuthorizationServer, is_same_issuer
from .options import Authorization, JwtAssertion
from .reach import Reach
from .steps import Steps
from .stored_credentials import StoredCredentials
from .tokens import Tokens
from .urls import host_of


@attrs.frozen(eq=False, repr=False)
class Clients:
    """The client of the settings, or those that were registered."""

    _options: Authorization
    _stored: StoredCredentials
    _reach: Reach

    @property
    def bound_issuer(self) -> str | None:
        """The issuer of what the application has given; None if it may be any, or gave nothing."""
        fixed, grant = self._options.client, self._options.grant
        if isinstance(grant, JwtAssertion):
            return grant.issuer
        return None if fixed is None else fixed.issuer or self._stored.saved.bound_issuer

    @property
    def lacks_issuer(self) -> bool:
        """True if the application has given a client, and nothing says of which issuer."""
        return self._options.client is not None and self.bound_issuer is None

    def order(self, issuers: tuple[str, ...]) -> list[str]:
        """Return issuers in the order in which to try them: those first that know this client."""
        bound = self.bound_issuer
        if bound is not None:
            known = [issuer for issuer in issuers if is_same_issuer(issuer, bound)]
            if not known:
                text = (
                    f"Authorization failed: the server names the issuer {cut(issuers[0])!r}, and "
                    f"the client or assertion of the settings is for {bound!r}"
                )
                raise AuthorizationFailed(text, reason="foreign_issuer")
            return known
        tokens, clients = self._stored.tokens, self._stored.saved.clients
        holder = None if tokens is None else tokens.issuer
        return sorted(issuers, key=lambda issuer: (issuer != holder, issuer not in clients))

    def given(self, server: AuthorizationServer) -> OAuthClient:
        """Return the client of the settings, bound to the issuer if it is not yet."""
        client = self._options.client
        assert client is not None
        if client.issuer is None:
            self._stored.saved.bound_issuer = server.issuer
        return client

    def choose(self, server: AuthorizationServer, scopes: tuple[str, ...]) -> Steps[OAuthClient]:
        """Return the client for a login; register one if none is known."""
        options = self._options
        if options.client is not None:
            if self.bound_issuer is None and not server.names_own_login:
                raise AuthorizationFailed(
                    f"Authorization failed: {cut(server.issuer)} has people log in at another "
                    f"host, {cut(host_of(server.authorization_endpoint or ''))}, which may know "
                    "this client and not belong to it; if it does, set "
                    f"issuer={cut(server.issuer)!r} of the client",
                    reason="no_issuer",
                )
            return self.given(server)
        # Every issuer knows a client by its URL, so a code of one could be led to another.
        takes_url = server.takes_metadata_urls and server.names_own_login
        if options.client_metadata_url is not None and takes_url:
            return OAuthClient(client_id=options.client_metadata_url, auth_method="none")
        known = self.registered(server.issuer)
        is_usable = known is not None and options.redirect_uri in known.redirect_uris
        if known is not None and is_usable and not known.is_expired(self._stored.wall_clock()):
            return known
        return (yield from self._register(server, scopes))

    def _register(self, server: AuthorizationServer, scopes: tuple[str, ...]) -> Steps[OAuthClient]:
        if server.registration_endpoint is None:
            raise AuthorizationFailed(
                f"Authorization failed: the authorization server {cut(server.issuer)} registers no "
                "clients; set client, or client_metadata_url if it supports that",
                reason="no_client",
            )
        uris = (self._options.redirect_uri,)
        request = registration_request(
            server.registration_endpoint,
            name=self._options.client_name,
            redirect_uris=uris,
            supported=server.auth_methods,
            scopes=scopes,
        )
        response = yield from self._reach.fetch(request)
        client = read_registration(response, server.issuer, uris)
        # Another process may have stored newer tokens, which must not be replaced.
        yield from self._stored.lock()
        yield from self._stored.reload()
        self._stored.saved.add_client(server.issuer, client)
        yield from self._stored.save()
        yield from self._stored.unlock()
        return client

    def registered(self, issuer: str) -> OAuthClient | None:
        """Return the client that was registered at an issuer; None if there is none."""
        return self._stored.saved.clients.get(issuer)

    def discard(self, issuer: str) -> None:
        """Forget the client that was registered at an issuer."""
        del self._stored.saved.clients[issuer]

    def holder(self, tokens: Tokens) -> OAuthClient | None:
        """Return the client to which tokens were issued; None if it is not known any more.

        The id says too little: another issuer may have registered a client under the same one.
        """
        given, wanted = self._options.client, tokens.client_id
        if given is not None:
            bound = self.bound_issuer
            is_its = bound is not None and is_same_issuer(bound, tokens.issuer)
            return given if is_its and given.client_id == wanted else None
        known = self.registered(tokens.issuer)
        if known is not None and known.client_id == wanted:
            return known
        # It has a metadata document, or another process has registered one more since. Of a public
        # client the id is enough.
        if wanted is None or tokens.auth_method != "none":
            return None
        return OAuthClient(client_id=wanted, auth_method="none")

    def discard_holder(self, tokens: Tokens) -> Steps[None]:
        """Delete a registered client that its server does not know any more, under the lock.

        A login with it would end at a page of the server, which sends the person nowhere.
        """
        known = self.registered(tokens.issuer)
        is_it = known is not None and known.client_id == tokens.client_id
        if self._options.client is None and is_it:
            self.discard(tokens.issuer)
            yield from self._stored.save()


def auth_method(client: OAuthClient, server: AuthorizationServer) -> str:
    """Return how a client authenticates at a server.

    Raises:
        AuthorizationFailed: there is no way that both have.
    """
    method = client.method_for(server.auth_methods)
    if method is None:
        raise AuthorizationFailed(
            f"Authorization failed: the client {cut(client.client_id)!r} cannot authenticate at "
            f"{cut(server.issuer)}, which supports {cut(', '.join(server.auth_methods))}; sansmcp "
            f"supports {', '.join(AUTH_METHODS)}",
            reason="no_auth_method",
        )
    return method
