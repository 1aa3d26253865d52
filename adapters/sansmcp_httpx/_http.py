"""Conversion of HTTP requests and responses from and to those of httpx."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx

import sansmcp
from sansmcp.effects import OpenExchange

_POOL_TIMEOUT = 30.0
"""Seconds that a request waits for a connection if the httpx client has no pool timeout."""


def check_arguments(
    url: object, http: object, kind: type[httpx.Client | httpx.AsyncClient]
) -> None:
    """Raise LocalProtocolError unless ``url`` is a str and ``http`` an instance of ``kind``."""
    if not isinstance(url, str):
        raise sansmcp.LocalProtocolError(f"Not a URL, and httpx starts no processes: {url!r}")
    if not isinstance(http, kind):
        raise sansmcp.LocalProtocolError(f"This needs an httpx.{kind.__name__}, and not {http!r}")
    if "://" in url and sansmcp.Url.parse(url).socket_path is not None:
        raise sansmcp.LocalProtocolError(
            "httpx takes the path of a Unix socket in its transport: give the httpx client "
            f"transport=httpx.HTTPTransport(uds=PATH), or AsyncHTTPTransport, and use the URL "
            f"http://localhost{sansmcp.Url.parse(url).target}"
        )


def request_of(
    http: httpx.Client | httpx.AsyncClient, effect: OpenExchange, read: float | None
) -> httpx.Request:
    """Return the request of an effect, with the httpx client's timeouts, except for ``read``."""
    timeout = http.timeout
    pool = _POOL_TIMEOUT if timeout.pool is None else timeout.pool
    limits = httpx.Timeout(connect=timeout.connect, read=read, write=timeout.write, pool=pool)
    method, headers = effect.head.method.decode(), list(effect.head.headers)
    content = effect.body or None
    if effect.address_policy is not None:  # without the headers and cookies of the httpx client
        extensions = {"timeout": limits.as_dict()}
        return httpx.Request(
            method, effect.url, headers=headers, content=content, extensions=extensions
        )
    return http.build_request(method, effect.url, headers=headers, content=content, timeout=limits)


def auth_of(effect: OpenExchange) -> Any:
    """Return the ``auth`` argument of ``send()``: that of the httpx client.

    Requests of the authorization have credentials of their own, or none.
    """
    return httpx.USE_CLIENT_DEFAULT if effect.address_policy is None else None


def head_of(response: httpx.Response) -> sansmcp.ResponseHead:
    """Return the head of a response."""
    headers = tuple((name.lower(), value) for name, value in response.headers.raw)
    return sansmcp.ResponseHead(
        status=response.status_code, headers=headers, peer=_peer_of(response)
    )


def _peer_of(response: httpx.Response) -> str:
    """Return the IP address of the server; empty if it is not known, or has left already."""
    stream = response.extensions.get("network_stream")
    address = None
    with suppress(OSError):  # the server has reset the connection, and its response can be read
        address = None if stream is None else stream.get_extra_info("server_addr")
    return str(address[0]) if address else ""


def connection_lost_from(error: Exception) -> sansmcp.ConnectionLost:
    """Return the part that reports an exception of httpx, or of hooks given to it."""
    if isinstance(error, httpx.PoolTimeout):
        return sansmcp.ConnectionLost(
            "all connections of the httpx client are in use: each open event stream holds one, so "
            "set a higher max_connections in its limits"
        )
    return sansmcp.ConnectionLost(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    )
