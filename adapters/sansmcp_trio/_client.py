"""The client: a background task for each connection.

A call changes the machine, performs what the machine then wants (which is: write to sockets), and
waits for its own promise. Whatever happens to a connection becomes an input of the machine.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

import sansmcp
import sansmcp_loop
from sansmcp.effects import ClientEffect
from sansmcp.types import Unpack
from sansmcp_local import ServerProcess, new_client, process_arguments
from sansmcp_loop import Answerer, current_loop, perform

from ._nursery import plain_nursery
from ._pool import Pool
from ._process import TrioProcess

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart


class Client(sansmcp_loop.Client, trio.abc.AsyncResource):
    """A connected client; made by :func:`connect`. All methods may be called from any task."""

    def __init__(
        self,
        core: sansmcp.Client,
        nursery: trio.Nursery,
        answers: Mapping[str, Answerer] | None,
        ssl_context: ssl.SSLContext | None,
        process: Mapping[str, Any],
    ) -> None:
        super().__init__(core, current_loop(), answers)
        self._nursery = nursery
        self._pool = Pool(
            core, self.run_pending, self.exchange_failed, self._may_read, nursery, ssl_context
        )
        self._process = ServerProcess(
            partial(TrioProcess, self._feed, self._may_read, nursery, process)
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


@asynccontextmanager
async def connect(
    target: str | Sequence[str],
    *,
    answers: Mapping[str, Answerer] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    env: Mapping[str, str] | None = None,
    inherit_env: bool = False,
    cwd: str | os.PathLike[str] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to an MCP server, and close when the block ends.

    Args:
        target: the URL of an MCP endpoint, http or https; or the command that starts a server on
            stdio, e.g. ``["python", "server.py"]``. That process, and all that it has started, end
            with the block.
        answers: for each request that the server may make, such as ``"elicitation/create"``, a
            function, async or plain, from the :class:`sansmcp.ServerRequest` to the result, a JSON
            object. A plain one must not block. Declare the request in ``capabilities``, too.
        ssl_context: how to verify an https server; the standard library's default if None.
        env: environment variables of the process, beside HOME, LOGNAME, PATH, SHELL, TERM and
            USER of this one.
        inherit_env: give the process all environment variables of this one.
        cwd: the directory in which the process runs; None: that of this one.
        settings: see :class:`sansmcp.Client`. Unless ``verdicts`` is set, all clients of this
            program share one.

    Raises CallError if the handshake fails, LocalProtocolError if the target or a setting is wrong.
    """
    process = process_arguments(env, inherit_env=inherit_env, cwd=cwd)
    core = new_client(target, **settings)
    async with plain_nursery() as nursery:
        client = Client(core, nursery, answers, ssl_context, process)
        try:
            await client.open()
            yield client
        finally:
            try:
                await client.aclose()
            finally:
                client.leave()
        nursery.cancel_scope.cancel()
