"""What handlers in threads get, whether the machine is among threads or in an event loop."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import sansmcp
from sansmcp.messages import Params


class Call(sansmcp.BaseCall[Any, None]):
    """What a handler that runs in a thread gets, in every adapter.

    Its methods block, and may be called from any thread.

    When the client has cancelled the call, or the server ends, :attr:`cancelled` is set, and every
    method raises RequestCancelled. No thread can be stopped from outside: a handler that works for
    long without calling any method has to look.
    """

    def __init__(self, call: sansmcp.ServerCall) -> None:
        super().__init__(call)
        self.cancelled = threading.Event()

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client asked for it."""
        self._perform(partial(super().progress, progress, total, message))

    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification that has to do with this request."""
        self._perform(partial(super().notify, method, params))

    def notify_peer(self, method: str, params: Params | None = None) -> None:
        """Send a notification that belongs to no call."""
        self._perform(partial(super().notify_peer, method, params))

    def disconnect(self, *, retry: float | None = None) -> None:
        """Let the client go, and come back after ``retry`` seconds for the rest (SEP-1699)."""
        self._perform(partial(super().disconnect, retry=retry))

    def ask(self, method: str, params: Params | None = None, *, timeout: float = 300.0) -> Any:
        """Ask the client something, and wait for its answer."""
        return self._perform(partial(super().ask, method, params, timeout=timeout))

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises RequestCancelled as soon as the call is cancelled."""
        self.cancelled.wait(seconds)
        self._check()

    def cancel(self) -> None:
        """Record that the call is cancelled; the host calls it."""
        self.cancelled.set()

    @abc.abstractmethod
    def _perform(self, act: Callable[[], Any]) -> Any:
        """Let ``act`` have the machine to itself, and return what it or its wait gives.

        Raises RequestCancelled if the call is cancelled, before or meanwhile.
        """

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise sansmcp.RequestCancelled(
                "The call was cancelled: stop working on it",
                method=self.method,
                request_id=self.request_id,
            )


ThreadCall = Call
"""The name of :class:`Call` in adapters where async handlers get another one."""
