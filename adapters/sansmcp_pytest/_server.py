"""A server on the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import sansmcp
import sansmcp_local
from sansmcp import ConnectionInfo, Idle
from sansmcp.messages import Params
from sansmcp.types import Unpack
from sansmcp_local import DriverSettings, ServerParts, current_loop, pull, server_parts

from ._network import Connection, Network

_EPOCH = 1.7e9
"""The date at which virtual time begins, for signed states, which contain a date."""


class RunningServer(sansmcp_local.RunningServer):
    """Runs the machine of a server in the event loop."""

    def __init__(self, parts: ServerParts) -> None:
        threads, authenticate = parts.options.threads, parts.options.authenticate
        super().__init__(
            parts.core, parts.store, current_loop(), threads=threads, authenticate=authenticate
        )
        self._checking = 0
        self.connections: set[ServerEnd] = set()
        self.has_ended = False

    def is_working(self) -> bool:
        """True if a function of the application runs in a thread."""
        return self._checking > 0 or self._threads.is_working

    def run_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        def checked(outcome: Any, error: Exception | None) -> None:
            self._checking -= 1
            done(outcome, error)

        self._checking += 1
        super().run_plain(work, checked)

    async def stop(self, graceful_timeout: float) -> None:
        """Stop gracefully."""
        await self.shut_down(graceful_timeout)
        self.has_ended = True
        for connection in tuple(self.connections):
            connection.wake()
        await self.flush(lambda: not self.connections)
        self.scheduler.stop()

    def vanish(self) -> None:
        """Stop at once, without closing streams."""
        self.scheduler.stop()
        self.leave_threads()


class ServerEnd:
    """The server's end of a connection."""

    def __init__(self, serving: RunningServer, wire: Connection) -> None:
        self._serving = serving
        self._wire = wire
        self._connection = sansmcp.ServerConnection(serving.core, driver=self, now=serving.now())
        self._timer: asyncio.TimerHandle | None = None
        self.connection = ConnectionInfo(peer=("127.0.0.1", 50000))
        """The ConnectionInfo for ``authenticate``."""
        serving.connections.add(self)

    def read(self, data: bytes) -> None:
        self._connection.receive_data(data, now=self._serving.now())
        self._serving.pump(self)

    def read_end(self) -> None:
        self._connection.receive_eof(now=self._serving.now())
        self._serving.pump(self)

    def lose(self, reason: str) -> None:
        self._leave()
        self._connection.connection_lost(now=self._serving.now())
        self._serving.pump()

    def wake(self) -> None:
        """Send the pending bytes."""
        if self._wire.is_full or self not in self._serving.connections:
            return
        data, idle = pull(self._connection)
        if data:
            self._wire.send_to_client(data)
        if idle is None or self._serving.has_ended:
            self._leave()
            self._wire.close_by_server()
        else:
            self._wire.to_server.hold(idle is Idle.PAUSED)
            self._set_timer()

    def _leave(self) -> None:
        self._serving.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._connection.next_deadline()
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._handle_timeout)

    def _handle_timeout(self) -> None:
        self._connection.handle_timeout(now=self._serving.now())
        self._serving.pump(self)


class Server:
    """A server of an application; made by ``mcp_server(app)``."""

    def __init__(self, network: Network, serving: RunningServer, graceful_timeout: float) -> None:
        self._network = network
        self._serving = serving
        self._grace = graceful_timeout
        self._is_up = True

    def __repr__(self) -> str:
        return f"<Server {self.url} {self._serving.core.app.name!r}>"

    @property
    def url(self) -> str:
        """The URL of its MCP endpoint."""
        return str(sansmcp.Url("http", "localhost", 80, self._serving.core.path))

    def publish(self, method: str, params: Params | None = None) -> None:
        """Notify the clients of a change; see :meth:`sansmcp.Server.publish`."""

        async def publish() -> None:
            self._serving.publish(method, params)

        self._network.loop.run(publish())

    def stop(self) -> None:
        """Stop gracefully: calls get ``graceful_timeout`` seconds, then streams end."""
        if self._is_up:
            self._is_up = False
            self._network.loop.run(self._serving.stop(self._grace))

    def kill(self) -> None:
        """Drop all connections at once, as a killed process does. Handlers are not stopped."""
        if self._is_up:
            self._is_up = False
            self._serving.vanish()
            self._network.cut()

    def accept(self) -> Connection | None:
        """Open a connection of a client; return None if it is refused."""
        wire = self._network.open() if self._is_up else None
        if wire is not None:
            wire.server = ServerEnd(self._serving, wire)
        return wire


class Serve(Protocol):
    """The fixture ``mcp_server``."""

    def __call__(
        self,
        app: sansmcp.App,
        *,
        graceful_timeout: float = 5.0,
        **settings: Unpack[DriverSettings],
    ) -> Server:
        """Start a server of an application, on the simulated network.

        Handlers are async functions of asyncio, or plain functions, each of which runs in a thread.

        Args:
            app: the application.
            graceful_timeout: seconds that running calls get when the server stops.
            settings: those of :class:`sansmcp_local.DriverOptions` and of
                :class:`sansmcp.ServerOptions`.
        """
        ...


def serve(
    network: Network,
    app: sansmcp.App,
    *,
    graceful_timeout: float = 5.0,
    **settings: Unpack[DriverSettings],
) -> Server:
    """Make a server on a network; see :class:`Serve`."""
    settings.setdefault(
        "state_signer", sansmcp.StateSigner(keys=(bytes(32),), clock=lambda: _EPOCH + network.now)
    )
    parts = server_parts(app, "mcp_server", **settings)

    async def begin() -> RunningServer:
        return RunningServer(parts)

    serving = network.loop.run(begin())
    network.loop.workers.append(serving.is_working)
    server = Server(network, serving, graceful_timeout)
    network.at_end.append(server.stop)
    return server
