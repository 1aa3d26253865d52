"""Several servers at once, in an event loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, overload

import attrs

import sansmcp
from sansmcp.base_client import OnProgress
from sansmcp.types import Self, Unpack

from .._client import ConnectSettings
from .._mcp_servers import ServerGroup
from .._server_files import ConfiguredServer
from ._client import Client
from ._loops import Event, current_loop
from ._machine import PendingResult

Converted = TypeVar("Converted")

StartTask: TypeAlias = Callable[..., object]
"""Runs an async function, with the given arguments, in a task."""


@attrs.frozen
class _Opening:
    """A server that a task connects to, and then keeps connected."""

    server: ConfiguredServer
    opened: PendingResult
    """The client."""
    closed: Event


async def _close_all(opening: Collection[_Opening], closing: Event) -> None:
    closing.set()
    for each in opening:
        await each.closed.wait()


class ClientGroup(ServerGroup[Client]):
    """The servers of an ``mcpServers`` file: ``async with ClientGroup(file) as group:``.

    The block begins with connecting to all of them at the same time, and its end closes all
    clients.
    """

    _stack: AsyncExitStack

    @abstractmethod
    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractAsyncContextManager[Client]:
        """Call ``connect()`` of the adapter."""

    @abstractmethod
    def _tasks(self) -> AbstractAsyncContextManager[StartTask]:
        """Return a block that gives the function to start tasks in.

        Its end waits for the tasks. It cancels them first if the block is left by an exception.
        """

    async def __aenter__(self) -> Self:
        loop = current_loop()
        closing = loop.event()
        opening = [
            _Opening(server, PendingResult(loop.event()), loop.event()) for server in self.servers
        ]
        async with AsyncExitStack() as stack:
            start = await stack.enter_async_context(self._tasks())
            for each in opening:
                start(self._keep_open, each, closing)
            errors: list[tuple[ConfiguredServer, sansmcp.CallError]] = []
            for each in opening:
                try:
                    self.clients[each.server.name] = await each.opened.wait()
                except sansmcp.CallError as error:
                    errors.append((each.server, error))
            # An exception would cancel the tasks, and clients in the middle of their end.
            stack.push_async_callback(_close_all, opening, closing)
            for server, reason in errors:
                self.leave_out(server.name, reason)
            self._stack = stack.pop_all()
        return self

    async def _keep_open(self, opening: _Opening, closing: Event) -> None:
        """Connect to a server, and close the client after ``closing`` is set."""
        server = opening.server
        try:
            async with self._connect(server, self.settings_of(server)) as client:
                opening.opened.set_result(client)
                await closing.wait()
        except Exception as error:
            if opening.opened.is_done:
                raise
            opening.opened.set_exception(error)
        finally:
            opening.closed.set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    async def tools(self) -> AsyncGenerator[sansmcp.schema.Tool, None]:
        """Iterate over the tools of all servers, as ``tools()`` of a client does over its own.

        All lists are read before the first tool: a name that several servers have becomes
        SERVER_NAME. A server without the capability for tools is not asked; one whose list cannot
        be read is left out, as one that cannot be connected to.
        """
        for tool in await self._read_tools():
            yield tool

    async def _read_tools(self) -> list[sansmcp.schema.Tool]:
        lists: dict[str, list[sansmcp.schema.Tool]] = {}
        for name, client in self.clients.items():
            if client.has_tools:
                try:
                    lists[name] = [tool async for tool in client.tools()]
                except sansmcp.CallError as error:
                    self.leave_out(name, error)
        return self.set_tools(lists)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[Awaitable[None]] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **settings: Any
    ) -> Any:
        """Call a tool by its name of :meth:`tools`; the lists are read first if they were not.

        The arguments and exceptions are those of ``call_tool()`` of a client.

        Raises:
            LocalProtocolError: no server has the tool.
        """
        if not self.has_listed:
            await self._read_tools()
        found = self.find_tool(name)
        return await self.clients[found.server].call_tool(found.own_name, arguments, **settings)
