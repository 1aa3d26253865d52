"""Refresh stored tokens, or revoke and delete them.

Source: OAuth 2.1, 4.3; RFC 7009.
"""

from __future__ import annotations

import attrs

from ..errors import AuthorizationFailed
from ..states import AuthorizationEvent
from .client_choice import Clients
from .clients import OAuthClient
from .discovery import Discovery
from .http import cut
from .reach import Reach
from .steps import Steps
from .stored_credentials import StoredCredentials
from .token_requests import TokenEndpoint, TokenRequests, read_requested
from .tokens import TokenResponse, Tokens
from .urls import origin_of

_LATER = (408, 429)
"""The statuses of a refusal that says nothing about the refresh token, beside 500 and more."""


@attrs.frozen(eq=False, repr=False)
class Refresh:
    """Refreshes tokens."""

    _stored: StoredCredentials
    _clients: Clients
    _requests: TokenRequests

    def refresh(self, tokens: Tokens) -> Steps[bool]:
        """Refresh a token. Return False if a new authorization is needed.

        Authorization servers revoke all tokens of a login if one refresh token is used twice. So
        the lock covers reading the storage, the request, and writing the storage: of two processes,
        the second finds the new token of the first.
        """
        yield from self._stored.lock()
        stored = yield from self._stored.reload()
        if stored is None or stored.refresh_token is None:  # another process has logged out
            return (yield from self._refresh_impossible())
        is_newer = stored.access_token != tokens.access_token
        if is_newer and not self._stored.is_expired(stored):
            self._stored.use(stored)
            yield AuthorizationEvent.OBTAINED
            return True
        client = self._clients.holder(stored)
        if client is None and stored.client_id is not None:
            return (yield from self._refresh_impossible())
        form = {"grant_type": "refresh_token", "refresh_token": stored.refresh_token}
        if stored.resource is not None:
            form["resource"] = stored.resource
        response = yield from self._try_refresh(stored, client, form)
        if response is None:
            return (yield from self._refresh_impossible())
        renewed = attrs.evolve(
            stored,
            access_token=response.access_token,
            refresh_token=response.refresh_token or stored.refresh_token,
            lifetime=response.lifetime,
            expires_at=self._stored.wall_clock() + response.lifetime,
            granted=stored.granted if response.scopes is None else response.scopes,
        )
        yield from self._stored.store(renewed)
        return True

    def _refresh_impossible(self) -> Steps[bool]:
        yield from self._stored.unlock()
        return False

    def _try_refresh(
        self, tokens: Tokens, client: OAuthClient | None, form: dict[str, str]
    ) -> Steps[TokenResponse | None]:
        """Make the request. Return None if the server refuses it for good, in whatever words.

        If the response is lost, the refresh token may be spent. It is tried once more.
        """
        endpoint = TokenEndpoint(
            tokens.token_endpoint, tokens.issuer, client, tokens.auth_method, tokens.dpop_key
        )
        try:
            response = yield from self._requests.send(endpoint, form)
        except AuthorizationFailed as error:
            if error.reason not in ("unreachable", "no_response"):
                raise
            response = yield from self._requests.send(endpoint, form)
        if response.status in _LATER or response.status >= 500:
            raise response.refused()
        try:
            return read_requested(endpoint, response)
        except AuthorizationFailed as error:
            if error.reason == "invalid_client":
                yield from self._clients.discard_holder(tokens)
            return None


@attrs.frozen(eq=False, repr=False)
class Logout:
    """Revokes the stored tokens, and deletes them."""

    _stored: StoredCredentials
    _reach: Reach
    _discovery: Discovery
    _clients: Clients
    _requests: TokenRequests

    def log_out(self) -> Steps[None]:
        """Revoke the stored tokens, and delete them here even if they could not be revoked.

        The lock covers all of it: otherwise another process could refresh them meanwhile.
        """
        yield from self._stored.lock()
        tokens, failure = (yield from self._stored.reload()), None
        if tokens is not None:
            try:
                yield from self._revoke(tokens)
            except AuthorizationFailed as error:
                failure = error
            self._stored.use(None)
            yield from self._stored.save()
        if tokens is not None and failure is not None:
            kind = "access token" if tokens.refresh_token is None else "refresh token"
            raise AuthorizationFailed(
                f"The tokens were deleted here. {cut(tokens.issuer)} has not revoked the {kind}, "
                f"and may accept it until it expires: {failure}",
                reason="not_revoked",
                url=failure.url,
            ) from failure
        yield AuthorizationEvent.FAILED

    def _revoke(self, tokens: Tokens) -> Steps[None]:
        """Revoke tokens at their issuer."""
        self._reach.nearest = tokens.nearest
        client = self._clients.holder(tokens)
        if client is None and tokens.client_id is not None:
            text = f"the client {cut(tokens.client_id)!r} is not known here any more"
            raise AuthorizationFailed(text, reason="no_client")
        server = yield from self._discovery.find_issuer(tokens.issuer, for_code=False)
        url = server.revocation_endpoint
        if url is None:
            text = "its metadata name no revocation_endpoint"
            raise AuthorizationFailed(text, reason="no_revocation_endpoint")
        if origin_of(url) != origin_of(tokens.token_endpoint):
            # Metadata may name the login and the tokens of another issuer, to get them in the end.
            text = f"its metadata name a revocation_endpoint at another origin, {origin_of(url)}"
            raise AuthorizationFailed(text, reason="foreign_revocation_endpoint")
        form = {"token": tokens.access_token, "token_type_hint": "access_token"}
        if tokens.refresh_token is not None:  # its access tokens are revoked along with it
            form = {"token": tokens.refresh_token, "token_type_hint": "refresh_token"}
        endpoint = TokenEndpoint(
            url,
            tokens.issuer,
            client,
            tokens.auth_method,
            algorithms=server.signing_algorithms,
        )
        response = yield from self._requests.send(endpoint, form, "the revocation")
        if response.is_refusal(""):
            raise response.refused()
