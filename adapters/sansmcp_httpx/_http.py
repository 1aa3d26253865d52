"""Requests and responses, as httpx has them."""

from __future__ import annotations

import httpx

import sansmcp
from sansmcp.effects import OpenExchange

_POOL_TIMEOUT = 30.0
"""Seconds that a request waits for a connection, where the httpx client would wait for ever."""


def check_arguments(
    url: object, http: object, kind: type[httpx.Client | httpx.AsyncClient]
) -> None:
    """Raises LocalProtocolError unless that is a URL, and a client of the kind that is needed."""
    if not isinstance(url, str):
        raise sansmcp.LocalProtocolError(f"Not a URL, and httpx starts no processes: {url!r}")
    if not isinstance(http, kind):
        raise sansmcp.LocalProtocolError(f"This needs an httpx.{kind.__name__}, and not {http!r}")


def request_of(
    http: httpx.Client | httpx.AsyncClient, effect: OpenExchange, read: float | None
) -> httpx.Request:
    """The request that the machine wants, with the timeouts of the client but for the reads."""
    timeout = http.timeout
    pool = _POOL_TIMEOUT if timeout.pool is None else timeout.pool
    return http.build_request(
        effect.head.method.decode(),
        effect.url,
        headers=list(effect.head.headers),
        content=effect.body or None,
        timeout=httpx.Timeout(connect=timeout.connect, read=read, write=timeout.write, pool=pool),
    )


def head_of(response: httpx.Response) -> sansmcp.ResponseHead:
    """The start of a response."""
    headers = tuple((name.lower(), value) for name, value in response.headers.raw)
    return sansmcp.ResponseHead(status=response.status_code, headers=headers)


def connection_lost_from(error: Exception) -> sansmcp.ConnectionLost:
    """The end of a response that httpx, or what the caller has given to it, could not get."""
    if isinstance(error, httpx.PoolTimeout):
        return sansmcp.ConnectionLost(
            "all connections of the httpx client are in use: each open event stream holds one, so "
            "set a higher max_connections in its limits"
        )
    return sansmcp.ConnectionLost(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    )
