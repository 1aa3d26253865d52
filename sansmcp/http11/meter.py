"""The size of a message head, in the bytes that were sent."""

from __future__ import annotations

import attrs


@attrs.define(eq=False)
class HeadMeter:
    """Counts the bytes of a message head, up to its blank line, in whatever pieces they come."""

    _limit: int
    _count: int = 0
    _tail: bytes = b""
    _complete: bool = False

    def feed(self, data: bytes) -> bool:
        """Count a piece; False once the head is known to be larger than the limit."""
        if not self._complete:
            window = self._tail + data
            ends = [
                end + len(mark) for mark in (b"\n\n", b"\n\r\n") if (end := window.find(mark)) >= 0
            ]
            length = min(ends) if ends else len(window)
            self._count += length - len(self._tail)
            self._complete = bool(ends)
            self._tail = window[-2:]
        return self._count <= self._limit
