"""A client machine with the randomness of this process, and what its clients have found out."""

from __future__ import annotations

import random
from collections.abc import Sequence

import sansmcp
from sansmcp.errors import check_settings
from sansmcp.types import Unpack

_VERDICTS = sansmcp.Verdicts()


def new_client(
    target: str | Sequence[str], **settings: Unpack[sansmcp.ClientSettings]
) -> sansmcp.Client:
    """Make the machine of a client; see :class:`sansmcp.ClientOptions` for the settings.

    Unless ``verdicts`` is set, all clients of this process share one. Raises TypeError for an
    unknown setting.
    """
    check_settings(settings, "connect", sansmcp.ClientSettings.__optional_keys__, "a client")
    settings.setdefault("verdicts", _VERDICTS)
    return sansmcp.Client(target, jitter=random.random, **settings)
