"""The settings of ``serve()`` in all adapters, and the sockets and files that it opens."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import attrs

import sansmcp
from sansmcp.errors import check_delay, check_settings
from sansmcp.types import STDIO_V2, Unpack

from ._http2 import http2_connection
from ._listening import host_of_url, listen
from ._machine import ByteConnection, DriverSettings, ServerParts, server_parts
from ._options import options_of
from ._state_file import StateFile
from ._streams import StandardStreams
from ._unix import check_unix_sockets, listen_unix


class ServeSettings(DriverSettings, total=False):
    """The keyword arguments that make :class:`ServeOptions`, DriverOptions and ServerOptions."""

    http: tuple[str, int | range] | Sequence[socket.socket] | None
    unix: str | os.PathLike[str] | None
    ssl_context: ssl.SSLContext | None
    stdio: bool | Literal["v2"]
    stop_on_stdin_eof: bool | None
    lame_duck_timeout: float
    graceful_timeout: float
    state_file: str | os.PathLike[str] | None


def _check_delay(options: object, attribute: attrs.Attribute[float], seconds: float) -> None:
    check_delay(**{attribute.name: seconds})


def _check_unix(options: object, attribute: object, path: Any) -> None:
    if path is None:
        return
    check_unix_sockets()
    is_path = isinstance(path, str) or hasattr(path, "__fspath__")
    if not is_path or not os.fspath(path) or "\0" in os.fsdecode(path):
        raise sansmcp.LocalProtocolError(
            f"unix is the path of a Unix socket, such as '/run/user/1000/mcp.sock', got {path!r}"
        )


def _check_stdio(options: object, attribute: object, stdio: object) -> None:
    if stdio not in (True, False, "v2"):
        raise sansmcp.LocalProtocolError(f'stdio must be True, False or "v2", got {stdio!r}')


@attrs.frozen(kw_only=True)
class ServeOptions:
    """Settings of ``serve()`` in all adapters, beside DriverOptions and ServerOptions.

    Raises LocalProtocolError if none of ``http``, ``unix`` and ``stdio`` is set.

    Attributes:
        http: host and port to listen on, such as ``("127.0.0.1", 8000)``. Port 0 takes a free one,
            a range its first free one. Or a sequence of TCP sockets that listen already, such as
            those that several processes inherit; the server closes its own descriptors of them when
            it stops. None: do not serve on a port.
        unix: path of a Unix socket at which to serve HTTP without a port, alone or beside ``http``.
            Only the user of this process, and root, can connect (mode 0600). Without
            ``authenticate`` the principal of a client is its user, such as ``"uid:1000"``, if the
            system reports it. The file that a dead server has left there is replaced. None: no
            Unix socket.
        ssl_context: the TLS context to serve https with at ``http``; None to serve plain http.
        stdio: True to serve on standard input and output. A ``print`` goes to standard error until
            the server stops. ``"v2"`` to serve HTTP/2 there, for clients that are configured with
            ``stdio-v2``: a preview, which needs the extra ``http2``.
        stop_on_stdin_eof: True to stop when standard input ends; None to do so only without
            ``http`` and ``unix``.
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
    unix: str | os.PathLike[str] | None = attrs.field(default=None, validator=_check_unix)
    ssl_context: ssl.SSLContext | None = None
    stdio: bool | Literal["v2"] = attrs.field(default=False, validator=_check_stdio)
    stop_on_stdin_eof: bool | None = None
    lame_duck_timeout: float = attrs.field(default=0.0, validator=_check_delay)
    graceful_timeout: float = 5.0
    state_file: str | os.PathLike[str] | None = None

    def __attrs_post_init__(self) -> None:
        if not self.serves_http and not self.stdio:
            raise sansmcp.LocalProtocolError("Nothing to serve on: set http, unix or stdio")
        if self.ssl_context is not None and self.http is None:
            raise sansmcp.LocalProtocolError("ssl_context is for http, which is not set")

    @property
    def serves_http(self) -> bool:
        """True if the server serves HTTP, on a port or at a Unix socket."""
        return self.http is not None or self.unix is not None

    @property
    def shares_listeners(self) -> bool:
        """True if other processes may accept connections from the same sockets."""
        return self.http is not None and not isinstance(self.http[0], str)

    @property
    def ends_with_stdin(self) -> bool:
        """True if the server stops when standard input ends."""
        return not self.serves_http if self.stop_on_stdin_eof is None else self.stop_on_stdin_eof


