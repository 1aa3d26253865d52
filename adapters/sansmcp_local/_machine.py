"""A server machine with the clock and the randomness of this process, and its connections."""

from __future__ import annotations

import secrets
import time

import sansmcp
from sansmcp import Idle
from sansmcp.effects import SendBytes
from sansmcp.hosting.stores import check_synchronous, has_secret, is_durable
from sansmcp.types import Unpack

from ._settings import check_settings

_OF_ADAPTERS = {"authenticate", "grace", "resumable", "store", "threads"}
"""What every adapter takes beside the settings of the machine."""


def new_server(
    app: sansmcp.App,
    store: sansmcp.Store | None,
    *,
    resumable: bool,
    authentication: bool = False,
    function: str = "serve",
    **settings: Unpack[sansmcp.ServerSettings],
) -> sansmcp.Server:
    """Make the machine of an application; see :class:`sansmcp.Server` for the settings.

    A store that outlives the process (``is_durable``) is shared unless ``shared_store`` says
    otherwise, so that sessions outlive the process, too. The seal has the store's key by default,
    or one that this process makes for itself. Raises LocalProtocolError if a store is to be shared
    that is not given, or without a key that others know, and TypeError for an unknown setting of
    ``function``.
    """
    known = sansmcp.ServerSettings.__optional_keys__
    check_settings(settings, function, known | _OF_ADAPTERS, "a server")
    if store is not None:
        check_synchronous(store)
    if settings.get("shared_store") and (
        store is None or not ("seal" in settings or has_secret(store))
    ):
        raise sansmcp.LocalProtocolError("With shared_store set store and seal, which are shared")
    if resumable and is_durable(store):
        settings.setdefault("shared_store", True)
    key = store.secret if has_secret(store) else secrets.token_bytes(32)
    settings.setdefault("seal", sansmcp.StateSeal(keys=(key,), clock=time.time))
    return sansmcp.Server(
        app,
        new_token=secrets.token_urlsafe,
        resumable=resumable,
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
