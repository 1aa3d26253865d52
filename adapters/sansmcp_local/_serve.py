"""The settings of ``serve()`` in all adapters, and what it opens."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from inspect import cleandoc
from typing import Any, TypeVar

import attrs

import sansmcp
from sansmcp.types import Unpack

from ._listening import listen
from ._machine import HostSettings, ServerParts, server_parts
from ._state_file import StateFile
from ._streams import StandardStreams

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ServeSettings(HostSettings, total=False):
    """The settings of ``serve()`` in all adapters, beside those of :class:`HostSettings`.

    Attributes:
        http: host and port to listen on; port 0 takes a free one, a range its first free one.
        ssl_context: serve https with this.
        stdio: serve on standard input and output (blocking: not on Windows). A ``print`` goes to
            standard error until the server stops. Default: False.
        stop_with_stdin: stop when standard input ends; by default where there is no HTTP.
        grace: seconds that running calls get when the server stops, or standard input has ended.
            Default: 5.
        state_file: a file that tells other processes where this server is, as long as it runs
            (:func:`sansmcp_local.read_state`).
    """

    http: tuple[str, int | range] | None
    ssl_context: ssl.SSLContext | None
    stdio: bool
    stop_with_stdin: bool | None
    grace: float
    state_file: str | os.PathLike[str] | None


def explains(*settings: type) -> Callable[[_Function], _Function]:
    """Append the explanations of settings to the docstring of a function, for ``help()``."""

    def explain(function: _Function) -> _Function:
        if function.__doc__ is not None:  # python -OO keeps none
            function.__doc__ = "\n\n".join(
                cleandoc(documented.__doc__ or "") for documented in (function, *settings)
            )
        return function

    return explain


@attrs.frozen
class Endpoint:
    """What a server has opened."""

    url: str
    """Where the MCP endpoint is; empty if there is no HTTP."""
    listeners: list[socket.socket]
    """They listen already, and do not block."""
    streams: StandardStreams | None
    """Standard input and output, if the server uses them."""


@attrs.frozen(kw_only=True)
class ServePlan:
    """What a call of ``serve()`` asks for; :func:`serve_plan` makes it."""

    parts: ServerParts
    http: tuple[str, int | range] | None
    ssl_context: ssl.SSLContext | None
    stdio: bool
    ends_with_stdin: bool
    grace: float
    state_file: str | os.PathLike[str] | None

    @contextmanager
    def open(self) -> Generator[Endpoint, None, None]:
        """Listen, take standard input and output, and write the state file, until the block ends.

        Raises OSError if the address cannot be bound or the file not be written, and
        LocalProtocolError for what is no address.
        """
        core = self.parts.core
        with ExitStack() as stack:
            listeners: list[socket.socket] = []
            url = ""
            if self.http is not None:
                listeners = [stack.enter_context(listener) for listener in listen(self.http)]
                scheme = "http" if self.ssl_context is None else "https"
                port = listeners[0].getsockname()[1]
                url = str(sansmcp.Url(scheme, self.http[0], port, core.path))
            streams = stack.enter_context(StandardStreams()) if self.stdio else None
            if self.state_file is not None:
                transports = core.transports(http=self.http is not None, stdio=self.stdio)
                stack.enter_context(StateFile(self.state_file, url=url, transports=transports))
            yield Endpoint(url, listeners, streams)


def serve_plan(
    app: sansmcp.App,
    *,
    http: tuple[str, int | range] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    stdio: bool = False,
    stop_with_stdin: bool | None = None,
    grace: float = 5.0,
    state_file: str | os.PathLike[str] | None = None,
    **settings: Unpack[HostSettings],
) -> ServePlan:
    """Make the server of a call of ``serve()``, and open nothing yet.

    Raises LocalProtocolError for settings that make no sense, and TypeError for unknown ones.
    """
    if http is None and not stdio:
        raise sansmcp.LocalProtocolError("Nothing to serve on: set http, stdio, or both")
    return ServePlan(
        parts=server_parts(app, **settings),
        http=http,
        ssl_context=ssl_context,
        stdio=stdio,
        ends_with_stdin=http is None if stop_with_stdin is None else stop_with_stdin,
        grace=grace,
        state_file=state_file,
    )
