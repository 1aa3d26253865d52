"""The configuration file: names for servers, with their headers.

``config.toml`` has a table ``[servers.NAME]`` for each server, ``mcp.json`` an object in
``mcpServers``, the form that other clients use. Both may exist; the members are the same.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp_local import ConfiguredServer, ServerFile, parse_servers, read_servers

from ._output import UsageError


def config_directory() -> Path:
    """Return the directory of the configuration."""
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "sansmcp"


def server_names() -> list[str]:
    """Return the names of all servers that can be used, in order. Raises UsageError."""
    return sorted({name for found in _files() for name in found.servers})


def named_server(name: str, later: Sequence[str] = ()) -> ConfiguredServer:
    """Return the server of that name; ``later`` are the words after it.

    Raises UsageError: there is none, it is disabled, or the file is not as it must be.
    """
    names: list[str] = []
    for found in _files():
        if name in found.servers:
            return found.servers[name]
        if name in found.failures:
            raise UsageError(str(found.failures[name]))
        if name in found.disabled:
            raise UsageError(f"The configuration disables {name!r}; remove that to use it")
        names += found.servers
    raise UsageError(_unknown(name, names, later))


def _unknown(name: str, names: list[str], later: Sequence[str]) -> str:
    scheme = "https" if name.startswith("https:") else "http"
    url = f"write {scheme}://{re.sub('^https?:/*', '', name)}"
    command = "put the command that starts a server after --"
    # Other words are mostly the name of a tool, before which the server was forgotten.
    is_host = name == "localhost" or any(sign in name for sign in ".:/")
    first, second = (url, command) if is_host else (command, url)
    text = f"Not a URL, nor the name of a server: {name!r}; {first}, or {second}"
    if any(word.startswith(("http://", "https://")) for word in later):
        text = f"The server comes first: write its URL before {name!r}, not after it"
    if name.endswith(".py"):
        text = f"{name} is a program; write it after a double dash: -- python {name}"
    near = get_close_matches(name, names, 1)
    return f"{text}; did you mean {near[0]!r}?" if near else text


_TOML, _JSON = "config.toml", "mcp.json"


def _files() -> Iterator[ServerFile]:
    """Read the files that exist, of which the first counts where a name is in both."""
    toml, in_json = config_directory() / _TOML, config_directory() / _JSON
    try:
        if toml.exists():
            yield parse_servers(_toml_table(toml), toml, is_strict=True)
        if in_json.exists():
            yield read_servers(in_json)
    except OSError as error:
        raise UsageError(f"Cannot read {config_directory()}: {error}") from error
    except sansmcp.LocalProtocolError as error:
        raise UsageError(str(error)) from error


def _toml_table(path: Path) -> Mapping[str, Any]:
    try:
        document = _parse_toml(path.read_text(encoding="utf-8-sig"), path)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"Cannot read {path}: {error}") from error
    table = as_object((as_object(document) or {}).get("servers", {}))
    if table is None:
        raise UsageError(f"{path}: 'servers' must be a table of servers")
    return table


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
