"""``sansmcp list``, ``read``, ``prompt`` and ``raw``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp.codecs.jsonrpc import METHOD_NOT_FOUND
from sansmcp.events import Connected
from sansmcp_local import load_json

from ._adapters import Script, ScriptCall
from ._arguments import json_arguments, nearest
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
from ._output import Commands, UsageError, print_line, write_bytes
from ._references import fields_of, required_in
from ._session import add_session, converse, objects, offered, pages, prepared
from ._target import USAGE, target_of
from ._values import describe

LISTS = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}
"""The lists of a server: the method, and the name of the list in its result."""


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
    add_session(
        command,
        "list http://127.0.0.1:8000/mcp",
        "list tools --json -- python server.py",
    )
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
    add_session(
        command,
        "read http://127.0.0.1:8000/mcp example://greeting",
        "read shop file:///logo.png > logo.png",
    )
    command.set_defaults(run=_read)
    command = commands.add_parser(
        "prompt",
        help="show the messages of a prompt",
        usage="sansmcp prompt [options] URL PROMPT [NAME=VALUE ... | JSON]\n"
        "       sansmcp prompt [options] PROMPT [NAME=VALUE ... | JSON] -- COMMAND [ARGS ...]",
        description=f"Get a prompt, and print its messages. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] PROMPT [NAME=VALUE ...]")
    add_session(
        command,
        "prompt http://127.0.0.1:8000/mcp greet name=Ann",
        'prompt shop greet \'{"name": "Ann"}\'',
    )
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
    add_session(
        command,
        "raw http://127.0.0.1:8000/mcp ping",
        'raw shop resources/read \'{"uri": "example://greeting"}\'',
    )
    command.set_defaults(run=_raw)


def _list(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    found: dict[str, list[dict[str, Any]]] = {}
    target = target_of(options, words)
    if len(words) > 1 or not set(words) <= {*LISTS}:
        kinds = ", ".join(LISTS)
        raise UsageError(f"What is {' '.join(words)!r}? Name one kind: {kinds}; default: all")
    with prepared(options, target) as conversation:

        def script(server: Connected) -> Script:
            for kind in words or LISTS:
                capability = "resources" if kind == "templates" else kind
                if words or capability in server.capabilities:
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
    """Read a list; an empty one if the server has no such method."""
    try:
        return (yield from pages(*LISTS[kind]))
    except sansmcp.JsonRpcError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return []


def _row(kind: str, thing: Mapping[str, Any]) -> Row:
    details: list[str] = []
    text = first_sentence(thing.get("description") or thing.get("title"))
    name = str(thing.get("name"))
    if kind == "tools":
        details = _arguments_of_tool(thing.get("inputSchema"))
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


def _arguments_of_tool(schema: Any) -> list[str]:
    fields, top = fields_of(schema)
    required = required_in(top)
    return [
        _detail({**field, "name": name}, describe(field), name in required)
        for name, field in fields.items()
    ]


def _detail(field: Mapping[str, Any], kind: str, is_required: bool) -> str:
    start = f"{field.get('name')}={kind}"
    text = first_sentence(field.get("description"))
    return (start if is_required else f"[{start}]") + (f"  {text}" if text else "")


def _read(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    results: list[Any] = []
    target = target_of(options, words)
    if len(words) != 1:
        raise UsageError(_which("URI of a resource", words, "sansmcp read URL URI"))
    if ":" not in words[0]:
        raise UsageError(
            f"Not a URI: {words[0]!r}; the server's are shown by: sansmcp list URL resources"
        )
    with prepared(options, target) as conversation:

        def script(server: Connected) -> Script:
            params = {"uri": words[0]}
            progress = conversation.progress.report
            with offered("resources", server):
                results.append((yield ScriptCall("resources/read", params, on_progress=progress)))

        converse(options, conversation, script)
    (result,) = results
    if options.json:
        show_json(result)
        return 0
    for contents in objects((as_object(result) or {}).get("contents")):
        if "blob" not in contents or sys.stdout.isatty():
            show_contents(contents)
            continue
        data = decoded(contents["blob"])
        if data is None:
            raise UsageError(f"The server sent bytes of {words[0]} that are not base64")
        write_bytes(data)
    return 0


def _prompt(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    results: list[Any] = []
    target = target_of(options, words)
    if not words:
        raise UsageError(_which("name of a prompt", words, f"sansmcp {_PROMPT}"))
    name, given = words[0], words[1:]
    typed = json_arguments(given, "prompt", f"usage: sansmcp {_PROMPT}")
    with prepared(options, target) as conversation:

        def script(server: Connected) -> Script:
            arguments = typed
            if arguments is None:
                arguments = dict(word.split("=", 1) for word in given)
                _check_prompt(name, arguments, (yield from _prompts()))
            params = {"name": name, "arguments": arguments}
            progress = conversation.progress.report
            with offered("prompts", server):
                results.append((yield ScriptCall("prompts/get", params, on_progress=progress)))

        converse(options, conversation, script)
    (result,) = results
    if options.json:
        show_json(result)
        return 0
    for message in objects((as_object(result) or {}).get("messages")):
        print_line(f"{message.get('role')}:")
        show_content(message.get("content"))
    return 0


_PROMPT = "prompt URL PROMPT [NAME=VALUE ... | JSON]"


def _prompts() -> Generator[ScriptCall, Any, list[dict[str, Any]]]:
    """Read the list of prompts; empty if the server has none to read."""
    try:
        return (yield from pages(*LISTS["prompts"]))
    except sansmcp.JsonRpcError:
        return []


def _check_prompt(name: str, arguments: Mapping[str, Any], prompts: list[dict[str, Any]]) -> None:
    """Raise UsageError for a name or arguments that no prompt of the list has."""
    if not prompts:  # the server alone knows what it has
        return
    found = next((each for each in prompts if each.get("name") == name), None)
    if found is None:
        names = [str(each.get("name")) for each in prompts]
        raise UsageError(f"There is no prompt {name!r}{nearest(name, names)}")
    details = [*objects(found.get("arguments"))]
    known = [str(each.get("name")) for each in details]
    shown = " ".join(
        _detail({"name": each["name"]}, "text", each.get("required") is True)
        for each in details
        if "name" in each
    )
    what = f"; its arguments: {name} {shown}" if shown else "; it takes no arguments"
    for given in arguments:
        if given not in known:
            raise UsageError(f"{name} takes no {given!r}{what}")
    missing = [
        str(each.get("name"))
        for each in details
        if each.get("required") is True and str(each.get("name")) not in arguments
    ]
    if missing:
        raise UsageError(f"{name} needs {' and '.join(missing)}{what}")


def _raw(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    results: list[Any] = []
    target = target_of(options, words)
    if not 1 <= len(words) <= 2:
        raise UsageError(_which("method", words, "sansmcp raw URL METHOD [JSON]"))
    params: Mapping[str, Any] | None = None
    if len(words) == 2:
        try:
            params = as_object(load_json(words[1]))
        except ValueError as error:
            raise UsageError(f"The parameters are not JSON: {error}") from None
        if params is None:
            raise UsageError('The parameters must be a JSON object like \'{"cursor": "a"}\'')
    with prepared(options, target) as conversation:

        def script(server: Connected) -> Script:
            progress = conversation.progress.report
            results.append((yield ScriptCall(words[0], params, on_progress=progress)))

        converse(options, conversation, script)
    (result,) = results
    if options.json or not sys.stdout.isatty():
        show_json(result)
    else:
        show_value(result)
    return 0


def _which(what: str, words: Sequence[str], usage: str) -> str:
    if words:
        return f"Too many words: {' '.join(words[1:])!r}; usage: {usage}"
    return f"Missing {what}; usage: {usage}"
