"""Servers that cannot be reached: what clients on all adapters do, say and log."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_trio

from ..ports import free_port
from ..tls import ONCE, contexts

Connect = Callable[..., Any]


def on_asyncio(url: str, **settings: Any) -> Any:
    async def main() -> Any:
        async with sansmcp_asyncio.connect(url, **settings) as client:
            return await client.call("tools/list")

    return asyncio.run(main())


def on_trio(url: str, **settings: Any) -> Any:
    async def main() -> Any:
        async with sansmcp_trio.connect(url, **settings) as client:
            return await client.call("tools/list")

    return trio.run(main)


def blocking(url: str, **settings: Any) -> Any:
    with sansmcp_blocking.connect(url, **settings) as client:
        return client.call("tools/list")


def on_httpx(url: str, **settings: Any) -> Any:
    async def main() -> Any:
        async with (
            httpx.AsyncClient() as http,
            sansmcp_httpx.connect(url, http, **settings) as client,
        ):
            return await client.call("tools/list")

    return asyncio.run(main())


def on_blocking_httpx(url: str, **settings: Any) -> Any:
    with (
        httpx.Client() as http,
        sansmcp_httpx.connect_blocking(url, http, **settings) as client,
    ):
        return client.call("tools/list")


ADAPTERS = [on_asyncio, on_trio, blocking, on_httpx]


@contextmanager
def listening(talk: Callable[[socket.socket], None]) -> Generator[int, None, None]:
    """A server that talks to each connection; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    talk(connection)
                if is_over.is_set():
                    return

        is_over = threading.Event()
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            is_over.set()
            with socket.create_connection(listener.getsockname()):
                pass
            thread.join()


def failure(connect: Connect, url: str, **settings: Any) -> sansmcp.CallError:
    """The error of a client that would try again for a long time."""
    with pytest.raises(sansmcp.CallError) as caught:
        connect(url, connect_timeout=300.0, **settings)
    return caught.value


@pytest.mark.parametrize("connect", ADAPTERS)
def test_a_host_that_does_not_exist(connect: Connect) -> None:
    error = failure(connect, "http://no-such-host.invalid/mcp")
    assert "no host has the name 'no-such-host.invalid'" in str(error)
    assert error.attempts == ()


@pytest.mark.parametrize("connect", ADAPTERS)
def test_tls_at_a_plain_server(connect: Connect) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with listening(talk) as port:
        error = failure(connect, f"https://127.0.0.1:{port}/mcp")
    assert "write http:// instead of https://" in str(error)


@pytest.mark.parametrize("end", ["alert", "close", "reset"])
@pytest.mark.parametrize("connect", [*ADAPTERS, on_blocking_httpx])
def test_a_plain_client_at_a_tls_server(connect: Connect, end: str) -> None:
    """OpenSSL sends an alert; a server of asyncio closes the connection, others reset it."""

    def talk(connection: socket.socket) -> None:
        received = b"?"
        while received and not received.endswith(b"}"):  # what is not read would reset it
            received = connection.recv(1000)
        connection.sendall(bytes.fromhex("15030300020246") if end == "alert" else b"")
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with listening(talk) as port:
        error = failure(connect, f"http://127.0.0.1:{port}/mcp", reconnect=ONCE)
    assert "write https:// instead of http://" in str(error)


@pytest.mark.parametrize("connect", [*ADAPTERS, on_blocking_httpx])
def test_a_cut_response_is_not_that_of_a_tls_server(connect: Connect) -> None:
    def talk(connection: socket.socket) -> None:
        received = b"?"
        while received and not received.endswith(b"}"):
            received = connection.recv(1000)
        connection.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        )

    with listening(talk) as port:
        error = failure(connect, f"http://127.0.0.1:{port}/mcp", reconnect=ONCE)
    assert "got no response" in str(error)
    assert "TLS" not in str(error)


@pytest.mark.parametrize("connect", ADAPTERS)
def test_a_certificate_that_is_not_trusted(connect: Connect) -> None:
    server, _ = contexts()

    def talk(connection: socket.socket) -> None:
        with server.wrap_socket(connection, server_side=True) as stream:
            stream.recv(1)

    with listening(talk) as port:
        error = failure(connect, f"https://127.0.0.1:{port}/mcp")
    assert "SSL_CERT_FILE" in str(error)
    assert ("verify= of the httpx client" in str(error)) is (connect is on_httpx)


@pytest.mark.parametrize("connect", ADAPTERS)
def test_a_server_that_does_not_run_is_logged_once(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    policy = sansmcp.ReconnectPolicy(initial_delay=0.001, max_delay=0.001, max_attempts=3)
    error = failure(connect, f"http://127.0.0.1:{free_port()}/mcp", reconnect=policy)
    assert len(error.attempts) == 3
    (record,) = [each for each in caplog.records if each.name == "sansmcp"]
    assert record.levelno == logging.WARNING
    assert "cannot be reached" in record.getMessage()
    assert record.getMessage().endswith("; trying again")


@pytest.mark.parametrize("connect", ADAPTERS)
def test_at_the_level_debug_messages_and_retries_are_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    app = sansmcp.App("x", "1")

    @app.handler("tools/list")
    def tools(call: sansmcp.ServerCall) -> dict[str, Any]:
        return {"tools": []}

    with (
        sansmcp_blocking.serve(app, http=("127.0.0.1", 0)) as serving,
        caplog.at_level(logging.DEBUG, logger="sansmcp"),
    ):
        connect(serving.url)
    lines = [record.getMessage() for record in caplog.records if record.name == "sansmcp"]
    (asked,) = [line for line in lines if '"method":"tools/list"' in line]
    assert asked.startswith("client #")
    assert '"_meta":"..."' in asked
    assert any('"tools":[]' in line for line in lines)
