"""The check of ``Host`` and ``Origin`` that prevents DNS rebinding.

A web page can make the browser on a developer's machine send requests to a server on that same
machine, under a host name of the attacker's. The browser sends that name in ``Host`` and the
origin of the page in ``Origin``, so checking these is enough. The policy is explicit. It is not
derived from the address that a server is bound to, which clients of a proxy do not use.

The policy says, too, if browsers may give the responses to the pages of other origins (CORS).

Source: every revision, basic/transports: Security Warning; CVE-2025-66416, CVE-2025-66414,
CVE-2026-34742.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

import attrs

from .errors import LocalProtocolError, check_type, instance_of_type

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[!\"$-.0->A-~]+")
"""Matches what browsers send in ``Origin``, in lower case: no path, query or fragment."""

_NO_ORIGIN = "null"
"""What browsers send for pages without an origin, such as files and sandboxed frames."""


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


def _without_path(policy: object, attribute: object, origins: tuple[str, ...] | None) -> None:
    for origin in origins or ():
        if origin not in ("*", _NO_ORIGIN) and not _ORIGIN.fullmatch(origin):
            raise LocalProtocolError(
                "allowed_origins takes origins, as browsers send them: scheme, host and port, such "
                f"as 'https://app.example.com', without a slash at the end; got {origin!r}"
            )


@attrs.frozen(kw_only=True)
class SecurityPolicy:
    """The values of ``Host`` and ``Origin`` that a server accepts; all others get status 403.

    The default accepts only programs and pages on the same machine. For a server behind a public
    name pass ``SecurityPolicy(allowed_hosts=("mcp.example.com",))``.

    Raises:
        LocalProtocolError: the names are one str, a name is not a str, a host is a URL, an origin
            is none, or ``cors`` lacks ``allowed_origins``.
    """

    allowed_hosts: tuple[str, ...] = attrs.field(
        default=LOOPBACK, converter=_names, validator=_without_scheme
    )
    """Host names or addresses, each on any port, or with ``:port`` on that one; ``"*"``
    accepts all.
    """

    allowed_origins: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_names), validator=_without_path
    )
    """Origins of web pages, such as ``"https://app.example.com"``; ``"*"`` accepts all, None those
    on the allowed hosts.
    """

    cors: bool = attrs.field(default=False, validator=instance_of_type(bool))
    """Let browsers give the responses to pages of the ``allowed_origins``, which must be listed:
    the server answers preflights, and each response has the headers of CORS. Leave it off where a
    framework or gateway adds them.
    """

    def __attrs_post_init__(self) -> None:
        if self.cors and not self.allowed_origins:
            raise LocalProtocolError(
                "cors=True needs allowed_origins, the origins of the pages that may read responses"
            )
        if self.cors and _NO_ORIGIN in (self.allowed_origins or ()):
            raise LocalProtocolError(
                "With cors=True, 'null' cannot be among allowed_origins: any page can send it, "
                "from a sandboxed frame"
            )

    def allows_host(self, host: bytes | None) -> bool:
        """True if requests for this host (the ``Host`` header; None without one) are accepted."""
        return _is_among(self.allowed_hosts, host)

    def allows_origin(self, origin: str | None) -> bool:
        """True if requests of this origin are accepted; None means that no web page sent it."""
        if origin is None:
            return True
        if self.allowed_origins is not None:
            if "*" in self.allowed_origins:
                return not (self.cors and origin.lower() == _NO_ORIGIN)
            return origin.lower() in self.allowed_origins
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
