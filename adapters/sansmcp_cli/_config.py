"""The configuration file: names for servers, with their headers.

``config.toml`` has a table ``[servers.NAME]`` for each server, ``mcp.json`` an object in
``mcpServers``, the form that other clients use. Both may exist; the members are the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp_local import ConfiguredServer, configured_server

from ._output import UsageError

_MEMBERS = {"url", "headers", "command", "args", "env", "cwd", "type", "transport"}
"""The members of a server; the last two are those of other clients, and not needed here."""


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


def named_server(name: str) -> ConfiguredServer:
    """Return the server of that name.

    Raises UsageError: there is none, or the file is not as it must be.
    """
    servers = _servers()
    if name not in servers:
        raise UsageError(_unknown(name, list(servers)))
    file, members = servers[name]
    unknown = sorted(members.keys() - _MEMBERS)
    if unknown:
        known = ", ".join(sorted(_MEMBERS))
        raise UsageError(f"{file}: {name} has the unknown member {unknown[0]!r}; known are {known}")
    try:
        return configured_server(name, members, file)
    except sansmcp.LocalProtocolError as error:
        raise UsageError(str(error)) from error


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
