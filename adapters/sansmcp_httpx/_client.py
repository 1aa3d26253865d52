"""The asynchronous client: a task for each HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from types import ModuleType

import sansmcp
import sansmcp_local
from sansmcp.effects import OpenExchange
from sansmcp.types import Unpack
from sansmcp_local import RequestHandler, explains, new_client

from ._http import (
    AsyncHttpClient,
    auth_of,
    connection_lost_from,
    head_of,
    library_of,
    request_of,
)


class Client(sansmcp_local.AwaitableClient):
    """An MCP client on an ``AsyncClient`` of httpx or httpx2; :func:`connect` makes it.

    ``await client`` and ``async with client`` do the handshake and return the client. All methods
    may be called from any task of its event loop.
    """


class _Driver(sansmcp_local.RequestTaskDriver):
    """Drives a client: its requests are made by an ``AsyncClient`` of httpx or httpx2."""

    def __init__(
        self,
        core: sansmcp.Client,
        http: AsyncHttpClient,
        library: ModuleType,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(core, request_handlers)
        self._http = http
        self._library = library

    async def make_request(self, effect: OpenExchange) -> None:
        request = request_of(self._library, self._http, effect, read=None)
        sent = await self._http.send(
            request,
            stream=True,
            follow_redirects=False,
            auth=auth_of(self._library, effect),
        )
        try:
            async with aclosing(sent) as response:
                await self.feed(effect, head_of(response))
                async for data in response.aiter_bytes():
                    await self.feed(effect, sansmcp.BodyData(data))
        except Exception as error:
            raise _Incomplete from error

    def lost_part(self, error: Exception, url: str) -> sansmcp.ConnectionLost:
        is_answered = isinstance(error, _Incomplete)
        if is_answered and isinstance(error.__cause__, Exception):
            error = error.__cause__
        return connection_lost_from(self._library, self._http, error, url, is_answered=is_answered)


class _Incomplete(Exception):
    """A response whose head had arrived was cut; the cause says how."""


@explains(sansmcp.ClientOptions)
def connect(
    url: str,
    http: AsyncHttpClient,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> Client:
    """Connect to an MCP server through a client of httpx or httpx2.

    ``async with connect(...) as client:`` closes the client when the block ends. After ``client =
    await connect(...)`` call ``await client.aclose()`` yourself, in any task of the same loop.

    Args:
        url: the URL of an MCP endpoint, http or https.
        http: makes the HTTP requests: an ``AsyncClient`` of httpx or httpx2, in the same event
            loop (asyncio or trio). Closing the MCP
            client leaves it open; close it afterwards. Its read timeout is not used; the timeouts
            of settings and calls are. Over HTTP/1.1 each call in flight and each open event stream
            holds one of its connections; if the limits of ``http`` allow too few, calls fail with
            Disconnected, which says so. Over HTTP/2, httpx (0.28) leaves a response unread while
            two others are open and silent: make one call at a time, or use HTTP/1.1.
        request_handlers: functions that respond to the server's requests, by method, such as
            ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest` and returns the
            result, a JSON object, or raises JsonRpcError. It may be async; a plain one runs in the
            event loop and must not block. The client declares the capability that each needs.
        settings: the fields of :class:`sansmcp.ClientOptions`, explained below. With
            ``authorization``, httpx resolves the names of authorization servers by itself, so only
            literal addresses are checked against those of the MCP server.

    Returns:
        The client, which is not connected yet: await it, or enter its block. Either raises
        CallError if the handshake fails.

    Raises:
        LocalProtocolError: an argument or the value of a setting is wrong.
        TypeError: a setting is unknown.
        RuntimeError: no event loop is running.
    """
    return Client(_driver(url, http, request_handlers, settings))


async def log_out(
    url: str, http: AsyncHttpClient, **settings: Unpack[sansmcp.ClientSettings]
) -> None:
    """Revoke the stored tokens for an MCP server at their issuer (RFC 7009), and delete them.

    The refresh token is revoked, and with it its access tokens; without one, the access token. The
    MCP server is not asked. Each request to the issuer may take 10 s, and the first that fails is
    the last; all of it ends within 60 s. If it is cancelled,
    the tokens stay stored unless they were deleted already.

    Args:
        url: the URL of the MCP endpoint.
        http: makes the requests to the issuer, as in :func:`connect`.
        settings: those of :func:`connect`. ``authorization`` has the storage, the account and, if
            the client was not registered by this library, the client.

    Raises:
        AuthorizationFailed: with the reason ``not_revoked``, the tokens were deleted and the issuer
            may still accept them; the text says why. With another one, they are still stored.
        LocalProtocolError: ``authorization`` is missing, or another argument is wrong.
        TypeError: a setting is unknown.
        RuntimeError: no event loop is running.
    """
    await _driver(url, http, None, settings).log_out()


def _driver(
    url: str,
    http: AsyncHttpClient,
    request_handlers: Mapping[str, RequestHandler] | None,
    settings: sansmcp.ClientSettings,
) -> _Driver:
    library = library_of(url, http, "AsyncClient")
    settings |= sansmcp.ClientSettings(cookies=False)  # the HTTP client keeps them
    return _Driver(new_client(url, **settings), http, library, request_handlers)
