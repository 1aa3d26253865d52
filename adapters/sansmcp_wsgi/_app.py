"""The application that WSGI servers call, and the response that they iterate over.

Only the thread in which the WSGI server runs a request reads the request and writes its response.
While such a thread waits, it also watches the machine's deadlines; no other thread does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import sansmcp
from sansmcp import Idle
from sansmcp.effects import Abort, ExchangeEffect, SendBody, SendEnd, SendHead
from sansmcp.http import RequestPart, quoted_path
from sansmcp.types import Unpack
from sansmcp_local import (
    DriverOptions,
    DriverSettings,
    ThreadedServerDriver,
    explains,
    server_parts,
)

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], object]
# PEP 3333. wsgiref.types has both only since Python 3.11.

_PIECE = 65536

_STORE_TIMEOUT = 1.0
"""Seconds for what an asynchronous store still has to do when the server stops."""


class WsgiApp(ThreadedServerDriver):
    """A WSGI application that serves MCP, for WSGI servers with several threads.

    An event stream holds a thread of the WSGI server until it ends. That a client has disconnected
    is noticed when something is sent to it, at the latest after ``limits.stream_comment_interval``
    seconds. When the WSGI server stops, call :meth:`shut_down`, which ends all event streams and
    cancels all calls.
    """

    @explains(DriverOptions, sansmcp.ServerOptions)
    def __init__(
        self,
        app: sansmcp.App,
        **settings: Unpack[DriverSettings],
    ) -> None:
        """Set up the application.

        Args:
            app: the application. Its handlers are plain functions; each gets a :class:`Call`.
            settings: the fields of :class:`sansmcp_local.DriverOptions` and
                :class:`sansmcp.ServerOptions`, explained below. ``authenticate`` finds the environ
                in ``connection.environ``, where the WSGI server or middleware may have put a user
                (``REMOTE_USER``). ``path`` is relative to where the application is mounted.
                ``standalone_streams`` is False by default: each client would hold a thread all the
                time.

        If several processes serve one address, give all of them one ``SqliteStore``. Or give them a
        ``state_signer`` with the same keys, and either disable sessions (``sessions=False``) or
        send each client to one process.

        Raises:
            LocalProtocolError: the value of a setting is wrong.
            TypeError: a setting is unknown.
        """
        settings.setdefault("standalone_streams", False)
        super().__init__(server_parts(app, "WsgiApp", **settings))

    def shut_down(self) -> None:
        """End all event streams, cancel all calls, and end the thread of an asynchronous store."""
        super().shut_down()
        self.end_store(_STORE_TIMEOUT)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        """Serve one HTTP request, and return the body of its response.

        Raises:
            ConnectionError: the client disconnected before its request was complete.
        """
        return _Exchange(self, environ).answer(start_response)


class _Exchange(Iterator[bytes]):
    """One HTTP request, and an iterator over the body of its response."""

    def __init__(self, driver: ThreadedServerDriver, environ: Environ) -> None:
        self._driver = driver
        self._environ = environ
        self._exchange = driver.core.open_exchange(self)
        self._is_woken = False
        self._body: bytes | None = None
        """That of a response that is taken in one piece, until it is yielded."""

    def wake(self) -> None:
        self._is_woken = True

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """The WSGI server's information about the connection."""
        address, port = self._environ.get("REMOTE_ADDR"), self._environ.get("REMOTE_PORT") or 0
        return sansmcp.ConnectionInfo(
            peer=(address, int(port)) if address else None,
            is_tls=self._environ.get("wsgi.url_scheme") == "https",
            environ=self._environ,
        )

    def answer(self, start_response: StartResponse) -> Iterator[bytes]:
        """Read the request, as far as the machine needs it, and begin the response."""
        try:
            self._read()
            self._begin(start_response)
        except BaseException:
            self.close()  # the WSGI server closes only an iterable that was returned
            raise
        return self

    def _read(self) -> None:
        self._feed(_head(self._environ))
        length = int(self._environ.get("CONTENT_LENGTH") or 0)
        for data in _body(self._environ):
            if self._exchange.is_done:
                break
            if len(data) == length:
                self._feed_body(data)
                return
            self._feed(sansmcp.BodyData(data))
        self._feed(sansmcp.BodyEnd())

    def _begin(self, start_response: StartResponse) -> None:
        if self._exchange.is_done and (response := self._take_response()) is not None:
            head, self._body = response
        elif isinstance(effect := self._next_effect(), SendHead):
            head = effect.head
        else:
            raise ConnectionAbortedError("There is no response")
        fields = [(name.decode(), value.decode("latin-1")) for name, value in head.headers]
        start_response(f"{head.status} ", fields)

    def _take_response(self) -> tuple[sansmcp.ResponseHead, bytes] | None:
        with self._driver.moved:
            response = self._driver.core.next_response_of(self._exchange)
            self._driver.pump()
            return response

    def __next__(self) -> bytes:
        if self._body is not None:  # the whole one; nothing is left when it was yielded
            body, self._body = self._body, b""
            if body:
                return body
            raise StopIteration
        match self._next_effect():
            case SendBody(data):
                return data
            case SendEnd():
                raise StopIteration
            case SendHead() | Abort():
                raise ConnectionAbortedError("The response cannot be completed")

    def close(self) -> None:
        """End the exchange, whether its response is complete or not. The WSGI server calls this."""
        if self._body is None:
            self._feed(sansmcp.ConnectionLost())

    def _next_effect(self) -> ExchangeEffect:
        with self._driver.moved:
            while isinstance(effect := self._driver.core.next_effect_of(self._exchange), Idle):
                self._is_woken = False
                self._driver.wait_until(lambda: self._is_woken)
            self._driver.pump()  # handlers that wait for room may go on
            return effect

    def _feed(self, part: RequestPart) -> None:
        with self._driver.moved:
            self._driver.core.receive_part(self._exchange, part, now=time.monotonic())
            self._driver.pump()

    def _feed_body(self, body: bytes) -> None:
        with self._driver.moved:
            self._driver.core.receive_body(self._exchange, body, now=time.monotonic())
            self._driver.pump()


def _head(environ: Environ) -> sansmcp.RequestHead:
    path = quoted_path((environ.get("PATH_INFO") or "/").encode("latin-1"))
    query = environ.get("QUERY_STRING", "").encode("latin-1")
    fields = {
        key.removeprefix("HTTP_"): value
        for key, value in environ.items()
        if value and (key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH"))
    }
    return sansmcp.RequestHead(
        method=environ["REQUEST_METHOD"].encode("latin-1"),
        target=path + b"?" + query if query else path,
        headers=tuple(
            (name.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in fields.items()
        ),
        root=quoted_path(environ.get("SCRIPT_NAME", "").rstrip("/").encode("latin-1")),
    )


def _body(environ: Environ) -> Iterator[bytes]:
    """Yield the pieces of the request body. Raises ConnectionError if it ends too early."""
    source = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated") and not environ.get("CONTENT_LENGTH"):
        yield from iter(lambda: source.read(_PIECE), b"")
        return
    left = int(environ.get("CONTENT_LENGTH") or 0)
    while left > 0:
        data: bytes = source.read(min(left, _PIECE))
        if not data:
            raise ConnectionAbortedError("The client disconnected before its request was complete")
        left -= len(data)
        yield data
