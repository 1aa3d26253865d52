"""The server: a protocol for each connection, and a task for each handler that has to be awaited.

Whatever happens (bytes come, a handler says something, a deadline passes) is told to the machine,
which then names the connections that have something to send.
"""

from __future__ import annotations

import asyncio
import math
import socket
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import ExitStack
from functools import partial
from typing import Any

import sansmcp
import sansmcp_loop
from sansmcp.types import Self, Unpack
from sansmcp_local import (
    DriverOptions,
    ServeOptions,
    ServePlan,
    ServeSettings,
    StandardStreams,
    announce,
    explains,
    log_unexpected,
    serve_plan,
)
from sansmcp_loop import AsyncioTask, current_loop, wait_all_shielded

from ._connection import Connection, Refusal
from ._stdio import StdioTransport
from ._tasks import Tasks


class RunningServer(sansmcp_loop.RunningServer):
    """A server that runs; :func:`serve` makes it. All methods are to be called in its loop."""

    def __init__(
        self,
        plan: ServePlan,
    ) -> None:
        parts = plan.parts
        threads, authenticate = parts.options.threads, parts.options.authenticate
        super().__init__(
            parts.core, parts.store, current_loop(), threads=threads, authenticate=authenticate
        )
        self.url = ""
        """Where the MCP endpoint is."""
        self.stopped = asyncio.Event()
        """Is set once the server was told to stop."""
        self.has_ended = False
        """All streams have been ended: connections that have nothing to send are to be closed."""
        self.connections: set[Connection] = set()
        self._plan = plan
        self._listeners: list[asyncio.Server] = []
        self._taken = ExitStack()
        self._tasks = Tasks()
        self._ending: AsyncioTask | None = None

    async def __aenter__(self) -> Self:
        with ExitStack() as stack:
            endpoint = stack.enter_context(self._plan.open())
            self.url = endpoint.url
            await self._listen(endpoint.listeners, stack)
            if endpoint.streams is not None:
                self._serve_stdio(endpoint.streams)
            if self.url:
                announce(self.url)
            self._taken = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        assert self._ending is not None
        try:
            await asyncio.wait([self._ending.task])
        finally:
            self._ending.cancel()  # has an effect only if we are cancelled: no more grace
            await wait_all_shielded([self._ending.task])

    def stop(self) -> None:
        """Stop: no new requests, a moment for those that run, a proper end for every stream."""
        if self._ending is None:
            self.stopped.set()
            self._ending = AsyncioTask(asyncio.get_running_loop().create_task(self._end()))

    async def _end(self) -> None:
        for listener in self._listeners:
            listener.close()
        try:
            await self.shut_down(self._plan.options.graceful_timeout)
        finally:
            self.has_ended = True
            for connection in tuple(self.connections):
                connection.wake()
            try:
                await self.flush(lambda: not self.connections)
            finally:
                await self._leave()

    async def _leave(self) -> None:
        """Leave nothing behind: no task, no socket, no file."""
        for connection in self.connections:
            connection.abort()
        lost = [connection.lost for connection in self.connections]
        try:
            await wait_all_shielded([*self._tasks.cancel(), *lost])
        finally:
            self.scheduler.stop()
            self._taken.close()

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        call.driver = self._tasks.start(self.finish(call, result))

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        self._tasks.start(work(*arguments))

    # Where it serves

    async def _listen(self, listeners: list[socket.socket], stack: ExitStack) -> None:
        context = self._plan.options.ssl_context
        timeout = None if context is None else self.core.limits.tls_handshake_timeout
        for each in listeners:
            listener = await asyncio.get_running_loop().create_server(
                self._accept, sock=each, ssl=context, ssl_handshake_timeout=timeout
            )
            stack.callback(listener.close)
            self._listeners.append(listener)

    def _accept(self) -> asyncio.Protocol:
        try:
            return Connection(self, sansmcp.ServerConnection, self.core.limits.send_timeout)
        except Exception as error:  # uvloop would accept no other connection after it
            log_unexpected(error)
            return Refusal()

    def _serve_stdio(self, streams: StandardStreams) -> None:
        pipe = partial(sansmcp.ServerPipe, graceful_timeout=self._plan.options.graceful_timeout)
        # Whoever started us may stop reading for as long as it likes, under a debugger, say.
        connection = Connection(self, pipe, math.inf)
        StdioTransport(streams, connection)
        if self._plan.options.ends_with_stdin:
            connection.lost.add_done_callback(lambda _: self.stop())


class Serve(Coroutine[Any, Any, None]):
    """What :func:`serve` returns: a coroutine, and an asynchronous context manager.

    Awaiting it, or running it by :func:`asyncio.run`, serves until the task is cancelled. Entering
    it gives the :class:`RunningServer`, and serves as long as the block lasts. Do one of them,
    once.
    """

    _is_used = True

    def __init__(self, make: Callable[[], RunningServer]) -> None:
        self._make = make
        self._work: Coroutine[Any, Any, None] | None = None
        self._is_used = False
        self._serving: RunningServer

    async def __aenter__(self) -> RunningServer:
        self._is_used = True
        self._serving = self._make()
        return await self._serving.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._serving.__aexit__(*error)

    def __await__(self) -> Generator[Any, None, None]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        self._is_used = True
        if self._work is not None:
            self._work.close()

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn(
                "serve(...) was never awaited: write await serve(...), asyncio.run(serve(...)) or "
                "async with serve(...)",
                RuntimeWarning,
                stacklevel=2,
            )

    def _begun(self) -> Coroutine[Any, Any, None]:
        self._is_used = True
        if self._work is None:
            # It must not refer to us: who forgets to await us is told as soon as we are gone.
            self._work = _serve(self._make)
        return self._work


async def _serve(make: Callable[[], RunningServer]) -> None:
    async with make() as serving:
        await serving.stopped.wait()


@explains(ServeOptions, DriverOptions, sansmcp.ServerOptions)
def serve(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> Serve:
    """Serve an application over HTTP, on stdio, or both.

    ``asyncio.run(serve(...))`` and ``await serve(...)`` serve until cancelled. ``async with
    serve(...) as serving:`` gives the :class:`Serving`, serves as long as the block lasts, and
    accepts connections from its beginning.

    Args:
        app: its handlers are async functions of a :class:`Call`, or plain functions of a
            :class:`ThreadCall`, each of which runs in a thread (:meth:`sansmcp.App.handler`).
        settings: those of :class:`sansmcp_local.ServeOptions`, of
            :class:`sansmcp_local.DriverOptions` and of :class:`sansmcp.ServerOptions`.
            Running calls do not get ``graceful_timeout`` if what waits for the stop is cancelled,
            too.

    Raises LocalProtocolError for settings that make no sense, and TypeError for unknown ones;
    starting raises OSError if the address cannot be bound or the file not be written.
    """
    plan = serve_plan(app, **settings)
    return Serve(lambda: RunningServer(plan))
