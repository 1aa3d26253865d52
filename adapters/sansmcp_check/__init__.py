"""Does an adapter do what an adapter has to do? Checks over real sockets and processes.

The checks play the other side themselves, well and badly. The adapter is given to them as a
*subject*: :class:`ClientUnderTest` or :class:`ServerUnderTest`. With pytest, a file of tests is
this::

    @pytest.mark.parametrize("check", client_checks(), ids=str)
    def test_client(check: Check[ClientUnderTest]) -> None:
        check(MySubject())

A check raises AssertionError, and says which obligation was broken, what was seen, and what to do.
What an adapter does without is named in its ``lacks``; the checks that need it are left out by
``unittest.SkipTest``, with that reason. No check needs more than a loopback interface, and none
lasts longer than a few seconds.
"""

from . import (
    client_calls,
    client_connections,
    client_endings,
    client_stdio,
    client_streams,
    server_calls,
    server_http,
    server_stdio,
    server_stopping,
    server_streams,
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
    """What every client has to do."""
    return checks_in(client_calls, client_streams, client_endings, client_connections, client_stdio)


def server_checks() -> tuple[Check[ServerUnderTest], ...]:
    """What every server has to do."""
    return checks_in(server_calls, server_streams, server_http, server_stopping, server_stdio)


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
