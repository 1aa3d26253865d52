"""A server and a client in steps, for programs whose loop belongs to something else.

Such a program, as an editor, a game or a user interface, calls ``step()`` from a timer. A step does
what can be done at once and returns. It is the loop that serves and connects elsewhere in this
package; here no thread runs it, and handlers run in the thread of the program.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sansmcp
from sansmcp.app import Handler
from sansmcp.drivers.client import RequestHandler
from sansmcp.drivers.store_checks import is_async_store
from sansmcp.types import Unpack
from sansmcp_local import (
    ConnectOptions,
    ConnectSettings,
    DriverOptions,
    ServeOptions,
    ServePlan,
    ServeSettings,
    ThreadedServerCall,
    client_parts,
    explains,
    interrupts_kept,
    ki_unprotected,
    serve_plan,
)
from sansmcp_local._threads._call import Call

from ._client import Client, ClientDriver
from ._server import LoopServer, open_server

_ROUNDS = 32
"""How often a step looks for more to do. A peer that always has more does not keep it from ending;
a call needs about five, from its connection to its response.
"""


class SteppedServer(LoopServer):
    """A server that works while :meth:`step` runs; :func:`serve_in_steps` returns it.

    A context manager that closes it. ``stop()`` and ``publish()`` may be called from any thread,
    the other methods from one at a time.
    """

    def __init__(self, plan: ServePlan) -> None:
        if is_async_store(plan.parts.store):
            raise sansmcp.LocalProtocolError(
                "A server in steps starts no thread, and an asynchronous store needs one; leave "
                "out store, or use serve()"
            )
        super().__init__(plan)
        self._calls: deque[tuple[sansmcp.ServerCall, Handler]] = deque()
        """The calls whose handlers have not run, in order of arrival."""
        self._stepping = threading.Lock()
        self._is_over = False

    def step(self, timeout: float = 0.0) -> bool:
        """Do what can be done now: read, run handlers one after the other, and send.

        Call it often: between two steps nothing is read, answered or timed out. It is bounded; what
        is left is done by the next one. Ctrl-C interrupts a handler, whose call ends with an error,
        or the wait, and nothing else.

        Args:
            timeout: seconds to wait if there is nothing to do yet; 0 to return at once.

        Returns:
            False if the server has ended, after ``stop()`` or the end of standard input.

        Raises:
            LocalProtocolError: called in a handler, or while another thread is in it. In a handler,
                ``call.sleep()`` does what a step does.
        """
        latest = time.monotonic() + timeout
        with self._begun_step():
            for _ in range(_ROUNDS):
                if self._is_over or not self._turn(-math.inf if self._calls else latest):
                    break
                latest = -math.inf
                self._run_handler()
        return not self._is_over

    def wait_for_end(self) -> None:
        while self.step(math.inf):
            pass

    @contextmanager
    def _begun_step(self) -> Generator[None]:
        if not self._stepping.acquire(blocking=False):
            raise sansmcp.LocalProtocolError(
                "step() is running already: one thread at a time calls it, and no handler; in a "
                "handler, call.sleep() lets the server go on, and stop() stops it"
            )
        try:
            with interrupts_kept():
                yield
        finally:
            self._stepping.release()

    def _turn(self, latest: float) -> bool:
        """Wait for something to do, and do it. Returns False if there was nothing."""
        with ki_unprotected():
            ready = self.wait_for_work(latest)
        has_work = bool(ready) or self._loop.has_work or bool(self._calls)
        try:
            self._is_over = not self.go_on(ready)
        except BaseException:
            self._is_over = True  # the loop has ended, and its sockets are closed
            raise
        return has_work or bool(self._calls)

    # The handlers

    def start_plain(self, call: sansmcp.ServerCall, handler: Handler) -> None:
        call.driver = _SteppedServerCall(call, self)
        self._calls.append((call, handler))

    def _run_handler(self) -> None:
        """Run the handler of the oldest call, if there is one. Raises KeyboardInterrupt."""
        if not self._calls:
            return
        call, handler = self._calls.popleft()
        if call.driver.cancelled.is_set():  # cancelled while it was queued
            return
        interrupts: list[KeyboardInterrupt] = []

        def interruptible(call: Call) -> Any:
            try:
                with ki_unprotected():
                    return handler(call)
            except KeyboardInterrupt as interrupt:
                interrupts.append(interrupt)
                raise

        self._call_handler(call, interruptible)  # responds with an error, whatever was raised
        self.pump()
        if interrupts:
            raise interrupts[0]

    def run_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        sansmcp.ServerDriver.run_plain(self, work, done)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        self.wait_in_handler(is_done, math.inf)

    def wait_in_handler(self, is_done: Callable[[], bool], latest: float) -> None:
        """Serve until ``is_done()`` is true, or the time ``latest``; other handlers do not run."""
        self.pump()
        while not (is_done() or self._is_over or time.monotonic() >= latest):
            with interrupts_kept():
                self._turn(latest)


class _SteppedServerCall(ThreadedServerCall):
    """The call object for handlers in steps: while one waits, the server goes on."""

    def __init__(self, call: sansmcp.ServerCall, server: SteppedServer) -> None:
        super().__init__(call, server)
        self._server = server

    def sleep(self, seconds: float) -> None:
        self._server.wait_in_handler(self.cancelled.is_set, self.now() + seconds)
        self._check()


class SteppedClient(Client):
    """A client that works while :meth:`step` runs; :func:`connect_in_steps` returns it.

    ``start_call()``, ``cancel()`` and ``notify()`` return at once, also before the handshake has
    ended: what is unsent is sent by the steps. The methods that wait for a result, such as
    ``call_tool()``, can be used, too, and block. A context manager that closes it.
    """

    def __init__(self, driver: SteppedDriver) -> None:
        super().__init__(driver)
        self._steps = driver

    def step(self, timeout: float = 0.0) -> bool:
        """Do what can be done now: send, read, and call request handlers and ``on_progress``.

        A call has ended when its ``is_done`` is true after a step; ``result()`` then returns at
        once. Call it often: between two steps nothing is read or timed out. It is bounded; what is
        left is done by the next one. The names of hosts are looked up in a step, which may take
        long; an address needs no look-up.

        Args:
            timeout: seconds to wait if there is nothing to do yet; 0 to return at once.

        Returns:
            False if the client is closed.

        Raises:
            CallError: the handshake failed; the client is closed, and its calls fail. Raised once.
            LocalProtocolError: another thread uses the client.
        """
        return self._steps.step(timeout)


class SteppedDriver(ClientDriver):
    """Drives a client whose steps do what can be done at once."""

    _has_opened = False

    def open(self) -> None:
        with self.using():
            self.begin_session()

    def step(self, timeout: float) -> bool:
        """Do what can be done now; see :meth:`SteppedClient.step`."""
        self._run(time.monotonic() + timeout)
        if self._is_open.is_done and not self._has_opened:
            self._has_opened = True
            try:
                self._is_open.result()
            except BaseException:
                self.close()
                raise
        return not self._is_closed.is_done

    def flush(self) -> None:
        self._run(-math.inf)

    def _run(self, latest: float) -> None:
        with self.using():
            self.pump()
            for _ in range(_ROUNDS):
                if self._is_closed.is_done or not self._turn(latest):
                    break
                self.pump()
                latest = -math.inf


@explains(ServeOptions, DriverOptions, sansmcp.ServerOptions)
def serve_in_steps(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> SteppedServer:
    """Open a server that works while its ``step()`` runs, without a thread.

    Args:
        app: the application. Its handlers are plain functions; each gets a :class:`Call` and runs
            in the thread that calls ``step()``, one at a time. While one waits, as in
            ``call.sleep()`` or for the response to a question, the server goes on and other
            handlers do not begin.
        settings: the fields of :class:`sansmcp_local.ServeOptions`,
            :class:`sansmcp_local.DriverOptions` and :class:`sansmcp.ServerOptions`, explained
            below. ``threads`` has no effect, ``authenticate`` runs in the step, and the store is a
            synchronous one. On Windows ``stdio`` needs two threads, which pass on its bytes.

    Raises:
        OSError: the address cannot be bound, or the state file cannot be written.
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    plan = serve_plan(app, **settings)
    serving = SteppedServer(plan)
    opened = open_server(serving, plan)
    serving.begin(opened)
    return serving


@explains(ConnectOptions, sansmcp.ClientOptions)
def connect_in_steps(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> SteppedClient:
    """Begin to connect to an MCP server, and return at once; ``step()`` of the client goes on.

    Args:
        target: as for :func:`connect`. A command is started by the first step.
        request_handlers: as for :func:`connect`; they run in the thread that calls ``step()``.
        settings: the fields of :class:`sansmcp_local.ConnectOptions` and
            :class:`sansmcp.ClientOptions`, explained below.

    Raises:
        LocalProtocolError: the target or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    driver = SteppedDriver(client_parts(target, **settings), request_handlers)
    driver.open()
    return SteppedClient(driver)
