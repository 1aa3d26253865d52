"""The common parts of adapters that depend on no event loop.

* Settings: :class:`ConnectOptions`, :class:`DriverOptions`, :class:`ServeOptions`, and
  :func:`explains`, which shows them in ``help()``.
* Machines with the randomness and the clock of this process: :func:`new_client`,
  :func:`client_parts`, :func:`new_server`, :func:`server_parts`.
* The sockets, streams and files of ``serve()``: :func:`serve_plan`, :func:`address_of`,
  :func:`listen`, :func:`listen_unix`, :class:`StandardStreams`, :class:`StateFile`.
* Connections: :func:`pull`, :func:`is_readable`, :func:`connection_info`, :func:`peer_address`,
  :func:`principal_of`, :func:`set_options`, :func:`allowed_addresses`, :func:`connect_unix`.
* Server processes of clients: :class:`ServerProcess`, :class:`ChildProcess`,
  :func:`process_arguments`, :func:`environment_of`, :func:`signal_group`.
* Several servers of a client: :func:`read_servers`, :func:`configured_server`,
  :func:`unique_names`, :class:`ServerGroup`.
* Logging: :func:`announce`, :func:`log_event`, :func:`log_unexpected`.
* Ctrl-C in blocking code: :func:`ki_protected`, :func:`ki_unprotected`, :func:`interrupts_kept`.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._client import ClientParts, ConnectOptions, ConnectSettings, client_parts, new_client
    from ._interrupts import interrupts_kept, ki_protected, ki_unprotected
    from ._listening import BACKLOG, address_of, listen
    from ._log import announce, log_event, log_unexpected
    from ._machine import (
        DriverOptions,
        DriverSettings,
        ServerParts,
        new_server,
        pull,
        server_parts,
    )
    from ._mcp_servers import (
        ConfiguredServer,
        ServerGroup,
        configured_server,
        read_servers,
        unique_names,
    )
    from ._options import explains
    from ._processes import (
        START_ERRORS,
        ChildProcess,
        ServerProcess,
        environment_of,
        process_arguments,
        signal_group,
    )
    from ._serve import Endpoint, ServeOptions, ServePlan, ServeSettings, serve_plan
    from ._sockets import (
        allowed_addresses,
        connection_info,
        is_readable,
        peer_address,
        principal_of,
        set_options,
    )
    from ._state_file import State, StateFile, read_state
    from ._streams import StandardStreams
    from ._unix import UNIX_DELAYS, connect_unix, listen_unix
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._client": (
                "ClientParts",
                "ConnectOptions",
                "ConnectSettings",
                "client_parts",
                "new_client",
            ),
            "._interrupts": ("ki_unprotected", "interrupts_kept", "ki_protected"),
            "._listening": ("BACKLOG", "address_of", "listen"),
            "._log": ("announce", "log_event", "log_unexpected"),
            "._machine": (
                "DriverOptions",
                "DriverSettings",
                "ServerParts",
                "new_server",
                "pull",
                "server_parts",
            ),
            "._mcp_servers": (
                "ConfiguredServer",
                "ServerGroup",
                "configured_server",
                "read_servers",
                "unique_names",
            ),
            "._options": ("explains",),
            "._processes": (
                "START_ERRORS",
                "ChildProcess",
                "ServerProcess",
                "environment_of",
                "process_arguments",
                "signal_group",
            ),
            "._serve": ("Endpoint", "ServeOptions", "ServePlan", "ServeSettings", "serve_plan"),
            "._sockets": (
                "allowed_addresses",
                "connection_info",
                "is_readable",
                "peer_address",
                "principal_of",
                "set_options",
            ),
            "._state_file": ("State", "StateFile", "read_state"),
            "._streams": ("StandardStreams",),
            "._unix": ("UNIX_DELAYS", "connect_unix", "listen_unix"),
        },
    )

__all__ = [
    "BACKLOG",
    "START_ERRORS",
    "UNIX_DELAYS",
    "ChildProcess",
    "ClientParts",
    "ConfiguredServer",
    "ConnectOptions",
    "ConnectSettings",
    "DriverOptions",
    "DriverSettings",
    "Endpoint",
    "ServeOptions",
    "ServePlan",
    "ServeSettings",
    "ServerGroup",
    "ServerParts",
    "ServerProcess",
    "StandardStreams",
    "State",
    "StateFile",
    "address_of",
    "allowed_addresses",
    "announce",
    "client_parts",
    "configured_server",
    "connect_unix",
    "connection_info",
    "environment_of",
    "explains",
    "interrupts_kept",
    "is_readable",
    "ki_protected",
    "ki_unprotected",
    "listen",
    "listen_unix",
    "log_event",
    "log_unexpected",
    "new_client",
    "new_server",
    "peer_address",
    "principal_of",
    "process_arguments",
    "pull",
    "read_servers",
    "read_state",
    "serve_plan",
    "server_parts",
    "set_options",
    "signal_group",
    "unique_names",
]
