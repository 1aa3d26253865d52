"""A server machine with the clock and the randomness of this process, and its connections."""

from __future__ import annotations

import secrets
import time
from typing import Any

import attrs

import sansmcp
from sansmcp import Idle
from sansmcp.drivers.store_checks import check_synchronous, has_secret, is_durable
from sansmcp.effects import SendBytes
from sansmcp.errors import check_settings, instance_of_type
from sansmcp.types import Unpack

from ._options import options_of


class DriverSettings(sansmcp.ServerSettings, total=False):
    """The keyword arguments that make :class:`DriverOptions` and ServerOptions."""

    threads: int
    authenticate: sansmcp.Authenticator | None
    store: sansmcp.Store | None


@attrs.frozen(kw_only=True)
class DriverOptions:
    """What servers take in all adapters, beside :class:`sansmcp.ServerOptions`.

    Attributes:
        threads: how many plain handlers run at a time, each in a thread; further calls wait for
            their turn.
        authenticate: says who makes each request, from its head and what is known of its
            connection (:data:`sansmcp.Authenticator`). A plain function runs in a thread. None: all
            clients are the same.
        store: where streams are kept for clients that come back; None: in memory. One that outlives
            the process (``SqliteStore``) is shared, and brings the key of ``seal``, unless the
            settings say otherwise. Its methods must not be async; event loops call them in their
            own thread. Where several processes serve one address, give all of them one
            ``SqliteStore``; or set ``seal`` to the same keys.
    """

    threads: int = attrs.field(default=32, validator=instance_of_type(int))
    authenticate: sansmcp.Authenticator | None = None
    store: sansmcp.Store | None = None


@attrs.frozen
class ServerParts:
    """What a server in any adapter is made of."""

    core: sansmcp.Server
    store: sansmcp.Store
    """That of the options, or one in memory."""
    options: DriverOptions


def server_parts(
    app: sansmcp.App, function: str = "serve", **settings: Unpack[DriverSettings]
) -> ServerParts:
    """Make the machine of a server and its store from the settings given to ``function``.

    Raises TypeError for an unknown setting, and what :func:`new_server` raises.
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
    store: sansmcp.Store | None,
    *,
    authentication: bool = False,
    **settings: Unpack[sansmcp.ServerSettings],
) -> sansmcp.Server:
    """Make the machine of an application; see :class:`sansmcp.ServerOptions` for the settings.

    A store that outlives the process (``is_durable``) is shared unless ``shared_store`` says
    otherwise, so that sessions outlive the process, too. The seal has the store's key by default,
    or one that this process makes for itself. Raises LocalProtocolError if a store is to be shared
    that is not given, or without a key that others know.
    """
    if store is not None:
        check_synchronous(store)
    if settings.get("shared_store") and (
        store is None or not ("state_signer" in settings or has_secret(store))
    ):
        raise sansmcp.LocalProtocolError("With shared_store set store and seal, which are shared")
    if settings.get("resumable", True) and is_durable(store):
        settings.setdefault("shared_store", True)
    key = store.secret if has_secret(store) else secrets.token_bytes(32)
    settings.setdefault("state_signer", sansmcp.StateSigner(keys=(key,), clock=time.time))
    return sansmcp.Server(
        app,
        new_token=secrets.token_urlsafe,
        authentication=authentication,
        **settings,
    )


def pull(connection: sansmcp.ServerConnection | sansmcp.ServerPipe) -> tuple[bytes, Idle | None]:
    """All that a connection has to send, in one piece, and what then: None means to close it.

    What is to be sent is no more than ``max_unsent_bytes`` of events, or one answer.
    """
    pieces: list[bytes] = []
    while isinstance(effect := connection.next_effect(), SendBytes):
        pieces.append(effect.data)
    return b"".join(pieces), effect if isinstance(effect, Idle) else None
