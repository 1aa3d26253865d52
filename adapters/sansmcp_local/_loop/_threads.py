"""Plain handlers of a server in an event loop: they run in threads, and call into the loop."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import sansmcp
from sansmcp.app import Handler
from sansmcp.events import ClientResponseReceived
from sansmcp.messages import Params

from .._threads._call import Call
from .._threads._thread_pool import ThreadPool
from ._loops import Loop


class HandlerOwner(Protocol):
    """What handlers in threads use of their server."""

    @property
    def loop(self) -> Loop:
        """The event loop of the server."""
        ...

    @property
    def pending_requests(self) -> dict[tuple[sansmcp.ServerCall, int], sansmcp.PendingResult]:
        """The pending results of server requests, by call and id."""
        ...

    def pump(self) -> None:
        """Drive the machine."""

    def conclude(self, call: sansmcp.ServerCall, work: Callable[[], Any]) -> None:
        """Respond to a call with what ``work`` returns or raises."""

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition()`` is true. It is checked after each :meth:`pump`."""


class CallFromThread(Call):
    """The call object of a plain handler. Its methods run in the loop while the thread waits.

    Other code may have got hold of the call and use it in the loop's own thread, which must not
    wait for itself. There a method does its work at once, or raises if it would have to wait.
    """

    def __init__(self, call: sansmcp.ServerCall, serving: HandlerOwner) -> None:
        super().__init__(call)
        self._serving = serving
        self._lock = threading.Lock()
        self._outcomes: set[Future[Any]] = set()
        """The outcomes that threads wait for in a method. The lock guards them and ``cancelled``
        together: a thread that added one after the cancellation would wait for ever.
        """
        self._current: Future[Any] | None = None
        """The outcome of the method that runs in the loop, or ran there last."""
        self._is_used_in_loop = False
        """True while the loop itself runs a method, for which no thread waits."""

    @property
    def is_working(self) -> bool:
        """True unless the thread waits for the loop."""
        return self._current is None or self._current.done()

    def cancel(self) -> None:
        """Record that the call is cancelled, and end the waits of all its methods."""
        with self._lock:
            super().cancel()
            for outcome in self._outcomes:
                _resolve(outcome, self._check)

    # In the thread

    def become_task(self) -> None:
        self._check_thread("become_task")
        super().become_task()

    def save_progress(self, state: Any) -> None:
        self._check_thread("save_progress")
        super().save_progress(state)

    def ask(self, method: str, params: Params | None = None, *, timeout: float = 300.0) -> Any:
        self._check_thread("ask")
        return super().ask(method, params, timeout=timeout)

    def _check_thread(self, name: str) -> None:
        """Raise LocalProtocolError in the loop's thread, where ``name`` would wait for ever."""
        if self._serving.loop.is_here():
            raise sansmcp.LocalProtocolError(
                f"call.{name}() of a plain handler waits for the event loop and was called in it. "
                f"Call it in a thread (await asyncio.to_thread(call.{name}, ...), or "
                "trio.to_thread.run_sync), or make the handler an async function"
            )

    def _perform(self, act: Callable[[], Any]) -> Any:
        if self._serving.loop.is_here():
            return self._perform_at_once(act)
        outcome: Future[Any] = Future()
        with self._lock:
            self._check()
            self._outcomes.add(outcome)
        try:
            self._serving.loop.run_soon(self._carry_out, act, outcome)
            result = outcome.result()
        finally:
            with self._lock:
                self._outcomes.discard(outcome)
        self._check()
        return result

    # In the loop

    def _perform_at_once(self, act: Callable[[], Any]) -> None:
        """Call ``act`` in the loop. What it sends is queued, however much waits to be sent."""
        self._check()
        was_used, self._is_used_in_loop = self._is_used_in_loop, True
        try:
            act()
        finally:
            self._is_used_in_loop = was_used

    def _carry_out(self, act: Callable[[], Any], outcome: Future[Any]) -> None:
        self._current = outcome
        try:
            act()
        except Exception as error:
            with self._lock:
                _resolve(outcome, partial(_throw, error))

    def run_pending(self) -> None:
        """Drive the machine, and let the thread go on when the send buffer is low enough."""
        self._serving.pump()
        outcome = self._current
        if self._is_used_in_loop:
            return
        assert outcome is not None
        if self._call.is_above_high_water:
            self._serving.loop.spawn(self._wait_for_room, outcome)
        else:
            with self._lock:
                _resolve(outcome, lambda: None)

    def wait_for_answer(self, id: int) -> None:
        """Let the thread go on with the client's response."""
        assert self._current is not None
        self._serving.pending_requests[self._call, id] = _Answer(self._answered, id, self._current)
        self._serving.pump()

    def now(self) -> float:
        return self._serving.loop.now()

    async def _wait_for_room(self, outcome: Future[Any]) -> None:
        await self._serving.wait_until(lambda: not self._call.is_above_high_water)
        with self._lock:
            _resolve(outcome, lambda: None)

    def _answered(self, id: int, outcome: Future[Any], answered: ClientResponseReceived) -> None:
        del self._serving.pending_requests[self._call, id]
        with self._lock:
            _resolve(outcome, answered.result)


