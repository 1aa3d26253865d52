"""Where the HTTP requests of a flow may go: no nearer than the MCP server itself is.

Source: see :mod:`sansmcp.addresses`.
"""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

import attrs

from ..addresses import (
    AddressClass,
    AddressPolicy,
    class_of_name,
    classify_address,
    literal_address,
)
from ..errors import AuthorizationFailed
from .http import AuthRequest, AuthResponse, cut
from .metadata import AuthorizationServer
from .signatures import Signer
from .steps import Fetch, Steps
from .urls import host_of, is_loopback


@attrs.define(eq=False, repr=False)
class Reach:
    """Makes the HTTP requests of a flow, within the reach of the MCP server."""

    endpoint: str
    """The URL of the MCP server."""
    _allowed_hosts: frozenset[str]
    _signer: Signer
    nearest: AddressClass = attrs.field(default=AddressClass.PUBLIC, init=False)
    """The most private class of addresses to which requests may go."""

    @property
    def may_be_public(self) -> bool:
        """True if tokens may be sent to the MCP server, although its address may be public.

        Otherwise they leave this machine without encryption, through networks that the application
        has not said to trust.
        """
        return not self._is_plain or self._is_allowed

    @property
    def _is_plain(self) -> bool:
        """True if what is sent to the MCP server is not encrypted, and leaves this machine."""
        return urlsplit(self.endpoint).scheme == "http" and not is_loopback(self.endpoint)

    @property
    def _is_allowed(self) -> bool:
        """True if the application has listed the MCP server itself in ``allowed_hosts``."""
        return host_of(self.endpoint) in self._allowed_hosts

    def locate(self, peer: str, url: str) -> AuthorizationFailed | None:
        """Record how near the server is, by its address. Return the error if that is not safe.

        Behind a proxy, and with most HTTP libraries, the address is not known: ``peer`` is empty.
        A name may then lead anywhere.
        """
        host = host_of(url)
        literal = "127.0.0.1" if is_loopback(url) else literal_address(host)
        nearest = classify_address(peer or literal or "")
        self.nearest = AddressClass.PUBLIC if nearest is None else nearest
        if not self._is_plain:
            return None
        text = "The server asks for a token over http, where others could read it; use https"
        if nearest is AddressClass.PUBLIC:
            return AuthorizationFailed(text, reason="insecure_endpoint", url=url)
        if nearest is not None or self._is_allowed:
            return None
        text += (
            f". Or list {host} in allowed_hosts if you trust the network between; the "
            "client does not know the address of the host, for example behind a proxy"
        )
        return AuthorizationFailed(text, reason="unknown_address", url=url)

    def check_login(self, server: AuthorizationServer) -> None:
        """Raise if people would open an address that the flow itself may not use.

        A server could have a browser in a private network visit the services of that network.
        """
        url = server.authorization_endpoint or ""
        host = host_of(url)
        nearest, home = self.nearest, host_of(self.endpoint)
        if literal_address(home) is None:
            nearest = min(nearest, class_of_name(home))
        if not AddressPolicy(nearest, self._allowed_hosts).allows_browser(host):
            text = (
                f"Authorization failed: {cut(server.issuer)} has people log in at {host}, which is "
                "in a more private network than the MCP server (allowed_hosts)"
            )
            raise AuthorizationFailed(text, reason="private_address", url=url)

    @property
    def _policy(self) -> AddressPolicy:
        """The addresses that the MCP server may name."""
        return AddressPolicy(self.nearest, self._allowed_hosts)

    def fetch(self, request: AuthRequest, *, is_trusted: bool = False) -> Steps[AuthResponse]:
        """Make an HTTP request; ``is_trusted``: the application has given its URL."""
        host = host_of(request.url)
        policy = self._policy
        if is_trusted:
            policy = attrs.evolve(policy, nearest=AddressClass.LOOPBACK)
        if not policy.allows_literal(host):
            text = f"{host} is in a more private network than the MCP server (allowed_hosts)"
            response = AuthResponse(request, 0)
            raise response.failed(f"cannot be used: {text}", "private_address")
        response = cast("AuthResponse", (yield Fetch(request, policy)))
        self._signer.remember_nonce(request.url, response.headers)
        return response
