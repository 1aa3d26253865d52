"""What clients that block have in common: who waits turns the machine, and answers the server."""

from __future__ import annotations

import abc
import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import sansmcp
from sansmcp import Promise
from sansmcp.handles import OnProgress
from sansmcp.hosting.client import Answerer
from sansmcp.messages import Params
from sansmcp.types import Self, Unpack, escape_controls
from sansmcp_local import interrupts_allowed, log_unexpected, undisturbed

_logger = logging.getLogger("sansmcp")


class Client(sansmcp.ClientHost[Any, None]):
    """A client whose methods let everything go on that there is to do, as long as they wait."""

    def __init__(self, core: sansmcp.Client, answers: Mapping[str, Answerer] | None) -> None:
        self._is_open, self._is_closed = Promise(), Promise()
        for method, answer in (answers or {}).items():
            check_plain(f"answers[{method!r}]", answer)
        functions = {method: _interruptible(answer) for method, answer in (answers or {}).items()}
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
        with undisturbed(self._lock):
            promise = Promise()
            handle = self.begin_call(promise, method, params, on_progress, options)
            try:
                self.wait(lambda: promise.is_delivered)
            finally:
                self.abandon_call(handle)
                self.flush()
            return promise.get()

    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification."""
        with undisturbed(self._lock):
            self.core.notify(method, params, meta=meta, now=time.monotonic())
            self.flush()

    @abc.abstractmethod
    def close(self) -> None:
        """End the session. Calls under way fail with RequestCancelled. May be called twice.

        It takes no longer than ``close_timeout`` allows, whatever the server does.
        """

    # For adapters

    def open(self) -> Self:
        """Do the handshake, and close if it fails: then CallError is raised."""
        try:
            with undisturbed(self._lock):
                self.begin_session()
                self.wait(lambda: self._is_open.is_delivered)
                self._is_open.get()
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


def _interruptible(answer: Answerer) -> Answerer:
    """A function of the application that an interrupt may stop, as it stops a wait."""

    def give(request: sansmcp.ServerRequest) -> Mapping[str, Any]:
        with interrupts_allowed():
            return answer(request)

    return give


def check_plain(name: str, function: object) -> None:
    """Raises LocalProtocolError for an async function: there is no event loop to await it."""
    if inspect.iscoroutinefunction(function):
        raise sansmcp.LocalProtocolError(
            f"{name} is an async function, and this client blocks; use def, or connect() of "
            "sansmcp_asyncio or sansmcp_trio"
        )
