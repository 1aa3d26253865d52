"""A client machine with the randomness of this process, and what its clients have found out."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

import sansmcp
from sansmcp.errors import check_settings
from sansmcp.types import Unpack

from ._options import options_of
from ._processes import process_arguments

_KNOWN_SERVERS = sansmcp.KnownServers()


class ConnectSettings(sansmcp.ClientSettings, total=False):
    """The keyword arguments that make :class:`ConnectOptions` and ClientOptions."""

    ssl_context: ssl.SSLContext | None
    env: Mapping[str, str] | None
    inherit_env: bool
    cwd: str | os.PathLike[str] | None


@attrs.frozen(kw_only=True)
class ConnectOptions:
    """What ``connect()`` takes in adapters that do the I/O, beside :class:`sansmcp.ClientOptions`.

    Attributes:
        ssl_context: how to verify an https server; None: as the standard library does by default.
        env: environment variables of a server process, beside HOME, LOGNAME, PATH, SHELL, TERM and
            USER of this one.
        inherit_env: give a server process all environment variables of this one.
        cwd: the directory in which a server process runs; None: that of this one.
    """

    ssl_context: ssl.SSLContext | None = None
    env: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    inherit_env: bool = False
    cwd: str | os.PathLike[str] | None = None


@attrs.frozen
class ClientParts:
    """What a client in an adapter is made of."""

    core: sansmcp.Client
    ssl_context: ssl.SSLContext | None
    """What https servers are verified with."""
    process: Mapping[str, Any]
    """The keyword arguments of ``Popen``, and of what resembles it, for a server process."""


def client_parts(target: str | Sequence[str], **settings: Unpack[ConnectSettings]) -> ClientParts:
    """Make the machine of a client, and what its adapter needs to connect.

    Raises LocalProtocolError for settings that make no sense, and TypeError for unknown ones.
    """
    _check(settings, ConnectSettings)
    rest: dict[str, Any] = {**settings}
    options = options_of(ConnectOptions, rest)
    process = process_arguments(options.env, inherit_env=options.inherit_env, cwd=options.cwd)
    return ClientParts(new_client(target, **rest), options.ssl_context, process)


def new_client(
    target: str | Sequence[str], **settings: Unpack[sansmcp.ClientSettings]
) -> sansmcp.Client:
    """Make the machine of a client; see :class:`sansmcp.ClientOptions` for the settings.

    Unless ``known_servers`` is set, all clients of this process share one. Raises TypeError for an
    unknown setting.
    """
    _check(settings, sansmcp.ClientSettings)
    settings.setdefault("known_servers", _KNOWN_SERVERS)
    return sansmcp.Client(target, jitter=random.random, **settings)


def _check(given: Mapping[str, object], settings: Any) -> None:
    known = settings.__optional_keys__ | {"request_handlers"}
    check_settings(given, "connect", known, "a client")
