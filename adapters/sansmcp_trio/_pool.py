"""Connections of a client: opened when needed, kept while they can be used again."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

import attrs
import trio

import sansmcp

Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]

_MOST_IDLE = 8


@attrs.define(eq=False)
class Pool:
    """The connections of one client. All go to one origin: a client leaves it never."""

    _ssl_context: ssl.SSLContext | None
    _idle: list[tuple[Stream, sansmcp.ClientConnection, float]] = attrs.field(
        factory=list[tuple[Stream, sansmcp.ClientConnection, float]], init=False
    )

    @asynccontextmanager
    async def connection(
        self, url: str, core: sansmcp.Client
    ) -> AsyncGenerator[tuple[Stream, sansmcp.ClientConnection], None]:
        """A connection to use for one exchange. Raises OSError or trio.BrokenResourceError."""
        stream, pump = self._take(core.limits.idle_connection_timeout) or (
            await self._connect(sansmcp.Url.parse(url)),
            sansmcp.ClientConnection(core),
        )
        try:
            yield stream, pump
        finally:
            if pump.is_reusable and len(self._idle) < _MOST_IDLE:
                self._idle.append((stream, pump, trio.current_time()))
            else:
                await trio.aclose_forcefully(stream)

    def _take(self, longest_idle: float) -> tuple[Stream, sansmcp.ClientConnection] | None:
        """A connection that was not idle for long, and on which nothing has come since."""
        while self._idle:
            stream, pump, since = self._idle.pop()
            tcp = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
            if trio.current_time() - since < longest_idle and not tcp.socket.is_readable():
                return stream, pump
            tcp.socket.close()
        return None

    async def _connect(self, url: sansmcp.Url) -> Stream:
        if url.scheme == "http":
            return await trio.open_tcp_stream(url.host, url.port)
        stream = await trio.open_ssl_over_tcp_stream(
            url.host, url.port, https_compatible=True, ssl_context=self._ssl_context
        )
        try:
            await stream.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    def close(self) -> None:
        """Close what is idle."""
        for stream, _, _ in self._idle:
            tcp = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
            tcp.socket.close()
        self._idle.clear()
