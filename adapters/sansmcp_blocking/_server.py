"""The server: one thread for all connections, and one for each call that runs.

:class:`LoopServer` has all but the thread; :mod:`._steps` runs it without one.

Each connection is a task of the selector loop, and only this task reads from it. A handler's
messages are sent by the handler's thread if there is room, and by the task if not. One thread for
each connection would have to wait for its socket and for its handler at the same time, which would
take a selector for each as well.
"""

from __future__ import annotations

import abc
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress

import sansmcp
from sansmcp import Idle, ServerConnection
from sansmcp.types import Self, Unpack
from sansmcp_local import (
    ByteConnection,
    DriverOptions,
    Endpoint,
    ServeOptions,
    ServePlan,
    ServeSettings,
    StandardStreams,
    ThreadedServerDriver,
    announce,
    explains,
    log_unexpected,
    pull,
    serve_plan,
    wait_in_parts,
)

from ._loop import READ, Loop, Ready, Steps, Task, Wait
from ._stdio import PipedStdioStream, StdioStream, stdio_stream
from ._streams import SocketStream

_logger = logging.getLogger("sansmcp")


class _Connection:
    """One connection, or the pipes of stdio. All methods are called under the server's lock."""

    def __init__(
        self,
        serving: LoopServer,
        kind: Callable[..., ByteConnection],
        stream: SocketStream | StdioStream | PipedStdioStream,
        patience: float,
    ) -> None:
        self._serving = serving
        self._stream = stream
        self._patience = patience
        self._connection = kind(serving.core, driver=self, now=time.monotonic())
        if isinstance(self._connection, ServerConnection) and isinstance(stream, SocketStream):
            self._connection.principal = stream.principal
        self._idle: Idle | None = Idle.NEED_DATA
        """The idle state to enter when all bytes are sent; None to close the connection."""
        self._unsent = b""
        self._waits_until: float | None = None
        """The connection's deadline while the task waits for bytes; None while it does not wait."""
        self._task = serving.take(self, self._run())

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        assert isinstance(self._stream, SocketStream)
        return self._stream.info()

    def wake(self) -> None:
        """Send what the connection has to send, or make its task do so.

        The server calls this, in any thread. If the task waits for bytes, the caller sends as much
        as there is room for; otherwise, or if something is left, the task sends.
        """
        if self._waits_until is not None:
            waited_for = self._idle
            try:
                self._send_now()
                waits_on = self._idle is waited_for and self._deadline() >= self._waits_until
            except Exception as error:
                log_unexpected(error)
                waits_on, self._unsent, self._idle = False, b"", None
            if waits_on and not self._unsent and not self._serving.has_ended:
                return
        self._serving.wake(self._task)

    def _run(self) -> Steps[None]:
        """Serve the connection until it is closed by either side."""
        try:
            yield from self._stream.do_handshake(self._serving.core.limits.tls_handshake_timeout)
            while True:
                self._send_now()
                if self._unsent:
                    data, self._unsent = self._unsent, b""
                    yield from self._stream.send(data, self._patience)
                elif self._idle is None or self._serving.has_ended:
                    break
                else:
                    yield from self._wait(self._idle)
        except OSError as error:
            _logger.debug("connection lost: %s", error)
        except Exception as error:
            log_unexpected(error)
        finally:
            self._stream.close()
            try:
                self._connection.connection_lost(now=time.monotonic())
            except Exception as error:
                log_unexpected(error)
            self._serving.left(self)

    def _send_now(self) -> None:
        """Send as much as there is room for, without waiting."""
        if self._unsent or self._idle is None:
            return  # the machine bounds its unsent bytes; this buffer would not
        self._unsent, self._idle = pull(self._connection)
        if self._unsent:
            with suppress(OSError):  # the task will get the same error
                self._unsent = self._unsent[self._stream.send_now(self._unsent) :]

    def _wait(self, idle: Idle) -> Steps[None]:
        """Wait for bytes, for the connection's deadline, or to be woken."""
        self._waits_until = until = self._deadline()
        is_paused = idle is Idle.PAUSED
        try:
            has_come = yield Wait(deadline=until) if is_paused else self._stream.reading(until)
        finally:
            self._waits_until = None
        data = self._stream.receive() if has_come else None
        if data:
            self._connection.receive_data(data, now=time.monotonic())
        elif data is not None:
            self._connection.receive_eof(now=time.monotonic())
        else:
            self._connection.handle_timeout(now=time.monotonic())

    def _deadline(self) -> float:
        deadline = self._connection.next_deadline()
        return math.inf if deadline is None else deadline


_FINAL_FLUSH_TIMEOUT = 1.0
"""Seconds for unsent bytes and cancelled handlers, when the server stops."""


