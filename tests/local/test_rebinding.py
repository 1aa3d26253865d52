"""A name that leads elsewhere once its address has been checked."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

import sansmcp

from ..asyncio.adapter_under_test import AsyncioClients
from ..blocking.adapter_under_test import BlockingClients
from ..login.protected_server import protected_server
from ..tls import show, trust
from ..trio.adapter_under_test import TrioClients

NAME = "login.rebound.test"
ADAPTERS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioClients("asyncio"),  # uvloop looks names up by itself
    "trio": TrioClients,
    "blocking": BlockingClients,
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_authorization_server_is_looked_up_once_for_each_connection(
    adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection leads to the address that was checked. A second lookup may find another."""
    find, looked_up, connected = socket.getaddrinfo, list[str](), list[str]()

    def found(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        flags = named.get("flags", more[3] if len(more) > 3 else 0)
        if host not in (NAME, NAME.encode()) or flags & socket.AI_NUMERICHOST:
            return find(host, port, *more, **named)
        looked_up.append(NAME)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    authority, client = trustme.CA(), ssl.create_default_context()
    trust(client, authority)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, authority.issue_cert(NAME))
    server.sni_callback = lambda connection, name, context: connected.append(name or "")
    with protected_server(NAME, server) as issuer, protected_server() as protected:
        protected.issuer, protected.tokens = issuer.base, issuer.tokens
        issuer.auth_method = "client_secret_post"
        robot = sansmcp.OAuthClient(client_id="robot", client_secret="s", issuer=issuer.base)
        connection = ADAPTERS[adapter]().connect(
            protected.url,
            request_handlers={},
            ssl_context=client,
            authorization=sansmcp.Authorization(client=robot, grant=sansmcp.ClientCredentials()),
            versions=("2025-11-25",),
            standalone_stream=False,
            proxy=None,
        )
        connection.close()
    assert "/token" in issuer.seen
    assert looked_up == connected != []
