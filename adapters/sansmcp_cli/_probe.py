"""``sansmcp probe``: the transports and revisions of a server, and why others fail."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from typing import Any

import attrs

import sansmcp
import sansmcp_asyncio
from sansmcp.events import ClientEvent, StandaloneStreamClosed
from sansmcp.typed_results import PROMPTS, RESOURCES, TOOLS, Listing, Pages
from sansmcp.types import HTTP_SSE, STDIO, STREAMABLE_HTTP, URL_TRANSPORTS, escape_controls
from sansmcp_local import ConnectSettings

from ._advice import advice, is_denied, is_no_endpoint
from ._credentials import authorization_for
from ._display import show_json
from ._network import network_of
from ._output import Commands, UsageError, add_trace, broken, examples, print_line, tracer
from ._session import add_server
from ._target import USAGE, headers_of, process_of, target_of
from ._with_asyncio import run

_MAX_PAGES = 100
"""Pages of a list whose items are counted."""


_USUAL_PATHS = (("/mcp", STREAMABLE_HTTP), ("/sse", HTTP_SSE))
"""The usual paths of endpoints, to suggest if another path fails."""

_LABEL_WIDTH = 24
_NARROWEST = 40
"""Columns that text gets also where the terminal is too narrow for it."""


@attrs.define
class _ProbeReport:
    """The findings about one transport."""

    transport: str
    revisions: dict[str, str | None]
    """For each revision that was tried, why it failed; None if it works."""
    server: dict[str, Any] = attrs.field(factory=dict[str, Any])
    capabilities: dict[str, Any] = attrs.field(factory=dict[str, Any])
    standalone_stream: str | None = "the stateless revisions have none"
    """Why there is none; None if there is one, or the transport needs none."""
    was_asked_as_old: bool = False
    """True if it was tried at a revision that has sessions, too."""
    offers: dict[str, int | str] = attrs.field(factory=dict[str, "int | str"])
    """The number of tools, resources and so on, or why it could not be determined."""
    error: sansmcp.CallError | None = None
    """The error of the last revision that failed."""

    @property
    def works(self) -> bool:
        """True if any revision works."""
        return None in self.revisions.values()


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "probe",
        help="find out what a server speaks, and why something does not work",
        usage="sansmcp probe [options] URL\n       sansmcp probe [options] -- COMMAND [ARGS ...]",
        description="Try every transport and revision, and tell what works and what each failure "
        f"was. {USAGE[0].upper()}{USAGE[1:]}.",
        epilog=examples("probe https://mcp.example.com/mcp", "probe --trace -- python server.py"),
    )
    command.add_argument("words", nargs="*", metavar="URL")
    add_server(command)
    output = command.add_argument_group("times, and what is shown")
    output.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="for each attempt (default: 10)",
    )
    output.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    add_trace(output, "the conversations")
    command.set_defaults(run=_probe)


def _probe(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    target = target_of(options, words)
    if words:
        raise UsageError(f"One server at a time; what is {' '.join(words)!r}?")
    with authorization_for(options, target) as authorization:
        options.authorization = authorization
        return run(_look(target, options))


async def _look(target: str | list[str], options: argparse.Namespace) -> int:
    transports = URL_TRANSPORTS if isinstance(target, str) else (STDIO,)
    found: list[_ProbeReport] = []
    for transport in transports:
        found.append(await _try_transport(target, transport, options))
        if isinstance(found[-1].error, sansmcp.AuthorizationFailed):
            break  # a person who could not log in is not asked again
    works = any(findings.works for findings in found)
    sentences = [] if works else await _advise(target, found, options)
    if options.json:
        each = [_as_json(one) for one in found]
        show_json({"target": target, "transports": each, "advice": sentences})
    else:
        print_line(target if isinstance(target, str) else " ".join(target))
        for findings in found:
            _show(findings)
        for sentence in sentences:
            print_line(sentence)
    return 0 if works else 1


async def _advise(
    target: str | list[str], found: list[_ProbeReport], options: argparse.Namespace
) -> list[str]:
    """Return advice about a target that is not an MCP server."""
    errors = [findings.error for findings in found if findings.error is not None]
    if isinstance(target, list) or any(map(is_denied, errors)):
        return list(dict.fromkeys(sentence for error in errors for sentence in advice(error)))
    if not any(map(is_no_endpoint, errors)):
        return []
    here = sansmcp.Url.parse(target)
    tried: list[str] = []
    for path, transport in _USUAL_PATHS:
        url = str(here.join(path))
        if url != target:
            findings = await _try_transport(url, transport, options)
            if findings.works or (findings.error is not None and is_denied(findings.error)):
                answers = "speaks MCP" if findings.works else "wants credentials"
                return [f"{url} {answers}; try: sansmcp probe {url}"]
            tried.append(url)
    return [
        f"No MCP endpoint here, nor at {' or '.join(tried)}; look for the URL of the endpoint in "
        "the documentation of the server"
    ]


async def _try_transport(
    target: str | list[str], transport: str, options: argparse.Namespace
) -> _ProbeReport:
    """Try each revision, the newest first. Query the first that works for its features."""
    findings = _ProbeReport(transport, {})
    for revision, row in reversed(tuple(sansmcp.REVISIONS.items())):
        is_modern = row.era is sansmcp.Era.MODERN
        if is_modern and transport == HTTP_SSE:
            continue  # this transport never had that revision
        settings: ConnectSettings = {
            **process_of(options),
            **network_of(options),
            "name": "sansmcp-probe",
            "version": sansmcp.__version__,
            "versions": (revision,),
            "headers": headers_of(options),
            "authorization": options.authorization,
            "connect_timeout": options.timeout,
            "reconnect": sansmcp.ReconnectPolicy(
                max_attempts=0
            ),  # failures are reported at once, without retries
            "timeout": options.timeout,
            "trace": tracer(options, "client"),
        }
        if isinstance(target, str):
            settings["transports"] = (transport,)
        try:
            async with sansmcp_asyncio.connect(target, **settings) as client:
                if not findings.works or (not is_modern and not findings.was_asked_as_old):
                    findings.was_asked_as_old = not is_modern
                    await _ask(client, findings)
                findings.revisions[revision] = None
        except sansmcp.CallError as error:
            findings.revisions[revision] = str(error)
            findings.error = error
            # Old servers fail in various ways at a request that they do not know, or say nothing.
            kinds = (sansmcp.RequestRefused, sansmcp.RequestTimeout)
            may_be_old = is_modern and isinstance(error, kinds)
            may_be_old = may_be_old and not is_denied(error)
            is_about_revisions = isinstance(error, sansmcp.NegotiationFailed) or may_be_old
            if not is_about_revisions and not findings.works:
                break
    return findings


async def _ask(client: sansmcp_asyncio.Client, findings: _ProbeReport) -> None:
    findings.server = dict(client.connected.server_info)
    findings.capabilities = dict(client.connected.capabilities)
    if findings.was_asked_as_old:
        findings.standalone_stream = None
    # Events are queued from here on, before the stream can be refused.
    watching = asyncio.create_task(_watch(client.events(), findings))
    for listing in (TOOLS, RESOURCES, PROMPTS):
        if listing.capability in findings.capabilities:
            try:
                findings.offers[listing.member] = await _count(client, listing)
            except sansmcp.CallError as error:
                findings.offers[listing.member] = str(error)
    await asyncio.sleep(0.1)  # the refusal of the stream may arrive after all other responses
    watching.cancel()
    await asyncio.wait([watching])


async def _count(client: sansmcp_asyncio.Client, listing: Listing) -> int:
    """Return the number of items of a list. Raises what a call raises, and InvalidResponse."""
    count, reading = 0, Pages(listing)
    for _ in range(_MAX_PAGES):
        page = await client.call(reading.method, reading.params)
        count += sum(1 for _ in reading.items(page))
        if reading.is_done:
            break
    return count


async def _watch(events: AsyncIterator[ClientEvent], findings: _ProbeReport) -> None:
    async for event in events:
        if isinstance(event, StandaloneStreamClosed):
            findings.standalone_stream = event.reason


def _as_json(findings: _ProbeReport) -> dict[str, Any]:
    inner = ("was_asked_as_old", "error")
    known = attrs.asdict(findings, filter=lambda field, _: field.name not in inner)
    return {"works": findings.works, **known}


def _show(findings: _ProbeReport) -> None:
    if not findings.works:
        (*_, why) = findings.revisions.values()
        _row(f"  {findings.transport:<16} no", *(why or "").split("\n"))
        return
    spoken = [revision for revision, why in findings.revisions.items() if why is None]
    _row(f"  {findings.transport:<16} yes", " ".join(spoken))
    for revision, why in findings.revisions.items():
        if why is not None:
            _row(f"    {revision:<14} no", *why.split("\n"))
    server = " ".join(str(findings.server.get(key, "")) for key in ("name", "version"))
    _row("    server", server.strip() or "nameless")
    if findings.transport == STREAMABLE_HTTP:
        stream = findings.standalone_stream
        _row(f"    {'GET stream':<14} {'yes' if stream is None else 'no'}", stream or "")
    _row("    capabilities", ", ".join(findings.capabilities) or "none")
    for name, count in findings.offers.items():
        _row(f"    {name}", *str(count).split("\n"))


def _row(label: str, *lines: str) -> None:
    """Print a row of the table; text of several lines, as errors have, stays in its column."""
    first, *others = [part for line in lines for part in _wrapped(escape_controls(line))]
    print_line(f"{label:<{_LABEL_WIDTH - 1}} {first}".rstrip())
    for line in others:
        print_line(" " * _LABEL_WIDTH + line)


def _wrapped(line: str) -> list[str]:
    """Break a line at the width of the terminal; programs get it whole."""
    if not sys.stdout.isatty():
        return [line]
    width = max(shutil.get_terminal_size().columns - _LABEL_WIDTH, _NARROWEST)
    return broken(line, width)
