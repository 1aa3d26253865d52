"""The driver of a blocking client. The thread that waits runs the machine meanwhile."""

from __future__ import annotations

import abc
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import sansmcp
from sansmcp import PendingResult
from sansmcp.auth.options import Login
from sansmcp.base_client import OnProgress
from sansmcp.drivers.client import RequestHandler
from sansmcp.events import ClientEvent, Reconnecting
from sansmcp.messages import Params
from sansmcp.types import escape_controls, shown_call

from .._interrupts import ki_protected, ki_unprotected
from .._log import log_first_failure, log_unexpected

_logger = logging.getLogger("sansmcp")


class ThreadClientDriver(sansmcp.ClientDriver):
    """Drives a client machine while a method waits, and does everything else it has to do."""

    def __init__(
        self, core: sansmcp.Client, request_handlers: Mapping[str, RequestHandler] | None
    ) -> None:
        self._is_open, self._is_closed = PendingResult(), PendingResult()
        for method, answer in (request_handlers or {}).items():
            check_plain(f"request_handlers[{method!r}]", answer)
        super().__init__(core, request_handlers, self._is_open, self._is_closed)
        self._request_handlers = {
            method: _interruptible(answer) for method, answer in self._request_handlers.items()
        }
        self._lock = threading.RLock()

    # For the client

    def open(self) -> None:
        """Do the handshake.

        Raises:
            CallError: the handshake failed, and the client is closed.
        """
        try:
            with self.using():
                self.begin_session()
                self.wait(lambda: self._is_open.is_done)
                self._is_open.result()
                self.flush()
        except BaseException:
            self.close()
            raise

    def log_out(self) -> None:
        """Revoke and delete the stored tokens, instead of :meth:`open`, and close the client.

        Raises:
            AuthorizationFailed: they could not be revoked or deleted.
        """
        try:
            with self.using():
                self.begin_log_out()
                self.wait(lambda: self._is_open.is_done)
                self._is_open.result()
        finally:
            self.close()

    def call(
        self,
        method: str,
        params: Params | None,
        on_progress: OnProgress[None] | None,
        settings: sansmcp.CallSettings,
        *,
        detach: bool = False,
    ) -> Any:
        """Send a request, and wait for its result, as :class:`BlockingDriver` says."""
        check_plain("on_progress", on_progress)
        with self.using():
            pending = PendingResult()
            handle = self.begin_call(pending, method, params, on_progress, settings, detach=detach)
            return self._result_of(handle, pending)

    def attach(
        self,
        task_id: str,
        on_progress: OnProgress[None] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> Any:
        """Wait for the result of a task, as :class:`BlockingDriver` says."""
        check_plain("on_progress", on_progress)
        with self.using():
            pending = PendingResult()
            handle = self.begin_attach(pending, task_id, on_progress, timeout, total_timeout)
            return self._result_of(handle, pending)

    def _result_of(self, handle: int, pending: PendingResult) -> Any:
        """Wait for the result of a call."""
        try:
            self.wait(lambda: pending.is_done)
        finally:
            self.abandon_call(handle)
            self.flush()
        return pending.result()

    def notify(self, method: str, params: Params | None, meta: Mapping[str, Any] | None) -> None:
        """Send a notification. Raises LocalProtocolError if it cannot be sent."""
        with self.using():
            self.core.notify(method, params, meta=meta, now=time.monotonic())
            self.flush()

    def complete_login(self, url: str) -> bool:
        """Continue a login; see :meth:`BlockingClient.complete_login`."""
        with self.using():
            is_known = self.core.redirected(url, now=time.monotonic())
            self.flush()
            return is_known

    @abc.abstractmethod
    def close(self) -> None:
        """End the session. Calls in flight fail with RequestCancelled. May be called twice.

        Returns after ``close_timeout`` seconds at the latest, whatever the server does.
        """

    # For adapters

    def using(self) -> AbstractContextManager[None]:
        """Lock the machine. KeyboardInterrupt is delayed to the end of the block, or to a wait.

        Raises:
            LocalProtocolError: another thread is using the client.
        """
        return ki_protected(self._lock)

    @abc.abstractmethod
    def wait(self, is_done: Callable[[], bool]) -> object:
        """Run the client until ``is_done()`` is true.

        An exception of a request handler is sent to the server as an error.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Wait until everything is sent."""

    def now(self) -> float:
        return time.monotonic()

    def run_login(self, login: Login, url: str) -> None:
        """Call the function, which can be interrupted while it waits for a person."""
        with ki_unprotected():
            result = login(url)
        self.login_ended(url, result)

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_first_failure(self, event: Reconnecting) -> None:
        log_first_failure(event)

    def on_handler_error(self, request: sansmcp.ServerRequest, error: Exception) -> None:
        _logger.error("the handler of %s failed", escape_controls(request.method), exc_info=error)


class PendingCall(PendingResult):
    """A call in flight; :meth:`ConcurrentClient.start_call` returns it."""

    handle: int

    def __init__(self, driver: ConcurrentClientDriver, method: str, params: Params | None) -> None:
        super().__init__()
        self._driver = driver
        self._what = method, params

    def __repr__(self) -> str:
        return f"<PendingCall {shown_call(*self._what)}{' ended' if self.is_done else ''}>"

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the call, and return its result.

        Args:
            timeout: seconds to wait; None to wait without a limit.

        Raises:
            CallError: the call failed.
            TimeoutError: the call has not ended after ``timeout`` seconds. It goes on.
        """
        if not self._driver.wait(lambda: self.is_done, timeout):
            raise TimeoutError(f"The call has not ended in {timeout} seconds")
        self._driver.flush()  # after a timeout this sends the cancellation
        return super().result()

    def cancel(self) -> None:
        """Cancel the call: it fails with RequestCancelled, and the server is notified."""
        self._driver.cancel(self)


class ConcurrentClientDriver(ThreadClientDriver):
    """Drives a blocking client that can have several requests in flight at once."""

    def start_call(
        self,
        method: str,
        params: Params | None,
        on_progress: OnProgress[None] | None,
        settings: sansmcp.CallSettings,
    ) -> PendingCall:
        """Send a request, and return without waiting for its result."""
        check_plain("on_progress", on_progress)
        with self.using():
            pending = PendingCall(self, method, params)
            pending.handle = self.begin_call(pending, method, params, on_progress, settings)
            try:
                self.flush()
            except BaseException:
                pending.cancel()
                raise
            return pending

    def cancel(self, pending: PendingCall) -> None:
        """Cancel a call, as :meth:`PendingCall.cancel` does."""
        with self.using():
            if pending.handle in self._pending_calls:
                self._pending_calls[pending.handle].on_progress = None  # its reports are not wanted
                self.core.cancel(pending.handle, now=time.monotonic())
                self.flush()

    def events(self, timeout: float | None) -> Iterator[ClientEvent]:
        """Queue events from now on, and iterate; see :meth:`ConcurrentClient.events`."""
        self.keeps_events = True
        return iter(partial(self._next_event, timeout), None)

    def close(self) -> None:
        with self.using():
            try:
                self.begin_close()
                self.wait(lambda: self._is_closed.is_done)
            finally:
                self._is_closed.set_result()  # also where the wait was interrupted
                self.free()

    # For adapters

    @abc.abstractmethod
    def free(self) -> None:
        """Abort what runs, and release all resources. May be called twice."""

    def _next_event(self, timeout: float | None) -> ClientEvent | None:
        with self.using():
            if not self._events:
                self.wait(lambda: bool(self._events) or self._is_closed.is_done, timeout)
            return self.next_unclaimed_event()

    @abc.abstractmethod
    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run the client until ``is_done()`` is true, or ``timeout`` seconds have passed.

        Returns:
            The last result of ``is_done()``.
        """


def _interruptible(answer: RequestHandler) -> RequestHandler:
    """Wrap a function of the application so that KeyboardInterrupt may stop it."""

    def give(request: sansmcp.ServerRequest) -> Mapping[str, Any]:
        with ki_unprotected():
            return answer(request)

    return give


def check_plain(name: str, function: object) -> None:
    """Raise LocalProtocolError for an async function: no event loop is there to await it."""
    if inspect.iscoroutinefunction(function):
        raise sansmcp.LocalProtocolError(
            f"{name} is an async function, and this client blocks; use def, or connect() of "
            "sansmcp_asyncio or sansmcp_trio"
        )
