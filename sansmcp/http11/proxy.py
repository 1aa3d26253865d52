"""HTTP proxies of a client: which one a URL needs, and the exchanges with it.

A request to an ``http`` URL goes to the proxy itself, with the whole URL in its first line. For an
``https`` URL the proxy is first asked, with ``CONNECT``, to pass bytes on to the server. TLS then
begins inside that connection, so the proxy sees the host and the port and nothing else.

The environment variables are those of curl and most HTTP libraries: ``HTTPS_PROXY``,
``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, or the same in lower case, which win. They are an
argument here; drivers pass ``os.environ``.

Source: RFC 9110, 9.3.6 (CONNECT) and 11.7 (Proxy-Authorization); RFC 9112, 3.2.2 and 3.2.3; RFC
7617 (Basic).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import unquote, urlsplit

import attrs

from ..addresses import AddressClass, classify_address, literal_address
from ..codecs.headers import get_all
from ..codecs.http11_framing import encode_head
from ..errors import LocalProtocolError, RemoteProtocolError
from ..http import ResponseHead, Url
from ..types import Value, escape_controls, hide_credentials
from .message_parser import ResponseParser, parser_of

PROXY_AUTHENTICATION_REQUIRED = 407

# tinyproxy answers 401 to a wrong password, and 407 to none.
_AUTHENTICATION_STATUSES = (401, PROXY_AUTHENTICATION_REQUIRED)

_GATEWAY_STATUSES = range(500, 600)
"""The proxy could not reach the server, which may be possible later."""

_UNSUPPORTED = (405, 501)

_MAX_HEAD_BYTES = 64 * 1024
"""Bytes of the head of the response to CONNECT, as ``Limits.max_head_bytes`` has it, and of all
interim responses before it: a driver would read without end, and some without letting others run.
"""

_WITHOUT_SLASHES = re.compile(r"(https?|socks[0-9]?[ah]?):(?!//).*@", re.DOTALL | re.IGNORECASE)
"""A scheme that would be read as the name of a user: ``socks5:USER:PASSWORD@HOST``."""
_SEPARATORS = re.compile(r"[\s,]+")
_WITH_PORT = re.compile(r"(\[[^\]]*\]|[^:]*):([0-9]{1,5})")


class ProxyRefused(OSError):
    """The proxy did not open the connection, or cannot be used.

    Drivers treat it as any other error of opening a connection.

    Attributes:
        is_permanent: True if another attempt would fail in the same way.
    """

    def __init__(self, message: str, *, is_permanent: bool = True) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Proxy(Value):
    """An HTTP proxy.

    Attributes:
        host: its name or address, without brackets.
        port: its port.
        authorization: the value of the header ``Proxy-Authorization``; None without credentials.
        problem: why it cannot be used; empty if it can.
    """

    host: str
    port: int
    authorization: bytes | None = attrs.field(default=None, repr=False)
    problem: str = ""

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Parse the URL of a proxy: ``http://HOST:PORT``, or ``http://USER:PASSWORD@HOST:PORT``.

        ``http://`` may be left out. User and password are percent-decoded.

        Raises:
            LocalProtocolError: it is no such URL, or a kind of proxy that is not supported. The
                message shows no password.
        """
        if _WITHOUT_SLASHES.match(text):
            raise LocalProtocolError(
                f"Not the URL of a proxy: {hide_credentials(text)!r} has no // after its scheme; "
                "only HTTP proxies are supported: write http://USER:PASSWORD@HOST:PORT"
            )
        shown = hide_credentials(text if "://" in text else f"http://{text}")
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            port = parts.port
        except ValueError:  # its text may contain a password
            raise LocalProtocolError(f"Not the URL of a proxy: {shown!r}") from None
        if parts.scheme == "https":
            raise LocalProtocolError(
                f"TLS to the proxy itself is not supported: {shown!r}; write http:// if the proxy "
                "takes plain connections too, as most do. TLS to the server is not affected"
            )
        if parts.scheme != "http":
            raise LocalProtocolError(
                f"Only HTTP proxies are supported: {shown!r}; write http://HOST:PORT"
            )
        # A "/", "?" or "#" in a password that is not percent-encoded would end the host before it.
        has_more = parts.path not in ("", "/") or "?" in text or "#" in text
        is_text = text.isascii() and text.isprintable() and " " not in text
        if not parts.hostname or has_more or not is_text:
            raise LocalProtocolError(f"Not the URL of a proxy: {shown!r}; write http://HOST:PORT")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = b"Basic " + base64.b64encode(pair.encode())
        return cls(host=parts.hostname, port=port or 80, authorization=authorization)

    @property
    def shown(self) -> str:
        """Its URL for users and logs, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to. Raises ProxyRefused if it cannot be used."""
        if self.problem:
            raise ProxyRefused(self.problem)
        return self.host, self.port

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of requests that the proxy reads."""
        if self.authorization is None:
            return ()
        return ((b"proxy-authorization", self.authorization),)

    def refusal(self, head: ResponseHead, what: str) -> ProxyRefused:
        """Return the error for a response of the proxy itself.

        Args:
            head: the head of its response.
            what: what it was asked for, such as the server's host and port.
        """
        status = head.status
        if status in _AUTHENTICATION_STATUSES:
            text = f"the proxy {self.shown} {self._authentication(head)} (status {status})"
            return ProxyRefused(text)
        if status in _UNSUPPORTED:
            text = f"{self.shown} does not support CONNECT (status {status}): is it an HTTP proxy?"
            return ProxyRefused(text)
        if status in _GATEWAY_STATUSES:
            text = f"the proxy {self.shown} could not reach {what} (status {status})"
            return ProxyRefused(text, is_permanent=False)
        return ProxyRefused(
            f"the proxy {self.shown} does not allow a connection to {what} (status {status}); ask "
            "who runs it, or name the host in NO_PROXY if it can be reached without a proxy"
        )

    def _authentication(self, head: ResponseHead) -> str:
        asked = get_all(head.headers, b"proxy-authenticate")
        named = (value.decode("latin-1").strip().partition(" ")[0] for value in asked)
        schemes = [scheme for scheme in named if scheme]
        if schemes and not any(scheme.lower() == "basic" for scheme in schemes):
            names = escape_controls(", ".join(schemes))[:100]
            return (
                f"asks for {names}, and only Basic is supported; a local proxy that does it for "
                "you, such as cntlm or px, can be named instead"
            )
        where = "its URL: http://USER:PASSWORD@HOST:PORT, percent-encoded"
        if self.authorization is None:
            return f"asks for a user and a password; put them into {where}"
        return f"does not accept the user and password in {where}"


_Network = IPv4Network | IPv6Network


@attrs.frozen(eq=False, repr=False)
class DirectHost(Value):
    """An entry of ``NO_PROXY``: a name with those below it, or a network; and a port, 0 for all."""

    host: str | _Network
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> DirectHost:
        port = 0
        if (found := _WITH_PORT.fullmatch(text)) is not None:
            text, port = found[1], int(found[2])
        host = text.strip("[]")
        try:
            return cls(ip_network(host, strict=False), port)
        except ValueError:
            return cls(host.lower().removeprefix("*").strip("."), port)

    def matches(self, host: str, address: str | None, port: int) -> bool:
        if self.port not in (0, port):
            return False
        if isinstance(self.host, str):
            return bool(self.host) and (host == self.host or host.endswith(f".{self.host}"))
        return address is not None and ip_address(address) in self.host


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Proxies(Value):
    """The proxies of a client, and the hosts that it reaches without one.

    Attributes:
        http: the proxy for ``http`` URLs; None for none.
        https: the proxy for ``https`` URLs; None for none.
        direct: the hosts that are reached without one, beside this machine.
    """

    http: Proxy | None
    https: Proxy | None
    direct: tuple[DirectHost, ...] = ()

    @classmethod
    def of(cls, text: str) -> Proxies:
        """Return one proxy for all hosts but this machine. Raises as :meth:`Proxy.parse` does."""
        proxy = Proxy.parse(text)
        return cls(http=proxy, https=proxy)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Proxies | None:
        """Return the proxies that environment variables name; None if they name none.

        ``ALL_PROXY`` is for the URLs that have no variable of their own. A value that cannot be
        used raises nothing here: connections that need that proxy fail, and say so.

        ``HTTP_PROXY`` in upper case is ignored where ``REQUEST_METHOD`` is set. In a CGI program,
        it would be a header that the client of that program has sent (CVE-2016-5385).
        """

        def value_of(name: str) -> str:
            if name == "http_proxy" and "REQUEST_METHOD" in environment:
                return environment.get(name, "")
            return environment.get(name, environment.get(name.upper(), ""))

        def proxy_of(name: str) -> Proxy | None:
            name = name if value_of(name) else "all_proxy"
            if not (text := value_of(name).strip()):
                return None
            try:
                return Proxy.parse(text)
            except LocalProtocolError as error:
                problem = f"{error.message} (environment variable {name.upper()})"
                return Proxy(host="", port=0, problem=problem)

        http, https = proxy_of("http_proxy"), proxy_of("https_proxy")
        entries = [entry for entry in _SEPARATORS.split(value_of("no_proxy")) if entry]
        if "*" in entries or (http is None and https is None):
            return None
        return cls(http=http, https=https, direct=tuple(map(DirectHost.parse, entries)))

    def proxy_for(self, url: Url) -> Proxy | None:
        """Return the proxy for a URL; None to connect to its host.

        This machine, by a loopback address or a name such as ``localhost``, and Unix sockets are
        never behind a proxy.
        """
        proxy = {"http": self.http, "https": self.https}.get(url.scheme)
        if proxy is None:
            return None
        host = url.host.lower().rstrip(".")
        address = literal_address(host)
        if host == "localhost" or host.endswith(".localhost"):
            return None
        if address is not None and classify_address(address) is AddressClass.LOOPBACK:
            return None
        if any(entry.matches(host, address, url.port) for entry in self.direct):
            return None
        return proxy


class _ConnectParser(ResponseParser):
    """Parses the response to CONNECT, which has no body if it is a success."""

    @property
    def has_more(self) -> bool:
        return bool(self._buffer.waiting)

    def _body_of(self, head: ResponseHead) -> Iterator[bytes]:
        return iter(())  # and the body of a refusal is not read


class Tunnel:
    """The exchange that makes a proxy pass bytes on to a server.

    Send ``request`` to the proxy, and feed what it sends to :meth:`receive_data` until that returns
    True. Then begin TLS with the server on the same connection.
    """

    def __init__(self, proxy: Proxy, url: Url) -> None:
        """``url``: of the server."""
        host = f"[{url.host}]" if ":" in url.host else url.host
        self._proxy, self._target = proxy, f"{host}:{url.port}"
        self._parser = _ConnectParser(parser_of(None).read_response_head, _MAX_HEAD_BYTES)
        self._received = 0
        target = self._target.encode()
        headers = ((b"host", target), *proxy.headers)
        self.request = encode_head(b"CONNECT %b HTTP/1.1" % target, headers)
        """The bytes to send to the proxy."""

    def no_answer(self, seconds: float) -> ProxyRefused:
        """Return the error for a proxy that has not answered for so long."""
        text = f"the proxy {self._proxy.shown} gave no answer to CONNECT in {seconds:g} s"
        return ProxyRefused(text, is_permanent=False)

    def receive_data(self, data: bytes) -> bool:
        """Feed bytes from the proxy; b"" if it has closed the connection.

        Returns:
            True if the connection leads to the server now; False if more bytes are needed.

        Raises:
            ProxyRefused: it does not, or the response is not HTTP/1.1.
        """
        if not data:
            text = f"the proxy {self._proxy.shown} closed the connection instead of an answer"
            raise ProxyRefused(text, is_permanent=False)
        self._parser.receive(data)
        self._received += len(data)
        try:
            head = self._parser.next_part()
        except RemoteProtocolError as error:
            raise ProxyRefused(
                f"{self._proxy.shown} is no HTTP proxy, by its answer: {error.message}"
            ) from None
        if head is None:
            if self._received > _MAX_HEAD_BYTES:
                text = f"the proxy {self._proxy.shown} sent too many interim responses to CONNECT"
                raise ProxyRefused(text)
            return False
        assert isinstance(head, ResponseHead)
        if not 200 <= head.status < 300:
            raise self._proxy.refusal(head, self._target)
        # A server waits for the client to begin TLS, so these bytes are from the proxy itself.
        if self._parser.has_more:
            raise ProxyRefused(f"the proxy {self._proxy.shown} sent bytes after it had connected")
        return True
