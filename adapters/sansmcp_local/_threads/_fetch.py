"""A client on any blocking HTTP library: a function of yours makes each HTTP request."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

import sansmcp
from sansmcp.drivers.client import RequestHandler
from sansmcp.effects import AbortExchange, OpenExchange, TransportEffect
from sansmcp.http import ResponsePart, Unsent
from sansmcp.types import Unpack

from .._client import new_client
from .._failures import connect_failure
from .._interrupts import interrupts_kept, ki_unprotected, wait_in_parts
from .._options import explains
from ._client import ConcurrentClient
from ._client_driver import ConcurrentClientDriver, check_plain
from ._thread_pool import ThreadPool

Fetch: TypeAlias = Callable[
    [str, str, list[tuple[str, str]], bytes | None],
    tuple[int, Iterable[tuple[str, str]], Iterable[bytes]],
]
"""Make an HTTP request: ``fetch(method, url, headers, body)``.

Return the status, the headers, and an iterable over the pieces of the body, each as soon as it
arrives. Follow no redirect and repeat no request. Raise any exception if the request fails; let the
iterable raise one if the response is incomplete. If the iterable has a method ``close()``, as
generators have, the client calls it at the end.

With ``authorization``, servers name further URLs, which are requested. The client checks the
addresses in them, and not those to which names lead: refuse these, if they are in your network.
"""

_MAX_THREADS = 1000
"""HTTP requests at a time, each in a thread; further ones wait for a free thread."""

_JOIN_TIMEOUT = 1.0
"""Seconds from the first ``close()`` in which it waits for threads. One whose request cannot be
aborted ends later, with its response.
"""


@runtime_checkable
class _Closable(Protocol):
    def close(self) -> object: ...


class _Request:
    """A running HTTP request, and the callback that aborts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_aborted = False
        self._callback: Callable[[], object] | None = None

    def set_callback(self, callback: Callable[[], object] | None) -> None:
        with self._lock:
            self._callback = callback
            if self._is_aborted:
                self._abort()

    def abort(self) -> None:
        with self._lock:
            self._is_aborted = True
            self._abort()

    def _abort(self) -> None:
        if self._callback is not None:
            with suppress(OSError):  # the connection may have ended by itself
                self._callback()


class _Current(threading.local):
    request: _Request | None = None


_current = _Current()


def on_abort(callback: Callable[[], object] | None) -> None:
    """Set the callback that aborts the HTTP request of this thread. Call this in ``fetch``.

    The client aborts a request when its call is cancelled or times out. Without a callback, the
    thread and the connection stay in use until the server sends something. A good callback shuts
    down the socket, so that reading from it ends at once.

    Args:
        callback: called in another thread. None removes it: after ``on_abort(None)`` has returned,
            it is not called again. Remove it before you use the connection for something else.

    Raises:
        LocalProtocolError: this thread runs no ``fetch``.
    """
    if _current.request is None:
        raise sansmcp.LocalProtocolError("on_abort() is for fetch, and this thread runs none")
    _current.request.set_callback(callback)


class FetchClient(ConcurrentClient):
    """A client on a ``fetch`` function; :func:`connect` makes it. A context manager that closes it.

    All methods may be called from any thread. Each HTTP request and each request handler runs in a
    thread of its own, so both may block. One more thread watches the deadlines.
    """


