"""Scopes: the names of what an access token permits.

Source: RFC 6749 section 3.3; 2026-07-28, basic/authorization: Refresh Tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import cast

from .errors import LocalProtocolError

_SCOPE = re.compile(r"[!#-\[\]-~]+")

OFFLINE_ACCESS = "offline_access"


def parse_scope(value: object) -> tuple[str, ...]:
    """Return the scopes in the value of a ``scope`` parameter; none if it is malformed."""
    if not isinstance(value, str):
        return ()
    scopes = tuple(dict.fromkeys(value.split(" ")))
    return scopes if all(map(_SCOPE.fullmatch, scopes)) else ()


def checked_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Return the scopes that a server asks for, each once; those of a set in alphabetical order.

    Raises LocalProtocolError if ``scopes`` is a str, one of them is not a scope, or one is
    ``offline_access``: whether there is a refresh token is between client and authorization server.
    """
    if isinstance(scopes, str):  # iterating over it would give a scope for each letter
        raise LocalProtocolError(f"Scopes must be a set or sequence of str, got the str {scopes!r}")
    for scope in scopes:
        if not isinstance(cast(object, scope), str) or not _SCOPE.fullmatch(scope):
            raise LocalProtocolError(
                f"A scope is visible ASCII without spaces, quotes and backslashes, got {scope!r}"
            )
        if scope == OFFLINE_ACCESS:
            raise LocalProtocolError(
                "A server must not ask for offline_access: clients that want refresh tokens do"
            )
    return tuple(dict.fromkeys(sorted(scopes) if isinstance(scopes, AbstractSet) else scopes))
