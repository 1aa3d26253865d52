"""Sockets, without waiting."""

from __future__ import annotations

import select
import sys


def is_readable(descriptor: int) -> bool:
    """Whether something has come on a socket, or its end, and nobody has read it."""
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
