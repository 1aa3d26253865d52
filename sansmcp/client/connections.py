"""The connections of one event stream so far, and when to make the next.

Delays grow with the connections that failed in a row; a connection that ended properly counts for
nothing, or delays the next poll of a stream on which nothing comes. The server can name a delay
itself (``retry``).

Source: WHATWG HTML, 9.2; SEP-1699.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .options import ReconnectPolicy

_MAX_RETRY = 86_400.0
"""Seconds. A server can send any number, and selectors raise if a timeout is too long."""


@attrs.define(eq=False, repr=False)
class Connections:
    """Counts the connections of a stream, and computes the delay before the next."""

    policy: ReconnectPolicy
    _jitter: Callable[[], float]
    was_opened: bool = attrs.field(default=False, init=False)
    """True if the server has responded with an event stream at least once."""
    failures: int = attrs.field(default=0, init=False)
    """The number of connections that failed since the last progress."""
    _polls: int = attrs.field(default=0, init=False)
    """The number of connections that ended properly since the last progress."""
    _retry: float | None = attrs.field(default=None, init=False)
    """The last ``retry`` of the server, in seconds; None if it sent none."""
    _up_since: float | None = attrs.field(default=None, init=False)
    """Time when the first event stream after the latest failure opened, in seconds on the machine's
    clock; None if none has opened since.
    """

    def opened(self, now: float) -> None:
        """Record that the server has responded with an event stream."""
        self.was_opened = True
        if self._up_since is None:
            self._up_since = now

    def progressed(self) -> None:
        """Start the counts again: something new has come."""
        self.failures = self._polls = 0

    def set_retry(self, milliseconds: int | None) -> None:
        """Record the reconnection time that the server has sent; None for none."""
        if milliseconds is not None:
            self._retry = min(milliseconds / 1000, _MAX_RETRY)

    def polled(self, *, grows: bool) -> float:
        """Record a connection that ended properly, and return the seconds before the next.

        ``grows``: True to wait longer after each poll without progress. The response to a call must
        not be delayed.
        """
        polls = self._polls if grows else 0
        self._polls += 1
        return self.policy.poll_delay(polls, self._retry, self._jitter())

    def failed(self, now: float, wait: float = 0.0) -> float | None:
        """Record a connection that failed, and return the seconds before the next.

        Args:
            now: the current time in seconds, on the machine's clock.
            wait: the seconds to wait at least.

        Returns:
            None if all attempts have been used.
        """
        if self._up_since is not None and now - self._up_since > self.policy.max_delay:
            self.failures = 0
        self._up_since = None
        self.failures += 1
        if self.failures > self.policy.max_attempts:
            return None
        return self.policy.delay(self.failures, max(self._retry or 0.0, wait), self._jitter())
