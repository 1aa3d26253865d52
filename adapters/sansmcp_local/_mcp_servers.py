"""The servers of a file in the form that MCP clients use, and the names of their tools together."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp.types import hide_credentials

from ._client import ConnectSettings

_logger = logging.getLogger("sansmcp")

ClientType = TypeVar("ClientType")

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@attrs.frozen
class ConfiguredServer:
    """A server of a file: the arguments of ``connect()``."""

    name: str
    target: str | list[str] = attrs.field(repr=lambda target: hide_credentials(str(target)))
    settings: ConnectSettings = attrs.field(repr=False)
    """``headers`` of a URL; ``env``, and ``cwd`` if it is given, of a command."""


def read_servers(file: str | os.PathLike[str]) -> list[ConfiguredServer]:
    """Read ``{"mcpServers": {NAME: {"command", "args", "env", "cwd"} or {"url", "headers"}}}``.

    In ``env`` and ``headers``, ``${NAME}`` stands for an environment variable of this process.

    Raises:
        LocalProtocolError: the file cannot be read or has no servers, a server has neither a URL
            nor a command, or an environment variable is not set.
    """
    try:
        document = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise sansmcp.LocalProtocolError(f"Cannot read {file}: {error}") from error
    servers = as_object((as_object(document) or {}).get("mcpServers"))
    if not servers:
        raise sansmcp.LocalProtocolError(f'{file} has no servers in "mcpServers"')
    return [_server(name, as_object(each) or {}, file) for name, each in servers.items()]


def _server(name: str, server: Mapping[str, Any], file: str | os.PathLike[str]) -> ConfiguredServer:
    url, command = server.get("url"), server.get("command")
    if isinstance(url, str):
        headers = list(_expanded(server.get("headers") or {}).items())
        return ConfiguredServer(name, url, {"headers": headers})
    if not isinstance(command, str):
        raise sansmcp.LocalProtocolError(f'{file}: {name} needs a "url" or a "command"')
    settings: ConnectSettings = {"env": _expanded(server.get("env") or {})}
    if isinstance(server.get("cwd"), str):
        settings["cwd"] = server["cwd"]
    return ConfiguredServer(name, [command, *map(str, server.get("args") or ())], settings)


def _expanded(values: Mapping[str, Any]) -> dict[str, str]:
    """Replace ``${NAME}`` by environment variables."""
    return {name: _VARIABLE.sub(_value, str(value)) for name, value in values.items()}


def _value(found: re.Match[str]) -> str:
    value = os.environ.get(found[1])
    if value is None:
        raise sansmcp.LocalProtocolError(f"The environment variable {found[1]} is not set")
    return value


@attrs.frozen
class GroupTool:
    """A tool of one of several servers."""

    server: str
    """The name of its server."""
    own_name: str
    """Its name there."""
    tool: sansmcp.schema.Tool
    """What the server says of it, with the name that is unique among all servers."""


def group_tools(lists: Mapping[str, list[sansmcp.schema.Tool]]) -> dict[str, GroupTool]:
    """Return the tools of several servers by a name that only one of them has.

    That is the tool's own name, or SERVER_NAME if several servers have a tool of that name. If two
    tools still have one name, the first counts.
    """
    counts = Counter(name for tools in lists.values() for name in {t["name"] for t in tools})
    found: dict[str, GroupTool] = {}
    for server, tools in lists.items():
        for tool in tools:
            own_name = tool["name"]
            name = own_name if counts[own_name] == 1 else f"{server}_{own_name}"
            found.setdefault(name, GroupTool(server, own_name, {**tool, "name": name}))
    return found


class ServerGroup(Generic[ClientType]):
    """The part of a group of clients that does not wait.

    Attributes:
        clients: the connected clients, by the names of their servers.
        failures: why the other servers are left out, by their names.
        servers: all servers of the file.
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
            file: its path; see :func:`read_servers`.
            raises: True to raise the error of a server that cannot be connected to. By default it
                is logged as a warning, and the server is left out.
            settings: further arguments of ``connect()`` for each server.

        Raises:
            LocalProtocolError: the file cannot be used.
        """
        self.clients: dict[str, ClientType] = {}
        self.failures: dict[str, sansmcp.CallError] = {}
        self.servers = read_servers(file)
        self._raises = raises
        self._settings: ConnectSettings = settings or {}
        self._tools: dict[str, GroupTool] | None = None

    def settings_of(self, server: ConfiguredServer) -> ConnectSettings:
        """Return the arguments of ``connect()`` for a server."""
        return {**self._settings, **server.settings}

    def leave_out(self, server: ConfiguredServer, error: sansmcp.CallError) -> None:
        """Log that a server is left out, or raise its error if the group does."""
        if self._raises:
            raise error
        _logger.warning("the server %s is left out: %s", server.name, error)
        self.failures[server.name] = error

    def set_tools(
        self, lists: Mapping[str, list[sansmcp.schema.Tool]]
    ) -> list[sansmcp.schema.Tool]:
        """Record the tools of all servers, and return them by the names of the group."""
        self._tools = group_tools(lists)
        return [each.tool for each in self._tools.values()]

    @property
    def has_listed(self) -> bool:
        """True after :meth:`set_tools`."""
        return self._tools is not None

    def find_tool(self, name: str) -> GroupTool:
        """Return a tool by its name in the group. Raises LocalProtocolError if there is none."""
        found = (self._tools or {}).get(name)
        if found is None:
            raise sansmcp.LocalProtocolError(f"No server of the group has a tool {name!r}")
        return found
