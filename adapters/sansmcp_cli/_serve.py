"""``sansmcp serve``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import trio

import sansmcp
import sansmcp_trio
from sansmcp_stores import SqliteStore

from . import example
from ._say import Commands, Mistake, say, tracer
from ._target import add_revision, versions_of


def add_to(commands: Commands) -> None:
    """Declare the command."""
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
    command.add_argument("--path", default="/mcp", help="path of the MCP endpoint (default: /mcp)")
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
    command.add_argument(
        "--store",
        metavar="FILE",
        help="keep sessions and streams in this file, which other processes on this machine may "
        "use, too: each request may come to any of them",
    )
    command.add_argument(
        "--multi-turn", action="store_true", help="offer multi-turn event streams (SEP-1858)"
    )
    add_revision(command)
    command.add_argument("--trace", action="store_true", help="show the conversations on stderr")
    command.set_defaults(run=_serve)


async def _serve(options: argparse.Namespace) -> int:
    app = example.app if options.app is None else _load(options.app)
    settings = {} if options.store is None else _with_store(options.store)
    hosts = (*sansmcp.SecurityPolicy().hosts, *(options.allow_host or ()))
    serve = partial(
        sansmcp_trio.serve,
        app,
        http=None if options.stdio else _address(options.http),
        stdio=options.stdio or options.dual,
        state_file=options.state_file,
        path=options.path,
        versions=versions_of(options),
        http_sse=options.http_sse,
        policy=sansmcp.SecurityPolicy(hosts=hosts),
        trace=tracer("server") if options.trace else None,
        multi_turn=options.multi_turn,
        **settings,
    )
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as watching:
            async with trio.open_nursery() as nursery:
                try:
                    serving: sansmcp_trio.Serving = await nursery.start(serve)
                except OSError as error:
                    return _failed(_explain(error, options))
                except sansmcp.LocalProtocolError as error:
                    return _failed(str(error))
                if serving.url:
                    say(serving.url, sys.stderr if options.dual else None)
                watching.start_soon(_stop_when_told, serving, signals)
            watching.cancel_scope.cancel()
    return 0


async def _stop_when_told(serving: sansmcp_trio.Serving, signals: AsyncIterator[int]) -> None:
    async for _ in signals:
        serving.stop()


def _explain(error: OSError, options: argparse.Namespace) -> str:
    if error.filename is not None:
        return f"Cannot write the state file: {error}"
    return f"Cannot serve {'on stdio' if options.stdio else f'at {options.http}'}: {error}"


def _failed(why: str) -> int:
    say(f"sansmcp: {why}", sys.stderr)
    return 1


def _load(reference: str) -> sansmcp.App:
    """The application that ``module:name`` means; the current directory is searched, too."""
    module_name, _, name = reference.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), name or "app")
    except (ImportError, AttributeError) as error:
        raise Mistake(f"Cannot load the application {reference!r}: {error}") from error
    if not isinstance(found, sansmcp.App):
        raise Mistake(f"{reference!r} is {type(found).__name__}, and no sansmcp.App")
    return found


def _with_store(file: str) -> dict[str, Any]:
    """The settings of a server that shares a file with others."""
    try:
        store = SqliteStore(file)
    except sqlite3.Error as error:
        raise Mistake(f"Cannot use {file!r} as a store: {error}") from error
    seal = sansmcp.StateSeal(keys=(store.secret,), clock=time.time)
    return {"store": store, "shared_store": True, "seal": seal}


def _address(text: str) -> tuple[str, int | range]:
    host, colon, ports = text.rpartition(":")
    first, dash, last = ports.partition("-")
    numbers = (first, last) if dash else (first,)
    if not colon or not all(number.isdecimal() and int(number) <= 65535 for number in numbers):
        raise Mistake(f"Not HOST:PORT: {text!r}")
    host = host.strip("[]") or "127.0.0.1"
    return host, range(int(first), int(last) + 1) if dash else int(first)
