"""The server: a task for each connection, and one for each async handler.

A connection's task waits for bytes. When another task has something for the connection to send (a
handler, a timer, another connection's task), that task writes as much as there is room for. Only if
something is left, or the connection must be closed or its reading paused, is the wait cancelled.
Only the wait for bytes is ever cancelled, so no byte is lost.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import trio

import sansmcp
import sansmcp_local
from sansmcp import Idle, ServerConnection
from sansmcp.types import Unpack
from sansmcp_local import (
    STOPPING,
    ByteConnection,
    DriverOptions,
    Endpoint,
    ServeOptions,
    ServePlan,
    ServeSettings,
    StandardStreams,
    announce,
    current_loop,
    explains,
    handlers_restored,
    log_unexpected,
    on_signals,
    principal_of,
    pull,
    serve_plan,
)

from ._nursery import plain_nursery
from ._stdio import StdioStream
from ._streams import do_handshake, info_of, send_now, send_some, set_options_below

_logger = logging.getLogger("sansmcp")


class _Driver:
    """Drives one connection, or the pipes of stdio."""

    def __init__(
        self,
        serving: RunningServer,
        stream: trio.abc.Stream,
        kind: Callable[..., ByteConnection],
        send_timeout: float,
    ) -> None:
        self._serving = serving
        self._stream = stream
        self._send_timeout = send_timeout
        self._connection = kind(serving.core, driver=self, now=trio.current_time())
        if isinstance(self._connection, ServerConnection) and isinstance(stream, trio.SocketStream):
            self._connection.principal = principal_of(stream.socket)
        self._idle: Idle | None = Idle.NEED_DATA
        """The idle state to enter when all bytes are sent; None to close the connection."""
        self._unsent = b""
        self._waiting = trio.CancelScope()
        self._is_waiting = False

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        return info_of(self._stream)

    def wake(self) -> None:
        """Send as much as there is room for; end the wait of the task if that is not all.

        The server calls this.
        """
        if self._unsent or self._idle is None:
            return  # the machine bounds its unsent bytes; this buffer would not
        waited_for = self._idle
        try:
            self._unsent, self._idle = pull(self._connection)
            if self._unsent:
                self._unsent = send_now(self._stream, self._unsent)
            # Wake up at the deadline, or at an earlier one that was replaced since.
            self._waiting.deadline = min(self._waiting.deadline, self._deadline())
        except Exception as error:
            log_unexpected(error)
            self._unsent, self._idle = b"", None
        has_more = self._unsent or self._idle is not waited_for or self._serving.has_ended
        if self._is_waiting and has_more:
            self._waiting.cancel()

    async def run(self) -> None:
        """Serve the connection until it is closed by either side."""
        self._serving.drivers.add(self)
        try:
            while True:
                if self._went_on():
                    await self._wait()
                elif self._unsent:
                    await self._send()
                elif self._idle is None or self._serving.has_ended:
                    break
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            _logger.debug("connection lost: %s", error)
        except Exception as error:
            log_unexpected(error)
        finally:
            self._leave()
            await trio.aclose_forcefully(self._stream)

    def _leave(self) -> None:
        try:
            self._connection.connection_lost(now=trio.current_time())
        except Exception as error:
            log_unexpected(error)
        self._serving.drivers.discard(self)
        self._serving.pump()

    def _went_on(self) -> bool:
        """Do everything that needs no waiting. Return True if the task must wait next."""
        self._serving.pump(self)
        return not self._unsent and self._idle is not None and not self._serving.has_ended

    async def _send(self) -> None:
        """Send at least a part of the rest; the send timeout starts again with each part."""
        with trio.fail_after(self._send_timeout):
            self._unsent = await send_some(self._stream, self._unsent)

    async def _wait(self) -> None:
        """Receive until the connection's deadline, or until there is more to do.

        Entering a cancel scope costs as much as parsing a head, so one scope serves many requests.
        """
        with trio.CancelScope(deadline=self._deadline()) as self._waiting:
            while True:
                self._is_waiting = True
                if self._idle is Idle.PAUSED:
                    await trio.sleep_forever()
                data = bytes(await self._stream.receive_some(65536))
                self._is_waiting = False
                if data:
                    self._connection.receive_data(data, now=trio.current_time())
                else:
                    self._connection.receive_eof(now=trio.current_time())
                if not self._went_on():
                    return
        self._is_waiting = False
        self._connection.handle_timeout(now=trio.current_time())

    def _deadline(self) -> float:
        deadline = self._connection.next_deadline()
        return math.inf if deadline is None else deadline


class RunningServer(sansmcp_local.RunningServer):
    """A running server; ``await nursery.start(serve, ...)`` returns it."""

    def __init__(
        self,
        plan: ServePlan,
    ) -> None:
        parts = plan.parts
        threads, authenticate = parts.options.threads, parts.options.authenticate
        super().__init__(
            parts.core, parts.store, current_loop(), threads=threads, authenticate=authenticate
        )
        self._plan = plan
        self.url = ""
        """The URL of the MCP endpoint; empty if the server does not serve HTTP."""
        self.stopped = trio.Event()
        """Set when :meth:`stop` is called."""
        self.has_ended = False
        """True once all event streams have ended; idle connections are then closed."""
        self.drivers: set[_Driver] = set()
        self._nursery: trio.Nursery
        self._shield = trio.CancelScope(shield=True)
        self._left = trio.Event()

    def stop(self) -> None:
        """Begin a graceful stop, and return at once. A second call has no effect.

        The server accepts nothing new, gives running calls ``graceful_timeout`` seconds, ends all
        event streams and closes its connections; then :func:`serve` returns.
        """
        self.stopped.set()

    async def run(self, endpoint: Endpoint) -> None:
        """Serve until stopped, shielded from cancellation. :func:`serve` calls this."""
        try:
            with self._shield:
                async with trio.open_nursery() as self._nursery:
                    if endpoint.streams is not None:
                        self._nursery.start_soon(self._serve_stdio, endpoint.streams)
                    async with trio.open_nursery() as accepting:
                        accept = partial(trio.serve_listeners, handler_nursery=self._nursery)
                        if listeners := self._listeners(endpoint):
                            accepting.start_soon(accept, self._serve_stream, listeners)
                        await self.stopped.wait()
                        if not self._plan.options.shares_listeners:
                            await self._leave_to_others()
                        accepting.cancel_scope.cancel()
                    if self._plan.options.shares_listeners:
                        await self._leave_to_others()
                    await self._end()
                    self._nursery.cancel_scope.cancel()
        finally:
            self.scheduler.stop()
        self._left.set()

    async def wait_closed(self) -> None:
        """Wait until the server has stopped. A KeyboardInterrupt cancels everything at once."""
        try:
            await self._left.wait()
        except KeyboardInterrupt:
            self._shield.cancel()
            raise

    def _listeners(self, endpoint: Endpoint) -> list[trio.abc.Listener[Any]]:
        listeners: list[trio.abc.Listener[Any]] = []
        for each, context in endpoint.listeners:
            plain = trio.SocketListener(trio.socket.from_stdlib_socket(each))
            if context is None:
                listeners.append(plain)
            else:
                listeners.append(trio.SSLListener(plain, context, https_compatible=True))
        return listeners

    async def _leave_to_others(self) -> None:
        """Be a lame duck for a while."""
        options = self._plan.options
        if options.lame_duck_timeout:
            await self.be_lame_duck(
                options.lame_duck_timeout, lambda: options.shares_listeners and not self.drivers
            )

    async def _end(self) -> None:
        await self.shut_down(self._plan.options.graceful_timeout)
        self.has_ended = True
        for driver in self.drivers:
            driver.wake()
        await self.flush(lambda: not self.drivers)

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        call.driver = trio.CancelScope()
        self._nursery.start_soon(self._finish, call, result)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        self._nursery.start_soon(work, *arguments)

    async def _finish(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        with call.driver:
            await self.finish(call, result)

    async def _serve_stream(self, stream: trio.abc.Stream) -> None:
        limits = self.core.limits
        try:
            set_options_below(stream)
            await do_handshake(stream, limits.tls_handshake_timeout)
            driver = _Driver(self, stream, ServerConnection, limits.send_timeout)
        except (OSError, trio.BrokenResourceError) as error:
            _logger.debug("connection lost: %s", error)
            await trio.aclose_forcefully(stream)
        except Exception as error:
            log_unexpected(error)
            await trio.aclose_forcefully(stream)
        else:
            await driver.run()

    async def _serve_stdio(self, streams: StandardStreams) -> None:
        # No send timeout: a client that is stopped in a debugger may not read for hours.
        await _Driver(self, StdioStream(streams), self._plan.stdio_connection, math.inf).run()
        if self._plan.options.ends_with_stdin:
            self.stop()


@explains(ServeOptions, DriverOptions, sansmcp.ServerOptions)
async def serve(
    app: sansmcp.App,
    *,
    task_status: trio.TaskStatus[RunningServer] = trio.TASK_STATUS_IGNORED,
    **settings: Unpack[ServeSettings],
) -> None:
    """Serve an application over HTTP, on stdio, or both, until stopped or cancelled.

    ``trio.run`` and nurseries do not pass on keyword arguments, so write ``trio.run(partial(serve,
    app, http=...))``. That also stops at SIGTERM and SIGINT (Ctrl-C), gracefully, and returns; a
    second one ends it.

    Args:
        app: the application. Async handlers get a :class:`Call`. Plain handlers get a
            :class:`ThreadCall` and run in threads (:meth:`sansmcp.App.handler`).
        task_status: set by ``await nursery.start(serve, ...)``, which returns the
            :class:`RunningServer` once connections are accepted.
        settings: the fields of :class:`sansmcp_local.ServeOptions`,
            :class:`sansmcp_local.DriverOptions` and :class:`sansmcp.ServerOptions`, explained
            below.

    Raises:
        OSError: the address cannot be bound, or the state file cannot be written.
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    plan = serve_plan(app, **settings)
    serving = RunningServer(plan)
    with plan.open() as endpoint:
        serving.url = endpoint.url
        async with plain_nursery() as nursery:
            nursery.start_soon(serving.run, endpoint)
            task_status.started(serving)
            try:
                with _called_at_signals(serving.stop) if _is_program() else nullcontext():
                    announce(endpoint.urls)
                    await serving.stopped.wait()
            finally:  # a second signal acts as it would without a handler: no more grace
                serving.stop()
                await serving.wait_closed()


def _is_program() -> bool:
    """Return True for ``trio.run(serve)``, where no other task has to end at a signal."""
    task = trio.lowlevel.current_task()
    nursery = task.parent_nursery
    is_first = nursery is not None and nursery.parent_task is trio.lowlevel.current_root_task()
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and is_first and getattr(task.coro, "cr_code", None) is serve.__code__


@contextmanager
def _called_at_signals(function: Callable[[], object]) -> Generator[None, None, None]:
    """Call a function in the loop at each signal that the application does not handle itself."""
    numbers = [each for each in STOPPING if _is_default(signal.getsignal(each))]
    token = trio.lowlevel.current_trio_token()
    with handlers_restored(numbers):
        on_signals(numbers, partial(token.run_sync_soon, function))
        yield


def _is_default(handler: Any) -> bool:
    is_of_trio = getattr(handler, "__module__", None) == "trio._core._ki"
    return is_of_trio or handler in (signal.SIG_DFL, signal.default_int_handler)
