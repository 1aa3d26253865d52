"""TCP and TLS streams of connections."""

from __future__ import annotations

import os
import ssl
import sys
from contextlib import suppress
from typing import TypeAlias, cast

import trio

import sansmcp
from sansmcp.addresses import AddressPolicy
from sansmcp.http11.proxy import Proxy, Tunnel
from sansmcp_local import (
    UNIX_DELAYS,
    allowed_addresses,
    client_context,
    connect_unix,
    connection_info,
    set_options,
)

from ._stdio import StdioStream

_RECORD = 16 * 1024
"""The maximum of bytes in one TLS record."""

AnyStream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]


async def open_stream(
    url: sansmcp.Url,
    ssl_context: ssl.SSLContext | None,
    handshake_timeout: float,
    policy: AddressPolicy | None = None,
    proxy: Proxy | None = None,
) -> AnyStream:
    """Connect to a server, at an address that ``policy`` allows; None allows all.

    With a proxy, its address is not checked, and that of the server is not known. For http the
    stream leads to the proxy itself.

    Raises OSError or trio.BrokenResourceError.
    """
    if url.socket_path is not None:
        return await _open_unix(url.socket_path)
    if proxy is None:
        plain = await _open_tcp(url, policy)
    else:
        plain = await trio.open_tcp_stream(*proxy.address)
    set_options(plain.socket)
    if url.scheme == "http":
        return plain
    if proxy is not None:
        try:
            await _open_tunnel(plain, Tunnel(proxy, url), handshake_timeout)
        except BaseException:
            plain.socket.close()
            raise
    stream = trio.SSLStream(
        plain,
        ssl_context or client_context(),
        server_hostname=url.host,
        https_compatible=True,
    )
    try:
        await do_handshake(stream, handshake_timeout)
    except BaseException:
        stream.transport_stream.socket.close()
        raise
    return stream


async def _open_tunnel(stream: trio.SocketStream, tunnel: Tunnel, timeout: float) -> None:
    with trio.move_on_after(timeout) as scope:
        await stream.send_all(tunnel.request)
        while not tunnel.receive_data(bytes(await stream.receive_some(65536))):
            pass
    if scope.cancelled_caught:
        raise tunnel.no_answer(timeout)


async def _open_unix(path: str) -> trio.SocketStream:
    for delay in UNIX_DELAYS:
        with suppress(BlockingIOError):
            return trio.SocketStream(trio.socket.from_stdlib_socket(connect_unix(path)))
        await trio.sleep(delay)
    return trio.SocketStream(trio.socket.from_stdlib_socket(connect_unix(path)))


async def _open_tcp(url: sansmcp.Url, policy: AddressPolicy | None) -> trio.SocketStream:
    if policy is None:
        return await trio.open_tcp_stream(url.host, url.port)
    found = await trio.socket.getaddrinfo(url.host, url.port, type=trio.socket.SOCK_STREAM)
    *others, last = allowed_addresses(policy, url.host, found)
    for address in others:
        with suppress(OSError):
            return await trio.open_tcp_stream(address, url.port)
    return await trio.open_tcp_stream(last, url.port)


def set_options_below(stream: trio.abc.Stream) -> None:
    """Set the options of the socket of a connection."""
    plain = getattr(stream, "transport_stream", stream)
    if isinstance(plain, trio.SocketStream):
        set_options(plain.socket)


async def do_handshake(stream: trio.abc.Stream, timeout: float) -> None:
    """Do the TLS handshake, if any. Raises TimeoutError or trio.BrokenResourceError."""
    if isinstance(stream, trio.SSLStream):
        tls = cast("trio.SSLStream[trio.SocketStream]", stream)
        with trio.move_on_after(timeout) as scope:
            await tls.do_handshake()
        if scope.cancelled_caught:
            raise TimeoutError(f"The TLS handshake took longer than {timeout} seconds")


async def send_some(stream: trio.abc.Stream, data: bytes) -> bytes:
    """Wait until a part of ``data`` is sent, and return the rest."""
    if isinstance(stream, trio.SocketStream):
        return data[await stream.socket.send(data) :]
    await stream.send_all(data[:_RECORD])
    return data[_RECORD:]


def socket_of(stream: AnyStream) -> trio.socket.SocketType:
    """Return the socket of a stream, with TLS or without."""
    plain = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
    return plain.socket


def info_of(stream: trio.abc.Stream) -> sansmcp.ConnectionInfo:
    """Return what is known about an accepted connection."""
    if isinstance(stream, trio.SocketStream):
        return connection_info(stream.socket.fileno())
    encrypted = cast("trio.SSLStream[trio.SocketStream]", stream)
    # It forwards the attributes of an SSLObject, which its type does not declare.
    return connection_info(socket_of(encrypted).fileno(), cast("ssl.SSLObject", encrypted))


def send_now(stream: trio.abc.Stream, data: bytes) -> bytes:
    """Send as much as possible without waiting, and return the rest."""
    with suppress(OSError):  # there is no room, or an error that send_all() will raise
        return data[os.write(_descriptor(stream), data) :]
    return data


def _descriptor(stream: trio.abc.Stream) -> int:
    """Return the descriptor to send plain bytes without blocking; -1 if there is none."""
    if isinstance(stream, trio.SocketStream) and sys.platform != "win32":
        return stream.socket.fileno()
    return stream.fileno() if isinstance(stream, StdioStream) else -1
