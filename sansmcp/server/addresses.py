"""The address of the client of an HTTP request, if need be as proxies report it.

Every proxy on the way adds the address that it was connected from, to ``X-Forwarded-For`` or to
``Forwarded``. A client can send these headers itself, with any content. So they are read from the
right, the nearest proxy first, and each address is believed only if a trusted proxy has reported
it: the first address that is none of theirs is the client.

Source: RFC 7239; ``X-Forwarded-For`` as nginx, HAProxy and others send it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from ..errors import LocalProtocolError
from ..http import RequestHead

Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address

_FOR = re.compile(r'(?:^|[;,\s])for="?([^",;\s]+)', re.IGNORECASE)
"""The parameter of ``Forwarded`` that names who made the request. Source: RFC 7239 section 4."""
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d+)?|([0-9.]+):\d+")
"""An address with a port, or in brackets. Source: RFC 7239 section 6."""
_MAX_PROXIES = 32
"""The addresses that are read of a request; a chain of more proxies is none that exists."""
_SUBSCRIBER_BITS = 64
"""Whoever has one address of IPv6 has all that begin with the same 64 bits. Source: RFC 6177."""


def parse_networks(networks: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks, such as ``"10.0.0.0/8"``.

    Raises:
        LocalProtocolError: they are one str, or one is neither an address nor a network.
    """
    if isinstance(networks, str):
        raise LocalProtocolError(f"Networks must be a tuple of str, got the str {networks!r}")
    try:
        return tuple(ip_network(network) for network in networks)
    except ValueError as error:
        raise LocalProtocolError(
            f"trusted_proxies takes addresses and networks such as '10.0.0.0/8': {error}"
        ) from None


@lru_cache(maxsize=4)  # the settings of the servers of a process
def trusted_networks(networks: tuple[str, ...]) -> tuple[Network, ...]:
    """Do as ``parse_networks()``, once for each setting."""
    return parse_networks(networks)


def client_address(head: RequestHead, peer: str | None, trusted: tuple[Network, ...]) -> str:
    """Return the address of the client of a request; all of one IPv6 network of 64 bits are one.

    Args:
        head: the head of the request.
        peer: the address at the other end of the connection; None if it has none.
        trusted: the networks of the proxies whose headers are believed.

    Returns:
        The address as text; empty if it is not known.
    """
    address = _parse(peer or "")
    if address is None:
        return peer or ""
    if trusted:
        for reported in _reported(head):
            if not _is_among(address, trusted):
                break
            found = _parse(reported)
            if found is None:  # "unknown", or a name that hides it: only the proxy is known
                break
            address = found
    return _subscriber(address)


def _reported(head: RequestHead) -> Iterator[str]:
    """Yield the addresses that proxies have reported, the nearest proxy's first."""
    values = head.values(b"x-forwarded-for")
    if values:
        found = b",".join(values).decode("latin-1").split(",")
    else:
        found = _FOR.findall(b",".join(head.values(b"forwarded")).decode("latin-1"))
    yield from found[: -_MAX_PROXIES - 1 : -1]


def _parse(text: str) -> Address | None:
    text = text.strip()
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2] or ""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_among(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _subscriber(address: Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    network = int(address) >> _SUBSCRIBER_BITS << _SUBSCRIBER_BITS
    return f"{IPv6Address(network)}/{_SUBSCRIBER_BITS}"
