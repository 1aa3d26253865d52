"""The checks of adapters, by what they check: those of clients and those of servers."""

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
