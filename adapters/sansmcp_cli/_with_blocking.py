"""The commands without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sansmcp
import sansmcp_blocking
from sansmcp.events import ClientEvent, Connected
from sansmcp_local import ConnectSettings, ServeSettings

from . import example
from ._adapters import RequestHandlers, Script, next_call

EXAMPLE = example.blocking_app

_POLL_INTERVAL = 0.1
"""Seconds between two checks for events during a call."""


def run_calls(
    target: str | Sequence[str],
    script: Callable[[Connected], Script],
    show: Callable[[ClientEvent], None],
    settings: ConnectSettings,
    request_handlers: RequestHandlers | None = None,
) -> None:
    """Make the calls of a script."""
    with sansmcp_blocking.connect(target, request_handlers=request_handlers, **settings) as client:
        client.events()  # queues events from now on
        running = script(client.connected)
        call = next_call(running, None)
        while call is not None:
            pending = client.start_call(call.method, call.params, on_progress=call.on_progress)
            call = next_call(running, _outcome(client, pending, show))


def _outcome(
    client: sansmcp_blocking.Client,
    pending: sansmcp_blocking.PendingCall,
    show: Callable[[ClientEvent], None],
) -> Any:
    try:
        while True:
            try:
                return pending.result(_POLL_INTERVAL)
            except TimeoutError:
                pass
            except sansmcp.CallError as error:
                return error
            finally:
                for event in client.events(0):
                    show(event)
    except KeyboardInterrupt:
        pending.cancel()
        raise


def serve(
    app: sansmcp.App,
    started: Callable[[str, Callable[[], object]], None],
    settings: ServeSettings,
) -> None:
    """Serve an application."""
    with sansmcp_blocking.serve(app, **settings) as serving:
        started(serving.url, serving.stop)
        serving.wait()
