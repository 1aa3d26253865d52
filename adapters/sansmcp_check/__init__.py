"""Checks that an adapter meets its obligations, over real sockets and processes.

The checks act as the peer, well-behaved or broken. They get the adapter as a *subject*: a
:class:`ClientUnderTest` or a :class:`ServerUnderTest`. With pytest, write this test file::

    @pytest.mark.parametrize("check", client_checks(), ids=str)
    def test_client(check: Check[ClientUnderTest]) -> None:
        check(MySubject())

A check raises AssertionError with what it observed, and the obligation that the adapter broke.
If an adapter does not support a feature, name it in the subject's ``lacks``; the checks that need
it raise ``unittest.SkipTest`` with that reason. The checks need only a loopback interface, and each
takes a few seconds at most.
"""

from . import (
    client_calls,
    client_connections,
    client_endings,
    client_stdio,
    client_stdio_v2,
    client_streams,
    client_unix,
    server_calls,
    server_http,
    server_stdio,
    server_stdio_v2,
    server_stopping,
    server_streams,
    server_unix,
)
from .adapter_under_test import (
    Answer,
    ClientUnderTest,
    ConnectedClient,
    Feature,
    Pending,
    Running,
    ServerUnderTest,
    SubjectSettings,
)
from .check import Check, checks_in
from .tools import stdio_app


def client_checks() -> tuple[Check[ClientUnderTest], ...]:
    """Return the checks that every client has to pass."""
    return checks_in(
        client_calls,
        client_streams,
        client_endings,
        client_connections,
        client_stdio,
        client_stdio_v2,
        client_unix,
    )


def server_checks() -> tuple[Check[ServerUnderTest], ...]:
    """Return the checks that every server has to pass."""
    return checks_in(
        server_calls,
        server_streams,
        server_http,
        server_stopping,
        server_stdio,
        server_stdio_v2,
        server_unix,
    )


__all__ = [
    "Answer",
    "Check",
    "ClientUnderTest",
    "ConnectedClient",
    "Feature",
    "Pending",
    "Running",
    "ServerUnderTest",
    "SubjectSettings",
    "client_checks",
    "server_checks",
    "stdio_app",
]