class _Driver(ConcurrentClientDriver):
    """Drives a client on a ``fetch`` function."""

    def __init__(
        self,
        core: sansmcp.Client,
        fetch: Fetch,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(core, request_handlers)
        self._fetch = fetch
        self._changed = threading.Condition()
        """The lock of the machine; notified when its state has changed."""
        self._requests: dict[int, _Request] = {}
        self._workers = ThreadPool(_MAX_THREADS)
        self._join_deadline: float | None = None
        """When ``close()`` no longer waits for threads; None before the first one."""
        self._workers.submit(self._watch_deadlines)

    def close(self) -> None:
        super().close()
        assert self._join_deadline is not None, "free() sets it"
        self._workers.join_all(max(0.0, self._join_deadline - time.monotonic()))

    def free(self) -> None:
        if self._join_deadline is None:
            self._join_deadline = time.monotonic() + _JOIN_TIMEOUT
        for exchange in tuple(self._requests):
            self._abort(exchange)
        self._changed.notify_all()

    @contextmanager
    def using(self) -> Generator[None]:
        with interrupts_kept(), self._changed:
            yield

    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with self.using(), ki_unprotected():
            return wait_in_parts(partial(self._changed.wait_for, is_done), deadline)

    def flush(self) -> None:
        self.pump()  # the threads send

    def pump(self) -> None:
        with self._changed:
            super().pump()
            self._changed.notify_all()

    def _watch_deadlines(self) -> None:
        with self._changed:
            while not self._is_closed.is_done:
                deadline = self.next_deadline()
                seconds = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
                if not self._changed.wait(seconds):
                    self.handle_timeout()

    def perform_effect(self, effect: TransportEffect) -> None:
        match effect:
            case OpenExchange(exchange=exchange):
                request = self._requests[exchange] = _Request()
                self._workers.submit(partial(self._run_exchange, effect, request))
            case AbortExchange(exchange=exchange):
                self._abort(exchange)
            case _:
                pass  # there is no process

    def _abort(self, exchange: int) -> None:
        request = self._requests.pop(exchange, None)
        if request is not None:
            request.abort()

    # In the threads of requests

    def _run_exchange(self, effect: OpenExchange, request: _Request) -> None:
        """Perform one HTTP exchange, from its request to the end of its response."""
        _current.request = request
        try:
            self._fetch_parts(effect)
        except Exception as error:  # raised by ``fetch`` or the body that it returned
            reason = f"fetch has raised {error!r}"
            _, unsent = connect_failure(error, reason, effect.url)
            # Of a connection that was refused it is known that it carried nothing. Other errors can
            # come at any time.
            known = unsent if unsent is Unsent.REFUSED else None
            self._feed(effect.exchange, sansmcp.ConnectionLost(reason, unsent=known))
        finally:
            _current.request = None
            with self._changed:
                self._requests.pop(effect.exchange, None)

    def _fetch_parts(self, effect: OpenExchange) -> None:
        exchange, sent = effect.exchange, effect.head
        fields = [(name.decode(), value.decode("latin-1")) for name, value in sent.headers]
        status, headers, pieces = self._fetch(
            sent.method.decode(), effect.url, fields, effect.body or None
        )
        try:
            received = tuple(
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
            )
            # Closing a generator that has not started runs none of its finally blocks, so start it
            # even if the request was aborted.
            self._feed(exchange, sansmcp.ResponseHead(status=status, headers=received))
            for data in pieces:
                if not self._feed(exchange, sansmcp.BodyData(data)):
                    return
            self._feed(exchange, sansmcp.BodyEnd())
        finally:
            if isinstance(pieces, _Closable):
                pieces.close()

    def _feed(self, exchange: int, part: ResponsePart) -> bool:
        """Feed a part, and wait until reading may go on. Return False if it was aborted."""
        with self._changed:
            if exchange in self._requests:
                try:
                    self.core.receive_part(exchange, part, now=time.monotonic())
                except Exception as error:
                    self.exchange_failed(exchange, error)
                self.pump()
                self._changed.wait_for(lambda: not self.is_paused or exchange not in self._requests)
            return exchange in self._requests

    # In the threads of request handlers

    def run_request_handler(self, request: sansmcp.ServerRequest) -> None:
        """Run a request handler in a thread, since it may block."""
        if request.method in self._request_handlers:
            self._workers.submit(partial(self._run_in_thread, request))
        else:
            super().run_request_handler(request)

    def _run_in_thread(self, request: sansmcp.ServerRequest) -> None:
        try:
            result = self._request_handlers[request.method](request)
            with self._changed:
                self.respond_result(request, result)
        except Exception as error:
            with self._changed:
                self.respond_exception(request, error)
        self.pump()


@explains(sansmcp.ClientOptions)
def connect_fetch(
    url: str,
    fetch: Fetch,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> FetchClient:
    """Connect to an MCP server through a blocking HTTP library, and return the connected client.

    Close it with ``close()``, or use it as a context manager.

    Args:
        url: the URL of an MCP endpoint, http or https.
        fetch: makes an HTTP request and waits for its response (:data:`Fetch`). It is called in
            several threads at once. Set no timeout for reading a body: event streams may be silent
            for long. The timeouts of calls and settings hold all the same, and :func:`on_abort`
            ends the wait.
        request_handlers: functions that respond to the server's requests, by method, such as
            ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest`, runs in a thread,
            and returns the result, a JSON object, or raises JsonRpcError. The client declares the
            capability that each needs.
        settings: the fields of :class:`sansmcp.ClientOptions`, explained below.

    Raises:
        CallError: the handshake failed.
        LocalProtocolError: an argument or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    _check_url(url)
    check_plain("fetch", fetch)
    driver = _Driver(new_client(url, **settings), fetch, request_handlers)
    driver.open()
    return FetchClient(driver)


def _check_url(url: object) -> None:
    if not isinstance(url, str):
        raise sansmcp.LocalProtocolError(f"url must be a URL, got {url!r}; fetch starts no process")
