"""A login in the browser of this machine, which comes back to a port that only it can reach."""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from sansmcp.auth.callbacks import answer_browser
from sansmcp.types import Self

_PATIENCE = 5.0
"""Seconds for one request of a browser. Browsers open connections that they never use."""

_MAX_CONNECTIONS = 64
"""The connections at a time; any program of the machine can open some. Beyond it the oldest is
closed: a browser sends its request as soon as it is connected.
"""

_BACKLOG = _MAX_CONNECTIONS

_PIECE = 16 * 1024

_LOOK_INTERVAL = 0.2
"""Seconds after which a call looks if another one has begun."""


class LoopbackLogin:
    """Opens a browser, and waits for it on a port of this machine. A context manager.

    The port is bound when the object is made, because authorization servers must know the redirect
    URI before the login. Pass the object as ``login``.

    Args:
        port: the port; 0 for any that is free. A client that is registered for one redirect URI
            needs the same port each time.
        path: the path of the redirect URI.
        host: the name in the redirect URI: ``127.0.0.1``, or ``localhost`` for an authorization
            server that knows no other.
        open_browser: opens a URL; returns False if it cannot, and the URL is printed on standard
            error then.
        timeout: seconds to wait for the person.

    Attributes:
        redirect_uri: the redirect URI.

    Raises:
        OSError: the port is in use.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        path: str = "/callback",
        host: str = "127.0.0.1",
        open_browser: Callable[[str], bool] = webbrowser.open,
        timeout: float = 300.0,
    ) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self._open_browser = open_browser
        self._timeout = timeout
        self._latest = ""
        """The URL of the call that began last: older calls end."""
        self._waiting = threading.Lock()
        bound = self._listener.getsockname()[1]
        self.redirect_uri = f"http://{host}:{bound}{path}"

    def __call__(self, url: str) -> str:
        """Open ``url``, and return the URL to which the browser was sent back.

        Raises:
            TimeoutError: the person has not logged in, or another call has begun.
            OSError: the object was closed.
        """
        self._latest = url
        with self._waiting:
            return self._wait_for_browser(url)

    def _wait_for_browser(self, url: str) -> str:
        if not self._open_browser(url):
            text = f"Open this URL in a browser of this machine, and log in:\n\n{url}\n"
            print(text, file=sys.stderr)
        deadline = time.monotonic() + self._timeout
        with _Browsers(self._listener, self.redirect_uri, url) as browsers:
            while (left := deadline - time.monotonic()) > 0:
                if self._latest != url:
                    raise TimeoutError("another login has begun")
                redirect = browsers.serve(min(left, _LOOK_INTERVAL))
                if redirect is not None:
                    return redirect
        raise TimeoutError(f"the login was not completed within {self._timeout:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the port."""
        self._listener.close()


class _Connection:
    """A connection of a browser, or of any other program of this machine."""

    def __init__(self) -> None:
        self.deadline = time.monotonic() + _PATIENCE
        self.received = b""
        self.is_answered = False


class _Browsers:
    """Answers connections in parallel, so that none waits for one that says nothing."""

    def __init__(self, listener: socket.socket, redirect_uri: str, url: str) -> None:
        self._listener = listener
        self._redirect_uri = redirect_uri
        self._url = url
        self._connections: dict[socket.socket, _Connection] = {}
        """The oldest first."""
        self._selector = selectors.DefaultSelector()
        listener.settimeout(0)
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self, seconds: float) -> str | None:
        """Answer what arrives in some seconds. Return the redirect if it has arrived.

        Raises:
            OSError: the listener is closed.
        """
        if self._listener.fileno() < 0:
            raise OSError("the login was closed")
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
                continue
            browser = cast("socket.socket", key.fileobj)
            redirect = self._read(browser) if browser in self._connections else None
            if redirect is not None:
                return redirect
        now = time.monotonic()
        for browser, connection in tuple(self._connections.items()):
            if now >= connection.deadline:
                self._close(browser)
        return None

    def _accept(self) -> None:
        try:
            browser, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it has left already
            return
        if len(self._connections) >= _MAX_CONNECTIONS:
            self._close(next(iter(self._connections)))
        browser.settimeout(0)
        self._connections[browser] = _Connection()
        self._selector.register(browser, selectors.EVENT_READ)

    def _read(self, browser: socket.socket) -> str | None:
        """Read from a connection, and answer its request. Return the redirect if that is it."""
        connection = self._connections[browser]
        try:
            data = browser.recv(_PIECE)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._close(browser)
            return None
        if connection.is_answered:  # closing before all is read would discard the response
            return None
        connection.received += data
        reply = answer_browser(connection.received, self._redirect_uri, self._url)
        if reply is None:
            return None
        connection.is_answered, connection.received = True, b""
        with suppress(OSError):  # the browser has left; what it brought counts
            browser.sendall(reply.data)
            browser.shutdown(socket.SHUT_WR)
        return reply.redirect

    def _close(self, browser: socket.socket) -> None:
        del self._connections[browser]
        self._selector.unregister(browser)
        browser.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for browser in tuple(self._connections):
            self._close(browser)
        self._selector.close()
