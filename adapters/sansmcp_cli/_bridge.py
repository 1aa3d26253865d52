"""``sansmcp bridge``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from functools import partial
from typing import Any

import attrs

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp.http11_parser import Http11Parser
from sansmcp.relay import ToolFilter
from sansmcp_bridge import Bridge, Upstream, open_bridge
from sansmcp_local import (
    STOPPING,
    ConfiguredServer,
    ConnectSettings,
    ServeSettings,
    load_json,
    on_signals,
    read_servers,
)

from ._credentials import add_authorization, authorization_for
from ._network import add_network, network_of
from ._output import Commands, UsageError, add_trace, examples, print_line, tracer
from ._serve import add_addresses, http_of, option_of_address, place_of
from ._target import (
    USAGE,
    add_headers,
    add_target,
    add_transport,
    headers_of,
    process_of,
    target_of,
    transports_of,
)
from ._with_asyncio import run

_STDIO, _HTTP, _HTTP_SSE = "stdio", "http", "http-sse"

_INITIALIZE = "clientInfo", "capabilities"
_META = "io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities"
"""Where a first message has the name and the capabilities of its client."""

_POLL_INTERVAL = 0.25
"""Seconds between two looks if the client has closed stdin, until the bridge reads from it."""

_GRACE = 5.0
"""Seconds for the upstream server to be reached after that, since requests may wait for it."""

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
        epilog=examples(
            "bridge https://mcp.example.com/mcp --to stdio",
            "bridge --config mcp.json --http 127.0.0.1:8000 --deny-tool 'delete_*'",
        ),
    )
    command.add_argument("words", nargs="*", metavar="URL")
    server = command.add_argument_group("the server")
    add_target(server)
    server.add_argument(
        "--config",
        metavar="FILE",
        help='the servers, as JSON: {"mcpServers": {NAME: {"command": ..., "args": [...], "env": '
        '{...}} or {"url": ..., "headers": {...}}}}',
    )
    add_headers(server)
    add_transport(server)
    add_network(server)
    add_authorization(server)
    clients = command.add_argument_group("where clients connect, and what they get")
    clients.add_argument(
        "--to",
        choices=(_STDIO, _HTTP, _HTTP_SSE),
        help="where clients connect; http-sse is both HTTP transports (default: stdio for a URL, "
        "http for a command, and with --http or --unix)",
    )
    add_addresses(clients)
    clients.add_argument("--path", default="/mcp", help="of the endpoint (default: %(default)s)")
    clients.add_argument(
        "--serve-host",
        action="append",
        default=[],
        metavar="NAME",
        help="serve requests for this host name, too; * for all (default: this machine only)",
    )
    clients.add_argument(
        "--shared",
        action="store_true",
        help="one connection, or process, for all clients (default: one for each session)",
    )
    clients.add_argument(
        "--allow-tool",
        action="append",
        metavar="PATTERN",
        help="let clients see and call only tools with such names, e.g. 'read_*'; may be given "
        "several times",
    )
    clients.add_argument(
        "--deny-tool",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out tools with such names; may be given several times",
    )
    shown = command.add_argument_group("what is shown")
    add_trace(shown, "all conversations (with clients, and with each server under its name)")
    command.set_defaults(run=_bridge)


def _bridge(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        upstreams = _upstreams(options, stack)
        is_command = not isinstance(upstreams[0].target, str)
        place = option_of_address(options)
        is_http = is_command or len(upstreams) > 1 or place is not None
        to = options.to or (_HTTP if is_http else _STDIO)
        if to == _STDIO and place is not None:
            raise UsageError(f"--to stdio serves no HTTP; leave out {place}, or write --to http")
        first_input = _first_input() if to == _STDIO else b""
        if to == _STDIO and not first_input:
            return 0  # the client has left
        tools = None
        if options.allow_tool or options.deny_tool:
            tools = ToolFilter(tuple(options.allow_tool or ("*",)), tuple(options.deny_tool))
        client = _client_of(first_input)
        opening = open_bridge(
            upstreams,
            shared=options.shared or to == _STDIO,
            has_handshake=client.has_handshake,
            client_info=client.info,
            client_capabilities=client.capabilities,
            tools=tools,
            first_input=first_input,
            log=partial(print_line, file=sys.stderr),
            **_serve_settings(options, to),
        )

        async def main() -> None:
            async with AsyncExitStack() as opened:
                server = await _opened(opening, opened, first_input)

                on_signals(STOPPING, partial(server.loop.run_soon, server.stop))
                if server.url:
                    print_line(server.url)
                await server.stopped.wait()

        try:
            run(main())
        except OSError as error:
            raise UsageError(f"Cannot serve at {place_of(options)}: {error}") from error
    return 0


async def _opened(
    opening: AbstractAsyncContextManager[Bridge], stack: AsyncExitStack, first_input: bytes
) -> Bridge:
    """Open the bridge. The requests that have come on stdin get an error if that fails.

    Raises:
        UsageError: stdin has ended, and the upstream server was not reached soon after.
    """
    entering = asyncio.ensure_future(stack.enter_async_context(opening))
    leaving = asyncio.ensure_future(_client_leaves(is_there=first_input != b""))
    try:
        await asyncio.wait([entering, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not entering.done():
            raise UsageError("The client has left, and the upstream server is not reached yet")
        return entering.result()
    except (sansmcp.CallError, UsageError) as error:
        _refuse(first_input, f"The upstream server cannot be reached: {error}")
        raise
    finally:
        leaving.cancel()
        entering.cancel()
        await asyncio.wait([entering, leaving])


async def _client_leaves(*, is_there: bool) -> None:
    """Return a while after stdin, if it is a pipe, was closed at its other end."""
    if sys.platform == "win32" or not is_there:  # Windows: nothing tells
        await asyncio.Event().wait()
        return
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    while not poll.poll(0):
        await asyncio.sleep(_POLL_INTERVAL)
    await asyncio.sleep(_GRACE)


def _refuse(data: bytes, text: str) -> None:
    """Respond with an error to each request that was read."""
    for line in data.split(b"\n"):
        try:
            message = as_object(load_json(line)) or {}
        except ValueError:
            continue
        id = message.get("id")
        if isinstance(id, str | int) and "method" in message:
            error = {"code": -32603, "message": text}
            print_line(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))


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
        "trace": tracer(options, "clients"),
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
        **network_of(options),
        "headers": headers_of(options),
        "http11": fast_http11(),
    }
    words: list[str] = options.words
    if options.config is not None:
        if words or options.command or options.state_file is not None:
            raise UsageError("Either --config or one server, not both")
        if options.header:
            raise UsageError(
                "--header would go to all servers of the file; write the header in "
                '"headers" of the one that needs it'
            )
        return _configured(options, common, stack)
    target = target_of(options, words)
    if words:
        raise UsageError(f"One server, or --config FILE for several; what is {' '.join(words)!r}?")
    common["authorization"] = stack.enter_context(authorization_for(options, target))
    common["trace"] = tracer(options, "upstream")
    return [Upstream("upstream", target, {**common, **transports_of(options, target)})]


def _configured(
    options: argparse.Namespace, common: ConnectSettings, stack: ExitStack
) -> list[Upstream]:
    """Return the servers of a file in the form that clients use. Raises UsageError."""
    try:
        found = read_servers(options.config)
    except sansmcp.LocalProtocolError as error:
        raise UsageError(str(error)) from error
    for name, failure in found.failures.items():
        print_line(f"{name} is left out: {failure}", sys.stderr)
    if not found.servers:
        raise UsageError(f"{options.config} has no servers to be used")
    return [_configured_one(each, options, common, stack) for each in found.servers.values()]


def _configured_one(
    server: ConfiguredServer,
    options: argparse.Namespace,
    common: ConnectSettings,
    stack: ExitStack,
) -> Upstream:
    settings: ConnectSettings = {
        **common,
        **server.settings,
        "trace": tracer(options, server.name),
    }
    if isinstance(server.target, str):
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


@attrs.frozen
class _Client:
    """The client on standard input, as far as its first message tells."""

    info: Mapping[str, Any] | None = None
    capabilities: Mapping[str, Any] | None = None
    has_handshake: bool = False


def _client_of(data: bytes) -> _Client:
    try:
        message = as_object(load_json(data.partition(b"\n")[0])) or {}
    except ValueError:
        return _Client()
    params = as_object(message.get("params")) or {}
    has_handshake = message.get("method") == "initialize"
    given = params if has_handshake else (as_object(params.get("_meta")) or {})
    names = _INITIALIZE if has_handshake else _META
    info, capabilities = (as_object(given.get(name)) for name in names)
    return _Client(info, capabilities, has_handshake=has_handshake)
