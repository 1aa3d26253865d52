"""Authentication of HTTP requests by a function of the application.

The machine emits the effect :class:`~sansmcp.effects.Authenticate`. The driver calls the
application's function, an :data:`Authenticator`, and reports its result to the machine.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from .errors import LocalProtocolError, check_delay, check_type
from .http import RequestHead
from .types import Value

_BEARER = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]{1,16384}=*)")
"""Longer tokens would not fit into the heads that web servers accept."""
_DPOP = re.compile(rb"(?i:dpop) +([A-Za-z0-9._~+/-]{1,16384}=*)")
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


def _is_delay(refusal: Refusal, attribute: object, seconds: int | None) -> None:
    check_type((int, NoneType), retry_after=seconds)
    check_delay(retry_after=seconds)


def _checked_principal(access: Access, attribute: object, principal: Any) -> None:
    if not isinstance(principal, str) or not principal:
        raise LocalProtocolError(
            f"principal must be a str that is not empty, and is {type(principal).__name__}"
        )


def _frozen(scopes: Iterable[str]) -> frozenset[str]:
    if isinstance(scopes, str):  # iterating over it would give a scope for each letter
        raise LocalProtocolError(f"scopes must be a set of str, got the str {scopes!r}")
    return frozenset(scopes)


def _check_expiry(access: Access, attribute: object, seconds: float | None) -> None:
    check_delay(expires_in=seconds)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class DpopProof(Value):
    """What a DPoP proof says whose signature ``authenticate`` has verified.

    The function has verified, too, that the proof is for the access token (``ath``), and made with
    the key to which the token is bound. The server compares the rest with the request, and accepts
    each proof once.

    Attributes:
        thumbprint: the thumbprint of the key (RFC 7638), ``cnf.jkt`` of the access token.
        method: the HTTP method, ``htm``.
        url: the URL of the request, ``htu``.
        id: the name of the proof, ``jti``.
        age: seconds since the proof was made (``iat``) by the clock of this machine; negative if
            the clock of the client is ahead.
        nonce: the nonce of the server; None if the proof has none.

    Source: RFC 9449, 4.2.
    """

    thumbprint: str
    method: str
    url: str
    id: str
    age: float
    nonce: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(eq=False, repr=False)
class Access(Value):
    """The return value of ``authenticate`` for a request that may be served.

    Attributes:
        principal: the user. Sessions, streams and states belong to a principal and are hidden from
            all others.
        scopes: the scopes that the request has; handlers may need some (:meth:`App.handler`).
        expires_in: seconds until the credentials expire; None if they do not. Event streams of the
            request end then, so that the client reconnects with new credentials.
        proof: the DPoP proof of a request whose access token is bound to a key. It needs the
            setting ``protected_resource``.

    Raises:
        LocalProtocolError: ``principal`` is empty or no str, ``scopes`` is a str, or ``expires_in``
            is negative.
    """

    principal: str = attrs.field(validator=_checked_principal)
    scopes: frozenset[str] = attrs.field(default=frozenset[str](), converter=_frozen)
    expires_in: float | None = attrs.field(default=None, kw_only=True, validator=_check_expiry)
    proof: DpopProof | None = attrs.field(default=None, kw_only=True)


@attrs.frozen(eq=False, repr=False)
class Refusal(Value):
    """The return value of ``authenticate`` for a request that must not be served.

    Attributes:
        status: the HTTP status: 401 if (other) credentials would help, 403 if not.
        message: the text of the error, for the user of the client.
        challenge: the value of ``WWW-Authenticate``; None is ``Bearer`` with 401, else none. With
            the setting ``protected_resource``, ``Bearer`` names its metadata.
        reason: a short stable word for programs, ``data.reason`` of the JSON-RPC error; None is
            ``"unauthorized"`` with 401 and ``"forbidden"`` otherwise.
        retry_after: seconds after which the client should try again, for status 503; None sends
            none.

    Raises:
        LocalProtocolError: ``status`` is not from 400 to 599, ``challenge`` is not visible ASCII,
            or ``retry_after`` is no int or negative.
    """

    status: int = attrs.field(default=_UNAUTHORIZED, validator=_refuses)
    message: str = attrs.field(
        default="Send credentials that are valid here", validator=attrs.validators.instance_of(str)
    )
    challenge: str | None = attrs.field(default=None, kw_only=True, validator=_is_header)
    reason: str | None = attrs.field(default=None, kw_only=True)
    retry_after: int | None = attrs.field(default=None, kw_only=True, validator=_is_delay)


@attrs.frozen(eq=False, repr=False)
class PeerCredentials(Value):
    """The process at the other end of a Unix domain socket, as the kernel reports it.

    Attributes:
        pid: the id of the process; None on systems that report only its user (macOS, FreeBSD).
        uid: the id of its user.
        gid: the id of its first group.
    """

    pid: int | None
    uid: int
    gid: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConnectionInfo(Value):
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
    [RequestHead, ConnectionInfo], str | Access | Refusal | Awaitable[str | Access | Refusal]
]
"""Authenticates a request: returns its Access, or a Refusal.

A str that is not empty is short for the Access of that principal, without scopes.

It is called once for each HTTP request, after the checks of ``Host``, ``Origin`` and the announced
size, and before all others. A plain function can block: it runs in a thread, as a plain handler
does. If it raises, the exception is logged and the HTTP response has status 500. An object that has
a method ``find_known`` is asked there first: see :class:`KnowingAuthenticator`.
"""


@runtime_checkable
class KnowingAuthenticator(Protocol):
    """An :data:`Authenticator` that knows some outcomes without waiting, such as those in a cache.

    An event loop then needs no thread for these requests, and they do not wait for a free one.
    """

    def find_known(self, head: RequestHead, connection: ConnectionInfo) -> Access | Refusal | None:
        """Return the outcome if it is known; None to call the object itself. Must not block."""
        ...


def bearer_token(head: RequestHead) -> str | None:
    """Return the access token in ``Authorization``; None if there is none, or not exactly one.

    Source: RFC 6750 section 2.1; every revision, basic/authorization: Access Token Usage.
    """
    return _token(_BEARER, head)


def dpop_token(head: RequestHead) -> str | None:
    """Return the access token that is sent with a DPoP proof; None as in :func:`bearer_token`.

    Source: RFC 9449, 7.1.
    """
    return _token(_DPOP, head)


def _token(scheme: re.Pattern[bytes], head: RequestHead) -> str | None:
    values = head.values(b"authorization")
    found = scheme.fullmatch(values[0].strip(b" \t")) if len(values) == 1 else None
    return None if found is None else found[1].decode()
