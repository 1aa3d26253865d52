"""The client: one background task for each HTTP exchange, and one that keeps the time.

Callers never touch a socket. A call changes the machine, performs what the machine then wants
(which is: start and cancel tasks), and waits for its own event. Whatever happens to a connection
ends in its task and becomes an input of the machine.
"""

from __future__ import annotations

import logging
import math
import random
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

import sansmcp
from sansmcp import Idle
from sansmcp.effects import AbortExchange, OpenExchange
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    ClientEvent,
    Closed,
    Connected,
    ProgressReceived,
    ServerAsked,
    ServerWithdrew,
)

from ._pool import Pool

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sansmcp.handles import OnProgress
    from sansmcp.messages import Params, Request, RequestId

_logger = logging.getLogger("sansmcp")

Answerer: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Answers a request of the server: takes its parameters, returns the result, or raises
JsonRpcError.
"""


class _Waiter:
    """Somebody who waits for the end of a call."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.on_progress = on_progress
        self.done = trio.Event()
        self.result: Any = None
        self.error: Exception | None = None

    def progress(self, report: ProgressReceived) -> None:
        if self.on_progress is not None:
            self.on_progress(report)

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        self.result, self.error = result, error
        self.done.set()


class Client(sansmcp.ClientHandle[Awaitable[Any], Awaitable[None]], trio.abc.AsyncResource):
    """A connected client; made by :func:`connect`. All methods may be called from any task."""

    connected: Connected
    """What the handshake brought: version, server info, capabilities, instructions."""

    def __init__(
        self,
        core: sansmcp.Client,
        nursery: trio.Nursery,
        pool: Pool,
        answers: Mapping[str, Answerer],
    ) -> None:
        self._core = core
        self._nursery = nursery
        self._pool = pool
        self._answers = answers
        self._waiters: dict[int, _Waiter] = {}
        self._opening = _Waiter(None)
        self._closed = trio.Event()
        self._carrying: dict[int, trio.CancelScope] = {}
        self._answering: dict[RequestId, trio.CancelScope] = {}
        self._clock = trio.CancelScope()
        self._events: deque[ClientEvent] = deque()
        self._keeps_events = False
        self._moved = trio.Event()
        self._paused = False

    # For applications

    async def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        timeout: float | None = None,
        total_timeout: float | None = None,
        idempotent: bool | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Make any request. Cancelling the caller cancels the request."""
        handle = self._core.call(
            method,
            params,
            timeout=timeout,
            total_timeout=total_timeout,
            idempotent=idempotent,
            now=trio.current_time(),
        )
        waiter = self._waiters[handle] = _Waiter(on_progress)
        self._settle()
        try:
            await waiter.done.wait()
        finally:
            del self._waiters[handle]
            self._core.cancel(handle, now=trio.current_time())
            self._settle()
        if waiter.error is not None:
            raise waiter.error
        return waiter.result

    async def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification."""
        self._core.notify(method, params, now=trio.current_time())
        self._settle()
        await trio.lowlevel.checkpoint()

    async def events(self) -> AsyncGenerator[ClientEvent, None]:
        """What happens and belongs to no call: notifications, reconnections, a lost session.

        Events are kept from the moment this is called, a limited number; when nobody takes them,
        nothing more is read from the server. So either take them, or do not ask for them. Ends when
        the client is closed.
        """
        self._keeps_events = True
        while True:
            while self._events:
                event = self._events.popleft()
                self._settle()
                yield event
            if self._closed.is_set():
                return
            await self._moved.wait()

    async def aclose(self) -> None:
        """End the session. Calls under way fail with RequestCancelled.

        May be called more than once.
        """
        self._core.close(now=trio.current_time())
        self._settle()
        await self._closed.wait()

    async def open(self) -> None:
        """Do the handshake; :func:`connect` does it. Raises CallError where it fails."""
        self._nursery.start_soon(self._keep_time)
        self._core.start(now=trio.current_time())
        self._settle()
        await self._opening.done.wait()
        if self._opening.error is not None:
            raise self._opening.error

    # The machine

    def _settle(self) -> None:
        """Perform what the machine wants, and take what it tells, until it has nothing more."""
        room = self._core.limits.max_queued_events
        idle: Idle | None = None
        while idle is None:
            while not isinstance(effect := self._core.next_effect(), Idle):
                self._perform(effect)
            idle = effect
            while len(self._events) < room and not isinstance(
                event := self._core.next_event(), Idle
            ):
                self._happened(event)
                idle = None
        self._paused = idle is Idle.PAUSED
        self._moved.set()
        self._moved = trio.Event()
        deadline = self._core.next_deadline()
        self._clock.deadline = math.inf if deadline is None else deadline

    def _perform(self, effect: OpenExchange | AbortExchange) -> None:
        if isinstance(effect, OpenExchange):
            self._carrying[effect.exchange] = trio.CancelScope()
            self._nursery.start_soon(self._carry, effect)
        elif effect.exchange in self._carrying:
            self._carrying[effect.exchange].cancel()

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case CallCompleted(handle, result):
                if handle in self._waiters:
                    self._waiters[handle].finish(result)
            case CallFailed(handle, error):
                if handle in self._waiters:
                    self._waiters[handle].finish(error=error)
            case ProgressReceived(call=handle):
                if handle in self._waiters:
                    self._waiters[handle].progress(event)
            case ServerAsked(_, request):
                self._nursery.start_soon(self._answer, request)
            case ServerWithdrew(request_id):
                if request_id in self._answering:
                    self._answering[request_id].cancel()
            case Connected() if not self._opening.done.is_set():
                self.connected = event
                self._opening.finish()
            case _:
                if isinstance(event, Closed):
                    self._opening.finish(error=event.error)
                    self._closed.set()
                if self._keeps_events:
                    self._events.append(event)

    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._clock.deadline) as self._clock:
                await trio.sleep_forever()
            self._core.handle_timeout(now=trio.current_time())
            self._settle()

    async def _carry(self, effect: OpenExchange) -> None:
        """Carry one HTTP exchange, from its request to the end of its response."""
        with self._carrying[effect.exchange]:
            try:
                async with self._pool.connection(effect.url, self._core) as (stream, pump):
                    await stream.send_all(pump.begin(effect))
                    while not pump.is_done:
                        while self._paused:
                            await self._moved.wait()
                        data = await stream.receive_some(65536)
                        if data:
                            pump.receive_data(bytes(data), now=trio.current_time())
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
        if answerer is None:
            self._core.decline(request.id, now=trio.current_time())
            self._settle()
            return
        with trio.CancelScope() as scope:
            self._answering[request.id] = scope
            try:
                result = await answerer(request.params or {})
                self._core.respond(request.id, result, now=trio.current_time())
            except Exception as error:
                if not isinstance(error, sansmcp.JsonRpcError):
                    _logger.exception("answering %s failed", request.method)
                self._core.fail_with(request.id, error, now=trio.current_time())
        del self._answering[request.id]
        self._settle()


