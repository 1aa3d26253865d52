"""Sockets, with TLS and without, that never block: their methods are steps of a task."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import sansmcp
from sansmcp.addresses import AddressPolicy
from sansmcp.http11.proxy import Proxy, ProxyRefused, Tunnel
from sansmcp_local import (
    UNIX_DELAYS,
    allowed_addresses,
    client_context,
    connect_unix,
    connection_info,
    peer_address,
    principal_of,
    set_options,
    text_of,
)

from ._loop import READ, WRITE, Steps, Wait

_T = TypeVar("_T")


class SocketStream:
    """The socket of a connection. Its methods raise OSError."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0)
        set_options(connected)
        self._socket = connected
        self._fd = connected.fileno()

    def reading(self, deadline: float = math.inf) -> Wait:
        """Return the wait before :meth:`receive`."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return Wait(None, READ)
        return Wait(self._fd, READ, deadline)

    def receive(self) -> bytes | None:
        """Return received bytes; empty at the end, None if there are none yet."""
        try:
            return self._socket.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    @property
    def is_readable(self) -> bool:
        """True if there are unread bytes, or the end of the stream."""
        try:
            return self.receive() is not None
        except OSError:
            return True

    def send_now(self, data: bytes) -> int:
        """Send as much as possible without waiting, and return how much. Raises OSError."""
        return self._socket.send(data)

    def send(self, data: bytes, timeout: float = math.inf) -> Steps[None]:
        """Send all of ``data``. Raises TimeoutError after ``timeout`` seconds without progress."""
        view = memoryview(data)
        while view:
            act = partial(self._socket.send, view)
            sent = yield from self._attempt(act, timeout, "The peer does not read")
            view = view[sent:]

    def do_handshake(self, timeout: float = math.inf) -> Steps[None]:
        """Do the TLS handshake, if any. Raises TimeoutError after ``timeout`` seconds."""
        if isinstance(self._socket, ssl.SSLSocket):
            late = f"The TLS handshake took longer than {timeout} seconds"
            yield from self._attempt(self._socket.do_handshake, timeout, late)

    def info(self) -> sansmcp.ConnectionInfo:
        """Return what is known about an accepted connection."""
        tls = self._socket if isinstance(self._socket, ssl.SSLSocket) else None
        return connection_info(self._fd, tls)

    @property
    def principal(self) -> str:
        """The user of a client at a Unix socket; empty for others."""
        return principal_of(self._socket)

    @property
    def peer(self) -> str:
        """The IP address at the other end; empty if it has left already."""
        with contextlib.suppress(OSError):
            return peer_address(self._socket.getpeername())
        return ""

    def close(self) -> None:
        """Close it at once."""
        self._socket.close()

    def _attempt(self, act: Callable[[], _T], timeout: float, late: str) -> Steps[_T]:
        deadline = time.monotonic() + timeout
        while True:
            wanted = WRITE
            try:
                return act()
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            except ssl.SSLWantReadError:
                wanted = READ
            yield Wait(self._fd, wanted, deadline)
            if time.monotonic() >= deadline:
                raise TimeoutError(late)


def open_stream(
    url: sansmcp.Url,
    ssl_context: ssl.SSLContext | None,
    patience: float,
    policy: AddressPolicy | None = None,
    proxy: Proxy | None = None,
) -> Steps[SocketStream]:
    """Connect to a server. Raises OSError.

    With a proxy, its address is not checked, and that of the server is not known. For http the
    stream leads to the proxy itself.

    Its addresses are tried one after the other, if ``policy`` allows them; None allows all. Looking
    up a name blocks, without a timeout.
    """
    if url.socket_path is not None:
        return (yield from _connect_unix(url.socket_path))
    host, port = (url.host, url.port) if proxy is None else proxy.address
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if policy is not None and proxy is None:
        allowed = allowed_addresses(policy, url.host, found)
        found = [entry for entry in found if entry[4][0] in allowed]
    connect = partial(_connect, url=url, proxy=proxy, ssl_context=ssl_context, patience=patience)
    for family, _, _, _, address in found[:-1]:
        try:
            return (yield from connect(socket.socket(family), address))
        except ProxyRefused:  # the proxy was reached: it would say the same at another address
            raise
        except OSError:
            continue
    family, _, _, _, address = found[-1]
    return (yield from connect(socket.socket(family), address))


def _open_tunnel(stream: SocketStream, tunnel: Tunnel, patience: float) -> Steps[None]:
    deadline = time.monotonic() + patience
    yield from stream.send(tunnel.request, patience)
    while True:
        yield stream.reading(deadline)
        data = stream.receive()
        if data is not None and tunnel.receive_data(data):
            return
        if time.monotonic() >= deadline:
            raise tunnel.no_answer(patience)


def _connect_unix(path: str) -> Steps[SocketStream]:
    for delay in UNIX_DELAYS:
        with contextlib.suppress(BlockingIOError):
            return SocketStream(connect_unix(path))
        yield Wait(deadline=time.monotonic() + delay)
    return SocketStream(connect_unix(path))


def _connect(
    connecting: socket.socket,
    address: Any,
    *,
    url: sansmcp.Url,
    proxy: Proxy | None,
    ssl_context: ssl.SSLContext | None,
    patience: float,
) -> Steps[SocketStream]:
    try:
        connecting.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            connecting.connect(address)
        yield Wait(connecting.fileno(), WRITE)
        error = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, text_of(error))
        if url.scheme == "https":
            if proxy is not None:
                yield from _open_tunnel(SocketStream(connecting), Tunnel(proxy, url), patience)
            context = ssl_context or client_context()
            connecting = context.wrap_socket(
                connecting, server_hostname=url.host, do_handshake_on_connect=False
            )
        stream = SocketStream(connecting)
        yield from stream.do_handshake(patience)
    except BaseException:
        connecting.close()
        raise
    return stream
