"""The connections of a client: which one carries which exchange, and which can be used again."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ..client.client import Client
from ..effects import OpenExchange
from .client_connection import ClientConnection


class ByteStream(Protocol):
    """What a host has below a connection, as its :attr:`ClientConnection.host`."""

    @property
    def is_readable(self) -> bool:
        """True if it is known to be closed, or has bytes that were not read."""
        ...

    def close(self) -> None:
        """Close it at once."""


class ConnectionPool:
    """The connections of one client. All go to one origin: a client never leaves it.

    Of those that are idle the one that was used last goes first. So those that nobody needs any
    more become too old, and are closed when another one becomes idle.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._limits = client.limits
        self._idle: deque[tuple[ClientConnection, float]] = deque()
        self.carrying: dict[int, ClientConnection] = {}
        """The connections that are in use, by exchange."""

    def begin(self, effect: OpenExchange, *, now: float) -> tuple[ClientConnection, bytes]:
        """Begin an exchange; returns its connection and what to send on it.

        A connection without a ``host`` is new: open a stream, and make it the host. If that fails,
        tell ``connection_lost``. Whatever happens, :meth:`release` the exchange when it is over.
        """
        connection = self._take(now) or ClientConnection(self._client)
        self.carrying[effect.exchange] = connection
        try:
            return connection, connection.begin(effect)
        except BaseException:
            self.release(effect.exchange, now=now)
            raise

    def release(self, exchange: int, *, now: float) -> None:
        """An exchange is over, or is to be broken off; may be told twice.

        Its connection is kept if it can be used again, and its stream closed otherwise.
        """
        connection = self.carrying.pop(exchange, None)
        if connection is None or connection.driver is None:
            return
        if not connection.is_reusable:
            connection.driver.close()
            return
        self._idle.append((connection, now))
        while len(self._idle) > self._limits.max_idle_connections or self._is_old(0, now):
            self._idle.popleft()[0].driver.close()

    def close(self) -> None:
        """Close all streams."""
        connections = [*self.carrying.values(), *(connection for connection, _ in self._idle)]
        self.carrying.clear()
        self._idle.clear()
        for connection in connections:
            if connection.driver is not None:
                connection.driver.close()

    def _take(self, now: float) -> ClientConnection | None:
        """A connection that was not idle for long, and on which nothing has come since."""
        while self._idle:
            is_old = self._is_old(-1, now)
            connection, _ = self._idle.pop()
            stream: ByteStream = connection.driver
            if not is_old and not stream.is_readable:
                return connection
            stream.close()
        return None

    def _is_old(self, index: int, now: float) -> bool:
        return now - self._idle[index][1] >= self._limits.idle_connection_timeout
