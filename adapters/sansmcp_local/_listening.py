"""Addresses and listening sockets of servers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeGuard, cast

import sansmcp

_LAST_PORT = 65535

_ATTEMPTS = 10
"""Attempts to find a port for port 0: it may be free at one address of a host and not at another.
"""

BACKLOG = 1024
"""Connections that wait to be accepted. Linux allows at most net.core.somaxconn, 4096 by default.
"""


_WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def host_of_url(host: str) -> str:
    """Return what stands for a host in the URL of a server that listens there.

    For all addresses of the machine that is one of them. Not every system connects to the address
    that stands for all, and servers refuse it in ``Host``.
    """
    return _WILDCARDS.get(host, host)


def address_of(http: object) -> tuple[str, Sequence[int]]:
    """Return the host, and the ports to try in order, of the setting ``http`` of a server.

    Raises:
        LocalProtocolError: ``http`` is not an address.
    """
    ports: Sequence[int]
    match http:
        case (str(host), int(port)):
            ports = [port]
        case (str(host), range() as ports):
            pass
        case _:
            raise sansmcp.LocalProtocolError(
                f"http is a host and a port, such as ('127.0.0.1', 8000), or a sequence of sockets "
                f"that listen, and not {http!r}"
            )
    if not ports:
        raise sansmcp.LocalProtocolError("A range of ports must not be empty")
    if not 0 <= min(ports) <= max(ports) <= _LAST_PORT:
        raise sansmcp.LocalProtocolError(f"Ports are from 0 to {_LAST_PORT}, and not {http!r}")
    return host, ports


def is_listening(http: object) -> TypeGuard[Sequence[socket.socket]]:
    """True if the setting ``http`` of a server is made of sockets; False for any other value.

    Raises:
        LocalProtocolError: one of the sockets does not listen for TCP connections.
    """
    given = cast("Sequence[object]", http if isinstance(http, Sequence) else ())
    if not any(isinstance(each, socket.socket) for each in given):
        return False
    for each in given:
        is_tcp = (
            isinstance(each, socket.socket)
            and each.family in (socket.AF_INET, socket.AF_INET6)
            and each.type == socket.SOCK_STREAM
            and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        )
        if not is_tcp:
            raise sansmcp.LocalProtocolError(
                f"The sockets of http must listen for TCP connections, unlike {each!r}"
            )
    return True


def listen(http: tuple[str, int | range] | Sequence[socket.socket]) -> list[socket.socket]:
    """Listen on a port, or on the first free one of several, at all addresses of a host.

    Args:
        http: the host, and a port or a range of ports. Port 0 is any free port, the same at all
            addresses. Or sockets that listen already, which become non-blocking.

    Returns:
        Non-blocking sockets, one for each address.

    Raises:
        OSError: no port is free, or the host has no address.
        LocalProtocolError: ``http`` is neither.
    """
    if is_listening(http):
        for listener in http:
            listener.settimeout(0)
        return list(http)
    host, ports = address_of(http)
    if ports == [0]:
        ports = _ATTEMPTS * [0]
    for port in ports[:-1]:
        try:
            return _listen_at(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    try:
        return _listen_at(host, ports[-1])
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        text = f"{error.strerror}. Stop the other program, or choose another port: 0 is a free one"
        raise OSError(error.errno, text) from error


def _listen_at(host: str, port: int) -> list[socket.socket]:
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    listeners: list[socket.socket] = []
    with ExitStack() as stack:
        for family, _, _, _, (name, _, *rest) in found:
            number = listeners[0].getsockname()[1] if listeners else port
            listener = socket.create_server((name, number, *rest), family=family, backlog=BACKLOG)
            stack.callback(listener.close)
            listener.settimeout(0)
            listeners.append(listener)
        stack.pop_all()
    return listeners
