"""Something between a client and a server process that makes JSON-RPC batches of their messages.

Source: 2025-03-26, basic: Batching.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .simulator import World


class Gatherer:
    """Makes batches of the lines that come within a moment.

    Answers stand apart from requests and notifications, and what is a batch stays one.
    """

    def __init__(self, world: World, passes_on: Callable[[bytes], None]) -> None:
        self._world = world
        self._passes_on = passes_on
        self._lines: list[bytes] = []
        self._rest = b""

    def add(self, data: bytes, *, at_once: bool) -> None:
        """Take bytes; whole lines go on a moment later."""
        if at_once:
            self.flush()
            self._passes_on(data)
            return
        if not (self._lines or self._rest):
            self._world.clock.call_later(0.05, self.flush)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += lines

    def flush(self) -> None:
        """Pass on what there is."""
        lines, self._lines = self._lines, []
        rest, self._rest = self._rest, b""
        runs: list[tuple[str, list[bytes]]] = []
        for line in lines:
            kind = _kind_of(line)
            if not runs or kind in ("batch", "initialize") or runs[-1][0] != kind:
                runs.append((kind, []))
            runs[-1][1].append(line)
        for _, run in runs:
            if len(run) > 1:
                self._world.reach("batch of lines")
            self._passes_on((run[0] if len(run) == 1 else b"[" + b",".join(run) + b"]") + b"\n")
        if rest:
            self._passes_on(rest)


def _kind_of(line: bytes) -> str:
    if line.startswith(b"["):
        return "batch"
    message = json.loads(line)
    if message.get("method") == "initialize":
        return "initialize"
    return "message" if "method" in message else "answer"
