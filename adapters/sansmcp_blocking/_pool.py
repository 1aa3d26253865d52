"""Connections of a client: opened when needed, kept while they can be used again."""

from __future__ import annotations

import contextlib
import ssl
import time
from typing import TypeAlias

import sansmcp
from sansmcp import ClientConnection  # at once: no connection waits for an import
from sansmcp_local import IdleConnections

from ._loop import Steps
from ._streams import SocketStream, open_stream

_Connection: TypeAlias = tuple[SocketStream, ClientConnection]


class Pool:
    """The connections of one client. All go to one origin: a client never leaves it."""

    def __init__(self, core: sansmcp.Client, ssl_context: ssl.SSLContext | None) -> None:
        self._core = core
        self._ssl_context = ssl_context
        self._idle: IdleConnections[_Connection] = IdleConnections(
            core.limits, _is_quiet, lambda connection: connection[0].close()
        )

    def take(self, url: str) -> Steps[_Connection]:
        """A connection for one exchange; give it back. Raises OSError."""
        idle = self._idle.take(now=time.monotonic())
        if idle is not None:
            return idle
        stream = yield from open_stream(sansmcp.Url.parse(url), self._ssl_context)
        return stream, ClientConnection(self._core)

    def give_back(self, stream: SocketStream, pump: ClientConnection) -> None:
        """Keep a connection that can be used again; close any other."""
        if pump.is_reusable:
            self._idle.put((stream, pump), now=time.monotonic())
        else:
            stream.close()

    def close(self) -> None:
        """Close what is idle."""
        self._idle.close()


def _is_quiet(connection: _Connection) -> bool:
    """Whether nothing has come, not even its end."""
    with contextlib.suppress(OSError):
        return connection[0].receive() is None
    return False
