"""Client machines with the randomness and the known servers of this process."""

from __future__ import annotations

import os
import random
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Literal

import attrs

import sansmcp
from sansmcp.client.options import command_of
from sansmcp.errors import check_settings, check_type
from sansmcp.http11.message_parser import parser_of
from sansmcp.http11.proxy import Proxies
from sansmcp.types import PIPE_TRANSPORTS, STDIO_V2, Unpack, Value, hide_credentials

from ._http2 import pipe_client
from ._log import with_debug_log
from ._options import options_of
from ._processes import command_on_windows, process_arguments
from ._tls import FilePath, tls_context
from ._unix import check_unix_sockets

_KNOWN_SERVERS = sansmcp.KnownServers()

ENVIRONMENT = "environment"
"""The value of the setting ``proxy`` that leaves it to the environment variables."""


class ConnectSettings(sansmcp.ClientSettings, total=False):
    """The keyword arguments that make :class:`ConnectOptions` and ClientOptions."""

    ssl_context: ssl.SSLContext | None
    ca_file: FilePath | None
    cert: FilePath | tuple[FilePath, FilePath] | None
    proxy: str | None
    env: Mapping[str, str] | None
    inherit_env: bool
    cwd: str | os.PathLike[str] | None
    transport: Literal["stdio", "stdio-v2"] | None


def _check_transport(options: object, attribute: object, transport: object) -> None:
    if transport not in (None, *PIPE_TRANSPORTS):
        raise sansmcp.LocalProtocolError(
            f"transport must be {', '.join(map(repr, PIPE_TRANSPORTS))} or None, got {transport!r}"
        )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConnectOptions(Value):
    """Settings of ``connect()`` in adapters that do the I/O, beside :class:`sansmcp.ClientOptions`.

    Attributes:
        ssl_context: the TLS context for an https server; None for the default context of the
            standard library. It trusts the authorities of the system, or those that the environment
            variables SSL_CERT_FILE and SSL_CERT_DIR name.
        ca_file: a file of certificates in PEM: authorities to trust, too, such as that of a
            company. None for no further ones.
        cert: the client's own certificate, if servers ask for one: a PEM file with the certificate
            and its key, or a pair of files. The key must have no password. None for no certificate.
        proxy: the URL of an HTTP proxy for all hosts but this machine, such as
            ``"http://USER:PASSWORD@proxy.example:3128"``; ``"environment"`` for those that the
            environment variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name; None to use
            no proxy.
        env: environment variables of a server process, in addition to HOME, LOGNAME, PATH, SHELL,
            TERM and USER of this process.
        inherit_env: True to pass all environment variables of this process to a server process.
        cwd: the working directory of a server process; None for that of this process.
        transport: what a server process speaks on its pipes. ``"stdio"``, or None: lines of JSON.
            ``"stdio-v2"``: HTTP/2, a preview, which needs the extra ``http2``. The process must be
            started so that it speaks the same; ``sansmcp serve --stdio-v2`` does.
    """

    ssl_context: ssl.SSLContext | None = None
    ca_file: FilePath | None = None
    cert: FilePath | tuple[FilePath, FilePath] | None = None
    proxy: str | None = attrs.field(
        default=ENVIRONMENT, repr=lambda proxy: "None" if proxy is None else hide_credentials(proxy)
    )
    env: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    inherit_env: bool = False
    cwd: str | os.PathLike[str] | None = None
    transport: Literal["stdio", "stdio-v2"] | None = attrs.field(
        default=None, validator=_check_transport
    )


@attrs.frozen(eq=False, repr=False)
class ClientParts(Value):
    """The machine of a client, and what its adapter needs to connect."""

    core: sansmcp.Client
    ssl_context: ssl.SSLContext | None
    """The TLS context for https servers; None for the default one."""
    proxies: Proxies | None
    """The proxies of the client; None if all its connections are direct."""
    process: Mapping[str, Any]
    """Keyword arguments for ``Popen``, or a similar function, that starts a server process."""


def client_parts(target: str | Sequence[str], **settings: Unpack[ConnectSettings]) -> ClientParts:
    """Make the machine of a client, and what its adapter needs to connect.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
        ImportError: the extra for stdio-v2 is missing.
    """
    _check(settings, ConnectSettings)
    rest: dict[str, Any] = {**settings}
    options = options_of(ConnectOptions, rest)
    process = process_arguments(options.env, inherit_env=options.inherit_env, cwd=options.cwd)
    if not isinstance(target, str) and sys.platform == "win32":
        target = command_on_windows(command_of(target), process["env"])
    if isinstance(target, str) and options.transport is not None:
        raise sansmcp.LocalProtocolError(
            "transport is for a command, which starts a server process; for a URL set transports"
        )
    kind = pipe_client() if options.transport == STDIO_V2 else sansmcp.Client
    core = _new_client(kind, target, **rest)
    if isinstance(target, str):
        parser_of(core.http11)  # is imported here, and not by the first connection
        if sansmcp.Url.parse(target).socket_path is not None:
            check_unix_sockets()
    context = tls_context(options.ssl_context, options.ca_file, options.cert)
    return ClientParts(core, context, proxies_of(options.proxy), process)


def proxies_of(proxy: str | None) -> Proxies | None:
    """Return the proxies that a setting names. Raises LocalProtocolError."""
    check_type((str, NoneType), proxy=proxy)
    if proxy is None:
        return None
    return Proxies.from_environment(os.environ) if proxy == ENVIRONMENT else Proxies.of(proxy)


def new_client(
    target: str | Sequence[str], **settings: Unpack[sansmcp.ClientSettings]
) -> sansmcp.Client:
    """Make the machine of a client; see :class:`sansmcp.ClientOptions` for the settings.

    Unless ``known_servers`` is set, all clients of this process share one. What the client sends
    and receives is logged if the logger ``sansmcp`` has the level DEBUG.

    Raises:
        LocalProtocolError: the target or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    _check(settings, sansmcp.ClientSettings)
    return _new_client(sansmcp.Client, target, **settings)


def _new_client(
    kind: Callable[..., sansmcp.Client],
    target: str | Sequence[str],
    **settings: Unpack[sansmcp.ClientSettings],
) -> sansmcp.Client:
    settings.setdefault("known_servers", _KNOWN_SERVERS)
    settings["observer"] = with_debug_log(settings.get("observer"))
    return kind(
        target,
        jitter=random.random,
        random_bytes=os.urandom,
        wall_clock=time.time,
        **settings,
    )


def _check(given: Mapping[str, object], settings: Any) -> None:
    known = settings.__optional_keys__ | {"request_handlers"}
    check_settings(given, "connect", known, "a client")
