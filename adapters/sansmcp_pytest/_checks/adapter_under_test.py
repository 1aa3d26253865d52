"""The interface between the checks and an adapter: methods that block.

Write a subject once for each adapter. For an asynchronous adapter, run its event loop in a thread,
and wait for it; call a blocking one directly. The checks never call these methods from two threads
at once.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from sansmcp.app import App
from sansmcp.authentication import Authenticator
from sansmcp.base_client import CallSettings, OnProgress, ServerRequest
from sansmcp.client.options import ClientSettings
from sansmcp.events import ClientEvent, Connected
from sansmcp.messages import Params
from sansmcp.server.options import ServerSettings
from sansmcp.types import Unpack


class Feature(enum.Enum):
    """A feature that an adapter may lack. The subject lists it in ``lacks``."""

    STDIO = "stdio"
    """Client: starts server processes. Server: serves on standard input and output."""

    STDIO_V2 = "stdio-v2"
    """Beside STDIO, the same for HTTP/2 on the pipes, a preview; the checks need the package h2."""

    CONCURRENCY = "concurrency"
    """Client: several HTTP requests can be in flight at once: calls, responses to the server's
    requests, the standalone stream.
    """

    CANCELLING = "cancelling"
    """Client: the application can cancel a call in flight. Server: a running handler can be
    stopped.
    """

    OWN_HTTP = "own HTTP"
    """Server: sansmcp itself does the HTTP/1.1, rather than a web server around it."""

    DISCONNECTS = "disconnects"
    """Server: detects a client's disconnect also while no bytes are sent to it."""

    AUTHENTICATION = "authentication"
    """Server: calls ``authenticate`` of the application for each HTTP request."""

    THREADS = "threads"
    """Server: plain functions of the application run in threads and may block."""

    GRACE = "grace"
    """Server: is notified of a stop early enough to end its event streams."""

    AT_ONCE = "events leave at once"
    """Server: what a handler sends has left before the handler gets its turn back."""

    UNIX = "Unix sockets"
    """Client: connects to ``http+unix`` URLs. Server: serves at a Unix socket, without a port."""


# Clients


class Pending(Protocol):
    """A call in flight."""

    @abc.abstractmethod
    def result(self) -> Any:
        """Wait for the end of the call. Return its result, or raise the adapter's exception."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """Cancel the call as users of the adapter do. ``result()`` is not called afterwards."""


class ConnectedClient(Protocol):
    """A connected client of the adapter."""

    @property
    @abc.abstractmethod
    def connected(self) -> Connected:
        """The event that reports the handshake."""

    @abc.abstractmethod
    def start(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[CallSettings],
    ) -> Pending:
        """Begin a call. Without Feature.CONCURRENCY, ``result()`` may make it instead."""

    @abc.abstractmethod
    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification."""

    @abc.abstractmethod
    def events(self) -> Iterator[ClientEvent]:
        """Iterate over events that belong to no call, queued from now on; wait for each."""

    @abc.abstractmethod
    def work(self, seconds: float) -> None:
        """Run the client for a moment; sleep if it works in the background."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the client, and wait until all its resources are released. Called once."""


Answer: TypeAlias = Callable[[ServerRequest], Any]
"""Return the result of a server request. A plain function that does not block."""


class ClientUnderTest(Protocol):
    """A client adapter under test."""

    lacks: Mapping[Feature, str]
    """The features that the adapter lacks, each with the reason shown for a skipped check."""

    @abc.abstractmethod
    def connect(
        self,
        target: str | Sequence[str],
        *,
        request_handlers: Mapping[str, Answer],
        transport: Literal["stdio-v2"] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> ConnectedClient:
        """Connect to a URL, or to a command. Raise CallError as the adapter does.

        Do not set a setting that the check leaves out, except for defaults of the adapter.

        Args:
            target: the URL or the command.
            request_handlers: functions that answer server requests, by method.
            transport: the setting of that name; given only with Feature.STDIO_V2.
            settings: further settings.
        """


# Servers


class Running(Protocol):
    """A running server of the adapter."""

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The URL of the MCP endpoint, on a loopback address or at a Unix socket."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop the server, and wait until its resources are released. May be called twice."""


class SubjectSettings(ServerSettings, total=False):
    """The settings that a server adapter is given by checks."""

    authenticate: Authenticator


class ServerUnderTest(Protocol):
    """A server adapter under test."""

    lacks: Mapping[Feature, str]
    """The features that the adapter lacks, each with the reason shown for a skipped check."""

    is_async: bool
    """Whether handlers are coroutine functions; otherwise plain functions that may block."""

    @abc.abstractmethod
    def sleep(self, call: Any, seconds: float) -> Any:
        """Wait in a handler: return an awaitable, or block if handlers are plain functions.

        If the adapter stops handlers by an exception, this raises it.

        Args:
            call: the object that the adapter passed to the handler.
            seconds: how long to wait.
        """

    @abc.abstractmethod
    def serve(
        self,
        app: App,
        *,
        graceful_timeout: float,
        unix: str | None = None,
        **settings: Unpack[SubjectSettings],
    ) -> Running:
        """Serve the application over HTTP on a free port of 127.0.0.1; return when it is ready.

        Args:
            app: the application.
            graceful_timeout: seconds that running calls get when the server stops.
            unix: the path of a Unix socket to serve at, instead of a port; given only with
                Feature.UNIX.
            settings: further settings.
        """

    @abc.abstractmethod
    def stdio_command(self, stdio: Literal[True, "v2"] = True) -> Sequence[str]:
        """Return a command that serves :func:`stdio_app` on stdio. Needs Feature.STDIO.

        Args:
            stdio: the setting of that name; ``"v2"`` for stdio-v2 is given only with
                Feature.STDIO_V2.
        """
