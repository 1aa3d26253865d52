"""Serve tools from a script: on standard input and output, over HTTP, or both."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sansmcp import App, LocalProtocolError
from sansmcp.types import Unpack
from sansmcp_local import ServeSettings

from ._tools import Tools

HTTP_VARIABLE = "SANSMCP_HTTP"
"""The environment variable for ``--http``, as HOST:PORT."""

_DEFAULT = "127.0.0.1:8000"


def run(
    served: Tools | App,
    *,
    arguments: Sequence[str] | None = None,
    **settings: Unpack[ServeSettings],
) -> None:
    """Serve tools on asyncio, until a signal stops the server or standard input ends.

    ``--stdio`` serves standard input and output, ``--http HOST:PORT`` HTTP, ``--unix PATH`` HTTP at
    a Unix socket, and several of them all of these. Without any the environment variable
    ``SANSMCP_HTTP`` names the address. Without that, too, the server uses standard input and output
    if standard input is a pipe, socket or file, as when a client has started the program, and else,
    on a terminal, HTTP at 127.0.0.1:8000.

    Args:
        served: the tools, or an App.
        arguments: the arguments of the command line; None are those of the program.
        settings: settings of :func:`sansmcp_asyncio.serve`. With ``http``, ``unix`` or ``stdio``
            among them the command line and the environment choose nothing.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        OSError: the address cannot be bound.
        SystemExit: the command line is not understood.
    """
    if settings.keys().isdisjoint(("http", "unix", "stdio")):
        settings.update(chosen_settings(arguments))
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(served, settings))


async def _serve(served: Tools | App, settings: Any) -> None:
    import sansmcp_asyncio

    loop = asyncio.get_running_loop()
    app = served.app if isinstance(served, Tools) else served
    async with sansmcp_asyncio.serve(app, **settings) as serving:
        if isinstance(served, Tools):
            # From any thread, since plain functions may change the tools.
            served.attach(
                lambda method, params: loop.call_soon_threadsafe(serving.publish, method, params)
            )
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(signal.SIGTERM, serving.stop)
        await serving.stopped.wait()


def chosen_settings(arguments: Sequence[str] | None) -> ServeSettings:
    """Return the settings that the command line and the environment choose."""
    parser = argparse.ArgumentParser(description="Serve MCP.")
    parser.add_argument("--stdio", action="store_true", help="serve standard input and output")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=_DEFAULT,
        help=f"serve HTTP (default: {_DEFAULT}; port 0: a free one)",
    )
    parser.add_argument("--unix", metavar="PATH", help="serve HTTP at a Unix socket")
    options = parser.parse_args(arguments)
    chosen: ServeSettings = {}
    if options.stdio:
        chosen["stdio"] = True
    if options.unix is not None:
        chosen["unix"] = options.unix
    address: str | None = options.http
    if address is None and not chosen:
        address = os.environ.get(HTTP_VARIABLE) or None
        if address is None and _has_input():
            return {"stdio": True}
        address = address or _DEFAULT
    if address is not None:
        try:
            chosen["http"] = _address_of(address)
        except LocalProtocolError as error:
            parser.error(str(error))
    return chosen


def _has_input() -> bool:
    """True if standard input is a pipe, a socket or a file: no terminal, and not /dev/null."""
    try:
        return not stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):  # it is closed, or replaced
        return False


def _address_of(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise LocalProtocolError(f"Write the address as HOST:PORT, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
