"""The servers of a file in the form that MCP clients use, and the names of their tools together."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.types import hide_credentials

from ._client import ConnectSettings

_logger = logging.getLogger("sansmcp")

ClientType = TypeVar("ClientType")

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@attrs.frozen
class ConfiguredServer:
    """A server of a file, and the arguments of ``connect()`` for it.

    Attributes:
        name: its name in the file.
        target: its URL, or the command that starts it.
        headers: for a URL.
        env, cwd: for a command.
    """

    name: str
    target: str | list[str] = attrs.field(repr=lambda target: hide_credentials(str(target)))
    headers: list[tuple[str, str]] = attrs.field(repr=False)
    env: dict[str, str] = attrs.field(repr=False)
    cwd: str | None

    @property
    def settings(self) -> ConnectSettings:
        """The keyword arguments of ``connect()``: those for a URL, or those for a command."""
        if isinstance(self.target, str):
            return {"headers": self.headers}
        settings: ConnectSettings = {"env": self.env}
        if self.cwd is not None:
            settings["cwd"] = self.cwd
        return settings


def read_servers(file: str | os.PathLike[str]) -> list[ConfiguredServer]:
    """Read the servers of a JSON file, ``{"mcpServers": {NAME: MEMBERS}}``.

    Args:
        file: its path.

    Raises:
        LocalProtocolError: the file cannot be read or has no servers, or one of them is not as
            :func:`configured_server` takes it.
    """
    try:
        document = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise sansmcp.LocalProtocolError(f"Cannot read {file}: {error}") from error
    servers = as_object((as_object(document) or {}).get("mcpServers"))
    if not servers:
        raise sansmcp.LocalProtocolError(f'{file} has no servers in "mcpServers"')
    return [configured_server(name, each, file) for name, each in servers.items()]


def configured_server(name: str, members: Any, file: str | os.PathLike[str]) -> ConfiguredServer:
    """Read one server: ``{"url", "headers"}``, or ``{"command", "args", "env", "cwd"}``.

    In ``headers`` and ``env``, ``${NAME}`` stands for an environment variable of this process.
    Members of other names are ignored.

    Args:
        name: its name in the file.
        members: what the file has under this name.
        file: the path of the file, for errors.

    Raises:
        LocalProtocolError: there is neither a URL nor a command, or there are both; another member
            is wrong; or an environment variable is not set.
    """
    where, given = f"{file}: {name}", as_object(members) or {}
    url, command = given.get("url"), given.get("command")
    if isinstance(url, str) == isinstance(command, str):
        raise sansmcp.LocalProtocolError(f'{where} needs either a "url" or a "command"')
    arguments: Any = given.get("args") or []
    cwd = given.get("cwd")
    if not is_array(arguments):
        raise sansmcp.LocalProtocolError(f'{where}: "args" must be a list')
    if not (cwd is None or isinstance(cwd, str)):
        raise sansmcp.LocalProtocolError(f'{where}: "cwd" must be a text')
    return ConfiguredServer(
        name,
        url if isinstance(url, str) else [str(command), *map(str, arguments)],
        list(_expanded(given, "headers", where).items()),
        _expanded(given, "env", where),
        cwd,
    )


def _expanded(members: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Return a table of texts, with ``${NAME}`` replaced by environment variables."""
    table = as_object(members.get(name) or {})
    if table is None:
        raise sansmcp.LocalProtocolError(f'{where}: "{name}" must be a table of texts')

    def value(found: re.Match[str]) -> str:
        variable = os.environ.get(found[1])
        if variable is None:
            raise sansmcp.LocalProtocolError(
                f"{where} needs the environment variable {found[1]}, which is not set"
            )
        return variable

    return {key: _VARIABLE.sub(value, str(text)) for key, text in table.items()}


def unique_names(names: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """Return names that tell what several servers offer apart.

    A name is kept if one server has it, and becomes SERVER_NAME if several have it. Two of the new
    names may still be the same: then let the first one count.

    Args:
        names: by server, the names of its tools, or of its prompts.

    Returns:
        The names in a group of these servers, by the server and the name there.
    """
    own_names = {server: dict.fromkeys(each) for server, each in names.items()}
    counts = Counter(name for each in own_names.values() for name in each)
    return {
        (server, name): name if counts[name] == 1 else f"{server}_{name}"
        for server, each in own_names.items()
        for name in each
    }


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

    See :func:`unique_names`. If two tools still have one name, the first counts.
    """
    names = unique_names(
        {server: [tool["name"] for tool in tools] for server, tools in lists.items()}
    )
    found: dict[str, GroupTool] = {}
    for server, tools in lists.items():
        for tool in tools:
            own_name = tool["name"]
            name = names[server, own_name]
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
