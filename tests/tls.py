"""Certificates of a private authority."""

from __future__ import annotations

import ssl

import trustme

from sansmcp import ReconnectPolicy

ONCE = ReconnectPolicy(max_attempts=0)
"""For clients that must be refused: another attempt would fail alike."""

PUBLIC = ssl.create_default_context()
"""What clients of httpx create for themselves otherwise, in 24 ms each."""


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server at 127.0.0.1, and of clients that trust it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, authority.issue_cert("127.0.0.1"))
    client = ssl.create_default_context()
    trust(client, authority)
    return server, client


def show(context: ssl.SSLContext, certificate: trustme.LeafCert) -> None:
    """Use it as the certificate of a context."""
    with certificate.private_key_and_cert_chain_pem.tempfile() as path:
        context.load_cert_chain(path)


def trust(context: ssl.SSLContext, authority: trustme.CA) -> None:
    """Accept certificates that the authority has signed."""
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode("ascii"))
