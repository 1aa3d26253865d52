"""A TCP proxy that passes connections on to a server, with faults.

``FaultProxy`` accepts connections, opens one to the server for each, and copies bytes both ways. It
does not parse HTTP. A ``Fate`` decides for the bytes of one connection when they are passed on, in
which pieces, and after which byte the connection is cut or falls silent. The proxy performs that on
sockets. It has no buffer: while one end does not read, it does not read from the other.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeAlias

import attrs

_READ = 65536
_RETRY = 0.1
"""Seconds until the next attempt to accept a connection, if the process has no descriptor left."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""``SO_LINGER`` with a time of zero: ``close()`` sends a reset."""

Address: TypeAlias = tuple[Any, ...]
"""The address of a socket: two members for IPv4, four for IPv6."""


class Way(enum.Enum):
    """A direction of a connection."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"

    @property
    def other(self) -> Way:
        """The opposite direction."""
        return Way.TO_CLIENT if self is Way.TO_SERVER else Way.TO_SERVER


class Ending(enum.Enum):
    """How a connection ends. A fate chooses among the first three; the others just happen."""

    CLOSE = "cut: closed"
    """Both ends see the end of the stream."""
    RESET = "cut: reset"
    """Both ends see an error."""
    SILENCE = "fell silent"
    """Neither end notices: both can keep writing, and no bytes arrive."""
    ENDED = "closed by its ends"
    BROKEN = "reset by one of its ends"
    REFUSED = "refused by the upstream"
    STOPPED = "open when chaos stopped"


CUTS = (Ending.CLOSE, Ending.RESET)


@attrs.frozen
class Piece:
    """Bytes that are passed on together, with the delay before and the ending after them."""

    data: bytes
    latency: float = 0.0
    """Seconds by which a fault delays the piece."""
    pause: float = 0.0
    """Seconds between this piece and the one before."""
    ending: Ending | None = None
    """How the connection ends after this piece; None if it continues."""


class Fate(Protocol):
    """Decides what happens to one connection."""

    @property
    def end_by_time(self) -> tuple[float, Ending] | None:
        """The seconds after which the connection ends, and how; None if time does not end it."""
        ...

    def pieces(self, way: Way, data: bytes) -> Iterable[Piece]:
        """Return the pieces of bytes that were read. Bytes after an ending are not passed on."""
        ...


@attrs.define(eq=False)
class Link:
    """One connection that is passed on.

    Attributes:
        number: its place in the order in which connections were accepted, from 1.
        carried: bytes that were passed on, by direction, without those dropped in a silence.
        delays: number of pieces that were delayed by a latency.
        ending: how it ended; None while it is open.
        way: the direction of the byte after which its fate ended it; None for the other endings.
        seconds: how long it had lasted when it ended, or fell silent.
    """

    number: int
    _fate: Fate
    _sources: dict[Way, socket.socket]
    """The socket from which the bytes of each direction are read."""
    carried: dict[Way, int] = attrs.field(factory=lambda: dict.fromkeys(Way, 0), init=False)
    delays: int = attrs.field(default=0, init=False)
    ending: Ending | None = attrs.field(default=None, init=False)
    way: Way | None = attrs.field(default=None, init=False)
    seconds: float = attrs.field(default=0.0, init=False)

    async def carry(self, is_quiet: Callable[[], bool]) -> None:
        """Copy both ways until the fate ends the connection, one end resets it, or both close."""
        copies = {asyncio.ensure_future(self._copy(way, is_quiet)) for way in Way}
        timer = asyncio.ensure_future(self._expire(is_quiet))
        pending = {*copies, timer}
        try:
            while self.ending is None:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if not pending - {timer}:
                    self.ending = self.ending or Ending.ENDED
        except OSError:
            self.ending = self.ending or Ending.BROKEN
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*copies, timer, return_exceptions=True)

    async def _copy(self, way: Way, is_quiet: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        source, sink = self._sources[way], self._sources[way.other]
        while data := await loop.sock_recv(source, _READ):
            for piece in (Piece(data),) if is_quiet() else self._fate.pieces(way, data):
                wait = piece.latency + piece.pause
                if wait and not is_quiet():
                    self.delays += piece.latency > 0
                    await asyncio.sleep(wait)
                await loop.sock_sendall(sink, piece.data)
                self.carried[way] += len(piece.data)
                if piece.ending is not None:
                    if self.ending is None:
                        self.ending, self.way = piece.ending, way
                    return
        sink.shutdown(socket.SHUT_WR)

    async def _expire(self, is_quiet: Callable[[], bool]) -> None:
        if self._fate.end_by_time is not None:
            lifetime, ending = self._fate.end_by_time
            await asyncio.sleep(lifetime)
            if not is_quiet():
                self.ending = self.ending or ending

    async def swallow(self) -> None:
        """Read from both ends and discard the bytes, until each has closed its side."""
        await asyncio.gather(*map(_swallow, self._sources.values()))


async def _swallow(end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while await loop.sock_recv(end, _READ):
            pass
    end.close()


def _ignore(link: Link) -> None:
    pass


@attrs.define(eq=False)
class FaultProxy:
    """Passes connections on to a server.

    Attributes:
        is_quiet: while True, fates are ignored and all bytes pass. May be set in any thread. A
            connection that is silent already stays silent, and faults decided for bytes that were
            read already still happen, without delay.
    """

    _upstream: Callable[[], Address]
    """Returns the address of the server for the next connection."""
    _fate_of: Callable[[int], Fate]
    """Returns the fate of a connection, from its number."""
    _ended: Callable[[Link], None] = _ignore
    """Called once for each connection, when it ends or falls silent."""
    is_quiet: bool = False

    async def run(self, listener: socket.socket) -> None:
        """Pass connections on until cancelled; that closes the open ones."""
        loop = asyncio.get_running_loop()
        listener.settimeout(0)
        serving: set[asyncio.Task[None]] = set()
        try:
            for number in itertools.count(1):
                task = loop.create_task(self._serve(number, await _accept(listener)))
                serving.add(task)
                task.add_done_callback(serving.discard)
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, number: int, client: socket.socket) -> None:
        began, address = time.monotonic(), self._upstream()
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        with client, socket.socket(family) as server:
            for end in (client, server):
                end.settimeout(0)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sources = {Way.TO_SERVER: client, Way.TO_CLIENT: server}
            link = Link(number, self._fate_of(number), sources)
            try:
                await asyncio.get_running_loop().sock_connect(server, address)
                await link.carry(lambda: self.is_quiet)
            except OSError:
                link.ending = Ending.REFUSED
            finally:
                link.ending = link.ending or Ending.STOPPED
                link.seconds = time.monotonic() - began
                self._ended(link)
            if link.ending is Ending.SILENCE:
                await link.swallow()
            elif link.ending not in (Ending.ENDED, Ending.CLOSE):
                for end in (client, server):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


async def _accept(listener: socket.socket) -> socket.socket:
    loop = asyncio.get_running_loop()
    while True:
        accepting = loop.create_task(loop.sock_accept(listener))
        try:
            client, _ = await asyncio.shield(accepting)
        except OSError:
            await asyncio.sleep(_RETRY)
        except asyncio.CancelledError:
            # sock_accept() of CPython 3.11 raises InvalidStateError if it is cancelled in the step
            # in which a connection comes. The loop of Windows has no readers, and completes it.
            with suppress(NotImplementedError):
                loop.remove_reader(listener)
            await asyncio.sleep(0)
            accepting.cancel()
            with suppress(asyncio.CancelledError, OSError):
                client, _ = await accepting
                client.close()
            raise
        else:
            return client


@contextmanager
def relaying(relay: FaultProxy) -> Generator[str, None, None]:
    """Run a proxy in a thread, and yield the URL of the servers behind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        loop = asyncio.new_event_loop()
        task = loop.create_task(relay.run(listener))

        def run() -> None:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)

        running = threading.Thread(target=run, daemon=True)
        running.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            loop.call_soon_threadsafe(task.cancel)
            running.join()
            loop.close()
