"""One HTTP request on a connection of its own, within a time, in the thread of the caller."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing

from sansmcp.addresses import AddressClass, AddressPolicy, literal_address
from sansmcp.http11.proxy import Tunnel
from sansmcp.tokens.claims import Undecided
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest
from sansmcp_local import ENVIRONMENT, client_context, proxies_of, verification_advice

_PIECE = 65536

_POLICY = AddressPolicy(AddressClass.LOOPBACK)
"""The operator has chosen the issuer, which may be in a private network or on this machine. Its
metadata name the other URLs. None of them leads to a link-local address, where clouds keep the
credentials of machines.
"""


def fetch(
    request: FetchRequest,
    *,
    ssl_context: ssl.SSLContext | None = None,
    timeout: float = 10.0,
    proxy: str | None = ENVIRONMENT,
) -> FetchedResponse:
    """Send a request to an authorization server, and return the complete response.

    Redirects are not followed. Private addresses and those of this machine are allowed; link-local,
    multicast and unspecified ones are not. Behind a proxy, which resolves names itself, that counts
    for literal addresses only.

    Args:
        request: the request.
        ssl_context: for https; None for the default, which trusts the authorities of the system.
        timeout: seconds for the whole of it, except for the lookup of the name.
        proxy: the URL of an HTTP proxy for all hosts but this machine; ``"environment"`` for those
            that the environment variables HTTPS_PROXY, ALL_PROXY and NO_PROXY name, as clients read
            them; None for no proxy.

    Raises:
        Undecided: there is no response.
        LocalProtocolError: ``proxy`` is not the URL of an HTTP proxy.
    """
    response, url, proxies = FetchedResponse(), request.url, proxies_of(proxy)
    through = None if proxies is None else proxies.proxy_for(url)
    try:
        if through is None:
            port, addresses = url.port, _allowed(url.host, _resolve(url.host, url.port))
        else:
            _check_literal(url.host)
            host, port = through.address
            addresses = _resolve(host, port)
        deadline = time.monotonic() + timeout
        connected = _connect(addresses, port, deadline)
        with closing(connected):
            if through is not None:
                _open_tunnel(connected, Tunnel(through, url), deadline, timeout)
            if url.scheme == "https":
                context = ssl_context or client_context()
                connected.settimeout(_rest(deadline))
                connected = context.wrap_socket(connected, server_hostname=url.host)
            with closing(connected):
                connected.sendall(request.encode())
                while not response.is_complete:
                    connected.settimeout(_rest(deadline))
                    response.receive_data(connected.recv(_PIECE))
    except ssl.SSLCertVerificationError as error:
        advice = verification_advice(error, "the ssl_context of fetch")
        raise Undecided(f"{url.shown}: {error}; {advice}") from error
    except (OSError, UnicodeError, Undecided) as error:  # UnicodeError: a label of the host
        raise Undecided(f"{url.shown}: {error}") from error
    return response


def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises OSError if there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _check_literal(host: str) -> None:
    """Raise OSError for an address that is not allowed; only the proxy resolves a name."""
    if (address := literal_address(host)) is not None:
        _allowed(host, [address])


def _allowed(host: str, addresses: list[str]) -> list[str]:
    """Return those addresses of a host that are allowed. Raises OSError if there are none."""
    allowed = [address for address in addresses if _POLICY.allows(host, address)]
    if not allowed:
        raise OSError(f"no request is sent to {', '.join(addresses)}, a link-local address or such")
    return allowed


def _open_tunnel(connected: socket.socket, tunnel: Tunnel, deadline: float, timeout: float) -> None:
    """Have a proxy pass bytes on to the server. Raises ProxyRefused, an OSError, if it does not."""
    connected.sendall(tunnel.request)
    try:
        is_open = False
        while not is_open:
            connected.settimeout(_rest(deadline))
            is_open = tunnel.receive_data(connected.recv(_PIECE))
    except TimeoutError:
        raise tunnel.no_answer(timeout) from None


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
