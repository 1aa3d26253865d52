"""The application that ASGI servers call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import sansmcp
from sansmcp.messages import Params
from sansmcp.types import Unpack
from sansmcp_local import DriverOptions, DriverSettings, ServerParts, explains, server_parts
from sansmcp_loop import HttpServing, current_loop

from ._exchange import Exchange, Receive, Scope, Send, request_head


class AsgiApp:
    """An ASGI application; made by :func:`asgi_app`.

    Each event loop that calls it has a server of its own, from its first request on. Nothing has to
    be begun: the application works whether or not anybody runs its lifespan.
    """

    def __init__(
        self,
        new_parts: Callable[[], ServerParts],
        graceful_timeout: float,
    ) -> None:
        self._new_parts = new_parts
        self._grace = graceful_timeout
        self._servings: dict[Hashable, HttpServing] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or live as long as the server does.

        Raises LocalProtocolError for websockets.
        """
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await Exchange(self._serving(), scope, receive, send).run(request_head(scope))
        else:
            raise sansmcp.LocalProtocolError(f"Only HTTP is served, and no {scope['type']}")

    def publish(self, method: str, params: Params | None = None) -> None:
        """Tell the clients that something has changed; see :meth:`sansmcp.Server.publish`.

        To be called in the event loop that serves them.
        """
        self._serving().publish(method, params)

    def disconnect_streams(self, *, retry: float | None = None) -> int:
        """Close the standalone streams of all clients that can come back to them.

        See :meth:`sansmcp.Server.disconnect_streams`. To be called in the event loop that serves
        them.
        """
        return self._serving().disconnect_streams(retry=retry)

    async def stop(self) -> None:
        """Stop: no new requests, a moment for those that run, a proper end for every stream.

        To be called in the event loop that serves them. The end of the lifespan does it; where
        nobody runs ours, do it at the end of yours. Without, the end of the loop cancels what runs.
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
        key = current_loop().key
        serving = self._servings.get(key)
        if serving is None:
            forget = partial(self._servings.pop, key)
            serving = self._servings[key] = HttpServing(self._new_parts(), forget)
        return serving


@explains(DriverOptions, sansmcp.ServerOptions)
def asgi_app(
    app: sansmcp.App,
    *,
    graceful_timeout: float = 5.0,
    **settings: Unpack[DriverSettings],
) -> AsgiApp:
    """Make an ASGI 3 application that serves MCP, for asyncio and trio.

    Args:
        app: its handlers are async functions of a :class:`Call`, or plain functions of a
            :class:`ThreadCall`, each of which runs in a thread (:meth:`sansmcp.App.handler`).
        graceful_timeout: seconds that running calls get when the server stops.
        settings: those of :class:`sansmcp_local.DriverOptions` and of
            :class:`sansmcp.ServerOptions`.
            ``connection.environ`` of ``authenticate`` is the scope, where middleware in front may
            have left a user. ``path`` and ``http_sse`` are paths below the place
            where the application is mounted. Where several processes serve one address, as under
            ``uvicorn --workers``, give all of them one ``SqliteStore``; or set ``seal`` to the same
            keys, and do without sessions (``sessions=False``), or send each client to one process.

    What is about connections (slow requests, keep-alive, TLS) is up to the server. Servers that are
    told to stop wait for open responses first, and only then end the lifespan; some wait for ever,
    as uvicorn does unless its ``timeout_graceful_shutdown`` is set. :meth:`AsgiApp.stop` ends all.

    Raises LocalProtocolError for settings that make no sense, and TypeError for unknown ones.
    """
    new_parts = partial(server_parts, app, "asgi_app", **settings)
    new_parts()  # what is wrong is told now, not with the first request
    return AsgiApp(new_parts, graceful_timeout)