@attrs.frozen
class Endpoint:
    """The URL, sockets and streams of a server that is open."""

    urls: tuple[str, ...]
    """The URLs of the MCP endpoint: that of ``http``, then that of ``unix``."""
    listeners: list[tuple[socket.socket, ssl.SSLContext | None]]
    """Sockets that listen already, and do not block, each with the TLS context of its connections.
    """
    streams: StandardStreams | None
    """Standard input and output; None if the server does not use them."""

    @property
    def url(self) -> str:
        """The first of :attr:`urls`; empty if the server does not serve HTTP."""
        return self.urls[0] if self.urls else ""


@attrs.frozen(kw_only=True)
class ServePlan:
    """A server that is configured and not open yet; :func:`serve_plan` makes it."""

    parts: ServerParts
    options: ServeOptions
    stdio_connection: Callable[..., ByteConnection]
    """Makes what serves standard input and output; see :class:`sansmcp.ServerPipe`."""

    @contextmanager
    def open(self) -> Generator[Endpoint, None, None]:
        """Listen, take standard input and output, and write the state file, until the block ends.

        Raises:
            OSError: the address cannot be bound, the Unix socket cannot be created, or the state
                file cannot be written.
            LocalProtocolError: ``http`` is not an address.
        """
        core, options = self.parts.core, self.options
        with ExitStack() as stack:
            listeners: list[tuple[socket.socket, ssl.SSLContext | None]] = []
            urls: list[str] = []
            if options.http is not None:
                ports = [stack.enter_context(listener) for listener in listen(options.http)]
                listeners += [(listener, options.ssl_context) for listener in ports]
                scheme = "http" if options.ssl_context is None else "https"
                host, port, *_ = ports[0].getsockname()
                if isinstance(options.http[0], str):
                    host = options.http[0]
                urls.append(str(sansmcp.Url(scheme, host_of_url(host), port, core.path)))
            path = None if options.unix is None else os.path.abspath(options.unix)
            if path is not None:
                listeners.append((stack.enter_context(listen_unix(path)), None))
                urls.append(str(sansmcp.Url.of_socket(path, core.path)))
            streams = stack.enter_context(StandardStreams()) if options.stdio else None
            endpoint = Endpoint(tuple(urls), listeners, streams)
            if options.state_file is not None:
                is_v1 = options.stdio is True
                transports = core.transports(http=options.serves_http, stdio=is_v1)
                if options.stdio and not is_v1:
                    transports += (STDIO_V2,)
                stack.enter_context(
                    StateFile(
                        options.state_file, url=endpoint.url, unix=path, transports=transports
                    )
                )
            yield endpoint


def serve_plan(app: sansmcp.App, **settings: Unpack[ServeSettings]) -> ServePlan:
    """Make the server of a call of ``serve()``, and open nothing yet.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
        ImportError: the extra for stdio-v2 is missing.
    """
    if "host" in settings or "port" in settings:
        raise TypeError("serve() has no host= and port=; pass http=(HOST, PORT)")
    check_settings(settings, "serve", ServeSettings.__optional_keys__, "a server")
    rest: dict[str, Any] = {**settings}
    options = options_of(ServeOptions, rest)
    kind = http2_connection() if options.stdio == "v2" else sansmcp.ServerPipe
    connection = partial(kind, graceful_timeout=options.graceful_timeout)
    return ServePlan(parts=server_parts(app, **rest), options=options, stdio_connection=connection)
