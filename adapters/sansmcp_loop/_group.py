"""Several servers at once, in an event loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any

import sansmcp
from sansmcp.types import Self
from sansmcp_local import ConfiguredServer, ConnectSettings, ServerGroup

from ._client import Client


class ClientGroup(ServerGroup[Client]):
    """The servers of an ``mcpServers`` file: ``async with ClientGroup(file) as group:``.

    The block connects to them one after the other, and its end closes all clients.
    """

    _stack: AsyncExitStack

    @abstractmethod
    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractAsyncContextManager[Client]:
        """Call ``connect()`` of the adapter."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for server in self.servers:
                try:
                    connecting = self._connect(server, self.settings_of(server))
                    self.clients[server.name] = await stack.enter_async_context(connecting)
                except sansmcp.CallError as error:
                    self.leave_out(server, error)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    async def tools(self) -> list[sansmcp.schema.Tool]:
        """Return the tools of all servers. Raises the exceptions of :meth:`call_tool`.

        A name that several servers have becomes SERVER_NAME. A server without the capability for
        tools is not asked.
        """
        lists: dict[str, list[sansmcp.schema.Tool]] = {}
        for name, client in self.clients.items():
            if client.has_tools:
                lists[name] = [tool async for tool in client.tools()]
        return self.set_tools(lists)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **settings: Any
    ) -> Any:
        """Call a tool by its name of :meth:`tools`, which this calls first if nothing else has.

        The arguments and exceptions are those of ``call_tool()`` of a client.

        Raises:
            LocalProtocolError: no server has the tool.
        """
        if not self.has_listed:
            await self.tools()
        found = self.find_tool(name)
        return await self.clients[found.server].call_tool(found.own_name, arguments, **settings)
