"""The server: one thread for all connections, and one for each call that runs.

A connection is a task of the loop, which is the only one to read from it. What a handler has for it
to send is sent by the handler's thread, if there is room, and by the task if not. One thread for
each connection would have to wait for its socket and for its handler at the same time, which takes
a selector for each as well.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

import sansmcp
from sansmcp import Idle, ServerConnection, ServerPipe
from sansmcp.types import Self, Unpack
from sansmcp_local import (
    DriverOptions,
    Endpoint,
    ServeOptions,
    ServePlan,
    ServeSettings,
    StandardStreams,
    announce,
    explains,
    log_unexpected,
    pull,
    serve_plan,
)
from sansmcp_threads import ThreadedServerDriver

from ._loop import READ, Loop, Steps, Task, Wait
from ._stdio import StdioStream
from ._streams import SocketStream

_logger = logging.getLogger("sansmcp")


class _Connection:
    """A connection, or the pipes of stdio; nobody else touches the stream. All under the lock."""

    def __init__(
        self,
        serving: RunningServer,
        kind: Callable[..., ServerConnection | ServerPipe],
        stream: SocketStream | StdioStream,
        patience: float,
    ) -> None:
        self._serving = serving
        self._stream = stream
        self._patience = patience
        self._connection = kind(serving.core, driver=self, now=time.monotonic())
        self._idle: Idle | None = Idle.NEED_DATA
        """What to do when all is sent; None: close it."""
        self._unsent = b""
        self._waits_until: float | None = None
        """The connection's deadline while the task waits for bytes; None: it does something."""
        self._task = serving.take(self, self._run())

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        assert isinstance(self._stream, SocketStream)
        return self._stream.info()

    def wake(self) -> None:
        """There is something to send: it is sent by whoever says so, or else by the task."""
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
        """Send what there is to send, as much as there is room for, without waiting."""
        if self._unsent or self._idle is None:
            return  # what is not pulled yet has its limits in the machine
        self._unsent, self._idle = pull(self._connection)
        if self._unsent:
            with suppress(OSError):  # the task will find out what it is
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
"""Seconds for what is still to be sent, and for cancelled handlers, when the server stops."""


