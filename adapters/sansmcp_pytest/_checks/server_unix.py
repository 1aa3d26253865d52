"""Checks of servers: HTTP at a Unix socket."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from sansmcp.authentication import ConnectionInfo, PeerCredentials
from sansmcp.http import RequestHead, Url

from .adapter_under_test import Feature, ServerUnderTest
from .check import expect, raises, same, server_check, stays_the_same
from .raw_client import RawPeer, unix_socket
from .servers import LEGACY, MODERN, alive, serving
from .tools import Tools


@contextmanager
def path_of_a_socket() -> Generator[str]:
    """Give a short path in a new directory, which no other user can enter."""
    with tempfile.TemporaryDirectory(prefix="check") as directory:
        yield os.path.join(directory, "s")


@server_check(Feature.UNIX)
def unix_sockets_serve_http(subject: ServerUnderTest) -> None:
    """HTTP/1.1 is served at a Unix socket that only the user of the process can use.

    Accept from all sockets of Endpoint.listeners: sansmcp_local.serve_plan() listens at ``unix``.
    """
    with path_of_a_socket() as path, serving(subject, unix=path) as (tools, running):
        same(running.url, str(Url.of_socket(path, "/mcp")), "the URL")
        mode = os.lstat(path).st_mode
        expect(stat.S_ISSOCK(mode), "the path is no socket")
        same(oct(stat.S_IMODE(mode)), "0o600", "the mode of the file")
        tools.go_on.set()
        for version in (LEGACY, MODERN):
            with RawPeer(running.url, version) as peer:
                connection = peer.connect()
                for number in range(3):
                    result = peer.call("echo", {"n": number}, connection)
                    same(result, {"echo": {"n": number}}, "the result")
                    same(peer.call("wait", on=connection), {"done": True}, "a streamed result")


@server_check(Feature.UNIX)
def unix_sockets_know_the_user(subject: ServerUnderTest) -> None:
    """The principal of a client at a Unix socket is its user, without ``authenticate``.

    Set ServerConnection.principal to what sansmcp_local.principal_of() returns.
    """
    known = None
    if sys.platform == "linux":
        known = f"uid:{os.getuid()}"
    with path_of_a_socket() as path, serving(subject, unix=path) as (_, running):
        for version in (LEGACY, MODERN):
            with RawPeer(running.url, version) as peer:
                principal = peer.call("principal")["principal"]
                same(principal, known or principal, "the principal")
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        same(peer.call("principal"), {"principal": ""}, "the principal of a client at a port")


@server_check(Feature.UNIX, Feature.AUTHENTICATION)
def unix_sockets_are_authenticated(subject: ServerUnderTest) -> None:
    """``authenticate`` gets the credentials of a client at a Unix socket, and decides.

    Pass it the result of sansmcp_local.connection_info().
    """
    seen: list[ConnectionInfo] = []

    def authenticate(head: RequestHead, connection: ConnectionInfo) -> str:
        seen.append(connection)
        return "ada"

    with (
        path_of_a_socket() as path,
        serving(subject, unix=path, authenticate=authenticate) as (_, running),
        RawPeer(running.url, MODERN) as peer,
    ):
        same(peer.call("principal"), {"principal": "ada"}, "the principal")
    same({info.peer for info in seen}, {None}, "the address of the client")
    if sys.platform == "linux":
        us = PeerCredentials(os.getpid(), os.getuid(), os.getgid())
        same({info.credentials for info in seen}, {us}, "the credentials of the client")


@server_check(Feature.UNIX)
def unix_sockets_that_are_taken(subject: ServerUnderTest) -> None:
    """The socket of a dead server is replaced; that of another one, or another file, is not.

    Raise the OSError of sansmcp_local.ServePlan.open(), and leave nothing open.
    """
    with path_of_a_socket() as path:
        with unix_socket() as dead:
            dead.bind(path)
        with serving(subject, unix=path) as (_, running):
            alive(running)
            again = raises(OSError, lambda: _serve(subject, path), "serving there a second time")
            expect("A server that runs has this path" in str(again), f"the error is {again}")
            alive(running)
        with open(path, "w") as file:
            file.write("mine")
        raises(FileExistsError, lambda: _serve(subject, path), "serving at a file")
        os.symlink(path, f"{path}-link")
        raises(FileExistsError, lambda: _serve(subject, f"{path}-link"), "serving at a link")
        with open(path) as file:
            same(file.read(), "mine", "the file")
        long = raises(OSError, lambda: _serve(subject, path + "x" * 200), "serving at a long path")
        expect("may have" in str(long), f"the error is {long}")


def _serve(subject: ServerUnderTest, path: str) -> None:
    subject.serve(Tools(subject).app, graceful_timeout=0, unix=path).stop()


@server_check(Feature.UNIX)
def unix_sockets_are_removed(subject: ServerUnderTest) -> None:
    """A stopped server has removed its socket, unless another server has replaced it.

    Leave the block of sansmcp_local.ServePlan.open() at the end.
    """
    with path_of_a_socket() as path:

        def once() -> None:
            with serving(subject, unix=path) as (_, running), RawPeer(running.url, MODERN) as peer:
                peer.call("echo")
            expect(not os.path.lexists(path), "the socket is still there")

        stays_the_same(once)
        with serving(subject, unix=path):
            os.unlink(path)
            with open(path, "w"):
                pass
        expect(os.path.lexists(path), "the file of another program was removed")
