"""The call object of handlers in threads, for servers with and without an event loop."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import sansmcp
from sansmcp.messages import Params


class Call(sansmcp.BaseCall[Any, None]):
    """A call for a plain handler, which runs in a thread. The same in every adapter.

    The methods block, and may be called from any thread.

    When the client cancels the call, or the server stops, :attr:`cancelled` is set and every method
    raises RequestCancelled. Python cannot stop a thread from outside, so a handler that works for
    long without calling a method should check ``cancelled.is_set()``.

    Attributes:
        cancelled: a ``threading.Event``, set when the call is cancelled.
    """

    is_blocking = True

    def __init__(self, call: sansmcp.ServerCall) -> None:
        super().__init__(call)
        self.cancelled = threading.Event()

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the client asked for it.

        Args:
            progress: how far the call is; must increase with every report.
            total: the ``progress`` at the end, if known.
            message: text for the user.

        Raises:
            LocalProtocolError: ``progress`` has not increased.
            RequestCancelled: the call is cancelled.
        """
        self._perform(partial(super().progress, progress, total, message))

    def become_task(self) -> None:
        """Make the call a task, and wait until the client has its id or the store has failed.

        ``is_task`` tells if it is one then.

        Raises:
            RequestCancelled: the call is cancelled.
        """
        self._perform(super().become_task)

    def save_progress(self, state: Any) -> None:
        """Save the state with which another instance calls the handler again if this one dies.

        Args:
            state: any JSON value.

        Raises:
            LocalProtocolError: the handler was registered without ``restartable=True``, or
                ``state`` is not JSON.
            RequestCancelled: the call is cancelled.
        """
        self._perform(partial(super().save_progress, state))

    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification that belongs to this call.

        Raises:
            LocalProtocolError: ``params`` are not JSON.
            RequestCancelled: the call is cancelled.
        """
        self._perform(partial(super().notify, method, params))

    def notify_peer(self, method: str, params: Params | None = None) -> None:
        """Send a notification that belongs to no call. ``call.peer.notify()`` does the same.

        Raises:
            LocalProtocolError: ``params`` are not JSON.
            RequestCancelled: the call is cancelled.
        """
        self._perform(partial(super().notify_peer, method, params))

    def disconnect(self, *, retry: float | None = None) -> None:
        """Close this call's connection and let the client poll for the rest.

        Without effect if the client could not resume: without a store, at any revision but
        2025-11-25, and on stdio and HTTP+SSE.

        Args:
            retry: seconds the client should wait before it reconnects; None leaves the wait to it.

        Raises:
            LocalProtocolError: ``retry`` is negative, infinite or NaN.
            RequestCancelled: the call is cancelled.

        Source: SEP-1699.
        """
        self._perform(partial(super().disconnect, retry=retry))

    def ask(self, method: str, params: Params | None = None, *, timeout: float = 300.0) -> Any:
        """Send a server request, such as ``elicitation/create``, and wait for the response.

        Args:
            method: the method.
            params: its parameters.
            timeout: seconds to wait for the response.

        Returns:
            The client's result.

        Raises:
            JsonRpcError: the client responded with an error.
            RequestTimeout: no response came within ``timeout`` seconds.
            LocalProtocolError: this client cannot get this request.
            RequestCancelled: the call is cancelled.
        """
        return self._perform(partial(super().ask, method, params, timeout=timeout))

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the call is cancelled.

        Raises:
            RequestCancelled: the call is cancelled.
        """
        self.cancelled.wait(seconds)
        self._check()

    def cancel(self) -> None:
        """Record that the call is cancelled. The server's driver calls this."""
        self.cancelled.set()

    @abc.abstractmethod
    def _perform(self, act: Callable[[], Any]) -> Any:
        """Call ``act`` with exclusive use of the machine, and return its result.

        Raises:
            RequestCancelled: the call is cancelled, before or meanwhile.
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
