"""The attempts at one request of the client, and how far its scopes are stepped up."""

from __future__ import annotations

import attrs

from ..errors import AuthorizationFailed
from .challenges import Challenge
from .http import cut
from .scopes import MAX_CHARS, length_of, union
from .tokens import Tokens

MAX_SENDS = 3
"""How often one request is sent, with different tokens or proofs, before a 401 is final.

After that many a token that is accepted and lacks scopes is still stepped up, MAX_STEP_UPS times.
"""

MAX_STEP_UPS = 2
"""Further authorizations for one operation because its token lacked scopes."""

_MAX_OPERATIONS = 1000
"""The operations whose step-ups are counted; beyond that the oldest is forgotten."""


@attrs.define(eq=False)
class Attempt:
    """How often one request of the client was sent, and with which token."""

    operation: str
    """The method, and the name of a tool, prompt or resource."""
    generation: int = -1
    """The generation of the token with which it was sent."""
    sends: int = 0
    has_used_nonce: bool = False
    """True if it was sent again for a DPoP nonce."""
    has_refreshed: bool = False
    """True if the token was refreshed for it."""


@attrs.define(eq=False, repr=False)
class StepUps:
    """Counts the step-ups of each operation."""

    _endpoint: str
    """The URL of the MCP server."""
    _counts: dict[str, int] = attrs.field(factory=dict[str, int], init=False)

    def count(
        self, operation: str, challenge: Challenge, tokens: Tokens | None
    ) -> AuthorizationFailed | None:
        """Count a step-up of an operation. Return the error if it would be no use, or too many."""
        requested = () if tokens is None else tokens.requested
        wanted = union(requested, challenge.scopes)
        if tokens is not None and set(challenge.scopes) <= set(requested):
            had, needed = (
                cut(" ".join(scopes)) or "none" for scopes in (requested, challenge.scopes)
            )
            text = (
                f"The server requires the scopes {needed!r}, and refuses a token for which {had!r} "
                "were requested"
            )
            return self._lacking(text, wanted)
        count = self._counts.pop(operation, 0) + 1
        self._counts[operation] = count
        if len(self._counts) > _MAX_OPERATIONS:
            del self._counts[next(iter(self._counts))]
        if count <= MAX_STEP_UPS:
            return None
        text = f"The server required further scopes for {operation} {count} times"
        return self._lacking(text, wanted)

    def _lacking(self, text: str, wanted: tuple[str, ...]) -> AuthorizationFailed:
        """Return the error for a token that lacks scopes: people log in for them at the server.

        With HTTP+SSE the server chooses where requests are sent, which is no place for a login.
        """
        scopes = wanted if length_of(wanted) <= MAX_CHARS else ()
        return AuthorizationFailed(
            text, reason="insufficient_scope", url=self._endpoint, scopes=scopes
        )

    def forget(self, operation: str) -> None:
        """Count anew: the operation has succeeded."""
        self._counts.pop(operation, None)
