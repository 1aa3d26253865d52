"""``sansmcp call``."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Generator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import sansmcp
from sansmcp.base_client import tool_params
from sansmcp.codecs.json import as_object, is_array
from sansmcp.events import Connected
from sansmcp.types import elide

from ._adapters import Script, ScriptCall
from ._display import show_content, show_json, show_value
from ._output import Commands, UsageError
from ._session import add_session, converse, pages, prepared
from ._target import USAGE
from ._values import Schema, convert, convert_list, describe, resolved, types_of

_USAGE = (
    "usage: sansmcp call URL TOOL [NAME=VALUE ...], or sansmcp call TOOL [NAME=VALUE ...] -- "
    "COMMAND"
)
_PAIR = re.compile(r"([^={}\[\]\"\s]+)=(.*)", re.DOTALL)


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "call",
        help="call a tool",
        usage="sansmcp call [options] URL TOOL [NAME=VALUE ... | JSON]\n"
        "       sansmcp call [options] TOOL [NAME=VALUE ... | JSON] -- COMMAND [ARGS ...]",
        description="Call a tool, and print its result. Each VALUE is converted to the type that "
        "the tool's schema names; a name that is given several times makes a list. "
        f"{USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument(
        "words",
        nargs="+",
        metavar="[URL] TOOL [NAME=VALUE ...]",
        help="the arguments; or all of them as one JSON object",
    )
    add_session(command)
    command.set_defaults(run=_call)


def _call(options: argparse.Namespace) -> int:
    outcomes: list[Mapping[str, Any]] = []
    words: list[str] = options.words
    with prepared(options, words) as conversation:
        if not words:
            raise UsageError(f"Missing name of a tool; {_USAGE}")
        tool, given = words[0], words[1:]
        arguments = _json_arguments(given)

        def script(server: Connected) -> Script:
            typed = arguments
            if typed is None:
                typed = _typed_arguments(tool, given, (yield from _tools()))
            progress = conversation.progress.report
            params = tool_params(tool, typed)
            result = yield ScriptCall("tools/call", params, on_progress=progress)
            outcomes.append(as_object(result) or {})

        converse(options, conversation, script)
    (result,) = outcomes
    if options.json:
        show_json(result)
    elif result.get("content") or "structuredContent" not in result:
        show_content(result.get("content"))
    else:
        show_value(result["structuredContent"])
    return 1 if result.get("isError") else 0


def _tools() -> Generator[ScriptCall, Any, list[dict[str, Any]] | None]:
    """Read the list of tools; None if the server has none to read."""
    try:
        return (yield from pages("tools/list", "tools")) or None
    except sansmcp.JsonRpcError:
        return None


def _json_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """Return arguments that are one JSON object; None if they are pairs. Raises UsageError."""
    pairs = [word for word in words if _PAIR.fullmatch(word)]
    if len(pairs) == len(words):
        return None
    if len(words) > 1:
        wrong = next(word for word in reversed(words) if word not in pairs)
        raise UsageError(
            f"Arguments are NAME=VALUE, or one JSON object in quotes; got {elide(wrong)}; {_USAGE}"
        )
    return _arguments(words[0])


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = as_object(json.loads(text))
    except ValueError as error:
        raise UsageError(
            f"The arguments of the tool are not JSON: {error}; got {elide(text)}, "
            "write them like a=1 b=2, or like '{\"a\": 1}'"
        ) from None
    if arguments is None:
        raise UsageError(
            "The arguments of the tool must be a JSON object like '{\"a\": 1}', or pairs like "
            f"a=1, got {elide(text)}"
        )
    return dict(arguments)


def _typed_arguments(
    tool: str, words: Sequence[str], tools: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Return the arguments of a tool, converted by its schema. Raises UsageError."""
    given: dict[str, list[str]] = {}
    for word in words:
        name, _, value = word.partition("=")
        given.setdefault(name, []).append(value)
    if tools is None:  # the server alone knows what it takes
        return {name: _converted(name, texts, {}) for name, texts in given.items()}
    schemas = {str(each.get("name")): as_object(each.get("inputSchema")) for each in tools}
    if tool not in schemas:
        raise UsageError(f"There is no tool {tool!r}{_nearest(tool, list(schemas))}")
    schema = schemas[tool] or {}
    fields = as_object(schema.get("properties")) or {}
    # A schema that does not mention further arguments allows them; here they are spelling mistakes.
    others = schema.get("additionalProperties", not fields)
    for name in given:
        if name not in fields and others is False:
            raise UsageError(f"{tool} takes no {name!r}{_signature(tool, schema)}")
    missing = [name for name in _required(schema) if name not in given]
    if missing:
        raise UsageError(f"{tool} needs {' and '.join(missing)}{_signature(tool, schema)}")
    return {
        name: _converted(name, texts, resolved(fields.get(name, others), schema))
        for name, texts in given.items()
    }


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if is_array(names) else []


def _converted(name: str, texts: list[str], schema: Schema) -> Any:
    try:
        types = types_of(schema)
        if types == ("array",) or ("array" in types and len(texts) > 1):
            return convert_list(texts, schema)
        if len(texts) > 1:
            raise ValueError(f"is given {len(texts)} times, and takes one value")
        return convert(texts[0], schema)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None


def _signature(tool: str, schema: Schema) -> str:
    """Return the arguments of a tool for the end of an error, those in brackets are optional."""
    fields = as_object(schema.get("properties")) or {}
    if not fields:
        return "; it takes no arguments"
    required = _required(schema)
    words = [
        f"{name}={describe(resolved(field, schema)).replace(' | ', '|')}"
        if name in required
        else f"[{name}={describe(resolved(field, schema)).replace(' | ', '|')}]"
        for name, field in fields.items()
    ]
    return f"; its arguments: {tool} {' '.join(words)}"


def _nearest(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, 3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are {', '.join(names[:20])}{' and more' if len(names) > 20 else ''}"
