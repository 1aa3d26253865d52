"""Check the signature of a JWT with a public key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joserfc import jwk, jws
from joserfc.errors import JoseError

from sansmcp.tokens.claims import TokenRejected
from sansmcp.tokens.jwt import JwtHeader


def verified_payload(token: str, key: Mapping[str, Any], header: JwtHeader) -> bytes:
    """Return the claims of a token. Raises TokenRejected if its signature is not of this key."""
    # Parameters of a header that are not known are ignored, as RFC 7515 section 4 wants it.
    registry = jws.JWSRegistry(algorithms=[header.algorithm], strict_check_header=False)
    registry.max_header_length = len(token)  # which is bounded
    try:
        return jws.deserialize_compact(token, jwk.import_key(dict(key)), registry=registry).payload
    except (JoseError, ValueError, TypeError, KeyError) as error:  # KeyError: an unknown curve
        raise TokenRejected(f"its signature is not valid ({type(error).__name__})") from None
