"""Files and patterns of users as targets: server files, recordings, filters of tools.

What is not as it must be is refused with the documented error; nothing else is raised.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any, cast

from sansmcp import LocalProtocolError, Url
from sansmcp.codecs import mirrored
from sansmcp.relay import ToolFilter
from sansmcp_cli._output import UsageError
from sansmcp_cli._recording import read_recording
from sansmcp_local import read_servers
from sansmcp_local._server_files import parse_json

from .inputs import in_parts, seeded

_IN_MEMORY = "/dev/shm"
_FOLDER = _IN_MEMORY if Path(_IN_MEMORY).is_dir() else None
_MAX_STARS = 6
"""Stars of a pattern for which a regular expression is quick enough, on a name of _MAX_NAME."""
_MAX_NAME = 60


def configuration_files(data: bytes) -> None:
    """A file is read as JSON where it is JSON; servers that can be used have what they need."""
    _, text = seeded(data)
    try:
        document = parse_json(text)
    except ValueError:
        return
    try:
        plain = json.loads(text)
    except ValueError:
        pass  # it has comments, or commas too many
    else:
        assert repr(document) == repr(plain)  # NaN is not equal to itself
    if not isinstance(document, dict):
        return
    try:
        found = read_servers(cast(dict[str, Any], document))
    except LocalProtocolError:
        return
    names = [*found.servers, *found.failures, *found.disabled]
    assert len(names) == len({*names}), "a server is two things"
    for name, server in found.servers.items():
        assert server.name == name
        if isinstance(server.target, str):
            Url.parse(server.target)
        else:
            assert all(isinstance(word, str) for word in server.target)
            assert server.target[0]
        assert all(map(_are_texts, (dict(server.headers), server.env)))


def _are_texts(table: dict[Any, Any]) -> bool:
    return all(isinstance(each, str) for pair in table.items() for each in pair)


def recordings(data: bytes) -> None:
    """A recording is refused, or all that it has can be used."""
    _, text = seeded(data)
    with tempfile.NamedTemporaryFile(dir=_FOLDER) as file:
        file.write(text)
        file.flush()
        try:
            recording = read_recording(file.name)
        except UsageError:
            return
    for step in recording.steps:
        step.data()
        step.data("stderr")
    exchanges = recording.exchanges()
    assert len({each.number for each in exchanges}) == len(exchanges)
    for each in exchanges:
        each.header("content-type")
        assert each.response == b"".join(piece for *_, piece in each.pieces)
        assert each.status is None or 200 <= each.status < 600


def patterns(data: bytes) -> None:
    """A filter decides as a regular expression does; what is denied is so in any spelling."""
    _, parts = in_parts(data)
    allow, deny, *names = (each.decode("utf-8", "replace")[:_MAX_NAME] for each in [*parts, b"*"])
    if max(allow.count("*"), deny.count("*")) > _MAX_STARS:
        return
    for name in names:
        is_allowed = _matches(allow, name)
        assert ToolFilter((allow,)).allows(name) is is_allowed
        both = ToolFilter((allow,), (deny,)).allows(name)
        assert not both or (is_allowed and not _matches(deny, name))
        if not ToolFilter(("*",), (name.replace("*", ""),)).allows(name):
            for other in (name.swapcase(), f" {name}\t"):
                if other.casefold().strip() == name.casefold().strip():
                    assert not ToolFilter(("*",), (name.replace("*", ""),)).allows(other)


def _matches(pattern: str, name: str) -> bool:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    return re.fullmatch(expression, name, re.DOTALL) is not None


def tool_names(data: bytes) -> None:
    """A list of tools keeps those that are allowed, whatever their names are."""
    _, text = seeded(data)
    try:
        tools = parse_json(text)
    except ValueError:
        return
    listed: list[Any] = [*tools] if isinstance(tools, list) else []
    chosen = ToolFilter(("*a*", "b*"), ("*z",))
    result = chosen.apply({"tools": tools})
    if not isinstance(tools, list):
        assert result == {"tools": tools}
        return
    objects: list[dict[str, Any]] = [each if isinstance(each, dict) else {} for each in listed]
    names = [each.get("name") for each in objects]
    kept = [each for each, name in zip(listed, names, strict=True) if chosen.allows(name)]
    assert repr(result["tools"]) == repr(kept)
    for name in names:
        if isinstance(name, str) and name.isprintable():
            assert mirrored.decode_header_value(mirrored.encode_header_value(name)) == name