class LoopServer(ThreadedServerDriver):
    """A server on the loop: what it does, and how it stops. A context manager that closes it.

    Call ``begin()``, and then ``go_on(wait_for_work(...))`` again and again, from one thread at a
    time.
    """

    def __init__(self, plan: ServePlan) -> None:
        super().__init__(plan.parts)
        self.url = ""
        """The URL of the MCP endpoint; empty if the server does not serve HTTP."""
        self.has_ended = False
        """True once all event streams have ended; idle connections are then closed."""
        self._plan = plan
        self._is_stopped = False
        self._is_hurried = False
        self._sleeps_until: float | None = None
        """Time at which the sleeping thread wakes up at the latest; None while it runs."""
        self._until = -math.inf
        """Time at which there is something to do in any case."""
        self._loop = Loop()
        self.connections: set[_Connection] = set()
        self._last: _Connection | None = None
        self._accepting: list[Task] = []
        self._nudged, self._nudge = socket.socketpair()
        self._nudge.settimeout(0)
        self._loop.start(self._read_ready())

    def on_idle(self) -> None:
        """Wake the loop's thread if it has work."""
        super().on_idle()
        if self._sleeps_until is not None and (
            self._is_stopped  # and waits for all tasks to end
            or self._loop.has_work
            or self.next_deadline() < self._sleeps_until
        ):
            self._sleeps_until = None
            self._wake_selector()

    def stop(self) -> None:
        """Begin a graceful stop, and return at once. A second call has no effect.

        The server accepts nothing new, gives running calls ``graceful_timeout`` seconds, ends all
        event streams and closes its connections. May be called from a signal handler, too.
        """
        self._is_stopped = True
        self._wake_selector()

    def close(self) -> None:
        """Stop the server, and wait until it has stopped. May be called twice.

        If the wait is interrupted, as by Ctrl-C, running calls are cancelled at once.
        """
        self.stop()
        try:
            self.wait_for_end()
        except BaseException:
            self._is_hurried = True
            self._wake_selector()
            self.wait_for_end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def wait_for_end(self) -> None:
        """Wait until a server that was stopped has ended."""

    # For serve()

    def release(self) -> None:
        """Close the loop and the socket pair that wakes it."""
        with self.moved:
            self._loop.close()
            self._nudged.close()
            self._nudge.close()

    def accept_on(self, endpoint: Endpoint) -> None:
        """Accept connections, and a client on stdio, until the server stops."""
        self.url = endpoint.url
        for listener, context in endpoint.listeners:
            accepting = self._accept(listener, context)
            self._accepting.append(self._loop.start(accepting))
        if endpoint.streams is not None:
            self._serve_stdio(endpoint.streams)

    def _serve_stdio(self, streams: StandardStreams) -> None:
        # No send timeout: a client that is stopped in a debugger may not read for hours.
        driver = _Connection(self, self._plan.stdio_connection, stdio_stream(streams), math.inf)
        self._last = driver if self._plan.options.ends_with_stdin else None

    # For the drivers; all under the lock

    def take(self, driver: _Connection, steps: Steps[None]) -> Task:
        """Add a connection, and start its task."""
        self.connections.add(driver)
        return self._loop.start(steps)

    def wake(self, task: Task) -> None:
        """Let a task of the loop run again."""
        self._loop.wake(task)

    def left(self, driver: _Connection) -> None:
        """Remove a connection that has closed."""
        self.connections.discard(driver)
        self.pump()
        if driver is self._last:
            self.stop()

    # The loop

    def begin(self, resources: ExitStack) -> None:
        """Begin to serve. ``resources`` are closed at the end."""
        self._life = self._live(resources)
        self._until = next(self._life)

    def wait_for_work(self, latest: float) -> Ready:
        """Wait until there is something to do, or the time ``latest``. Changes nothing."""
        return self._loop.wait(min(self._until, latest))

    def go_on(self, ready: Ready) -> bool:
        """Do what can be done at once. Returns False if the server has ended."""
        try:
            self._until = self._life.send(ready)
        except StopIteration:
            return False
        return True

    def _live(self, resources: ExitStack) -> Generator[float, Ready, None]:
        """Serve until the server is stopped, and stop it.

        Yields the time until which to wait for something to do; is sent what is ready then.
        """
        with resources:
            yield from self._turn_until(lambda: self._is_stopped)
            if self._plan.options.shares_listeners:
                self._stop_accepting()
            if self._plan.options.lame_duck_timeout:
                yield from self._be_lame_duck()
            self._stop_accepting()
            yield from self._shut_down()

    def _stop_accepting(self) -> None:
        while self._accepting:
            self._loop.stop(self._accepting.pop())

    def _be_lame_duck(self) -> Generator[float, Ready, None]:
        """Make clients go elsewhere for a while."""
        options = self._plan.options
        with self.moved:
            self.safely(lambda: self.core.enter_lame_duck(now=time.monotonic()))
        yield from self._turn_until(
            lambda: self._is_hurried or (options.shares_listeners and not self.connections),
            options.lame_duck_timeout,
        )

    def _turn_until(
        self, is_done: Callable[[], bool], seconds: float = math.inf
    ) -> Generator[float, Ready, None]:
        end = time.monotonic() + seconds
        while True:
            with self.moved:
                self.pump()
                if is_done() or time.monotonic() >= end:
                    return
                until = self._sleeps_until = min(self.next_deadline(), end)
            ready = yield until
            with self.moved:
                self._sleeps_until = None
                self._loop.go_on(ready)  # before the deadlines: bytes may have come in time
                self.handle_timeout()

    def _shut_down(self) -> Generator[float, Ready, None]:
        with self.moved:
            self.safely(lambda: self.core.drain(now=time.monotonic()))
        yield from self._turn_until(
            lambda: self._is_hurried or not self._is_busy(), self._plan.options.graceful_timeout
        )
        with self.moved:
            self.shut_down()
            self.has_ended = True
            for driver in self.connections:
                driver.wake()
        yield from self._turn_until(lambda: not self.connections, _FINAL_FLUSH_TIMEOUT)
        self.join(_FINAL_FLUSH_TIMEOUT)

    def _is_busy(self) -> bool:
        return bool(self.safely(lambda: self.core.is_busy))

    def _wake_selector(self) -> None:
        with suppress(OSError):  # enough wake-ups are in the buffer, or the loop is closed
            self._nudge.send(b"!")

    def _read_ready(self) -> Steps[None]:
        """Read the bytes by which other threads wake the selector."""
        while True:
            yield Wait(self._nudged.fileno(), READ)
            self._nudged.recv(4096)

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> Steps[None]:
        with listener:  # closed when the server stops: later connections are refused
            yield from self._accept_from(listener, context)

    def _accept_from(self, listener: socket.socket, context: ssl.SSLContext | None) -> Steps[None]:
        while True:
            yield Wait(listener.fileno(), READ)
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                continue  # another process that has the socket, too, was faster
            except OSError as error:
                _logger.debug("cannot accept: %s", error)
                yield Wait(deadline=time.monotonic() + 0.1)  # such as too many open files
                continue
            try:
                if context is not None:
                    accepted = context.wrap_socket(
                        accepted, server_side=True, do_handshake_on_connect=False
                    )
                stream = SocketStream(accepted)
            except OSError:
                accepted.close()  # it has disconnected already
            else:
                try:
                    _Connection(self, ServerConnection, stream, self.core.limits.send_timeout)
                except Exception as error:
                    log_unexpected(error)
                    stream.close()


