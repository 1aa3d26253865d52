"""``sansmcp call``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import attrs

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp.events import (
    ClientEvent,
    InvalidLine,
    ProgressReceived,
    Reconnecting,
    ServerNotified,
    StderrLine,
)
from sansmcp.types import elide
from sansmcp_local import ConnectSettings

from ._adapters import Script, ToolCall, adapter_of, add_adapter
from ._credentials import add_authorization, authorization_for
from ._output import Commands, UsageError, print_line, tracer
from ._target import (
    USAGE,
    add_headers,
    add_revision,
    add_target,
    headers_of,
    process_of,
    target_of,
    versions_of,
)


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "call",
        help="call a tool",
        usage="sansmcp call [options] URL TOOL [JSON]\n"
        "       sansmcp call [options] TOOL [JSON] -- COMMAND [ARGS ...]",
        description=f"Call a tool, and print its result as JSON. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument(
        "words", nargs="+", metavar="[URL] TOOL [JSON]", help="the arguments are a JSON object"
    )
    add_target(command)
    command.add_argument(
        "--timeout",
        type=float,
        default=attrs.fields(sansmcp.ClientOptions).timeout.default,
        metavar="SECONDS",
        help="for the handshake, and for the call as long as there is no progress "
        "(default: %(default)g)",
    )
    add_headers(command)
    add_authorization(command)
    add_revision(command)
    add_adapter(command)
    command.add_argument("--trace", action="store_true", help="show the conversation on stderr")
    command.set_defaults(run=_call)


def _call(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    target = target_of(options, words)
    usage = "usage: sansmcp call URL TOOL [JSON], or sansmcp call TOOL [JSON] -- COMMAND"
    if not words:
        raise UsageError(f"Missing name of a tool; {usage}")
    if len(words) > 2:
        raise UsageError(f"Too many words: {' '.join(words[2:])!r}; {usage}, the JSON in quotes")
    tool, arguments = words[0], _arguments(words[1] if len(words) == 2 else "{}")
    settings: ConnectSettings = {
        **process_of(options),
        "name": "sansmcp-call",
        "version": sansmcp.__version__,
        "versions": versions_of(options),
        "headers": headers_of(options),
        "timeout": options.timeout,
        # Commands may take long to start; a URL that does not respond should fail soon.
        "connect_timeout": min(options.timeout, 10.0 if isinstance(target, str) else 30.0),
        "trace": tracer("client") if options.trace else None,
    }
    outcomes: list[dict[str, Any] | sansmcp.CallError] = []

    def script() -> Script:
        try:
            call = ToolCall(tool=tool, arguments=arguments, on_progress=_show_progress)
            outcomes.append((yield call))
        except sansmcp.CallError as error:
            outcomes.append(error)

    adapter = adapter_of(options)
    with authorization_for(options, target) as authorization:
        settings["authorization"] = authorization
        adapter.run_calls(target, script(), _show_event, settings)
    (outcome,) = outcomes
    if isinstance(outcome, sansmcp.CallError):
        raise outcome
    print_line(json.dumps(outcome, ensure_ascii=False))
    return 1 if outcome.get("isError") else 0


def _show_event(event: ClientEvent) -> None:
    match event:
        case ServerNotified(_, notification):
            params = json.dumps(notification.params, ensure_ascii=False)
            print_line(f"{notification.method} {params}", sys.stderr)
        case Reconnecting(call=call, reason=reason, delay=delay) if call is not None:
            print_line(f"disconnected ({reason}): back in {delay:.1f} s", sys.stderr)
        case StderrLine(line):
            print_line(f"server: {line}", sys.stderr)
        case InvalidLine(line):
            print_line(f"no message: {line.decode('utf-8', 'replace')}", sys.stderr)
        case _:
            pass


def _show_progress(report: ProgressReceived) -> None:
    total = "" if report.total is None else f" of {report.total:g}"
    message = "" if report.message is None else f": {report.message}"
    print_line(f"progress {report.progress:g}{total}{message}", sys.stderr)


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = as_object(json.loads(text))
    except ValueError as error:
        raise UsageError(
            f"The arguments of the tool are not JSON: {error}; got {elide(text)}, "
            "write them like '{\"a\": 1}'"
        ) from None
    if arguments is None:
        raise UsageError(
            "The arguments of the tool must be a JSON object like '{\"a\": 1}', "
            f"got {elide(text)}"
        )
    return arguments
