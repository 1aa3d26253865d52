"""``sansmcp bridge``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp.http11_parser import Http11Parser
from sansmcp.relay import ToolFilter
from sansmcp_bridge import Upstream, open_bridge
from sansmcp_local import ConfiguredServer, ConnectSettings, ServeSettings, read_servers

from ._credentials import add_authorization, authorization_for
from ._output import Commands, UsageError, print_line, tracer
from ._serve import add_addresses, http_of, place_of
from ._target import USAGE, add_headers, add_target, headers_of, process_of, target_of
from ._with_asyncio import run

_STDIO, _HTTP, _HTTP_SSE = "stdio", "http", "http-sse"

_FIRST_LINE = 1 << 20
"""Bytes of standard input in which the first message must end."""


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "bridge",
        help="let clients of any transport and revision use a server of another one",
        usage="sansmcp bridge [options] URL\n"
        "       sansmcp bridge [options] -- COMMAND [ARGS ...]\n"
        "       sansmcp bridge [options] --config FILE",
        description="Serve what another server offers, over another transport or at other "
        f"revisions. {USAGE[0].upper()}{USAGE[1:]}. Or several servers, which become one.",
    )
    command.add_argument("words", nargs="*", metavar="URL")
    add_target(command)
    command.add_argument(
        "--config",
        metavar="FILE",
        help='the servers, as JSON: {"mcpServers": {NAME: {"command": ..., "args": [...], "env": '
        '{...}} or {"url": ..., "headers": {...}}}}',
    )
    command.add_argument(
        "--to",
        choices=(_STDIO, _HTTP, _HTTP_SSE),
        help="where clients connect; http-sse is both HTTP transports (default: stdio for a URL, "
        "http for a command or with --unix)",
    )
    add_addresses(command)
    command.add_argument("--path", default="/mcp", help="of the endpoint (default: %(default)s)")
    command.add_argument(
        "--serve-host",
        action="append",
        default=[],
        metavar="NAME",
        help="serve requests for this host name, too; * for all (default: this machine only)",
    )
    command.add_argument(
        "--shared",
        action="store_true",
        help="one connection, or process, for all clients (default: one for each session)",
    )
    command.add_argument(
        "--allow-tool",
        action="append",
        metavar="PATTERN",
        help="let clients see and call only tools with such names, e.g. 'read_*'; may be given "
        "several times",
    )
    command.add_argument(
        "--deny-tool",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out tools with such names; may be given several times",
    )
    add_headers(command)
    add_authorization(command)
    command.add_argument(
        "--trace",
        action="store_true",
        help="show all conversations on stderr: those of clients, "
        "and those with each upstream server under its name",
    )
    command.set_defaults(run=_bridge)


def _bridge(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        upstreams = _upstreams(options, stack)
        is_command = not isinstance(upstreams[0].target, str)
        is_http = is_command or len(upstreams) > 1 or options.unix is not None
        to = options.to or (_HTTP if is_http else _STDIO)
        if to == _STDIO and options.unix is not None:
            raise UsageError("--to stdio serves no HTTP; leave out --unix, or write --to http")
        first_input = _first_input() if to == _STDIO else b""
        if to == _STDIO and not first_input:
            return 0  # the client has left
        tools = None
        if options.allow_tool or options.deny_tool:
            tools = ToolFilter(tuple(options.allow_tool or ("*",)), tuple(options.deny_tool))
        info, capabilities = _client_of(first_input) if to == _STDIO else (None, None)
        opening = open_bridge(
            upstreams,
            shared=options.shared or to == _STDIO,
            client_info=info,
            client_capabilities=capabilities,
            tools=tools,
            first_input=first_input,
            log=partial(print_line, file=sys.stderr),
            **_serve_settings(options, to),
        )

        async def main() -> None:
            async with opening as server:

                def stop(number: int, frame: object) -> None:
                    server.loop.run_soon(server.stop)

                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, stop)
                if server.url:
                    print_line(server.url)
                await server.stopped.wait()

        try:
            run(main())
        except OSError as error:
            raise UsageError(f"Cannot serve at {place_of(options)}: {error}") from error
    return 0


def _serve_settings(options: argparse.Namespace, to: str) -> ServeSettings:
    """Return where clients are served. Raises UsageError."""
    is_stdio = to == _STDIO
    hosts = (*sansmcp.SecurityPolicy().allowed_hosts, *options.serve_host)
    return {
        "stdio": is_stdio,
        "http": None if is_stdio else http_of(options),
        "unix": None if is_stdio else options.unix,
        "http_sse": "/sse" if to == _HTTP_SSE else None,
        "path": options.path,
        "policy": sansmcp.SecurityPolicy(allowed_hosts=hosts),
        "trace": tracer("clients") if options.trace else None,
        "http11": fast_http11(),
    }


def fast_http11() -> Http11Parser | None:
    """Return the faster parser of HTTP heads; None, for h11, without the extra ``fast``."""
    try:
        from sansmcp.httptools_parser import HTTP11
    except ModuleNotFoundError:
        return None
    return HTTP11


def _upstreams(options: argparse.Namespace, stack: ExitStack) -> list[Upstream]:
    """Return the servers that the options name. Raises UsageError."""
    common: ConnectSettings = {
        **process_of(options),
        "headers": headers_of(options),
        "http11": fast_http11(),
    }
    words: list[str] = options.words
    if options.config is not None:
        if words or options.command or options.state_file is not None:
            raise UsageError("Either --config or one server, not both")
        return _configured(options, common, stack)
    target = target_of(options, words)
    if words:
        raise UsageError(f"One server, or --config FILE for several; what is {' '.join(words)!r}?")
    common["authorization"] = stack.enter_context(authorization_for(options, target))
    common["trace"] = tracer("upstream") if options.trace else None
    return [Upstream("upstream", target, common)]


def _configured(
    options: argparse.Namespace, common: ConnectSettings, stack: ExitStack
) -> list[Upstream]:
    """Return the servers of a file in the form that clients use. Raises UsageError."""
    try:
        servers = read_servers(options.config)
    except sansmcp.LocalProtocolError as error:
        raise UsageError(str(error)) from error
    return [_configured_one(each, options, common, stack) for each in servers]


def _configured_one(
    server: ConfiguredServer,
    options: argparse.Namespace,
    common: ConnectSettings,
    stack: ExitStack,
) -> Upstream:
    settings: ConnectSettings = {
        **common,
        **server.settings,
        "trace": tracer(server.name) if options.trace else None,
    }
    if isinstance(server.target, str):
        settings["headers"] = [*headers_of(options), *server.headers]
        if not any(header.lower() == "authorization" for header, _ in server.headers):
            authorization = authorization_for(options, server.target)
            settings["authorization"] = stack.enter_context(authorization)
    else:
        settings["env"] = {**(common.get("env") or {}), **server.env}
    return Upstream(server.name, server.target, settings)


def _first_input() -> bytes:
    """Read standard input until its first line ends; it may have further lines, or end before."""
    data = b""
    while b"\n" not in data and len(data) < _FIRST_LINE and (more := os.read(0, 65536)):
        data += more
    return data


def _client_of(data: bytes) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return name and capabilities of a client from its first message; None if it has none."""
    try:
        message = as_object(json.loads(data.partition(b"\n")[0])) or {}
    except ValueError:
        return None, None
    params = as_object(message.get("params")) or {}
    if message.get("method") == "initialize":
        return as_object(params.get("clientInfo")), as_object(params.get("capabilities"))
    meta = as_object(params.get("_meta")) or {}
    prefix = "io.modelcontextprotocol/"
    info, capabilities = meta.get(f"{prefix}clientInfo"), meta.get(f"{prefix}clientCapabilities")
    return as_object(info), as_object(capabilities)
