"""The driver of a client in an event loop: async request handlers, logins and storages."""

from __future__ import annotations

import abc
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

import sansmcp
from sansmcp.auth.options import Login
from sansmcp.base_client import OnProgress
from sansmcp.effects import (
    AbortExchange,
    AuthEffect,
    LoadCredentials,
    MakeKey,
    OpenExchange,
    ProcessEffect,
    SignJwt,
    TransportEffect,
    UnlockCredentials,
)
from sansmcp.events import ClientEvent, Reconnecting
from sansmcp.messages import Params, RequestId
from sansmcp.types import escape_controls

from .._log import log_first_failure, log_unexpected
from .._threads._thread_pool import ThreadPool
from ._loops import Event, Loop, Task
from ._machine import PendingResult, TimeoutScheduler

_logger = logging.getLogger("sansmcp")

_SAVE_TIMEOUT = 5.0
"""Seconds for which a client that closes waits for the storage of its credentials."""

RequestHandler: TypeAlias = Callable[
    [sansmcp.ServerRequest], Awaitable[Mapping[str, Any]] | Mapping[str, Any]
]
"""Return the result of a server request, a JSON object, or raise JsonRpcError.

It may be an async function. A plain one runs in the event loop and must not block.
"""


class Pool(Protocol):
    """Performs HTTP exchanges."""

    def send_request(self, effect: OpenExchange) -> None:
        """Begin an exchange: send its request, and feed its response to the machine."""

    def abort(self, exchange: int) -> None:
        """Abort an exchange; without effect if it has ended."""


class Process(Protocol):
    """Runs the server process of a client."""

    def perform(self, effect: ProcessEffect) -> None:
        """Perform an effect on the process."""


def perform(effect: TransportEffect, pool: Pool, process: Process) -> None:
    """Perform an effect of a client machine, by the pool or by the process."""
    match effect:
        case OpenExchange():
            pool.send_request(effect)
        case AbortExchange(exchange=exchange):
            pool.abort(exchange)
        case _:
            process.perform(effect)


