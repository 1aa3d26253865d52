"""The levels of log messages that the clients of the handshake revisions have set.

At 2026-07-28 each request names its level, and the core sends no message below it.

Source: 2024-11-05 to 2025-11-25, server/utilities/logging.
"""

from __future__ import annotations

from typing import Any

from sansmcp import BaseCall, JsonRpcError, PeerHandle
from sansmcp.codecs.jsonrpc import INVALID_PARAMS
from sansmcp.meta_keys import LEVELS

_MOST = 10_000
"""Sessions whose level is kept; the oldest level is forgotten, and all messages are sent."""


class LogLevels:
    """The level of each session that has set one."""

    def __init__(self) -> None:
        self._levels: dict[PeerHandle[Any], int] = {}

    def set(self, call: BaseCall[Any, Any]) -> dict[str, Any]:
        """Handle ``logging/setLevel``."""
        level = call.params.get("level")
        if level not in LEVELS:
            raise JsonRpcError(INVALID_PARAMS, f"level must be one of {', '.join(LEVELS)}")
        self._levels.pop(call.peer, None)
        while len(self._levels) >= _MOST:
            del self._levels[next(iter(self._levels))]
        self._levels[call.peer] = LEVELS.index(level)
        return {}

    def includes(self, call: BaseCall[Any, Any], level: str) -> bool:
        """True if the client of a call wants messages of a level."""
        return LEVELS.index(level) >= self._levels.get(call.peer, 0)
