"""Fixtures for pytest: a client and a server of an App, on a simulated network.

``mcp_client(app)`` connects a client to an application, without a socket and in virtual time;
``mcp_server(app, ...)`` makes a server with settings, for several clients; ``mcp_network`` is the
network between them, with faults drawn from a seed. The classes here are the types of these
fixtures, for annotations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._client import Client, Connect, PendingCall
    from ._network import Fault, Network
    from ._server import Serve, Server

__all__ = ["Client", "Connect", "Fault", "Network", "PendingCall", "Serve", "Server"]

# pytest imports this package in every run, also if no test uses a fixture. So it imports nothing at
# first, not even sansmcp._lazy, with which other packages do this.
_HOMES = {
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
