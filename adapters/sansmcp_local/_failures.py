"""Why a connection could not be opened: whether it is worth another attempt, and what to change."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator

import sansmcp
from sansmcp.http import Unsent
from sansmcp.http11.proxy import Proxy, ProxyRefused

from ._certificates import shown_certificate

_NO_NAME = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}
"""The errors of a host name that does not exist; EAI_AGAIN is that of a name server."""
_NO_LISTENER = (errno.ECONNREFUSED, errno.ENOENT)
"""ENOENT is for a Unix socket whose file does not exist."""
_OF_WINDOWS = {
    64: errno.ECONNRESET,
    121: errno.ETIMEDOUT,
    1225: errno.ECONNREFUSED,
    1231: errno.ENETUNREACH,
    1232: errno.EHOSTUNREACH,
}
"""The numbers of connections that failed, where Windows counts them among those of files.

``OSError.errno`` is EINVAL for most of them.
"""
_TEXTS = {
    errno.ECONNREFUSED: "Connection refused",
    errno.ECONNRESET: "Connection reset by peer",
    errno.EHOSTUNREACH: "No route to host",
    errno.ENETUNREACH: "Network is unreachable",
    errno.ETIMEDOUT: "Connection timed out",
}
"""What Linux says. ``os.strerror()`` knows none of them on Windows."""
_NUMBER = re.compile(r"\[Errno (\d+)\]")
_WRONG_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH of OpenSSL."""
_WRONG_TIME = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED."""
_CERTIFICATE_ALERTS = (
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
)
"""The alerts of a server about the certificate of its client. Source: RFC 8446, 6.2."""
_TEMPORARY_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def connect_failure(
    error: BaseException,
    text: str,
    url: str,
    proxy: Proxy | None = None,
    *,
    authorities: str = "ca_file (--ca)",
) -> tuple[str, Unsent]:
    """Return the reason for logs and errors, and what another attempt is good for.

    Args:
        error: what was raised instead of opening a connection. Libraries wrap the errors of the
            system; those are looked for in its causes.
        text: the text of the error.
        url: the URL of the server.
        proxy: the proxy that the connection goes through; None if it is direct.
        authorities: the setting that names authorities to trust.
    """
    reason, unsent = _failure(error, text, sansmcp.Url.parse(url).host, proxy, authorities)
    if proxy is None or isinstance(error, ProxyRefused):
        return reason, unsent
    return f"through the proxy {proxy.shown}: {reason}", unsent


def lost_reason(error: BaseException, text: str) -> tuple[str, Unsent | None]:
    """Return why an open connection was lost, and why nothing of its request has counted, if so.

    A server of TLS 1.3 refuses the certificate of a client after the client's handshake is over,
    and reads nothing that the client has sent.

    Args:
        error: what reading or writing has raised.
        text: the text of the error.
    """
    for cause in _causes(error):
        if (alert := _certificate_alert(cause)) is not None:
            return f"{text}; {alert}", Unsent.PERMANENT
    return text, None


def verification_advice(error: ssl.SSLCertVerificationError, authorities: str) -> str:
    """Return what is known about a certificate that was refused, and what to do about it.

    Args:
        error: what the handshake has raised.
        authorities: the setting that names authorities to trust.
    """
    code = getattr(error, "verify_code", 0)
    if code in _WRONG_NAME:
        advice = "the certificate is for other names: write the name that the server has"
    elif code in _WRONG_TIME:
        advice = "who runs the server has to renew it, or the clock of this machine is wrong"
    else:
        advice = (
            "to trust its authority, name the file with the authority's certificate: "
            f"{authorities}, or the environment variable SSL_CERT_FILE"
        )
    return "; ".join(filter(None, (shown_certificate(error), advice)))


def _certificate_alert(error: BaseException) -> str | None:
    """Return what to do if the server refused the certificate of the client, or has seen none."""
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    if not isinstance(reason, str) or not reason.endswith(_CERTIFICATE_ALERTS):
        return None
    if reason.endswith("CERTIFICATE_REQUIRED"):
        return "the server wants a certificate of the client: name its file in cert (--cert)"
    return "the server refuses the certificate of the client (cert, --cert)"


def _failure(
    error: BaseException, text: str, host: str, proxy: Proxy | None, authorities: str
) -> tuple[str, Unsent]:
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ProxyRefused):
            return text, Unsent.PERMANENT if cause.is_permanent else Unsent.UNREACHABLE
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{text}; {verification_advice(cause, authorities)}", Unsent.PERMANENT
        if (alert := _certificate_alert(cause)) is not None:
            return f"{text}; {alert}", Unsent.PERMANENT
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _TEMPORARY_TLS):
            advice = "if the server does not speak TLS, write http:// instead of https://"
            if proxy is not None:  # it may answer in place of a server that does
                advice = "the server does not speak TLS, or the proxy answers in its place"
            return f"{text}; {advice}", Unsent.PERMANENT
        if isinstance(cause, socket.gaierror) and cause.errno in _NO_NAME:
            name = host if proxy is None else proxy.host
            return f"{text}; no host has the name {name!r}", Unsent.PERMANENT
        if isinstance(cause, UnicodeError):  # such as an empty label
            return text, Unsent.PERMANENT
    numbers = {number for cause in causes for number in _numbers(cause)}
    is_refused = bool(numbers) and numbers.issubset(_NO_LISTENER)
    return text, Unsent.REFUSED if is_refused else Unsent.UNREACHABLE


def number_of(error: OSError) -> int | None:
    """Return the number of a system error, one of :mod:`errno`; None if it has none."""
    return _OF_WINDOWS.get(getattr(error, "winerror", 0) or 0, error.errno)


def text_of(number: int) -> str:
    """Return the text of a system error, which is the same on each platform."""
    return _TEXTS.get(number) or os.strerror(number)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that has led to it."""
    found, seen = [error], set[int]()
    while found:
        each = found.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        inner = (each.__cause__, each.__context__, *getattr(each, "exceptions", ()))
        found += [cause for cause in inner if isinstance(cause, BaseException)]


def _numbers(error: BaseException) -> Iterator[int]:
    """Yield the numbers of a system error; asyncio has those of several addresses in a text."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror | ssl.SSLError):
        number = number_of(error)
        if number is not None:
            yield number
        else:
            yield from map(int, _NUMBER.findall(str(error)))
