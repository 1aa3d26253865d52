"""Tells if the store works: while it does not, new calls, sessions and streams are refused."""

from __future__ import annotations

import math

import attrs

from ..effects import StoreEffect

_FAILURES = 5
_SECONDS = 1.0


@attrs.define(eq=False)
class StoreHealth:
    """The failures of the store since it worked last.

    The store counts as down after five failures in a row, or one second of failures, for one second
    after each further failure. The request that comes after that second tries the store again.
    """

    _failures: int = attrs.field(default=0, init=False)
    _first: float = attrs.field(default=-math.inf, init=False)
    """Time of the first failure since the store worked."""
    _last: float = attrs.field(default=-math.inf, init=False)
    _reported: set[tuple[type[StoreEffect], bool]] = attrs.field(
        factory=set[tuple["type[StoreEffect]", bool]], init=False
    )
    """The kinds of effects that failed since one of the kind succeeded, each with whether messages
    were lost.
    """

    def is_repeated(self, kind: type[StoreEffect], *, is_lost: bool) -> bool:
        """Return True if a failure was preceded by one of its kind; record it."""
        is_repeated = (kind, is_lost) in self._reported
        self._reported.add((kind, is_lost))
        return is_repeated

    def failed(self, now: float) -> None:
        """Record that an operation failed."""
        if self._failures == 0:
            self._first = now
        self._failures += 1
        self._last = now

    def worked(self) -> None:
        """Record that an operation succeeded."""
        self._failures = 0

    def succeeded(self, kind: type[StoreEffect]) -> None:
        """Record that an operation of a kind succeeded."""
        self.worked()
        if self._reported:
            self._reported -= {(kind, True), (kind, False)}

    @property
    def is_failing(self) -> bool:
        """True if the store has failed too often, or for too long, since it worked last."""
        return self._failures >= _FAILURES or (
            self._failures > 0 and self._last - self._first >= _SECONDS
        )

    def is_down(self, now: float) -> bool:
        """Return True if new work should be refused at once."""
        return self.is_failing and now - self._last < _SECONDS
