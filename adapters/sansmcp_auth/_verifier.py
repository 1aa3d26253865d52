"""What all verifiers do: find the token, look it up in the cache, and log why it is refused."""

from __future__ import annotations

import abc
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import sansmcp
from sansmcp.auth.urls import server_metadata_urls
from sansmcp.authentication import bearer_token, dpop_token
from sansmcp.tokens.claims import (
    INVALID_TOKEN,
    UNDECIDED,
    TokenRejected,
    TokenRules,
    Undecided,
    VerifiedToken,
)
from sansmcp.tokens.dpop import ProofRejected, read_proof
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest, endpoint_in
from sansmcp.tokens.jwt import decode_object
from sansmcp.tokens.token_cache import TokenCache

from ._signatures import verified_payload

_logger = logging.getLogger("sansmcp")

_WARNING_INTERVAL = 60.0
"""Seconds after a warning of a refused token in which further ones are logged at INFO."""

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
        self._warned_at = -math.inf
        """When a refused token was last logged as a warning. Clients choose how many there are."""
        self._said = ""
        """The last warning that tokens cannot be verified. It is not repeated until one was."""

    def __call__(
        self, head: sansmcp.RequestHead, connection: sansmcp.ConnectionInfo
    ) -> sansmcp.Access | sansmcp.Refusal:
        """Return the Access of a request, or the Refusal of one without a valid token."""
        known = self.find_known(head, connection)
        if known is not None:
            return known
        token, now = bearer_token(head) or dpop_token(head), time.time()
        assert token is not None, "find_known() refuses that"
        peer = "" if connection.peer is None else connection.peer[0]
        try:
            found = self._find_out(token, now, peer=peer)
            access = _access(found, head, token, now)
        except TokenRejected as error:
            return self._refused(error, now)
        except Undecided as error:
            if str(error) != self._said:
                self._said = str(error)
                _logger.warning("access tokens cannot be verified: %s", error)
            return UNDECIDED
        self._said = ""
        return access

    def find_known(
        self, head: sansmcp.RequestHead, connection: sansmcp.ConnectionInfo
    ) -> sansmcp.Access | sansmcp.Refusal | None:
        """Return the same if it is known without I/O: there is no token, or one of the cache."""
        token, now = bearer_token(head) or dpop_token(head), time.time()
        if token is None:
            return sansmcp.Refusal()
        try:
            with self._lock:
                known = self._cache.find(token, now)
            return None if known is None else _access(known, head, token, now)
        except TokenRejected as error:
            return self._refused(error, now)

    def _refused(self, error: TokenRejected, now: float) -> sansmcp.Refusal:
        is_warning = now >= self._warned_at + _WARNING_INTERVAL
        if is_warning:
            self._warned_at = now
        level = logging.WARNING if is_warning else logging.INFO
        if isinstance(error, ProofRejected):
            _logger.log(level, "a proof of possession was refused: %s", error)
            return error.refusal
        _logger.log(level, "an access token was refused: %s", error)
        return INVALID_TOKEN

    @abc.abstractmethod
    def _find_out(self, token: str, now: float, *, peer: str) -> VerifiedToken:
        """Return what a token says that is not in the cache; ``peer`` is the address of its sender.

        Raises TokenRejected if it is not valid, and Undecided if that is not known.
        """

    def _endpoint(self, name: str) -> str:
        """Return an endpoint of the authorization server, from its metadata. Raises Undecided.

        Servers answer some places of metadata by errors or other documents. So the first one that
        has the metadata of the issuer counts.
        """
        failure: Undecided | None = None
        for url in server_metadata_urls(self._rules.issuer):
            response = self._fetch(FetchRequest.get(url))
            try:
                if not response.is_missing:
                    return endpoint_in(response.document(), self._rules.issuer, name)
            except Undecided as error:
                failure = failure or error
        raise failure or Undecided(f"there are no metadata of {self._rules.issuer}")


def _access(
    found: VerifiedToken, head: sansmcp.RequestHead, token: str, now: float
) -> sansmcp.Access:
    """Return the Access of a request whose access token is valid.

    Raises TokenRejected if the scheme is not the one of the token, and ProofRejected if the proof
    of a token that is bound to a key is not made with this key for this token.
    """
    if bearer_token(head) is not None:
        if found.thumbprint is not None:  # it could be used by all who have seen it
            raise TokenRejected("it is bound to a key (cnf), and sent as a Bearer token")
        return found.access(now)
    if found.thumbprint is None:
        raise TokenRejected("it is bound to no key, and sent as one that is")
    proof = read_proof(head)
    if proof.thumbprint != found.thumbprint:
        raise ProofRejected("its key is not the one to which the access token is bound (cnf.jkt)")
    try:
        claims = decode_object(verified_payload(proof.text, proof.key, proof.header))
    except TokenRejected as error:
        raise ProofRejected(str(error)) from None
    return found.access(now, proof.check_claims(claims, token, now))
