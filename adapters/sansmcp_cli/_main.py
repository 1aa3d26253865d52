"""Arguments in, exit status out."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from functools import partial
from typing import Any

import trio

import sansmcp
import sansmcp_trio
from sansmcp.codecs.headers import header_value
from sansmcp.codecs.json import as_object
from sansmcp.events import ProgressReceived, Reconnecting, ServerNotified
from sansmcp.trace import Tracer

from . import example
from ._demo import demo
from ._say import say

_DESCRIPTION = "Serve an MCP application, call a tool, or watch what a broken network does to it."


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status: 0, or 1 with a message on stderr."""
    options = _parser().parse_args(arguments)
    try:
        status: int = trio.run(options.run, options)
    except KeyboardInterrupt:
        return 130
    except (sansmcp.CallError, sansmcp.LocalProtocolError, _Mistake, OSError) as error:
        return _failed(str(error))
    return status


def _failed(why: str) -> int:
    say(f"sansmcp: {why}", sys.stderr)
    return 1


class _Mistake(Exception):
    """The command was used wrongly."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sansmcp", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"sansmcp {sansmcp.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("serve", help="serve an application over HTTP")
    command.add_argument(
        "app", nargs="?", metavar="MODULE:APP", help="default: the example application"
    )
    command.add_argument(
        "--http", default="127.0.0.1:8000", metavar="HOST:PORT", help="port 0: a free one"
    )
    command.add_argument("--path", default="/mcp", help="path of the MCP endpoint (default: /mcp)")
    command.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="serve requests for this host name, too; * for all (default: this machine only)",
    )
    command.add_argument("--trace", action="store_true", help="show the conversations on stderr")
    command.set_defaults(run=_serve)

    command = commands.add_parser("call", help="call a tool")
    command.add_argument("url", metavar="URL")
    command.add_argument("tool", metavar="TOOL")
    command.add_argument(
        "arguments", nargs="?", default="{}", metavar="JSON", help="its arguments, a JSON object"
    )
    command.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="without any progress"
    )
    command.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'")
    command.add_argument("--trace", action="store_true", help="show the conversation on stderr")
    command.set_defaults(run=_call)

    command = commands.add_parser(
        "demo", help="watch calls survive a server and a network that disconnect"
    )
    command.add_argument("--calls", type=int, default=8)
    command.add_argument("--seed", type=int, default=None, help="repeat the same accidents")
    command.add_argument("--quiet", action="store_true", help="only the last line")
    command.set_defaults(run=demo)
    return parser


async def _serve(options: argparse.Namespace) -> int:
    app = example.app if options.app is None else _load(options.app)
    host, port = _address(options.http)
    hosts = (*sansmcp.SecurityPolicy().hosts, *(options.allow_host or ()))

    serve = partial(
        sansmcp_trio.serve,
        app,
        http=(host, port),
        path=options.path,
        policy=sansmcp.SecurityPolicy(hosts=hosts),
        trace=_tracer("server") if options.trace else None,
    )
    async with trio.open_nursery() as nursery:
        try:
            serving: sansmcp_trio.Serving = await nursery.start(serve)
        except OSError as error:
            return _failed(f"Cannot listen on {options.http}: {error}")
        except sansmcp.LocalProtocolError as error:
            return _failed(str(error))
        say(serving.url)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                break
        serving.stop()
    return 0


async def _call(options: argparse.Namespace) -> int:
    try:
        arguments = as_object(json.loads(options.arguments))
    except ValueError as error:
        raise _Mistake(f"The arguments of the tool are not JSON: {error}") from None
    if arguments is None:
        raise _Mistake("The arguments of the tool must be a JSON object")
    failure: sansmcp.CallError | None = None
    result: dict[str, Any] = {}
    async with (
        sansmcp_trio.connect(
            options.url,
            name="sansmcp-call",
            version=sansmcp.__version__,
            headers=tuple(_header(text) for text in options.header),
            timeout=options.timeout,
            trace=_tracer("client") if options.trace else None,
        ) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_show_events, client)
        try:
            result = await client.call_tool(options.tool, arguments, on_progress=_show_progress)
        except sansmcp.CallError as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    say(json.dumps(result, ensure_ascii=False))
    return 1 if result.get("isError") else 0


async def _show_events(client: sansmcp_trio.Client) -> None:
    async for event in client.events():
        if isinstance(event, ServerNotified):
            params = json.dumps(event.notification.params, ensure_ascii=False)
            say(f"{event.notification.method} {params}", sys.stderr)
        elif isinstance(event, Reconnecting) and event.call is not None:
            say(f"disconnected ({event.reason}): back in {event.delay:.1f} s", sys.stderr)


def _show_progress(report: ProgressReceived) -> None:
    total = "" if report.total is None else f" of {report.total:g}"
    message = "" if report.message is None else f": {report.message}"
    say(f"progress {report.progress:g}{total}{message}", sys.stderr)


def _tracer(who: str) -> Tracer:
    return Tracer(who, lambda line: say(line, sys.stderr))


def _load(reference: str) -> sansmcp.App:
    """The application that ``module:name`` means; the current directory is searched, too."""
    module_name, _, name = reference.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), name or "app")
    except (ImportError, AttributeError) as error:
        raise _Mistake(f"Cannot load the application {reference!r}: {error}") from error
    if not isinstance(found, sansmcp.App):
        raise _Mistake(f"{reference!r} is {type(found).__name__}, and no sansmcp.App")
    return found


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise _Mistake(f"Not HOST:PORT: {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _header(text: str) -> tuple[bytes, bytes]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise _Mistake(f"Not a header: {text!r}; write 'Name: value'")
    return name.strip().lower().encode(), header_value(value.strip())
