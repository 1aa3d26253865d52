"""What the commands that talk to one server share: options, settings, what is shown meanwhile."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.events import ClientEvent, Connected, InvalidLine, Reconnecting, ServerNotified
from sansmcp.events import StderrLine as StderrLineRead
from sansmcp_local import ConnectSettings

from ._adapters import ADAPTERS, Script, ScriptCall, adapter_of, add_adapter
from ._answers import Answers
from ._credentials import add_authorization, authorization_for, is_at_terminal
from ._display import ProgressDisplay
from ._output import UsageError, print_line, tracer
from ._recording import Recorder, open_recording
from ._target import (
    add_headers,
    add_revision,
    add_target,
    headers_of,
    process_of,
    target_of,
    versions_of,
)

_MAX_PAGES = 100
"""Pages of a list that are read. A server that never ends its list is not read for ever."""


def add_session(parser: argparse.ArgumentParser, *, adapters: bool = True) -> None:
    """Add the options of a command that talks to one server.

    ``adapters``: True to let a person choose on what it runs; else it is asyncio.
    """
    add_target(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=attrs.fields(sansmcp.ClientOptions).timeout.default,
        metavar="SECONDS",
        help="for the handshake, and for a call as long as there is no progress "
        "(default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_headers(parser)
    add_authorization(parser)
    add_revision(parser)
    if adapters:
        add_adapter(parser)
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="tell the server that it may work in this directory; may be given several times",
    )
    parser.add_argument("--trace", action="store_true", help="show the conversation on stderr")
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write the conversation to this file, for sansmcp replay; credentials are left out",
    )
    parser.add_argument(
        "--record-secrets",
        action="store_true",
        help="write credentials to it, too",
    )


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
            case InvalidLine(line):
                self._show_line(f"no message: {line.decode('utf-8', 'replace')}")
            case _:
                pass

    def _show_line(self, line: str) -> None:
        self.progress.stop()
        print_line(line, sys.stderr)


def notification_line(notification: sansmcp.Notification) -> str:
    """Return a line that shows a notification."""
    if notification.params is None:
        return notification.method
    return f"{notification.method} {json.dumps(notification.params, ensure_ascii=False)}"


@contextmanager
def prepared(options: argparse.Namespace, words: list[str]) -> Generator[Conversation, None, None]:
    """Give what a command needs to connect; removes the server from ``words``.

    Args:
        options: those of :func:`add_session`.
        words: the words of the command; the first is the server if no option names it.

    Raises:
        UsageError: the options make no sense.
    """
    target = target_of(options, words)
    progress = ProgressDisplay()
    # The terminal is read in the event loop, and only the default adapter does that.
    can_ask = getattr(options, "adapter", ADAPTERS[0]) == ADAPTERS[0] and is_at_terminal()
    where = target if isinstance(target, str) else target[0]
    answers = Answers(where, asks=can_ask, roots=options.root)
    with ExitStack() as stack:
        recorder = None
        if options.record is not None:
            file = stack.enter_context(open_recording(options.record))
            recorder = Recorder(file, where, redacts=not options.record_secrets)
        elif options.record_secrets:
            raise UsageError("--record-secrets is for --record FILE")
        settings: ConnectSettings = {
            **process_of(options),
            "name": f"sansmcp-{options.given[0]}",
            "version": sansmcp.__version__,
            "versions": versions_of(options),
            "capabilities": answers.capabilities,
            "headers": headers_of(options),
            "timeout": options.timeout,
            # Commands may take long to start; a URL that does not respond should fail soon.
            "connect_timeout": min(options.timeout, 10.0 if isinstance(target, str) else 30.0),
            "trace": tracer("client") if options.trace else None,
            "observer": recorder,
            "authorization": stack.enter_context(authorization_for(options, target)),
        }
        yield Conversation(target=target, settings=settings, answers=answers, progress=progress)


def converse(
    options: argparse.Namespace,
    conversation: Conversation,
    script: Callable[[Connected], Script],
) -> None:
    """Connect, and make the calls of a script. Raises what these raise, and UsageError."""
    try:
        adapter_of(options).run_calls(
            conversation.target,
            script,
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
    for _ in range(_MAX_PAGES):
        page = as_object((yield ScriptCall(method, None if cursor is None else {"cursor": cursor})))
        found += objects((page or {}).get(member))
        cursor = (page or {}).get("nextCursor")
        if not isinstance(cursor, str):
            break
    else:
        what = f"sansmcp: {method} has more than {_MAX_PAGES} pages; the rest is left out"
        print_line(what, sys.stderr)
    return found


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects of a JSON array."""
    for each in value if is_array(value) else ():
        members = as_object(each)
        if members is not None:
            yield dict(members)
