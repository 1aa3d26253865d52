"""What the bytes of connections go through."""

from __future__ import annotations

import os
import ssl
import sys
from contextlib import suppress
from typing import TypeAlias

import trio

import sansmcp
from sansmcp_local import connection_info

from ._stdio import StdioStream

AnyStream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]


async def open_stream(url: sansmcp.Url, ssl_context: ssl.SSLContext | None) -> AnyStream:
    """Connect to a server. Raises OSError."""
    if url.scheme == "http":
        return await trio.open_tcp_stream(url.host, url.port)
    return await trio.open_ssl_over_tcp_stream(
        url.host, url.port, https_compatible=True, ssl_context=ssl_context
    )


def socket_of(stream: AnyStream) -> trio.socket.SocketType:
    """What is below a stream, with TLS or without."""
    plain = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
    return plain.socket


def info_of(stream: trio.abc.Stream) -> sansmcp.ConnectionInfo:
    """What is known of an accepted connection."""
    if isinstance(stream, trio.SSLStream):
        encrypted: trio.SSLStream[trio.SocketStream] = stream
        return connection_info(socket_of(encrypted).fileno(), encrypted)
    assert isinstance(stream, trio.SocketStream)
    return connection_info(socket_of(stream).fileno())


def send_now(stream: trio.abc.Stream, data: bytes) -> bytes:
    """Send as much as there is room for, without waiting; returns the rest."""
    with suppress(OSError):  # there is no room; or what it is, send_all() will find
        return data[os.write(_descriptor(stream), data) :]
    return data


def _descriptor(stream: trio.abc.Stream) -> int:
    """What takes the bytes of a stream as they are, and never blocks; -1 if there is nothing."""
    if isinstance(stream, trio.SocketStream) and sys.platform != "win32":
        return stream.socket.fileno()
    return stream.fileno() if isinstance(stream, StdioStream) else -1
