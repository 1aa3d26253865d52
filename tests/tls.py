"""Certificates of an authority that nobody else knows."""

from __future__ import annotations

import ssl

import trustme


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server at 127.0.0.1, and of clients that trust it."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.tempfile() as path:
        server.load_cert_chain(path)
    client = ssl.create_default_context()
    client.load_verify_locations(cadata=authority.cert_pem.bytes().decode("ascii"))
    return server, client
