"""Free ports for servers that cannot choose one themselves."""

from __future__ import annotations

import secrets
import socket


def free_port() -> int:
    """One that is free, and that no system gives to a client, or to a server that takes any.

    Two of those who ask at the same time are not likely to get the same.
    """
    while True:
        port = 10_000 + secrets.randbelow(10_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
