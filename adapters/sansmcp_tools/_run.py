"""Serve tools from a script: on standard input and output, over HTTP, or both."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import os
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import attrs

from sansmcp import App, LocalProtocolError, SecurityPolicy
from sansmcp.skills import LIST
from sansmcp.types import Unpack
from sansmcp_local import ServeSettings, unknown_options

from ._tools import Tools

_logger = logging.getLogger("sansmcp")

HTTP_VARIABLE = "SANSMCP_HTTP"
"""The environment variable for ``--http``, as HOST:PORT."""

_SCAN_INTERVAL = 2.0
"""Seconds after which the files of skills are looked at again."""

_DEFAULT = "127.0.0.1:8000"


def run(
    app: App,
    *,
    arguments: Sequence[str] | None = None,
    **settings: Unpack[ServeSettings],
) -> None:
    """Serve tools on asyncio, until a signal stops the server or standard input ends.

    ``--stdio`` serves standard input and output, ``--http HOST:PORT`` HTTP, ``--unix PATH`` HTTP at
    a Unix socket, and several of them all of these. Without any the environment variable
    ``SANSMCP_HTTP`` names the address. Without that, too, the server uses standard input and output
    if standard input is a pipe, socket or file, as when a client has started the program, and else,
    on a terminal, HTTP at 127.0.0.1:8000. ``--cors ORIGIN`` serves web pages of that origin, too.

    Where the module that calls this is imported, as by ``sansmcp serve server:tools``, it logs a
    warning and does nothing. So call it under ``if __name__ == "__main__":``.

    Args:
        app: the tools, or another App.
        arguments: the arguments of the command line; None are those of the program.
        settings: settings of :func:`sansmcp_asyncio.serve`. With ``http``, ``unix`` or ``stdio``
            among them the command line and the environment choose nothing.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        SystemExit: the address cannot be bound, or the command line is not understood; the text
            for the user says why.
        RuntimeError: a loop of asyncio runs in this thread, as in a notebook.
    """
    module = _imported_by_others()
    if module is not None:
        _logger.warning(
            "sansmcp_tools.run() serves nothing while the module %s is imported; put it under "
            'if __name__ == "__main__":',
            module,
        )
        return
    _check_no_loop()
    if settings.keys().isdisjoint(("http", "unix", "stdio")):
        settings.update(chosen_settings(arguments, settings.get("policy")))
    with suppress(KeyboardInterrupt):
        try:
            asyncio.run(_serve(app, settings))
        except OSError as error:
            raise SystemExit(f"Cannot serve: {error}") from error


def _check_no_loop() -> None:
    """Raise RuntimeError in a running loop, where the command line is that of another program."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "sansmcp_tools.run() starts an event loop, and one runs in this thread already, as in a "
        "notebook; use sansmcp_asyncio.serve() with await"
    )


def _imported_by_others() -> str | None:
    """Return the name of the module whose import calls :func:`run`; None if it is the program.

    ``sansmcp serve server:tools`` imports a module that may also be a program. Its arguments are
    those of another program then.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:
        return None
    name = str(frame.f_globals.get("__name__"))
    # Code that is run and not imported has no __spec__. A process that multiprocessing has started
    # runs the program again under another name.
    is_imported = frame.f_globals.get("__spec__") is not None and name != "__main__"
    return name if is_imported or name == "__mp_main__" else None


async def _serve(app: App, settings: Any) -> None:
    import sansmcp_asyncio
    from sansmcp_local import STOPPING, called_at

    loop = asyncio.get_running_loop()
    async with sansmcp_asyncio.serve(app, **settings) as serving:
        if isinstance(app, Tools):
            # From any thread, since plain functions may change the tools.
            app.attach(
                lambda method, params: loop.call_soon_threadsafe(serving.publish, method, params)
            )
        watching = loop.create_task(_watch_skills(app))
        # Ctrl-C cancels this task: asyncio.run() sees to that.
        others = [each for each in STOPPING if each is not signal.SIGINT]
        with called_at(others, serving.stop):
            await serving.stopped.wait()
        watching.cancel()


async def _watch_skills(app: App) -> None:
    """Tell the clients when a file of a skill has changed; return if there are no skills."""
    while isinstance(app, Tools) and LIST in app.handlers:
        await asyncio.sleep(_SCAN_INTERVAL)
        await asyncio.to_thread(app.refresh_skills)


def chosen_settings(
    arguments: Sequence[str] | None, policy: SecurityPolicy | None = None
) -> ServeSettings:
    """Return the settings that the command line and the environment choose.

    ``policy``: the setting of the program, whose origins the command line replaces.
    """
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
    parser.add_argument(
        "--cors",
        action="append",
        metavar="ORIGIN",
        help="serve web pages of this origin, such as https://app.example.com, and let browsers "
        "give them the responses; * for all (default: none)",
    )
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(unknown_options(unknown, parser.format_help()))
    chosen = _chosen_address(parser, options)
    if options.cors is not None:
        try:
            chosen["policy"] = attrs.evolve(
                policy or SecurityPolicy(), allowed_origins=options.cors, cors=True
            )
        except LocalProtocolError as error:
            parser.error(str(error))
    return chosen


def _chosen_address(parser: argparse.ArgumentParser, options: argparse.Namespace) -> ServeSettings:
    """Return the settings that tell where to serve."""
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
    if not colon or not port.isdecimal():
        raise LocalProtocolError(f"Write the address as HOST:PORT, not {text!r}")
    if int(port) > 65535:
        raise LocalProtocolError(f"The port of {text!r} is too large; ports end at 65535")
    return host.strip("[]") or "127.0.0.1", int(port)
