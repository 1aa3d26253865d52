"""A client on the simulated network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

import sansmcp
import sansmcp_local
from sansmcp.base_client import OnProgress
from sansmcp.effects import AbortExchange, OpenExchange, TransportEffect
from sansmcp.events import ClientEvent, Connected
from sansmcp.http import Unsent
from sansmcp.messages import Params
from sansmcp.types import Unpack
from sansmcp_local import RequestHandler, Task, current_loop

from ._network import Connection, Network
from ._server import Server, serve


class LoopDriver(sansmcp_local.LoopClientDriver):
    """Drives a client in the event loop."""

    def __init__(
        self,
        core: sansmcp.Client,
        server: Server,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(core, current_loop(), request_handlers)
        self._pool = sansmcp.ConnectionPool(core)
        self._server = server
        self._ends: set[ClientEnd] = set()

    def on_idle(self) -> None:
        super().on_idle()
        for end in self._ends:
            end.wire.to_client.hold(self.is_paused)

    def perform_effect(self, effect: TransportEffect) -> None:
        match effect:
            case OpenExchange():
                self._begin(effect)
            case AbortExchange(exchange=exchange):
                self._pool.release(exchange, now=self.now())
            case _:
                raise AssertionError("a client of a URL starts no process")

    def over(self, exchange: int) -> None:
        """Release the connection of an exchange that has ended."""
        self._pool.release(exchange, now=self.now())

    def forget(self, end: ClientEnd) -> None:
        """Remove a connection that has ended."""
        self._ends.discard(end)

    def _begin(self, effect: OpenExchange) -> None:
        connection, request = self._pool.begin(effect, now=self.now())
        if connection.driver is None:
            wire = self._server.accept()
            if wire is None:
                asyncio.get_running_loop().call_soon(self._refused, effect.exchange, connection)
                return
            connection.driver = wire.client = ClientEnd(self, wire, connection)
            self._ends.add(connection.driver)
        connection.driver.send(effect.exchange, request)

    def _refused(self, exchange: int, connection: sansmcp.ClientConnection) -> None:
        unsent = Unsent.UNREACHABLE
        connection.connection_lost("connection refused", unsent=unsent, now=self.now())
        self.over(exchange)
        self.pump()

    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        return self._loop.spawn(_await, work)

    async def end(self) -> None:
        self._pool.close()


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work


class ClientEnd:
    """The client's end of a connection."""

    def __init__(
        self, driver: LoopDriver, wire: Connection, connection: sansmcp.ClientConnection
    ) -> None:
        self.wire = wire
        self._driver = driver
        self._connection = connection
        self._exchange = 0
        self._is_open = True

    @property
    def is_readable(self) -> bool:
        """True if the connection is closed, or has unread bytes."""
        return not self._is_open or self.wire.to_client.is_readable

    def send(self, exchange: int, request: bytes) -> None:
        """Send the request of an exchange."""
        self._exchange = exchange
        self.wire.send_to_server(request)

    def close(self) -> None:
        """Close the connection at once."""
        self._leave()
        self.wire.close_by_client()

    def read(self, data: bytes) -> None:
        if self._connection.is_done:
            self.close()  # bytes without a request
            return
        self._connection.receive_data(data, now=self._driver.now())
        self._go_on()

    def read_end(self) -> None:
        self._leave()
        self._connection.receive_eof(now=self._driver.now())
        self._go_on()

    def lose(self, reason: str) -> None:
        self._leave()
        self._connection.connection_lost(reason, now=self._driver.now())
        self._go_on()

    def wake(self) -> None:
        """Do nothing: a client sends its requests at once."""

    def _leave(self) -> None:
        self._is_open = False
        self._driver.forget(self)

    def _go_on(self) -> None:
        if self._connection.is_done:
            self._driver.over(self._exchange)
        self._driver.pump()


class PendingCall:
    """A call in flight; made by :meth:`Client.start`."""

    def __init__(self, network: Network, task: asyncio.Task[Any]) -> None:
        self._network = network
        self._task = task

    def __repr__(self) -> str:
        return f"<PendingCall{' ended' if self.is_done else ''}>"

    @property
    def is_done(self) -> bool:
        """True if the call has ended."""
        return self._task.done()

    def result(self) -> Any:
        """Wait for the end of the call, and return its result. Raises its CallError."""
        return self._network.loop.run(_result(self._task))

    def cancel(self) -> None:
        """Cancel the call, and notify the server."""
        self._task.cancel()
        self._network.sleep(0)


