"""Who makes a request: what the application is told to find it out, and what it says.

The machine asks by the effect :class:`~sansmcp.effects.Authenticate`; hosts call the application's
function, an :data:`Authenticator`, and tell the machine what it returns.
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
        raise LocalProtocolError(f"A refusal has a status from 400 to 599, and not {status!r}")


def _is_header(refusal: Refusal, attribute: attrs.Attribute[Any], challenge: object) -> None:
    if challenge is not None and not (
        isinstance(challenge, str) and _CHALLENGE.fullmatch(challenge)
    ):
        raise LocalProtocolError(f"A challenge is visible ASCII, and not {challenge!r}")


@attrs.frozen
class Refusal:
    """What ``authenticate`` returns for a request that is not to be served.

    Attributes:
        status: the HTTP status: 401 where (other) credentials would help, 403 where not.
        message: what the person at the other end is told.
        challenge: the value of ``WWW-Authenticate``; with 401 it is ``Bearer`` if None.
        reason: a short stable word for programs, ``data.reason`` of the JSON-RPC error; if None
            ``"unauthorized"`` with 401, and ``"forbidden"`` otherwise.

    Raises LocalProtocolError for a status below 400, and for a challenge that cannot be sent.
    """

    status: int = attrs.field(default=_UNAUTHORIZED, validator=_refuses)
    message: str = attrs.field(
        default="Send credentials that are valid here", validator=attrs.validators.instance_of(str)
    )
    challenge: str | None = attrs.field(default=None, kw_only=True, validator=_is_header)
    reason: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class PeerCredentials:
    """The process at the other end of a Unix domain socket, as the kernel names it."""

    pid: int
    uid: int
    gid: int


@attrs.frozen(kw_only=True)
class ConnectionInfo:
    """What a server knows of the connection that a request came on.

    Attributes:
        peer: address and port of the other end, which may be a proxy; None if it has none, as with
            Unix domain sockets, or if the HTTP server does not tell.
        is_tls: whether the connection is encrypted by TLS up to this server.
        certificate: the client's certificate, verified, as :meth:`ssl.SSLSocket.getpeercert` gives
            it: ``certificate["subject"]`` names the client. None if there is none.
        credentials: of the process at the other end of a Unix domain socket, where the platform
            tells; None otherwise.
        environ: the scope of ASGI or the environ of WSGI, in which frameworks and middleware leave
            what they have found out; empty where this library speaks HTTP itself.
    """

    peer: tuple[str, int] | None = None
    is_tls: bool = False
    certificate: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    credentials: PeerCredentials | None = None
    environ: Mapping[str, Any] = attrs.field(factory=lambda: MappingProxyType({}), repr=False)


Authenticator: TypeAlias = Callable[
    [RequestHead, ConnectionInfo], str | Refusal | Awaitable[str | Refusal]
]
"""Says who makes a request: returns the principal, a string that is not empty, or a Refusal.

It is called once for each HTTP request, before anything else of it is looked at but ``Host``,
``Origin`` and the size that it announces. A plain function may block: it runs in a thread, as a
plain handler does. What it raises is logged, and the request is answered with status 500.
"""
