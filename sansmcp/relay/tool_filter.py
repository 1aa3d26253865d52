"""Which tools of the upstream server the clients may use, and what the server must know of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import attrs

from ..codecs import json, mirrored

_MAX_NAME = 1000
"""Characters of a tool's name. The specification says that names should have at most 128."""

_MAX_SCHEMAS = 1000
"""Tools with arguments in HTTP headers of which the schemas are kept, the newest."""

_MAX_SCHEMA = 64 * 1024
"""Bytes of one of them as JSON. The headers of a tool with a larger one are not checked here."""


@attrs.frozen
class ToolFilter:
    """Which tools of the upstream server the clients may see and call.

    A tool whose name has more than 1,000 characters is always left out.

    Attributes:
        allow: patterns of names, in which ``*`` stands for any characters.
        deny: patterns of names that are left out, although ``allow`` has them. Upper and lower
            case, the forms of a character that Unicode has for compatibility, and blanks around a
            name make no difference: a server may take ``Delete_File`` for ``delete_file``.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    _folded: tuple[str, ...] = attrs.field(
        default=attrs.Factory(lambda self: tuple(map(_folded, self.deny)), takes_self=True),
        init=False,
        eq=False,
        repr=False,
    )

    def allows(self, *names: object) -> bool:
        """Return True if the clients may call a tool.

        Args:
            names: its name at the server, and the one that clients use if it is another. One of
                them must be allowed, and none of them denied.
        """
        return not self.denies(*names) and any(_matches(self.allow, each) for each in names)

    def denies(self, *names: object) -> bool:
        """Return True if the clients may not call a tool, since one of its names is denied."""
        return not all(
            _is_name(each) and not _matches(self._folded, _folded(each)) for each in names
        )

    def apply(self, result: Any) -> Any:
        """Return the result of ``tools/list`` without the tools that are left out."""
        members = json.as_object(result) or {}
        tools = members.get("tools")
        if not json.is_array(tools):
            return result
        kept = [each for each in tools if self.allows((json.as_object(each) or {}).get("name"))]
        return {**members, "tools": kept}


def _folded(name: str) -> str:
    """Return a name in the form in which names are compared that a server may take for equal."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and len(name) <= _MAX_NAME


def _matches(patterns: Iterable[str], name: object) -> bool:
    return any(_is_match(each, str(name)) for each in patterns)


def _is_match(pattern: str, name: str) -> bool:
    """Return True if a pattern matches a whole name; each ``*`` takes as little as it can.

    A regular expression would take polynomial time, with the number of stars as exponent.
    """
    first, *middle = pattern.split("*")
    if not middle:
        return name == pattern
    last = middle.pop()
    start, end = len(first), len(name) - len(last)
    if start > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        start = name.find(part, start, end)
        if start < 0:
            return False
        start += len(part)
    return True


def learn_schemas(schemas: dict[str, Mapping[str, Any]], result: Any) -> None:
    """Note the tools whose arguments HTTP headers repeat, so that the server can check them.

    Args:
        schemas: by name of a tool; is changed.
        result: a result of ``tools/list``.
    """
    tools = (json.as_object(result) or {}).get("tools")
    for each in tools if json.is_array(tools) else ():
        tool = json.as_object(each) or {}
        name, schema = tool.get("name"), json.as_object(tool.get("inputSchema"))
        try:
            is_mirrored = schema is not None and bool(mirrored.parameters(schema))
        except ValueError:  # clients leave such a tool out
            is_mirrored = False
        schemas.pop(str(name), None)
        if schema is not None and is_mirrored and len(json.encode(schema)) <= _MAX_SCHEMA:
            schemas[str(name)] = schema
    while len(schemas) > _MAX_SCHEMAS:
        del schemas[next(iter(schemas))]
