"""A server on bare sockets, in a loop of its own: one thread and a selector.

It has all parts of a server adapter: connections, deadlines, async handlers, and a graceful stop.

python examples/embed_selectors.py          # prints its URL
sansmcp call http://127.0.0.1:8000/mcp nap '{"seconds": 1}'
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any

import sansmcp
from sansmcp import Idle
from sansmcp.effects import CloseConnection, SendBytes
from sansmcp.events import ServerEvent

logger = logging.getLogger("sansmcp")
now = time.monotonic

FLUSH = 1.0
"""Seconds for the last bytes of all streams when the server stops."""

Condition = Callable[[], object]


@coroutine
def pause(condition: Condition, deadline: float) -> Generator[tuple[Condition, float], None, None]:
    """Let other tasks run until ``condition()`` is true, or the deadline has passed."""
    yield condition, deadline


async def wait_until(condition: Condition, deadline: float = math.inf) -> None:
    """Wait until ``condition()`` is true, or the deadline has passed."""
    if not condition():
        await pause(condition, deadline)


class Cancelled(BaseException):
    """Raised in a handler whose call is cancelled."""


class Task:
    """A coroutine that runs from one pause to the next."""

    def __init__(
        self, server: SelectorServer, work: Coroutine[tuple[Condition, float], None, None]
    ) -> None:
        self._server = server
        self._work = work
        self._condition: Condition = lambda: True
        self.deadline = math.inf
        self._is_cancelled = False
        server.tasks[self] = None
        self.run()

    def cancel(self) -> None:
        """Cancel the coroutine the next time it runs; the caller may be the coroutine itself."""
        self._is_cancelled = True

    @property
    def is_ready(self) -> bool:
        """True if the pause is over, or the task is cancelled."""
        return self._is_cancelled or bool(self._condition()) or self.deadline <= now()

    def run(self) -> None:
        """Run the coroutine until it pauses again."""
        is_cancelled, self._is_cancelled = self._is_cancelled, False
        try:
            self._condition, self.deadline = (
                self._work.throw(Cancelled()) if is_cancelled else self._work.send(None)
            )
        except (StopIteration, Cancelled):
            del self._server.tasks[self]


class Call(sansmcp.BaseCall[Awaitable[Any], Awaitable[None]]):
    """The call object of handlers."""

    def __init__(self, call: sansmcp.ServerCall, server: SelectorServer) -> None:
        super().__init__(call)
        self._server = server

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for some seconds."""
        return wait_until(lambda: False, now() + seconds)

    async def wait_for_answer(self, id: int) -> Any:
        """Wait for the client's response to a server request."""
        self._server.pump()
        return await self._server.wait_for_response(self._call, id)

    def now(self) -> float:
        """Return the time."""
        return now()

    async def run_pending(self) -> None:
        """Drive the machine, and wait until the send buffer is below its high-water mark."""
        self._server.pump()
        await wait_until(lambda: not self._call.is_above_high_water)


