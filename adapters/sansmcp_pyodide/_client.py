"""The client: a task for each HTTP request, which ``fetch`` makes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import sansmcp
import sansmcp_local
from sansmcp.effects import OpenExchange
from sansmcp.errors import check_type
from sansmcp.types import Unpack
from sansmcp_local import RequestHandler, explains, new_client


class Client(sansmcp_local.AwaitableClient):
    """An MCP client on ``fetch``; :func:`connect` makes it.

    ``await client`` and ``async with client`` do the handshake and return the client. All methods
    may be called from any task of Pyodide's event loop.
    """


class _Driver(sansmcp_local.RequestTaskDriver):
    """Drives a client: its requests are made by ``fetch``."""

    def __init__(
        self,
        core: sansmcp.Client,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(core, request_handlers)
        self._js, self._ffi = _module("js"), _module("pyodide.ffi")

    async def make_request(self, effect: OpenExchange) -> None:
        abort = self._js.AbortController.new()
        try:
            response = await self._js.fetch(effect.url, self._options_of(effect, abort.signal))
            headers = tuple(
                (str(name).lower().encode("latin-1"), str(value).encode("latin-1"))
                for name, value in response.headers
            )
            await self.feed(effect, sansmcp.ResponseHead(status=response.status, headers=headers))
            if not response.body:  # null: a response without content
                return
            reader = response.body.getReader()
            while not (piece := await reader.read()).done:
                await self.feed(effect, sansmcp.BodyData(piece.value.to_bytes()))
        finally:
            abort.abort()  # without effect on a response that has ended

    def lost_part(self, error: Exception, url: str) -> sansmcp.ConnectionLost:
        return sansmcp.ConnectionLost(
            f"fetch has failed: {error}; the server is out of reach, or does not allow requests of "
            "this page (allowed_origins and cors of a server of this library)"
        )

    def _options_of(self, effect: OpenExchange, signal: Any) -> Any:
        sent = effect.head
        headers = [[name.decode(), value.decode("latin-1")] for name, value in sent.headers]
        options: dict[str, Any] = {
            "method": sent.method.decode(),
            "headers": headers,
            "redirect": "manual",
        }
        if effect.body:
            options["body"] = effect.body
        found = self._ffi.to_js(options, dict_converter=self._js.Object.fromEntries)
        found.signal = signal
        return found


def _module(name: str) -> Any:
    """Import a module of Pyodide. Raises LocalProtocolError elsewhere."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise sansmcp.LocalProtocolError(
            "sansmcp_pyodide works in Pyodide alone, on the fetch of JavaScript; elsewhere use "
            "connect() of sansmcp_asyncio"
        ) from None


@explains(sansmcp.ClientOptions)
def connect(
    url: str,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> Client:
    """Connect to an MCP server through ``fetch`` of the browser, or of Node.js.

    ``async with connect(...) as client:`` closes the client when the block ends. After ``client =
    await connect(...)`` call ``await client.aclose()`` yourself.

    Args:
        url: the URL of an MCP endpoint, http or https. A page that came over https reaches no
            server over http, except on its own machine.
        request_handlers: functions that respond to the server's requests, by method, such as
            ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest` and returns the
            result, a JSON object, or raises JsonRpcError. It may be async; a plain one must not
            block. The client declares the capability that each needs.
        settings: the fields of :class:`sansmcp.ClientOptions`, explained below. Browsers set some
            headers themselves, and keep cookies. ``authorization`` needs an async ``login``, since
            Pyodide has no threads, and an authorization server that allows the page.

    Returns:
        The client, which is not connected yet: await it, or enter its block. Either raises
        CallError if the handshake fails.

    Raises:
        LocalProtocolError: an argument or the value of a setting is wrong, or this is not Pyodide.
        TypeError: a setting is unknown.
        RuntimeError: no event loop is running.
    """
    check_type((str,), url=url)  # nothing is started here
    settings |= sansmcp.ClientSettings(cookies=False)  # the browser keeps them
    return Client(_Driver(new_client(url, **settings), request_handlers))
