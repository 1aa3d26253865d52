"""For tests: fixtures for pytest, and checks that an adapter meets its obligations.

The fixtures are a client and a server of an App, on a simulated network. ``mcp_client(app)``
connects a client to an application, without a socket and in virtual time; ``mcp_server(app, ...)``
makes a server with settings, for several clients; ``mcp_network`` is the network between them, with
faults drawn from a seed. :class:`Client`, :class:`Connect`, :class:`Fault`, :class:`Network`,
:class:`PendingCall`, :class:`Serve` and :class:`Server` are the types of these fixtures, for
annotations.

The checks run over real sockets and processes, and act as the peer, well-behaved or broken. They
get the adapter as a *subject*: a :class:`ClientUnderTest` or a :class:`ServerUnderTest`. This is a
test file with all of them::

    @pytest.mark.parametrize("check", client_checks(), ids=str)
    def test_client(check: Check[ClientUnderTest]) -> None:
        check(MySubject())

A check raises AssertionError with what it observed, and the obligation that the adapter broke.
If an adapter does not support a feature, name it in the subject's ``lacks``; the checks that need
it raise ``unittest.SkipTest`` with that reason. The checks do without pytest, and need only a
loopback interface; each takes a few seconds at most.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._checks import (
        Answer,
        Check,
        ClientUnderTest,
        ConnectedClient,
        Feature,
        Pending,
        Running,
        ServerUnderTest,
        SubjectSettings,
        client_checks,
        server_checks,
        stdio_app,
    )
    from ._client import Client, Connect, PendingCall
    from ._network import Fault, Network
    from ._server import Serve, Server

__all__ = [
    "Answer",
    "Check",
    "Client",
    "ClientUnderTest",
    "Connect",
    "ConnectedClient",
    "Fault",
    "Feature",
    "Network",
    "Pending",
    "PendingCall",
    "Running",
    "Serve",
    "Server",
    "ServerUnderTest",
    "SubjectSettings",
    "client_checks",
    "server_checks",
    "stdio_app",
]

# pytest imports this package in every run, also if no test uses a fixture. So it imports nothing at
# first, not even sansmcp._lazy, with which other packages do this.
_HOMES = {
    "._checks": (
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
    ),
    "._client": ("Client", "Connect", "PendingCall"),
    "._network": ("Fault", "Network"),
    "._server": ("Serve", "Server"),
}


if not TYPE_CHECKING:

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(home, __name__), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
