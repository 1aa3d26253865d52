"""The common part of the commands on asyncio and trio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import sansmcp
import sansmcp_local
from sansmcp.events import ClientEvent, Connected

from ._adapters import Script, next_call


async def run_calls_with(
    connecting: AbstractAsyncContextManager[sansmcp_local.Client],
    script: Callable[[Connected], Script],
    show: Callable[[ClientEvent], None],
) -> None:
    """Make the calls of a script, and show the events meanwhile."""
    loop = sansmcp_local.current_loop()
    async with connecting as client:
        loop.spawn(_show_events, client.events(), show)  # they end with the client
        running = script(client.connected)
        call = next_call(running, None)
        while call is not None:
            try:
                outcome = await client.call(call.method, call.params, on_progress=call.on_progress)
            except sansmcp.CallError as error:
                outcome = error
            call = next_call(running, outcome)


async def _show_events(
    events: AsyncIterator[ClientEvent], show: Callable[[ClientEvent], None]
) -> None:
    async for event in events:
        show(event)
