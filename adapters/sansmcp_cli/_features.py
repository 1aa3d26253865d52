"""``sansmcp list``, ``read``, ``prompt`` and ``raw``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.events import Connected

from ._adapters import Script, ScriptCall
from ._display import (
    Row,
    decoded,
    first_sentence,
    show_content,
    show_contents,
    show_json,
    show_rows,
    show_value,
)
from ._output import Commands, UsageError, print_line
from ._session import Conversation, add_session, converse, objects, pages, prepared
from ._target import USAGE
from ._values import describe, resolved

LISTS = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}
"""The lists of a server: the method, and the name of the list in its result."""


_METHOD_NOT_FOUND = -32601


def add_to(commands: Commands) -> None:
    """Add the commands and their options to the parser."""
    command = commands.add_parser(
        "list",
        help="show the tools, resources and prompts of a server",
        usage="sansmcp list [options] URL [tools | resources | templates | prompts]\n"
        "       sansmcp list [options] [KIND] -- COMMAND [ARGS ...]",
        description=f"Show what a server offers, or one kind of it. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] [KIND]")
    add_session(command)
    command.set_defaults(run=_list)
    command = commands.add_parser(
        "read",
        help="read a resource",
        usage="sansmcp read [options] URL URI\n"
        "       sansmcp read [options] URI -- COMMAND [ARGS ...]",
        description="Read a resource, and print its text; its bytes only to a file or a pipe. "
        f"{USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] URI")
    add_session(command)
    command.set_defaults(run=_read)
    command = commands.add_parser(
        "prompt",
        help="show the messages of a prompt",
        usage="sansmcp prompt [options] URL PROMPT [NAME=VALUE ...]\n"
        "       sansmcp prompt [options] PROMPT [NAME=VALUE ...] -- COMMAND [ARGS ...]",
        description=f"Get a prompt, and print its messages. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] PROMPT [NAME=VALUE ...]")
    add_session(command)
    command.set_defaults(run=_prompt)
    command = commands.add_parser(
        "raw",
        help="send any request, and print its result as JSON",
        usage="sansmcp raw [options] URL METHOD [JSON]\n"
        "       sansmcp raw [options] METHOD [JSON] -- COMMAND [ARGS ...]",
        description="Send a request of any method, after the handshake, and print its result as "
        f"JSON. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] METHOD [JSON]")
    add_session(command)
    command.set_defaults(run=_raw)


def _list(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    found: dict[str, list[dict[str, Any]]] = {}
    with prepared(options, words) as conversation:
        if len(words) > 1 or not set(words) <= {*LISTS}:
            kinds = ", ".join(LISTS)
            raise UsageError(f"What is {' '.join(words)!r}? Name one kind: {kinds}; default: all")

        def script(server: Connected) -> Script:
            for kind in words:
                found[kind] = yield from pages(*LISTS[kind])
            for kind in () if words else LISTS:
                capability = "resources" if kind == "templates" else kind
                if capability in server.capabilities:
                    found[kind] = yield from _all_of(kind)

        converse(options, conversation, script)
    if options.json:
        show_json({LISTS[kind][1]: things for kind, things in found.items()})
        return 0
    shown = {kind: things for kind, things in found.items() if things}
    for number, (kind, things) in enumerate(shown.items()):
        if number:
            print_line("")
        show_rows(kind, [_row(kind, thing) for thing in things])
    if not shown:
        print_line(f"no {words[0]}" if words else "no tools, resources or prompts", sys.stderr)
    return 0


def _all_of(kind: str) -> Generator[ScriptCall, Any, list[dict[str, Any]]]:
    """Read a list; an empty one if the server has no such method, as for templates."""
    try:
        return (yield from pages(*LISTS[kind]))
    except sansmcp.JsonRpcError as error:
        if error.code != _METHOD_NOT_FOUND:
            raise
        return []


def _row(kind: str, thing: Mapping[str, Any]) -> Row:
    details: list[str] = []
    text = first_sentence(thing.get("description") or thing.get("title"))
    name = str(thing.get("name"))
    if kind == "tools":
        details = _arguments_of_tool(as_object(thing.get("inputSchema")) or {})
    elif kind == "prompts":
        for argument in objects(thing.get("arguments")):
            details.append(_detail(argument, "text", argument.get("required") is True))
    else:
        if not text:
            text = name
        elif name not in text:
            text = f"{name}: {text}"
        if thing.get("mimeType"):
            text += f" ({thing['mimeType']})"
        name = str(thing.get("uri") or thing.get("uriTemplate"))
    return Row(name, text, details)


def _arguments_of_tool(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    required = required if is_array(required) else []
    fields = as_object(schema.get("properties")) or {}
    return [
        _detail({**field, "name": name}, describe(field), name in required)
        for name, each in fields.items()
        for field in [resolved(each, schema)]
    ]


def _detail(field: Mapping[str, Any], kind: str, is_required: bool) -> str:
    start = f"{field.get('name')}={kind}"
    text = first_sentence(field.get("description"))
    return (start if is_required else f"[{start}]") + (f"  {text}" if text else "")


def _read(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    results: list[Any] = []
    with prepared(options, words) as conversation:
        if len(words) != 1:
            raise UsageError(_which("URI of a resource", words, "sansmcp read URL URI"))
        _converse_once(options, conversation, "resources/read", {"uri": words[0]}, results)
    (result,) = results
    if options.json:
        show_json(result)
        return 0
    for contents in objects((as_object(result) or {}).get("contents")):
        data = decoded(contents.get("blob")) if "blob" in contents else None
        if data is None or sys.stdout.isatty():
            show_contents(contents)
        else:
            sys.stdout.flush()
            _write(data)
    return 0


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


def _prompt(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    results: list[Any] = []
    with prepared(options, words) as conversation:
        if not words:
            usage = "sansmcp prompt URL PROMPT [NAME=VALUE ...]"
            raise UsageError(_which("name of a prompt", words, usage))
        arguments = dict(_pair(word) for word in words[1:])
        params = {"name": words[0], "arguments": arguments}
        _converse_once(options, conversation, "prompts/get", params, results)
    (result,) = results
    if options.json:
        show_json(result)
        return 0
    for message in objects((as_object(result) or {}).get("messages")):
        print_line(f"{message.get('role')}:")
        show_content([message.get("content")])
    return 0


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise UsageError(f"Arguments of a prompt are NAME=VALUE, got {word!r}")
    return name, value


def _raw(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    results: list[Any] = []
    with prepared(options, words) as conversation:
        if not 1 <= len(words) <= 2:
            raise UsageError(_which("method", words, "sansmcp raw URL METHOD [JSON]"))
        params: Mapping[str, Any] | None = None
        if len(words) == 2:
            try:
                params = as_object(json.loads(words[1]))
            except ValueError as error:
                raise UsageError(f"The parameters are not JSON: {error}") from None
            if params is None:
                raise UsageError('The parameters must be a JSON object like \'{"cursor": "a"}\'')
        _converse_once(options, conversation, words[0], params, results)
    (result,) = results
    if options.json or not sys.stdout.isatty():
        show_json(result)
    else:
        show_value(result)
    return 0


def _converse_once(
    options: argparse.Namespace,
    conversation: Conversation,
    method: str,
    params: Mapping[str, Any] | None,
    results: list[Any],
) -> None:
    """Make one call, and add its result to ``results``."""

    def script(server: Connected) -> Script:
        results.append((yield ScriptCall(method, params, on_progress=conversation.progress.report)))

    converse(options, conversation, script)


def _which(what: str, words: Sequence[str], usage: str) -> str:
    if words:
        return f"Too many words: {' '.join(words[1:])!r}; usage: {usage}"
    return f"Missing {what}; usage: {usage}"
