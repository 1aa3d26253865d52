"""Faults of a network by seed: the cuts and delays of the k-th connection.

Every decision is drawn from the seed and the number of the connection, each kind of fault from a
generator of its own. So the same seed cuts the k-th connection after the same byte, whatever other
faults are chosen, and however its bytes are split into pieces.

This module has no I/O and no clock: ``SeededFate`` decides, and the proxy performs it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import attrs

from ._fault_proxy import Ending, Piece, Way

_FRAGMENT_PAUSE = 0.001
"""Seconds between two fragments, long enough that the receiver reads them one by one."""
_SLICES = 10
"""Pieces in a second at a limited rate."""
_LARGEST = 1 << 30
"""Bytes of a piece without a limit: more than are read at once."""


@attrs.frozen
class Mean:
    """The mean amount of time or bytes after which a fault happens to a connection."""

    amount: float
    is_time: bool
    """True: seconds since the connection was opened; False: bytes of either direction."""

    def __str__(self) -> str:
        return f"{self.amount:g} {'s' if self.is_time else 'bytes'}"


@attrs.frozen(kw_only=True)
class Faults:
    """The faults of a network; None for one that does not happen."""

    cut: Mean | None = None
    """When connections are cut, half of them by a reset."""
    silence: Mean | None = None
    """When connections fall silent."""
    delay: float | None = None
    """Mean of the seconds by which bytes are delayed."""
    slow: int | None = None
    """Bytes per second that pass in each direction."""
    fragments: int | None = None
    """Mean of the bytes of a piece."""

    def __str__(self) -> str:
        parts = {
            "cut after {} (mean)": self.cut,
            "silence after {} (mean)": self.silence,
            "delay {:g} s (mean)": self.delay,
            "{} bytes/s": self.slow,
            "fragments of {} bytes (mean)": self.fragments,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


class _Lane:
    """One direction of a connection."""

    def __init__(self, faults: Faults, seed: int, number: int, way: Way) -> None:
        def draws(fault: str) -> random.Random:
            return random.Random(f"{seed}/{number}/{fault} {way.value}")

        self._faults = faults
        self._delays, self._sizes = draws("delay"), draws("fragments")
        ends: list[tuple[int, Ending]] = [
            (1 + int(draws(name).expovariate(1 / mean.amount)), ending)
            for name, ending, mean in _endings(faults, seed, number)
            if not mean.is_time
        ]
        self._left: int | None
        self._ending: Ending | None
        self._left, self._ending = min(ends, key=_first, default=(None, None))

    def pieces(self, data: bytes) -> Iterable[Piece]:
        ending = None
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            ending = None if self._left else self._ending
        faults = self._faults
        latency = self._delays.expovariate(1 / faults.delay) if faults.delay else 0.0
        pause, start = 0.0, 0
        while start < len(data):
            piece = data[start : start + self._size()]
            start += len(piece)
            if faults.slow is not None:
                pause = max(pause, len(piece) / faults.slow)
            yield Piece(piece, latency, pause, ending if start == len(data) else None)
            latency, pause = 0.0, _FRAGMENT_PAUSE

    def _size(self) -> int:
        size = _LARGEST
        if self._faults.fragments is not None:
            size = self._sizes.randint(1, 2 * self._faults.fragments - 1)
        if self._faults.slow is not None:
            size = min(size, max(self._faults.slow // _SLICES, 1))
        return size


class SeededFate:
    """The fate of the ``number``-th connection, drawn from the faults and the seed."""

    def __init__(self, faults: Faults, seed: int, number: int) -> None:
        self._lanes = {way: _Lane(faults, seed, number, way) for way in Way}
        ends = [
            (random.Random(f"{seed}/{number}/{name}").expovariate(1 / mean.amount), ending)
            for name, ending, mean in _endings(faults, seed, number)
            if mean.is_time
        ]
        self.end_by_time = min(ends, key=_first, default=None)

    def pieces(self, way: Way, data: bytes) -> Iterable[Piece]:
        """Return the pieces of bytes that were read."""
        return self._lanes[way].pieces(data)


def _first(end: tuple[float, Ending]) -> float:
    return end[0]


def _endings(faults: Faults, seed: int, number: int) -> Iterable[tuple[str, Ending, Mean]]:
    """Yield the faults that end this connection: name, ending and mean."""
    if faults.cut is not None:
        how = random.Random(f"{seed}/{number}/how").choice((Ending.CLOSE, Ending.RESET))
        yield "cut", how, faults.cut
    if faults.silence is not None:
        yield "silence", Ending.SILENCE, faults.silence
