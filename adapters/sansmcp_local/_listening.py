"""Where a server listens."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import sansmcp


def listen(host: str, port: int | range) -> list[socket.socket]:
    """Listen on a port, or on the first of several that is free, at all addresses of a host.

    Port 0 is any free port, the same at all addresses. The sockets do not block. Raises OSError if
    there is none, and LocalProtocolError for an empty range.
    """
    ports = [port] if isinstance(port, int) else list(port)
    for candidate in ports:
        try:
            return _listen_at(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or candidate == ports[-1]:
                raise
    raise sansmcp.LocalProtocolError("A range of ports must not be empty")


def _listen_at(host: str, port: int) -> list[socket.socket]:
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    listeners: list[socket.socket] = []
    with ExitStack() as stack:
        for family, _, _, _, (name, _, *rest) in found:
            number = listeners[0].getsockname()[1] if listeners else port
            listener = socket.create_server((name, number, *rest), family=family, backlog=128)
            stack.callback(listener.close)
            listener.settimeout(0)
            listeners.append(listener)
        stack.pop_all()
    return listeners
