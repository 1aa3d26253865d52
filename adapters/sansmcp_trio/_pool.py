"""Connections of a client: opened when needed, kept while they can be used again."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio

import sansmcp
from sansmcp import ClientConnection  # at once: no connection waits for an import
from sansmcp_local import IdleConnections

_Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]
_Connection: TypeAlias = tuple[_Stream, ClientConnection]


class Pool:
    """The connections of one client. All go to one origin: a client never leaves it."""

    def __init__(self, core: sansmcp.Client, ssl_context: ssl.SSLContext | None) -> None:
        self._core = core
        self._ssl_context = ssl_context
        self._idle: IdleConnections[_Connection] = IdleConnections(
            core.limits,
            lambda connection: not _socket(connection[0]).is_readable(),
            lambda connection: _socket(connection[0]).close(),
        )

    @asynccontextmanager
    async def connection(self, url: str) -> AsyncGenerator[_Connection, None]:
        """A connection for one exchange. Raises OSError or trio.BrokenResourceError."""
        stream, pump = self._idle.take(now=trio.current_time()) or (
            await self._connect(sansmcp.Url.parse(url)),
            ClientConnection(self._core),
        )
        try:
            yield stream, pump
        finally:
            if pump.is_reusable:
                self._idle.put((stream, pump), now=trio.current_time())
            else:
                await trio.aclose_forcefully(stream)

    def close(self) -> None:
        """Close what is idle."""
        self._idle.close()

    async def _connect(self, url: sansmcp.Url) -> _Stream:
        if url.scheme == "http":
            return await trio.open_tcp_stream(url.host, url.port)
        return await trio.open_ssl_over_tcp_stream(
            url.host, url.port, https_compatible=True, ssl_context=self._ssl_context
        )


def _socket(stream: _Stream) -> trio.socket.SocketType:
    return (stream if isinstance(stream, trio.SocketStream) else stream.transport_stream).socket
