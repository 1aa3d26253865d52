"""Connections of a client: opened when needed, kept while they can be used again.

An exchange that finds an idle connection is written at once. Only opening a connection takes time,
and so a task.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import sansmcp
from sansmcp.addresses import AddressPolicy
from sansmcp.effects import OpenExchange
from sansmcp.http11.proxy import Proxies, Proxy, Tunnel
from sansmcp_local import (
    UNIX_DELAYS,
    AsyncioTask,
    allowed_addresses,
    client_context,
    connect_failure,
    connect_unix,
    is_readable,
    lost_reason,
    number_of,
    peer_address,
    set_options,
    text_of,
    wait_all_shielded,
)

from ._tasks import Tasks


class Pool(sansmcp.ConnectionPool):
    """The connections of one client, and the reading from all of them."""

    def __init__(
        self,
        core: sansmcp.Client,
        pump: Callable[[], None],
        failed: Callable[[int, Exception], None],
        tasks: Tasks,
        ssl_context: ssl.SSLContext | None,
        proxies: Proxies | None,
    ) -> None:
        super().__init__(core, proxies)
        self.pump = pump
        self._failed = failed
        self.loop = asyncio.get_running_loop()
        self.is_paused = False
        self.streams: set[Stream] = set()
        self._opening: dict[int, AsyncioTask] = {}
        self._tasks = tasks
        self._ssl_context = ssl_context
        self._handshake_timeout = core.limits.tls_handshake_timeout

    def send_request(self, effect: OpenExchange) -> None:
        """Begin an exchange, on an idle connection or a new one."""
        connection, request = self.begin(effect, now=self.loop.time())
        if connection.driver is None:
            opening = self._open(effect, connection, request)
            self._opening[effect.exchange] = self._tasks.start(opening)
        else:
            connection.driver.send(effect.exchange, request)

    def abort(self, exchange: int) -> None:
        if exchange in self._opening:
            self._opening[exchange].cancel()
        self.release(exchange, now=self.loop.time())

    def fail(self, exchange: int, error: Exception) -> None:
        """End an exchange after an exception that is a bug, and close its connection."""
        try:
            self.release(exchange, now=self.loop.time())
        finally:
            self._failed(exchange, error)
            self.pump()

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume reading from all connections."""
        self.is_paused = is_paused
        for stream in self.streams:
            stream.pause()

    async def aclose(self) -> None:
        """Break everything off, once nothing is being opened any more."""
        self.close()
        await wait_all_shielded([stream.lost for stream in self.streams])

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
        url = sansmcp.Url.parse(effect.url)
        try:
            if connection.proxy is not None:
                stream = await self._connect_through(connection.proxy, connection, url)
            elif effect.address_policy is None:
                stream = await self._connect(connection, url, url.host)
            else:
                stream = await self._connect_within(effect.address_policy, connection, url)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name with an empty label
            reason, unsent = connect_failure(error, _reason(error), effect.url, connection.proxy)
            connection.connection_lost(reason, unsent=unsent, now=self.loop.time())
            self.release(effect.exchange, now=self.loop.time())
            self.pump()
        else:
            connection.driver, connection.peer = stream, stream.peer
            self.streams.add(stream)
            stream.pause()
            if effect.exchange in self.in_use:
                stream.send(effect.exchange, request)
            else:
                stream.close()  # the exchange was aborted just after the connection opened
        finally:
            del self._opening[effect.exchange]

    async def _connect(
        self, connection: sansmcp.ClientConnection, url: sansmcp.Url, host: str
    ) -> Stream:
        """Connect to the server of a URL, at ``host``: its name, or one of its addresses."""
        if url.socket_path is not None:
            connected = await _connect_unix(url.socket_path)
            _, stream = await self.loop.create_unix_connection(
                lambda: Stream(self, connection), sock=connected
            )
            return stream
        context = self._context(url)
        _, stream = await self.loop.create_connection(
            lambda: Stream(self, connection),
            host,
            url.port,
            ssl=context,
            server_hostname=None if context is None else url.host,
            ssl_handshake_timeout=None if context is None else self._handshake_timeout,
        )
        return stream

    async def _connect_within(
        self, policy: AddressPolicy, connection: sansmcp.ClientConnection, url: sansmcp.Url
    ) -> Stream:
        """Connect to the server of a URL, at an address that the policy allows."""
        found = await self.loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        *others, last = allowed_addresses(policy, url.host, found)
        for address in others:
            with suppress(OSError):
                return await self._connect(connection, url, address)
        return await self._connect(connection, url, last)

    async def _connect_through(
        self, proxy: Proxy, connection: sansmcp.ClientConnection, url: sansmcp.Url
    ) -> Stream:
        """Connect to the server of a URL through a proxy, or for http to the proxy itself."""
        host, port = proxy.address
        if (context := self._context(url)) is None:
            _, stream = await self.loop.create_connection(
                lambda: Stream(self, connection), host, port
            )
            return stream
        connected = await _connect_socket(self.loop, host, port)
        try:
            await self._open_tunnel(connected, Tunnel(proxy, url))
            _, stream = await self.loop.create_connection(
                lambda: Stream(self, connection),
                sock=connected,
                ssl=context,
                server_hostname=url.host,
                ssl_handshake_timeout=self._handshake_timeout,
            )
        except BaseException:
            connected.close()
            raise
        return stream

    async def _open_tunnel(self, connected: socket.socket, tunnel: Tunnel) -> None:
        async def exchange() -> None:
            await self.loop.sock_sendall(connected, tunnel.request)
            while not tunnel.receive_data(await self.loop.sock_recv(connected, 65536)):
                pass

        try:
            await asyncio.wait_for(exchange(), self._handshake_timeout)
        except asyncio.TimeoutError as error:  # no OSError before Python 3.11
            raise tunnel.no_answer(self._handshake_timeout) from error

    def _context(self, url: sansmcp.Url) -> ssl.SSLContext | None:
        if url.scheme == "https" and self._ssl_context is None:
            self._ssl_context = client_context()
        return self._ssl_context if url.scheme == "https" else None


