"""Find the metadata of the MCP server, and of its authorization server.

Source: 2025-03-26 to 2026-07-28, basic/authorization. The procedure of 2026-07-28 serves all
revisions, because the revision of a server is not known when it refuses the first request. The
fallback of 2025-03-26 is used only if the server has no metadata at all, and had none earlier.
"""

from __future__ import annotations

import attrs

from ..errors import AuthorizationFailed
from .challenges import Challenge
from .client_choice import Clients
from .http import AuthResponse, cut, shown_url
from .metadata import (
    AuthorizationServer,
    ProtectedResource,
    default_server,
    is_same_issuer,
    issuer_named_by_old_server,
    metadata_request,
    read_old_server,
    read_resource,
    read_server,
)
from .options import Authorization
from .reach import Reach
from .steps import Steps
from .stored_credentials import StoredCredentials
from .urls import origin_of, resource_metadata_urls, server_metadata_urls, without_query

OLDEST = "2025-03-26"
"""The revision whose servers have no metadata of the resource."""

NOT_FOUND = ("no_metadata", "unreachable", "no_response")
"""The reasons of errors which say that metadata was not found."""

_NO_DOCUMENT = 404
"""The only status which says that there is no document."""

_OF_SERVER = "the metadata of the authorization server"


@attrs.frozen(eq=False, repr=False)
class Discovery:
    """Finds metadata."""

    _endpoint: str
    _options: Authorization
    _is_legacy_allowed: bool
    """True if the client supports 2025-03-26."""
    _stored: StoredCredentials
    _reach: Reach
    _clients: Clients

    def find_resource(
        self, challenge: Challenge, *, is_first: bool = False
    ) -> Steps[tuple[ProtectedResource, AuthResponse]]:
        """Find the metadata of the MCP server; return them, and the last response.

        ``is_first``: the server has refused nothing, so that there is no fallback.
        """
        tried: list[AuthResponse] = []
        for url in resource_metadata_urls(self._endpoint, challenge.resource_metadata):
            request = metadata_request("the metadata of the server", url)
            response = yield from self._reach.fetch(request)
            found = read_resource(response, self._endpoint)
            if found is not None:
                break
            tried.append(response)
        else:
            barrier = (
                _no_metadata("the server", tried) if is_first else self._barrier_to_fallback(tried)
            )
            if barrier is not None:
                raise barrier
            found, response = ProtectedResource(resource=None), tried[-1]
        self._stored.resource = found.resource
        return found, response

    def _barrier_to_fallback(self, tried: list[AuthResponse]) -> AuthorizationFailed | None:
        """Return why the fallback of 2025-03-26 is not used; None to use it.

        In the fallback the MCP server alone decides who gets what is secret. So an error of the
        server, or a server that has been taken over, must not lead to it, and neither must a secret
        that the application has not bound to an issuer.
        """
        if not self._is_legacy_allowed or any(each.status != _NO_DOCUMENT for each in tried):
            return _no_metadata("the server", tried)
        if self._stored.saved.resource is not None:
            more = (
                "; it had metadata earlier, so that it is not taken for a server of 2025-03-26 as "
                "long as these credentials are stored"
            )
            return _no_metadata("the server", tried, more)
        if self._clients.lacks_issuer:
            issuer = default_server(self._endpoint).issuer
            more = f"; if it is a server of 2025-03-26, set {issuer=} of the client"
            return _no_metadata("the server", tried, more, reason="no_issuer")
        return None

    def find_server(self, resource: ProtectedResource) -> Steps[AuthorizationServer]:
        """Find the metadata of the authorization server: of the first that can be used."""
        if resource.resource is None:
            return (yield from self._find_old_server())
        failure: AuthorizationFailed | None = None
        for issuer in self._clients.order(resource.servers):
            try:
                return (yield from self.find_issuer(issuer, for_code=self._options.needs_person))
            except AuthorizationFailed as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def find_issuer(self, issuer: str, *, for_code: bool) -> Steps[AuthorizationServer]:
        """Find the metadata of one authorization server; ``for_code``: a person is to log in."""
        tried: list[AuthResponse] = []
        for url in server_metadata_urls(issuer):
            response = yield from self._reach.fetch(metadata_request(_OF_SERVER, url))
            found = read_server(
                response,
                issuer,
                for_code=for_code,
                may_omit_pkce=self._options.assume_pkce,
            )
            if found is not None:
                return found
            tried.append(response)
        raise _no_metadata(f"the authorization server {cut(issuer)}", tried)

    def _find_old_server(self) -> Steps[AuthorizationServer]:
        """Find the authorization server of a server of 2025-03-26: it has the same origin.

        The metadata there may be a copy of those of another issuer. Then that one's own are used:
        a copy proves nothing.
        """
        usual = default_server(self._endpoint)
        url = server_metadata_urls(usual.issuer)[0]
        request = metadata_request(_OF_SERVER, url, version=OLDEST)
        response = yield from self._reach.fetch(request)
        named = issuer_named_by_old_server(response)
        if named is None and response.status != _NO_DOCUMENT:
            raise _no_metadata(f"the authorization server {usual.issuer}", [response])
        (issuer,) = self._clients.order((named or usual.issuer,))
        for_code = self._options.needs_person
        if not is_same_issuer(issuer, usual.issuer):
            return (yield from self.find_issuer(issuer, for_code=for_code))
        return read_old_server(response, usual.issuer, for_code=for_code) or usual

    def with_audience(
        self, resource: ProtectedResource, server: AuthorizationServer
    ) -> ProtectedResource:
        """Return for which resource to request a token.

        In the fallback, too, another server is told for whom it is. Otherwise an MCP server could
        hide its metadata to get a token that is good for others. Only the settings can leave that
        out.
        """
        if not self._options.names_resource:
            return attrs.evolve(resource, resource=None)
        is_own = origin_of(server.token_endpoint) == origin_of(self._endpoint)
        if resource.resource is not None or is_own:
            return resource
        return attrs.evolve(resource, resource=without_query(self._endpoint))


def _no_metadata(
    who: str, tried: list[AuthResponse], more: str = "", *, reason: str = "no_metadata"
) -> AuthorizationFailed:
    places = ", ".join(f"{shown_url(each.request.url)} (HTTP {each.status})" for each in tried)
    text = f"Authorization failed: {who} has no metadata at {places}{more}"
    return AuthorizationFailed(text, reason=reason, url=tried[-1].request.url)
