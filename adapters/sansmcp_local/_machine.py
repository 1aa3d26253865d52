"""A server machine with the clock and the randomness of this process, and its connections."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import sansmcp
from sansmcp import Idle
from sansmcp.effects import SendBytes

if TYPE_CHECKING:
    from typing_extensions import Unpack


def new_server(
    app: sansmcp.App,
    store: sansmcp.Store | None,
    *,
    resumable: bool,
    **settings: Unpack[sansmcp.ServerSettings],
) -> sansmcp.Server:
    """Make the machine of an application; see :class:`sansmcp.Server` for the settings.

    Without a store, and unless ``seal`` is set, what is kept is for this process alone. Raises
    LocalProtocolError if it is to be shared nevertheless.
    """
    if settings.get("shared_store") and (store is None or "seal" not in settings):
        raise sansmcp.LocalProtocolError("With shared_store set store and seal, which are shared")
    seal = sansmcp.StateSeal(keys=(secrets.token_bytes(32),), clock=time.time)
    settings.setdefault("seal", seal)
    return sansmcp.Server(app, new_token=secrets.token_urlsafe, resumable=resumable, **settings)


def pull(connection: sansmcp.ServerConnection | sansmcp.ServerPipe) -> tuple[bytes, Idle | None]:
    """All that a connection has to send, in one piece, and what then: None means to close it.

    What is to be sent is no more than ``max_unsent_bytes`` of events, or one answer.
    """
    pieces: list[bytes] = []
    while isinstance(effect := connection.next_effect(), SendBytes):
        pieces.append(effect.data)
    return b"".join(pieces), effect if isinstance(effect, Idle) else None