class RunningServer(ThreadedServerDriver):
    """A running server; :func:`serve` gives it. A context manager that closes it at the end.

    Its methods may be called from any thread.
    """

    def __init__(self, plan: ServePlan) -> None:
        super().__init__(plan.parts)
        self.url = ""
        """Where the MCP endpoint is."""
        self.has_ended = False
        """All streams have been ended: connections that have nothing to send are to be closed."""
        self._plan = plan
        self._is_stopped = False
        self._is_hurried = False
        self._sleeps_until: float | None = None
        """When the thread goes on if nothing comes; None: it does something."""
        self._loop = Loop()
        self.connections: set[_Connection] = set()
        self._last: _Connection | None = None
        self._accepting: list[Task] = []
        self._nudged, self._nudge = socket.socketpair()
        self._nudge.settimeout(0)
        self._loop.start(self._read_ready())

    def run_pending(self) -> None:
        """Perform what the machine wants, and let the thread do its part."""
        with self.moved:
            super().run_pending()
            if self._sleeps_until is not None and (
                self._is_stopped  # and waits for everybody to come to an end
                or self._loop.has_work
                or self.next_deadline() < self._sleeps_until
            ):
                self._sleeps_until = None
                self._wake_selector()

    def stop(self) -> None:
        """Stop: no new requests, a moment for those that run, a proper end for every stream.

        Does not wait for that. May be called from a signal handler, too.
        """
        self._is_stopped = True
        self._wake_selector()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped; False if it has not after ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop, and wait until nothing is left. May be called twice.

        If the wait is interrupted, running calls get no more time.
        """
        self.stop()
        try:
            self.wait()
        except BaseException:
            self._is_hurried = True
            self._wake_selector()
            self.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For serve()

    def begin(self, resources: ExitStack) -> None:
        """Serve from now on, in a thread; the resources are closed at the end."""
        # Who forgets to close it wants to end nevertheless.
        self._thread = threading.Thread(target=self._serve, args=(resources,), daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let go of what it has opened."""
        with self.moved:
            self._loop.close()
            self._nudged.close()
            self._nudge.close()

    def accept_on(self, endpoint: Endpoint) -> None:
        """Accept connections, and a client on stdio, until the server stops."""
        self.url = endpoint.url
        for listener in endpoint.listeners:
            accepting = self._accept(listener, self._plan.options.ssl_context)
            self._accepting.append(self._loop.start(accepting))
        if endpoint.streams is not None:
            self._serve_stdio(endpoint.streams)

    def _serve_stdio(self, streams: StandardStreams) -> None:
        pipe = partial(ServerPipe, graceful_timeout=self._plan.options.graceful_timeout)
        # Whoever started us may stop reading for as long as it likes, under a debugger, say.
        driver = _Connection(self, pipe, StdioStream(streams), math.inf)
        self._last = driver if self._plan.options.ends_with_stdin else None

    # For the drivers; all under the lock

    def take(self, driver: _Connection, steps: Steps[None]) -> Task:
        """There is a new connection."""
        self.connections.add(driver)
        return self._loop.start(steps)

    def wake(self, task: Task) -> None:
        """Let a task of the loop run again."""
        self._loop.wake(task)

    def left(self, driver: _Connection) -> None:
        """A connection is gone."""
        self.connections.discard(driver)
        self.run_pending()
        if driver is self._last:
            self.stop()

    # The thread

    def _serve(self, resources: ExitStack) -> None:
        with resources:
            self._turn_until(lambda: self._is_stopped)
            for task in self._accepting:
                self._loop.stop(task)
            self._shut_down()

    def _turn_until(self, is_done: Callable[[], bool], seconds: float = math.inf) -> None:
        end = time.monotonic() + seconds
        while True:
            with self.moved:
                self.run_pending()
                if is_done() or time.monotonic() >= end:
                    return
                until = self._sleeps_until = min(self.next_deadline(), end)
            ready = self._loop.wait(until)
            with self.moved:
                self._sleeps_until = None
                self._loop.go_on(ready)  # what has come in time counts, however late we look
                self.handle_timeout()

    def _shut_down(self) -> None:
        with self.moved:
            self.safely(lambda: self.core.drain(now=time.monotonic()))
        self._turn_until(
            lambda: self._is_hurried or not self._is_busy(), self._plan.options.graceful_timeout
        )
        with self.moved:
            self.shut_down()
            self.has_ended = True
            for driver in self.connections:
                driver.wake()
        self._turn_until(lambda: not self.connections, _FINAL_FLUSH_TIMEOUT)
        self.join(_FINAL_FLUSH_TIMEOUT)

    def _is_busy(self) -> bool:
        return bool(self.safely(lambda: self.core.is_busy))

    def _wake_selector(self) -> None:
        with suppress(OSError):  # it was told often enough, or has ended
            self._nudge.send(b"!")

    def _read_ready(self) -> Steps[None]:
        """Let the loop turn when another thread wants it to."""
        while True:
            yield Wait(self._nudged.fileno(), READ)
            self._nudged.recv(4096)

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> Steps[None]:
        with listener:  # who comes while the server stops is refused
            yield from self._accept_from(listener, context)

    def _accept_from(self, listener: socket.socket, context: ssl.SSLContext | None) -> Steps[None]:
        while True:
            yield Wait(listener.fileno(), READ)
            try:
                accepted, _ = listener.accept()
            except OSError as error:
                _logger.debug("cannot accept: %s", error)
                yield Wait(deadline=time.monotonic() + 0.1)  # there are too many open files, say
                continue
            try:
                if context is not None:
                    accepted = context.wrap_socket(
                        accepted, server_side=True, do_handshake_on_connect=False
                    )
                stream = SocketStream(accepted)
            except OSError:
                accepted.close()  # it is gone already
            else:
                try:
                    _Connection(self, ServerConnection, stream, self.core.limits.send_timeout)
                except Exception as error:
                    log_unexpected(error)
                    stream.close()


@explains(ServeOptions, DriverOptions, sansmcp.ServerOptions)
def serve(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> RunningServer:
    """Serve an application over HTTP, on stdio, or both, in a thread of its own.

    ``with serve(...) as serving`` serves as long as the block lasts; ``serving.wait()`` in it lasts
    until the server is stopped, or interrupted. When it stops, handlers that still run after the
    grace are cancelled (:attr:`Call.cancelled`).

    Args:
        app: its handlers are plain functions of a :class:`Call`; each call runs in a thread.
        settings: those of :class:`sansmcp_local.ServeOptions`, of
            :class:`sansmcp_local.DriverOptions` and of :class:`sansmcp.ServerOptions`.

    Raises OSError if the address cannot be bound or the file not be written, LocalProtocolError for
    settings that make no sense, and TypeError for unknown ones.
    """
    plan = serve_plan(app, **settings)
    serving = RunningServer(plan)
    with ExitStack() as stack:
        stack.callback(serving.release)
        serving.accept_on(stack.enter_context(plan.open()))
        serving.begin(stack.pop_all())
    if serving.url:
        announce(serving.url)
    return serving
