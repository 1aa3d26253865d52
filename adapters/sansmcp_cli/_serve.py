"""``sansmcp serve``."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import attrs

import sansmcp
from sansmcp.types import HTTP_SSE, STREAMABLE_HTTP
from sansmcp_local import (
    STOPPING,
    ServeOptions,
    ServeSettings,
    StateFile,
    handlers_restored,
    host_of_url,
    listen,
    on_signals,
)

from ._adapters import Adapter, adapter_of, add_adapter
from ._load import load
from ._output import Commands, Options, UsageError, add_trace, examples, print_line, tracer
from ._stores import open_store
from ._target import add_revision, versions_of
from ._workers import Inherited, Workers

_DEFAULT_ADDRESS = "127.0.0.1:8000"

_ENDING = 5.0
"""Seconds beyond these timeouts in which a worker ends its streams and closes its store."""


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "serve",
        help="serve an application over HTTP, on stdio, or both",
        description="Serve an application. The first line on stdout is its URL, once it accepts "
        "connections; with --stdio or --dual stdout belongs to the protocol, and the URL goes to "
        "stderr.",
        usage="sansmcp serve [options] [MODULE:APP]",
        epilog=examples(
            "serve server:tools --http 127.0.0.1:8000",
            "serve server:tools --workers 4 --store sessions.db",
        ),
    )
    command.add_argument(
        "app", nargs="?", metavar="MODULE:APP", help="default: the example application"
    )
    _add_places(command)
    _add_clients(command)
    _add_keeping(command)
    protocol = command.add_argument_group("the protocol, and what is shown")
    protocol.add_argument(
        "--multi-turn", action="store_true", help="offer multi-turn event streams (SEP-1858)"
    )
    add_revision(protocol)
    add_adapter(protocol)
    add_trace(protocol, "the conversations")
    command.set_defaults(run=_serve)


def _add_places(command: argparse.ArgumentParser) -> None:
    """Add the options that tell where the server is."""
    where = command.add_argument_group("where it serves")
    how = where.add_mutually_exclusive_group()
    how.add_argument("--stdio", action="store_true", help="on standard input and output only")
    how.add_argument(
        "--stdio-v2",
        dest="stdio",
        action="store_const",
        const="v2",
        default=False,
        help="the same with HTTP/2, for clients that are configured with stdio-v2 (a preview)",
    )
    how.add_argument("--dual", action="store_true", help="over HTTP and on stdio")
    add_addresses(where)
    where.add_argument(
        "--path",
        default=attrs.fields(sansmcp.ServerOptions).path.default,
        help="path of the MCP endpoint (default: %(default)s)",
    )
    where.add_argument(
        "--http-sse",
        nargs="?",
        const="/sse",
        metavar="PATH",
        help="serve the deprecated HTTP+SSE transport, too (default: /sse)",
    )
    where.add_argument(
        "--state-file", metavar="FILE", help="tell other processes where the server is, as JSON"
    )


def _add_clients(command: argparse.ArgumentParser) -> None:
    """Add the options that tell who may use the server."""
    who = command.add_argument_group("who may use it")
    who.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="serve requests for this host name, too; * for all (default: this machine only)",
    )
    pages = who.add_mutually_exclusive_group()
    pages.add_argument(
        "--allow-origin",
        action="append",
        metavar="ORIGIN",
        help="serve requests of web pages of this origin, such as https://app.example.com, and of "
        "no others; * for all (default: pages of the hosts that are served)",
    )
    pages.add_argument(
        "--cors",
        action="append",
        metavar="ORIGIN",
        help="the same, and let browsers give the responses to these pages (default: a proxy in "
        "front of the server does that)",
    )


def add_addresses(command: Options) -> None:
    """Add the options that tell where HTTP is served."""
    command.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="port 0: a free one; 8000-8010: the first of these that is free (default: "
        f"{_DEFAULT_ADDRESS}, or none with --unix)",
    )
    command.add_argument(
        "--unix",
        metavar="PATH",
        help="serve HTTP at a Unix socket, without a port, for processes of the same user",
    )


def option_of_address(options: argparse.Namespace) -> str | None:
    """Return the option that tells where HTTP is served, --http or --unix; None without one."""
    return "--http" if options.http is not None else "--unix" if options.unix is not None else None


def http_of(options: argparse.Namespace) -> tuple[str, int | range] | None:
    """Return the host and port of --http; None to serve at --unix alone. Raises UsageError."""
    if options.http is None and options.unix is not None:
        return None
    return address_of(options.http or _DEFAULT_ADDRESS)


def place_of(options: argparse.Namespace) -> str:
    """Return the places of --http and --unix for an error."""
    http = options.http or (None if options.unix else _DEFAULT_ADDRESS)
    return " and ".join(place for place in (http, options.unix) if place)


def _add_keeping(command: argparse.ArgumentParser) -> None:
    """Add the options about processes, stopping and storage."""
    keeping = command.add_argument_group("processes and storage")
    keeping.add_argument(
        "--store",
        metavar="FILE|URL",
        help="keep sessions and streams in this file, which other processes on this machine may "
        "use, too, or in Redis (redis://, rediss:// or unix://), for processes on any machines: "
        "each request may come to any of them",
    )
    keeping.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="serve in N processes, which share the port and the store, and are replaced when they "
        "end; SIGHUP replaces one after another",
    )
    keeping.add_argument("--worker", type=Inherited.parse, help=argparse.SUPPRESS)
    stop = command.add_argument_group("health, and how it stops")
    stop.add_argument(
        "--health-path",
        metavar="PATH",
        help="a path where GET tells load balancers if the server takes new calls (default: none)",
    )
    stop.add_argument(
        "--lame-duck-timeout",
        type=float,
        metavar="SECONDS",
        help="time between a stop and the end of new calls, for load balancers and clients to go "
        "elsewhere (default: 0, or 2 with --workers)",
    )
    stop.add_argument(
        "--graceful-timeout",
        type=float,
        default=attrs.fields(ServeOptions).graceful_timeout.default,
        metavar="SECONDS",
        help="time that running calls get when the server stops (default: %(default)g)",
    )
    stop.add_argument(
        "--stop-on-stdin-eof",
        action="store_true",
        help="stop when standard input ends, as it does with the process that has opened it",
    )


def _serve(options: argparse.Namespace) -> int:
    if options.worker is None and options.workers is not None:
        _run_workers(options)
        return 0
    place = option_of_address(options)
    if options.stdio and place is not None:
        raise UsageError(f"--stdio serves on standard input and output only; write --dual {place}")
    adapter = adapter_of(options)
    app = adapter.EXAMPLE if options.app is None else _load(options.app)
    is_worker = options.worker is not None
    settings: ServeSettings = {
        "http": _http(options),
        "unix": options.unix,
        "stdio": options.stdio or options.dual,
        "stop_on_stdin_eof": (options.stop_on_stdin_eof and not is_worker) or None,
        "lame_duck_timeout": _lame_duck_timeout(options),
        "graceful_timeout": options.graceful_timeout,
        "state_file": None if is_worker else options.state_file,
        "path": options.path,
        "versions": versions_of(options),
        "http_sse": options.http_sse,
        "health_path": options.health_path,
        "policy": sansmcp.SecurityPolicy(
            allowed_hosts=_hosts(options),
            allowed_origins=options.cors or options.allow_origin,
            cors=options.cors is not None,
        ),
        "trace": tracer(options, "server"),
        "multi_turn": options.multi_turn,
    }
    with ExitStack() as stack:
        if options.store is not None:
            pause = time.sleep if options.worker is None else options.worker.pause
            settings["store"] = stack.enter_context(closing(open_store(options.store, pause)))
        _run(adapter, app, options, settings)
    return 0


def _http(options: argparse.Namespace) -> tuple[str, int | range] | list[socket.socket] | None:
    if options.stdio:
        return None
    inherited: Inherited | None = options.worker
    return http_of(options) if inherited is None else inherited.listeners


def _hosts(options: argparse.Namespace) -> tuple[str, ...]:
    return (*sansmcp.SecurityPolicy().allowed_hosts, *(options.allow_host or ()))


def _run(
    adapter: Adapter, app: sansmcp.App, options: argparse.Namespace, settings: ServeSettings
) -> None:
    """Serve until a signal stops the server."""

    def started(url: str, stop: Callable[[], object]) -> None:
        on_signals(STOPPING, stop)
        if options.worker is not None:
            options.worker.report_ready(stop, _stop_timeout(options))
            return
        if options.stop_on_stdin_eof and not (options.stdio or options.dual):
            threading.Thread(target=_stop_on_stdin_eof, args=(stop,), daemon=True).start()
        if url:
            print_line(url, sys.stderr if options.dual else None)
            _tell_of_all_addresses(options)

    try:
        with handlers_restored(STOPPING):
            adapter.serve(app, started, settings)
    except OSError as error:
        raise UsageError(_explain(error, options)) from error


def _tell_of_all_addresses(options: argparse.Namespace) -> None:
    """Say that the URL is not the only one, if the server listens at all addresses."""
    http = http_of(options)
    is_open = http is not None and host_of_url(http[0]) != http[0]
    if is_open and options.allow_host is None:
        print_line(
            "sansmcp: clients reach it at all other addresses of this machine, too; serve those "
            "that use other names than localhost with --allow-host NAME",
            sys.stderr,
        )


def _run_workers(options: argparse.Namespace) -> None:
    """Listen, and keep the workers running. Raises UsageError."""
    if sys.platform == "win32":
        raise UsageError(
            "--workers is not available on Windows, where processes cannot share a port this way; "
            "start several servers with the same --store, and a proxy before them"
        )
    if options.workers < 1:
        raise UsageError(f"--workers takes a number from 1 on, got {options.workers}")
    if options.stdio or options.dual:
        raise UsageError("--workers serves HTTP; standard input and output belong to one process")
    if options.unix is not None:
        raise UsageError("--workers serves at a port; a Unix socket belongs to one process")
    if options.workers > 1 and options.http_sse is not None:
        raise UsageError(
            "--http-sse needs one process for each port, since its messages belong to a connection "
            "of one process; leave out --workers, or --http-sse"
        )
    if options.workers > 1 and options.store is None:
        raise UsageError(
            f"--workers {options.workers} needs --store, a file or a URL of Redis: without it, a "
            "session exists only in the process that has opened it"
        )
    address = address_of(options.http or _DEFAULT_ADDRESS)
    try:
        with ExitStack() as stack:
            listeners = [stack.enter_context(each) for each in listen(address)]
            port = listeners[0].getsockname()[1]
            url = str(sansmcp.Url("http", host_of_url(address[0]), port, options.path))

            def on_serving() -> None:
                if options.state_file is not None:
                    stack.enter_context(_state_file(options, url))
                print_line(url)
                _tell_of_all_addresses(options)

            Workers(
                command=(sys.executable, "-m", "sansmcp_cli", *options.given),
                count=options.workers,
                listeners=listeners,
                stop_timeout=_stop_timeout(options),
                on_serving=on_serving,
                stdin=options.stop_on_stdin_eof,
            ).run()
    except OSError as error:
        raise UsageError(_explain(error, options)) from error


def _state_file(options: argparse.Namespace, url: str) -> StateFile:
    transports = (STREAMABLE_HTTP, *([HTTP_SSE] if options.http_sse else ()))
    return StateFile(options.state_file, url=url, transports=transports)


def _stop_timeout(options: argparse.Namespace) -> float:
    """Return the seconds after which a worker has stopped, or hangs."""
    timeout: float = options.graceful_timeout
    return _lame_duck_timeout(options) + timeout + _ENDING


def _lame_duck_timeout(options: argparse.Namespace) -> float:
    timeout: float | None = options.lame_duck_timeout
    return (0.0 if options.workers is None else 2.0) if timeout is None else timeout


def _stop_on_stdin_eof(stop: Callable[[], object]) -> None:
    while os.read(0, 4096):  # sys.stdin has a lock, which a daemon thread must not hold at the end
        pass
    stop()


def _explain(error: OSError, options: argparse.Namespace) -> str:
    if error.filename is not None and options.unix is None:
        return f"Cannot write the state file: {error}"
    return f"Cannot serve {'on stdio' if options.stdio else f'at {place_of(options)}'}: {error}"


def _load(reference: str) -> sansmcp.App:
    """Return the application that ``module:name`` names; the current directory is searched, too."""
    found: sansmcp.App = load(reference, "app", "application", sansmcp.App)
    return found


def address_of(text: str) -> tuple[str, int | range]:
    """Return the host and port of --http. Raises UsageError."""
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
