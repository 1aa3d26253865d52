"""The interface between the commands and an adapter; one module here implements it for each."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

import sansmcp
from sansmcp.base_client import OnProgress
from sansmcp.events import ClientEvent, Connected
from sansmcp.messages import Params
from sansmcp_local import ConnectSettings, ServeSettings

from ._output import Options, UsageError

ADAPTERS = ("asyncio", "blocking", "trio")


@attrs.frozen
class ScriptCall:
    """A call that a script makes."""

    method: str
    params: Params | None = None
    on_progress: OnProgress[None] | None = attrs.field(default=None, kw_only=True)


Script: TypeAlias = Generator[ScriptCall, Any, None]
"""A generator that makes calls one after the other. It yields each call, and is sent its result or
thrown its CallError. What it raises ends the command.
"""


RequestHandlers: TypeAlias = Mapping[str, Callable[[sansmcp.ServerRequest], Any]]
"""The request handlers, by method: plain functions that return the result; on asyncio, async ones,
too.
"""


class Adapter(Protocol):
    """An adapter, as the commands use it."""

    EXAMPLE: sansmcp.App
    """The example application, with handlers that it can run."""

    def run_calls(
        self,
        target: str | Sequence[str],
        script: Callable[[Connected], Script],
        show: Callable[[ClientEvent], None],
        settings: ConnectSettings,
        request_handlers: RequestHandlers | None = None,
    ) -> None:
        """Connect, make the calls of a script, and show the events meanwhile.

        ``script`` gets what is known of the server. Raises what ``connect`` of the adapter raises,
        and what the script raises.
        """

    def serve(
        self,
        app: sansmcp.App,
        started: Callable[[str, Callable[[], object]], None],
        settings: ServeSettings,
    ) -> None:
        """Serve an application until it is stopped.

        ``started`` is called with the URL and a function that stops the server. That function may
        be called in a signal handler and in any thread. Raises what the adapter's ``serve`` raises.
        """


def add_adapter(parser: Options) -> None:
    """Add the option that chooses an adapter."""
    parser.add_argument(
        "--adapter", choices=ADAPTERS, default="asyncio", help="what to run on (default: asyncio)"
    )


def adapter_of(options: argparse.Namespace) -> Adapter:
    """Return the chosen adapter; no other need be installed. Raises UsageError."""
    try:
        module: Any = importlib.import_module(f"{__package__}._with_{options.adapter}")
    except ModuleNotFoundError as error:
        text = f"{error}: pip install 'sansmcp[trio]', or choose --adapter asyncio"
        raise UsageError(text) from error
    adapter: Adapter = module
    return adapter


def next_call(script: Script, outcome: Any) -> ScriptCall | None:
    """Send the outcome of the last call to a script. Return its next call; None at the end."""
    try:
        if isinstance(outcome, sansmcp.CallError):
            return script.throw(outcome)
        return script.send(outcome)
    except StopIteration:
        return None
