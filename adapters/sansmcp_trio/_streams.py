"""What the bytes of a client go through."""

from __future__ import annotations

import ssl

import trio

import sansmcp


class Stream:
    """A connection to a server, with TLS or without.

    What fails raises OSError or trio.BrokenResourceError.
    """

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream
        plain = stream if isinstance(stream, trio.SocketStream) else stream.transport_stream
        self._socket = plain.socket

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read: not the end, either."""
        return not self._socket.is_readable()

    async def send(self, data: bytes) -> None:
        """Send it all."""
        await self._stream.send_all(data)

    async def receive(self) -> bytes:
        """What comes next; empty at the end."""
        return bytes(await self._stream.receive_some(65536))

    def close(self) -> None:
        """Close it at once."""
        self._socket.close()


async def open_stream(url: sansmcp.Url, ssl_context: ssl.SSLContext | None) -> Stream:
    """Connect to a server. Raises OSError."""
    if url.scheme == "http":
        return Stream(await trio.open_tcp_stream(url.host, url.port))
    return Stream(
        await trio.open_ssl_over_tcp_stream(
            url.host, url.port, https_compatible=True, ssl_context=ssl_context
        )
    )
