"""The server: a task for each connection, one for each call that runs, and one for the time.

A connection's task is the only one that reads from and writes to it. It waits for bytes; whoever
has something for it to send (another connection's task, a handler, the clock) cancels that waiting,
and nothing else, so no byte is ever lost.
"""

from __future__ import annotations

import inspect
import logging
import math
import secrets
import ssl
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import trio

import sansmcp
from sansmcp import Idle, ServerConnection
from sansmcp.effects import (
    CloseConnection,
    SendBytes,
    ServerEffect,
    StoreAppend,
    StoreDrop,
    StoreRead,
    Wake,
)
from sansmcp.events import CallCancelled, CallReceived, ClientAnswered, ServerEvent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sansmcp.messages import Params

Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]

_logger = logging.getLogger("sansmcp")

_FLUSH = 1.0
"""Seconds for the last bytes of all streams when the server stops."""


class Call(sansmcp.CallHandle[Awaitable[Any], Awaitable[None]]):
    """What a handler gets. All methods are to be awaited."""

    def __init__(self, call: sansmcp.Call, serving: Serving) -> None:
        super().__init__(call)
        self._serving = serving

    async def ask(
        self, method: str, params: Params | None = None, *, timeout: float = 300.0
    ) -> Any:
        """Ask the client something, and wait for its answer."""
        id = self._call.ask(method, params, timeout=timeout, now=self._now())
        return await self._serving.answer_to(self._call, id)

    def _now(self) -> float:
        return trio.current_time()

    async def _settle(self) -> None:
        self._serving.settle()
        await trio.lowlevel.checkpoint()
        while self._call.congested:
            await self._serving.moved.wait()


@attrs.define(eq=False)
class _Question:
    """A handler that waits for the client's answer."""

    done: trio.Event = attrs.field(factory=trio.Event)
    answer: ClientAnswered | None = None


class _Driver:
    """Drives one connection: the only task that touches its stream."""

    def __init__(self, serving: Serving, stream: Stream) -> None:
        self._serving = serving
        self._stream = stream
        self._connection = ServerConnection(serving.core, host=self, now=trio.current_time())
        self._waiting = trio.CancelScope()
        self._woken = False

    def wake(self) -> None:
        """There is something to send."""
        self._woken = True
        self._waiting.cancel()

    async def run(self) -> None:
        """Serve the connection until it is closed by either side."""
        send_timeout = self._serving.core.limits.send_timeout
        try:
            while not isinstance(effect := self._connection.next_effect(), CloseConnection):
                if isinstance(effect, SendBytes):
                    with trio.fail_after(send_timeout):
                        await self._stream.send_all(effect.data)
                elif self._serving.has_ended:
                    break
                else:
                    await self._wait(effect)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError):
            pass  # the peer is gone, or as good as gone; the machine is told below
        finally:
            self._connection.connection_lost(now=trio.current_time())
            await trio.aclose_forcefully(self._stream)

    async def _wait(self, idle: Idle) -> None:
        """Wait for bytes, for the connection's deadline, or to be woken."""
        self._serving.settle()
        if not self._woken:
            deadline = self._connection.next_deadline()
            data = None
            with trio.CancelScope(
                deadline=math.inf if deadline is None else deadline
            ) as self._waiting:
                if idle is Idle.PAUSED:
                    await trio.sleep_forever()
                data = await self._stream.receive_some(65536)
            if data:
                self._connection.receive_data(bytes(data), now=trio.current_time())
            elif data is not None:
                self._connection.receive_eof(now=trio.current_time())
            else:
                self._connection.handle_timeout(now=trio.current_time())
        self._woken = False


