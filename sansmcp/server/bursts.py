"""Let the events of a burst leave together, at an exchange or in an append to the store.

Most of what an event costs is a wake of the driver, a write and perhaps an append for it alone.
"""

from __future__ import annotations

import math

import attrs

from ..timers import Timer
from .core import Gatherer, ServerCore

_AT_ONCE = 8
"""Events that leave at once when they come shortly one after the other. A handler that reports a
few times, and then computes without returning to its event loop, is seen to have done so.
"""
_MOMENT = 0.001
"""Seconds since the last write during which further events wait, so that they leave together."""
_TOGETHER = 32
_TOGETHER_BYTES = 16 * 1024
"""Events, and bytes, that do not wait any longer."""


@attrs.define(eq=False, repr=False)
class Burst:
    """The events of one stream that come shortly one after the other.

    An event waits if eight have left one by one, and the last one left less than a millisecond ago.
    What waits leaves when that time is over, when it is enough, when a handler asks the client for
    something, or when the stream ends.
    """

    _left_at: float = attrs.field(default=-math.inf, init=False)
    """When the last ones left."""
    _in_a_row: int = attrs.field(default=0, init=False)
    """Events that left at once, each shortly after the one before."""
    _waiting: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    """How many events wait, and their bytes."""

    def may_leave(self, core: ServerCore, owner: Gatherer, size: int) -> bool:
        """Return True if a new event of so many bytes is to leave now, with those that wait.

        Otherwise ``owner.send_gathered()`` is called when it is time.
        """
        if self._waiting and self._left_at > -math.inf:  # what is held leaves with the first event
            self._waiting += 1
            self._bytes += size
        elif core.now - self._left_at >= _MOMENT:
            self._in_a_row = 1
            return True
        elif self._in_a_row < _AT_ONCE:
            self._in_a_row += 1
            return True
        else:
            self._waiting, self._bytes = 1, size
            core.gathering[owner] = None
            core.timers.set(Timer.GATHERED, owner, self._left_at + _MOMENT)
        return self._waiting >= _TOGETHER or self._bytes >= _TOGETHER_BYTES

    def hold(self, core: ServerCore, owner: Gatherer) -> None:
        """Let what precedes the first event wait for it, for a millisecond at most."""
        self._waiting = 1
        core.gathering[owner] = None
        core.timers.set(Timer.GATHERED, owner, core.now + _MOMENT)

    def left(self, core: ServerCore, owner: Gatherer) -> None:
        """Record that all events have left, or are dropped."""
        self._left_at = core.now
        if self._waiting:
            self._waiting = 0
            core.gathering.pop(owner, None)
            core.timers.stop(Timer.GATHERED, owner)
