"""What has become of the attempts at one request: whether it may be sent again, and when.

Only a request of which the server has run nothing, or which may be repeated, is sent again. A few
things end that: too many refusals in a row, a machine on which no server listens, a server whose
instances die one after the other.
"""

from __future__ import annotations

import attrs

from ..http import Unsent
from .http_heads import Refusal
from .outcomes import NeedsTools, NeedsVersion

LOCAL_PATIENCE = 5.0
"""Seconds in which attempts are repeated while this machine refuses the connections. A server that
starts at the same time as its client is there by then; else there is none, which a person can see
to at once.
"""


@attrs.define(eq=False, repr=False)
class Attempts:
    """The attempts at one request, as far as the next one depends on them."""

    refusals: int = attrs.field(default=0, init=False)
    """How often the server has refused it without running anything, since the last progress."""
    deaths: int = attrs.field(default=0, init=False)
    """How often it was sent again because the instance that ran it had died."""
    tried: tuple[type[NeedsTools | NeedsVersion], ...] = attrs.field(default=(), init=False)
    """What was done about error responses to it, each at most once."""
    takes_keys: bool = attrs.field(default=True, init=False)
    """False if it had a key, and was sent again because its response could not be had by that.

    It is repeated after further cuts as well. Else a load balancer that takes turns could lead each
    repeated call to a process that has ended, and each request for the rest to one that lives.
    """
    was_sent: bool = attrs.field(default=False, init=False)
    """True if an attempt may have reached the server, and has no outcome."""
    _refused_since: float | None = attrs.field(default=None, init=False)
    """Time since when this machine has refused all connections for it, in seconds on the machine's
    clock; None if it has not.
    """

    def connection_ended(self, *, broke_off: bool) -> None:
        """Record the end of a connection on which the request was sent."""
        self._refused_since = None
        self.was_sent = self.was_sent or broke_off

    def refused(self, refusal: Refusal, *, idempotent: bool) -> bool:
        """Record a refusal, and return whether the request can be sent again."""
        self.was_sent = self.was_sent or refusal.leaves_unknown
        return refusal.was_not_run or (idempotent and refusal.leaves_unknown)

    def is_final(self, unsent: Unsent, now: float) -> bool:
        """Return True if a request of which nothing was sent need not be tried again."""
        if unsent is not Unsent.REFUSED:
            return unsent is Unsent.PERMANENT
        if self._refused_since is None:
            self._refused_since = now
        return now >= self._refused_since + LOCAL_PATIENCE
