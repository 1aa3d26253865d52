"""The client: one background task for each HTTP exchange, and one that keeps the time.

Callers never touch a socket. A call changes the machine, performs what the machine then wants
(which is: start and cancel tasks), and waits for its own promise. Whatever happens to a connection
ends in its task and becomes an input of the machine.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

import sansmcp
import sansmcp_loop
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange
from sansmcp_local import new_client
from sansmcp_loop import Answerer, current_loop

from ._machine import Clock, plain_nursery
from ._process import ServerProcess
from ._streams import Stream, open_stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sansmcp.process import ProcessPart


class Client(sansmcp_loop.Client, trio.abc.AsyncResource):
    """A connected client; made by :func:`connect`. All methods may be called from any task."""

    _clock: Clock

    def __init__(
        self,
        core: sansmcp.Client,
        nursery: trio.Nursery,
        pool: sansmcp.ConnectionPool,
        answers: Mapping[str, Answerer] | None,
        ssl_context: ssl.SSLContext | None,
        environment: Mapping[str, str] | None,
        directory: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(core, current_loop(), Clock(core), answers)
        self._nursery = nursery
        self._pool = pool
        self._ssl_context = ssl_context
        self._process = ServerProcess(self._feed, self._may_read, nursery, environment, directory)
        self._carrying: dict[int, trio.CancelScope] = {}

    async def open(self) -> None:
        """Do the handshake; :func:`connect` does it. Raises CallError where it fails."""
        self._nursery.start_soon(self._keep_time)
        await self._open()

    def leave(self) -> None:
        """Leave nobody who waits; :func:`connect` does it, at the end."""
        self._let_go()

    def _perform(self, effect: ClientEffect) -> None:
        match effect:
            case OpenExchange(exchange=exchange):
                self._carrying[exchange] = trio.CancelScope()
                self._nursery.start_soon(self._carry, effect)
            case AbortExchange(exchange=exchange):
                if exchange in self._carrying:
                    self._carrying[exchange].cancel()
            case _:
                self._process.perform(effect)

    def _run(self, work: Coroutine[Any, Any, None]) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(_within, scope, work)
        return scope

    async def _keep_time(self) -> None:
        while True:
            await self._clock.wait()
            self._settle()

    def _feed(self, part: ProcessPart) -> None:
        self._core.receive_from_process(part, now=trio.current_time())
        self._settle()

    async def _may_read(self) -> None:
        """Wait until the application has taken events, if it has to."""
        while self._is_paused:
            await self._clock.moved.wait()

    async def _carry(self, effect: OpenExchange) -> None:
        """Carry one HTTP exchange, from its request to the end of its response."""
        connection, request = self._pool.begin(effect, now=trio.current_time())
        try:
            with self._carrying[effect.exchange]:
                if connection.host is None:
                    url = sansmcp.Url.parse(effect.url)
                    connection.host = await open_stream(url, self._ssl_context)
                stream: Stream = connection.host
                await stream.send(request)
                while not connection.is_done:
                    await self._may_read()
                    data = await stream.receive()
                    if data:
                        connection.receive_data(data, now=trio.current_time())
                    else:
                        connection.receive_eof(now=trio.current_time())
                    self._settle()
        except (OSError, trio.BrokenResourceError) as error:
            connection.connection_lost(_reason(error), now=trio.current_time())
        finally:
            self._pool.release(effect.exchange, now=trio.current_time())
        del self._carrying[effect.exchange]
        self._settle()


async def _within(scope: trio.CancelScope, work: Coroutine[Any, Any, None]) -> None:
    with scope:
        await work


def _reason(error: BaseException) -> str:
    """What really went wrong: trio wraps what the operating system or TLS said."""
    while True:
        inner = getattr(error, "exceptions", (error.__cause__,))[0]
        if inner is None:
            return str(error) or "connection lost"
        error = inner


@asynccontextmanager
async def connect(
    target: str | Sequence[str],
    *,
    answers: Mapping[str, Answerer] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to an MCP server, and close when the block ends.

    Args:
        target: the URL of an MCP endpoint, http or https; or the command that starts a server on
            stdio, e.g. ``["python", "server.py"]``. That process, and all that it has started, end
            with the block.
        answers: for each request that the server may make, such as ``"elicitation/create"``, an
            async function from its parameters to the result. Declare it in ``capabilities``, too.
        ssl_context: how to verify an https server; the standard library's default if None.
        env: the environment of the process; None: the same as ours.
        cwd: the directory in which the process runs; None: ours.
        settings: see :class:`sansmcp.Client`. Unless ``verdicts`` is set, all clients of this
            program share one.

    Raises CallError if the handshake fails, LocalProtocolError if the target or a setting is wrong.
    """
    core = new_client(target, **settings)
    pool = sansmcp.ConnectionPool(core)
    try:
        async with plain_nursery() as nursery:
            client = Client(core, nursery, pool, answers, ssl_context, env, cwd)
            try:
                await client.open()
                yield client
            finally:
                try:
                    await client.aclose()
                finally:
                    client.leave()
            nursery.cancel_scope.cancel()
    finally:
        pool.close()