class RunningServer(LoopServer):
    """A running server; :func:`serve` returns it. A context manager that closes it.

    All methods may be called from any thread.
    """

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped.

        Args:
            timeout: seconds to wait; None to wait without a limit.

        Returns:
            False if the server still runs after ``timeout`` seconds.
        """
        return wait_in_parts(
            self._has_ended_within, math.inf if timeout is None else time.monotonic() + timeout
        )

    def _has_ended_within(self, seconds: float | None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def wait_for_end(self) -> None:
        self.wait()

    def start(self, resources: ExitStack) -> None:
        """Start the thread that serves. It closes ``resources`` at the end."""
        # A daemon thread: a program that forgets to close the server must still be able to exit.
        self._thread = threading.Thread(target=self._serve, args=(resources,), daemon=True)
        self._thread.start()

    def _serve(self, resources: ExitStack) -> None:
        self.begin(resources)
        while self.go_on(self.wait_for_work(math.inf)):
            pass


@explains(ServeOptions, DriverOptions, sansmcp.ServerOptions)
def serve(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> RunningServer:
    """Serve an application over HTTP, on stdio, or both, in a thread of its own.

    ``with serve(...) as server:`` stops the server when the block ends. ``server.wait()`` in the
    block waits until the server stops for another reason, or Ctrl-C interrupts the wait. Handlers
    that still run ``graceful_timeout`` seconds after the stop are cancelled
    (:attr:`Call.cancelled`).

    Args:
        app: the application. Its handlers are plain functions; each gets a :class:`Call` and runs
            in a thread.
        settings: the fields of :class:`sansmcp_local.ServeOptions`,
            :class:`sansmcp_local.DriverOptions` and :class:`sansmcp.ServerOptions`, explained
            below.

    Returns:
        The running server, which accepts connections already.

    Raises:
        OSError: the address cannot be bound, or the state file cannot be written.
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    plan = serve_plan(app, **settings)
    serving = RunningServer(plan)
    opened = open_server(serving, plan)
    serving.start(opened)
    return serving


def open_server(serving: LoopServer, plan: ServePlan) -> ExitStack:
    """Open the sockets of a server, and return the resources that it has to close.

    Raises what :func:`serve` raises.
    """
    with ExitStack() as stack:
        stack.callback(serving.release)
        endpoint = stack.enter_context(plan.open())
        serving.accept_on(endpoint)
        announce(endpoint.urls)
        return stack.pop_all()
