"""The check of ``Host`` and ``Origin`` that prevents DNS rebinding.

A web page can make the browser on a developer's machine send requests to a server on that same
machine, under a host name of the attacker's. The browser sends that name in ``Host`` and the
origin of the page in ``Origin``, so checking these is enough. The policy is explicit. It is not
derived from the address that a server is bound to, which clients of a proxy do not use.

Source: every revision, basic/transports: Security Warning; CVE-2025-66416, CVE-2025-66414,
CVE-2026-34742.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

import attrs

from .errors import LocalProtocolError, check_type

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in lower case, as they are compared."""
    if isinstance(names, str):  # iterating over it would give a name for each letter
        raise LocalProtocolError(f"Names must be a tuple of str, got the str {names!r}")
    names = tuple(names)
    for name in names:
        check_type(str, name=name)
    return tuple(name.lower() for name in names)


def _without_scheme(policy: object, attribute: object, hosts: tuple[str, ...]) -> None:
    for host in hosts:
        if "/" in host:
            raise LocalProtocolError(f"allowed_hosts takes host names, got the URL {host!r}")


@attrs.frozen(kw_only=True)
class SecurityPolicy:
    """The values of ``Host`` and ``Origin`` that a server accepts; all others get status 403.

    The default accepts only programs and pages on the same machine. For a server behind a public
    name pass ``SecurityPolicy(allowed_hosts=("mcp.example.com",))``.

    Raises:
        LocalProtocolError: the names are one str, a name is not a str, or a host is a URL.
    """

    allowed_hosts: tuple[str, ...] = attrs.field(
        default=LOOPBACK, converter=_names, validator=_without_scheme
    )
    """Host names or addresses, each on any port, or with ``:port`` on that one; ``"*"``
    accepts all.
    """

    allowed_origins: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_names)
    )
    """Origins of web pages, such as ``"https://app.example.com"``; ``"*"`` accepts all, None those
    on the allowed hosts.
    """

    def allows_host(self, host: bytes | None) -> bool:
        """True if requests for this host (the ``Host`` header; None without one) are accepted."""
        return _is_among(self.allowed_hosts, host)

    def allows_origin(self, origin: str | None) -> bool:
        """True if requests of this origin are accepted; None means that no web page sent it."""
        if origin is None:
            return True
        if self.allowed_origins is not None:
            return "*" in self.allowed_origins or origin.lower() in self.allowed_origins
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        is_origin = parts.scheme in ("http", "https") and not (parts.path or parts.query)
        return is_origin and self.allows_host(parts.netloc.encode("latin-1", "replace"))


@lru_cache(maxsize=16)  # clients send the same host with every request
def _is_among(hosts: tuple[str, ...], host: bytes | None) -> bool:
    if "*" in hosts:
        return True
    if host is None:
        return False
    name = host.decode("latin-1").lower()
    return name in hosts or _without_port(name) in hosts


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
