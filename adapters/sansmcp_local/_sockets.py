"""Sockets: their options, and looks without waiting."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
from typing import Any, Protocol

from sansmcp import ConnectionInfo, PeerCredentials

_UCRED = struct.Struct("3i")


class Certified(Protocol):
    """A TLS connection: of :mod:`ssl`, or a stream of trio."""

    def getpeercert(self) -> Any:
        """Return the certificate of the other end."""


class HasOptions(Protocol):
    """A socket, of whatever library."""

    def setsockopt(self, level: int, option: int, value: int, /) -> Any:
        """Set an option."""


def is_readable(descriptor: int) -> bool:
    """Whether something has come on a socket, or its end, and nobody has read it."""
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def connection_info(descriptor: int, tls: Certified | None = None) -> ConnectionInfo:
    """Return what is known of an accepted connection, by its socket and the TLS on top of it."""
    peer, credentials = None, None
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        if copy.family in (socket.AF_INET, socket.AF_INET6):
            address: Any = copy.getpeername()
            peer = address[0], address[1]
        elif hasattr(socket, "SO_PEERCRED"):
            packed = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            credentials = PeerCredentials(*_UCRED.unpack(packed))
    certificate = None if tls is None else tls.getpeercert()
    return ConnectionInfo(
        peer=peer,
        is_tls=tls is not None,
        certificate=certificate or None,
        credentials=credentials,
    )


_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPALIVE", 60),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 6),
)
"""Two minutes until a peer that has vanished is noticed: far below the two hours and more of most
systems, and rarely enough for a laptop on battery. Go: 15 seconds nine times.
"""

_MAX_UNSENT = 128 * 1024
"""Bytes that the system keeps on top of what is under way to the peer."""


def set_options(connection: HasOptions) -> None:
    """Let the system find out whether the peer of a TCP connection exists, keep little, send soon.

    Where a system has no such option nothing happens. The second is what makes progress visible: a
    socket with a buffer of megabytes can be written to again only when a third of it is free, and
    until then a slow reader looks as if it took nothing. The third sends the event after another at
    once, and not when the peer has acknowledged the first, which takes Linux 40 ms. asyncio sets it
    only on sockets whose protocol number is IPPROTO_TCP; a listener of :func:`socket.create_server`
    and what it accepts have 0.
    """
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEP_ALIVE, ("TCP_NOTSENT_LOWAT", _MAX_UNSENT), ("TCP_NODELAY", 1)):
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
