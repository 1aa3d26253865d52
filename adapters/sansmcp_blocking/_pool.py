"""Connections of a client: opened when needed, kept while they can be used again."""

from __future__ import annotations

import contextlib
import ssl
import time
from typing import Any

import attrs

import sansmcp
from sansmcp import ClientConnection  # at once: no connection waits for an import

from ._loop import Steps
from ._streams import SocketStream, open_stream

_MOST_IDLE = 8


@attrs.define(eq=False)
class Pool:
    """The connections of one client. All go to one origin: a client never leaves it."""

    _core: sansmcp.Client
    _ssl_context: ssl.SSLContext | None
    _idle: list[tuple[SocketStream, ClientConnection, float]] = attrs.field(
        factory=list[Any], init=False
    )

    def take(self, url: str) -> Steps[tuple[SocketStream, ClientConnection]]:
        """A connection for one exchange; give it back. Raises OSError."""
        while self._idle:
            stream, pump, since = self._idle.pop()
            is_young = time.monotonic() - since < self._core.limits.idle_connection_timeout
            with contextlib.suppress(OSError):
                if is_young and stream.receive() is None:
                    return stream, pump
            stream.close()
        stream = yield from open_stream(sansmcp.Url.parse(url), self._ssl_context)
        return stream, ClientConnection(self._core)

    def give_back(self, stream: SocketStream, pump: ClientConnection) -> None:
        """Keep a connection that can be used again; close any other."""
        if pump.is_reusable and len(self._idle) < _MOST_IDLE:
            self._idle.append((stream, pump, time.monotonic()))
        else:
            stream.close()

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop()[0].close()
