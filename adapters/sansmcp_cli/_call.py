"""``sansmcp call``."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import sansmcp
from sansmcp.base_client import tool_call
from sansmcp.codecs.json import as_object
from sansmcp.events import Connected

from ._adapters import Script, ScriptCall
from ._arguments import json_arguments, nearest
from ._display import show_json, show_result
from ._output import Commands, UsageError
from ._references import Schema, fields_of, required_in, resolved
from ._session import add_session, converse, offered, pages, prepared
from ._target import USAGE, target_of
from ._values import convert_words, describe

_USAGE = (
    "usage: sansmcp call URL TOOL [NAME=VALUE ...], or sansmcp call TOOL [NAME=VALUE ...] -- "
    "COMMAND"
)


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
    add_session(
        command,
        "call http://127.0.0.1:8000/mcp add a=1 b=2",
        'call add \'{"a": 1, "b": 2}\' -- python server.py',
    )
    command.set_defaults(run=_call)


def _call(options: argparse.Namespace) -> int:
    outcomes: list[Mapping[str, Any]] = []
    words: list[str] = options.words
    target = target_of(options, words)
    if not words:
        raise UsageError(f"Missing name of a tool; {_USAGE}")
    tool, given = words[0], words[1:]
    arguments = json_arguments(given, "tool", _USAGE)
    with prepared(options, target) as conversation:

        def script(server: Connected) -> Script:
            typed = arguments
            if typed is None:
                typed = _typed_arguments(tool, given, (yield from _tools()))
            progress = conversation.progress.report
            call = tool_call(tool, typed)
            with offered("tools", server):
                result = yield ScriptCall(*call, on_progress=progress)
            outcomes.append(as_object(result) or {})

        converse(options, conversation, script)
    (result,) = outcomes
    if options.json:
        show_json(result)
    else:
        show_result(result)
    return 1 if result.get("isError") else 0


def _tools() -> Generator[ScriptCall, Any, list[dict[str, Any]] | None]:
    """Read the list of tools; None if the server has none to read."""
    try:
        return (yield from pages("tools/list", "tools")) or None
    except sansmcp.JsonRpcError:
        return None


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
        raise UsageError(f"There is no tool {tool!r}{nearest(tool, list(schemas))}")
    fields, schema = fields_of(schemas[tool])
    # A schema that does not mention further arguments allows them; here they are spelling mistakes.
    others = schema.get("additionalProperties", not fields)
    for name in given:
        if name not in fields and others is False:
            raise UsageError(f"{tool} takes no {name!r}{_signature(tool, fields, schema)}")
    missing = [name for name in required_in(schema) if name not in given]
    if missing:
        raise UsageError(f"{tool} needs {' and '.join(missing)}{_signature(tool, fields, schema)}")
    rest = resolved(others, schemas[tool] or {})
    return {name: _converted(name, texts, fields.get(name, rest)) for name, texts in given.items()}


def _converted(name: str, texts: list[str], schema: Schema) -> Any:
    try:
        return convert_words(texts, schema)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None


def _signature(tool: str, fields: Mapping[str, Schema], schema: Schema) -> str:
    """Return the arguments of a tool for the end of an error, those in brackets are optional."""
    if not fields:
        return "; it takes no arguments"
    required = required_in(schema)
    words = [
        f"{name}={describe(field).replace(' | ', '|')}"
        if name in required
        else f"[{name}={describe(field).replace(' | ', '|')}]"
        for name, field in fields.items()
    ]
    return f"; its arguments: {tool} {' '.join(words)}"
