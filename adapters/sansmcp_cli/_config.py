"""The configuration file: names for servers, with their headers.

``config.toml`` has a table ``[servers.NAME]`` for each server, ``mcp.json`` an object in
``mcpServers``, the form that other clients use. Both may exist; the members are the same.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import attrs

from sansmcp.codecs.json import as_object, is_array

from ._output import UsageError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_MEMBERS = {"url", "headers", "command", "args", "env", "cwd", "type", "transport"}
"""The members of a server; the last two are those of other clients, and not needed here."""


@attrs.frozen(kw_only=True)
class NamedServer:
    """A server of the configuration file: its URL, or the command that starts it."""

    target: str | list[str]
    headers: list[tuple[str, str]] = attrs.field(repr=False)
    env: dict[str, str] = attrs.field(repr=False)
    cwd: str | None


def config_directory() -> Path:
    """Return the directory of the configuration."""
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "sansmcp"


def server_names() -> list[str]:
    """Return the names of all servers, in order. Raises UsageError."""
    return sorted(_servers())


def named_server(name: str) -> NamedServer:
    """Return the server of that name.

    Raises UsageError: there is none, or the file is not as it must be.
    """
    servers = _servers()
    if name not in servers:
        raise UsageError(_unknown(name, list(servers)))
    file, members = servers[name]
    where = f"{file}: {name}"
    unknown = sorted(members.keys() - _MEMBERS)
    if unknown:
        known = ", ".join(sorted(_MEMBERS))
        raise UsageError(f"{where} has the unknown member {unknown[0]!r}; known are {known}")
    url, command = members.get("url"), members.get("command")
    if isinstance(url, str) == isinstance(command, str):
        raise UsageError(f'{where} needs either a "url" or a "command"')
    arguments = members.get("args", [])
    if not is_array(arguments):
        raise UsageError(f'{where}: "args" must be a list')
    cwd = members.get("cwd")
    return NamedServer(
        target=url if isinstance(url, str) else [str(command), *map(str, arguments)],
        headers=list(_expanded(members, "headers", where).items()),
        env=_expanded(members, "env", where),
        cwd=cwd if isinstance(cwd, str) else None,
    )


def _unknown(name: str, names: list[str]) -> str:
    text = f"Not a URL, nor the name of a server: {name!r}; write http://{name}, or "
    text += "put the command that starts a server after --"
    near = get_close_matches(name, names, 1)
    return f"{text}; did you mean {near[0]!r}?" if near else text


def _servers() -> dict[str, tuple[Path, Mapping[str, Any]]]:
    found: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for file, table in ((_TOML, "servers"), (_JSON, "mcpServers")):
        path = config_directory() / file
        servers = as_object(_read(path).get(table, {}))
        if servers is None:
            raise UsageError(f"{path}: {table!r} must be a table of servers")
        for name, members in servers.items():
            found.setdefault(name, (path, as_object(members) or {}))
    return found


_TOML, _JSON = "config.toml", "mcp.json"


def _read(path: Path) -> Mapping[str, Any]:
    """Return what a file contains; empty if it does not exist."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot read {path}: {error}") from error
    try:
        document = json.loads(text) if path.name == _JSON else _parse_toml(text, path)
    except ValueError as error:
        raise UsageError(f"Cannot read {path}: {error}") from error
    return as_object(document) or {}


def _parse_toml(text: str, path: Path) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise UsageError(
                f"Python 3.10 cannot read {path} alone: pip install 'sansmcp[cli]', or use {_JSON}"
            ) from error
    return tomllib.loads(text)


def _expanded(members: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Return a table of texts, with ``${NAME}`` replaced by environment variables."""
    table = as_object(members.get(name, {}))
    if table is None:
        raise UsageError(f"{where}: {name!r} must be a table of texts")

    def value(found: re.Match[str]) -> str:
        variable = os.environ.get(found[1])
        if variable is None:
            raise UsageError(f"{where} needs the environment variable {found[1]}, which is not set")
        return variable

    return {key: _VARIABLE.sub(value, str(text)) for key, text in table.items()}
