"""A server machine shared by threads: one lock for all; threads that wait watch the deadlines."""

from __future__ import annotations

import inspect
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import sansmcp
from sansmcp import PendingResult, WatchableStore
from sansmcp.app import Handler
from sansmcp.effects import StoreEffect, StoreWatch
from sansmcp.events import ClientResponseReceived, ServerEvent
from sansmcp.messages import Params
from sansmcp.types import escape_controls

from .._log import log_event, log_unexpected
from .._machine import ServerParts
from ._call import Call
from ._store_loop import StoreLoop
from ._thread_pool import ThreadPool

_logger = logging.getLogger("sansmcp")

_SHOWN = 5
"""Async handlers that an error names."""


class ThreadedServerCall(Call):
    """The call object for handlers of a :class:`ThreadedServerDriver`."""

    def __init__(self, call: sansmcp.ServerCall, driver: ThreadedServerDriver) -> None:
        super().__init__(call)
        self._driver = driver

    def now(self) -> float:
        return time.monotonic()

    def run_pending(self) -> None:
        self._driver.wait_until(
            lambda: not self._call.is_above_high_water or self.cancelled.is_set()
        )

    def wait_for_answer(self, id: int) -> Any:
        return self._driver.wait_for_response(self._call, id)

    def _perform(self, act: Callable[[], Any]) -> Any:
        with self._driver.moved:
            self._check()
            result = act()
            self._check()
            return result


class InlineServerCall(Call):
    """The call object for inline handlers, which run in place and must not wait."""

    def now(self) -> float:
        return time.monotonic()

    def notify(self, method: str, params: Params | None = None) -> None:
        """Queue a notification; the driver sends it when the handler has returned.

        Raises:
            LocalProtocolError: ``params`` are not JSON, or so much is unsent that a handler in a
                thread would wait.
        """
        if self._call.is_above_high_water:
            raise self._refusal()
        self._call.notify(method, params, now=self.now())

    def run_pending(self) -> None:
        raise self._refusal()

    def wait_for_answer(self, id: int) -> Any:
        raise self._refusal()

    def sleep(self, seconds: float) -> None:
        raise self._refusal()

    def _perform(self, act: Callable[[], Any]) -> Any:
        raise self._refusal()

    def _refusal(self) -> sansmcp.LocalProtocolError:
        return sansmcp.LocalProtocolError(
            f"The handler of {self.method!r} runs in place and must not wait; register it without "
            "inline=True"
        )


