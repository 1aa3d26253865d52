"""Several servers at once, for code that blocks."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import sansmcp
from sansmcp.types import Self
from sansmcp_local import (
    ConfiguredServer,
    ConnectSettings,
    GroupTool,
    group_tools,
    no_tool,
    read_servers,
)

from ._client import Client

_logger = logging.getLogger("sansmcp")


class ClientGroup:
    """The servers of an ``mcpServers`` file: ``with ClientGroup(file) as group:``.

    The block connects to them one after the other, and its end closes all clients.

    Attributes:
        clients: the connected clients, by the names of their servers.
        failures: why the other servers are left out, by their names.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        raises: bool = False,
        settings: ConnectSettings | None = None,
    ) -> None:
        """Read the file.

        Args:
            file: its path; see :func:`sansmcp_local.read_servers`.
            raises: True to raise the error of a server that cannot be connected to. By default it
                is logged as a warning, and the server is left out.
            settings: further arguments of ``connect()`` for each server.

        Raises:
            LocalProtocolError: the file cannot be used.
        """
        self.clients: dict[str, Client] = {}
        self.failures: dict[str, sansmcp.CallError] = {}
        self._servers = read_servers(file)
        self._raises = raises
        self._settings: ConnectSettings = settings or {}
        self._tools: dict[str, GroupTool] | None = None
        self._stack = ExitStack()

    @abstractmethod
    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractContextManager[Client]:
        """Call ``connect()`` of the adapter."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in self._servers:
                settings: ConnectSettings = {**self._settings, **server.settings}
                try:
                    client = stack.enter_context(self._connect(server, settings))
                except sansmcp.CallError as error:
                    if self._raises:
                        raise
                    _logger.warning("the server %s is left out: %s", server.name, error)
                    self.failures[server.name] = error
                else:
                    self.clients[server.name] = client
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, traceback)

    def tools(self) -> list[sansmcp.schema.Tool]:
        """Return the tools of all servers. Raises the exceptions of :meth:`call_tool`.

        A name that several servers have becomes SERVER_NAME. A server without the capability for
        tools is not asked.
        """
        lists: dict[str, list[sansmcp.schema.Tool]] = {}
        for name, client in self.clients.items():
            if client.has_tools:
                lists[name] = list(client.tools())
        self._tools = group_tools(lists)
        return [each.tool for each in self._tools.values()]

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **settings: Any
    ) -> Any:
        """Call a tool by its name of :meth:`tools`, which this calls first if nothing else has.

        The arguments and exceptions are those of ``call_tool()`` of a client.

        Raises:
            LocalProtocolError: no server has the tool.
        """
        if self._tools is None:
            self.tools()
        assert self._tools is not None
        if name not in self._tools:
            raise no_tool(name)
        found = self._tools[name]
        return self.clients[found.server].call_tool(found.own_name, arguments, **settings)
