"""What the commands that talk to one server share: options, settings, what is shown meanwhile."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.codecs.jsonrpc import METHOD_NOT_FOUND
from sansmcp.events import (
    ClientEvent,
    Connected,
    InvalidLine,
    ProtocolViolation,
    Reconnecting,
    ServerNotified,
)
from sansmcp.events import StderrLine as StderrLineRead
from sansmcp_local import ConnectSettings

from ._adapters import ADAPTERS, Script, ScriptCall, adapter_of, add_adapter
from ._answers import Answers
from ._credentials import add_authorization, authorization_for, is_at_terminal
from ._display import ProgressDisplay
from ._network import add_network, network_of
from ._output import UsageError, add_trace, examples, print_line, tracer
from ._recording import Recorder, open_recording
from ._target import (
    add_headers,
    add_revision,
    add_target,
    add_transport,
    headers_of,
    process_of,
    transports_of,
    versions_of,
)

_DEFAULTS = sansmcp.ClientOptions()

_METHOD = re.compile(r"[\w/.$-]+", re.ASCII)
"""A method that looks like no other line, such as one that says sansmcp and a colon."""

_MAX_PAGES = 100
"""Pages of a list that are read. A server that never ends its list is not read for ever."""


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options about one server: where it is, the way there, and the login."""
    server = parser.add_argument_group("the server")
    add_target(server)
    add_headers(server)
    add_network(server)
    add_authorization(server)


def add_session(parser: argparse.ArgumentParser, *commands: str, adapters: bool = True) -> None:
    """Add the options of a command that talks to one server.

    Args:
        parser: the parser of the command.
        commands: examples for its help, without the name of this program.
        adapters: True to let a person choose on what it runs; else it is asyncio.
    """
    parser.epilog = examples(*commands)
    add_server(parser)
    output = parser.add_argument_group("what is shown")
    output.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_trace(output, "the conversation")
    output.add_argument(
        "--record",
        metavar="FILE",
        help="write the conversation to this file, for sansmcp replay; credentials are left out",
    )
    output.add_argument(
        "--record-secrets", action="store_true", help="write credentials to it, too"
    )
    asked = parser.add_argument_group("what the server asks")
    asked.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="answer this field of a form without asking; may be given several times",
    )
    asked.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="tell the server that it may work in this directory; may be given several times",
    )
    protocol = parser.add_argument_group("times and the protocol")
    protocol.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="for the start of a server and the handshake, and for a call as long as there is no "
        f"progress (default: {_DEFAULTS.connect_timeout:g} and {_DEFAULTS.timeout:g})",
    )
    add_revision(protocol)
    add_transport(protocol)
    if adapters:
        add_adapter(protocol)


@attrs.frozen(kw_only=True)
class Conversation:
    """All that a command needs to connect to its server."""

    target: str | list[str]
    settings: ConnectSettings
    answers: Answers
    progress: ProgressDisplay

    def show(self, event: ClientEvent) -> None:
        """Show an event on stderr."""
        match event:
            case ServerNotified(_, notification):
                self._show_line(notification_line(notification))
            case Reconnecting(call=call, reason=reason, delay=delay) if call is not None:
                self._show_line(f"disconnected ({reason}): back in {delay:.1f} s")
            case StderrLineRead(line):
                self._show_line(f"server: {line}")
            case ProtocolViolation(error):
                self._show_line(f"warning: {error}")
            case InvalidLine(line):
                self._show_line(f"no message: {line.decode('utf-8', 'replace')}")
            case _:
                pass

    def _show_line(self, line: str) -> None:
        self.progress.stop()
        print_line(line, sys.stderr)


def notification_line(notification: sansmcp.Notification) -> str:
    """Return a line that shows a notification. A method of other words is JSON, in quotes."""
    method = notification.method
    if not _METHOD.fullmatch(method):
        method = json.dumps(method, ensure_ascii=False)
    if notification.params is None:
        return method
    return f"{method} {json.dumps(notification.params, ensure_ascii=False)}"


