"""Which addresses the requests of a flow may be sent to.

A server names the URLs of a flow, and could name services of the client's own network (SSRF). A
check by name is void: a name resolves to several addresses, and to others the next time. So the
driver resolves the name, and connects only to an address that the policy of the request allows.

The most private address allowed is of the same class as the address of the MCP server itself, on
the connection that brought the 401. Link-local addresses, where clouds keep the credentials of
machines, are never allowed.

Source: 2026-07-28, basic/security_best_practices: Server-Side Request Forgery; RFC 6890.
"""

from __future__ import annotations

import enum
import re
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)

import attrs

_COMPATIBLE = IPv6Network("::/96")
_TRANSLATED = (
    IPv6Network("64:ff9b::/96"),  # RFC 6052
    IPv6Network("::ffff:0:0:0/96"),  # RFC 2765
)
"""The addresses of translators whose last bytes are an IPv4 address."""
_LOCAL_TRANSLATED = IPv6Network("64:ff9b:1::/48")
"""The addresses of a network's own translators, after a prefix of any length. Source: RFC 8215."""
_PLACES = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
"""The bytes of the IPv4 address after 48, 56, 64 and 96 bits of prefix. Source: RFC 6052, 2.2."""
_SHARED = IPv4Network("100.64.0.0/10")
_PROTOCOLS = IPv4Network("192.0.0.0/24")
_LOCAL = ("local", "internal")
_BYTES_OF_NUMBERS = {1: 4, 2: 3, 3: 2, 4: 1}
"""The bytes of the last number of an IPv4 address, by the count of its numbers."""
_NUMBERS = {
    16: re.compile("0[xX]0*([0-9a-fA-F]{0,8})"),
    8: re.compile("00*([0-7]{0,11})"),
    10: re.compile("([1-9][0-9]{0,9})"),
}
"""The notations of a number, by their bases; zeros in front do not count."""
_LAST_NUMBER = re.compile("[0-9]+|0[xX][0-9a-fA-F]*")


class AddressClass(enum.IntEnum):
    """How far an address reaches; a higher one is more public."""

    LOOPBACK = 0
    PRIVATE = 1
    PUBLIC = 2


def classify_address(address: str) -> AddressClass | None:
    """Return the class of an IP address; None if nothing of a flow may be sent there.

    None is the result for link-local, multicast and unspecified addresses, and for text that is not
    an address. An IPv4 address within an IPv6 address counts as itself. The properties of
    :mod:`ipaddress` alone do not suffice: on Python 3.10 to 3.13 they call 64:ff9b::7f00:1 and
    ::127.0.0.1 global.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    classes = [_class_of(each) for each in _unwrap(found)]
    return None if None in classes else min(each for each in classes if each is not None)


def _class_of(found: IPv4Address | IPv6Address) -> AddressClass | None:
    if found.is_link_local or found.is_multicast or found.is_unspecified:
        return None
    if found.is_loopback:
        return AddressClass.LOOPBACK
    is_site_local = isinstance(found, IPv6Address) and found.is_site_local
    is_special = found in _SHARED or found in _PROTOCOLS
    is_private = not found.is_global or is_site_local or is_special
    return AddressClass.PRIVATE if is_private else AddressClass.PUBLIC


def _unwrap(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return the IPv4 addresses that an IPv6 address may stand for; other addresses as they are."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.teredo is not None:
        return [address.teredo[1]]
    inner = address.ipv4_mapped or address.sixtofour
    if inner is not None:
        return [inner]
    last = IPv4Address(address.packed[12:])
    if address in _LOCAL_TRANSLATED:
        found = [IPv4Address(bytes(address.packed[place] for place in each)) for each in _PLACES]
        # A place that begins with zero is no address, but a part of the prefix, or what follows it.
        return [each for each in found if each.packed[0]] or [last]
    is_translated = any(address in network for network in _TRANSLATED)
    is_prefixed = is_translated or (address in _COMPATIBLE and int(address) > 1)
    return [last if is_prefixed else address]


@attrs.frozen
class AddressPolicy:
    """The addresses to which one HTTP request may be sent.

    Attributes:
        nearest: the most private class that is allowed.
        allowed_hosts: hosts, in lower case, that may also have more private addresses.
    """

    nearest: AddressClass
    allowed_hosts: frozenset[str] = frozenset()

    def allows(self, host: str, address: str) -> bool:
        """Return whether to connect to an address.

        Args:
            host: the host of the URL.
            address: the IP address to which it was resolved.
        """
        found = classify_address(address)
        if found is None:
            return False
        return found >= self.nearest or host.lower() in self.allowed_hosts

    def allows_browser(self, host: str) -> bool:
        """Return False if a browser that opens ``host`` would go to an address not allowed.

        Browsers resolve names themselves, so a name counts by the networks it is reserved for.
        """
        address = literal_address(host)
        if address is not None:
            return self.allows(host, address)
        is_public = class_of_name(host) >= self.nearest and not _ends_in_number(host)
        return is_public or host.lower() in self.allowed_hosts

    def allows_literal(self, host: str) -> bool:
        """Return False for a host that is an address which is not allowed, in any notation.

        A name is allowed here; the driver decides by its addresses. One that ends in a number is
        none, and what others make of it is not known.
        """
        address = literal_address(host)
        if address is not None:
            return self.allows(host, address)
        return not _ends_in_number(host) or host.lower() in self.allowed_hosts


def class_of_name(host: str) -> AddressClass:
    """Return the class of the addresses that a name is reserved for; PUBLIC if for none.

    Browsers take each name below ``localhost`` for this machine, without asking a resolver. Names
    without a period, and those below ``local``, ``internal`` and ``home.arpa``, are of a local
    network. Source: RFC 6761, 6.3; RFC 6762, 3; RFC 8375; ICANN Board, 2024-07-29, .INTERNAL.
    """
    labels = host.lower().rstrip(".").split(".")
    if labels[-1] == "localhost":
        return AddressClass.LOOPBACK
    is_local = len(labels) == 1 or labels[-1] in _LOCAL or labels[-2:] == ["home", "arpa"]
    return AddressClass.PRIVATE if is_local else AddressClass.PUBLIC


def literal_address(host: str) -> str | None:
    """Return the IP address that a host is, in its usual form; None for a name.

    Resolvers also accept ``2130706433``, ``0x7f.1`` and ``0177.0.0.1`` for 127.0.0.1, and browsers
    ``127.0x.0x.1``. Source: WHATWG URL, 3.5.
    """
    try:
        return str(IPv6Address(host.strip("[]").partition("%")[0]))
    except AddressValueError:
        pass
    numbers = host.rstrip(".").split(".")
    values = [_number(number) for number in numbers]
    if len(values) > 4 or None in values:
        return None
    *first, last = (value or 0 for value in values)
    rest = _BYTES_OF_NUMBERS[len(values)]
    if any(value > 255 for value in first) or last >= 256**rest:
        return None
    whole = sum(value << 8 * (3 - place) for place, value in enumerate(first))
    return str(IPv4Address(whole + last))


def _number(text: str) -> int | None:
    """Return a number as ``inet_aton`` or a browser reads it: decimal, octal or hexadecimal.

    Browsers take ``0x`` alone for 0. None for other text, and for what exceeds all addresses.
    """
    for base, pattern in _NUMBERS.items():
        found = pattern.fullmatch(text)
        if found is not None:
            return int(found[1] or "0", base)
    return None


def _ends_in_number(host: str) -> bool:
    """Return whether a host must be an IPv4 address, and is no name. Source: WHATWG URL, 3.5."""
    return _LAST_NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None
