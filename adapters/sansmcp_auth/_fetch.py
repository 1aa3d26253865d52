"""One HTTP request on a connection of its own, within a time, in the thread of the caller."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing

from sansmcp.addresses import AddressClass, AddressPolicy
from sansmcp.tokens.claims import Undecided
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest

_PIECE = 65536

_POLICY = AddressPolicy(AddressClass.LOOPBACK)
"""The operator has chosen the issuer, which may be in a private network or on this machine. Its
metadata name the other URLs. None of them leads to a link-local address, where clouds keep the
credentials of machines.
"""


def fetch(
    request: FetchRequest, *, ssl_context: ssl.SSLContext | None = None, timeout: float = 10.0
) -> FetchedResponse:
    """Send a request to an authorization server, and return the complete response.

    Redirects are not followed, and proxies are not used. Private addresses and those of this
    machine are allowed; link-local, multicast and unspecified ones are not.

    Args:
        request: the request.
        ssl_context: for https; None for the default, which trusts the authorities of the system.
        timeout: seconds for the whole of it, except for the lookup of the name.

    Raises:
        Undecided: there is no response.
    """
    response = FetchedResponse()
    try:
        addresses = _resolve(request.url.host, request.url.port)
        deadline = time.monotonic() + timeout
        connected = _connect(addresses, request.url.port, deadline)
        with closing(connected):
            if request.url.scheme == "https":
                context = ssl_context or ssl.create_default_context()
                connected = context.wrap_socket(connected, server_hostname=request.url.host)
            with closing(connected):
                connected.sendall(request.encode())
                while not response.is_complete:
                    connected.settimeout(_rest(deadline))
                    response.receive_data(connected.recv(_PIECE))
    except (OSError, UnicodeError, Undecided) as error:  # UnicodeError: a label of the host
        raise Undecided(f"{request.url.shown}: {error}") from error
    return response


def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host that are allowed. Raises OSError if there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if _POLICY.allows(host, address)]
    if not allowed:
        raise OSError(f"no request is sent to {', '.join(addresses)}, a link-local address or such")
    return allowed


def _connect(addresses: list[str], port: int, deadline: float) -> socket.socket:
    """Connect to the first address that accepts."""
    *others, last = addresses
    for address in others:
        try:
            return socket.create_connection((address, port), timeout=_rest(deadline))
        except OSError:
            continue
    return socket.create_connection((last, port), timeout=_rest(deadline))


def _rest(deadline: float) -> float:
    """Return the seconds that are left. Raises TimeoutError if there are none."""
    rest = deadline - time.monotonic()
    if rest <= 0:
        raise TimeoutError("timed out")
    return rest
