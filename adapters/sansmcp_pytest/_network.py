"""The simulated network: connections with latency, and faults."""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import attrs

from ._time import VirtualLoop

KINDS = ("refuse", "cut", "silence", "delay")
"""The kinds of faults."""

_MOST_BYTES = 2000
"""The largest number of bytes between two faults: a few requests and responses."""

_WINDOW = 64 * 1024
"""Bytes in flight to a client, or unread, above which the server must wait."""

_KEEP_ALIVE = 120.0
"""Seconds after which TCP keep-alive ends a silent connection for both ends."""


@attrs.frozen
class Fault:
    """A fault of a connection."""

    kind: str
    """"refuse": the next connection cannot be opened. "cut": the connection breaks, for both ends.
    "silence": from then on no bytes arrive in either direction, and neither end notices.
    "delay": no bytes arrive for some seconds.
    """
    after: int
    """The number of bytes before the fault, over all connections and both directions."""
    seconds: int = 0
    """The seconds of a delay."""

    def __str__(self) -> str:
        return f"{self.kind}@{self.after}" + (f"+{self.seconds}s" if self.seconds else "")

    def earlier(self, steps: int) -> Fault:
        """Return the same fault, ``steps`` requests or responses earlier."""
        return attrs.evolve(self, after=self.after - steps * _MOST_BYTES // 8)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Return the fault whose string this is. Raises ValueError if there is none."""
        found = _FAULT.fullmatch(text)
        if found is None:
            raise ValueError(f"A fault must be like cut@120 or delay@120+30s, got {text!r}")
        return cls(found[1], int(found[2]), int(found[3] or 0))


_FAULT = re.compile(rf"({'|'.join(KINDS)})@(\d+)(?:\+(\d+)s)?")


def draw_faults(seed: int, count: int, kinds: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults of a seed, in order."""
    if unknown := [kind for kind in kinds if kind not in KINDS] or not kinds:
        raise ValueError(f"kinds must name some of {', '.join(KINDS)}, got {unknown or kinds}")
    chance, after = random.Random(f"{seed}/faults"), 0
    faults: list[Fault] = []
    for _ in range(count):
        after += chance.randrange(_MOST_BYTES)
        kind = chance.choice(kinds)
        seconds = int(10 ** chance.uniform(0, 2.3))
        faults.append(Fault(kind, after, seconds if kind == "delay" else 0))
    return tuple(faults)


class End(Protocol):
    """One end of a connection."""

    def read(self, data: bytes) -> None:
        """Receive bytes."""

    def read_end(self) -> None:
        """Handle the close by the other end."""

    def lose(self, reason: str) -> None:
        """Handle the loss of the connection."""

    def wake(self) -> None:
        """Continue to send: the other end has read bytes."""


class Network:
    """The network between the clients and the servers of a test.

    Attributes:
        seed: the seed of all random decisions; the same seed gives the same run.
        latency: the minimum of seconds that bytes take; the maximum is twice as long.
        is_up: while it is False, no connection can be opened.
        faults: the random faults so far, in order.
    """

    def __init__(
        self, *, seed: int = 0, faults: Iterable[Fault] = (), latency: float = 0.01
    ) -> None:
        """Create a network without connections, with the faults to come."""
        self.seed = seed
        self.latency = latency
        self.is_up = True
        self.faults: list[Fault] = []
        self.loop = VirtualLoop()
        """The event loop of clients and servers."""
        self.at_end: list[Callable[[], None]] = []
        """Functions that end the servers and clients, in the order of their creation."""
        self._planned = list(faults)
        self._carried = self._count = 0
        self._open: list[Connection] = []

    @property
    def now(self) -> float:
        """The virtual time, in seconds since the test began."""
        return self.loop.time()

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` of virtual time pass."""
        self.loop.run(asyncio.sleep(seconds))

    def cut(self) -> None:
        """Reset all connections. Bytes in flight are lost."""
        for connection in tuple(self._open):
            connection.snap("connection reset by peer")
        self.sleep(0)

    def silence(self) -> None:
        """Let all open connections fall silent: no bytes arrive, and neither end notices."""
        for connection in self._open:
            connection.fall_silent()

    def close(self) -> None:
        """End all clients and servers, and the random faults."""
        self.is_up = True
        self._planned.clear()
        for end in reversed(self.at_end):
            end()
        self.loop.end()

    def open(self) -> Connection | None:
        """Open a connection; return None if it is refused."""
        if not self.is_up or self._next_fault(0, is_opening=True) is not None:
            return None
        self._count += 1
        connection = Connection(self, random.Random(f"{self.seed}/{self._count}"))
        self._open.append(connection)
        return connection

    def carry(self, size: int) -> tuple[int, Fault | None]:
        """Return how many of ``size`` bytes arrive before the next fault, and that fault."""
        fault = self._next_fault(size, is_opening=False)
        room = size if fault is None else max(0, fault.after - self._carried)
        self._carried += size
        return room, fault

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        with suppress(ValueError):
            self._open.remove(connection)

    def _next_fault(self, size: int, *, is_opening: bool) -> Fault | None:
        for fault in self._planned:
            is_due = fault.after < self._carried + size or (
                is_opening and fault.after <= self._carried
            )
            if is_due and (fault.kind == "refuse") is is_opening:
                self._planned.remove(fault)
                self.faults.append(fault)
                return fault
        return None


class _Way:
    """One direction of a connection; bytes arrive in order."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._last = 0.0
        """Time at which the last bytes in flight arrive."""
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._arrived = 0
        """Number of arrivals that are not read yet."""
        self.size = 0
        """Number of bytes in flight or unread."""
        self.is_held = False
        """True while the reader does not read."""

    @property
    def is_readable(self) -> bool:
        """True if there are unread arrivals."""
        return self._arrived > 0

    def send(self, delay: float, size: int, arrive: Callable[[], None]) -> None:
        """Call ``arrive`` after ``delay`` seconds, and after everything that was sent before."""
        self._last = max(self._last, self._loop.time() + delay)
        self.size += size
        self._queue.append((size, arrive))
        self._loop.call_at(self._last, self._arrive)

    def hold(self, is_held: bool) -> None:
        """Pause or resume the reader."""
        if self.is_held and not is_held:
            self._loop.call_soon(self._deliver)
        self.is_held = is_held

    def drop(self) -> None:
        """Drop everything in flight."""
        self._queue.clear()
        self._arrived = 0

    def _arrive(self) -> None:
        if self._queue:
            self._arrived += 1
            self._deliver()

    def _deliver(self) -> None:
        while self._arrived and not self.is_held:
            self._arrived -= 1
            size, arrive = self._queue.popleft()
            self.size -= size
            arrive()


class Connection:
    """A connection between a client and a server."""

    client: End
    server: End

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.to_client, self.to_server = _Way(network.loop), _Way(network.loop)
        self._network = network
        self._chance = chance
        self._is_silent = self._is_over = False
        self._held_until = 0.0

    @property
    def is_full(self) -> bool:
        """True if the server must wait before it sends more."""
        return self.to_client.size >= _WINDOW

    def send_to_server(self, data: bytes) -> None:
        """Send bytes of the client."""
        self._carry(data, self.to_server, lambda data: self.server.read(data))

    def send_to_client(self, data: bytes) -> None:
        """Send bytes of the server."""
        self._carry(data, self.to_client, lambda data: self._read_by_client(data))

    def close_by_client(self) -> None:
        """Close the client's end: it stops reading, and the bytes it has sent arrive."""
        if not self._is_over:
            self.to_client.drop()
            self._close(self.to_server, lambda: self.server.lose("closed"))

    def close_by_server(self) -> None:
        """Close the server's end after the bytes it has sent have arrived."""
        self._close(self.to_client, lambda: self.client.read_end())

    def snap(self, reason: str) -> None:
        """Reset the connection, for both ends."""
        if not self._is_over:
            self._is_over = True
            self._network.forget(self)
            self.to_client.drop()
            self.to_server.drop()
            self.client.lose(reason)
            self.server.lose(reason)

    def fall_silent(self) -> None:
        """Fall silent: no more bytes arrive."""
        self._is_silent = True
        self.to_client.drop()
        self.to_server.drop()
        self._network.loop.call_later(_KEEP_ALIVE, self.snap, "connection timed out")

    def _read_by_client(self, data: bytes) -> None:
        self.client.read(data)
        self.server.wake()

    def _close(self, way: _Way, arrive: Callable[[], None]) -> None:
        if not self._is_over and not self._is_silent:
            way.send(self._delay(), 0, lambda: self._end(arrive))

    def _end(self, arrive: Callable[[], None]) -> None:
        self._is_over = True
        self._network.forget(self)
        arrive()

    def _carry(self, data: bytes, way: _Way, read: Callable[[bytes], None]) -> None:
        if self._is_over or self._is_silent:
            return
        room, fault = self._network.carry(len(data))
        if data[:room]:
            way.send(self._delay(), room, lambda: read(data[:room]))
        if fault is not None:
            self._suffer(fault, way)
            if data[room:]:
                way.send(self._delay(), len(data) - room, lambda: read(data[room:]))

    def _suffer(self, fault: Fault, way: _Way) -> None:
        if fault.kind == "cut":
            way.send(self._delay(), 0, lambda: self.snap("connection reset by peer"))
        elif fault.kind == "silence":
            way.send(self._delay(), 0, self.fall_silent)
        else:
            self._held_until = self._network.now + fault.seconds

    def _delay(self) -> float:
        latency = self._network.latency * (1 + self._chance.random())
        return latency + max(0.0, self._held_until - self._network.now)
