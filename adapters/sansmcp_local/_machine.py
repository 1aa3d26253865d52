"""A server machine with the clock and the randomness of this process."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import sansmcp

if TYPE_CHECKING:
    from typing_extensions import Unpack


def new_server(
    app: sansmcp.App, *, resumable: bool, **settings: Unpack[sansmcp.ServerSettings]
) -> sansmcp.Server:
    """Make the machine of an application; see :class:`sansmcp.Server` for the settings.

    Unless ``seal`` is set, what handlers save is for this process alone.
    """
    seal = sansmcp.StateSeal(keys=(secrets.token_bytes(32),), clock=time.time)
    settings.setdefault("seal", seal)
    return sansmcp.Server(app, new_token=secrets.token_urlsafe, resumable=resumable, **settings)
