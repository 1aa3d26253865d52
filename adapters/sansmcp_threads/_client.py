"""What clients that block have in common: who waits turns the machine, and answers the server."""

from __future__ import annotations

import abc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import sansmcp
from sansmcp.effects import ClientEffect
from sansmcp.events import ClientEvent, ServerAsked, ServerWithdrew
from sansmcp_local import interrupts_allowed, undisturbed

from ._promise import Promise

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from sansmcp.handles import OnProgress
    from sansmcp.messages import Params, Request

_logger = logging.getLogger("sansmcp")

Answerer: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Answers a request of the server: from its parameters to the result, or raises JsonRpcError."""


class Client(sansmcp.ClientHandle[Any, None]):
    """A client whose methods let everything go on that there is to do, as long as they wait."""

    def __init__(self, core: sansmcp.Client, answers: Mapping[str, Answerer] | None) -> None:
        self._is_open, self._is_closed = Promise(), Promise()
        super().__init__(self._is_open, self._is_closed)
        self._core = core
        self._answers = answers or {}
        self._lock = threading.RLock()
        self._asked: deque[Request] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[sansmcp.CallOptions],
    ) -> Any:
        """Make any request, and wait for its end. Interrupting the wait cancels the request."""
        with undisturbed(self._lock):
            handle = self._core.call(method, params, now=time.monotonic(), **options)
            promise = Promise()
            self._waiting[handle] = promise, on_progress
            try:
                self.wait(lambda: promise.is_delivered)
            finally:
                self._waiting.pop(handle, None)
                self._core.cancel(handle, now=time.monotonic())
                self.flush()
            return promise.get()

    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification."""
        with undisturbed(self._lock):
            self._core.notify(method, params, now=time.monotonic())
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
                self._core.start(now=time.monotonic())
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

    @abc.abstractmethod
    def _perform(self, effect: ClientEffect) -> None:
        """Begin what the machine wants."""

    @abc.abstractmethod
    def _tell(self, event: ClientEvent) -> None:
        """Something has happened that is no question of the server."""

    def _settle(self) -> None:
        """Perform what the machine wants, take what it tells, and answer what the server asks."""
        self._core.drive(self._perform, self._happened)
        while self._asked:
            self._answer(self._asked.popleft())
            self._core.drive(self._perform, self._happened)

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case ServerAsked(_, request):
                self._asked.append(request)
            case ServerWithdrew(request_id):
                self._asked = deque(one for one in self._asked if one.id != request_id)
            case _:
                self._tell(event)

    def _answer(self, request: Request) -> None:
        """Answer a request of the server with what the application's function for it returns."""
        answerer = self._answers.get(request.method)
        if answerer is None:
            self._core.decline(request.id, now=time.monotonic())
            return
        try:
            with interrupts_allowed():
                result = answerer(request.params or {})
            self._core.respond(request.id, result, now=time.monotonic())
        except Exception as error:
            if not isinstance(error, sansmcp.JsonRpcError):
                _logger.error("answering %s failed", request.method, exc_info=error)
            self._core.fail_with(request.id, error, now=time.monotonic())