class Connection:
    """Drives one connection: moves bytes between its socket and its machine."""

    def __init__(self, server: SelectorServer, connection: socket.socket) -> None:
        connection.settimeout(0)
        self._server = server
        self._socket = connection
        self._machine = sansmcp.ServerConnection(server.core, driver=self, now=now())
        self._unsent = memoryview(b"")
        self._send_deadline: float | None = None

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """The peer's address, for ``authenticate``."""
        return sansmcp.ConnectionInfo(peer=self._socket.getpeername())

    def wake(self) -> None:
        """Record that there is something to send; the loop calls :meth:`drive` soon."""
        self._server.woken.add(self)

    def drive(self) -> None:
        """Send as much as the socket takes, then register what to wait for."""
        while not self._unsent:
            match self._machine.next_effect():
                case SendBytes(data):
                    self._unsent = memoryview(data)
                    self._send_deadline = now() + self._server.core.limits.send_timeout
                    self._write()
                case CloseConnection():
                    self.close()
                    return
                case Idle.PAUSED:
                    self._server.watch(self._socket, 0, self._read)
                    return
                case Idle.NEED_DATA:
                    self._server.watch(self._socket, selectors.EVENT_READ, self._read)
                    return
        self._server.watch(self._socket, selectors.EVENT_WRITE, self._write)

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
            self._send_deadline = now() + self._server.core.limits.send_timeout
        except BlockingIOError:
            return
        except OSError:
            self.lost()
        if not self._unsent:
            self._send_deadline = None
            self.wake()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        if data:
            self.safely(lambda: self._machine.receive_data(data, now=now()))
        else:
            self.safely(lambda: self._machine.receive_eof(now=now()))
        self.wake()

    def lost(self) -> None:
        """Report to the machine that the connection is lost."""
        self._unsent = memoryview(b"")
        self._machine.connection_lost(now=now())
        self.wake()

    def close(self) -> None:
        """Unregister and close the socket."""
        self._server.watch(self._socket, 0, self._read)
        self._server.connections.discard(self)
        self._socket.close()

    @property
    def has_unsent(self) -> bool:
        """True if bytes are left to be sent."""
        return bool(self._unsent)

    def next_deadline(self) -> float | None:
        """Return when to call :meth:`handle_timeout`."""
        known = (self._send_deadline, self._machine.next_deadline())
        return min((each for each in known if each is not None), default=None)

    def handle_timeout(self) -> None:
        """Handle a deadline that has passed."""
        if self._send_deadline is not None and self._send_deadline <= now():
            self._send_deadline = None
            self.lost()
        deadline = self._machine.next_deadline()
        if deadline is not None and deadline <= now():
            self._machine.handle_timeout(now=now())
            self.wake()

    def safely(self, act: Callable[[], None]) -> None:
        """Call a function. An exception, which is a bug, ends this connection only."""
        try:
            act()
        except Exception:
            logger.exception("an unexpected error")
            self.close()
            self._machine.connection_lost(now=now())


