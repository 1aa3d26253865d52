"""What clients that block have in common: who waits turns the machine, and answers the server."""

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
from sansmcp.base_client import OnProgress
from sansmcp.drivers.client import RequestHandler
from sansmcp.events import ClientEvent
from sansmcp.messages import Params
from sansmcp.types import Self, Unpack, escape_controls
from sansmcp_local import ki_protected, ki_unprotected, log_unexpected

_logger = logging.getLogger("sansmcp")


class Client(sansmcp.ClientDriver[Any, None]):
    """A client whose methods let everything go on that there is to do, as long as they wait."""

    def __init__(
        self, core: sansmcp.Client, request_handlers: Mapping[str, RequestHandler] | None
    ) -> None:
        self._is_open, self._is_closed = PendingResult(), PendingResult()
        for method, answer in (request_handlers or {}).items():
            check_plain(f"answers[{method!r}]", answer)
        functions = {
            method: _interruptible(answer) for method, answer in (request_handlers or {}).items()
        }
        super().__init__(core, functions, self._is_open, self._is_closed)
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **options: Unpack[sansmcp.CallOptions],
    ) -> Any:
        """Make any request, and wait for its end. Interrupting the wait cancels the request."""
        check_plain("on_progress", on_progress)
        with self.using():
            promise = PendingResult()
            handle = self.begin_call(promise, method, params, on_progress, options)
            try:
                self.wait(lambda: promise.is_done)
            finally:
                self.abandon_call(handle)
                self.flush()
            return promise.result()

    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification."""
        with self.using():
            self.core.notify(method, params, meta=meta, now=time.monotonic())
            self.flush()

    @abc.abstractmethod
    def close(self) -> None:
        """End the session. Calls under way fail with RequestCancelled. May be called twice.

        It takes no longer than ``close_timeout`` allows, whatever the server does.
        """

    # For adapters

    def using(self) -> AbstractContextManager[None]:
        """Hold the machine; KeyboardInterrupt comes at the end of the block, or in a wait.

        Raises LocalProtocolError if another thread is using the client.
        """
        return ki_protected(self._lock)

    def open(self) -> Self:
        """Do the handshake, and close if it fails: then CallError is raised."""
        try:
            with self.using():
                self.begin_session()
                self.wait(lambda: self._is_open.is_done)
                self._is_open.result()
                self.flush()
        except BaseException:
            self.close()
            raise
        return self

    @abc.abstractmethod
    def wait(self, is_done: Callable[[], bool]) -> object:
        """Let everything go on until something is so.

        Raises what functions of the application have raised, except those that answer the server.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Wait until all is sent that is to be sent now."""

    def now(self) -> float:
        return time.monotonic()

    def unexpected(self, error: Exception) -> None:
        log_unexpected(error)

    def on_handler_error(self, request: sansmcp.ServerRequest, error: Exception) -> None:
        _logger.error("answering %s failed", escape_controls(request.method), exc_info=error)


class PendingCall(PendingResult):
    """A call under way; :meth:`ConcurrentClient.start_call` makes it."""

    handle: int

    def __init__(self, client: ConcurrentClient) -> None:
        super().__init__()
        self._client = client

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the call; returns its result or raises CallError.

        Raises TimeoutError if it has not ended after ``timeout`` seconds: the call goes on.
        """
        if not self._client.wait(lambda: self.is_done, timeout):
            raise TimeoutError(f"The call has not ended in {timeout} seconds")
        self._client.flush()  # if it took too long, the server is told
        return super().result()

    def cancel(self) -> None:
        """End the call: it fails with RequestCancelled, and the server is told."""
        self._client.cancel(self)


class ConcurrentClient(Client):
    """A client that has several requests under way at once."""

    def start_call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **options: Unpack[sansmcp.CallOptions],
    ) -> PendingCall:
        """Make any request, and return once it is sent: several can be under way at once.

        They all go on while any method waits. The arguments are those of :meth:`call`.
        """
        check_plain("on_progress", on_progress)
        with self.using():
            pending = PendingCall(self)
            pending.handle = self.begin_call(pending, method, params, on_progress, options)
            try:
                self.flush()
            except BaseException:
                pending.cancel()
                raise
            return pending

    def cancel(self, pending: PendingCall) -> None:
        """End a call; the same as its own method."""
        with self.using():
            if pending.handle in self._waiting:
                self._waiting[pending.handle].on_progress = None  # its reports are not wanted
                self.core.cancel(pending.handle, now=time.monotonic())
                self.flush()

    def events(self, timeout: float | None = None) -> Iterator[ClientEvent]:
        """What happens and belongs to no call: notifications, reconnections, a lost session.

        The iterator waits for each event. It ends when the client is closed, or when nothing has
        happened for ``timeout`` seconds; 0 takes what is there. Events are kept from the moment
        this is first called, ``limits.max_queued_events`` of them: when nobody takes them, nothing
        more is read from the server, and calls end by their timeouts.
        """
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
        """Break off what runs, and free what the client holds. May be called twice."""

    def _next_event(self, timeout: float | None) -> ClientEvent | None:
        with self.using():
            if not self._events:
                self.wait(lambda: bool(self._events) or self._is_closed.is_done, timeout)
            return self.next_unclaimed_event()

    @abc.abstractmethod
    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let everything go on until something is so; False if it is not after ``timeout`` seconds.

        Raises what functions of the application have raised, except those that answer the server.
        """


def _interruptible(answer: RequestHandler) -> RequestHandler:
    """A function of the application that an interrupt may stop, as it stops a wait."""

    def give(request: sansmcp.ServerRequest) -> Mapping[str, Any]:
        with ki_unprotected():
            return answer(request)

    return give


def check_plain(name: str, function: object) -> None:
    """Raises LocalProtocolError for an async function: there is no event loop to await it."""
    if inspect.iscoroutinefunction(function):
        raise sansmcp.LocalProtocolError(
            f"{name} is an async function, and this client blocks; use def, or connect() of "
            "sansmcp_asyncio or sansmcp_trio"
        )
