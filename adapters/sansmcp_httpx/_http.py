"""Conversion of HTTP requests and responses from and to those of httpx and httpx2.

Both libraries have the same interface. Which one is used follows from the client that was given, so
neither is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Generator
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import sansmcp
from sansmcp.effects import OpenExchange
from sansmcp.http import Unsent
from sansmcp_local import connect_failure

if TYPE_CHECKING:
    from sansmcp.http import ResponsePart

_LIBRARIES = ("httpx", "httpx2")

_AUTHORITIES = "the ssl_context that verify= of the httpx client takes"
"""The setting that names authorities to trust."""

_POOL_TIMEOUT = 30.0
"""Seconds that a request waits for a connection if the HTTP client has no pool timeout."""


class BuildsRequests(Protocol):
    """What the clients of httpx and httpx2 have in common, asynchronous or not."""

    @property
    def timeout(self) -> Any:
        """The timeouts of the client."""

    @property
    def is_closed(self) -> bool:
        """True if the client was closed."""
        ...

    def build_request(
        self, method: str, url: Any, *, content: Any, headers: Any, timeout: Any
    ) -> Any:
        """Return a request with the settings of the client."""


class AsyncHttpClient(BuildsRequests, Protocol):
    """An ``httpx.AsyncClient`` or ``httpx2.AsyncClient``."""

    def send(
        self, request: Any, *, stream: bool, auth: Any, follow_redirects: Any
    ) -> Coroutine[Any, Any, Any]:
        """Send a request, and return its response when the head has arrived."""
        ...


class HttpClient(BuildsRequests, Protocol):
    """An ``httpx.Client`` or ``httpx2.Client``."""

    def send(self, request: Any, *, stream: bool, auth: Any, follow_redirects: Any) -> Any:
        """Send a request, and return its response when the head has arrived."""


def library_of(url: object, http: object, kind: Literal["Client", "AsyncClient"]) -> ModuleType:
    """Return the library of an HTTP client: httpx or httpx2.

    Raises LocalProtocolError unless ``url`` is a str and ``http`` a client of that kind.
    """
    if not isinstance(url, str):
        raise sansmcp.LocalProtocolError(
            f"url must be a str, got {url!r}; httpx starts no processes"
        )
    if "://" in url and sansmcp.Url.parse(url).socket_path is not None:
        raise sansmcp.LocalProtocolError(
            "httpx takes the path of a Unix socket in its transport: give the HTTP client "
            "transport=HTTPTransport(uds=PATH), or AsyncHTTPTransport, and use the URL "
            f"http://localhost{sansmcp.Url.parse(url).target}"
        )
    for name in _LIBRARIES:
        library = sys.modules.get(name)
        if library is not None and isinstance(http, getattr(library, kind)):
            return library
    raise sansmcp.LocalProtocolError(
        f"http must be an httpx.{kind} or httpx2.{kind}, got {http!r:.100}"
    )


def timeouts(library: ModuleType, http: BuildsRequests, read: float | None) -> Any:
    """Return the timeouts of the HTTP client, except for ``read``, in seconds; None for none."""
    own = http.timeout
    pool = _POOL_TIMEOUT if own.pool is None else own.pool
    return library.Timeout(connect=own.connect, read=read, write=own.write, pool=pool)


def request_of(
    library: ModuleType, http: BuildsRequests, effect: OpenExchange, read: float | None
) -> Any:
    """Return the request of an effect, with the HTTP client's timeouts, except for ``read``."""
    limits = timeouts(library, http, read)
    method, headers = effect.head.method.decode(), list(effect.head.headers)
    content = effect.body or None
    if effect.address_policy is not None:  # without the headers and cookies of the HTTP client
        extensions = {"timeout": limits.as_dict()}
        return library.Request(
            method, effect.url, headers=headers, content=content, extensions=extensions
        )
    return http.build_request(method, effect.url, headers=headers, content=content, timeout=limits)


def auth_of(library: ModuleType, effect: OpenExchange) -> Any:
    """Return the ``auth`` argument of ``send()``: that of the HTTP client.

    Requests of the authorization have credentials of their own, or none.
    """
    return library.USE_CLIENT_DEFAULT if effect.address_policy is None else None


def head_of(response: Any) -> sansmcp.ResponseHead:
    """Return the head of a response.

    The address at the other end may be that of a proxy, which httpx does not say, so none is given.
    """
    headers = tuple((name.lower(), value) for name, value in response.headers.raw)
    return sansmcp.ResponseHead(status=response.status_code, headers=headers)


def connection_lost_from(
    library: ModuleType,
    http: BuildsRequests,
    error: Exception,
    url: str,
    *,
    is_answered: bool = False,
) -> sansmcp.ConnectionLost:
    """Return the part that reports an exception of the library, or of hooks given to it.

    ``is_answered``: the head of the response had arrived.
    """
    if isinstance(error, library.PoolTimeout):
        return sansmcp.ConnectionLost(
            "all connections of the httpx client are in use: each open event stream holds one, so "
            "set a higher max_connections in its limits",
            Unsent.PERMANENT,  # the pool timeout was long enough for those that end
        )
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, RuntimeError) and http.is_closed:  # it was before the request
        return sansmcp.ConnectionLost(text, Unsent.PERMANENT)
    if isinstance(error, (library.ConnectError, library.ConnectTimeout)):
        return sansmcp.ConnectionLost(*connect_failure(error, text, url, authorities=_AUTHORITIES))
    is_lost = isinstance(error, (library.RemoteProtocolError, library.ReadError))
    if is_lost and not is_answered and url.startswith("http:"):
        text += "; if the server speaks TLS, write https:// instead of http://"
    return sansmcp.ConnectionLost(text)


def response_parts(
    library: ModuleType, http: HttpClient, request: Any, auth: Any, *, follow_redirects: Any
) -> Generator[ResponsePart, None, None]:
    """Send a request without an event loop; yield the parts of the response, and how it ended."""
    is_answered = False
    try:
        sent = http.send(request, stream=True, auth=auth, follow_redirects=follow_redirects)
        with closing(sent) as response:
            is_answered = True
            yield head_of(response)
            for data in response.iter_bytes():
                yield sansmcp.BodyData(data)
        yield sansmcp.BodyEnd()
    except Exception as error:  # raised by the library, or by a transport or hook of its user
        yield connection_lost_from(library, http, error, str(request.url), is_answered=is_answered)