async def _connect_socket(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that accepts. Raises OSError."""
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in found[:-1]:
        with suppress(OSError):
            return await _connect_to(loop, family, address)
    family, _, _, _, address = found[-1]
    return await _connect_to(loop, family, address)


async def _connect_to(
    loop: asyncio.AbstractEventLoop, family: int, address: tuple[object, ...]
) -> socket.socket:
    connecting = socket.socket(family)
    try:
        connecting.settimeout(0)
        await loop.sock_connect(connecting, address)
    except BaseException:
        connecting.close()
        raise
    return connecting


async def _connect_unix(path: str) -> socket.socket:
    for delay in UNIX_DELAYS:
        with suppress(BlockingIOError):
            return connect_unix(path)
        await asyncio.sleep(delay)
    return connect_unix(path)


class Stream(asyncio.Protocol):
    """The byte stream of a connection."""

    _transport: asyncio.Transport

    def __init__(self, pool: Pool, connection: sansmcp.ClientConnection) -> None:
        self._pool = pool
        self._connection = connection
        self._exchange = 0
        self.lost = pool.loop.create_future()

    @property
    def is_readable(self) -> bool:
        """True if the connection is closed, or has unread bytes."""
        if self._transport.is_closing():
            return True
        return is_readable(self._transport.get_extra_info("socket").fileno())

    @property
    def peer(self) -> str:
        """The IP address at the other end; empty if it has left already."""
        return peer_address(self._transport.get_extra_info("peername"))

    def send(self, exchange: int, request: bytes) -> None:
        """Send the request of an exchange."""
        self._exchange = exchange
        self._transport.write(request)

    def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def pause(self) -> None:
        """Pause or resume reading, as the pool is paused or not."""
        if self._pool.is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # The methods that asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods
        set_options(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Receive a piece of a response, or unexpected bytes."""
        try:
            if self._connection.is_done:
                self.close()
                return
            self._connection.receive_data(data, now=self._pool.loop.time())
            self._go_on()
        except Exception as error:
            self.close()
            self._pool.fail(self._exchange, error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.streams.discard(self)
        self.lost.set_result(None)
        try:
            if exc is None:
                self._connection.receive_eof(now=self._pool.loop.time())
            else:
                reason, unsent = lost_reason(exc, _reason(exc))
                now = self._pool.loop.time()
                self._connection.connection_lost(reason, unsent=unsent, now=now)
            self._go_on()
        except Exception as error:
            self._pool.fail(self._exchange, error)

    def _go_on(self) -> None:
        if self._connection.is_done:
            self._pool.release(self._exchange, now=self._pool.loop.time())
        self._pool.pump()


def _reason(error: Exception) -> str:
    """Return the system's text for an error; asyncio's is always "Connect call failed"."""
    match error:
        case ssl.SSLError() | socket.gaierror():
            pass  # their numbers are their own
        case OSError(filename=str()):
            pass  # that of connect_unix() is the system's
        case OSError() if (number := number_of(error)) is not None:
            return f"{text_of(number)}: {error}"
        case _:
            pass
    return str(error) or "connection lost"
