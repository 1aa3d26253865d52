"""The certificate of a server that is not trusted: what it names, and who has signed it.

The errors of :mod:`ssl` say neither. A second handshake without verification would show the
certificate, but perhaps that of another server, and would need a second way through the proxy. So
the connections of these contexts keep what the failed handshake has received.

OpenSSL before 3.0 keeps no certificate of such a handshake. Contexts that others have made are left
as they are.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any

from sansmcp.types import escape_controls

_ATTRIBUTE = "shown_certificate"
"""The attribute of an SSLCertVerificationError that has the text of :func:`shown_certificate`."""
_MAX_SHOWN = 5
"""Names, and signers, of a certificate in an error; a server can send thousands."""
_MAX_CHARACTERS = 120
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
}
"""The attributes of a name, as OpenSSL prints them."""


class _Socket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        with _certificate_kept(self):
            super().do_handshake(block)


class _Object(ssl.SSLObject):
    def do_handshake(self) -> None:
        with _certificate_kept(self):
            super().do_handshake()


def client_context() -> ssl.SSLContext:
    """Return the default context of the standard library, whose errors know the certificate."""
    context = ssl.create_default_context()
    context.sslsocket_class, context.sslobject_class = _Socket, _Object
    return context


def shown_certificate(error: ssl.SSLCertVerificationError) -> str:
    """Return what the certificate of the server names, and who has signed it; empty if unknown."""
    return str(getattr(error, _ATTRIBUTE, ""))


@contextmanager
def _certificate_kept(connection: ssl.SSLSocket | ssl.SSLObject) -> Generator[None, None, None]:
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        # The certificate is that of a stranger. What cannot be read in it is no other error.
        with suppress(Exception):
            # Public since Python 3.13 is a method of this name that returns undecoded bytes.
            inner: Any = getattr(connection, "_sslobj", None)
            chain = inner.get_unverified_chain()
            setattr(error, _ATTRIBUTE, _shown([each.get_info() for each in chain]))
        raise


def _shown(chain: list[dict[str, Any]]) -> str:
    """Return the text for a chain of certificates, the server's own first."""
    names = [str(value) for _, value in chain[0].get("subjectAltName", ())]
    signers = dict.fromkeys(_name(certificate["issuer"]) for certificate in chain)
    return f"the certificate names {_list(names)}, and is signed by {_list(signers)}"


def _name(attributes: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return the name of a subject or issuer, such as ``O=Example, CN=Root``."""
    pairs = (pair for group in attributes for pair in group)
    return ", ".join(f"{_SHORT_NAMES.get(key, key)}={value}" for key, value in pairs)


def _list(texts: Iterable[str]) -> str:
    """Return some of the texts, cut, without characters that a terminal acts on or hides."""
    quoted = [escape_controls(repr(text[:_MAX_CHARACTERS])) for text in texts]
    more = len(quoted) - _MAX_SHOWN
    return ", ".join(quoted[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "") or "nothing"
