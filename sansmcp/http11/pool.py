"""The pool of a client's connections: which are in use, and which can be reused."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ..client.client import Client
from ..effects import OpenExchange
from ..http import Url
from .client_connection import ClientConnection
from .proxy import Proxies


class ByteStream(Protocol):
    """The open byte stream of a connection, which the driver assigns to its ``driver``."""

    @property
    def is_readable(self) -> bool:
        """True if the stream is known to be closed, or has unread bytes.

        An idle connection with such a stream is closed instead of reused.
        """
        ...

    def close(self) -> None:
        """Close the stream at once."""


class ConnectionPool:
    """Reuse the HTTP/1.1 connections of one client.

    All connections go to the client's origin, except those of its authorization, which are not
    reused. A request that says ``Connection: close`` gets a new connection, which is not reused
    either. The connection used last is reused first, so surplus ones grow old; those idle for
    ``Limits.idle_connection_timeout`` seconds are closed the next time another one is released.

    The pool does no I/O. A connection from ``begin()`` whose ``driver`` is None is new: open a
    stream, assign it to ``driver``, and call ``connection_lost()`` of the connection if that fails.
    Call ``release()`` once for every ``begin()``.

    Not thread-safe.
    """

    def __init__(self, client: Client, proxies: Proxies | None = None) -> None:
        """``proxies``: those of the client; None if all its connections are direct."""
        self._client = client
        self._proxies = proxies
        self._limits = client.limits
        self._idle: deque[tuple[ClientConnection, float]] = deque()
        self.in_use: dict[int, ClientConnection] = {}
        """The connections in use, by exchange number."""
        self._unshared: set[int] = set()
        """The exchanges that have a connection of their own."""

    def begin(self, effect: OpenExchange, *, now: float) -> tuple[ClientConnection, bytes]:
        """Begin an exchange on an idle connection or a new one.

        Args:
            effect: the effect of the client.
            now: the current time in seconds, on the machine's clock.

        Returns:
            The connection, and the bytes to send on it. A connection whose ``driver`` is None is
            new: open a stream, to its ``proxy`` if it has one, and assign it to ``driver`` first.

        Call ``release(effect.exchange)`` when the exchange has ended, however it ended.
        """
        is_shared = effect.address_policy is None and not effect.head.values(b"connection")
        connection = (self._take(now) if is_shared else None) or self._connection_for(effect)
        if not is_shared:
            self._unshared.add(effect.exchange)
        self.in_use[effect.exchange] = connection
        try:
            return connection, connection.begin(effect)
        except BaseException:
            self.release(effect.exchange, now=now)
            raise

    def _connection_for(self, effect: OpenExchange) -> ClientConnection:
        if self._proxies is None:
            return ClientConnection(self._client)
        return ClientConnection(self._client, self._proxies.proxy_for(Url.parse(effect.url)))

    def release(self, exchange: int, *, now: float) -> None:
        """Keep the connection of an exchange for reuse, or close it if it cannot be reused.

        A second call for the same exchange has no effect. A call before the end of the response
        closes the connection.

        Args:
            exchange: the number of the exchange, from the OpenExchange effect.
            now: the current time in seconds, on the machine's clock.
        """
        connection = self.in_use.pop(exchange, None)
        is_unshared = exchange in self._unshared
        self._unshared.discard(exchange)
        if connection is None or connection.driver is None:
            return
        if is_unshared or not connection.is_reusable:
            connection.driver.close()
            return
        self._idle.append((connection, now))
        while len(self._idle) > self._limits.max_idle_connections or self._is_old(0, now):
            self._idle.popleft()[0].driver.close()

    def close(self) -> None:
        """Close the streams of all connections, in use or idle."""
        connections = [*self.in_use.values(), *(connection for connection, _ in self._idle)]
        self.in_use.clear()
        self._idle.clear()
        for connection in connections:
            if connection.driver is not None:
                connection.driver.close()

    def _take(self, now: float) -> ClientConnection | None:
        """Return an idle connection that is not old and has no unread bytes, or None."""
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