class _CallResult(PendingResult):
    """The result of a call, with the awaitables of ``on_progress`` that come before it."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop.event())
        self._loop = loop
        self.reports: deque[Awaitable[None]] = deque()
        """What ``on_progress`` returned and is not awaited yet, in order."""

    def add(self, report: Awaitable[None]) -> None:
        """Add an awaitable of ``on_progress`` for the waiting task."""
        self.reports.append(report)
        self._delivered.set()

    async def next_report(self) -> Awaitable[None] | None:
        """Wait for the next report. Return None if the call has ended and no report is left."""
        while True:
            await self._delivered.wait()
            if self.reports or self.is_done:
                return self.reports.popleft() if self.reports else None
            self._delivered = self._loop.event()

    def drop(self) -> int:
        """Discard the reports that are left, and return their number."""
        for report in self.reports:
            if isinstance(report, Coroutine):
                report.close()
        return len(self.reports)


class LoopClientDriver(sansmcp.ClientDriver):
    """Drives a client machine in an event loop. A :class:`Client` calls it from any task."""

    def __init__(
        self,
        core: sansmcp.Client,
        loop: Loop,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        self._is_open, self._is_closed = PendingResult(loop.event()), PendingResult(loop.event())
        super().__init__(core, request_handlers, self._is_open, self._is_closed)
        self._loop = loop
        self._scheduler = TimeoutScheduler(loop, self.next_deadline, self.handle_timeout)
        self._answering: dict[RequestId, tuple[sansmcp.ServerRequest, Task]] = {}
        self._storing: ThreadPool | None = None
        """One thread at most, which calls a storage that may block."""
        self._saved: Event | None = None
        """Set when the storage has performed the last effect that changes it."""
        self._reports = 0
        """Number of progress reports whose awaitables are not finished."""
        self._is_over = False

    # For the client

    async def open(self) -> None:
        """Do the handshake.

        Raises:
            CallError: the handshake failed, and the client is closed.
        """
        try:
            self.begin_session()
            try:
                await self._is_open.wait()
            except Exception:
                await self._all_saved()
                raise
        except BaseException:
            await self._leave()
            raise

    async def log_out(self) -> None:
        """Revoke and delete the stored tokens, instead of :meth:`open`, and release all resources.

        Raises:
            AuthorizationFailed: they could not be revoked or deleted.
        """
        try:
            self.begin_log_out()
            await self._is_closed.wait()
            await self._all_saved()
            self._is_open.result()
        finally:
            await self._leave()

    async def call(
        self,
        method: str,
        params: Params | None,
        on_progress: OnProgress[Awaitable[None]] | None,
        settings: sansmcp.CallSettings,
        *,
        detach: bool = False,
    ) -> Any:
        """Send a request, and wait for its result; see :meth:`Client.call`.

        Args:
            method, params, on_progress, settings: as in :meth:`Client.call`.
            detach: return the handle of a task, if the server makes one of the call.
        """
        self._check_loop()
        pending = _CallResult(self._loop)
        handle = self.begin_call(pending, method, params, on_progress, settings, detach=detach)
        return await self._result_of(handle, pending)

    async def attach(
        self,
        task_id: str,
        on_progress: OnProgress[Awaitable[None]] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> Any:
        """Wait for the result of a task; see :meth:`TaskHandle.result`."""
        self._check_loop()
        pending = _CallResult(self._loop)
        handle = self.begin_attach(pending, task_id, on_progress, timeout, total_timeout)
        return await self._result_of(handle, pending)

    async def _result_of(self, handle: int, pending: _CallResult) -> Any:
        """Wait for the result of a call, and await its progress reports meanwhile."""
        try:
            while (report := await pending.next_report()) is not None:
                try:
                    await report
                finally:
                    self._reports_done(1)
            return pending.result()
        finally:
            if left := pending.drop():
                self._reports_done(left)
            self.abandon_call(handle)

    async def notify(
        self, method: str, params: Params | None, meta: Mapping[str, Any] | None
    ) -> None:
        """Send a notification. Raises LocalProtocolError if it cannot be sent."""
        self._check_loop()
        self.core.notify(method, params, meta=meta, now=self._loop.now())
        self.pump()
        await self._loop.checkpoint()

    async def complete_login(self, url: str) -> bool:
        """Continue a login; see :meth:`Client.complete_login`."""
        self._check_loop()
        is_known = self.core.redirected(url, now=self.now())
        self.pump()
        await self._loop.checkpoint()
        return is_known

    def events(self) -> AsyncGenerator[ClientEvent, None]:
        """Queue events from now on, and iterate over them; see :meth:`Client.events`."""
        self.keeps_events = True
        return self._next_events()

    async def _next_events(self) -> AsyncGenerator[ClientEvent, None]:
        try:
            while self._events or not self._is_closed.is_done:
                event = self.next_unclaimed_event()
                if event is not None:
                    yield event
                else:
                    await self._scheduler.state_changed.wait()
        finally:
            self.keeps_events = False
            self._events.clear()
            self.pump()

    async def close(self) -> None:
        """End the session, and release all resources; see :meth:`Client.aclose`."""
        self._check_loop()
        try:
            self.begin_close()
            await self._is_closed.wait()
            await self._all_saved()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Close the machine, fail the calls that still wait, and release all resources."""
        self.begin_close()
        self._is_over = True
        self._is_closed.set_result()
        self._scheduler.stop()
        await self.end()

    def _check_loop(self) -> None:
        """Raise LocalProtocolError in another event loop than that of the client, or thread."""
        if not self._loop.is_here():
            raise sansmcp.LocalProtocolError("The client belongs to another event loop, or thread")

    # For adapters

    @abc.abstractmethod
    async def end(self) -> None:
        """End all tasks, even if cancelled, and release all resources. May be called twice."""

    @property
    def is_paused(self) -> bool:
        """True while reading from the server is paused until the application catches up."""
        return super().is_paused or self._reports >= self.core.limits.max_queued_events

    def on_progress_returned(self, pending: sansmcp.PendingResult, result: Any) -> None:
        """Pass an awaitable of ``on_progress`` to the task that made the call."""
        if inspect.isawaitable(result):
            assert isinstance(pending, _CallResult)
            self._reports += 1
            pending.add(result)

    def _reports_done(self, count: int) -> None:
        was_paused = self.is_paused
        self._reports -= count
        if was_paused and not self.is_paused:
            self.pump()  # more can be read

    def pump(self) -> None:
        if self._is_over:
            return
        super().pump()

    def on_idle(self) -> None:
        self._scheduler.reschedule()

    @abc.abstractmethod
    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        """Run a coroutine in a task, which ends with the client."""

    def now(self) -> float:
        return self._loop.now()

    def cancel_request_handler(self, id: RequestId) -> None:
        if id in self._answering:
            _, task = self._answering.pop(id)
            task.cancel()

    def respond_result(self, request: sansmcp.ServerRequest, result: Any) -> None:
        """Respond at once, or in a task if the request handler is async."""
        if inspect.isawaitable(result):
            task = self._run(self._respond_later(request, result))
            self._answering[request.id] = request, task
        else:
            super().respond_result(request, result)

    async def _respond_later(self, request: sansmcp.ServerRequest, result: Awaitable[Any]) -> None:
        try:
            super().respond_result(request, await result)
        except Exception as error:
            self.respond_exception(request, error)
        except BaseException:
            # Cancelled by the server, which needs no response then, or by the function itself.
            self.respond_internal_error(request)
            raise
        finally:
            answering, _ = self._answering.get(request.id, (None, None))
            if answering is request:
                del self._answering[request.id]
            self.pump()

    def run_login(self, login: Login, url: str) -> None:
        """Await an async login in a task; call a plain one in a thread."""
        if inspect.iscoroutinefunction(login):
            self._run(self._log_in(url, login(url)))
        else:
            # A daemon thread: a person who does not log in must not keep the program from ending.
            arguments = (login, url)
            threading.Thread(target=self._log_in_thread, args=arguments, daemon=True).start()

    async def _log_in(self, url: str, result: Awaitable[str]) -> None:
        try:
            self.login_ended(url, await result)
        except Exception as error:
            self.login_ended(url, error)
        self.pump()

    def _log_in_thread(self, login: Login, url: str) -> None:
        result: Any
        try:
            result = login(url)
        except Exception as error:
            result = error
        with suppress(RuntimeError):  # the loop has ended
            self._loop.run_soon(self._log_in_returned, url, result)

    def _log_in_returned(self, url: str, result: Any) -> None:
        if inspect.isawaitable(result):
            self._run(self._log_in(url, result))
        else:
            self.login_ended(url, result)
            self.pump()

    def perform_auth(self, effect: AuthEffect) -> None:
        """Call a storage that may block in a thread: after all that it was called for before."""
        authorization = self.core.authorization
        assert authorization is not None
        is_signing = isinstance(effect, MakeKey | SignJwt)
        if is_signing or not getattr(authorization.credentials, "may_block", False):
            super().perform_auth(effect)
            return
        if self._storing is None:
            self._storing = ThreadPool(1)
        ended = self._loop.event()
        try:
            self._storing.submit(partial(self._store_in_thread, effect, ended))
        except RuntimeError as error:  # the system has no more threads
            if isinstance(effect, UnlockCredentials):
                super().perform_auth(effect)  # others wait for the lock, and no thread is left
            else:
                self.auth_ended(effect, error)
            return
        if not isinstance(effect, LoadCredentials):
            self._saved = ended

    def _store_in_thread(self, effect: AuthEffect, ended: Event) -> None:
        try:
            result = self.auth_result(effect)
        except BaseException as error:  # such as SystemExit: the login would wait for ever
            result = RuntimeError(f"the storage of credentials has raised {error!r}")
        with suppress(RuntimeError):  # the loop has ended
            self._loop.run_soon(self._stored, effect, result, ended)

    def _stored(self, effect: AuthEffect, result: Any, ended: Event) -> None:
        self.auth_ended(effect, result)
        self.pump()
        ended.set()

    async def _all_saved(self) -> None:
        """Wait for the storage: its thread is a daemon, and ends with the program."""
        if not await self._loop.within(_SAVE_TIMEOUT, self._wait_until_saved):
            _logger.warning(
                "the storage of credentials did not return within %g s, and the client closes "
                "without waiting for it. If the program ends before it returns, a new token is "
                "lost, and the next program has to log in again",
                _SAVE_TIMEOUT,
            )

    async def _wait_until_saved(self) -> None:
        while (saved := self._saved) is not None and not saved.is_set():
            await saved.wait()

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_first_failure(self, event: Reconnecting) -> None:
        log_first_failure(event)

    def on_handler_error(self, request: sansmcp.ServerRequest, error: Exception) -> None:
        _logger.error("the handler of %s failed", escape_controls(request.method), exc_info=error)
