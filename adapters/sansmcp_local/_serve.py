"""The settings of ``serve()`` in all adapters, and the sockets and files that it opens."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

import sansmcp
from sansmcp.errors import check_delay, check_settings
from sansmcp.types import Unpack

from ._listening import listen
from ._machine import DriverSettings, ServerParts, server_parts
from ._options import options_of
from ._state_file import StateFile
from ._streams import StandardStreams


class ServeSettings(DriverSettings, total=False):
    """The keyword arguments that make :class:`ServeOptions`, DriverOptions and ServerOptions."""

    http: tuple[str, int | range] | Sequence[socket.socket] | None
    ssl_context: ssl.SSLContext | None
    stdio: bool
    stop_on_stdin_eof: bool | None
    lame_duck_timeout: float
    graceful_timeout: float
    state_file: str | os.PathLike[str] | None


def _check_delay(options: object, attribute: attrs.Attribute[float], seconds: float) -> None:
    check_delay(**{attribute.name: seconds})


@attrs.frozen(kw_only=True)
class ServeOptions:
    """Settings of ``serve()`` in all adapters, beside DriverOptions and ServerOptions.

    Raises LocalProtocolError if neither ``http`` nor ``stdio`` is set.

    Attributes:
        http: host and port to listen on, such as ``("127.0.0.1", 8000)``. Port 0 takes a free one,
            a range its first free one. Or a sequence of TCP sockets that listen already, such as
            those that several processes inherit; the server closes its own descriptors of them when
            it stops. None: do not serve HTTP.
        ssl_context: the TLS context to serve https with; None to serve plain http.
        stdio: True to serve on standard input and output (``sansmcp_blocking``: not on Windows). A
            ``print`` goes to standard error until the server stops.
        stop_on_stdin_eof: True to stop when standard input ends; None to do so only without
            ``http``.
        lame_duck_timeout: seconds between a stop and the refusal of new calls. Everything is still
            served meanwhile, but the answer at ``health_path`` has status 503, and each
            response closes its connection, so that load balancers and clients go elsewhere. A
            server with sockets in ``http``, from which others may accept, accepts no connection in
            that time, which ends early if no connection is left.
        graceful_timeout: seconds that running calls get to finish when the server stops, or
            standard input ends.
        state_file: path of a file from which other processes learn the URL while this server runs
            (:func:`sansmcp_local.read_state`).
    """

    http: tuple[str, int | range] | Sequence[socket.socket] | None = None
    ssl_context: ssl.SSLContext | None = None
    stdio: bool = False
    stop_on_stdin_eof: bool | None = None
    lame_duck_timeout: float = attrs.field(default=0.0, validator=_check_delay)
    graceful_timeout: float = 5.0
    state_file: str | os.PathLike[str] | None = None

    def __attrs_post_init__(self) -> None:
        if self.http is None and not self.stdio:
            raise sansmcp.LocalProtocolError("Nothing to serve on: set http, stdio, or both")

    @property
    def shares_listeners(self) -> bool:
        """True if other processes may accept connections from the same sockets."""
        return self.http is not None and not isinstance(self.http[0], str)

    @property
    def ends_with_stdin(self) -> bool:
        """True if the server stops when standard input ends."""
        return self.http is None if self.stop_on_stdin_eof is None else self.stop_on_stdin_eof


@attrs.frozen
class Endpoint:
    """The URL, sockets and streams of a server that is open."""

    url: str
    """The URL of the MCP endpoint; empty if the server does not serve HTTP."""
    listeners: list[socket.socket]
    """Sockets that listen already, and do not block."""
    streams: StandardStreams | None
    """Standard input and output; None if the server does not use them."""


@attrs.frozen(kw_only=True)
class ServePlan:
    """A server that is configured and not open yet; :func:`serve_plan` makes it."""

    parts: ServerParts
    options: ServeOptions

    @contextmanager
    def open(self) -> Generator[Endpoint, None, None]:
        """Listen, take standard input and output, and write the state file, until the block ends.

        Raises:
            OSError: the address cannot be bound, or the state file cannot be written.
            LocalProtocolError: ``http`` is not an address.
        """
        core, options = self.parts.core, self.options
        with ExitStack() as stack:
            listeners: list[socket.socket] = []
            url = ""
            if options.http is not None:
                listeners = [stack.enter_context(listener) for listener in listen(options.http)]
                scheme = "http" if options.ssl_context is None else "https"
                host, port, *_ = listeners[0].getsockname()
                if isinstance(options.http[0], str):
                    host = options.http[0]
                url = str(sansmcp.Url(scheme, host, port, core.path))
            streams = stack.enter_context(StandardStreams()) if options.stdio else None
            if options.state_file is not None:
                transports = core.transports(http=options.http is not None, stdio=options.stdio)
                stack.enter_context(StateFile(options.state_file, url=url, transports=transports))
            yield Endpoint(url, listeners, streams)


def serve_plan(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> ServePlan:
    """Make the server of a call of ``serve()``, and open nothing yet.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    check_settings(settings, "serve", ServeSettings.__optional_keys__, "a server")
    rest: dict[str, Any] = {**settings}
    options = options_of(ServeOptions, rest)
    return ServePlan(parts=server_parts(app, **rest), options=options)
