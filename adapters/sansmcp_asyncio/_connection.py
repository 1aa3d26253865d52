"""A connection of a server, or the pipes of stdio."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol, cast

import sansmcp_local
from sansmcp import ConnectionInfo, Idle, Server, ServerConnection
from sansmcp_local import (
    ByteConnection,
    connection_info,
    log_unexpected,
    principal_of,
    pull,
    set_options,
)

_NEED_DATA: Final = Idle.NEED_DATA


class ConnectionOwner(Protocol):
    """The part of a server that its connections use."""

    @property
    def core(self) -> Server:
        """The machine."""
        ...

    @property
    def loop(self) -> sansmcp_local.Loop:
        """The event loop of the server."""
        ...

    @property
    def has_ended(self) -> bool:
        """True if connections without unsent bytes must be closed."""
        ...

    @property
    def connections(self) -> set[Connection]:
        """The connections that are open."""
        ...

    def pump(self, connection: Connection | None = None) -> None:
        """Drive the machine, and wake this connection and all that have something to send."""


class Refusal(asyncio.Protocol):
    """Closes a connection at once, after creating its :class:`Connection` has failed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class Connection(asyncio.Protocol):
    """Passes received bytes to the machine, and sends its bytes, all of them in one write."""

    _transport: asyncio.Transport

    def __init__(
        self,
        serving: ConnectionOwner,
        kind: Callable[..., ByteConnection],
        send_timeout: float,
    ) -> None:
        self._serving = serving
        self._send_timeout = send_timeout
        self._connection = kind(serving.core, driver=self, now=serving.loop.now())
        self._timer = serving.loop.timer(self._due)
        self._is_reading = True
        self._is_blocked = False
        """True while the write buffer is not empty."""
        self._waiting = 0
        """Number of unsent bytes at the last check."""
        self._is_closing = False
        self.lost = asyncio.get_running_loop().create_future()

    @property
    def connection(self) -> ConnectionInfo:
        descriptor = self._transport.get_extra_info("socket").fileno()
        return connection_info(descriptor, self._transport.get_extra_info("ssl_object"))

    def wake(self) -> None:
        if self._is_blocked:
            return
        try:
            data, idle = pull(self._connection)
            if data and not self._transport.is_closing():  # asyncio would log the write
                self._transport.write(data)
            if idle is None or self._serving.has_ended:
                self._is_closing = True
            if self._is_blocked:
                return
            if self._is_closing:
                self._transport.close()
                self._wait_for_room(self._count_unsent())
            else:
                self._read(is_wanted=idle is _NEED_DATA)
                deadline = self._connection.next_deadline()
                self._timer.set(math.inf if deadline is None else deadline)
        except Exception as error:
            self._fail(error)

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        self._transport.abort()

    def _feed(self, feed: Callable[..., None], *data: bytes) -> None:
        """Call a method of the machine, with the time."""
        try:
            feed(*data, now=self._serving.loop.now())
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End this connection, and no other, because a bug has raised an exception."""
        log_unexpected(error)
        self.abort()

    def _read(self, *, is_wanted: bool) -> None:
        if is_wanted is not self._is_reading:
            self._is_reading = is_wanted
            if is_wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _due(self) -> None:
        if self._is_blocked or self._is_closing:
            waiting = self._count_unsent()
            if waiting < self._waiting:  # the peer reads
                self._wait_for_room(waiting)
            else:
                self.abort()
        else:
            self._feed(self._connection.handle_timeout)
            self._serving.pump(self)

    # The methods that asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods
        # Writing should be paused as soon as the buffer is not empty. TLS would count the rest of
        # its own handshake, too, and never resume.
        if transport.get_extra_info("sslcontext") is None:
            self._transport.set_write_buffer_limits(high=0)
        if (connected := transport.get_extra_info("socket")) is not None:
            set_options(connected)
            if isinstance(self._connection, ServerConnection):
                self._connection.principal = principal_of(connected)
        self._serving.connections.add(self)
        self._serving.pump(self)

    def data_received(self, data: bytes) -> None:
        self._feed(self._connection.receive_data, data)
        self._serving.pump(self)

    def eof_received(self) -> None:
        self._feed(self._connection.receive_eof)
        self._serving.pump(self)

    def pause_writing(self) -> None:
        """Wait until the peer has read more."""
        self._is_blocked = True
        self._read(is_wanted=False)
        self._wait_for_room(self._count_unsent())

    def _count_unsent(self) -> int:
        try:
            return self._transport.get_write_buffer_size()
        except AttributeError:  # asyncio's TLS transport has no buffer once it is closed
            return 0

    def _wait_for_room(self, waiting: int) -> None:
        self._waiting = waiting
        self._timer.set(self._serving.loop.now() + self._send_timeout)

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._serving.pump(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.stop()
        self._feed(self._connection.connection_lost)
        self._serving.connections.discard(self)
        self.lost.set_result(None)
        self._serving.pump()
