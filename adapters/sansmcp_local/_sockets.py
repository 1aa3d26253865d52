"""Sockets, without waiting."""

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
