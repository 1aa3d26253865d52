"""Read the servers of a file in the forms that MCP clients write.

The file is JSON as people have it: with comments, commas too many, a byte order mark, or in UTF-16.
An entry that cannot be used is left out with its reason, so that the others can be. docs/servers.md
lists the members and the forms of variables.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

import sansmcp
from sansmcp.codecs.headers import further_headers
from sansmcp.codecs.json import as_object, is_array
from sansmcp.types import (
    HTTP_SSE,
    PIPE_TRANSPORTS,
    STDIO,
    STDIO_V2,
    STREAMABLE_HTTP,
    escape_controls,
    hide_credentials,
)

from ._client import ConnectSettings
from ._json import load_json

_logger = logging.getLogger("sansmcp")

_MOST_BYTES = 4 << 20
"""Bytes of a file. Settings of an editor, which may have the servers among them, are smaller."""

_MOST_SHOWN = 10
"""Names that an error shows."""

_TABLES = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
"""Where the table of servers may be. Else the document is the table, if it looks like one."""

_URLS = ("httpUrl", "url", "serverUrl")
"""Names for the URL. Of several, the first counts."""

TRANSPORTS = {
    "stdio": STDIO,
    "local": STDIO,
    "stdio-v2": STDIO_V2,
    "http": STREAMABLE_HTTP,
    "streamable-http": STREAMABLE_HTTP,
    "streamable_http": STREAMABLE_HTTP,
    "streamablehttp": STREAMABLE_HTTP,
    "remote": STREAMABLE_HTTP,
    "sse": HTTP_SSE,
    "http+sse": HTTP_SSE,
}
"""Words in ``type`` or ``transport``, in lower case."""

READ = {*_URLS, "headers", "command", "args", "env", "cwd", "type", "transport"} | {
    "disabled",
    "enabled",
}
HARMLESS = {
    "alwaysAllow",
    "autoApprove",
    "author",
    "description",
    "dev",
    "displayName",
    "gallery",
    "icon",
    "id",
    "name",
    "timeout",
    "title",
    "trust",
    "version",
}
"""Members that say how a client shows a server, or which calls it makes without asking. To ignore
them changes nothing here, so it is logged at the level INFO only; ``timeout`` is in seconds in some
files and in milliseconds in others."""

_IN_JSON = re.compile(r'"(?:\\.|[^"\\])*"?|//[^\r\n]*|/\*.*?(?:\*/|\Z)|,(?=\s*[\]}])', re.DOTALL)
_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"(?:env:)?(\w+)(?::-(.*))?", re.DOTALL)


@attrs.frozen
class ConfiguredServer:
    """A server of a file, and the arguments of ``connect()`` for it.

    Attributes:
        name: its name in the file.
        target: its URL, or the command that starts it.
        headers: for a URL.
        env, cwd: for a command.
        transports: for a URL whose transport the file names; None to find it out.
        is_v2: for a command, True if its process speaks stdio-v2.
    """

    name: str
    target: str | list[str] = attrs.field(repr=False)
    headers: list[tuple[str, str]] = attrs.field(repr=False)
    env: dict[str, str] = attrs.field(repr=False)
    cwd: str | None = attrs.field(repr=False)
    transports: tuple[str, ...] | None
    is_v2: bool = False

    @property
    def settings(self) -> ConnectSettings:
        """The keyword arguments of ``connect()``: those for a URL, or those for a command."""
        settings: ConnectSettings
        if isinstance(self.target, str):
            settings = {"headers": self.headers}
            if self.transports is not None:
                settings["transports"] = self.transports
            return settings
        settings = {"env": self.env}
        if self.cwd is not None:
            settings["cwd"] = self.cwd
        if self.is_v2:
            settings["transport"] = "stdio-v2"
        return settings


@attrs.frozen
class ServerFile:
    """The servers of a file.

    Attributes:
        servers: those that can be used, by name.
        failures: why others cannot be used, by name.
        disabled: the names of those that the file turns off.
    """

    servers: dict[str, ConfiguredServer]
    failures: dict[str, sansmcp.LocalProtocolError]
    disabled: tuple[str, ...]


def read_servers(source: str | os.PathLike[str] | Mapping[str, Any]) -> ServerFile:
    """Read the servers of a JSON file, ``{"mcpServers": {NAME: MEMBERS}}`` or another known form.

    What an entry has and is not used here is logged once.

    Args:
        source: the path of the file, or what a file would have.

    Raises:
        LocalProtocolError: the file cannot be read, or has no table of servers.
    """
    if isinstance(source, Mapping):
        return parse_servers(_table_in(source, "The mapping"), "the mapping")
    return parse_servers(_table_in(_read(source), source), source)


def parse_servers(
    table: Mapping[str, Any], file: str | os.PathLike[str], *, is_strict: bool = False
) -> ServerFile:
    """Read a table of servers.

    Args:
        table: the members of each server, by its name.
        file: the path of the file, for errors.
        is_strict: True to refuse an entry that has unknown members; they are ignored otherwise.
    """
    found = ServerFile({}, {}, ())
    disabled: list[str] = []
    ignored: dict[str, list[str]] = {}
    for name, entry in table.items():
        try:
            where = f"{file}: {escape_controls(name)}"
            members = _members(entry, where)
            if _is_disabled(members, where):
                disabled.append(name)
                continue
            unused = [each for each in members if each not in READ]
            if is_strict and unused:
                raise sansmcp.LocalProtocolError(
                    f"{where} has the unknown member {unused[0]!r}; known are "
                    f"{', '.join(sorted(READ))}{_nearest(unused[0])}"
                )
            found.servers[name] = _configured(name, members, where)
        except sansmcp.LocalProtocolError as error:
            found.failures[name] = error
        else:
            if unused:
                ignored[name] = unused
    _log_ignored(ignored, file)
    return attrs.evolve(found, disabled=tuple(disabled))


def _log_ignored(ignored: Mapping[str, list[str]], file: str | os.PathLike[str]) -> None:
    """Log the members that have no effect, in one line for those that might have been meant."""
    for level, is_meant in ((logging.WARNING, True), (logging.INFO, False)):
        shown = [
            escape_controls(f"{name}: {', '.join(members)}")
            for name, unused in ignored.items()
            if (members := [each for each in unused if (each not in HARMLESS) is is_meant])
        ]
        if shown:
            _logger.log(level, "%s has members that are ignored here: %s", file, "; ".join(shown))


def _read(file: str | os.PathLike[str]) -> Any:
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        return parse_json(data)
    except json.JSONDecodeError as error:
        raise sansmcp.LocalProtocolError(f"{Path(file)} is not JSON: {error}") from error
    except (OSError, ValueError) as error:
        raise sansmcp.LocalProtocolError(f"Cannot read {Path(file)}: {error}") from error


def parse_json(data: bytes) -> Any:
    """Parse JSON as people have it in files.

    Comments, commas before a closing bracket and a byte order mark are skipped; with one, the text
    may be UTF-16.

    Raises:
        ValueError: it is no such text.
    """
    is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    try:
        return load_json(text)
    except ValueError:
        # Blanks instead, so that errors name the right line and column.
        without_comments = _IN_JSON.sub(lambda found: _blank(found[0], ("/",)), text)
        return load_json(_IN_JSON.sub(lambda found: _blank(found[0], (",",)), without_comments))


def _blank(found: str, starts: tuple[str, ...]) -> str:
    return re.sub(r"[^\r\n]", " ", found) if found.startswith(starts) else found


def _table_in(document: Any, file: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the table of servers of a document. Raises LocalProtocolError."""
    top = as_object(document)
    for path in _TABLES:
        place: Any = top
        for name in path:
            place = (as_object(place) or {}).get(name)
        if place is not None:
            table = as_object(place)
            if table is None:
                raise sansmcp.LocalProtocolError(
                    f"{file}: {'.'.join(path)!r} must be a table of servers"
                )
            return table
    if top is not None and all(map(_looks_like_a_server, top.values())):
        return top
    names = "none" if not top else ", ".join(repr(name) for name in [*top][:_MOST_SHOWN])
    raise sansmcp.LocalProtocolError(
        f'{file} has no servers in "mcpServers", the form of most clients, nor in "servers" or '
        f'"mcp.servers"; at its top it has {names}'
    )


