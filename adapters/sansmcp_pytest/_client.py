"""A client on the simulated network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload

import sansmcp
import sansmcp_local
from sansmcp import typed_results
from sansmcp.base_client import BaseClient, OnProgress
from sansmcp.effects import AbortExchange, OpenExchange, TransportEffect
from sansmcp.events import ClientEvent
from sansmcp.http import Unsent
from sansmcp.messages import Params
from sansmcp.types import Unpack
from sansmcp_local import RequestHandler, Task, current_loop

from ._network import Connection, Network
from ._server import Server, serve

Converted = TypeVar("Converted")


class LoopClient(sansmcp_local.AwaitableClient):
    """Runs the machine of a client in the event loop."""

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

    def run_pending(self) -> None:
        super().run_pending()
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
        self.run_pending()

    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        return self._loop.spawn(_await, work)

    async def _end(self) -> None:
        self._pool.close()


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work


class ClientEnd:
    """The client's end of a connection."""

    def __init__(
        self, client: LoopClient, wire: Connection, connection: sansmcp.ClientConnection
    ) -> None:
        self.wire = wire
        self._client = client
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
        self._connection.receive_data(data, now=self._client.now())
        self._go_on()

    def read_end(self) -> None:
        self._leave()
        self._connection.receive_eof(now=self._client.now())
        self._go_on()

    def lose(self, reason: str) -> None:
        self._leave()
        self._connection.connection_lost(reason, now=self._client.now())
        self._go_on()

    def wake(self) -> None:
        """Do nothing: a client sends its requests at once."""

    def _leave(self) -> None:
        self._is_open = False
        self._client.forget(self)

    def _go_on(self) -> None:
        if self._connection.is_done:
            self._client.over(self._exchange)
        self._client.run_pending()


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


class Client(BaseClient[Any, None]):
    """A connected client; made by ``mcp_client(app)``.

    Its methods let virtual time pass until they have their result, and raise
    :class:`sansmcp.CallError` if there is none.

    Attributes:
        events: the events so far that belong to no call: notifications, reconnections, a lost
            session.
    """

    def __init__(self, network: Network, client: LoopClient) -> None:
        self._network = network
        self._client = client
        self.events: list[ClientEvent] = []

    @overload
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    def call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Send any request, and wait for its result.

        ``result_type`` is the type to which the result is converted, as in the other clients.
        """
        work = self._client.call(
            method, params, on_progress=on_progress, result_type=result_type, **settings
        )
        return self._begin(work).result()

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    def call_tool(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Call a tool, and wait for its result.

        ``result_type`` is the type to which its structured content is converted, as in the other
        clients. With it, a tool that failed raises :class:`sansmcp.ToolFailed`.
        """
        work = self._client.call_tool(
            name, arguments, on_progress=on_progress, result_type=result_type, **settings
        )
        return self._begin(work).result()

    def start(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> PendingCall:
        """Send any request, and return. It runs while virtual time passes."""
        return self._begin(self._client.call(method, params, on_progress=on_progress, **settings))

    def _begin(self, work: Coroutine[Any, Any, Any]) -> PendingCall:
        task = self._network.loop.create_task(work)
        self._network.sleep(0)
        return PendingCall(self._network, task)

    def tools(self) -> Iterator[sansmcp.schema.Tool]:
        """Iterate over all tools; each page is requested when it is needed.

        The iterator raises the exceptions of :meth:`call`, and InvalidResponse if a page has the
        cursor of its own, or if there are more than 1,000 pages.
        """
        return self._items(typed_results.TOOLS)

    def prompts(self) -> Iterator[sansmcp.schema.Prompt]:
        """Iterate over all prompts, as :meth:`tools` does."""
        return self._items(typed_results.PROMPTS)

    def resources(self) -> Iterator[sansmcp.schema.Resource]:
        """Iterate over all resources, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCES)

    def resource_templates(self) -> Iterator[sansmcp.schema.ResourceTemplate]:
        """Iterate over all resource templates, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCE_TEMPLATES)

    def _items(self, listing: typed_results.Listing) -> Iterator[Any]:
        pages = typed_results.Pages(listing)
        while not pages.is_done:
            yield from pages.items(self.call(pages.method, pages.params))

    def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> sansmcp.TaskHandle[Any, None]:
        """Call a tool, and return a handle as soon as the server has made a task of the call."""
        work = self._client.start_task(name, arguments, on_progress=on_progress, **settings)
        started = self._network.loop.run(work)
        return sansmcp.TaskHandle(self, started.id, started.value)

    def wait_for_task(
        self,
        task: sansmcp.TaskHandle[Any, None],
        *,
        on_progress: OnProgress[None] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> Any:
        """Wait for the result of a handle; ``task.result()`` calls this."""
        work = self._client.wait_for_task(
            sansmcp.TaskHandle(self._client, task.id, task.value),
            on_progress=on_progress,
            timeout=timeout,
            total_timeout=total_timeout,
        )
        return self._network.loop.run(work)

    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification."""
        self._network.loop.run(self._client.notify(method, params, meta=meta))

    def close(self) -> None:
        """End the session. Calls in flight fail with RequestCancelled. May be called twice."""
        self._network.loop.run(self._client.aclose())

    def __repr__(self) -> str:
        return repr(self._client).replace(type(self._client).__name__, "Client", 1)

    async def open(self) -> None:
        """Do the handshake, and collect events from now on."""
        self._collecting = asyncio.create_task(self._collect())
        await self._client
        self.connected = self._client.connected

    async def _collect(self) -> None:
        async for event in self._client.events():
            self.events.append(event)


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
        client = Client(network, LoopClient(core, server, request_handlers))
        await client.open()
        return client

    client = network.loop.run(begin())
    network.at_end.append(client.close)
    return client
