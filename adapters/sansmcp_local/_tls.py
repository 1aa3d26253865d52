"""The TLS context of a client, from the files that its settings name."""

from __future__ import annotations

import os
import ssl
from typing import TypeAlias

import sansmcp

from ._certificates import client_context

FilePath: TypeAlias = str | os.PathLike[str]


def tls_context(
    ssl_context: ssl.SSLContext | None,
    ca_file: FilePath | None,
    cert: FilePath | tuple[FilePath, FilePath] | None,
) -> ssl.SSLContext | None:
    """Return the context for https servers; None for the default one.

    Raises:
        LocalProtocolError: a file cannot be read or has not what is needed, or files are given
            beside a context.
    """
    if ca_file is None and cert is None:
        return ssl_context
    if ssl_context is not None:
        raise sansmcp.LocalProtocolError(
            "ca_file and cert are instead of ssl_context; load them into it, by "
            "load_verify_locations() and load_cert_chain()"
        )
    context = client_context()
    try:
        if ca_file is not None:
            context.load_verify_locations(cafile=ca_file)
    except (OSError, ValueError, TypeError) as error:
        raise sansmcp.LocalProtocolError(
            f"ca_file must be a file of certificates in PEM, got {str(ca_file)!r}: {error}"
        ) from error
    try:
        if cert is not None:
            certfile, keyfile = cert if isinstance(cert, tuple) else (cert, None)
            context.load_cert_chain(certfile, keyfile, _no_password)
    except (OSError, ValueError, TypeError) as error:
        raise sansmcp.LocalProtocolError(
            "cert must be a file with a certificate and its key without a password, in PEM, or a "
            f"pair of such files, got {str(cert)!r}: {error}"
        ) from error
    return context


def _no_password() -> str:
    """Refuse a key that needs a password, for which OpenSSL would ask at the terminal."""
    raise ValueError("the key has a password; decrypt it, or load it into an ssl_context")
