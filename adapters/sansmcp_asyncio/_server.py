"""The server: a protocol for each connection, and a task for each async handler.

Received bytes, the messages of handlers and passed deadlines are inputs of the machine, which then
wakes the connections that have something to send.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import sansmcp
import sansmcp_local
from sansmcp.types import Self, Unpack
from sansmcp_local import (
    BACKLOG,
    STOPPING,
    AsyncioTask,
    DriverOptions,
    ServeOptions,
    ServePlan,
    ServeSettings,
    StandardStreams,
    announce,
    called_at,
    current_loop,
    explains,
    log_unexpected,
    serve_plan,
    wait_all_shielded,
)

from ._connection import Connection, Refusal
from ._stdio import StdioTransport
from ._tasks import Tasks


class RunningServer(sansmcp_local.RunningServer):
    """A running server; ``async with serve(...)`` returns it.

    Call its methods in its event loop.
    """

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
        """The URL of the MCP endpoint; empty if the server does not serve HTTP."""
        self.stopped = asyncio.Event()
        """Set when :meth:`stop` is called."""
        self.has_ended = False
        """True once all event streams have ended; idle connections are then closed."""
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
            announce(endpoint.urls)
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
        """Begin a graceful stop, and return at once. A second call has no effect.

        The server accepts nothing new, gives running calls ``graceful_timeout`` seconds, ends all
        event streams and closes its connections.
        """
        if self._ending is None:
            self.stopped.set()
            self._ending = AsyncioTask(asyncio.get_running_loop().create_task(self._end()))

    async def _end(self) -> None:
        try:
            await self._leave_to_others()
            await self.shut_down(self._plan.options.graceful_timeout)
        finally:
            self.has_ended = True
            for connection in tuple(self.connections):
                connection.wake()
            try:
                await self.flush(lambda: not self.connections)
            finally:
                await self._leave()

    async def _leave_to_others(self) -> None:
        """Be a lame duck for a while, and accept no more connections before or after that."""
        options = self._plan.options
        try:
            if options.shares_listeners:
                await self._stop_accepting()
            if options.lame_duck_timeout:
                await self.be_lame_duck(
                    options.lame_duck_timeout,
                    lambda: options.shares_listeners and not self.connections,
                )
            await self._stop_accepting()
        finally:
            self._stop_listening()

    async def _stop_accepting(self) -> None:
        """Accept nothing more, and lose no connection that was accepted.

        asyncio accepts a connection in one turn of the loop and makes its transport in the next. If
        its server is closed between them, the connection is dropped without a word.
        """
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            for each in listener.sockets:
                with suppress(NotImplementedError):  # Windows: there it is done in one turn
                    loop.remove_reader(each)
        await asyncio.sleep(0)
        self._stop_listening()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()

    async def _leave(self) -> None:
        """End all tasks, close all sockets, and remove the state file."""
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

    async def _listen(
        self, listeners: list[tuple[socket.socket, ssl.SSLContext | None]], stack: ExitStack
    ) -> None:
        for each, context in listeners:
            timeout = None if context is None else self.core.limits.tls_handshake_timeout
            listener = await asyncio.get_running_loop().create_server(
                self._accept, sock=each, ssl=context, ssl_handshake_timeout=timeout
            )
            each.listen(BACKLOG)  # asyncio has set 100, also for other processes with this socket
            stack.callback(listener.close)
            self._listeners.append(listener)

    def _accept(self) -> asyncio.Protocol:
        try:
            return Connection(self, sansmcp.ServerConnection, self.core.limits.send_timeout)
        except Exception as error:  # uvloop would accept no other connection after it
            log_unexpected(error)
            return Refusal()

    def _serve_stdio(self, streams: StandardStreams) -> Connection:
        # No send timeout: a client that is stopped in a debugger may not read for hours.
        connection = Connection(self, self._plan.stdio_connection, math.inf)
        StdioTransport(streams, connection)
        if self._plan.options.ends_with_stdin:
            connection.lost.add_done_callback(lambda _: self.stop())
        return connection


class Serve(Coroutine[Any, Any, None]):
    """A coroutine and an asynchronous context manager; :func:`serve` returns it.

    Await it, or pass it to :func:`asyncio.run`, to serve until stopped or cancelled. Enter it with
    ``async with`` to get the :class:`RunningServer` and serve until the block ends. Do one of the
    two, once.
    """

    _is_used = True

    def __init__(self, make: Callable[[], RunningServer], name: str) -> None:
        self._make = make
        self._name = name
        self._work: Coroutine[Any, Any, None] | None = None
        self._is_used = False
        self._serving: RunningServer

    def __repr__(self) -> str:
        return f"<Serve {self._name!r}>"

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
            # No reference to self: __del__ must run, and warn, as soon as self is dropped.
            self._work = _serve(self._make)
        return self._work


async def _serve(make: Callable[[], RunningServer]) -> None:
    serving = make()
    with ExitStack() as handlers:
        if _is_program():
            for number in STOPPING:
                handlers.enter_context(_calls_at(number, serving.stopped.set))
        async with serving:
            await serving.stopped.wait()
            handlers.close()  # a second signal acts as it would without them: no more grace


def _is_program() -> bool:
    """Return True for ``asyncio.run(serve(...))``, where no other task has to end at a signal."""
    task = asyncio.current_task()
    assert task is not None
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(task.get_coro(), Serve) and asyncio.all_tasks() == {task}


@contextmanager
def _calls_at(
    number: signal.Signals, function: Callable[[], object]
) -> Generator[None, None, None]:
    """Call a function in the loop at a signal, unless the application handles that itself."""
    before = signal.getsignal(number)
    runner = getattr(asyncio, "Runner", ())  # Python 3.11: asyncio.run() handles SIGINT by one
    is_default = before in (signal.SIG_DFL, signal.default_int_handler) or isinstance(
        getattr(getattr(before, "func", None), "__self__", None), runner
    )
    with called_at((number,), function) if is_default else nullcontext():
        yield


@explains(ServeOptions, DriverOptions, sansmcp.ServerOptions)
def serve(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> Serve:
    """Serve an application over HTTP, on stdio, or both.

    ``asyncio.run(serve(...))`` and ``await serve(...)`` serve until stopped or cancelled. The
    former also stops at SIGTERM and SIGINT (Ctrl-C), gracefully, and returns; a second one ends
    it. ``async with serve(...) as server:`` returns the :class:`RunningServer`, accepts
    connections from the start of the block, and stops at its end. If the task is cancelled while
    the server stops, running calls are cancelled at once, without the rest of
    ``graceful_timeout``.

    Args:
        app: the application. Async handlers get a :class:`Call`. Plain handlers get a
            :class:`ThreadCall` and run in threads (:meth:`sansmcp.App.handler`).
        settings: the fields of :class:`sansmcp_local.ServeOptions`,
            :class:`sansmcp_local.DriverOptions` and :class:`sansmcp.ServerOptions`, explained
            below.

    Returns:
        The server, not started yet. Awaiting or entering it raises OSError if the address cannot be
        bound, or the state file cannot be written.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    plan = serve_plan(app, **settings)
    return Serve(lambda: RunningServer(plan), app.name)
