"""Certificates of an authority that nobody else knows."""

from __future__ import annotations

import ssl

import trustme

from sansmcp import ReconnectPolicy

ONCE = ReconnectPolicy(max_attempts=0)
"""For clients that are to be refused: another attempt gives the same answer."""


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server at 127.0.0.1, and of clients that trust it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, authority.issue_cert("127.0.0.1"))
    client = ssl.create_default_context()
    trust(client, authority)
    return server, client


def show(context: ssl.SSLContext, certificate: trustme.LeafCert) -> None:
    """Make it what a side shows its peers."""
    with certificate.private_key_and_cert_chain_pem.tempfile() as path:
        context.load_cert_chain(path)


def trust(context: ssl.SSLContext, authority: trustme.CA) -> None:
    """Accept what the authority has signed."""
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode("ascii"))
