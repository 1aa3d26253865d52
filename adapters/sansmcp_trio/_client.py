"""The client: a background task for each connection.

A call changes the machine, performs what the machine then wants (which is: write to sockets), and
waits for its own promise. Whatever happens to a connection becomes an input of the machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

import sansmcp
import sansmcp_loop
from sansmcp.effects import ClientEffect
from sansmcp.types import Unpack
from sansmcp_local import (
    ClientParts,
    ConnectOptions,
    ConnectSettings,
    ServerProcess,
    client_parts,
    explains,
)
from sansmcp_loop import RequestHandler, current_loop, perform

from ._nursery import plain_nursery
from ._pool import Pool
from ._process import TrioProcess

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart


class Client(sansmcp_loop.Client, trio.abc.AsyncResource):
    """A connected client; made by :func:`connect`. All methods may be called from any task."""

    def __init__(
        self,
        parts: ClientParts,
        nursery: trio.Nursery,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(parts.core, current_loop(), request_handlers)
        self._nursery = nursery
        self._pool = Pool(
            parts.core,
            self.run_pending,
            self.exchange_failed,
            self._may_read,
            nursery,
            parts.ssl_context,
        )
        self._process = ServerProcess(
            partial(TrioProcess, self._feed, self._may_read, nursery, parts.process)
        )

    async def open(self) -> None:
        """Do the handshake; :func:`connect` does it. Raises CallError where it fails."""
        await self._open()

    def leave(self) -> None:
        """Leave nobody who waits, and no connection; :func:`connect` does it, at the end."""
        self._let_go()
        self._pool.close()

    def perform_effect(self, effect: ClientEffect) -> None:
        perform(effect, self._pool, self._process)

    def _run(self, work: Coroutine[Any, Any, None]) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(_within, scope, work)
        return scope

    def _feed(self, part: ProcessPart) -> None:
        self.process_said(part)
        self.run_pending()

    async def _may_read(self) -> None:
        """Wait until the application has taken events, if it has to."""
        while self.is_paused:
            await self._scheduler.state_changed.wait()


async def _within(scope: trio.CancelScope, work: Coroutine[Any, Any, None]) -> None:
    with scope:
        await work


@explains(ConnectOptions, sansmcp.ClientOptions)
@asynccontextmanager
async def connect(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to an MCP server, and close when the block ends.

    Args:
        target: the URL of an MCP endpoint, http or https; or the command that starts a server on
            stdio, e.g. ``["python", "server.py"]``. That process, and all that it has started, end
            with the block.
        request_handlers: for each request that the server may make, such as
            ``"elicitation/create"``, a function, async or plain, from the
            :class:`sansmcp.ServerRequest` to the result, a JSON object. A plain one must not block.
            Declare the request in ``capabilities``, too.
        settings: those of :class:`sansmcp_local.ConnectOptions` and of
            :class:`sansmcp.ClientOptions`.

    Raises CallError if the handshake fails, LocalProtocolError if the target or a setting is wrong.
    """
    parts = client_parts(target, **settings)
    async with plain_nursery() as nursery:
        client = Client(parts, nursery, request_handlers)
        try:
            await client.open()
            yield client
        finally:
            try:
                await client.aclose()
            finally:
                client.leave()
        nursery.cancel_scope.cancel()
