"""Event streams that are not MCP, read with an HTTP client, over any number of connections."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from random import random
from types import ModuleType
from typing import TYPE_CHECKING, Any

import sansmcp
from sansmcp_local import current_loop

from ._http import (
    AsyncHttpClient,
    BuildsRequests,
    HttpClient,
    connection_lost_from,
    head_of,
    library_of,
    response_parts,
    timeouts,
)

if TYPE_CHECKING:
    from sansmcp.http import ResponsePart

IDLE_TIMEOUT = 60.0
"""Seconds without a byte by default, after which a connection counts as broken."""


async def events(
    url: str,
    http: AsyncHttpClient,
    *,
    last_event_id: str = "",
    idle_timeout: float = IDLE_TIMEOUT,
    policy: sansmcp.ReconnectPolicy | None = None,
    limits: sansmcp.Limits | None = None,
) -> AsyncGenerator[sansmcp.SseEvent, None]:
    """Yield the events of an event stream that is not MCP, and reconnect when it ends.

    Use it with ``contextlib.aclosing`` if you leave the loop before its end. The ``last_event_id``
    of an event is the place to resume from, also in another process.

    Args:
        url: the http or https URL of the stream.
        http: makes the HTTP requests: an ``AsyncClient`` of httpx or httpx2, with its headers,
            authentication and redirects. Its read timeout is not used.
        last_event_id: where to resume; "" begins where the server likes.
        idle_timeout: seconds without a byte after which a connection counts as broken. Servers
            send a comment every 15 seconds or so.
        policy: the delays between connections, and how many may fail in a row; None for the
            default.
        limits: ``max_message_bytes`` bounds an event; None for the default.

    Raises:
        RequestRefused: the server has refused the stream, or does not send an event stream.
        Disconnected: too many connections in a row have failed.
        RemoteProtocolError: an event is larger than the limit.
        LocalProtocolError: an argument is wrong.
    """
    library = library_of(url, http, "AsyncClient")
    source = _source(url, last_event_id, policy, limits)
    loop = current_loop()
    while not source.is_finished:
        request = _request(library, url, http, source.start_request(), idle_timeout)
        async with aclosing(_parts(library, http, request)) as parts:
            async for part in parts:
                source.receive_part(part, now=loop.now())
                while isinstance(event := source.next_event(), sansmcp.SseEvent):
                    yield event
        if source.reconnect_at is not None:
            await loop.within(max(0.0, source.reconnect_at - loop.now()), loop.event().wait)


def events_blocking(
    url: str,
    http: HttpClient,
    *,
    last_event_id: str = "",
    idle_timeout: float = IDLE_TIMEOUT,
    policy: sansmcp.ReconnectPolicy | None = None,
    limits: sansmcp.Limits | None = None,
) -> Generator[sansmcp.SseEvent, None, None]:
    """Yield the events of an event stream that is not MCP, and reconnect when it ends.

    Use it with ``contextlib.closing`` if you leave the loop before its end. ``http`` is a
    ``Client`` of httpx or httpx2; everything else is as with :func:`events`.
    """
    library = library_of(url, http, "Client")
    source = _source(url, last_event_id, policy, limits)
    while not source.is_finished:
        request = _request(library, url, http, source.start_request(), idle_timeout)
        default = library.USE_CLIENT_DEFAULT
        found = response_parts(library, http, request, default, follow_redirects=default)
        with closing(found) as parts:
            for part in parts:
                source.receive_part(part, now=time.monotonic())
                while isinstance(event := source.next_event(), sansmcp.SseEvent):
                    yield event
        if source.reconnect_at is not None:
            time.sleep(max(0.0, source.reconnect_at - time.monotonic()))


def _source(
    url: str,
    last_event_id: str,
    policy: sansmcp.ReconnectPolicy | None,
    limits: sansmcp.Limits | None,
) -> sansmcp.EventSource:
    return sansmcp.EventSource(
        url, jitter=random, last_event_id=last_event_id, policy=policy, limits=limits
    )


def _request(
    library: ModuleType,
    url: str,
    http: BuildsRequests,
    head: sansmcp.RequestHead,
    idle_timeout: float,
) -> Any:
    method, headers = head.method.decode(), list(head.headers)
    limits = timeouts(library, http, idle_timeout)
    return http.build_request(method, url, content=None, headers=headers, timeout=limits)


async def _parts(
    library: ModuleType, http: AsyncHttpClient, request: Any
) -> AsyncGenerator[ResponsePart, None]:
    """Yield the parts of a response, and how it ended."""
    default = library.USE_CLIENT_DEFAULT
    is_answered = False
    try:
        sent = await http.send(request, stream=True, auth=default, follow_redirects=default)
        async with aclosing(sent) as response:
            is_answered = True
            yield head_of(response)
            async for data in response.aiter_bytes():
                yield sansmcp.BodyData(data)
        yield sansmcp.BodyEnd()
    except Exception as error:  # raised by the library, or by a transport or hook of its user
        yield connection_lost_from(library, http, error, str(request.url), is_answered=is_answered)
