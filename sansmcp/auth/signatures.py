"""Request signatures: DPoP proofs with the nonces of servers, and the client's own assertions.

Source: RFC 7523, 3; RFC 9449, 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs

from ..codecs.headers import Headers
from ..effects import SignJwt
from .clients import OAuthClient
from .codes import random_text
from .http import nonce_in
from .proofs import ALGORITHMS, client_assertion, dpop_proof
from .steps import Steps
from .urls import origin_of

_MAX_NONCES = 20
"""The servers whose latest DPoP nonce is kept."""


@attrs.frozen(eq=False, repr=False)
class Signer:
    """Says what is to be signed, with a new id for each JWT."""

    _random: Callable[[int], bytes]
    _wall_clock: Callable[[], float]
    _nonces: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    """The latest DPoP nonce of each origin."""

    def remember_nonce(self, url: str, headers: Headers) -> None:
        """Keep the DPoP nonce of a response, if it has one."""
        nonce = nonce_in(headers)
        if nonce is not None:
            origin = origin_of(url)
            self._nonces.pop(origin, None)
            self._nonces[origin] = nonce
            if len(self._nonces) > _MAX_NONCES:
                del self._nonces[next(iter(self._nonces))]

    def proof(
        self, key: dict[str, Any], method: bytes, url: str, access_token: str | None = None
    ) -> SignJwt:
        """Return the effect that signs the proof for one HTTP request."""
        header, claims = dpop_proof(
            key,
            method,
            url,
            jti=self._unique(),
            wall_time=self._wall_clock(),
            nonce=self._nonces.get(origin_of(url)),
            access_token=access_token,
        )
        return SignJwt(header, claims, key)

    def sign_assertion(
        self, client: OAuthClient, issuer: str, algorithms: tuple[str, ...]
    ) -> Steps[str]:
        """Sign the assertion with which a client authenticates."""
        algorithm = client.algorithm or next(
            (name for name in ALGORITHMS if name in algorithms), ALGORITHMS[0]
        )
        header, claims = client_assertion(
            client.client_id,
            issuer,
            algorithm=algorithm,
            key_id=client.key_id,
            jti=self._unique(),
            wall_time=self._wall_clock(),
        )
        assert client.private_key is not None, "OAuthClient checks that"
        return cast("str", (yield SignJwt(header, claims, client.private_key)))

    def _unique(self) -> str:
        return random_text(self._random(16))
