"""Verify access tokens by asking their authorization server about each (RFC 7662)."""

from __future__ import annotations

from sansmcp.errors import LocalProtocolError, check_type
from sansmcp.tokens.claims import TokenRejected, TokenRules, Undecided, VerifiedToken
from sansmcp.tokens.fetch import INTROSPECTION, FetchRequest

from ._fetch import fetch
from ._verifier import Fetch, Verifier

_REJECTED = 10.0
"""Seconds for which a token stays refused."""


class IntrospectionVerifier(Verifier):
    """Verify access tokens by introspection (RFC 7662); pass an instance as ``authenticate``.

    The authorization server is asked about each token, and its answer counts for ``max_age``
    seconds: a token that it revokes works so long.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        client_id: str,
        client_secret: str,
        introspection_url: str | None = None,
        max_age: float = 60.0,
        max_cached: int = 10_000,
        fetch: Fetch = fetch,
    ) -> None:
        """Set up the verifier.

        Args:
            issuer: the authorization server, exactly as its metadata has it.
            audience: the URL of this server, exactly as ``ProtectedResource.resource``.
            client_id, client_secret: the credentials of this server at the authorization server.
            introspection_url: where to ask; None looks it up in the metadata of the server.
            max_age: seconds for which an answer counts.
            max_cached: how many answers are remembered.
            fetch: sends the requests; ``functools.partial(sansmcp_auth.fetch, ssl_context=...)``
                for an authority of your own.

        Raises:
            LocalProtocolError: a URL or the type of an argument is wrong.
        """
        check_type(str, client_id=client_id, client_secret=client_secret)
        check_type((int, float), max_age=max_age)
        super().__init__(TokenRules(issuer, audience), max_cached, fetch)
        self._credentials = client_id, client_secret
        self._max_age = max_age
        self._url = introspection_url
        if introspection_url is not None:
            FetchRequest.get(introspection_url)

    def _find_out(self, token: str, now: float) -> VerifiedToken:
        try:
            url = self._url = self._url or self._endpoint(INTROSPECTION)
            request = FetchRequest.introspect(url, token, *self._credentials)
        except LocalProtocolError as error:
            self._url = None
            raise Undecided(error.message) from None
        answer = self._fetch(request).document()
        found: VerifiedToken | TokenRejected
        try:
            found = self._rules.check_introspected(answer, now)
        except TokenRejected as error:
            found = error
        age = self._max_age if isinstance(found, VerifiedToken) else _REJECTED
        with self._lock:
            self._cache.add(token, found, now + age)
        if isinstance(found, TokenRejected):
            raise found
        return found
