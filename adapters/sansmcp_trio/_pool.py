"""Connections of a client: opened when needed, and kept while they can be used again.

Each has a task, which reads from it until it is closed. If there is an idle connection, the task
that begins an exchange writes its request at once.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

import sansmcp
from sansmcp.effects import OpenExchange
from sansmcp.http11.proxy import Proxies
from sansmcp_local import connect_failure, lost_reason, peer_address

from ._streams import AnyStream, open_stream, send_now, socket_of


class Pool(sansmcp.ConnectionPool):
    """The connections of one client, and the reading from all of them."""

    def __init__(
        self,
        core: sansmcp.Client,
        pump: Callable[[], None],
        failed: Callable[[int, Exception], None],
        may_read: Callable[[], Awaitable[None]],
        nursery: trio.Nursery,
        ssl_context: ssl.SSLContext | None,
        proxies: Proxies | None,
    ) -> None:
        super().__init__(core, proxies)
        self.pump = pump
        self._failed = failed
        self.may_read = may_read
        self.nursery = nursery
        self._opening: dict[int, trio.CancelScope] = {}
        self._ssl_context = ssl_context
        self._handshake_timeout = core.limits.tls_handshake_timeout

    def send_request(self, effect: OpenExchange) -> None:
        """Begin an exchange, on an idle connection or a new one."""
        connection, request = self.begin(effect, now=trio.current_time())
        if connection.driver is None:
            self._opening[effect.exchange] = trio.CancelScope()
            self.nursery.start_soon(self._open, effect, connection, request)
        else:
            connection.driver.send(effect.exchange, request)

    def abort(self, exchange: int) -> None:
        if exchange in self._opening:
            self._opening[exchange].cancel()
        self.release(exchange, now=trio.current_time())

    def fail(self, exchange: int, error: Exception) -> None:
        """End an exchange after an exception that is a bug, and close its connection."""
        try:
            self.release(exchange, now=trio.current_time())
        finally:
            self._failed(exchange, error)
            self.pump()

    async def _open(
        self, effect: OpenExchange, connection: sansmcp.ClientConnection, request: bytes
    ) -> None:
        try:
            await self._carry(effect, connection, request)
        except Exception as error:
            self.fail(effect.exchange, error)

    async def _carry(
        self, effect: OpenExchange, connection: sansmcp.ClientConnection, request: bytes
    ) -> None:
        try:
            with self._opening[effect.exchange]:
                opened = await open_stream(
                    sansmcp.Url.parse(effect.url),
                    self._ssl_context,
                    self._handshake_timeout,
                    effect.address_policy,
                    connection.proxy,
                )
                connection.driver = Stream(self, connection, opened)
                connection.peer = connection.driver.peer
        except (OSError, UnicodeError, trio.BrokenResourceError) as error:
            reason, unsent = connect_failure(error, reason_of(error), effect.url, connection.proxy)
            connection.connection_lost(reason, unsent=unsent, now=trio.current_time())
            self.release(effect.exchange, now=trio.current_time())
            self.pump()
        finally:
            del self._opening[effect.exchange]
        if effect.exchange in self.in_use:
            connection.driver.send(effect.exchange, request)
            await connection.driver.read()
        elif connection.driver is not None:
            connection.driver.close()  # the exchange was aborted just after the connection opened


class Stream:
    """The stream of one connection, and the task that reads from it."""

    def __init__(self, pool: Pool, connection: sansmcp.ClientConnection, stream: AnyStream) -> None:
        self._pool = pool
        self._connection = connection
        self._stream = stream
        self._socket = socket_of(stream)
        self._exchange = 0
        self._is_sending = False

    @property
    def peer(self) -> str:
        """The IP address at the other end; empty if it has left already."""
        with suppress(OSError):
            return peer_address(self._socket.getpeername())
        return ""

    @property
    def is_readable(self) -> bool:
        """True if the stream cannot be used again: closed, still sending, or with unread bytes."""
        is_open = self._socket.fileno() >= 0
        return not is_open or self._is_sending or self._socket.is_readable()

    def send(self, exchange: int, request: bytes) -> None:
        """Send the request of an exchange."""
        self._exchange = exchange
        if unsent := send_now(self._stream, request):
            self._is_sending = True
            self._pool.nursery.start_soon(self._send, unsent)

    def close(self) -> None:
        """Close the stream at once."""
        self._socket.close()

    async def read(self) -> None:
        """Pass received bytes to the connection until either side closes it."""
        try:
            await self._read()
        except Exception as error:
            self._pool.fail(self._exchange, error)
        self.close()

    async def _read(self) -> None:
        try:
            while (data := await self._receive()) and not self._connection.is_done:
                self._connection.receive_data(data, now=trio.current_time())
                self._go_on()
            self._connection.receive_eof(now=trio.current_time())
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason, unsent = lost_reason(error, reason_of(error))
            self._connection.connection_lost(reason, unsent=unsent, now=trio.current_time())
        self.close()
        self._go_on()

    async def _receive(self) -> bytes:
        await self._pool.may_read()
        return bytes(await self._stream.receive_some(65536))

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._sending_failed(reason_of(error))
        except Exception as error:
            self._pool.fail(self._exchange, error)
            self.close()
        self._is_sending = False

    def _sending_failed(self, reason: str) -> None:
        try:
            self._connection.connection_lost(reason, now=trio.current_time())
            self._go_on()
        except Exception as error:
            self._pool.fail(self._exchange, error)
        self.close()

    def _go_on(self) -> None:
        if self._connection.is_done:
            self._pool.release(self._exchange, now=trio.current_time())
        self._pool.pump()


def reason_of(error: BaseException) -> str:
    """Return the text of the innermost error: trio wraps those of the system and of TLS."""
    while True:
        inner = getattr(error, "exceptions", (error.__cause__,))[0]
        if inner is None:
            return str(error) or "connection lost"
        error = inner
