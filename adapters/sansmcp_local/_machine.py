"""A server machine with the clock and the randomness of this process, and its connections."""

from __future__ import annotations

import secrets
import time
from typing import Any, Protocol

import attrs

import sansmcp
from sansmcp import Idle
from sansmcp.drivers.store_checks import (
    has_secret,
    has_state_keys,
    is_async_store,
    is_durable,
)
from sansmcp.effects import ConnectionEffect, SendBytes
from sansmcp.errors import check_settings, instance_of_type
from sansmcp.types import Unpack

from ._options import options_of


class DriverSettings(sansmcp.ServerSettings, total=False):
    """The keyword arguments that make :class:`DriverOptions` and ServerOptions."""

    threads: int
    authenticate: sansmcp.Authenticator | None
    store: sansmcp.Store | sansmcp.AsyncStore | None


@attrs.frozen(kw_only=True)
class DriverOptions:
    """Settings of servers in all adapters, beside :class:`sansmcp.ServerOptions`.

    Attributes:
        threads: how many plain handlers run at a time, each in a thread; at least 1. Further calls
            wait for a free thread.
        authenticate: returns the principal of each HTTP request, from its head and what is known
            about its connection (:data:`sansmcp.Authenticator`). A plain function runs in a thread.
            None: all clients are the same principal.
        store: keeps event streams so that clients can resume them; None for a store in memory. With
            a durable one (``SqliteStore``), ``shared_store`` is True by default, and
            ``state_signer`` has the store's key. Event loops await the methods of an asynchronous
            store in tasks, and call those of a synchronous one in their own thread, where they must
            not block. If several processes serve one address, give all of them one
            ``SqliteStore``, or a ``state_signer`` with the same keys.
    """

    threads: int = attrs.field(default=32, validator=instance_of_type(int))
    authenticate: sansmcp.Authenticator | None = None
    store: sansmcp.Store | sansmcp.AsyncStore | None = None


@attrs.frozen
class ServerParts:
    """The machine, the store and the settings of a server in an adapter."""

    core: sansmcp.Server
    store: sansmcp.Store | sansmcp.AsyncStore
    """The store of the options, or one in memory."""
    options: DriverOptions


def server_parts(
    app: sansmcp.App, function: str = "serve", **settings: Unpack[DriverSettings]
) -> ServerParts:
    """Make the machine of a server and its store from the settings given to ``function``.

    Raises:
        TypeError: a setting is unknown. The error names ``function``.
        LocalProtocolError: the value of a setting is wrong.
    """
    known = DriverSettings.__optional_keys__ | {"graceful_timeout"}  # functions may take grace, too
    check_settings(settings, function, known, "a server")
    rest: dict[str, Any] = {**settings}
    options = options_of(DriverOptions, rest)
    core = new_server(app, options.store, authentication=options.authenticate is not None, **rest)
    store = sansmcp.MemoryStore(core.limits) if options.store is None else options.store
    return ServerParts(core, store, options)


def new_server(
    app: sansmcp.App,
    store: sansmcp.Store | sansmcp.AsyncStore | None,
    *,
    authentication: bool = False,
    **settings: Unpack[sansmcp.ServerSettings],
) -> sansmcp.Server:
    """Make the machine of an application; see :class:`sansmcp.ServerOptions` for the settings.

    For a store that outlives the process (``is_durable``), ``shared_store`` is True by default, so
    that sessions outlive the process, too. ``state_signer`` has the store's key by default, or a
    random one if the store has none. The store is not asked for its key if it is given.

    Raises:
        TypeError: ``store`` is not a store.
        ConnectionError: the store is a RedisStore that has to be asked, and Redis is out of reach.
        LocalProtocolError: ``shared_store`` is set, and there is no store, or no key that other
            processes know; or the value of a setting is wrong.
    """
    if store is not None:
        is_async_store(store)
    if settings.get("shared_store") and (
        store is None or not ("state_signer" in settings or has_secret(store))
    ):
        raise sansmcp.LocalProtocolError(
            "With shared_store=True set store and state_signer, both shared by all instances"
        )
    if settings.get("resumable", True) and is_durable(store):
        settings.setdefault("shared_store", True)
    settings.setdefault("wall_clock", time.time)
    if "state_signer" not in settings:
        key = store.secret if has_secret(store) else secrets.token_bytes(32)
        keys = store.state_keys if has_state_keys(store) else (key,)
        settings["state_signer"] = sansmcp.StateSigner(keys=keys, clock=time.time)
    return sansmcp.Server(
        app,
        new_token=secrets.token_urlsafe,
        authentication=authentication,
        **settings,
    )


class ByteConnection(Protocol):
    """The server's end of a connection, or of standard input and output: bytes in, bytes out.

    These are :class:`sansmcp.ServerConnection`, :class:`sansmcp.ServerPipe`, and that of HTTP/2.
    """

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed received bytes."""

    def receive_eof(self, *, now: float) -> None:
        """Report the end of the input."""

    def connection_lost(self, *, now: float) -> None:
        """Report that the connection is lost."""

    def next_effect(self) -> ConnectionEffect | Idle:
        """Return the next effect."""
        ...

    def next_deadline(self) -> float | None:
        """Return when to call :meth:`handle_timeout`; None for never."""
        ...

    def handle_timeout(self, *, now: float) -> None:
        """Handle a deadline that has passed."""


def pull(connection: ByteConnection) -> tuple[bytes, Idle | None]:
    """Return all that a connection has to send, and what it does next.

    Returns:
        The bytes: at most ``max_unsent_bytes`` of events, or one response. And ``Idle``, or None if
        the connection must be closed when they are sent.
    """
    pieces: list[bytes] = []
    while isinstance(effect := connection.next_effect(), SendBytes):
        pieces.append(effect.data)
    return b"".join(pieces), effect if isinstance(effect, Idle) else None
