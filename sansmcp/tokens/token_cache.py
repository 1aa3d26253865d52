"""A bounded memory of verified tokens, by hash: a token that leaks from it cannot be used."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from typing import Any, TypeAlias

import attrs

from ..errors import check_type
from .claims import TokenRejected, VerifiedToken

_Known: TypeAlias = OrderedDict[bytes, tuple[VerifiedToken | TokenRejected, float]]


@attrs.define(eq=False, repr=False)
class TokenCache:
    """What was found out about tokens, and until when it counts.

    Refused tokens have a place of their own. Anybody can send any number of them, and they would
    push out the valid ones.

    Attributes:
        max_tokens: how many valid ones are kept, in some 400 bytes each. Beyond it the one used
            longest ago is forgotten.
        max_refused: the same for refused ones.

    Raises:
        LocalProtocolError: a bound is no int.
    """

    max_tokens: int = 10_000
    max_refused: int = 1_000
    _valid: _Known = attrs.field(factory=OrderedDict[bytes, Any], init=False)
    _refused: _Known = attrs.field(factory=OrderedDict[bytes, Any], init=False)

    def __attrs_post_init__(self) -> None:
        check_type(int, max_tokens=self.max_tokens, max_refused=self.max_refused)

    def find(self, token: str, now: float) -> VerifiedToken | None:
        """Return what a token says; None if it is not known. Raises the TokenRejected of one."""
        name = _name(token)
        known = self._valid if name in self._valid else self._refused
        found, until = known.get(name, (None, now))
        if found is None:
            return None
        if now >= until:
            del known[name]
            return None
        known.move_to_end(name)
        if isinstance(found, TokenRejected):
            raise found
        return found

    def add(self, token: str, found: VerifiedToken | TokenRejected, until: float) -> None:
        """Remember what was found out about a token, until a time in seconds since 1970."""
        name = _name(token)
        self._valid.pop(name, None)
        self._refused.pop(name, None)
        known, most = self._refused, self.max_refused
        if isinstance(found, VerifiedToken):
            known, most = self._valid, self.max_tokens
            until = min(until, found.expires_at)
        known[name] = (found, until)
        if len(known) > most:
            known.popitem(last=False)


def _name(token: str) -> bytes:
    return sha256(token.encode()).digest()
