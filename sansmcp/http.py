"""HTTP at the level of message parts: heads, pieces of body, ends.

Other HTTP stacks connect here. An HTTP message is a head, any number of pieces of its body, and its
end or the loss of the connection. These parts are the same for a raw socket
(:mod:`sansmcp.http11`), for ASGI and for an HTTP client library. An *exchange* is one HTTP request
and its HTTP response.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote, unquote, urljoin, urlsplit

import attrs

from .codecs.headers import Headers, by_name
from .errors import LocalProtocolError
from .types import FastEnum, Value, elide, hide_credentials, hide_secrets

_PLAIN_PATH = re.compile(rb"[A-Za-z0-9_.~/-]*")
"""A path without a character that could need an escape."""

_HARMLESS_HEADERS = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"allow",
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"date",
        b"expect",
        b"host",
        b"keep-alive",
        b"mcp-method",
        b"mcp-protocol-version",
        b"origin",
        b"retry-after",
        b"server",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"user-agent",
        b"vary",
        b"x-accel-buffering",
    )
)
"""The headers whose values a ``repr`` shows. Any other might carry a credential."""

COOKIE_HEADERS = frozenset((b"cookie", b"set-cookie"))
"""The headers that carry cookies. No recording has them."""


def _show_headers(headers: Headers) -> str:
    shown = (
        (name, value if name in _HARMLESS_HEADERS else f"<hidden, {len(value)} bytes>")
        for name, value in headers
    )
    return repr(tuple(shown))


def _show_target(target: bytes) -> str:
    return repr(hide_secrets(target.decode("latin-1")).encode("latin-1"))


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RequestHead(Value):
    """The head of an HTTP request.

    Its ``repr`` shows the names of all headers, the values of those that are known to be harmless,
    and the target with possible credentials removed.

    Attributes:
        method: e.g. ``b"POST"``.
        target: path and query, as on the request line, without ``root``.
        headers: name and value pairs, names in lower case.
        principal: the user that the driver has authenticated; empty without authentication.
            Sessions and stored streams belong to a principal and are hidden from all others.
        scopes: the scopes that the driver has found the request to have.
        is_bound: True if the access token of the request is bound to a key, with which the client
            has made a proof for it (DPoP).
        root: the path under which the server is mounted in a larger application, and which clients
            put in front of its paths; empty if it is not mounted.
    """

    method: bytes
    target: bytes = attrs.field(repr=_show_target)
    headers: Headers = attrs.field(repr=_show_headers)
    principal: str = ""
    scopes: frozenset[str] = frozenset()
    is_bound: bool = attrs.field(default=False, repr=False)
    root: bytes = b""
    _by_name: Mapping[bytes, Sequence[bytes]] = attrs.field(
        default=attrs.Factory(lambda self: by_name(self.headers), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def values(self, name: bytes) -> Sequence[bytes]:
        """Return the values of all headers of a lower-case name, in their order."""
        return self._by_name.get(name, ())

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    def address_of(self, path: bytes) -> str:
        """Return a path of the server as clients must request it, with ``root`` in front."""
        return (self.root + path).decode()


class RequestHeaders(Mapping[str, str]):
    """The headers of an HTTP request, by their names in lower case; looked up in any case.

    Several values of one name are joined by commas, as RFC 9110 section 5.3 allows;
    :meth:`values_of` gives each of them. The ``repr`` shows names only: many values are secrets.
    """

    def __init__(self, head: RequestHead | None) -> None:
        self._headers: Mapping[bytes, Sequence[bytes]] = by_name(
            () if head is None else head.headers
        )

    def __getitem__(self, name: str) -> str:
        if not (values := self.values_of(name)):
            raise KeyError(name)
        return ", ".join(values)

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def __repr__(self) -> str:
        return f"<headers: {', '.join(self)}>"

    def values_of(self, name: str) -> tuple[str, ...]:
        """Return the values of all headers of a name, in their order."""
        values = self._headers.get(name.lower().encode("latin-1", "replace"), ())
        return tuple(value.decode("latin-1") for value in values)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ResponseHead(Value):
    """The head of an HTTP response.

    Its ``repr`` shows the values of those headers that are known to be harmless.

    Attributes:
        status: the status.
        headers: name and value pairs, names in lower case.
        peer: the IP address at the other end of a client's connection, which limits the addresses
            that its authorization may use; empty if it is not known.
    """

    status: int
    headers: Headers = attrs.field(default=(), repr=_show_headers)
    peer: str = ""


@attrs.frozen(eq=False, repr=False)
class BodyData(Value):
    """A piece of a body. Pieces can end anywhere."""

    data: bytes = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class BodyEnd(Value):
    """The body is complete."""


class Unsent(FastEnum):
    """Why no byte of an HTTP request was sent."""

    UNREACHABLE = enum.auto()
    """No connection could be opened, or the one that was open took no byte."""
    REFUSED = enum.auto()
    """The system of the server refused the connection: no process listens there."""
    PERMANENT = enum.auto()
    """Another attempt would fail in the same way, e.g. because the certificate is not trusted."""


@attrs.frozen(eq=False, repr=False)
class ConnectionLost(Value):
    """The connection broke, was closed before the body was complete, or could not be opened.

    Attributes:
        reason: text for logs and errors.
        unsent: why no byte of the request was sent; None if the peer may have received some of it.
            A client repeats a request of which nothing was sent.
    """

    reason: str = "connection lost"
    unsent: Unsent | None = None


RequestPart: TypeAlias = RequestHead | BodyData | BodyEnd | ConnectionLost
ResponsePart: TypeAlias = ResponseHead | BodyData | BodyEnd | ConnectionLost


@attrs.frozen
class Url:
    """The URL of an HTTP request.

    The scheme ``http+unix`` is HTTP over a Unix socket. The percent-encoded path of the socket
    stands where other URLs have the host: ``http+unix://%2Frun%2Fmcp.sock/mcp``.

    Attributes:
        scheme: ``"http"``, ``"https"`` or ``"http+unix"``.
        host: name or address, without brackets; or the path of a Unix socket, percent-encoded.
        port: the port, never missing; 0 for a Unix socket.
        target: path and query.
        authority: the value of the ``Host`` header; ``localhost`` for a Unix socket.
    """

    scheme: str
    host: str
    port: int
    target: str = attrs.field(default="/", repr=lambda target: repr(hide_secrets(target)))
    authority: str = attrs.field(
        default=attrs.Factory(lambda self: _authority(self), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )
    _text: str = attrs.field(
        default=attrs.Factory(lambda self: _text(self), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    @classmethod
    def of_socket(cls, path: str, target: str) -> Url:
        """Return the URL for a target at the Unix socket with an absolute path."""
        return cls(_UNIX, quote(path, "", errors="surrogateescape"), 0, target)

    @classmethod
    @lru_cache(maxsize=16)  # a client requests the same one again and again
    def parse(cls, text: str) -> Url:
        """Parse ``http://host:port/path?query``, or the URL of a Unix socket.

        Raises:
            LocalProtocolError: another scheme, a missing host, a bad port, a socket without an
                absolute path, a user name or password (which would get into logs), or a character
                that URLs must not have. The message shows neither credentials nor the query.
        """
        shown = hide_credentials(text)
        try:
            parts = urlsplit(text)
            is_unix = parts.scheme == _UNIX
            port = None if is_unix else parts.port
        except ValueError:  # its text may contain a password
            raise LocalProtocolError(
                f"Not a URL: {shown!r}: the host or port is malformed"
            ) from None
        if not is_unix and (parts.scheme not in _DEFAULT_PORTS or not parts.hostname):
            raise LocalProtocolError(
                f"Not an http or https URL: {shown!r}; write http://HOST:PORT/PATH"
            )
        if "@" in parts.netloc:
            raise LocalProtocolError(
                "A URL must not contain a user name or password: send a header instead"
            )
        if not text.isascii() or not text.isprintable() or " " in text:
            raise LocalProtocolError(
                f"Not a URL: {shown!r}: percent-encode what is not visible ASCII"
            )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if is_unix:
            return cls.of_socket(_path_of_socket(parts.netloc, shown), target)
        host = parts.hostname or ""
        return cls(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], target)

    def join(self, reference: str) -> Url:
        """Resolve a reference, such as a ``Location`` header. Raises as :meth:`parse` does."""
        # Servers know a Unix socket by the Host that was sent, so their URLs have that.
        base = attrs.evolve(_BEHIND_SOCKET, target=self.target) if self.scheme == _UNIX else self
        try:
            text = urljoin(str(base), reference)
        except ValueError:
            shown = hide_credentials(reference)
            raise LocalProtocolError(
                f"Not a URL: {shown!r}: the host or port is malformed"
            ) from None
        url = Url.parse(text)
        is_here = url.origin == base.origin
        return attrs.evolve(self, target=url.target) if is_here else url

    @property
    def socket_path(self) -> str | None:
        """The path of a Unix socket, as :func:`os.fsdecode` gives it; None for other schemes."""
        return unquote(self.host, errors="surrogateescape") if self.scheme == _UNIX else None

    @property
    def is_local(self) -> bool:
        """True if the server is on this machine, by the form of the host alone."""
        is_loopback = self.host in ("localhost", "::1") or self.host.startswith("127.")
        return is_loopback or self.scheme == _UNIX

    @property
    def shown(self) -> str:
        """This URL for users and logs, with possible credentials removed."""
        return hide_secrets(self._text)

    @property
    def origin(self) -> tuple[str, str, int]:
        """The origin: scheme, host and port."""
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        return self._text


_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNIX = "http+unix"


def quoted_path(path: bytes) -> bytes:
    """Encode a path that an HTTP stack has decoded, as on a request line.

    Source: RFC 3986 section 3.3.
    """
    return path if _PLAIN_PATH.fullmatch(path) else quote(path, "/!$&'()*+,;=:@").encode()


def _authority(url: Url) -> str:
    if url.scheme == _UNIX:
        return "localhost"
    host = f"[{url.host}]" if ":" in url.host else url.host
    return host if url.port == _DEFAULT_PORTS[url.scheme] else f"{host}:{url.port}"


def _text(url: Url) -> str:
    host = url.host if url.scheme == _UNIX else url.authority
    return f"{url.scheme}://{host}{url.target}"


def _path_of_socket(host: str, shown: str) -> str:
    """Return the path of a Unix socket in a URL. Raises LocalProtocolError."""
    path = unquote(host, errors="surrogateescape")
    if ":" in host or not path.startswith("/") or "\0" in path:
        raise LocalProtocolError(
            f"Not the URL of a Unix socket: {shown!r}; percent-encode the absolute path of the "
            "socket, slashes too: http+unix://%2Frun%2Fmcp.sock/mcp"
        )
    return path


_BEHIND_SOCKET = Url("http", "localhost", 80)
"""The server at a Unix socket, as it knows itself."""


def request_host(head: RequestHead) -> bytes | None:
    """Return the host (and port) of a request; None if it is missing or ambiguous."""
    if not head.target.startswith(b"/"):
        return None
    hosts = head.values(b"host")
    return hosts[0].strip().lower() if len(hosts) == 1 else None