async def _result(task: asyncio.Task[Any]) -> Any:
    await asyncio.wait([task])
    return task.result()


class _Driver:
    """Lets virtual time pass until the driver in the event loop has a result."""

    def __init__(self, network: Network, driver: LoopDriver) -> None:
        self.core = driver.core
        self.events: list[ClientEvent] = []
        self._network = network
        self._driver = driver
        self._collecting = network.loop.create_task(self._collect())

    @property
    def connected(self) -> Connected:
        return self._driver.connected

    @property
    def is_closed(self) -> bool:
        return self._driver.is_closed

    @property
    def shown(self) -> str:
        return self._driver.shown

    def start(
        self,
        method: str,
        params: Params | None,
        on_progress: OnProgress[None] | None,
        settings: sansmcp.CallSettings,
        *,
        detach: bool = False,
    ) -> PendingCall:
        work = self._driver.call(method, params, on_progress, settings, detach=detach)
        task = self._network.loop.create_task(work)
        self._network.sleep(0)
        return PendingCall(self._network, task)

    def call(
        self,
        method: str,
        params: Params | None,
        on_progress: OnProgress[None] | None,
        settings: sansmcp.CallSettings,
        *,
        detach: bool = False,
    ) -> Any:
        return self.start(method, params, on_progress, settings, detach=detach).result()

    def attach(
        self,
        task_id: str,
        on_progress: OnProgress[None] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> Any:
        work = self._driver.attach(task_id, on_progress, timeout, total_timeout)
        return self._network.loop.run(work)

    def notify(self, method: str, params: Params | None, meta: Mapping[str, Any] | None) -> None:
        self._network.loop.run(self._driver.notify(method, params, meta))

    def complete_login(self, url: str) -> bool:
        return self._network.loop.run(self._driver.complete_login(url))

    def close(self) -> None:
        self._network.loop.run(self._driver.close())

    async def _collect(self) -> None:
        async for event in self._driver.events():
            self.events.append(event)


class Client(sansmcp_local.BlockingClient):
    """A connected client; made by ``mcp_client(app)``.

    Its methods let virtual time pass until they have their result, and raise
    :class:`sansmcp.CallError` if there is none.

    Attributes:
        events: the events so far that belong to no call: notifications, reconnections, a lost
            session.
    """

    def __init__(self, driver: _Driver) -> None:
        super().__init__(driver)
        self.events: list[ClientEvent] = driver.events
        self._starting = driver

    def start(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> PendingCall:
        """Send any request, and return. It runs while virtual time passes."""
        return self._starting.start(method, params, on_progress, settings)


class Connect(Protocol):
    """The fixture ``mcp_client``."""

    def __call__(
        self,
        server: sansmcp.App | Server,
        *,
        request_handlers: Mapping[str, RequestHandler] | None = None,
        **settings: Unpack[sansmcp.ClientSettings],
    ) -> Client:
        """Connect a client over the simulated network.

        Args:
            server: an application, which gets a server with default settings; or a server made by
                ``mcp_server``.
            request_handlers: functions that respond to server requests, by method, async or plain.
                Each takes a :class:`sansmcp.ServerRequest` and returns the result.
            settings: the fields of :class:`sansmcp.ClientOptions`; ``versions`` are the revisions.

        Raises:
            CallError: the handshake failed.
        """
        ...


def connect(
    network: Network,
    server: sansmcp.App | Server,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> Client:
    """Connect a client over a network; see :class:`Connect`."""
    if isinstance(server, sansmcp.App):
        server = serve(network, server)
    jitter = random.Random(f"{network.seed}/jitter").random
    core = sansmcp.Client(server.url, jitter=jitter, **settings)

    async def begin() -> Client:
        driver = LoopDriver(core, server, request_handlers)
        client = Client(_Driver(network, driver))
        await driver.open()
        return client

    client = network.loop.run(begin())
    network.at_end.append(client.close)
    return client
