"""The application that ASGI servers call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import sansmcp
from sansmcp.messages import Params
from sansmcp.types import Unpack
from sansmcp_local import (
    DriverOptions,
    DriverSettings,
    HttpServing,
    ServerParts,
    current_loop,
    explains,
    server_parts,
)

from ._exchange import Exchange, Receive, Scope, Send, request_head


class AsgiApp:
    """An ASGI application that serves MCP; :func:`asgi_app` makes it.

    Each event loop that calls the application gets a server of its own with its first request. The
    application needs no startup: it works with and without a lifespan.
    """

    def __init__(
        self,
        new_parts: Callable[[], ServerParts],
        graceful_timeout: float,
        name: str,
    ) -> None:
        self._new_parts = new_parts
        self._name = name
        self._grace = graceful_timeout
        self._servings: dict[Hashable, HttpServing] = {}
        self._last: HttpServing | None = None
        """The one of the last request, unless it has ended."""

    def __repr__(self) -> str:
        return f"<AsgiApp {self._name!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, or the lifespan.

        Raises:
            LocalProtocolError: the scope is neither, as of a WebSocket.
        """
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await Exchange(self._serving(), scope, receive, send).run(request_head(scope))
        else:
            raise sansmcp.LocalProtocolError(f"Only HTTP is served, and no {scope['type']}")

    def publish(self, method: str, params: Params | None = None) -> None:
        """Notify the clients of a change; see :meth:`sansmcp.Server.publish`.

        Call this in the event loop that serves them.
        """
        self._serving().publish(method, params)

    def disconnect_streams(self, *, retry: float | None = None) -> int:
        """Close the standalone streams of all clients that can resume them.

        See :meth:`sansmcp.Server.disconnect_streams`. Call this in the event loop that serves them.
        """
        return self._serving().disconnect_streams(retry=retry)

    async def stop(self) -> None:
        """Stop gracefully, and wait until that is done.

        The server accepts nothing new, gives running calls ``graceful_timeout`` seconds and ends
        all event streams. Call this in the event loop that serves them.

        The end of the lifespan calls this. If nothing runs the lifespan of this application, as
        where it is mounted in another one, call this at the end of that one's. Otherwise running
        calls are cancelled when the event loop ends.
        """
        serving = self._servings.get(current_loop().key)
        if serving is not None:
            await serving.stop(self._grace)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _serving(self) -> HttpServing:
        last = self._last
        if last is not None and last.loop.is_here():
            return last
        key = current_loop().key
        serving = self._servings.get(key)
        if serving is None:
            forget = partial(self._forget, key)
            serving = self._servings[key] = HttpServing(self._new_parts(), forget)
        self._last = serving
        return serving

    def _forget(self, key: Hashable) -> None:
        if self._servings.pop(key) is self._last:
            self._last = None


@explains(DriverOptions, sansmcp.ServerOptions)
def asgi_app(
    app: sansmcp.App,
    *,
    graceful_timeout: float = 5.0,
    **settings: Unpack[DriverSettings],
) -> AsgiApp:
    """Make an ASGI 3 application that serves MCP, for asyncio and trio.

    Args:
        app: the application. Async handlers get a :class:`Call`. Plain handlers get a
            :class:`ThreadCall` and run in threads (:meth:`sansmcp.App.handler`).
        graceful_timeout: seconds that running calls get when the server stops.
        settings: the fields of :class:`sansmcp_local.DriverOptions` and
            :class:`sansmcp.ServerOptions`, explained below. ``authenticate`` finds the scope in
            ``connection.environ``, where middleware may have put a user. ``path`` and ``http_sse``
            are relative to where the application is mounted.

    If several processes serve one address, as under ``uvicorn --workers``, give all of them one
    ``SqliteStore``. Or give them a ``state_signer`` with the same keys, and either disable sessions
    (``sessions=False``) or send each client to one process.

    The ASGI server handles the connections: slow requests, keep-alive, TLS. When it stops, it waits
    for open responses first and ends the lifespan afterwards. Some wait for ever, as uvicorn does
    unless its ``timeout_graceful_shutdown`` is set. :meth:`AsgiApp.stop` ends all responses.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    new_parts = partial(server_parts, app, "asgi_app", **settings)
    new_parts()  # raises for wrong settings now, rather than at the first request
    return AsgiApp(new_parts, graceful_timeout, app.name)
