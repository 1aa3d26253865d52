"""What ``authenticate`` is told of a connection under TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

import sansmcp
import sansmcp_blocking
from sansmcp import ConnectionInfo, RequestHead

from ..asyncio.adapter_under_test import AsyncioServers
from ..blocking.adapter_under_test import BlockingServers
from ..tls import show, trust
from ..trio.adapter_under_test import TrioServers

SUBJECTS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioServers("asyncio"),
    "uvloop": lambda: AsyncioServers("uvloop"),
    "trio": TrioServers,
    "blocking": BlockingServers,
}


@pytest.mark.parametrize("adapter", SUBJECTS)
@pytest.mark.parametrize("has_certificate", [True, False])
def test_the_certificate_of_a_client_can_name_it(adapter: str, *, has_certificate: bool) -> None:
    """Native servers had no hook for who is calling."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, authority.issue_cert("127.0.0.1"))
    trust(server, authority)
    server.verify_mode = ssl.CERT_OPTIONAL
    client = ssl.create_default_context()
    trust(client, authority)
    if has_certificate:
        show(client, authority.issue_cert("ada@example.com"))
    app = sansmcp.App("tls", "1")

    @app.handler("tools/call", inline=True)
    def call_tool(call: Any) -> Any:
        return {"who": call.peer.principal}

    def authenticate(head: RequestHead, connection: ConnectionInfo) -> str:
        assert connection.is_tls
        if connection.certificate is None:
            return "nobody"
        (_, name), *_ = connection.certificate["subjectAltName"]
        return str(name)

    running = SUBJECTS[adapter]().serve(
        app, resumable=True, graceful_timeout=0.0, ssl_context=server, authenticate=authenticate
    )
    try:
        with sansmcp_blocking.connect(running.url, ssl_context=client) as connected:
            who = connected.call_tool("x")["who"]
    finally:
        running.stop()
    assert who == ("ada@example.com" if has_certificate else "nobody")
