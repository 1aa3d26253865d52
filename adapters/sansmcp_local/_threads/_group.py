"""Several servers at once, for code that blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, TypeVar, overload

import sansmcp
from sansmcp.base_client import OnProgress
from sansmcp.types import Self, Unpack

from .._client import ConnectSettings
from .._mcp_servers import ServerGroup
from .._server_files import ConfiguredServer
from ._client import BlockingClient

Converted = TypeVar("Converted")


class ThreadClientGroup(ServerGroup[BlockingClient]):
    """The servers of an ``mcpServers`` file: ``with ClientGroup(file) as group:``.

    The block begins with connecting to them one after the other, so that Ctrl-C interrupts it as
    it does a single ``connect()``. Its end closes all clients.
    """

    _stack: ExitStack

    @abstractmethod
    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractContextManager[BlockingClient]:
        """Call ``connect()`` of the adapter."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in self.servers:
                try:
                    connecting = self._connect(server, self.settings_of(server))
                    self.clients[server.name] = stack.enter_context(connecting)
                except sansmcp.CallError as error:
                    self.leave_out(server.name, error)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, traceback)

    def tools(self) -> Iterator[sansmcp.schema.Tool]:
        """Iterate over the tools of all servers, as ``tools()`` of a client does over its own.

        All lists are read before the first tool: a name that several servers have becomes
        SERVER_NAME. A server without the capability for tools is not asked; one whose list cannot
        be read is left out, as one that cannot be connected to.
        """
        yield from self._read_tools()

    def _read_tools(self) -> list[sansmcp.schema.Tool]:
        lists: dict[str, list[sansmcp.schema.Tool]] = {}
        for name, client in self.clients.items():
            if client.has_tools:
                try:
                    lists[name] = list(client.tools())
                except sansmcp.CallError as error:
                    self.leave_out(name, error)
        return self.set_tools(lists)

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

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **settings: Any
    ) -> Any:
        """Call a tool by its name of :meth:`tools`; the lists are read first if they were not.

        The arguments and exceptions are those of ``call_tool()`` of a client.

        Raises:
            LocalProtocolError: no server has the tool.
        """
        if not self.has_listed:
            self._read_tools()
        found = self.find_tool(name)
        return self.clients[found.server].call_tool(found.own_name, arguments, **settings)
