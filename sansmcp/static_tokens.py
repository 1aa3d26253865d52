"""Authentication by fixed tokens, for development and for small private servers."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import cast

from .authentication import Access, ConnectionInfo, Refusal, bearer_token
from .errors import LocalProtocolError, check_type
from .http import RequestHead


class StaticTokens:
    """Authenticate requests by tokens that do not change: ``authenticate=StaticTokens({...})``.

    The object keeps only hashes of the tokens, and compares a token with all of them in constant
    time. A token that people choose can be guessed: make it with ``secrets.token_urlsafe()``.
    """

    def __init__(self, tokens: Mapping[str, str | Access]) -> None:
        """Set up the tokens.

        Args:
            tokens: by token, the principal of its requests, or the Access that they have.

        Raises:
            LocalProtocolError: ``tokens`` is no mapping, a token is empty or no str, or a principal
                is.
        """
        check_type(Mapping, tokens=tokens)
        self._accesses: list[tuple[bytes, Access]] = []
        for token, access in tokens.items():
            if not isinstance(cast(object, token), str) or not token:
                raise LocalProtocolError("Tokens must be str and not empty")
            access = access if isinstance(access, Access) else Access(access)
            self._accesses.append((_hash(token), access))

    def __call__(self, head: RequestHead, connection: ConnectionInfo) -> Access | Refusal:
        """Return the Access of a request, or the Refusal of one without a known token."""
        token = bearer_token(head)
        if token is None:
            return Refusal()
        hashed = _hash(token)
        found = [access for known, access in self._accesses if hmac.compare_digest(known, hashed)]
        return found[0] if found else Refusal(reason="unknown_token")


def _hash(token: str) -> bytes:
    return sha256(token.encode()).digest()