def _looks_like_a_server(entry: Any) -> bool:
    return not {"command", *_URLS}.isdisjoint(as_object(entry) or {})


def _members(entry: Any, where: str) -> dict[str, Any]:
    """Return the members of an entry; those that are null count as absent."""
    members = as_object(entry)
    if members is None:
        raise sansmcp.LocalProtocolError(f"{where} must be a table of members")
    found = {name: value for name, value in members.items() if value is not None}
    if found.get("tools") == ["*"]:  # all of them, as without it
        del found["tools"]
    return found


def _is_disabled(members: Mapping[str, Any], where: str) -> bool:
    is_off = _flag(members.get("disabled", False), f'{where}: "disabled"')
    return is_off or not _flag(members.get("enabled", True), f'{where}: "enabled"')


def _flag(value: Any, where: str) -> bool:
    word = value.lower() if isinstance(value, str) else value
    if word not in (True, False, "true", "false"):
        raise sansmcp.LocalProtocolError(f"{where} must be true or false")
    return word in (True, "true")


def _configured(name: str, members: Mapping[str, Any], where: str) -> ConfiguredServer:
    urls = [members[each] for each in _URLS if members.get(each)]
    command = members.get("command") or None
    transport = _transport(members, where)
    if transport is None and (command is not None) == bool(urls):
        raise sansmcp.LocalProtocolError(
            f'{where} needs either a "url" or a "command"; it has {_shown(members)}'
        )
    if transport in PIPE_TRANSPORTS or not urls:
        if command is None or transport not in (None, *PIPE_TRANSPORTS):
            what = "command" if transport in PIPE_TRANSPORTS else "url"
            raise sansmcp.LocalProtocolError(f'{where} has no "{what}", which its type needs')
        return _process(name, members, where, is_v2=transport == STDIO_V2)
    headers = [*_table(members, "headers", where).items()]
    try:
        further_headers(headers)
    except sansmcp.LocalProtocolError as error:
        raise sansmcp.LocalProtocolError(f"{where}: {error}") from None
    transports = (HTTP_SSE,) if transport == HTTP_SSE else None
    return ConfiguredServer(name, _url(urls[0], where), headers, {}, None, transports)