@contextmanager
def prepared(
    options: argparse.Namespace, target: str | list[str]
) -> Generator[Conversation, None, None]:
    """Give what a command needs to connect.

    A recording overwrites its file here, so the words of the command are checked before.

    Args:
        options: those of :func:`add_session`.
        target: the server.

    Raises:
        UsageError: the options make no sense.
    """
    progress = ProgressDisplay()
    # The terminal is read in the event loop, and only the default adapter does that.
    can_ask = getattr(options, "adapter", ADAPTERS[0]) == ADAPTERS[0] and is_at_terminal()
    where = target if isinstance(target, str) else target[0]
    answers = Answers(where, asks=can_ask, roots=options.root, given=options.answer)
    if options.record_secrets and options.record is None:
        raise UsageError("--record-secrets is for --record FILE")
    with ExitStack() as stack:
        settings: ConnectSettings = {
            **process_of(options),
            **network_of(options),
            "name": f"sansmcp-{options.given[0]}",
            "version": sansmcp.__version__,
            "versions": versions_of(options),
            "capabilities": answers.capabilities,
            "headers": headers_of(options),
            **transports_of(options, target),
            "trace": tracer(options, "client"),
            "authorization": stack.enter_context(authorization_for(options, target)),
        }
        if options.timeout is not None:
            settings["timeout"] = settings["connect_timeout"] = options.timeout
        if options.record is not None:
            file = stack.enter_context(open_recording(options.record))
            settings["observer"] = Recorder(file, where, redacts=not options.record_secrets)
        yield Conversation(target=target, settings=settings, answers=answers, progress=progress)


def converse(
    options: argparse.Namespace,
    conversation: Conversation,
    script: Callable[[Connected], Script],
) -> None:
    """Connect, and make the calls of a script. Raises what these raise, and UsageError."""

    def named(server: Connected) -> Script:
        if not isinstance(conversation.target, str):
            conversation.answers.connected(server.server_info)
        return script(server)

    try:
        adapter_of(options).run_calls(
            conversation.target,
            named,
            conversation.show,
            conversation.settings,
            conversation.answers.handlers(conversation.progress.stop),
        )
    finally:
        conversation.progress.stop()


def pages(method: str, member: str) -> Generator[ScriptCall, Any, list[dict[str, Any]]]:
    """Read all pages of a list; ``member`` is its name in the results.

    Returns the things of the list. Those that are no objects are left out. A list of too many pages
    is cut, which stderr says.
    """
    found: list[dict[str, Any]] = []
    cursor: object = None
    cursors: set[object] = set()
    texts: set[str] = set()
    """The things of the pages before, as JSON."""
    for _ in range(_MAX_PAGES):
        page = as_object((yield ScriptCall(method, None if cursor is None else {"cursor": cursor})))
        items = [(json.dumps(each), each) for each in objects((page or {}).get(member))]
        new = [each for text, each in items if text not in texts]
        texts.update(text for text, _ in items)
        found += new
        cursor = (page or {}).get("nextCursor")
        if not isinstance(cursor, str):
            break
        if cursor in cursors or (cursors and not new):
            what = f"sansmcp: {method} repeats its pages; the list may not be complete"
            print_line(what, sys.stderr)
            break
        cursors.add(cursor)
    else:
        what = f"sansmcp: {method} has more than {_MAX_PAGES} pages; the rest is left out"
        print_line(what, sys.stderr)
    return found


@contextmanager
def offered(kind: str, server: Connected) -> Generator[None, None, None]:
    """Raise UsageError for a method that the server lacks because it offers none of this kind.

    Args:
        kind: the name of the capability, which is the plural of what the method is for.
        server: the server.
    """
    try:
        yield
    except sansmcp.JsonRpcError as error:
        if error.code == METHOD_NOT_FOUND and kind not in server.capabilities:
            raise UsageError(f"The server has no {kind}") from None
        raise


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects of a JSON array."""
    for each in value if is_array(value) else ():
        members = as_object(each)
        if members is not None:
            yield dict(members)