def _reason(error: BaseException) -> str:
    """What really went wrong: trio wraps what the operating system or TLS said."""
    while True:
        inner = getattr(error, "exceptions", (error.__cause__,))[0]
        if inner is None:
            return str(error) or "connection lost"
        error = inner


@asynccontextmanager
async def connect(
    url: str,
    *,
    answers: Mapping[str, Answerer] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to an MCP server over HTTP, and close when the block ends.

    Args:
        url: the MCP endpoint, http or https.
        answers: for each request that the server may make (``"elicitation/create"``,
            ``"sampling/createMessage"``, ``"roots/list"``), an async function from its parameters
            to the result. Declare the same in ``capabilities``.
        ssl_context: how to verify an https server; the standard library's default if None.
        settings: see :class:`sansmcp.Client`.

    Raises CallError if the handshake fails, LocalProtocolError if the URL or a setting is wrong.
    """
    core = sansmcp.Client(url, jitter=random.random, **settings)
    pool = Pool(ssl_context)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            client = Client(core, nursery, pool, answers or {})
            # An exception must not go through the nursery: it would come out as a group.
            try:
                await client.open()
                yield client
            except Exception as error:
                failure = error
            await client.aclose()
            nursery.cancel_scope.cancel()
    finally:
        pool.close()
    if failure is not None:
        raise failure
