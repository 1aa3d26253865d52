"""Checks of clients: HTTP at a Unix socket."""

from __future__ import annotations

import os
import threading
from typing import Any

from sansmcp.errors import Disconnected
from sansmcp.http import Url

from .adapter_under_test import ClientUnderTest, Feature
from .check import client_check, expect, raises, same, stays_the_same
from .client_calls import by_stream, call_over_http_sse
from .clients import LEGACY, MODERN, call, connected, talking
from .fake_server import SCRIPTS, Exchange, FakeServer, Script, echo, in_turn
from .raw_client import unix_socket
from .server_unix import path_of_a_socket


@client_check(Feature.UNIX)
def unix_sockets_are_reached(subject: ClientUnderTest) -> None:
    """A client speaks HTTP/1.1 with the server at a Unix socket, on a connection that it reuses.

    If Url.socket_path of an OpenExchange is not None, connect with sansmcp_local.connect_unix().
    """
    for version in (LEGACY, MODERN):
        answers: list[Script] = [echo, by_stream] * 3
        scripts = {"tools/call": in_turn(*answers)}
        with path_of_a_socket() as path, FakeServer(scripts, unix=path) as server:
            with connected(subject, server.url, versions=version) as client:
                for number in range(len(answers)):
                    same(call(client, {"n": number}), {"n": number}, "the result")
            same(server.connections, 1, "the connections for consecutive requests")
            same({each.headers["host"] for each in server.exchanges}, {"localhost"}, "the host")
            same({each.target for each in server.exchanges}, {"/mcp"}, "the target")


@client_check(Feature.UNIX)
def unix_sockets_are_kept_after_redirects(subject: ClientUnderTest) -> None:
    """A redirect to a path, or to the host that was sent, leads to the same socket.

    Connect by the URL of each OpenExchange effect.
    """
    for location in ("/other", "http://localhost/other"):

        def redirect(exchange: Exchange, location: str = location) -> None:
            exchange.reply(307, location=location)

        scripts = {"server/discover": in_turn(redirect, SCRIPTS["server/discover"])}
        with (
            path_of_a_socket() as path,
            talking(subject, scripts, versions=MODERN, unix=path) as (client, server),
        ):
            same(call(client, {"a": 1}), {"a": 1}, "the result")
            same(server.exchanges[-1].target, "/other", "the target")


@client_check(Feature.UNIX, Feature.CONCURRENCY)
def unix_sockets_carry_http_sse(subject: ClientUnderTest) -> None:
    """HTTP+SSE (2024-11-05) works at a Unix socket; its endpoint is at the same one.

    Read every response as it arrives, while other requests are sent.
    """
    with path_of_a_socket() as path:
        call_over_http_sse(subject, path)


@client_check(Feature.UNIX)
def unix_sockets_without_a_server(subject: ClientUnderTest) -> None:
    """If no server listens at a Unix socket, the error names the socket and the reason.

    Feed ConnectionLost with the text of the error that the system gives.
    """
    with path_of_a_socket() as path:
        url = str(Url.of_socket(path, "/mcp"))

        def connect() -> None:
            subject.connect(url, request_handlers={}, versions=MODERN, connect_timeout=0.3).close()

        error = raises(Disconnected, connect, "connecting without a server")
        expect(url in str(error) and "No such file" in str(error), f"the error is {error}")


@client_check(Feature.UNIX)
def unix_sockets_of_busy_servers(subject: ClientUnderTest) -> None:
    """A client waits a moment for a server that has not accepted the connections before its own.

    If sansmcp_local.connect_unix() raises BlockingIOError, call it again after each UNIX_DELAYS.
    """

    def discover_and_close(exchange: Exchange) -> None:
        result: dict[str, Any] = {"supportedVersions": [*MODERN], "capabilities": {"tools": {}}}
        exchange.result({"resultType": "complete", **result}, connection="close")

    scripts = {"server/discover": discover_and_close}
    with (
        path_of_a_socket() as path,
        FakeServer(scripts, unix=f"{path}-free") as server,
        unix_socket() as busy,
        unix_socket() as first,
    ):
        os.link(f"{path}-free", path)
        os.link(f"{path}-free", f"{path}-again")
        url = str(Url.of_socket(path, "/mcp"))
        with connected(subject, url, versions=MODERN) as client:
            os.unlink(path)
            busy.bind(path)
            busy.listen(0)
            first.connect(path)
            free = threading.Timer(0.05, os.rename, (f"{path}-again", path))
            free.start()
            same(call(client, {"n": 1}), {"n": 1}, "the result")
            free.join()
        same(server.connections, 2, "the connections")


@client_check(Feature.UNIX)
def unix_sockets_leave_nothing(subject: ClientUnderTest) -> None:
    """A closed client of a Unix socket leaves no thread and no file descriptor."""

    def once() -> None:
        with path_of_a_socket() as path, talking(subject, unix=path) as (client, _):
            call(client)

    stays_the_same(once)