class _Answer(sansmcp.PendingResult):
    """The client's response to a server request that a thread has made."""

    def __init__(
        self,
        answered: Callable[[int, Future[Any], ClientResponseReceived], None],
        id: int,
        outcome: Future[Any],
    ) -> None:
        super().__init__()
        self._deliver = partial(answered, id, outcome)

    def _complete(self, value: Any, error: Exception | None) -> None:
        self._deliver(value)


class HandlerThreads:
    """The threads of a server's plain handlers."""

    def __init__(self, serving: HandlerOwner, max_threads: int) -> None:
        self._serving = serving
        self._workers = ThreadPool(max_threads)
        self._calls: set[CallFromThread] = set()
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """True if no handler runs or waits for a thread."""
        return not self._calls

    @property
    def is_working(self) -> bool:
        """True if a handler runs or waits for a thread, and does not wait for the loop."""
        return any(handle.is_working for handle in self._calls)

    def start(self, call: sansmcp.ServerCall, handler: Handler) -> None:
        """Run a handler as soon as there is a thread for it."""
        call.driver = handle = CallFromThread(call, self._serving)
        self._workers.submit(partial(self._work, call, handle, handler))
        self._calls.add(handle)

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        """Run a function in a thread, then ``done`` in the loop."""
        self._workers.submit(partial(self._run, work, done))

    def join_all(self) -> bool:
        """Cancel all handlers, without waiting. Return True if all have ended already."""
        self._is_over = True
        for handle in self._calls:
            handle.cancel()
        self._workers.join_all(0)
        return not self._calls

    def _run(self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        result: Future[Any] = Future()
        _resolve(result, work)
        with suppress(RuntimeError):  # the loop has ended
            self._serving.loop.run_soon(self._done, result, done)

    def _done(self, result: Future[Any], done: Callable[[Any, Exception | None], None]) -> None:
        if self._is_over:
            return
        error = result.exception()
        assert error is None or isinstance(error, Exception)
        done(None if error else result.result(), error)
        self._serving.pump()

    def _work(self, call: sansmcp.ServerCall, handle: CallFromThread, handler: Handler) -> None:
        """Run a handler in its thread, unless it was cancelled while it waited for one."""
        result: Future[Any] = Future()
        if not handle.cancelled.is_set():
            _resolve(result, lambda: handler(handle))
        with suppress(RuntimeError):  # the loop has ended
            self._serving.loop.run_soon(self._worked, call, handle, result)

    def _worked(
        self, call: sansmcp.ServerCall, handle: CallFromThread, result: Future[Any]
    ) -> None:
        self._calls.discard(handle)
        if self._is_over:
            return
        if result.done():
            self._serving.conclude(call, partial(_plain, result))
        self._serving.pump()


def _resolve(outcome: Future[Any], give: Callable[[], Any]) -> None:
    if outcome.done():
        return
    try:
        outcome.set_result(give())
    except Exception as error:
        outcome.set_exception(error)
    except BaseException as error:  # such as SystemExit: the client would wait for ever
        outcome.set_exception(RuntimeError(f"a function has raised {error!r}"))


def _throw(error: Exception) -> None:
    raise error


def _plain(result: Future[Any]) -> Any:
    value = result.result()
    if inspect.iscoroutine(value):
        value.close()
    if isinstance(value, Awaitable):
        raise sansmcp.LocalProtocolError(
            "A plain handler has returned an awaitable, and its thread cannot await it: make it an "
            "async function, or register it with inline=True"
        )
    return value