class Serving:
    """A running server."""

    def __init__(self, core: sansmcp.Server, store: sansmcp.MemoryStore) -> None:
        self.core = core
        self.url = ""
        """Where the MCP endpoint is."""
        self.moved = trio.Event()
        """Is set, and replaced, whenever something has been done; for those who wait for room."""
        self.has_ended = False
        """All streams have been ended: connections that have nothing to send are to be closed."""
        self._store = store
        self._nursery: trio.Nursery
        self._drivers: set[_Driver] = set()
        self._clock = trio.CancelScope()
        self._questions: dict[tuple[sansmcp.Call, int], _Question] = {}
        self.stopped = trio.Event()
        """Is set once the server was told to stop."""

    def stop(self) -> None:
        """Stop: no new requests, a moment for those that run, a proper end for every stream."""
        self.stopped.set()

    async def run(
        self,
        listeners: list[trio.SocketListener] | list[trio.SSLListener[trio.SocketStream]],
        grace: float,
    ) -> None:
        """Serve until stopped; :func:`serve` does it.

        Cancelling the caller does not reach the connections.
        """
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._keep_time)
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept, listener)
                    await self.stopped.wait()
                    accepting.cancel_scope.cancel()
                self.core.drain(now=trio.current_time())
                with trio.move_on_after(grace):
                    while self.core.is_busy:
                        await self.moved.wait()
                self.core.shut_down(now=trio.current_time())
                self.has_ended = True
                self.settle()
                for driver in self._drivers:
                    driver.wake()
                with trio.move_on_after(_FLUSH):
                    while self._drivers:
                        await self.moved.wait()
                self._nursery.cancel_scope.cancel()

    def settle(self) -> None:
        """Perform what the machine wants, and take what it tells, until it has nothing more."""
        idle = False
        while not idle:
            while not isinstance(effect := self.core.next_effect(), Idle):
                self._perform(effect)
            idle = True
            while not isinstance(event := self.core.next_event(), Idle):
                self._happened(event)
                idle = False
        self.moved.set()
        self.moved = trio.Event()
        deadline = self.core.next_deadline()
        self._clock.deadline = math.inf if deadline is None else deadline

    async def answer_to(self, call: sansmcp.Call, id: int) -> Any:
        """Wait for the client's answer to a question, and return or raise what it brings."""
        question = self._questions[call, id] = _Question()
        self.settle()
        try:
            await question.done.wait()
        finally:
            del self._questions[call, id]
        assert question.answer is not None
        return question.answer.result()

    def _perform(self, effect: ServerEffect) -> None:
        now = trio.current_time()
        match effect:
            case Wake(exchange):
                exchange.host.wake()
            case StoreAppend():
                self._store.append(effect.stream, effect.entries, now=now)
                self.core.stored(effect.effect, now=now)
            case StoreRead():
                page = self._store.read(
                    effect.stream, effect.after, limit=effect.limit, max_bytes=effect.max_bytes
                )
                self.core.replayed(effect.effect, page, now=now)
            case StoreDrop():
                self._store.drop(effect.principal, effect.session)

    def _happened(self, event: ServerEvent) -> None:
        match event:
            case CallReceived(call):
                call.host = trio.CancelScope()
                self._handle(call)
            case CallCancelled(call):
                call.host.cancel()
            case ClientAnswered(call, request_id):
                question = self._questions.get((call, request_id))
                if question is not None:
                    question.answer = event
                    question.done.set()
            case _:
                _logger.debug("%r", event)

    def _handle(self, call: sansmcp.Call) -> None:
        """Let the handler work: at once, or in a task of its own if it has to be awaited."""
        try:
            result = self.core.app.handlers[call.request.method](Call(call, self))
            if inspect.isawaitable(result):
                self._nursery.start_soon(self._finish, call, result)
            else:
                call.respond(result, now=trio.current_time())
        except Exception as error:
            self._fail(call, error)

    async def _finish(self, call: sansmcp.Call, result: Awaitable[Any]) -> None:
        with call.host:
            try:
                call.respond(await result, now=trio.current_time())
            except Exception as error:
                self._fail(call, error)
        self.settle()

    def _fail(self, call: sansmcp.Call, error: Exception) -> None:
        if not isinstance(error, sansmcp.JsonRpcError):
            _logger.error("%s failed", call.request.method, exc_info=error)
        call.fail_with(error, now=trio.current_time())

    async def _accept(
        self, listener: trio.SocketListener | trio.SSLListener[trio.SocketStream]
    ) -> None:
        await trio.serve_listeners(self._converse, [listener], handler_nursery=self._nursery)

    async def _converse(self, stream: Stream) -> None:
        driver = _Driver(self, stream)
        self._drivers.add(driver)
        try:
            await driver.run()
        finally:
            self._drivers.discard(driver)
            self.settle()

    async def _keep_time(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._clock.deadline) as self._clock:
                await trio.sleep_forever()
            self.core.handle_timeout(now=trio.current_time())
            self.settle()


async def serve(
    app: sansmcp.App,
    *,
    http: tuple[str, int] = ("127.0.0.1", 8000),
    ssl_context: ssl.SSLContext | None = None,
    store: sansmcp.MemoryStore | None = None,
    resumable: bool = True,
    grace: float = 5.0,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
    **settings: Unpack[sansmcp.ServerSettings],
) -> None:
    """Serve an application over HTTP until stopped or cancelled.

    Args:
        app: the application. Its handlers are functions, called with a :class:`Call`, or async
            functions.
        http: host and port to listen on; port 0 takes a free one.
        ssl_context: serve https with this.
        store: where streams are kept for clients that come back; in memory if None.
        resumable: False: keep nothing. Broken streams cannot be resumed then.
        grace: seconds that running calls get when the server stops.
        task_status: ``nursery.start(serve, ...)`` returns the :class:`Serving` once connections are
            accepted.
        settings: see :class:`sansmcp.Server`.

    Raises OSError if the address cannot be bound.
    """
    store = store or sansmcp.MemoryStore(settings.get("limits") or sansmcp.Limits())
    core = sansmcp.Server(app, new_token=secrets.token_urlsafe, resumable=resumable, **settings)
    serving = Serving(core, store)
    host, port = http
    listeners = await trio.open_tcp_listeners(port, host=host)
    secured = (
        listeners
        if ssl_context is None
        else [
            trio.SSLListener(listener, ssl_context, https_compatible=True) for listener in listeners
        ]
    )
    bound = listeners[0].socket.getsockname()[1]
    scheme = "http" if ssl_context is None else "https"
    serving.url = str(sansmcp.Url(scheme, host, bound, core.path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serving.run, secured, grace)
        task_status.started(serving)
        try:
            await serving.stopped.wait()
        finally:
            serving.stop()
