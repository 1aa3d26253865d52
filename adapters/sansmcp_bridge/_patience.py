"""How long clients wait for the lists of one server, which hold up those of the others."""

from __future__ import annotations

_SHORT = 5.0
"""Seconds that each list may take."""

_BEYOND = 25.0
"""Seconds beyond them that all lists of a server may take together: one may take 30 s, such as the
first one while a program is installed.
"""

_RESTORED = 24 * 3600.0
"""Seconds until a server has all of them again that had none left."""


class Patience:
    """How long a list may take that is read from a server, connecting to it included.

    What lists have taken is remembered by server, for the sessions of all clients together. A list
    that comes in time restores nothing: a server that is late now and then, or always just in time,
    would hold up every session.
    """

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """By server: what it had left of the seconds beyond the short time, and when."""

    def with_server(self, server: str, *, now: float) -> float:
        """Return the seconds that the next list of a server may take."""
        return _SHORT + self._left_of(server, now)

    def took(self, server: str, seconds: float, *, now: float) -> None:
        """Record what a list has taken, whether it has come or not."""
        left = self._left_of(server, now) - max(seconds - _SHORT, 0.0)
        self._left[server] = max(left, 0.0), now

    def _left_of(self, server: str, now: float) -> float:
        left, since = self._left.get(server, (_BEYOND, now))
        return min(left + (now - since) * _BEYOND / _RESTORED, _BEYOND)
