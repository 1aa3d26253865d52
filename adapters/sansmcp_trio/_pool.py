"""Connections of a client: opened when needed, kept while they can be used again."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio

import sansmcp
from sansmcp import ClientConnection  # at once: no connection waits for an import

_Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]
_Idle: TypeAlias = tuple[_Stream, ClientConnection, float]

_MOST_IDLE = 8


class Pool:
    """The connections of one client. All go to one origin: a client never leaves it."""

    def __init__(self, ssl_context: ssl.SSLContext | None) -> None:
        self._ssl_context = ssl_context
        self._idle: list[_Idle] = []

    @asynccontextmanager
    async def connection(
        self, url: str, core: sansmcp.Client
    ) -> AsyncGenerator[tuple[_Stream, ClientConnection], None]:
        """A connection for one exchange. Raises OSError or trio.BrokenResourceError."""
        stream, pump = self._take(core.limits.idle_connection_timeout) or (
            await self._connect(sansmcp.Url.parse(url)),
            ClientConnection(core),
        )
        try:
            yield stream, pump
        finally:
            if pump.is_reusable and len(self._idle) < _MOST_IDLE:
                self._idle.append((stream, pump, trio.current_time()))
            else:
                await trio.aclose_forcefully(stream)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            _socket(self._idle.pop()[0]).close()

    def _take(self, longest_idle: float) -> tuple[_Stream, ClientConnection] | None:
        """A connection that was not idle for long, and on which nothing has come since."""
        while self._idle:
            stream, pump, since = self._idle.pop()
            is_fresh = trio.current_time() - since < longest_idle
            if is_fresh and not _socket(stream).is_readable():
                return stream, pump
            _socket(stream).close()
        return None

    async def _connect(self, url: sansmcp.Url) -> _Stream:
        if url.scheme == "http":
            return await trio.open_tcp_stream(url.host, url.port)
        return await trio.open_ssl_over_tcp_stream(
            url.host, url.port, https_compatible=True, ssl_context=self._ssl_context
        )


def _socket(stream: _Stream) -> trio.socket.SocketType:
    return (stream if isinstance(stream, trio.SocketStream) else stream.transport_stream).socket
