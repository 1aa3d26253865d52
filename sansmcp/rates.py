"""Bounds on how often a client may send requests: token buckets.

A bucket holds up to ``burst`` tokens and gets ``per_second`` new ones every second. A request takes
one. A bucket is kept as one number, the time at which it will be full again, so that a bucket that
is full needs no place at all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable
from itertools import islice
from typing import Protocol, runtime_checkable

import attrs

from .errors import LocalProtocolError, check_type
from .types import Value

_ROUNDING = 1e-6
"""Seconds. A client that waits as long as it was told must not be refused by a rounding error."""


@attrs.frozen(eq=False, repr=False)
class RateLimit(Value):
    """How many requests a client may send: ``per_second`` on average, and ``burst`` at once.

    Attributes:
        per_second: requests per second, above zero; 0.5 allows one every two seconds.
        burst: requests that may come at once after a pause, at least 1.

    Raises:
        LocalProtocolError: ``per_second`` is not a finite number above zero, or ``burst`` is not an
            integer above zero.
    """

    per_second: float
    burst: int

    def __attrs_post_init__(self) -> None:
        check_type((int, float), per_second=self.per_second)
        check_type(int, burst=self.burst)
        if not 0 < self.per_second < math.inf:
            raise LocalProtocolError(
                f"per_second must be above zero and finite, and is {self.per_second}"
            )
        if self.burst < 1:
            raise LocalProtocolError(f"burst must be above zero, and is {self.burst}")

    def take(self, full_at: float | None, count: int, now: float) -> tuple[float, float]:
        """Take tokens from a bucket, all of them or none.

        Args:
            full_at: the time when the bucket will be full; None for one that is full.
            count: the number of tokens; more than ``burst`` count as ``burst``.
            now: the current time in seconds, on the same clock.

        Returns:
            The time when the bucket will be full now; and 0.0 if the tokens were taken, else the
            seconds until there are enough.
        """
        interval = 1 / self.per_second
        capacity = self.burst * interval
        # At most empty, also if the clock was put back.
        full_at = now if full_at is None else min(max(full_at, now), now + capacity)
        full_at_then = full_at + min(count, self.burst) * interval
        wait = full_at_then - now - capacity
        return (full_at_then, 0.0) if wait <= _ROUNDING else (full_at, wait)


@attrs.define(eq=False, repr=False)
class TokenBuckets:
    """The buckets of all clients, each with a name. A name that is not known has a full bucket.

    Attributes:
        limit: the rate and the size of every bucket.
        max_buckets: how many are kept. Beyond it the one used longest ago is forgotten.
    """

    limit: RateLimit
    max_buckets: int
    _full_at: OrderedDict[str, float] = attrs.field(factory=OrderedDict[str, float], init=False)
    """The time when each bucket will be full, the one used longest ago first."""

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, name: str, count: int, now: float) -> float:
        """Take tokens from a bucket, all of them or none.

        Args:
            name: the name of the bucket.
            count: the number of tokens; more than ``burst`` count as ``burst``.
            now: the current time in seconds, on the machine's clock.

        Returns:
            0.0 if they were taken, else the seconds until there are enough.
        """
        self._full_at[name], wait = self.limit.take(self._full_at.get(name), count, now)
        self._full_at.move_to_end(name)
        self._forget(now)
        return wait

    def _forget(self, now: float) -> None:
        """Forget buckets that are full, and those beyond the bound.

        Each use adds one bucket at most and looks at two, so the work of a use is bounded, too.
        """
        for name, full_at in tuple(islice(self._full_at.items(), 2)):
            if full_at > now and len(self._full_at) <= self.max_buckets:
                return
            del self._full_at[name]


@runtime_checkable
class RateStore(Protocol):
    """The part of a store that counts the requests of clients. A store can do without.

    Without it, each instance counts what comes to it (the setting ``rate_limit``).
    """

    def take(
        self, bucket: str, count: int, limit: RateLimit, *, now: float
    ) -> float | Awaitable[float]:
        """Take tokens from a bucket, all of them or none. Do it in one step for all instances.

        A bucket holds up to ``limit.burst`` tokens and gets ``limit.per_second`` new ones every
        second. One that is not known is full. Forget those that are full, and bound the others.
        :meth:`sansmcp.RateLimit.take` computes it. The method of an asynchronous store is
        ``async def``.

        Args:
            bucket: the name of the bucket; any text.
            count: the number of tokens; more than ``limit.burst`` count as ``limit.burst``.
            limit: the rate and the size of the bucket.
            now: the current time in seconds, on the machine's clock.

        Returns:
            0.0 if they were taken, else the seconds until there are enough.
        """
        ...
