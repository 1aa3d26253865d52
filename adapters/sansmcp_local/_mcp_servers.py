"""Several servers of one client, and the names of their tools together."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import attrs

import sansmcp
from sansmcp.codecs.conversion import mistake_in
from sansmcp.types import elide

from ._client import ConnectSettings
from ._server_files import ConfiguredServer, read_servers
from ._server_names import SharedNames

_logger = logging.getLogger("sansmcp")

_MAX_SHOWN = 10
"""Tools of one server that are left out, which the warning shows."""

ClientType = TypeVar("ClientType")


@attrs.frozen
class GroupTool:
    """A tool of one of several servers."""

    server: str
    """The name of its server."""
    own_name: str
    """Its name there."""
    tool: sansmcp.schema.Tool
    """What the server says of it, with the name that is unique among all servers."""


class ServerGroup(Generic[ClientType]):
    """The part of a group of clients that does not wait.

    Attributes:
        clients: the connected clients, by the names of their servers.
        failures: why other servers are left out, by their names.
        servers: the servers of the file that are to be connected to.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | Mapping[str, Any],
        *,
        raises: bool = False,
        settings: ConnectSettings | None = None,
    ) -> None:
        """Read the file.

        Args:
            file: its path, or what a file would have; see :func:`read_servers`.
            raises: True to raise the error of a server that cannot be used or connected to. By
                default it is logged as a warning, and the server is left out.
            settings: further arguments of ``connect()`` for each server.

        Raises:
            LocalProtocolError: the file cannot be used.
        """
        self.clients: dict[str, ClientType] = {}
        self.failures: dict[str, sansmcp.CallError | sansmcp.LocalProtocolError] = {}
        self._raises = raises
        found = read_servers(file)
        self.servers = [*found.servers.values()]
        if not self.servers and not found.failures:
            raise sansmcp.LocalProtocolError("The file of a group has no servers to be used")
        for name, error in found.failures.items():
            self.leave_out(name, error)
        self._settings: ConnectSettings = settings or {}
        self._tools: dict[str, GroupTool] | None = None
        self._names = SharedNames(server.name for server in self.servers)

    def __repr__(self) -> str:
        parts = [", ".join(self.clients) or "not connected"]
        if self.failures:
            parts.append(f"left out: {', '.join(self.failures)}")
        return f"<ClientGroup {'; '.join(parts)}>"

    def settings_of(self, server: ConfiguredServer) -> ConnectSettings:
        """Return the arguments of ``connect()`` for a server."""
        return {**self._settings, **server.settings}

    def leave_out(self, name: str, error: sansmcp.CallError | sansmcp.LocalProtocolError) -> None:
        """Log that a server is left out, or raise its error if the group does."""
        if self._raises:
            raise error
        _logger.warning("the server %s is left out: %s", name, error)
        self.failures[name] = error

    def set_tools(
        self, lists: Mapping[str, list[sansmcp.schema.Tool]]
    ) -> list[sansmcp.schema.Tool]:
        """Record the tools of all servers, and return them by the names of the group.

        A tool that breaks the schema of the protocol is left out, with a warning: it would fail
        where the application uses it, and take the tools of the other servers along.
        """
        lists = {server: self._usable(server, tools) for server, tools in lists.items()}
        names = self._names.assign(
            {server: [tool["name"] for tool in tools] for server, tools in lists.items()}
        )
        found: dict[str, GroupTool] = {}
        for server, tools in lists.items():
            for tool in tools:
                own_name = tool["name"]
                name = names.get((server, own_name))
                if name is not None:
                    found.setdefault(name, GroupTool(server, own_name, {**tool, "name": name}))
        self._tools = found
        return [each.tool for each in self._tools.values()]

    def _usable(self, server: str, tools: list[sansmcp.schema.Tool]) -> list[sansmcp.schema.Tool]:
        found: list[sansmcp.schema.Tool] = []
        lost: list[str] = []
        for tool in tools:
            name = cast("object", tool.get("name"))
            mistake = mistake_in(tool, sansmcp.schema.Tool)
            if mistake is None and isinstance(name, str):
                found.append(tool)
            else:
                lost.append(f"{elide(name)}: {mistake}")
        if lost:
            shown = "; ".join(lost[:_MAX_SHOWN])
            _logger.warning("%s: %d tools are left out: %s", server, len(lost), shown)
        return found

    @property
    def has_listed(self) -> bool:
        """True after :meth:`set_tools`."""
        return self._tools is not None

    def find_tool(self, name: str) -> GroupTool:
        """Return a tool by its name in the group.

        Raises:
            LocalProtocolError: there is none; the text names near ones, the servers and those that
                are left out.
        """
        tools = self._tools or {}
        if name in tools:
            return tools[name]
        import difflib  # imported here because it is slow to import and rarely needed

        near = difflib.get_close_matches(name, tools, 3)
        text = f"No server of the group has a tool {name!r}"
        text += f"; did you mean {' or '.join(near)}?" if near else "."
        text += f" It has the tools of {', '.join(self.clients) or 'no server'}"
        if self.failures:
            text += f"; left out are {', '.join(self.failures)} (the reasons are in failures)"
        raise sansmcp.LocalProtocolError(text)