def _shown(members: Mapping[str, Any]) -> str:
    """Return the names of the members of an entry; those that are not known with the closest."""
    names = [f"{name!r}{'' if name in READ else _nearest(name)}" for name in members]
    return ", ".join(names[:_MOST_SHOWN]) or "no members"


def _nearest(name: str) -> str:
    """Return the known member that is closest to a name, as the end of a sentence, or nothing."""
    import difflib  # imported here because it is slow to import and rarely needed

    near = difflib.get_close_matches(name, sorted(READ), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _process(name: str, members: Mapping[str, Any], where: str, *, is_v2: bool) -> ConfiguredServer:
    arguments: Any = members.get("args") or []
    if not is_array(arguments):
        raise sansmcp.LocalProtocolError(f'{where}: "args" must be a list')
    words = [_text(members["command"], f'{where}: "command"')]
    words += [_text(each, f'{where}: "args"') for each in arguments]
    cwd = members.get("cwd") or None
    if cwd is not None:
        cwd = _text(cwd, f'{where}: "cwd"')
    env = _table(members, "env", where)
    return ConfiguredServer(name, words, [], env, cwd, None, is_v2)


def _transport(members: Mapping[str, Any], where: str) -> str | None:
    """Return the transport that an entry names; None if it names none."""
    for member in ("type", "transport"):
        word = members.get(member)
        if word is not None:
            known = TRANSPORTS.get(word.lower()) if isinstance(word, str) else None
            if known is None:
                raise sansmcp.LocalProtocolError(
                    f'{where}: "{member}" must be stdio, stdio-v2, http or sse, got {word!r}'
                )
            return known
    return None


def _url(given: Any, where: str) -> str:
    """Return the URL, which is checked. Its variables are shown by name only."""
    url = _text(given, f"{where}: the URL")
    try:
        sansmcp.Url.parse(url)
    except sansmcp.LocalProtocolError as error:
        if url == given or not isinstance(given, str):
            raise sansmcp.LocalProtocolError(f"{where}: {error}") from None
        shown = hide_credentials(given)
        raise sansmcp.LocalProtocolError(
            f"{where}: not a URL with the values of its variables: {shown!r}"
        ) from None
    return url


def _table(members: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    """Return a table of texts; those that are null are left out."""
    table = as_object(members.get(name) or {})
    if table is None:
        raise sansmcp.LocalProtocolError(f'{where}: "{name}" must be a table of texts')
    return {
        key: _text(value, f'{where}: "{name}.{escape_controls(key)}"')
        for key, value in table.items()
        if value is not None
    }


def _text(value: Any, where: str) -> str:
    """Return a text with its variables replaced; numbers and booleans as JSON writes them.

    Raises LocalProtocolError, whose text has no value of a variable.
    """
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise sansmcp.LocalProtocolError(f"{where} must be a text")
    text = _VARIABLE.sub(_replaced(where), value)
    if "\0" in text:
        raise sansmcp.LocalProtocolError(f"{where} has a NUL character")
    return text


def _replaced(where: str) -> Callable[[re.Match[str]], str]:
    """Return what replaces a match of ``_VARIABLE``. What came out is not looked at again."""

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        parts = _NAME.fullmatch(found[1]) if found[2] else None
        if parts is None or "${" in (parts[2] or ""):
            raise sansmcp.LocalProtocolError(
                f"{where} has {found[0]!r}, and only ${{NAME}}, ${{env:NAME}} and "
                "${NAME:-DEFAULT} are replaced; write $${ for a literal ${"
            )
        value = os.environ.get(parts[1])
        if parts[2] is not None:
            return value or parts[2]
        if value is None:
            raise sansmcp.LocalProtocolError(
                f"{where} needs the environment variable {parts[1]}, which is not set"
            )
        return value

    return replaced
