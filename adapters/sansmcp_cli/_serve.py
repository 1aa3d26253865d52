"""``sansmcp serve``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing

import attrs

import sansmcp
from sansmcp_local import ServeSettings

from ._adapters import Adapter, adapter_of, add_adapter
from ._load import load
from ._output import Commands, UsageError, print_line, tracer
from ._stores import open_store
from ._target import add_revision, versions_of


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "serve",
        help="serve an application over HTTP, on stdio, or both",
        description="Serve an application. The first line on stdout is its URL, once it accepts "
        "connections; with --stdio or --dual stdout belongs to the protocol, and the URL goes to "
        "stderr.",
    )
    command.add_argument(
        "app", nargs="?", metavar="MODULE:APP", help="default: the example application"
    )
    how = command.add_mutually_exclusive_group()
    how.add_argument("--stdio", action="store_true", help="on standard input and output only")
    how.add_argument("--dual", action="store_true", help="over HTTP and on stdio")
    command.add_argument(
        "--http",
        default="127.0.0.1:8000",
        metavar="HOST:PORT",
        help="port 0: a free one; 8000-8010: the first of these that is free",
    )
    command.add_argument(
        "--path",
        default=attrs.fields(sansmcp.ServerOptions).path.default,
        help="path of the MCP endpoint (default: %(default)s)",
    )
    command.add_argument(
        "--http-sse",
        nargs="?",
        const="/sse",
        metavar="PATH",
        help="serve the deprecated HTTP+SSE transport, too (default: /sse)",
    )
    command.add_argument(
        "--state-file", metavar="FILE", help="tell other processes where the server is, as JSON"
    )
    command.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="serve requests for this host name, too; * for all (default: this machine only)",
    )
    _add_keeping(command)
    add_revision(command)
    add_adapter(command)
    command.add_argument("--trace", action="store_true", help="show the conversations on stderr")
    command.set_defaults(run=_serve)


def _add_keeping(command: argparse.ArgumentParser) -> None:
    """Add the options about stopping and storage."""
    command.add_argument(
        "--store",
        metavar="FILE|URL",
        help="keep sessions and streams in this file, which other processes on this machine may "
        "use, too, or in Redis (redis://, rediss:// or unix://), for processes on any machines: "
        "each request may come to any of them",
    )
    command.add_argument(
        "--multi-turn", action="store_true", help="offer multi-turn event streams (SEP-1858)"
    )
    command.add_argument(
        "--stop-on-stdin-eof",
        action="store_true",
        help="stop when standard input ends, as it does with the process that has opened it",
    )


def _serve(options: argparse.Namespace) -> int:
    adapter = adapter_of(options)
    app = adapter.EXAMPLE if options.app is None else _load(options.app)
    hosts = (*sansmcp.SecurityPolicy().allowed_hosts, *(options.allow_host or ()))
    settings: ServeSettings = {
        "http": None if options.stdio else _address(options.http),
        "stdio": options.stdio or options.dual,
        "stop_on_stdin_eof": options.stop_on_stdin_eof or None,
        "state_file": options.state_file,
        "path": options.path,
        "versions": versions_of(options),
        "http_sse": options.http_sse,
        "policy": sansmcp.SecurityPolicy(allowed_hosts=hosts),
        "trace": tracer("server") if options.trace else None,
        "multi_turn": options.multi_turn,
    }
    with ExitStack() as stack:
        if options.store is not None:
            settings["store"] = stack.enter_context(closing(open_store(options.store)))
        _run(adapter, app, options, settings)
    return 0


def _run(
    adapter: Adapter, app: sansmcp.App, options: argparse.Namespace, settings: ServeSettings
) -> None:
    """Serve until a signal stops the server."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def started(url: str, stop: Callable[[], object]) -> None:
        for number in before:
            signal.signal(number, lambda number, frame: stop())
        if options.stop_on_stdin_eof and not settings["stdio"]:
            threading.Thread(target=_stop_on_stdin_eof, args=(stop,), daemon=True).start()
        if url:
            print_line(url, sys.stderr if options.dual else None)

    try:
        adapter.serve(app, started, settings)
    except OSError as error:
        raise UsageError(_explain(error, options)) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_on_stdin_eof(stop: Callable[[], object]) -> None:
    while os.read(0, 4096):  # sys.stdin has a lock, which a daemon thread must not hold at the end
        pass
    stop()


def _explain(error: OSError, options: argparse.Namespace) -> str:
    if error.filename is not None:
        return f"Cannot write the state file: {error}"
    return f"Cannot serve {'on stdio' if options.stdio else f'at {options.http}'}: {error}"


def _load(reference: str) -> sansmcp.App:
    """Return the application that ``module:name`` names; the current directory is searched, too."""
    found = load(reference, "app", "application")
    if not isinstance(found, sansmcp.App):
        raise UsageError(f"{reference!r} is {type(found).__name__}, and no sansmcp.App")
    return found


def _address(text: str) -> tuple[str, int | range]:
    host, colon, ports = text.rpartition(":")
    first, dash, last = ports.partition("-")
    numbers = (first, last) if dash else (first,)
    if not colon or not all(number.isdecimal() and int(number) <= 65535 for number in numbers):
        raise UsageError(
            f"--http takes HOST:PORT, got {text!r}; write 127.0.0.1:8000, port 0 for a free one, "
            "or a range like 127.0.0.1:8000-8010; ports end at 65535"
        )
    host = host.strip("[]") or "127.0.0.1"
    return host, range(int(first), int(last) + 1) if dash else int(first)
