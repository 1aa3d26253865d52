"""The form of a JSON Web Token: its header, and the key that may have signed it.

The signature itself is checked by a library, with the one key and the one algorithm that are found
here. So a token cannot choose how it is verified.

Source: RFC 7515 sections 4 and 7.1; RFC 7517; RFC 8725; RFC 9068 section 4.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from ..codecs import json
from ..errors import LocalProtocolError, RemoteProtocolError
from .claims import TokenRejected

KEY_TYPES = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
    "ES256": "EC",
    "ES384": "EC",
    "ES512": "EC",
    "EdDSA": "OKP",
}
"""The algorithms that can be allowed, and the types of their keys. None has a secret key: whoever
can verify a token with one could make tokens, too.
"""

ALGORITHMS = ("RS256", "ES256")
"""The algorithms that are allowed by default: those that authorization servers use."""

ACCESS_TOKEN_TYPES = ("at+jwt",)
"""The type of access tokens. Tokens of other types say who logged in, or are for other servers."""

_DEPTH = 16


@attrs.frozen
class JwtHeader:
    """What a token says of its signature."""

    algorithm: str
    key_id: str | None


@attrs.frozen
class JwtForm:
    """The headers that are allowed.

    Attributes:
        algorithms: the allowed algorithms.
        types: the allowed values of ``typ``, without ``application/``.

    Raises:
        LocalProtocolError: there is no algorithm, or one that needs a secret key, or is unknown; or
            one of the two is a str.
    """

    algorithms: Collection[str]
    types: Collection[str] = ACCESS_TOKEN_TYPES

    def __attrs_post_init__(self) -> None:
        for given in (self.algorithms, self.types):
            if isinstance(given, str):  # "in" would look for a part of it
                raise LocalProtocolError(f"Pass a tuple of str, not the str {given!r}")
        unknown = [each for each in self.algorithms if each not in KEY_TYPES]
        if unknown or not self.algorithms:
            known = ", ".join(KEY_TYPES)
            raise LocalProtocolError(f"algorithms must be some of {known}, got {unknown}")

    def read_header(self, token: str) -> JwtHeader:
        """Return the header of a token. Raises TokenRejected if it is not allowed."""
        return self.check(header_of(token))

    def check(self, header: Mapping[str, Any]) -> JwtHeader:
        """Return a header that is allowed. Raises TokenRejected if it is not."""
        algorithm, type, key_id = header.get("alg"), header.get("typ"), header.get("kid")
        if algorithm not in self.algorithms:
            raise TokenRejected(f"its algorithm (alg) is not among {', '.join(self.algorithms)}")
        if "crit" in header:
            raise TokenRejected("it needs extensions of JWT that are unknown here (crit)")
        name = type.lower().removeprefix("application/") if isinstance(type, str) else ""
        if name not in (each.lower() for each in self.types):
            raise TokenRejected(f"its type (typ) is not {' or '.join(self.types)}")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRejected("its kid is no string")
        assert isinstance(algorithm, str), "else it is not among them"
        return JwtHeader(algorithm, key_id)


def header_of(token: str) -> dict[str, Any]:
    """Return the members of the header of a signed JWT. Raises TokenRejected if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRejected("it is no signed JWT")
    return decode_object(_decode(parts[0]))


def decode_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises TokenRejected if it is something else, or ambiguous."""
    try:
        found = json.as_object(json.decode(data, _DEPTH))
    except RemoteProtocolError as error:
        raise TokenRejected(f"a part of it is not JSON ({error.reason})") from None
    if found is None:
        raise TokenRejected("a part of it is no JSON object")
    return found


def find_key(keys: Collection[Mapping[str, Any]], header: JwtHeader) -> Mapping[str, Any] | None:
    """Return the key that may have signed a token; None if there is none, or more than one."""
    fitting = [
        key
        for key in keys
        if key.get("kty") == KEY_TYPES[header.algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", header.algorithm) == header.algorithm
        and header.key_id in (None, key.get("kid"))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _decode(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        raise TokenRejected("a part of it is not base64url") from None
