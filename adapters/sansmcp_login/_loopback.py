"""A login in the browser of this machine, which comes back to a port that only it can reach."""

from __future__ import annotations

import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress

from sansmcp.auth.callbacks import answer_browser
from sansmcp.types import Self

_PATIENCE = 5.0
"""Seconds for one request of a browser. Browsers open connections that they never use."""

_BACKLOG = 8

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
        while (left := deadline - time.monotonic()) > 0:
            if self._latest != url:
                raise TimeoutError("another login has begun")
            self._listener.settimeout(min(left, _LOOK_INTERVAL))
            try:
                browser, _ = self._listener.accept()
            except TimeoutError:
                continue
            with browser, suppress(OSError):
                redirect = self._answer(browser, url)
                if redirect is not None:
                    return redirect
        raise TimeoutError(f"nobody has logged in within {self._timeout:g} s")

    def _answer(self, browser: socket.socket, url: str) -> str | None:
        """Answer one connection. Return the redirect if it brought the one that is waited for."""
        deadline = time.monotonic() + _PATIENCE
        received = b""
        while (reply := answer_browser(received, self.redirect_uri, url)) is None:
            browser.settimeout(max(0.01, deadline - time.monotonic()))
            data = browser.recv(4096)
            if not data:
                return None
            received += data
        with suppress(OSError):  # the browser has left; what it brought counts
            browser.sendall(reply.data)
        return reply.redirect

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the port."""
        self._listener.close()