class ThreadedServerDriver(sansmcp.ServerDriver):
    """Drive a server machine whose handlers run in threads.

    All methods may be called from any thread. Code that uses the machine directly must hold
    :attr:`moved`, and call :meth:`pump` afterwards.
    """

    def __init__(self, parts: ServerParts) -> None:
        """Set up the driver.

        Raises:
            LocalProtocolError: the setting ``threads`` is below 1, or a handler is async.
        """
        if found := parts.core.app.async_functions():
            shown = ", ".join(found[:_SHOWN]) + (" and others" if len(found) > _SHOWN else "")
            raise sansmcp.LocalProtocolError(
                f"This server has no event loop, and these handlers are async: {shown}. Write def "
                "instead of async def, or serve with sansmcp_asyncio, sansmcp_trio or sansmcp_asgi"
            )
        super().__init__(parts.core, parts.store, parts.options.authenticate)
        self.moved = threading.Condition()
        """The lock of the machine; notified when its state has changed."""
        self._workers = ThreadPool(parts.options.threads)
        # Not the pool of the handlers: all of its threads may wait for client responses, which come
        # in HTTP requests that must be authenticated.
        self._authenticating = ThreadPool(parts.options.threads)
        self._store_loop = StoreLoop()

    def publish(self, method: str, params: Params | None = None) -> None:
        """Notify the clients of a change; see :meth:`sansmcp.Server.publish`."""
        with self.moved:
            super().publish(method, params)

    def disconnect_streams(self, *, retry: float | None = None) -> int:
        """Close the standalone streams of all clients that can resume them.

        See :meth:`sansmcp.Server.disconnect_streams`.
        """
        with self.moved:
            return super().disconnect_streams(retry=retry)

    def pump(self, connection: Any = None) -> None:
        """Perform the machine's effects and handle its events until there are no more."""
        with self.moved:
            super().pump(connection)

    def on_idle(self) -> None:
        self.moved.notify_all()

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Run the machine, and wait until ``is_done()`` is true."""
        with self.moved:
            self.pump()
            while not is_done():
                deadline = self.next_deadline()
                patience = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
                # pump() notifies all waiting threads. If each of them called it when it was
                # notified, they would wake each other for ever.
                if not self.moved.wait(patience):
                    self.handle_timeout()

    def wait_for_response(self, call: sansmcp.ServerCall, id: int) -> Any:
        """Wait for the client's response, and return its result or raise its error."""
        pending = self.pending_requests[call, id] = PendingResult()
        try:
            self.wait_until(lambda: pending.is_done)
        finally:
            del self.pending_requests[call, id]
        answered: ClientResponseReceived = pending.result()
        return answered.result()

    def shut_down(self) -> None:
        """End all event streams, and cancel all calls."""
        with self.moved:
            self.safely(lambda: self.core.shut_down(now=time.monotonic()))
            self.pump()

    def join(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the handlers, and as long for the store.

        Log a warning if one is still at work.
        """
        self._authenticating.join_all(0)
        if not self._workers.join_all(seconds):
            _logger.warning("a handler still runs, though it was cancelled")
        self.end_store(seconds)

    def end_store(self, seconds: float) -> None:
        """End the watches of the store and the thread in which it works, if it is asynchronous.

        Wait up to ``seconds`` for what it does. Do not hold :attr:`moved`.
        """
        with self.moved:
            self.end_watches()
        if not self._store_loop.end(seconds):
            _logger.warning("the store has not done all that it was asked for")

    def run_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        self._authenticating.submit(partial(self._work_plain, work, done))

    def _work_plain(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        outcome: Any = None
        failure: Exception | None = None
        try:
            outcome = work()
        except Exception as error:
            failure = error
        except BaseException as error:  # such as SystemExit: the client would wait for ever
            failure = RuntimeError(f"a function has raised {error!r}")
        with self.moved:
            done(outcome, failure)
            self.pump()

    # An asynchronous store

    def spawn_store_task(
        self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> None:
        self._store_loop.spawn(work, *arguments)

    def run_soon(self, work: Callable[[], None]) -> None:
        self._store_loop.call(partial(self._run_now, work))

    def _run_now(self, work: Callable[[], None]) -> None:
        with self.moved:
            self.safely(work)
            self.pump()

    def store_task_done(
        self, effect: StoreEffect, result: object, failure: Exception | None
    ) -> None:
        with self.moved:
            super().store_task_done(effect, result, failure)

    def _watch(self, effect: StoreWatch) -> None:
        if self._plain_store is not None or not isinstance(self._store, WatchableStore):
            super()._watch(effect)
            return
        watch = _Watch(self, self._store, effect)
        self._watches[effect.stream] = partial(self._store_loop.call, watch.end)
        self._store_loop.call(watch.begin)

    def watched(self, effect: StoreWatch) -> None:
        """Report that the store tells of the changes of a log."""
        self.core.store_watched(effect, now=self.now())

    def authentication_failed(self, error: Exception) -> None:
        _logger.error("authenticate failed", exc_info=error)

    # The handlers

    def start_plain(self, call: sansmcp.ServerCall, handler: Handler) -> None:
        call.driver = ThreadedServerCall(call, self)
        self._workers.submit(partial(self._work, call, handler))

    def _work(self, call: sansmcp.ServerCall, handler: Handler) -> None:
        if not call.driver.cancelled.is_set():  # cancelled while it was queued
            self._call_handler(call, handler)
            self.pump()

    def _call_handler(self, call: sansmcp.ServerCall, handler: Handler) -> None:
        try:
            super()._call_handler(call, handler)
        # Such as SystemExit: the client would wait for ever, and the thread that serves could end.
        except BaseException as error:
            self.respond_exception(call, RuntimeError(f"a handler has raised {error!r}"))

    def handle_for(self, call: sansmcp.ServerCall) -> Call:
        handle: Call | None = call.driver
        return InlineServerCall(call) if handle is None else handle

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        if inspect.iscoroutine(result):
            result.close()
        raise sansmcp.LocalProtocolError("Here handlers are plain functions, and this one is async")

    def respond_result(self, call: sansmcp.ServerCall, result: Any) -> None:
        with self.moved:
            super().respond_result(call, result)

    def respond_exception(self, call: sansmcp.ServerCall, error: Exception) -> None:
        with self.moved:
            super().respond_exception(call, error)

    def on_handler_error(self, call: sansmcp.ServerCall, error: Exception) -> None:
        if not isinstance(error, sansmcp.RequestCancelled):
            _logger.error("%s failed", escape_controls(call.request.method), exc_info=error)

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_other_event(self, event: ServerEvent) -> None:
        log_event(event, shared_store=self.core.shared_store)

    def now(self) -> float:
        return time.monotonic()


class _Watch:
    """A watch of an asynchronous store, which begins and ends in the thread of the store."""

    def __init__(
        self, host: ThreadedServerDriver, store: WatchableStore, effect: StoreWatch
    ) -> None:
        self._host = host
        self._store = store
        self._effect = effect
        self._end: Callable[[], None] | None = None

    def begin(self) -> None:
        self._end = self._store.watch(self._effect.stream, self._changed)
        self._host.run_soon(partial(self._host.watched, self._effect))

    def end(self) -> None:
        if self._end is not None:
            self._end()

    def _changed(self) -> None:
        stream = self._effect.stream
        self._host.run_soon(partial(self._host.store_changed, stream))
