"""Connections of a client between two exchanges."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from sansmcp.limits import Limits

_Connection = TypeVar("_Connection")


class IdleConnections(Generic[_Connection]):
    """Connections that may be used again, for a while; the one that was used last goes first.

    So those that nobody needs any more become too old, and are closed when another one comes back.
    """

    def __init__(
        self,
        limits: Limits,
        is_usable: Callable[[_Connection], bool],
        close: Callable[[_Connection], None],
    ) -> None:
        """None yet.

        Args:
            limits: how many are kept, and for how long.
            is_usable: whether a connection is open, and nothing has come on it.
            close: closes one, at once.
        """
        self._limits = limits
        self._is_usable = is_usable
        self._close = close
        self._idle: deque[tuple[_Connection, float]] = deque()

    def put(self, connection: _Connection, *, now: float) -> None:
        """Keep one."""
        self._idle.append((connection, now))
        while len(self._idle) > self._limits.max_idle_connections or self._is_old(0, now):
            self._close(self._idle.popleft()[0])

    def take(self, *, now: float) -> _Connection | None:
        """Use one, if there is one."""
        while self._idle:
            is_old = self._is_old(-1, now)
            connection, _ = self._idle.pop()
            if not is_old and self._is_usable(connection):
                return connection
            self._close(connection)
        return None

    def close(self) -> None:
        """Close them all."""
        while self._idle:
            self._close(self._idle.pop()[0])

    def _is_old(self, index: int, now: float) -> bool:
        return now - self._idle[index][1] >= self._limits.idle_connection_timeout