class SelectorServer(sansmcp.ServerDriver):
    """The server, and the loop in which it runs."""

    def __init__(
        self,
        app: sansmcp.App,
        address: tuple[str, int],
        *,
        resumable: bool = True,
        graceful_timeout: float = 5.0,
        authenticate: sansmcp.Authenticator | None = None,
        **settings: Any,
    ) -> None:
        """Listen. ``authenticate`` is called in the loop, so it must not block."""
        signer = sansmcp.StateSigner(keys=(secrets.token_bytes(32),), clock=time.time)
        settings = {"state_signer": signer, "resumable": resumable, **settings}
        settings["authentication"] = authenticate is not None
        core = sansmcp.Server(app, new_token=secrets.token_urlsafe, **settings)
        super().__init__(core, sansmcp.MemoryStore(core.limits), authenticate)
        self.connections: set[Connection] = set()
        self.woken: set[Connection] = set()
        self.tasks: dict[Task, None] = {}
        self._graceful_timeout = graceful_timeout
        self._has_ended = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(address)
        self._stop_sender, self._stop_receiver = socket.socketpair()
        self.watch(self._listener, selectors.EVENT_READ, self._accept)
        self.watch(self._stop_receiver, selectors.EVENT_READ, self._begin_stop)
        host, port = self._listener.getsockname()
        self.url = f"http://{host}:{port}{core.path}"

    # The loop

    def run(self) -> None:
        """Serve until :meth:`stop` is called."""
        while not self._has_ended:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            self.handle_timeout()
            for connection in tuple(self.connections):
                connection.safely(connection.handle_timeout)
            self._work()
        for connection in tuple(self.connections):
            connection.close()
        self._selector.close()
        self._stop_sender.close()
        self._stop_receiver.close()

    def stop(self) -> None:
        """Stop :meth:`run`. May be called from another thread."""
        self._stop_sender.send(b"!")

    def interrupted(self, number: int, frame: object) -> None:
        """Call :meth:`stop`; a signal handler for Ctrl-C."""
        self.stop()

    def watch(self, watched: socket.socket, events: int, action: Callable[[], None]) -> None:
        """Call ``action`` whenever a socket is ready for ``events``; 0 unregisters the socket."""
        if watched in self._selector.get_map():
            self._selector.unregister(watched)
        if events:
            self._selector.register(watched, events, action)

    def _work(self) -> None:
        """Drive the machine, the connections and the handlers until nothing is left to do."""
        self.pump()
        while self.woken:
            connection = self.woken.pop()
            if connection in self.connections:
                connection.safely(connection.drive)
            self.pump()
        for task in [each for each in self.tasks if each.is_ready]:
            task.run()

    def _timeout(self) -> float | None:
        if self.woken or any(each.is_ready for each in self.tasks):
            return 0.0
        deadlines = [
            self.next_deadline(),
            *(each.next_deadline() for each in self.connections),
            *(each.deadline for each in self.tasks),
        ]
        soonest = min((each for each in deadlines if each is not None), default=math.inf)
        return None if soonest == math.inf else max(0.0, soonest - now())

    # Accepting and stopping

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection = Connection(self, self._listener.accept()[0])
            self.connections.add(connection)
            connection.wake()

    def _begin_stop(self) -> None:
        self.watch(self._stop_receiver, 0, self._begin_stop)
        self.watch(self._listener, 0, self._accept)
        self._listener.close()
        Task(self, self._stop_gracefully())

    async def _stop_gracefully(self) -> None:
        self.core.drain(now=now())
        await wait_until(lambda: not self.core.is_busy, now() + self._graceful_timeout)
        self.core.shut_down(now=now())
        self.pump()  # handlers are cancelled
        self.woken |= self.connections
        await wait_until(self._has_sent_all, now() + FLUSH)
        self._has_ended = True

    def _has_sent_all(self) -> bool:
        return not self.woken and not any(each.has_unsent for each in self.connections)

    # The methods that ServerDriver requires

    async def wait_for_response(self, call: sansmcp.ServerCall, id: int) -> Any:
        """Wait for the client's response, and return its result or raise its error."""
        pending = self.pending_requests[call, id] = sansmcp.PendingResult()
        try:
            await wait_until(lambda: pending.is_done)
        finally:
            del self.pending_requests[call, id]
        return pending.result().result()

    def now(self) -> float:
        """Return the time."""
        return now()

    def handle_for(self, call: sansmcp.ServerCall) -> Call:
        """Make the call object for a handler."""
        return Call(call, self)

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        """Await a handler in a task."""
        call.driver = Task(self, self.finish(call, result))

    def on_handler_error(self, call: sansmcp.ServerCall, error: Exception) -> None:
        """Log the exception of a handler."""
        logger.error("%s failed", call.request.method, exc_info=error)

    def unexpected(self, error: Exception) -> None:
        """Log a bug that has ended one connection or one call."""
        logger.error("an unexpected error", exc_info=error)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run an async function in a task."""
        Task(self, work(*arguments))

    def authentication_failed(self, error: Exception) -> None:
        """Log the exception of ``authenticate``."""
        logger.error("authenticate failed", exc_info=error)

    def on_other_event(self, event: ServerEvent) -> None:
        """Log an event that needs no action."""
        logger.debug("%r", event)


app = sansmcp.App("naps", "1.0")

NAP = {
    "name": "nap",
    "description": "Take a nap.",
    "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}},
}


@app.handler("tools/list")
async def list_tools(call: Call) -> dict[str, Any]:
    """Return the tools."""
    return {"tools": [NAP]}


@app.handler("tools/call")
async def call_tool(call: Call) -> dict[str, Any]:
    """Sleep while other calls run."""
    seconds = float(call.params["arguments"].get("seconds", 1))
    await call.progress(1, 2, "lying down")
    await call.sleep(seconds)
    return {"content": [{"type": "text", "text": f"slept for {seconds:g} s"}]}


if __name__ == "__main__":
    server = SelectorServer(app, ("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000))
    signal.signal(signal.SIGINT, server.interrupted)
    print(server.url, flush=True)
    server.run()
