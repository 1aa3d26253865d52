"""Make keys and sign JWTs, for clients that prove who they are with a private key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, import_key

_KINDS = {"ES": "EC", "RS": "RSA", "PS": "RSA"}
"""The kind of key of an algorithm, by its first two letters."""


class JoseSigner:
    """Makes keys and signs JWTs; pass an instance as ``signer`` of ``Authorization``."""

    def make_key(self, algorithm: str) -> dict[str, Any]:
        """Return a new private key as a JWK. Raises KeyError for an unknown algorithm."""
        curves = {"ES256": "P-256", "ES384": "P-384"}
        return dict(ECKey.generate_key(curves[algorithm]).as_dict(private=True))

    def sign(
        self, header: Mapping[str, Any], claims: Mapping[str, Any], key: Mapping[str, Any] | str
    ) -> str:
        """Return a JWT. ``key`` is a JWK, or PEM. Raises JoseError or ValueError."""
        algorithm = str(header["alg"])
        if isinstance(key, str):
            private = import_key(key, _KINDS[algorithm[:2]])  # type: ignore[call-overload]
        else:
            private = import_key(dict(key))
        return jwt.encode(dict(header), dict(claims), private, algorithms=[algorithm])  # pyright: ignore
