"""What all adapters let the system do for their connections, and how long they wait for TLS."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sansmcp
from sansmcp.http import Url
from sansmcp_local import set_options
from sansmcp_pytest import ClientUnderTest, ServerUnderTest
from sansmcp_pytest._checks.check import MOMENT
from sansmcp_pytest._checks.raw_client import Connection
from sansmcp_pytest._checks.servers import begun, serving
from sansmcp_pytest._checks.tools import Tools

from ..asyncio.adapter_under_test import AsyncioClients, AsyncioServers
from ..blocking.adapter_under_test import BlockingClients, BlockingServers
from ..tls import contexts
from ..trio.adapter_under_test import TrioClients, TrioServers

ADAPTERS: dict[str, tuple[Callable[[], ClientUnderTest], Callable[[], ServerUnderTest]]] = {
    "asyncio": (lambda: AsyncioClients("asyncio"), lambda: AsyncioServers("asyncio")),
    "uvloop": (lambda: AsyncioClients("uvloop"), lambda: AsyncioServers("uvloop")),
    "trio": (TrioClients, TrioServers),
    "blocking": (BlockingClients, BlockingServers),
}
QUICK = sansmcp.Limits(tls_handshake_timeout=0.2)


def connections_of(port: int) -> Iterator[socket.socket]:
    """The connections of this process, at both ends, to a server of this process."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            ends = connection.getsockname(), connection.getpeername()
            if port in (end[1] for end in ends if len(end) > 1):
                yield connection


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs a list of open files")
@pytest.mark.parametrize("name", ADAPTERS)
def test_the_system_looks_whether_peers_exist_and_sends_at_once(name: str) -> None:
    """A silent connection was never noticed.

    And each event but the first of a stream of asyncio waited for an acknowledgement, 40 ms.
    """
    make_clients, make_servers = ADAPTERS[name]
    clients = make_clients()
    with serving(make_servers()) as (tools, running):
        client = clients.connect(running.url, request_handlers={}, standalone_stream=False)
        pending = client.start("tools/call", {"name": "wait"})
        begun(tools)
        found = [
            (
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            )
            for connection in connections_of(Url.parse(running.url).port)
        ]
        tools.go_on.set()
        pending.result()
        client.close()
    assert len(found) >= 2
    assert set(found) == {(1, 60, 1)}


def test_options_that_a_system_does_not_have_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_KEEPIDLE", raising=False)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as odd:
        set_options(odd)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_tls_client_that_says_nothing_is_dropped(name: str) -> None:
    """Each adapter had a patience of its own for that."""
    subject: Any = ADAPTERS[name][1]()
    tools = Tools(subject)
    server, _ = contexts()
    running = subject.serve(
        tools.app, resumable=True, graceful_timeout=1.0, ssl_context=server, limits=QUICK
    )
    try:
        with Connection(running.url) as connection:
            assert connection.is_closed()
    finally:
        running.stop()


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_tls_server_that_says_nothing_is_left(name: str) -> None:
    _, context = contexts()
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with listener.accept()[0] as connection:
                connection.settimeout(MOMENT)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(65536):
                        pass
                left.set()

        threading.Thread(target=accept, daemon=True).start()
        subject: Any = ADAPTERS[name][0]()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/mcp"
        with pytest.raises(sansmcp.CallError):
            subject.connect(
                url, request_handlers={}, ssl_context=context, limits=QUICK, connect_timeout=2.0
            )
        assert left.wait(MOMENT)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_tls_connection_that_the_server_closes(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Asyncio's TLS transport cannot be asked for its buffer once it is closed."""
    subject: Any = ADAPTERS[name][1]()
    server, client = contexts()
    running = subject.serve(
        Tools(subject).app, resumable=True, graceful_timeout=1.0, ssl_context=server
    )
    place = Url.parse(running.url)
    try:
        with (
            socket.create_connection((place.host, place.port), timeout=MOMENT) as plain,
            client.wrap_socket(plain, server_hostname="127.0.0.1") as secret,
        ):
            secret.sendall(b"GET /nothing HTTP/1.0\r\n\r\n")
            while secret.recv(65536):
                pass
    finally:
        running.stop()
    assert "unexpected" not in caplog.text
