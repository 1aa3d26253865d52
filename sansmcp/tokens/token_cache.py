"""A bounded memory of verified tokens, by hash: a token that leaks from it cannot be used."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256

import attrs

from ..errors import check_type
from .claims import TokenRejected, VerifiedToken


@attrs.define(eq=False, repr=False)
class TokenCache:
    """What was found out about tokens, and until when it counts.

    Attributes:
        max_tokens: how many are kept, in some 400 bytes each. Beyond it the one used longest ago is
            forgotten.

    Raises:
        LocalProtocolError: ``max_tokens`` is no int.
    """

    max_tokens: int = 10_000
    _known: OrderedDict[bytes, tuple[VerifiedToken | TokenRejected, float]] = attrs.field(
        factory=OrderedDict[bytes, "tuple[VerifiedToken | TokenRejected, float]"], init=False
    )

    def __attrs_post_init__(self) -> None:
        check_type(int, max_tokens=self.max_tokens)

    def find(self, token: str, now: float) -> VerifiedToken | None:
        """Return what a token says; None if it is not known. Raises the TokenRejected of one."""
        name = _name(token)
        found, until = self._known.get(name, (None, now))
        if found is None:
            return None
        if now >= until:
            del self._known[name]
            return None
        self._known.move_to_end(name)
        if isinstance(found, TokenRejected):
            raise found
        return found

    def add(self, token: str, found: VerifiedToken | TokenRejected, until: float) -> None:
        """Remember what was found out about a token, until a time in seconds since 1970."""
        if isinstance(found, VerifiedToken):
            until = min(until, found.expires_at)
        self._known[_name(token)] = (found, until)
        self._known.move_to_end(_name(token))
        if len(self._known) > self.max_tokens:
            self._known.popitem(last=False)


def _name(token: str) -> bytes:
    return sha256(token.encode()).digest()
