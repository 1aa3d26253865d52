"""Client machines with the randomness and the known servers of this process."""

from __future__ import annotations

import os
import random
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

import sansmcp
from sansmcp.errors import check_settings
from sansmcp.types import Unpack

from ._options import options_of
from ._processes import process_arguments
from ._unix import check_unix_sockets

_KNOWN_SERVERS = sansmcp.KnownServers()


class ConnectSettings(sansmcp.ClientSettings, total=False):
    """The keyword arguments that make :class:`ConnectOptions` and ClientOptions."""

    ssl_context: ssl.SSLContext | None
    env: Mapping[str, str] | None
    inherit_env: bool
    cwd: str | os.PathLike[str] | None


@attrs.frozen(kw_only=True)
class ConnectOptions:
    """Settings of ``connect()`` in adapters that do the I/O, beside :class:`sansmcp.ClientOptions`.

    Attributes:
        ssl_context: the TLS context for an https server; None for the default context of the
            standard library.
        env: environment variables of a server process, in addition to HOME, LOGNAME, PATH, SHELL,
            TERM and USER of this process.
        inherit_env: True to pass all environment variables of this process to a server process.
        cwd: the working directory of a server process; None for that of this process.
    """

    ssl_context: ssl.SSLContext | None = None
    env: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    inherit_env: bool = False
    cwd: str | os.PathLike[str] | None = None


@attrs.frozen
class ClientParts:
    """The machine of a client, and what its adapter needs to connect."""

    core: sansmcp.Client
    ssl_context: ssl.SSLContext | None
    """The TLS context for https servers; None for the default one."""
    process: Mapping[str, Any]
    """Keyword arguments for ``Popen``, or a similar function, that starts a server process."""


def client_parts(target: str | Sequence[str], **settings: Unpack[ConnectSettings]) -> ClientParts:
    """Make the machine of a client, and what its adapter needs to connect.

    Raises:
        LocalProtocolError: the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    _check(settings, ConnectSettings)
    rest: dict[str, Any] = {**settings}
    options = options_of(ConnectOptions, rest)
    core = new_client(target, **rest)
    if isinstance(target, str) and sansmcp.Url.parse(target).socket_path is not None:
        check_unix_sockets()
    process = process_arguments(options.env, inherit_env=options.inherit_env, cwd=options.cwd)
    return ClientParts(core, options.ssl_context, process)


def new_client(
    target: str | Sequence[str], **settings: Unpack[sansmcp.ClientSettings]
) -> sansmcp.Client:
    """Make the machine of a client; see :class:`sansmcp.ClientOptions` for the settings.

    Unless ``known_servers`` is set, all clients of this process share one.

    Raises:
        LocalProtocolError: the target or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    _check(settings, sansmcp.ClientSettings)
    settings.setdefault("known_servers", _KNOWN_SERVERS)
    return sansmcp.Client(
        target,
        jitter=random.random,
        random_bytes=secrets.token_bytes,
        wall_clock=time.time,
        **settings,
    )


def _check(given: Mapping[str, object], settings: Any) -> None:
    known = settings.__optional_keys__ | {"request_handlers"}
    check_settings(given, "connect", known, "a client")
