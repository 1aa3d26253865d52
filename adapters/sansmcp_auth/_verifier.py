"""What all verifiers do: find the token, look it up in the cache, and log why it is refused."""

from __future__ import annotations

import abc
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import sansmcp
from sansmcp.auth.urls import server_metadata_urls
from sansmcp.authentication import bearer_token
from sansmcp.tokens.claims import (
    INVALID_TOKEN,
    UNDECIDED,
    TokenRejected,
    TokenRules,
    Undecided,
    VerifiedToken,
)
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest, endpoint_in
from sansmcp.tokens.token_cache import TokenCache

_logger = logging.getLogger("sansmcp")

Fetch: TypeAlias = Callable[[FetchRequest], FetchedResponse]
"""Sends a request and returns the response, or raises Undecided; see :func:`fetch`."""


class Verifier(abc.ABC):
    """Verifies access tokens; pass an instance as ``authenticate``. May be called in any thread."""

    def __init__(self, rules: TokenRules, max_cached: int, fetch: Fetch) -> None:
        self._rules = rules
        self._fetch = fetch
        self._cache = TokenCache(max_cached)
        self._lock = threading.Lock()
        """Held while the cache is used, and by subclasses for state of their own; never for I/O."""
        self._said = ""
        """The last warning, which is not repeated until a token is found valid."""

    def __call__(
        self, head: sansmcp.RequestHead, connection: sansmcp.ConnectionInfo
    ) -> sansmcp.Access | sansmcp.Refusal:
        """Return the Access of a request, or the Refusal of one without a valid token."""
        token = bearer_token(head)
        if token is None:
            return sansmcp.Refusal()
        now = time.time()
        try:
            with self._lock:
                known = self._cache.find(token, now)
            if known is None:
                known = self._find_out(token, now)
                self._said = ""
            return known.access(now)
        except TokenRejected as error:
            _logger.info("an access token was refused: %s", error)
            return INVALID_TOKEN
        except Undecided as error:
            if str(error) != self._said:
                self._said = str(error)
                _logger.warning("access tokens cannot be verified: %s", error)
            return UNDECIDED

    @abc.abstractmethod
    def _find_out(self, token: str, now: float) -> VerifiedToken:
        """Return what a token says that is not in the cache.

        Raises TokenRejected if it is not valid, and Undecided if that is not known.
        """

    def _endpoint(self, name: str) -> str:
        """Return an endpoint of the authorization server, from its metadata. Raises Undecided."""
        for url in server_metadata_urls(self._rules.issuer):
            response = self._fetch(FetchRequest.get(url))
            if not response.is_missing:
                return endpoint_in(response.document(), self._rules.issuer, name)
        raise Undecided(f"there are no metadata of {self._rules.issuer}")
