"""Verify access tokens that are JWTs, with the published keys of their authorization server."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from sansmcp.errors import LocalProtocolError
from sansmcp.tokens.claims import TokenRules, Undecided, VerifiedToken
from sansmcp.tokens.fetch import JWKS, FetchRequest
from sansmcp.tokens.jwt import (
    ACCESS_TOKEN_TYPES,
    ALGORITHMS,
    JwtForm,
    JwtHeader,
    decode_object,
)
from sansmcp.tokens.key_set import KeySet

from ._fetch import fetch
from ._signatures import verified_payload
from ._verifier import Fetch, Verifier

_FIRST_LOAD = 15.0
"""Seconds to wait for the keys while another thread loads the first ones."""


class JwtVerifier(Verifier):
    """Verify access tokens that are JWTs (RFC 9068); pass an instance as ``authenticate``.

    The keys of the authorization server are loaded when they are first needed, and again every ten
    minutes or when a token names a new one. If that fails, the old keys serve for up to an hour.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        algorithms: Collection[str] = ALGORITHMS,
        types: Collection[str] = ACCESS_TOKEN_TYPES,
        jwks_url: str | None = None,
        max_cached: int = 10_000,
        fetch: Fetch = fetch,
    ) -> None:
        """Set up the verifier.

        Args:
            issuer: the authorization server, exactly as its metadata has it.
            audience: the URL of this server, exactly as ``ProtectedResource.resource``.
            algorithms: the signatures that are accepted: RS256 to PS512, ES256 to ES512, EdDSA.
            types: the values of ``typ`` that are accepted; add ``"JWT"`` if the access tokens of
                the server have that type, and its ID tokens another audience.
            jwks_url: where the keys are; None looks it up in the metadata of the server.
            max_cached: how many verified tokens are remembered.
            fetch: sends the requests; ``functools.partial(sansmcp_auth.fetch, ssl_context=...)``
                for an authority of your own.

        Raises:
            LocalProtocolError: a URL, an algorithm or the type of an argument is wrong.
        """
        super().__init__(TokenRules(issuer, audience), max_cached, fetch)
        self._form = JwtForm(tuple(algorithms), tuple(types))
        self._keys = KeySet()
        self._loaded = threading.Condition(self._lock)
        self._jwks = None if jwks_url is None else FetchRequest.get(jwks_url)

    def _find_out(self, token: str, now: float, *, peer: str) -> VerifiedToken:
        header = self._form.read_header(token)
        claims = decode_object(verified_payload(token, self._key(header, now), header))
        found = self._rules.check(claims, now)
        with self._lock:
            self._cache.add(token, found, found.expires_at)
        return found

    def _key(self, header: JwtHeader, now: float) -> Mapping[str, Any]:
        with self._lock:
            key = self._keys.find(header, now)
            is_mine = self._keys.begin_load(now, is_unknown=key is None)
        if is_mine:
            self._load(now)
        with self._lock:
            if self._keys.is_empty(now):  # only then: others could fill all threads with waiting
                self._loaded.wait_for(lambda: not self._keys.is_loading, _FIRST_LOAD)
            key = self._keys.find(header, now) or key
            if key is None:
                raise self._keys.not_found(header)
            return key

    def _load(self, now: float) -> None:
        """Load the keys. A failure is reported to the key set alone, whose old keys may serve."""
        document, failure = None, "the thread that loaded them was interrupted"
        try:
            jwks = self._jwks or FetchRequest.get(self._endpoint(JWKS))
            document = self._fetch(jwks).document()
        except (Undecided, LocalProtocolError) as error:
            failure = str(error)
        finally:
            with self._lock:
                if document is None:
                    self._keys.load_failed(failure)
                else:
                    self._keys.loaded(document, now)
                self._loaded.notify_all()
