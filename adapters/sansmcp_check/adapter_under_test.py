"""What the author of an adapter gives to the checks: the adapter, behind methods that block.

A subject is written once for each adapter. An asynchronous adapter runs
its event loop in a thread and waits for it; a blocking one is called straight. Nothing here is
asked from two threads at once.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from sansmcp.app import App
from sansmcp.authentication import Authenticator
from sansmcp.base_client import CallOptions, OnProgress, ServerRequest
from sansmcp.client.options import ClientSettings
from sansmcp.events import ClientEvent, Connected
from sansmcp.messages import Params
from sansmcp.server.options import ServerSettings
from sansmcp.types import Unpack


class Feature(enum.Enum):
    """What an adapter may do without, if it says so."""

    STDIO = "stdio"
    """Client: starts server processes. Server: serves on standard input and output."""

    CONCURRENCY = "concurrency"
    """Client: several HTTP requests are under way at the same time: calls, answers to the server,
    the standalone stream.
    """

    CANCELLING = "cancelling"
    """Client: a call that runs can be cancelled by the application. Server: a handler that runs can
    be stopped.
    """

    OWN_HTTP = "own HTTP"
    """Server: the HTTP/1.1 below is sansmcp's own, not that of a web server which hosts it."""

    DISCONNECTS = "disconnects"
    """Server: is told that a client has gone while there is nothing to send to it."""

    AUTHENTICATION = "authentication"
    """Server: asks a function of the application who makes each request."""

    THREADS = "threads"
    """Server: plain functions of the application run in threads, so that they may block."""

    GRACE = "grace"
    """Server: is told that it is to stop, with time left to end its streams."""


# Clients


class Pending(Protocol):
    """A call that was started."""

    @abc.abstractmethod
    def result(self) -> Any:
        """Wait for its end: returns the result, or raises what the adapter raises."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """Cancel it, the way users of the adapter do. Nobody asks for its result then."""


class ConnectedClient(Protocol):
    """A connected client of the adapter."""

    @property
    @abc.abstractmethod
    def connected(self) -> Connected:
        """What the handshake brought."""

    @abc.abstractmethod
    def start(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **options: Unpack[CallOptions],
    ) -> Pending:
        """Begin a call. Without Feature.CONCURRENCY it may be made as late as by ``result()``."""

    @abc.abstractmethod
    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification."""

    @abc.abstractmethod
    def events(self) -> Iterator[ClientEvent]:
        """What belongs to no call, kept from now on; the next one is waited for."""

    @abc.abstractmethod
    def work(self, seconds: float) -> None:
        """Let the client go on for a moment: sleep, where it works in the background."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it, and wait until nothing is left of it. Called once."""


Answer: TypeAlias = Callable[[ServerRequest], Any]
"""Answers a request of the server. It is no coroutine function, and returns at once."""


class ClientUnderTest(Protocol):
    """A client adapter under test."""

    lacks: Mapping[Feature, str]
    """What it does without, and why: shown where a check is left out for that."""

    @abc.abstractmethod
    def connect(
        self,
        target: str | Sequence[str],
        *,
        request_handlers: Mapping[str, Answer],
        **settings: Unpack[ClientSettings],
    ) -> ConnectedClient:
        """Connect to a URL, or to a command. Raises CallError as the adapter does.

        Settings that the check does not name are to be the adapter's own.
        """


# Servers


class Running(Protocol):
    """A server of the adapter that runs."""

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The URL of the MCP endpoint, on a loopback address."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop it, and wait until nothing is left of it. May be called twice."""


class SubjectSettings(ServerSettings, total=False):
    """The settings that a server adapter is given by checks."""

    authenticate: Authenticator


class ServerUnderTest(Protocol):
    """A server adapter under test."""

    lacks: Mapping[Feature, str]
    """What it does without, and why: shown where a check is left out for that."""

    is_async: bool
    """Whether handlers are coroutine functions; otherwise plain functions that may block."""

    @abc.abstractmethod
    def sleep(self, call: Any, seconds: float) -> Any:
        """What a handler does to wait: returns what it awaits, or blocks.

        ``call`` is what the adapter has given to the handler. Where handlers are stopped by an
        exception, this is where it is raised.
        """

    @abc.abstractmethod
    def serve(
        self, app: App, *, graceful_timeout: float, **settings: Unpack[SubjectSettings]
    ) -> Running:
        """Serve the application over HTTP on a free port of 127.0.0.1; return when it can be used.

        ``graceful_timeout``: seconds that running calls get when the server stops.
        """

    @abc.abstractmethod
    def stdio_command(self) -> Sequence[str]:
        """A command that serves :func:`stdio_app` on stdio. Not asked without Feature.STDIO."""
