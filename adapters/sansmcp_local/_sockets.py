"""Sockets: their options, and checks that do not wait."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Any, Protocol

from sansmcp import ConnectionInfo, PeerCredentials
from sansmcp.addresses import AddressPolicy

_UCRED = struct.Struct("3i")
"""Linux, ``struct ucred``: the ids of process, user and group."""
_XUCRED = struct.Struct("=2Ih2xI")
"""macOS and FreeBSD, the start of ``struct xucred``: version, user, number of groups, first group.
"""
_SOL_LOCAL = 0


class Certified(Protocol):
    """A TLS connection: of :mod:`ssl`, or a stream of trio."""

    def getpeercert(self) -> Any:
        """Return the certificate of the peer."""


class HasOptions(Protocol):
    """A socket of any library."""

    def setsockopt(self, level: int, option: int, value: int, /) -> Any:
        """Set an option."""


class AnySocket(Protocol):
    """A socket of any library."""

    @property
    def family(self) -> int:
        """The family of its addresses."""
        ...

    def fileno(self) -> int:
        """Return its file descriptor."""
        ...


def is_readable(descriptor: int) -> bool:
    """Return True if a socket has unread bytes, or was closed by the peer."""
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def connection_info(descriptor: int, tls: Certified | None = None) -> ConnectionInfo:
    """Return what is known about an accepted connection.

    Args:
        descriptor: the file descriptor of its socket.
        tls: the TLS connection on the socket; None if there is none.
    """
    peer, credentials = None, None
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        if copy.family in (socket.AF_INET, socket.AF_INET6):
            address: Any = copy.getpeername()
            peer = address[0], address[1]
        else:
            credentials = _credentials_of(copy)
    certificate = None if tls is None else tls.getpeercert()
    return ConnectionInfo(
        peer=peer,
        is_tls=tls is not None,
        certificate=certificate or None,
        credentials=credentials,
    )


def _credentials_of(connected: socket.socket) -> PeerCredentials | None:
    if sys.platform == "linux":  # OpenBSD has the same option, and another order of the ids
        packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return PeerCredentials(*_UCRED.unpack(packed))
    if (option := getattr(socket, "LOCAL_PEERCRED", None)) is not None:
        packed = connected.getsockopt(_SOL_LOCAL, option, 1024)
        _, user, _, group = _XUCRED.unpack_from(packed)
        return PeerCredentials(None, user, group)
    return None


def principal_of(connected: AnySocket) -> str:
    """Return the principal of the client at a Unix socket: its user, such as ``"uid:1000"``.

    It is empty for a TCP connection, and if the system does not report the user.
    """
    if connected.family != getattr(socket, "AF_UNIX", None):
        return ""
    credentials = connection_info(connected.fileno()).credentials
    return "" if credentials is None else f"uid:{credentials.uid}"


def peer_address(name: Any) -> str:
    """Return the IP address in what ``getpeername()`` of a socket has returned; empty if none."""
    return str(name[0]) if name and not isinstance(name, str) else ""


_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPALIVE", 60),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 6),
)
"""Keep-alive probes that detect a vanished peer within two minutes. Most systems take two hours or
more. More frequent probes would cost a laptop battery. Go: 15 seconds, nine times.
"""

_MAX_UNSENT = 128 * 1024
"""Bytes that the system buffers in addition to those in flight to the peer."""


def allowed_addresses(
    policy: AddressPolicy, host: str, found: Iterable[tuple[Any, ...]]
) -> list[str]:
    """Return the addresses of a host to which a request of the authorization may be sent.

    Args:
        policy: the policy of the request.
        host: the host of its URL.
        found: what ``getaddrinfo()`` returned for it.

    Raises:
        OSError: there is no such address.
    """
    addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
    allowed = [address for address in addresses if policy.allows(host, address)]
    if not allowed:
        raise OSError(
            f"{host} has the address {', '.join(addresses)}, which is in a more private network "
            "than the MCP server (allowed_hosts)"
        )
    return allowed


def set_options(connection: HasOptions) -> None:
    """Set the options of a TCP connection: keep-alive, a small send buffer, no delay.

    An option that the system, or a Unix socket, does not have is left out.

    TCP_NOTSENT_LOWAT makes slow readers visible. A socket with a buffer of megabytes becomes
    writable again only when a third of it is free; until then a slow reader seems to read nothing.

    TCP_NODELAY sends an event at once. Without it, the second of two events waits until the peer
    has acknowledged the first, which takes Linux 40 ms. asyncio sets it only on sockets whose
    protocol number is IPPROTO_TCP; listeners of :func:`socket.create_server`, and the sockets that
    these accept, have 0.
    """
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEP_ALIVE, ("TCP_NOTSENT_LOWAT", _MAX_UNSENT), ("TCP_NODELAY", 1)):
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
