"""``sansmcp listen``."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import attrs

import sansmcp
import sansmcp_asyncio
from sansmcp.events import ClientEvent, Closed, ServerNotified, StandaloneStreamClosed

from ._display import show_json
from ._output import Commands, UsageError, print_line
from ._session import Conversation, add_session, notification_line, prepared
from ._target import USAGE, target_of
from ._with_asyncio import run

_LISTS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
"""By the capability of a list, the name of its changes in ``subscriptions/listen``."""

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "listen",
        help="show the notifications of a server as they come",
        usage="sansmcp listen [options] URL [URI ...]\n"
        "       sansmcp listen [options] [URI ...] -- COMMAND [ARGS ...]",
        description="Subscribe to changes of the lists of a server, and of the resources that are "
        "named, and print each notification on a line, until Ctrl-C. "
        f"{USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] [URI ...]")
    command.add_argument(
        "--count", type=int, metavar="N", help="end after so many notifications (default: never)"
    )
    add_session(
        command,
        "listen http://127.0.0.1:8000/mcp",
        "listen shop file:///prices.csv --count 1",
        adapters=False,
    )
    command.set_defaults(run=_listen)


def _listen(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    if options.count is not None and options.count < 1:
        raise UsageError(f"--count must be 1 or more, got {options.count}")
    target = target_of(options, words)
    with prepared(options, target) as conversation:
        listener = _Listener(conversation, words, options.count, options.json)
        return run(listener.run())


@attrs.define
class _Listener:
    _conversation: Conversation
    _uris: list[str]
    _left: int | None
    """The number of notifications after which this ends; None for never."""
    _as_json: bool
    _gets_any: bool = attrs.field(default=True, init=False)
    """False if the server has acknowledged none of the notifications."""

    async def run(self) -> int:
        """Print notifications until there were enough, or the server ends the subscription."""
        conversation = self._conversation
        handlers = conversation.answers.handlers(lambda: None)
        connecting = sansmcp_asyncio.connect(
            conversation.target, request_handlers=handlers, **conversation.settings
        )
        async with connecting as client:
            tasks = [
                asyncio.ensure_future(self._watch(client)),
                asyncio.ensure_future(self._subscribe(client)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if self._left != 0:
            ended = "the server has ended the subscription"
            none = "the server sends none of these notifications"
            print_line(f"sansmcp: {ended if self._gets_any else none}", sys.stderr)
            return 1
        return 0

    async def _subscribe(self, client: sansmcp_asyncio.Client) -> None:
        """Subscribe, and return when the subscription ends."""
        server = client.connected
        if sansmcp.REVISIONS[server.version].era is sansmcp.Era.MODERN:
            wanted: dict[str, Any] = {
                name: True
                for capability, name in _LISTS.items()
                if capability in server.capabilities
            }
            if self._uris:
                wanted["resourceSubscriptions"] = self._uris
            await client.call("subscriptions/listen", {"notifications": wanted})
            return
        for uri in self._uris:
            await client.call("resources/subscribe", {"uri": uri})
        print_line("listening", sys.stderr)
        await asyncio.Event().wait()

    async def _watch(self, client: sansmcp_asyncio.Client) -> None:
        async for event in client.events():
            self._show(event)
            if self._left == 0:
                return

    def _show(self, event: ClientEvent) -> None:
        match event:
            case ServerNotified(_, notification) if notification.method == _ACKNOWLEDGED:
                self._gets_any = bool((notification.params or {}).get("notifications"))
                topics = json.dumps(notification.params, ensure_ascii=False)
                print_line(f"listening {topics}", sys.stderr)
            case ServerNotified(_, notification):
                message = {"method": notification.method, "params": notification.params}
                if self._as_json:
                    show_json(message)
                else:
                    print_line(notification_line(notification))
                if self._left is not None:
                    self._left -= 1
            case StandaloneStreamClosed(reason):
                raise UsageError(f"The server sends no notifications: {reason}")
            case Closed(error) if error is not None:
                raise error
            case _:
                self._conversation.show(event)
