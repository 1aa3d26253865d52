"""Authentication of HTTP requests by a function of the application.

The machine emits the effect :class:`~sansmcp.effects.Authenticate`. The driver calls the
application's function, an :data:`Authenticator`, and reports its result to the machine.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from .errors import LocalProtocolError
from .http import RequestHead

_CHALLENGE = re.compile(r"[!-~][ -~]*")
_STATUSES = range(400, 600)
_UNAUTHORIZED = 401


def _refuses(refusal: Refusal, attribute: attrs.Attribute[int], status: int) -> None:
    if type(status) is not int or status not in _STATUSES:
        raise LocalProtocolError(f"status must be an int from 400 to 599, got {status!r}")


def _is_header(refusal: Refusal, attribute: attrs.Attribute[Any], challenge: object) -> None:
    if challenge is not None and not (
        isinstance(challenge, str) and _CHALLENGE.fullmatch(challenge)
    ):
        raise LocalProtocolError(f"challenge must be visible ASCII, got {challenge!r}")


@attrs.frozen
class Refusal:
    """The return value of ``authenticate`` for a request that must not be served.

    Attributes:
        status: the HTTP status: 401 if (other) credentials would help, 403 if not.
        message: the text of the error, for the user of the client.
        challenge: the value of ``WWW-Authenticate``; None is ``Bearer`` with 401, else none.
        reason: a short stable word for programs, ``data.reason`` of the JSON-RPC error; None is
            ``"unauthorized"`` with 401 and ``"forbidden"`` otherwise.

    Raises:
        LocalProtocolError: ``status`` is not from 400 to 599, or ``challenge`` is not visible
            ASCII.
    """

    status: int = attrs.field(default=_UNAUTHORIZED, validator=_refuses)
    message: str = attrs.field(
        default="Send credentials that are valid here", validator=attrs.validators.instance_of(str)
    )
    challenge: str | None = attrs.field(default=None, kw_only=True, validator=_is_header)
    reason: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class PeerCredentials:
    """The process at the other end of a Unix domain socket, as the kernel reports it."""

    pid: int
    uid: int
    gid: int


@attrs.frozen(kw_only=True)
class ConnectionInfo:
    """The connection on which a request arrived.

    Attributes:
        peer: address and port of the other end, which might be a proxy. None if it has none, as
            with Unix domain sockets, or if the HTTP server does not report them.
        is_tls: True if the connection is encrypted by TLS up to this server.
        certificate: the verified certificate of the client, as :meth:`ssl.SSLSocket.getpeercert`
            returns it: ``certificate["subject"]`` names the client. None if there is none.
        credentials: the process at the other end of a Unix domain socket, if the platform reports
            it; else None.
        environ: the scope of ASGI or the environ of WSGI, with the additions of frameworks and
            middleware; empty if an adapter of this library reads the HTTP itself.
    """

    peer: tuple[str, int] | None = None
    is_tls: bool = False
    certificate: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    credentials: PeerCredentials | None = None
    environ: Mapping[str, Any] = attrs.field(factory=lambda: MappingProxyType({}), repr=False)


Authenticator: TypeAlias = Callable[
    [RequestHead, ConnectionInfo], str | Refusal | Awaitable[str | Refusal]
]
"""Authenticates a request: returns the principal, a non-empty string, or a Refusal.

It is called once for each HTTP request, after the checks of ``Host``, ``Origin`` and the announced
size, and before all others. A plain function can block: it runs in a thread, as a plain handler
does. If it raises, the exception is logged and the HTTP response has status 500.
"""
