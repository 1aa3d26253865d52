"""The client: one background task for each HTTP exchange, and one that keeps the time.

Callers never touch a socket. A call changes the machine, performs what the machine then wants
(which is: start and cancel tasks), and waits for its own promise. Whatever happens to a connection
ends in its task and becomes an input of the machine.
"""

from __future__ import annotations

import logging
import os
import random
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

import sansmcp
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange
from sansmcp.events import ClientEvent, ServerAsked, ServerWithdrew

from ._machine import Clock, Promise
from ._pool import Pool
from ._process import ServerProcess

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sansmcp.handles import OnProgress
    from sansmcp.messages import Params, Request, RequestId
    from sansmcp.process import ProcessPart

_logger = logging.getLogger("sansmcp")

Answerer: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Answers a request of the server: from its parameters to the result, or raises JsonRpcError."""


class Client(sansmcp.ClientHandle[Awaitable[Any], Awaitable[None]], trio.abc.AsyncResource):
    """A connected client; made by :func:`connect`. All methods may be called from any task."""

    def __init__(
        self,
        core: sansmcp.Client,
        nursery: trio.Nursery,
        pool: Pool,
        answers: Mapping[str, Answerer],
        environment: Mapping[str, str] | None,
        directory: str | os.PathLike[str] | None,
    ) -> None:
        self._is_open, self._is_closed = Promise(), Promise()
        super().__init__(self._is_open, self._is_closed)
        self._core = core
        self._clock = Clock(core)
        self._nursery = nursery
        self._pool = pool
        self._answers = answers
        self._process = ServerProcess(self, nursery, environment, directory)
        self._carrying: dict[int, trio.CancelScope] = {}
        self._answering: dict[RequestId, trio.CancelScope] = {}
        self._events: deque[ClientEvent] = deque()
        self._keeps_events = False
        self._is_paused = False

    # For applications

    async def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[sansmcp.CallOptions],
    ) -> Any:
        """Make any request. Cancelling the caller cancels the request."""
        handle = self._core.call(method, params, now=trio.current_time(), **options)
        promise = Promise()
        self._waiting[handle] = promise, on_progress
        self._settle()
        try:
            return await promise.wait()
        finally:
            del self._waiting[handle]
            if self._core.cancel(handle, now=trio.current_time()):
                self._settle()

    async def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification."""
        self._core.notify(method, params, now=trio.current_time())
        self._settle()
        await trio.lowlevel.checkpoint()

    def events(self) -> AsyncGenerator[ClientEvent, None]:
        """What happens and belongs to no call: notifications, reconnections, a lost session.

        Events are kept from the moment this is called, a limited number; when nobody takes them,
        nothing more is read from the server. So take them, until the client is closed and they end,
        or close the generator.
        """
        self._keeps_events = True
        return self._next_events()

    async def _next_events(self) -> AsyncGenerator[ClientEvent, None]:
        try:
            while self._events or not self._is_closed.is_delivered:
                if self._events:
                    event = self._events.popleft()
                    self._settle()
                    yield event
                else:
                    await self._clock.moved.wait()
        finally:
            self._keeps_events = False
            self._events.clear()
            self._settle()

    async def aclose(self) -> None:
        """End the session. Calls under way fail with RequestCancelled. May be called twice."""
        self._core.close(now=trio.current_time())
        self._settle()
        await self._is_closed.wait()

    async def open(self) -> None:
        """Do the handshake; :func:`connect` does it. Raises CallError where it fails."""
        self._nursery.start_soon(self._keep_time)
        self._core.start(now=trio.current_time())
        self._settle()
        await self._is_open.wait()

    # The machine

    def _settle(self) -> None:
        """Perform what the machine wants, and take what it tells, until it has nothing more."""
        # What ends a call must not wait behind events that nobody takes: only the reading does.
        self._core.drive(self._perform, self._happened)
        self._is_paused = len(self._events) >= self._core.limits.max_queued_events
        self._clock.tick()

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

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case ServerAsked(_, request):
                self._nursery.start_soon(self._answer, request)
            case ServerWithdrew(request_id):
                if request_id in self._answering:
                    self._answering[request_id].cancel()
            case _:
                if not self._take(event) and self._keeps_events:
                    self._events.append(event)

    async def _keep_time(self) -> None:
        while True:
            await self._clock.wait()
            self._settle()

    def feed(self, part: ProcessPart) -> None:
        """The server process has said something."""
        self._core.receive_from_process(part, now=trio.current_time())
        self._settle()

    async def may_read(self) -> None:
        """Wait until the application has taken events, if it has to."""
        while self._is_paused:
            await self._clock.moved.wait()

    async def _carry(self, effect: OpenExchange) -> None:
        """Carry one HTTP exchange, from its request to the end of its response."""
        with self._carrying[effect.exchange]:
            try:
                async with self._pool.connection(effect.url, self._core) as (stream, pump):
                    await stream.send_all(pump.begin(effect))
                    while not pump.is_done:
                        await self.may_read()
                        data = bytes(await stream.receive_some(65536))
                        if data:
                            pump.receive_data(data, now=trio.current_time())
                        else:
                            pump.receive_eof(now=trio.current_time())
                        self._settle()
            except (OSError, trio.BrokenResourceError) as error:
                gone = sansmcp.PeerGone(_reason(error))
                self._core.receive(effect.exchange, gone, now=trio.current_time())
        del self._carrying[effect.exchange]
        self._settle()

    async def _answer(self, request: Request) -> None:
        """Answer a request of the server with what the application's function for it returns."""
        answerer = self._answers.get(request.method)
        with trio.CancelScope() as self._answering[request.id]:
            if answerer is None:
                self._core.decline(request.id, now=trio.current_time())
            else:
                try:
                    result = await answerer(request.params or {})
                    self._core.respond(request.id, result, now=trio.current_time())
                except Exception as error:
                    if not isinstance(error, sansmcp.JsonRpcError):
                        _logger.error("answering %s failed", request.method, exc_info=error)
                    self._core.fail_with(request.id, error, now=trio.current_time())
        del self._answering[request.id]
        self._settle()


_VERDICTS = sansmcp.Verdicts()


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
    settings.setdefault("verdicts", _VERDICTS)
    core = sansmcp.Client(target, jitter=random.random, **settings)
    pool = Pool(ssl_context)
    failure: Exception | KeyboardInterrupt | None = None
    try:
        async with trio.open_nursery() as nursery:
            client = Client(core, nursery, pool, answers or {}, env, cwd)
            # An exception must not go through the nursery: it would come out as a group.
            try:
                await client.open()
                yield client
            except (Exception, KeyboardInterrupt) as error:
                failure = error
            await client.aclose()
            nursery.cancel_scope.cancel()
    finally:
        pool.close()
    if failure is not None:
        raise failure
