"""Choose the scopes to request, first and on step-up.

Challenged scopes and ``scopes_supported`` need not overlap: neither contains the other.

Source: 2026-07-28, basic/authorization: Scope Selection Strategy, Step-Up Authorization Flow,
Refresh Tokens.
"""

from __future__ import annotations

from ..scopes import OFFLINE_ACCESS

MAX_CHARS = 16 * 1024
"""The characters of the scopes that are requested. Each step-up can add some, for ever."""


def length_of(scopes: tuple[str, ...]) -> int:
    """Return the characters of scopes as a ``scope`` parameter has them."""
    return len(" ".join(scopes))


def union(*sets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of all sets, in their order, each once."""
    return tuple(dict.fromkeys(scope for scopes in sets for scope in scopes))


def choose_scopes(
    given: tuple[str, ...],
    earlier: tuple[str, ...],
    challenged: tuple[str, ...],
    supported: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the scopes to request; empty for no ``scope`` parameter.

    Args:
        given: those of the application's settings.
        earlier: those that were requested for the present token.
        challenged: those of the challenge.
        supported: ``scopes_supported`` of the protected resource metadata.
    """
    return union(given, earlier, challenged) or supported


def with_offline_access(
    scopes: tuple[str, ...], listed: tuple[str, ...], *, wants_refresh: bool
) -> tuple[str, ...]:
    """Return the scopes with ``offline_access``, if the authorization server lists that scope."""
    if wants_refresh and OFFLINE_ACCESS in listed:
        return union(scopes, (OFFLINE_ACCESS,))
    return scopes
