"""Connections of a client: opened when needed, kept while they can be used again.

An exchange that finds an idle connection is written at once. Only opening a connection takes time,
and so a task.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

import sansmcp
from sansmcp import ClientConnection  # at once: no connection waits for an import
from sansmcp.effects import OpenExchange
from sansmcp_local import IdleConnections, is_readable

from ._machine import Task, Tasks, surely


class Pool:
    """The connections of one client. All go to one origin: a client never leaves it."""

    def __init__(
        self,
        core: sansmcp.Client,
        settle: Callable[[], None],
        tasks: Tasks,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.core = core
        self.settle = settle
        self.loop = asyncio.get_running_loop()
        self.is_paused = False
        self.connections: set[Connection] = set()
        self.carrying: dict[int, Connection] = {}
        self._opening: dict[int, Task] = {}
        self._idle: IdleConnections[Connection] = IdleConnections(
            core.limits,
            lambda connection: connection.is_quiet,
            lambda connection: connection.abort(),
        )
        self._tasks = tasks
        self._ssl_context = ssl_context

    def carry(self, effect: OpenExchange) -> None:
        """Carry an exchange, from its request to the end of its response."""
        connection = self._idle.take(now=self.loop.time())
        if connection is not None:
            connection.begin(effect)
        else:
            self._opening[effect.exchange] = self._tasks.start(self._open(effect))

    def abort(self, exchange: int) -> None:
        """Break an exchange off."""
        if exchange in self._opening:
            self._opening[exchange].cancel()
        elif exchange in self.carrying:
            self.carrying[exchange].abort()

    def release(self, connection: Connection) -> None:
        """An exchange is over: keep its connection if it can be used again."""
        if connection.pump.is_reusable:
            self._idle.put(connection, now=self.loop.time())
        else:
            connection.abort()

    def pause(self, *, is_paused: bool) -> None:
        """Read no response, or go on."""
        self.is_paused = is_paused
        for connection in self.connections:
            connection.pause()

    async def close(self) -> None:
        """Break everything off, once nothing is being opened any more."""
        for connection in self.connections:
            connection.abort()
        await surely([connection.lost for connection in self.connections])

    async def _open(self, effect: OpenExchange) -> None:
        url = sansmcp.Url.parse(effect.url)
        try:
            _, connection = await self.loop.create_connection(
                lambda: Connection(self), url.host, url.port, ssl=self._context(url)
            )
        except (OSError, UnicodeError) as error:  # a host with an empty label is a UnicodeError
            gone = sansmcp.PeerGone(_reason(error))
            self.core.receive(effect.exchange, gone, now=self.loop.time())
            self.settle()
        else:
            self.connections.add(connection)
            connection.pause()
            connection.begin(effect)
        finally:
            del self._opening[effect.exchange]

    def _context(self, url: sansmcp.Url) -> ssl.SSLContext | None:
        if url.scheme == "https" and self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context if url.scheme == "https" else None


class Connection(asyncio.Protocol):
    """A connection of a client: carries its exchanges, one after the other."""

    _transport: asyncio.Transport

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._exchange = 0
        self.pump = ClientConnection(pool.core)
        self.lost = pool.loop.create_future()

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, as far as can be known, and nothing has come."""
        if self._transport.is_closing():
            return False
        return not is_readable(self._transport.get_extra_info("socket").fileno())

    def begin(self, effect: OpenExchange) -> None:
        """Send a request."""
        self._exchange = effect.exchange
        self._pool.carrying[effect.exchange] = self
        self._transport.write(self.pump.begin(effect))

    def abort(self) -> None:
        """Close it, whatever is under way."""
        self._transport.abort()

    def pause(self) -> None:
        """Read, or do not, as the pool says."""
        if self._pool.is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # what uvloop has is like it

    def data_received(self, data: bytes) -> None:
        """A piece of a response, or what nobody has asked for."""
        if self.pump.is_done:
            self.abort()
            return
        self.pump.receive_data(data, now=self._pool.loop.time())
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        self._pool.connections.discard(self)
        self.lost.set_result(None)
        if exc is None:
            self.pump.receive_eof(now=self._pool.loop.time())
        else:
            self.pump.connection_lost(_reason(exc), now=self._pool.loop.time())
        self._go_on()

    def _go_on(self) -> None:
        if self.pump.is_done and self._pool.carrying.pop(self._exchange, None) is not None:
            self._pool.release(self)
        self._pool.settle()


def _reason(error: Exception) -> str:
    """What really went wrong: asyncio says "Connect call failed", whatever the system said."""
    match error:
        case ssl.SSLError() | socket.gaierror():
            pass  # their numbers are their own
        case OSError(errno=int(number)):
            return f"{os.strerror(number)}: {error}"
        case _:
            pass
    return str(error) or "connection lost"
